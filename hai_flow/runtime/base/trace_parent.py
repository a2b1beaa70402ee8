"""The request that the current task answers, with its place in a trace; and the attempt that it performs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias

from hai_flow.engine.state.tracing import TracePosition

if TYPE_CHECKING:
    from hai_flow.runtime.worker.attempt import RunningAttempt


class TraceParent:
    """A request. `parent`: the place in a trace that its caller names. `place`: its own span, once it is recorded."""

    __slots__ = ("parent", "place")

    def __init__(self, parent: TracePosition | None = None) -> None:
        self.parent = parent
        self.place: TracePosition | None = None

    def record(self) -> TracePosition:
        """The request's own span, in its caller's trace, or in one that begins here."""
        if self.place is None:
            trace_id = secrets.token_hex(16) if self.parent is None else self.parent.trace_id
            self.place = TracePosition(trace_id, secrets.token_hex(8), True)
        return self.place


ASKER: Final[ContextVar[TraceParent | None]] = ContextVar("asker", default=None)
PERFORMED: Final[ContextVar[RunningAttempt | None]] = ContextVar("performed", default=None)

BeginTrace: TypeAlias = Callable[[TraceParent | None], TracePosition | None]
"""The place in a trace of a run that `asker` starts; None for a run without a caller, like a schedule's."""


def forward_trace(asker: TraceParent | None) -> TracePosition | None:
    """The trace context of the caller, for a process that records no traces."""
    return None if asker is None else asker.parent
