"""The steps of a run for a picture over time: when each began and ended, its attempts, and its waits.

A fold of the log beside the engine's: a state has no times, and a run that waits for two days has worked for a moment.
So the waits stand apart from the work (people, time, signals, a retry, a child), each with its own times. A step that a
Retry begins anew is another span of the same path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from hai_flow.definition.paths import plan_path, rename_path
from hai_flow.engine import events as e
from hai_flow.values import Json

WaitFor: TypeAlias = Literal["people", "time", "signal", "retry", "child"]
ITERATION: Final = "iteration"
Status: TypeAlias = Literal["running", "finished", "failed", "skipped", "stopped", "undone"]
_TIMERS: Final[Mapping[str, WaitFor]] = {"wait": "time", "retry": "retry"}


class WaitSpan(msgspec.Struct):
    """One time of waiting. `pending_id`: the question, of one for people; `due` is when it ends by itself."""

    for_: WaitFor = msgspec.field(name="for")
    since: int
    until: int | None = None
    due: int | None = None
    pending_id: str | None = None


class AttemptSpan(msgspec.Struct):
    """One attempt. `error` is why another one had to follow, `lost` whether its worker was lost."""

    n: int
    started_at: int
    ended_at: int | None = None
    lost: bool = False
    error: e.Error | None = None


class Span(msgspec.Struct):
    """One passage through a step, or (verb `iteration`) through the body of a loop. Times in ms since 1970; a seq is
    that of the event which began it, and of the newest one about it."""

    path: str
    verb: str
    first_seq: int
    started_at: int
    status: Status = "running"
    title: str | None = None
    last_seq: int = 0
    ended_at: int | None = None
    args: str | None = None
    error: e.Error | None = None
    attempts: list[AttemptSpan] = []
    waits: list[WaitSpan] = []
    children: list[str] = []
    notes: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    @property
    def plan_path(self) -> str:
        """The path of the step in the workflow's plan."""
        return plan_path(self.path)


class Spans:
    """Takes the events of one run in their order. `all` are its spans, the oldest first."""

    def __init__(self) -> None:
        self.all: list[Span] = []
        self._now: dict[str, Span] = {}
        self._asked: dict[str, Span] = {}

    def take(self, seq: int, event: e.Event) -> None:
        """The next event, which has this `seq`."""
        rule = _RULES.get(type(event))
        if rule is not None:
            rule(self, seq, event)

    def begin(self, seq: int, event: e.Event, path: str, verb: str) -> Span:
        span = self._now[path] = Span(path, verb, seq, event.at, last_seq=seq)
        self.all.append(span)
        return span

    def of(self, seq: int, path: str) -> Span | None:
        """The newest passage through the step that this event is about; None: it has none, because the event is about
        the document itself."""
        span = self._now.get(path)
        if span is not None:
            span.last_seq = seq
        return span

    def asking(self, id: str) -> Span | None:
        return self._asked.get(id)

    def record_question(self, id: str, span: Span) -> None:
        self._asked[id] = span

    def drop(self, span: Span) -> None:
        """Leave out a span: one of the newest, mostly, so it is looked for from their end."""
        place = len(self.all) - 1
        while self.all[place] is not span:
            place -= 1
        del self.all[place]

    def rename(self, paths: Mapping[str, str]) -> None:
        """The run goes on with another version, in which steps have other names."""
        for span in self._now.values():
            span.path = rename_path(span.path, paths)
        self._now = {span.path: span for span in self._now.values()}


def is_filler(path: str, output: Json) -> bool:
    """Whether a step with this output only stands where the language has none: it takes a failure that is data
    (`continue_on_error`). A `let` that an author writes has names."""
    return path.endswith("/let#1") and output == {}


def _try(span: Span, event: e.Event, n: int) -> None:
    _stop_waiting(span, event.at)
    span.attempts.append(AttemptSpan(n, event.at))


def _stop_waiting(span: Span, at: int, *kinds: WaitFor, id: str | None = None) -> None:
    for wait in span.waits:
        if wait.until is None and (not kinds or wait.for_ in kinds) and (id is None or wait.pending_id == id):
            wait.until = at


def _end_attempt(span: Span, at: int) -> None:
    if span.attempts and span.attempts[-1].ended_at is None:
        span.attempts[-1].ended_at = at


def _end(span: Span, event: e.Event, status: Status) -> None:
    _stop_waiting(span, event.at)
    _end_attempt(span, event.at)
    span.status, span.ended_at = status, event.at


# --- the rules ----------------------------------------------------------------------------------------------------


def _apply_start(spans: Spans, seq: int, event: e.StepStarted) -> None:
    span = spans.begin(seq, event, event.path, event.verb)
    span.title, span.args = event.title, event.args
    if event.attempt:
        _try(span, event, event.attempt)


def _attempt_started(spans: Spans, seq: int, event: e.AttemptStarted) -> None:
    if (span := spans.of(seq, event.path)) is not None:
        _try(span, event, event.attempt)


def _apply_retry(spans: Spans, seq: int, event: e.StepRetried) -> None:
    if (span := spans.of(seq, event.path)) is None:
        return
    _end_attempt(span, event.at)
    if span.attempts:
        span.attempts[-1].error, span.attempts[-1].lost = event.error, event.lost
    if event.due is not None:
        span.waits.append(WaitSpan("retry", event.at, due=event.due))


def _apply_finish(spans: Spans, seq: int, event: e.StepFinished) -> None:
    if (span := spans.of(seq, event.path)) is not None:
        _end(span, event, "finished")
        span.notes = event.notes
        if is_filler(event.path, event.output):
            spans.drop(span)


def _apply_failure(spans: Spans, seq: int, event: e.StepFailed) -> None:
    if not event.path:
        return  # the document
    span = spans.of(seq, event.path) or spans.begin(seq, event, event.path, "")
    _end(span, event, "failed")
    span.error = event.error


def _apply_skip(spans: Spans, seq: int, event: e.StepSkipped) -> None:
    span = spans.of(seq, event.path)
    if span is None or span.ended_at is not None:
        span = spans.begin(seq, event, event.path, "")
    _end(span, event, "skipped")


def _apply_stop(spans: Spans, seq: int, event: e.StepStopped) -> None:
    if event.path:  # else the document; and a step may be stopped before it began
        _end(spans.of(seq, event.path) or spans.begin(seq, event, event.path, ""), event, "stopped")


def _undone(spans: Spans, seq: int, event: e.StepUndone) -> None:
    if (span := spans.of(seq, event.path)) is not None:
        span.status = "undone"


def _iteration_started(spans: Spans, seq: int, event: e.IterationStarted) -> None:
    spans.begin(seq, event, event.path, ITERATION)


def _iteration_ended(spans: Spans, seq: int, event: e.IterationEnded) -> None:
    span = spans.of(seq, event.path) or spans.begin(seq, event, event.path, ITERATION)
    _end(span, event, event.status)
    span.error = event.error


def _apply_question(spans: Spans, seq: int, event: e.PendingOpened) -> None:
    if (span := spans.of(seq, event.path)) is not None:
        _end_attempt(span, event.at)
        span.waits.append(WaitSpan("people", event.at, due=event.deadline, pending_id=event.id))
        spans.record_question(event.id, span)


def _apply_answer(spans: Spans, seq: int, event: e.PendingDecided | e.PendingVoided) -> None:
    if (span := spans.asking(event.id)) is not None:
        span.last_seq = seq
        _stop_waiting(span, event.at, "people", id=event.id)


def _timer_set(spans: Spans, seq: int, event: e.TimerSet) -> None:
    kind = _TIMERS.get(event.kind)
    span = None if kind is None else spans.of(seq, event.path)
    if span is not None and kind is not None and not any(w.for_ == kind and w.until is None for w in span.waits):
        span.waits.append(WaitSpan(kind, event.at, due=event.due))


def _handle_timer_fired(spans: Spans, seq: int, event: e.TimerFired) -> None:
    kind = _TIMERS.get(event.kind)
    span = None if kind is None else spans.of(seq, event.path)
    if span is not None and kind is not None:
        _stop_waiting(span, event.at, kind)


def _awaits(spans: Spans, seq: int, event: e.SignalsAwaited) -> None:
    if (span := spans.of(seq, event.path)) is not None:
        _end_attempt(span, event.at)
        if not any(wait.for_ == "people" and wait.until is None for wait in span.waits):  # it may take a question back
            span.waits.append(WaitSpan("signal", event.at))


def _apply_signal(spans: Spans, seq: int, event: e.SignalReceived) -> None:
    if (span := spans.of(seq, event.path)) is not None and not event.awaits:
        _stop_waiting(span, event.at, "signal")


def _child_started(spans: Spans, seq: int, event: e.CollaborationStarted) -> None:
    span = spans.of(seq, event.path)
    if span is not None and event.run_id is not None:
        span.children = [*span.children, event.run_id]


def _child_moved(spans: Spans, seq: int, event: e.ChildMoved) -> None:
    span = spans.of(seq, event.path)
    if span is None:
        return
    if event.working:
        _stop_waiting(span, event.at, "child")
    else:
        span.waits.append(WaitSpan("child", event.at))


def _model_used(spans: Spans, seq: int, event: e.ModelUsed) -> None:
    if (span := spans.of(seq, event.path)) is not None:
        span.input_tokens += event.use.input
        span.output_tokens += event.use.output
        span.cost += event.use.cost or 0.0


def _apply_reopening(spans: Spans, seq: int, event: e.RunRetried | e.StepReopened) -> None:
    """Blocks that go on are running again: they have not ended after all."""
    for path in event.reopened:
        if (span := spans.of(seq, path)) is not None:
            span.status, span.ended_at, span.error = "running", None, None


def _apply_migration(spans: Spans, seq: int, event: e.Migrated) -> None:
    spans.rename(event.paths)


_RULES: Final[Mapping[type[e.Event], Callable[[Spans, int, Any], None]]] = {
    e.StepStarted: _apply_start,
    e.AttemptStarted: _attempt_started,
    e.StepRetried: _apply_retry,
    e.StepFinished: _apply_finish,
    e.StepFailed: _apply_failure,
    e.StepSkipped: _apply_skip,
    e.StepStopped: _apply_stop,
    e.StepUndone: _undone,
    e.IterationStarted: _iteration_started,
    e.IterationEnded: _iteration_ended,
    e.PendingOpened: _apply_question,
    e.PendingDecided: _apply_answer,
    e.PendingVoided: _apply_answer,
    e.TimerSet: _timer_set,
    e.TimerFired: _handle_timer_fired,
    e.SignalsAwaited: _awaits,
    e.SignalReceived: _apply_signal,
    e.CollaborationStarted: _child_started,
    e.ChildMoved: _child_moved,
    e.ModelUsed: _model_used,
    e.RunRetried: _apply_reopening,
    e.StepReopened: _apply_reopening,
    e.Migrated: _apply_migration,
}
