"""Runs as this process knows them, and the cache that keeps them as long as they fit."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from hai_flow.definition.plan import Plan
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.commit.submission import Streamed, Submission
from hai_flow.store.commit.entries import CommandRow

STATE_OVERHEAD_BYTES: Final = 4096
EVICTION_TRIES: Final = 8  # runs in use that one growth of the cache passes over
NEVER_HEARD: Final = -2  # a fence that no claim of ours can follow: a dead worker may have begun the open attempts


@dataclass(slots=True, eq=False)
class CachedRun:
    """A run as this process knows it. `mine`: a statement of this process returned that it holds the run
    (docs/design/store.md#claims)."""

    id: UUID
    tenant: UUID
    state: RunState
    plan: Plan | None = None
    version: int = 0
    fence: int = NEVER_HEARD
    worker: int | None = None  # the holder, as of the last statement about it
    mine: bool = False
    suspect: bool = False  # it became ours in a way that does not prove that its open attempts were never begun
    refence: bool = False  # a commit of unknown outcome may still land: raise the fence before loading
    loaded_at: float = -1.0  # monotonic: when the load (or the win) that the state comes from began
    exists: bool = True
    submissions: deque[Submission] = field(default_factory=deque)
    chunks: deque[Streamed] = field(default_factory=deque)
    known: dict[str, CommandRow] = field(default_factory=dict)  # ids of waiting submissions that were used before
    losses: int = 0
    singly: int = 0  # so many of the submissions are decided one an entry: one of them spoilt an entry of several
    queued: bool = False  # in its lane's queue, in the loader's, or in a batch in flight
    taken: bool = False  # of these: taken out of a queue, and not dealt with yet
    log_bytes: int = 0  # since the last snapshot
    run_bytes: int = 0  # of the whole log
    snapshot_bytes: int = 0
    bytes: int = 0
    slot_taken: bool = False
    missing: bool = False
    stale: bool = False  # a refresh was asked for while a batch was in flight
    kept: bool = False  # it is in the committer's cache

    @property
    def held_elsewhere(self) -> bool:
        """Whether another process holds the run, as far as this one knows."""
        return self.worker is not None and not self.mine

    @property
    def wants(self) -> bool:
        return bool(self.submissions or self.chunks)


class Cache:
    """The runs that this process knows, the least recently used first. Runs in use are not evicted."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.hits = self.misses = 0  # of commands for runs that are there already
        self._bytes_max = bytes_max
        self._runs: OrderedDict[UUID, CachedRun] = OrderedDict()

    def get(self, run_id: UUID) -> CachedRun | None:
        return self._runs.get(run_id)

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[CachedRun]:
        """The runs as they are now: the cache may change meanwhile."""
        return iter(list(self._runs.values()))

    def add(self, run: CachedRun) -> CachedRun:
        self._runs[run.id] = run
        run.kept = True
        self.weigh(run)
        return run

    def use(self, run: CachedRun) -> None:
        """The run is wanted now. Those that this process holds are not evicted, whatever their place."""
        if not run.mine:
            self._runs.move_to_end(run.id)

    def weigh(self, run: CachedRun) -> None:
        """Count the run in the cache by the size of its state, nearly: its last snapshot and the log since. To measure
        it would cost as much as a snapshot; those come often enough that this is at most about twice as much."""
        self._expect_more(run, STATE_OVERHEAD_BYTES + run.snapshot_bytes + run.log_bytes - run.bytes)

    def _expect_more(self, run: CachedRun, size: int) -> None:
        if not run.kept:
            return
        run.bytes += size
        self.bytes += size
        for _ in range(EVICTION_TRIES):
            if self.bytes <= self._bytes_max:
                return
            oldest = next(iter(self._runs.values()))
            if oldest is run or oldest.queued or oldest.wants or oldest.mine:
                self._runs.move_to_end(oldest.id)  # in use; the next growth looks further
            else:
                self.forget(oldest)

    def forget(self, run: CachedRun) -> None:
        if not run.mine and run.kept:
            run.kept = False
            del self._runs[run.id]
            self.bytes -= run.bytes
            run.bytes = 0

    def clear(self) -> None:
        for run in self._runs.values():
            run.kept = False
        self._runs.clear()
        self.bytes = 0
