"""Where a run stands in a trace, computed by every process alike. Ids of spans come from the trace context that the run
was started with and from its events. The first turn belongs to the caller's trace. Each later one is a trace of its
own, linked to the turn before: days may lie between them."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from hai_flow.engine.state.state import RunState

CHARS_MAX: Final = 512
_WRITTEN: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16


class TracePosition(NamedTuple):
    """A span: its trace's id (32 hex digits), its own (16), and whether the trace is recorded."""

    trace_id: str
    span_id: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


@lru_cache(4096)  # it is asked several times for each event of a run
def place_of(traceparent: str | None) -> TracePosition | None:
    """The place that a `traceparent` names. None: it names none, as whatever is not of W3C's form."""
    if traceparent is None or len(traceparent) > CHARS_MAX:
        return None
    match = _WRITTEN.fullmatch(traceparent.strip(" \t"))
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return TracePosition(trace_id, span_id, bool(int(flags, 16) & 1))


def is_traced(state: RunState) -> bool:
    """Whether the run's spans are recorded."""
    place = place_of(state.trace)
    return place is not None and place.sampled


def derive_turn_place(state: RunState, turn: int) -> TracePosition | None:
    """The span of a turn. None: the run was started without a trace."""
    start = place_of(state.trace)
    if start is None:
        return None
    trace_id = start.trace_id if turn <= 1 else _digits(32, "trace", state.run_id, str(turn))
    return TracePosition(trace_id, _digits(16, "turn", state.run_id, str(max(turn, 1))), start.sampled)


def derive_step_place(state: RunState, path: str, turn: int) -> TracePosition | None:
    """The span of a step, as far as the turn has it."""
    of = derive_turn_place(state, turn)
    return None if of is None else of._replace(span_id=_digits(16, "step", state.run_id, path, str(turn)))


def derive_attempt_place(state: RunState, path: str, attempt: int) -> TracePosition | None:
    """The span of an attempt, in the turn that goes on."""
    of = derive_turn_place(state, 1 if state.turn is None else state.turn.n)
    return None if of is None else of._replace(span_id=_digits(16, "attempt", state.run_id, path, str(attempt)))


@lru_cache(4096)
def _digits(count: int, *names: str) -> str:
    return sha256("\x00".join(names).encode()).hexdigest()[:count]
