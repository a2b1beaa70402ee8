"""Which runs this process holds, as far as it has heard (docs/design/store.md#claims)."""

from __future__ import annotations

from hai_flow.runtime.base.queue_selection import QueueSelection
from hai_flow.runtime.commit.hooks import Listeners
from hai_flow.runtime.commit.run_cache import CachedRun


class RunOwnership:
    """`worker_id` is this process's in the workers table, None while it performs nothing. `served` are the queues whose
    runs it performs: of others its commits take no claim."""

    def __init__(self, listeners: Listeners) -> None:
        self.worker_id: int | None = None
        self.served = QueueSelection()
        self._listeners = listeners

    def serves(self, queue: str) -> bool:
        """Whether this process performs runs of the queue, if it performs any."""
        return self.worker_id is None or self.served.serves(queue)

    def take_in(self, run: CachedRun, worker: int | None, fence: int) -> None:
        """Take in the holder of the run. Only a claim that was free before, and rose the fence by one, is surely fresh:
        any other may be a claim of a dead worker's run whose answer was lost, so its open attempts may have been
        begun."""
        mine = worker is not None and worker == self.worker_id
        if mine and not run.mine and run.exists:
            run.suspect = run.worker is not None or fence != run.fence + 1
        run.mine, run.worker, run.fence = mine, worker, fence

    def disown(self, run: CachedRun) -> None:
        """The database says that this process holds the run no more."""
        run.mine = False
        self._listeners.notify_changed(run)

    def note_release(self, run: CachedRun) -> None:
        """This process has handed the run on, as it is."""
        run.worker, run.fence = None, run.fence + 1
        self.disown(run)

    def let_go(self, run: CachedRun, fence: int | None, error: Exception) -> None:
        """This process can't go on with the run, for this error."""
        run.mine = False
        if self.worker_id is not None:
            self._listeners.notify_unusable(run, fence, error)
