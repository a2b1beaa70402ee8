"""The state of a run behind any of its events, folded of what is stored."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.snapshot import ABI, decode_state
from hai_flow.engine.state.state import RunState
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.store.ops.replicas import History
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import logs

HEAD: Final = 2**53
"""Beyond every seq: `state_at` it is the run as it is."""


async def state_at(
    database: Database,
    tenant: UUID,
    run_id: UUID,
    seq: int,
    reads: Pool | None = None,
    history: History | None = None,
    known: CachedRun | None = None,
) -> RunState | None:
    """The fold of the run's first `seq` events (all of them, if it has fewer); None: the tenant has no run of that id.
    `reads`: the connections for reading; `history`: those for the log of this run, in their place. `known`: the run as
    far as this process knows it, of whose log only the rest is read, if it is the same run, and the database has it.

    Raises `Unreadable`."""
    start, birth = RunState(str(run_id)), None
    if history is not None:
        loaded = await history.load_at(tenant, seq, ABI)
    else:
        if known is not None and known.state.seq <= seq:
            start, birth = known.state, known.created_at
        loaded = await logs.load_run_at(reads or database.api, tenant, run_id, seq, ABI, start.seq, birth)
    if loaded is None:
        return None
    e.check_readable(loaded.abi)
    if loaded.from_seq < start.seq:
        start = RunState(str(run_id))
    size = len(loaded.state or b"") + sum(len(row.events) for row in loaded.rows)
    return await run_by_size(size, _fold_stored, start, loaded, seq)


def _fold_stored(start: RunState, loaded: logs.Loaded, seq: int) -> RunState:
    state = start if loaded.state is None else decode_state(loaded.state)
    for row in loaded.rows:
        events = e.decode_events(row.events)  # some of them may be in the state: commits of an ended run are merged
        state = fold(state, events[state.seq + 1 - row.first_seq : max(0, seq + 1 - row.first_seq)])
    return state
