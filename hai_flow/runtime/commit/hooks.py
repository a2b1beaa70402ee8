"""The services that hear of commits, and those that only watch. A fault in one of them stops no commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from hai_flow.engine import events as e
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.store.postgres.error_classes import ErrorClass

if TYPE_CHECKING:
    from hai_flow.runtime.commit.batches import CommitEntry
    from hai_flow.runtime.worker.attempt import Report, RunningAttempt
    from hai_flow.store.runs.leases import Claimed

OnCommitted: TypeAlias = Callable[[CachedRun, int, Sequence[e.Event]], None]
OnChanged: TypeAlias = Callable[[CachedRun], None]
OnOutbox: TypeAlias = Callable[[], object]
OnUnusable: TypeAlias = Callable[[CachedRun, int | None, Exception], None]
OnWritten: TypeAlias = "Callable[[Sequence[CommitEntry]], None]"
OnSent: TypeAlias = "Callable[[Sequence[CommitEntry], int, float, float], None]"
OnUnsent: TypeAlias = Callable[[ErrorClass], None]
OnRefused: TypeAlias = Callable[[Exception], None]
OnClaimed: TypeAlias = "Callable[[Sequence[Claimed]], None]"
OnPerformed: TypeAlias = "Callable[[RunningAttempt, Report, float, float], None]"
log = structlog.get_logger(__name__)


class Listeners:
    """`committed` are called with each committed piece of a run's log, from its first seq, in order; `changed` after a
    win or a load, when the run's jobs may have changed; `outbox` after a win that wants something of another run;
    `unusable` when this process can't go on with a run that it may hold (under this fence; None: under any).

    The others watch, and change nothing. `written` is called with the entries that this process has won by one commit:
    unlike `committed` with nothing that others wrote. `sent`: a commit was answered: its entries, how many of them won,
    since when and when; `unsent`: it was refused or broke off. `refused`: a commit or a claim was, by this error.
    `claimed`: runs that a claim returned. `performed`: an attempt has ended with this report; when it began, and when
    it ended. All times are monotonic."""

    def __init__(self) -> None:
        self.committed: list[OnCommitted] = []
        self.changed: list[OnChanged] = []
        self.outbox: list[OnOutbox] = []
        self.unusable: list[OnUnusable] = []
        self.written: list[OnWritten] = []
        self.sent: list[OnSent] = []
        self.unsent: list[OnUnsent] = []
        self.refused: list[OnRefused] = []
        self.claimed: list[OnClaimed] = []
        self.performed: list[OnPerformed] = []

    def notify_committed(self, run: CachedRun, first_seq: int, events: Sequence[e.Event]) -> None:
        for listener in self.committed:
            try:
                listener(run, first_seq, events)
            except Exception as error:
                log.error("publishing_failed", run_id=str(run.id), exc_info=error)

    def notify_changed(self, run: CachedRun) -> None:
        for listener in self.changed:
            try:
                listener(run)
            except Exception as error:
                log.error("performing_failed", run_id=str(run.id), exc_info=error)

    def notify_outbox(self) -> None:
        for listener in self.outbox:
            listener()

    def notify_unusable(self, run: CachedRun, fence: int | None, error: Exception) -> None:
        for listener in self.unusable:
            try:
                listener(run, fence, error)
            except Exception as fault:
                log.error("giving_back_failed", run_id=str(run.id), exc_info=fault)


def tell(watching: Sequence[Callable[..., None]], *what: Any) -> None:
    """Call the listeners that watch. Their errors are logged, and go no further."""
    for watcher in watching:
        try:
            watcher(*what)
        except Exception as error:
            log.error("watching_failed", exc_info=error)
