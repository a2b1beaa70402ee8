"""Which runs this process holds, as far as it has heard (docs/design/store.md#claims)."""

from __future__ import annotations

from hai_flow.runtime.base.queue_selection import QueueSelection
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.hooks import Listeners


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

    def owns(self, worker: int | None) -> bool:
        """Whether a run that `worker` holds is held by this process."""
        return worker is not None and worker == self.worker_id

    def disown(self, run: CachedRun) -> None:
        """The database says that this process holds the run no more."""
        run.disown()
        self._listeners.notify_changed(run)

    def note_release(self, run: CachedRun) -> None:
        """This process has handed the run on, as it is."""
        run.release()
        self._listeners.notify_changed(run)

    def let_go(self, run: CachedRun, fence: int | None, error: Exception) -> None:
        """This process can't go on with the run, for this error."""
        run.disown()
        if self.worker_id is not None:
            self._listeners.notify_unusable(run, fence, error)
