"""The runs that this process knows, as long as they fit, and where each that has something to do waits: for its lane,
or to be loaded."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.commit.cached_run import CachedRun

EVICTION_TRIES: Final = 8  # runs in use that one growth of the cache passes over


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
        self.weigh(run, added=True)
        return run

    def use(self, run: CachedRun) -> None:
        """The run is wanted now. Not asked of those that this process holds: they are not evicted, whatever their
        place."""
        self._runs.move_to_end(run.id)

    def weigh(self, run: CachedRun, *, added: bool = False) -> None:
        """The run's log has grown, or a snapshot has taken its place."""
        if not (added or run.bytes):
            return
        self.bytes += run.weigh()
        if self.bytes > self._bytes_max:
            self._evict(run)

    def _evict(self, run: CachedRun) -> None:
        for _ in range(EVICTION_TRIES):
            if self.bytes <= self._bytes_max:
                return
            oldest = next(iter(self._runs.values()))
            if oldest is run or oldest.queued or oldest.has_work or oldest.owned:
                self._runs.move_to_end(oldest.id)  # in use; the next growth looks further
            else:
                self.forget(oldest)

    def forget(self, run: CachedRun) -> None:
        if not run.owned and run.bytes:
            del self._runs[run.id]
            self.bytes -= run.uncache()

    def clear(self) -> None:
        for run in self._runs.values():
            run.uncache()
        self._runs.clear()
        self.bytes = 0


class Queue:
    """Runs in the order in which they first had something to do.

    `hand` are the runs that were taken and are not dealt with yet, `entries` their entries. `since`: when the queue
    last got shorter, or ceased to be empty (monotonic). `failed` are those whose commits got no answer since: they are
    loaded again, and that they come back from there is no new work."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.waiting: deque[CachedRun] = deque()
        self.hand: list[CachedRun] = []
        self.entries: list[CommitEntry] = []
        self.since = 0.0
        self.failed: set[CachedRun] = set()

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.hand or self.failed)

    def got_on(self) -> None:
        """The database has answered, if only with a refusal."""
        self.since = time.monotonic()
        self.failed.clear()

    def add(self, run: CachedRun) -> None:
        if not self.waiting:
            if not self.busy:
                self.since = time.monotonic()
            self.ready.set()
        run.enqueue()
        self.waiting.append(run)

    def take(self, most: int) -> list[CachedRun]:
        runs = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        for run in runs:
            run.take()
        if not self.waiting:
            self.ready.clear()
        return runs


class Queues:
    """A queue for each lane, and one for the loader. A run is in one of them, or being dealt with, at most once."""

    def __init__(self, cache: Cache, lanes: int) -> None:
        self._cache = cache
        self.lanes = [Queue() for _ in range(lanes)]
        self.loads = Queue()
        self.queued = 0
        self._released = asyncio.Event()
        self._awaited = 0  # by so many

    def find_lane(self, run: CachedRun) -> Queue:
        return self.lanes[run.number % len(self.lanes)]

    def add(self, run: CachedRun) -> None:
        """The run has something to do: it is decided in its lane, or loaded first."""
        if run.position != "idle":
            return
        self.queued += 1
        if not run.owned:
            self._cache.use(run)
        (self.loads if run.must_load else self.find_lane(run)).add(run)

    def load_again(self, run: CachedRun) -> None:
        """A run that was taken out of its queue has to be loaded before it is decided."""
        run.outdate(time.monotonic())
        self.loads.add(run)

    def doubt(self, run: CachedRun) -> None:
        """A commit of the run may still land: it has to be loaded behind a higher fence."""
        run.doubt(time.monotonic())
        self.loads.add(run)

    def refresh(self, run: CachedRun) -> None:
        """The known state of the run is old: load its tail, now or when its turn is over."""
        run.outdate(time.monotonic())
        self.add(run)

    def release(self, run: CachedRun) -> None:
        """The run's turn in its lane is over. It is queued again if more commands wait, else the cache may drop it."""
        self.leave(run)
        if run.submissions or run.chunks or run.must_load:
            self.add(run)
        elif not run.exists or run.state.status in TERMINAL_STATUSES:
            self._cache.forget(run)

    def leave(self, run: CachedRun) -> None:
        run.leave()
        for lane in self.lanes:
            if lane.failed:
                lane.failed.discard(run)
        self.queued -= 1
        if self._awaited:
            self._released.set()

    async def wait_committed(self, runs: Iterable[CachedRun]) -> None:
        """Return when all commands for these runs are decided and committed."""
        waiting = list(runs)
        while any(run.queued for run in waiting):
            await self._release_of_any()

    async def wait_empty(self) -> None:
        """Return when no run is queued."""
        while self.queued:
            await self._release_of_any()

    async def _release_of_any(self) -> None:
        self._released.clear()
        self._awaited += 1
        try:
            await self._released.wait()
        finally:
            self._awaited -= 1

    def last_progress(self) -> float:
        """Since when (monotonic) something has been waiting without any lane, or the loader, getting on; now, if
        nothing has. A run that could not be committed waits in its lane, also while it is loaded again."""
        return min((queue.since for queue in (*self.lanes, self.loads) if queue.busy), default=time.monotonic())

    def clear(self) -> None:
        self.lanes = [Queue() for _ in self.lanes]
        self.loads = Queue()
        self.queued = 0
