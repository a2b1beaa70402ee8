"""The services that hear of commits. A fault in one of them stops no commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import structlog

from hai_flow.engine import events as e
from hai_flow.runtime.cache import CachedRun

OnCommitted: TypeAlias = Callable[[CachedRun, int, Sequence[e.Event]], None]
OnChanged: TypeAlias = Callable[[CachedRun], None]
OnOutbox: TypeAlias = Callable[[], object]
OnUnusable: TypeAlias = Callable[[CachedRun, int | None, Exception], None]
log = structlog.get_logger(__name__)


class Listeners:
    """`committed` are called with each committed piece of a run's log, from its first seq, in order; `changed` after a
    win or a load, when the run's jobs may have changed; `outbox` after a win that wants something of another run;
    `unusable` when this process can't go on with a run that it may hold (under this fence; None: under any)."""

    def __init__(self) -> None:
        self.committed: list[OnCommitted] = []
        self.changed: list[OnChanged] = []
        self.outbox: list[OnOutbox] = []
        self.unusable: list[OnUnusable] = []

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
