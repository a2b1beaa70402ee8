"""Spans of traced runs: request, command, commit, turn, step, attempt.

Whether a run is traced is decided once, where it starts, and kept with it: so its trace is whole, whichever processes
go on with it. A caller that records its own trace (`traceparent` with its flag) wants the run to be in it; of other
runs so many in a second are traced. Both together are bounded by that number, for a caller may set its flag on every
request.

A span is recorded when it has ended, by the process whose commit ended it; nothing is kept open meanwhile. Its id is
computed from its turn, step or attempt (`engine/state/tracing`). No span has words of people, models or tools, nor any
input or output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from hai_flow.definition.plan import AgentTurn, Call, Http, Llm, Plan, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import RunState, StepState
from hai_flow.engine.state.tracing import TracePosition, derive_step_place, derive_turn_place, is_traced, place_of
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.trace_parent import TraceParent
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.runtime import Answered, Runtime
from hai_flow.runtime.worker.attempt import Report, RunningAttempt

LINKS_MAX: Final = 16
OPEN_STEPS_MAX: Final = 200  # of a turn that ends, which are recorded

Kind: TypeAlias = Literal["internal", "server", "client", "producer"]
Attributes: TypeAlias = dict[str, str | int | float | bool]
_ENDS: Final = (e.StepFinished, e.StepFailed, e.StepStopped)


class EndedSpan(NamedTuple):
    """A span that has ended. Times are milliseconds since 1970. `parent`: the id of the span above it in its trace.
    `error`: a code, where it failed."""

    name: str
    kind: Kind
    place: TracePosition
    parent: str | None
    began: float
    ended: float
    attributes: Attributes
    links: tuple[TracePosition, ...] = ()
    error: str | None = None


class Traces:
    """Watches a runtime and gives each span to `take`. `per_second`: of so many runs each second a trace begins."""

    def __init__(self, take: Callable[[EndedSpan], None], per_second: float) -> None:
        self._take = take
        self._per_second = per_second
        self._left = max(1.0, per_second) if per_second else 0.0
        self._refilled_at = time.monotonic()
        self._now_ms: Callable[[], int] = lambda: 0

    def attach(self, runtime: Runtime) -> Sequence[Service]:
        """Listen to a runtime whose services are about to start."""
        listeners = runtime.committer.listeners
        listeners.written.append(self._trace_entries)
        listeners.sent.append(self._trace_batch)
        listeners.performed.append(self._trace_attempt)
        runtime.requests.append(self._trace_request)
        runtime.starts.begin_trace = self.begin
        self._now_ms = runtime.committer.now_ms
        if runtime.worker is not None:
            runtime.worker.record_traces()
        return ()

    # --- which runs ---------------------------------------------------------------------------------------------------

    def begin(self, asker: TraceParent | None) -> TracePosition | None:
        """Where a run stands that starts now."""
        parent = None if asker is None else asker.parent
        if parent is not None and not parent.sampled:
            return parent  # its caller does not want it to be recorded
        if self._may_begin():
            return self._begin_alone() if asker is None else asker.record()
        return None if parent is None else parent._replace(sampled=False)

    def _begin_alone(self) -> TracePosition:
        """A trace of a run that no request has started: by a schedule, or the end of another run."""
        place, now = TraceParent().record(), float(self._now_ms())
        self._take(EndedSpan("start", "internal", place, None, now, now, {}))
        return place

    def _may_begin(self) -> bool:
        now = time.monotonic()
        more = (now - self._refilled_at) * self._per_second
        self._left, self._refilled_at = min(max(1.0, self._per_second), self._left + more), now
        if self._left < 1.0 or not self._per_second:
            return False
        self._left -= 1.0
        return True

    # --- facts --------------------------------------------------------------------------------------------------------

    def _wall_time(self, monotonic: float) -> float:
        return self._now_ms() + (monotonic - time.monotonic()) * 1000

    def _trace_request(self, answered: Answered) -> None:
        asker = answered.asker
        if asker.place is None:
            return
        attributes: Attributes = {
            "http.request.method": answered.method,
            "http.route": answered.route,
            "http.response.status_code": answered.status,
        }
        parent = None if asker.parent is None else asker.parent.span_id
        error = str(answered.status) if answered.status >= 500 else None
        name = f"{answered.method} {answered.route}"
        times = self._wall_time(answered.began), self._wall_time(answered.ended)
        self._take(EndedSpan(name, "server", asker.place, parent, *times, attributes, error=error))

    def _trace_batch(self, entries: Sequence[CommitEntry], won: int, began: float, ended: float) -> None:
        places = [
            place
            for entry in entries
            if entry.state.trace is not None and is_traced(entry.state) and (place := _now_in(entry.state)) is not None
        ]
        if not places:
            return
        of, *others = places
        attributes: Attributes = {"hai_flow.commit.entries": len(entries), "hai_flow.commit.won": won}
        place = TraceParent(of).record()
        times = self._wall_time(began), self._wall_time(ended)
        self._take(EndedSpan("commit", "client", place, of.span_id, *times, attributes, tuple(others[:LINKS_MAX])))

    def _trace_entries(self, entries: Sequence[CommitEntry]) -> None:
        for entry in entries:
            if entry.state.trace is not None and is_traced(entry.state):
                self._trace_entry(entry)

    def _trace_entry(self, entry: CommitEntry) -> None:
        state = entry.state
        for submission in entry.submissions:
            if submission.asker is not None and not isinstance(submission.command, c.Start):
                self._trace_command(submission.asker, submission.command, state, submission.arrived)
        for event in entry.events:
            if isinstance(event, _ENDS):
                self._step_ended(entry, event)
            elif isinstance(event, e.TurnEnded):
                self._turn_ended(entry, event)

    def _trace_command(self, asker: TraceParent, command: c.Command, state: RunState, arrived: float) -> None:
        """The span of a command, in the trace of a caller that records its own, with a link to the run's trace."""
        run = _now_in(state)
        if asker.parent is None or not asker.parent.sampled or run is None or not (asker.place or self._may_begin()):
            return
        request = asker.record()
        name = f"command {type(command).__name__}"
        place = request._replace(span_id=TraceParent(request).record().span_id)
        times = self._wall_time(arrived), float(self._now_ms())
        self._take(EndedSpan(name, "producer", place, request.span_id, *times, _run_attributes(state), (run,)))

    def _turn_ended(self, entry: CommitEntry, event: e.TurnEnded) -> None:
        state, turn = entry.state, max(event.turn, 1)
        place, start = derive_turn_place(state, turn), place_of(state.trace)
        assert place is not None
        assert start is not None
        began = _turn_began(state, turn, event.at)
        attributes = _run_attributes(state) | {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": state.workflow,
            "hai_flow.turn": turn,
            "hai_flow.turn.reason": event.reason,
        }
        before = derive_turn_place(state, turn - 1) if turn > 1 else None
        self._take(
            EndedSpan(
                f"invoke_workflow {state.workflow}",
                "internal",
                place,
                start.span_id if before is None else None,
                began,
                event.at,
                attributes,
                () if before is None else (before,),
                "failed" if event.reason == "failed" else None,
            )
        )
        for path, step in _open_steps(state):
            self._step(entry, path, step, turn, event.at, open=True)

    def _step_ended(self, entry: CommitEntry, event: e.StepFinished | e.StepFailed | e.StepStopped) -> None:
        step = entry.state.steps.get(event.path)
        if step is not None:
            error = event.error.code if isinstance(event, e.StepFailed) else None
            self._step(entry, event.path, step, max(event.turn, 1), event.at, error=error)

    def _step(
        self,
        entry: CommitEntry,
        path: str,
        step: StepState,
        turn: int,
        ended: int,
        *,
        open: bool = False,
        error: str | None = None,
    ) -> None:
        """A step as far as this turn has it: from its start, or from the turn's, where an earlier turn has begun it."""
        state, begun_in = entry.state, max(step.turn, 1)
        place = derive_step_place(state, path, turn)
        assert place is not None
        began = step.started_at if begun_in == turn else max(step.started_at, _turn_began(state, turn, ended))
        before = derive_step_place(state, path, turn - 1) if begun_in < turn else None
        attributes = _run_attributes(state) | {"hai_flow.step": path, "hai_flow.verb": step.verb}
        if open:
            attributes["hai_flow.step.open"] = True
        above = _above(entry.run.plan or entry.plan, state, path, turn)
        links = () if before is None else (before,)
        self._take(EndedSpan(f"step {step.verb}", "internal", place, above, began, ended, attributes, links, error))

    def _trace_attempt(self, performance: RunningAttempt, report: Report, began: float, ended: float) -> None:
        place, step = performance.place, performance.step
        if place is None or step is None or not place.sampled:
            return
        state = performance.run.state
        above = derive_step_place(state, performance.path, _turn_of(state, place))
        attributes = _run_attributes(state) | {
            "hai_flow.step": performance.path,
            "hai_flow.attempt": performance.attempt,
        }
        name, kind, more = _effect(step, report)
        error = None
        if isinstance(report, c.StepFailed):
            error = report.code
        elif isinstance(report, c.StepLost):
            error = "lost"
        times = self._wall_time(began), self._wall_time(ended)
        parent = None if above is None else above.span_id
        self._take(EndedSpan(name, kind, place, parent, *times, attributes | more, error=error))


def _now_in(state: RunState) -> TracePosition | None:
    return derive_turn_place(state, 1 if state.turn is None else state.turn.n)


def _turn_of(state: RunState, place: TracePosition) -> int:
    """The turn in whose trace an attempt was begun: the newest one, or the one before, if that has just ended."""
    newest = 1 if state.turn is None else state.turn.n
    current = derive_turn_place(state, newest)
    return newest if current is None or current.trace_id == place.trace_id else max(1, newest - 1)


def _turn_began(state: RunState, turn: int, otherwise: int) -> int:
    current = state.turn
    return current.at if current is not None and current.n == turn and current.at else otherwise


def _run_attributes(state: RunState) -> Attributes:
    return {
        "hai_flow.run_id": state.run_id,
        "hai_flow.workflow": state.workflow,
        "gen_ai.conversation.id": state.thread_id,
    }


def _open_steps(state: RunState) -> Iterator[tuple[str, StepState]]:
    open_steps = ((path, step) for path, step in state.steps.items() if step.outcome is None and step.phase != "over")
    for _, each in zip(range(OPEN_STEPS_MAX), open_steps, strict=False):
        yield each


def _above(plan: Plan | None, state: RunState, path: str, turn: int) -> str | None:
    """The id of the span around a step: that of the block which it stands in, or of its turn."""
    try:
        parent = "" if plan is None else resolve_step(plan, path).parent
    except KeyError:  # of another version of the workflow
        parent = ""
    place = (
        derive_step_place(state, parent, turn) if parent and parent in state.steps else derive_turn_place(state, turn)
    )
    return None if place is None else place.span_id


def _effect(step: Step, report: Report) -> tuple[str, Kind, Attributes]:
    """The name, the kind and the attributes of an attempt's span, by the semantic conventions of GenAI where they
    have some."""
    verb = step.verb
    if isinstance(verb, Llm | AgentTurn):
        return _chat(report)
    if isinstance(verb, Call):
        tool = f"{verb.tool.name}.{verb.function}" if verb.function else verb.tool.name
        attributes: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        return f"execute_tool {tool}", "internal", attributes
    if isinstance(verb, Http):
        return "http", "client", {}
    return f"perform {step.verb_name}", "internal", {}


def _chat(report: Report) -> tuple[str, Kind, Attributes]:
    uses = report.used if not isinstance(report, c.StepLost | c.GateChecked) else ()
    attributes: Attributes = {"gen_ai.operation.name": "chat"}
    if not uses:
        return "chat", "client", attributes
    last = uses[-1]
    model = last.served or last.model
    attributes |= {
        "gen_ai.provider.name": last.provider,
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": sum(use.input for use in uses),
        "gen_ai.usage.output_tokens": sum(use.output for use in uses),
        "gen_ai.usage.cache_read.input_tokens": sum(use.cached for use in uses),
        "gen_ai.usage.reasoning.output_tokens": sum(use.reasoning for use in uses),
        "hai_flow.model": last.model,
        "hai_flow.answers": sum(use.calls for use in uses),
    }
    return f"chat {model}", "client", attributes
