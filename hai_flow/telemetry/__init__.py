"""What operators see of a process: metrics, traces, and the listener that shows them.

Nothing here decides anything. The runtime tells its listeners (`runtime/listeners`), and what stands anyway is read
when somebody looks. `instruments` count, `exposition` writes them for Prometheus; `metrics` says what is counted and
what each number means; `census` is what only the database knows, counted by one process for all; `listener` answers
`/metrics`, `/healthz` and `/readyz` on a port of its own.
"""
