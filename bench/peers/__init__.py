"""Other engines on the same PostgreSQL in the same minutes: `python -m bench peers` (docs/peers.md has the results).

Each engine is a *subject*: a process that obeys commands on its stdin (`talking`), ours in this environment (`ours`),
the others in one of their own (`theirs`). `chains` measures chains of trivial steps; `world` is the model and the tools
of an agent, `turns` plays the person, measures turns and kills subjects at the points of one.
"""
