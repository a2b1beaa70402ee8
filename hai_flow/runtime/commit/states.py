"""The state of a run behind any of its events, folded of what is stored; and the runs that were read last."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias
from uuid import UUID

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.snapshot import ABI, decode_state
from hai_flow.engine.state.state import RunState
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.commit.cached_run import STATE_OVERHEAD_BYTES, CachedRun
from hai_flow.store.ops.replicas import History
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import logs

HEAD: Final = 2**53
"""Beyond every seq: `state_at` it is the run as it is."""
RECENT_SECONDS: Final = 10.0  # for so long a reading is worth a decision: after that it has often been overtaken
RECENT_BYTES_MAX: Final = 1024 * 1024

NoteRead: TypeAlias = Callable[[logs.Loaded, RunState, float], None]
"""Hears of a run that was read: what was loaded, its fold, and when that began (monotonic)."""


class RecentReads:
    """The runs that this process has read last, as of then, within bounds. A command mostly comes with a reading of its
    run, and need not load it once more: it is decided as on any state that is remembered, which may be old."""

    def __init__(self) -> None:
        self._runs: OrderedDict[UUID, CachedRun] = OrderedDict()
        self._bytes = 0

    def add(self, run: CachedRun) -> None:
        self._remove(run.id)
        if _size_of(run) > RECENT_BYTES_MAX:
            return
        self._runs[run.id] = run
        self._bytes += _size_of(run)
        while self._bytes > RECENT_BYTES_MAX:
            self._remove(next(iter(self._runs)))

    def take(self, run_id: UUID) -> CachedRun | None:
        """The run, which is the caller's from now on."""
        run = self._remove(run_id)
        return run if run is not None and time.monotonic() - run.loaded_at < RECENT_SECONDS else None

    def clear(self) -> None:
        self._runs.clear()
        self._bytes = 0

    def _remove(self, run_id: UUID) -> CachedRun | None:
        run = self._runs.pop(run_id, None)
        self._bytes -= 0 if run is None else _size_of(run)
        return run


def _size_of(run: CachedRun) -> int:
    return STATE_OVERHEAD_BYTES + run.log_bytes + run.snapshot_bytes


async def state_at(
    database: Database,
    tenant: UUID,
    run_id: UUID,
    seq: int,
    reads: Pool | None = None,
    history: History | None = None,
    known: CachedRun | None = None,
    note: NoteRead | None = None,
) -> RunState | None:
    """The fold of the run's first `seq` events (all of them, if it has fewer); None: the tenant has no run of that id.
    `reads`: the connections for reading; `history`: those for the log of this run, in their place. `known`: the run as
    far as this process knows it, of whose log only the rest is read, if it is the same run, and the database has it.
    `note` is called with what was read.

    Raises `Unreadable`."""
    start, birth, began = RunState(str(run_id)), None, time.monotonic()
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
    state = await run_by_size(size, _fold_stored, start, loaded, seq)
    if note is not None:
        note(loaded, state, began)
    return state


def _fold_stored(start: RunState, loaded: logs.Loaded, seq: int) -> RunState:
    state = start if loaded.state is None else decode_state(loaded.state)
    for row in loaded.rows:
        events = e.decode_events(row.events)  # some of them may be in the state: commits of an ended run are merged
        state = fold(state, events[state.seq + 1 - row.first_seq : max(0, seq + 1 - row.first_seq)])
    return state
