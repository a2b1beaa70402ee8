"""Where each cached run that has something to do waits: for its lane, or to be loaded."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable

from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.commit.run_cache import Cache, CachedRun


class Queue:
    """Runs in the order in which they first had something to do.

    `hand` are the runs that were taken and are not dealt with yet, `entries` their entries. `since`: when the queue
    last got shorter, or ceased to be empty (monotonic). `failed` are those whose commits got no answer since: they are
    loaded again, and that they come back from there is no new work.
    """

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
        if not self.busy:
            self.since = time.monotonic()
        run.taken = False
        self.waiting.append(run)
        self.ready.set()

    def take(self, most: int) -> list[CachedRun]:
        runs = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        for run in runs:
            run.taken = True
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
        return self.lanes[run.id.int % len(self.lanes)]

    def add(self, run: CachedRun) -> None:
        """The run has something to do: it is decided in its lane, or loaded first."""
        if run.queued:
            return
        run.queued = True
        self.queued += 1
        self._cache.use(run)
        if run.loaded_at < 0:
            self.loads.add(run)
        else:
            self.find_lane(run).add(run)

    def load_again(self, run: CachedRun) -> None:
        """A run that was taken out of its queue has to be loaded before it is decided."""
        run.loaded_at = -1.0
        self.loads.add(run)

    def refresh(self, run: CachedRun) -> None:
        """The known state of the run is old: load its tail, now or when it is dealt with."""
        if run.queued:
            run.stale = True
        else:
            run.loaded_at = -1.0
            self.add(run)

    def release(self, run: CachedRun) -> None:
        """The run's turn in its lane is over. It is queued again if more commands wait, else the cache may drop it."""
        self.leave(run)
        if run.known:
            waiting = {submission.command_id for submission in run.submissions}
            run.known = {id: command for id, command in run.known.items() if id in waiting}
        run.slot_taken = False
        if run.stale:
            run.stale, run.loaded_at = False, -1.0
        if run.wants:
            self.add(run)
        elif run.loaded_at < 0:
            self.refresh(run)
        elif run.missing or not run.exists or run.state.ended:
            self._cache.forget(run)

    def leave(self, run: CachedRun) -> None:
        run.queued = run.taken = False
        if failed := self.find_lane(run).failed:
            failed.discard(run)
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
