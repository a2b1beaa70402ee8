"""A decision in the making: the speculative state, the events that lead to it, and the rest of its bounds.

Also the values a step sees (scope, rendering, errors). Not here: consequences; a draft only records them.
Never read streamed text here (docs/design/store.md#decisions-and-chunks).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition import paths
from hai_flow.definition.expressions.expression_error import ExpressionError
from hai_flow.definition.names.durations import NotADuration
from hai_flow.definition.names.durations import milliseconds as duration_ms
from hai_flow.definition.plan import (
    THE_CALL,
    Agent,
    AgentCalls,
    Duration,
    Expression,
    ForEach,
    Plan,
    Schema,
    Step,
    Template,
)
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decision import Decision, Message
from hai_flow.engine.evolve.evolve import evolve, fold
from hai_flow.engine.state.bounds import EVENT_BYTES_MAX, Bounds
from hai_flow.engine.state.instances import resolve_step, root_of
from hai_flow.engine.state.state import RunState, StepState
from hai_flow.engine.steps.agents import call_at
from hai_flow.engine.steps.held_steps import Freeze
from hai_flow.primitives import instants
from hai_flow.primitives.beside_loop import THIS_THREAD
from hai_flow.values import Json

STEP_EVENTS: Final = 72  # the most events of one pure step: the chunks of the longest `say`, and its frame
RUN_END: Final = ""


Sources: TypeAlias = Callable[[Plan, Step], str | None]
"""The digest of the code, or of the description, of the tool that a step calls, as the deciding process knows it.
"": it does not, but who performs the call does; None: there is none."""


ToolSchemas: TypeAlias = Callable[[Plan, Step, str | None], Schema | None]
"""The schema of the arguments of the tool that a step calls, by its digest, as the deciding process knows it."""


def know_no_schema(plan: Plan, step: Step, source: str | None) -> Schema | None:
    """The schemas of a process that knows no tools, and of a log: what was accepted stays so."""
    return None


def pin_nothing(plan: Plan, step: Step) -> str | None:
    """The sources of a process that knows no tools."""
    return None


class Raised(Exception):
    """A step could not be begun; the error becomes the step's."""

    def __init__(self, code: str, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class DecisionContext(msgspec.Struct, frozen=True):
    """The knowledge of the process that decides: the `freezes` of the run's tenant, the tools for which that has
    standing rules (`ruled`), and all tools as they are."""

    freezes: Sequence[Freeze] = ()
    ruled: Container[str] = frozenset()
    sources: Sources = pin_nothing
    schemas: ToolSchemas = know_no_schema


NO_CONTEXT: Final = DecisionContext()
"""Of readers of a state, and of tests."""


class Draft(msgspec.Struct, eq=False):
    """One decision in the making: the speculative state, and the events that lead to it.

    `clock` is when it is decided, and when all of its events happen. `now` is the instant as of which something is
    decided: an earlier one, while it is made up for that a timer was due at.
    """

    plan: Plan
    state: RunState
    clock: int
    limits: Bounds
    log_bytes: int = 0
    held_elsewhere: bool = False
    context: DecisionContext = NO_CONTEXT
    now: int = 0
    events: list[e.Event] = []
    outbox: list[Message] = []
    taken_over: int = 0
    already: bool = False
    cut: bool = False
    pure_steps: int = 0
    evaluations: int = 0
    work: int = 0
    rendered_bytes: int = 0
    looked_at: Json = None  # the state that the conditions of open questions were held against last
    posted: c.Turn | None = None  # of a child: the turn that its outermost run opens for an answer
    posted_state: Mapping[str, Json] = MappingProxyType({})  # that came with it, for the runs above
    receipts: Mapping[str, Json] = MappingProxyType({})  # of attempts whose time is over (`TimerFired`)

    def __post_init__(self) -> None:
        self.now = self.clock
        self.looked_at = self.state.state

    def step(self, path: str) -> Step:
        """The step that stands at `path` in this run, with all its paths as they are here; "" is the document."""
        return resolve_step(self.plan, path) if path else root_of(self.plan)

    def move_to(self, plan: Plan) -> None:
        """Decide the rest with another version, whose conditions no question was held against yet."""
        self.plan = plan
        self.looked_at = None

    def list_waiting_elsewhere(self) -> list[str]:
        """The steps that wait for signals or for a child run."""
        return [*self.state.subscriptions, *self.state.children]

    def send(self, kind: str, target: str, body: Json) -> None:
        """Send a wish of this commit to another run (docs/design/store.md#outbox)."""
        self.outbox.append(Message(kind, target, body))

    def record_start(
        self,
        step: Step,
        *,
        timed: bool = True,
        args: str | None = None,
        attempt: int = 0,
        key: str | None = None,
        case: int | None = None,
        branches: int = 0,
        items: list[Json] | None = None,
        keys: tuple[str, ...] = (),
        ready: tuple[str, ...] = (),
        reading: bool = False,
    ) -> None:
        """Note that `step` has begun; its title and its timeout are rendered now. Not `timed`: it begins with people,
        whose time no timeout counts. The rest as in `StepStarted`."""
        title = None if step.title is None else self.text(step.title, step)
        timeout = None if step.timeout is None or not timed else self.milliseconds(step.timeout, step)
        self.add(
            e.StepStarted(
                at=self.clock,
                turn=self.turn,
                path=step.path,
                verb=step.verb_name,
                title=title,
                args=args,
                attempt=attempt,
                timeout=timeout,
                key=key,
                case=case,
                branches=branches,
                items=[] if items is None else items,
                keys=keys,
                ready=ready,
                reading=reading,
            )
        )

    def milliseconds(self, duration: Duration, step: Step) -> int:
        """A duration, rendered if it is a hole. Raises `Raised` (expression.error) if that gives none."""
        if isinstance(duration, int):
            return duration
        text = self.render(duration, step)
        try:
            return duration_ms(text, ordered=False)  # as in texts published before units had an order
        except NotADuration as error:
            raise Raised("expression.error", f"{step.path}: {error}.") from None

    def decision(self, outcome: Json) -> Decision:
        events = tuple(self.events)
        return Decision(events, self.state, outcome, self.cut, self.already or not events, tuple(self.outbox))

    @property
    def turn(self) -> int:
        """The number of the turn that the next event is of."""
        turn = self.state.turn
        return 0 if turn is None else turn.n

    def emit(self, kind: Callable[..., e.Event], /, **fields: Any) -> None:
        """An event of that kind happens now. (Those of every step are made where they happen, and added.)"""
        self.add(kind(at=self.clock, turn=self.turn, **fields))

    def add(self, event: e.Event) -> None:
        self.state = evolve(self.state, event)
        self.events.append(event)

    def take_over(self, events: Sequence[e.Event]) -> None:
        """Begin the log with the events of another run. It counts against no bound of this decision."""
        self.state = fold(self.state, events)
        self.events.extend(events)
        self.taken_over = len(events)

    def is_within_bounds(self) -> bool:
        limits = self.limits
        return (
            self.pure_steps < limits.pure_steps
            and len(self.events) - self.taken_over < limits.events - STEP_EVENTS
            and self.rendered_bytes < limits.event_bytes
            and self.evaluations < limits.evaluations
            and self.work < limits.work
        )

    def open_turn(self, turn: c.Turn) -> None:
        n = self.state.turn.n + 1 if self.state.turn else 1
        event = e.TurnStarted(
            at=self.clock,
            turn=n,
            wire_run_id=turn.wire_run_id,
            dialect=turn.dialect,
            profile=turn.profile,
            client_tools=turn.client_tools,
            body_sha=turn.body_sha,
        )
        self.state = evolve(self.state, event)
        self.events.append(event)

    def end_turn(self, reason: str) -> None:
        if self.state.turn_open:
            self.emit(e.TurnEnded, reason=reason)

    def error(self, code: str, message: str, path: str, data: Json = None, *, retriable: bool = False) -> e.Error:
        step_state = self.state.steps.get(path)
        return e.Error(code, message, path, step_state.attempt if step_state else 0, self.now, retriable, data)

    def truth(self, expression: Expression, step: Step, **roots: Json) -> bool:
        """The value of a condition at `step`; `roots` are names that exist for it alone (`args`, `event`)."""
        value = self._evaluate(expression.evaluate, expression, step, roots)
        if not isinstance(value, bool):
            raise Raised("expression.error", f"expected true or false from {expression.source}, found {value!r}.")
        return value

    def render(self, template: Template, step: Step | None, **roots: Json) -> Json:
        return self._evaluate(template.render, template, step, roots)

    def _evaluate(
        self,
        evaluate: Callable[[Mapping[str, Json]], Json],
        uses: Expression | Template,
        step: Step | None,
        roots: dict[str, Json],
    ) -> Json:
        self.evaluations += 1
        work = THIS_THREAD.work
        before = work.units
        try:
            return evaluate(self._build_scope(uses, step, roots))
        except ExpressionError as error:
            raise Raised(error.code, error.message) from None
        finally:
            self.work += work.units - before

    def text(self, template: Template, step: Step | None, **roots: Json) -> str:
        value = self.render(template, step, **roots)
        return values.to_text(value)

    def json_text(self, value: Json) -> str:
        encoded = values.dumps(value)
        self.take(len(encoded))
        return encoded.decode()

    def take(self, size: int, most: int = EVENT_BYTES_MAX) -> None:
        """Count the bytes that a step renders against the bounds of an event and of this decision. Raises `Raised`."""
        if size > most:
            message = (
                f"a rendered value has at most {most} bytes, found {size}. Let a tool keep it as a file: "
                "`await context.files.put(data, type, name)` returns the part to hand on instead."
            )
            raise Raised("expression.too_large", message)
        self.rendered_bytes += size

    def read_paths(self, expression: Expression, step: Step, **roots: Json) -> Iterator[tuple[str, Json]]:
        """The values that the expression reads, by their paths as text; those that are not there are left out."""
        try:
            scope: Json = self._build_scope(expression, step, roots)
        except ExpressionError:
            return
        for path in dict.fromkeys(expression.paths):
            value = scope
            try:
                for segment in path:
                    value = value[segment]
            except (KeyError, IndexError, TypeError):
                continue
            yield ".".join(map(str, path)), value

    def _build_scope(self, uses: Expression | Template, step: Step | None, roots: dict[str, Json]) -> dict[str, Json]:
        """The names that an expression uses, and no others (docs/language.md#names)."""
        scope: dict[str, Json] = {}
        for root in uses.roots:
            if root in roots:
                scope[root] = roots[root]
            elif root in _ROOTS:
                scope[root] = _ROOTS[root](self, step)
            else:
                scope[root] = self._read_loop_value(root, step)
        if uses.steps:
            at = "" if step is None else step.path
            scope["steps"] = {id: self._read_step_value(self._find_instance(id, at)) for id in uses.steps}
        return scope

    def _find_instance(self, id: str, reader: str) -> str:
        """The path of the step that `steps.ID` means for a reader at `reader`: in the same iterations, as far as they
        stand in the same loops; in the latest iteration of others."""
        return paths.find_instance(self.plan.ids.get(id, id), reader, self._find_latest)

    def _find_latest(self, loop: str) -> str:
        step_state = self.state.steps.get(loop)
        return str(step_state.loop.last) if step_state is not None and step_state.loop is not None else ""

    def _read_step_value(self, path: str) -> dict[str, Json]:
        step_state: StepState | None = self.state.steps.get(path)
        if step_state is None:
            return {"status": "pending"}
        status = step_state.status
        value: dict[str, Json] = {"status": status}
        if status == "finished" or step_state.approval is not None or step_state.verb == "for_each" or step_state.given:
            value["output"] = step_state.output
        if step_state.error is not None:
            value["error"] = _build_error_record(step_state.error)
        if step_state.approval is not None:
            value["approval"] = step_state.approval
        if step_state.spent is not None:
            value["usage"] = step_state.spent.shown
        if step_state.verb in ("llm", "agent"):
            value["parts"] = list(step_state.parts)
        return value

    def _read_loop_value(self, name: str, step: Step | None) -> Json:
        """The value of a loop's variable: of `index` the innermost loop's."""
        path = "" if step is None else step.path
        for iteration in paths.iter_iterations_around(path):
            loop = paths.loop_of(iteration)
            loop_state, verb = self.state.steps[loop].loop, self.plan.steps[paths.plan_path(loop)].verb
            iteration_state = self.state.steps.get(iteration)
            assert loop_state is not None
            if isinstance(verb, AgentCalls) and name == THE_CALL:
                return call_at(self.state, loop, paths.key_of(iteration))
            if isinstance(verb, Agent | AgentCalls):  # no author has written a step in there
                continue
            index = loop_state.keys.index(paths.key_of(iteration)) if iteration_state is None else iteration_state.index
            if name == "index":
                return index
            if isinstance(verb, ForEach) and verb.as_ == name:
                return loop_state.items[index]
        return self._let_value(name, path)

    def _let_value(self, name: str, reader: str) -> Json:
        """The value that a `let` in a list around the reader has given to the name. Raises `ExpressionError` where none
        has yet: the run began behind it, in another version or after a skip."""
        inside = paths.plan_path(reader)
        for let in reversed(self.plan.lets.get(name, ())):
            within = paths.list_of(let)
            loop = paths.loop_of(within) if paths.is_iteration(within) else within
            if inside not in (within, loop) and not paths.is_inside(inside, within):
                continue
            step_state = self.state.steps.get(paths.find_instance(let, reader, self._find_latest))
            if step_state is not None and isinstance(step_state.output, dict) and name in step_state.output:
                return step_state.output[name]
        raise ExpressionError("expression.absent", f"`{name}` is not there: no `let` has given it a value yet")

    def _find_error_in_handling(self, step: Step | None) -> Json:
        """The error of the innermost handler around `step` that handles one."""
        while step is not None and step.path:
            if paths.is_handler(step.body):
                step_state = self.state.steps.get(step.parent)
                if step_state is not None and step_state.error is not None:
                    return _build_error_record(step_state.error)
            step = self.step(step.parent) if step.parent else None
        return None


def _run_value(draft: Draft, step: Step | None) -> Json:
    state = draft.state
    return {
        "id": state.run_id,
        "workflow": state.workflow,
        "version": state.version,
        "started_at": instants.rfc3339(state.started_at),
        "requester": state.requester,
        "trigger": state.trigger,
        "scheduled_at": None if state.scheduled_at is None else instants.rfc3339(state.scheduled_at),
    }


def _read_thread_value(draft: Draft, step: Step | None) -> Json:
    return {"id": draft.state.thread_id, "message": draft.state.message, "content": _find_newest_content(draft.state)}


def _find_newest_content(state: RunState) -> Json:
    """The content of the user's newest message when the run started, as it was posted: text, or a list of content
    parts."""
    content: Json = state.message
    for n, message in enumerate(sorted(state.messages.values(), key=lambda each: each.n)):
        if message.path is not None or message.n != n or message.turn != 1:
            break
        content = message.content
    return content


_ROOTS: Final[dict[str, Callable[[Draft, Step | None], Json]]] = {
    "input": lambda draft, step: draft.state.input,
    "state": lambda draft, step: draft.state.state,
    "run": _run_value,
    "thread": _read_thread_value,
    "now": lambda draft, step: draft.now,
    "error": Draft._find_error_in_handling,
    "steps": lambda draft, step: {},
}


def _build_error_record(error: e.Error) -> dict[str, Json]:
    """An error as expressions see it: its time is one like all others, and so is that of its causes. `data` and `cause`
    alone may be absent."""
    always: dict[str, Json] = {"path": error.path, "attempt": error.attempt, "retriable": error.retriable}
    record = {**msgspec.to_builtins(error), **always, "at": instants.rfc3339(error.at)}
    if error.cause is not None:
        record["cause"] = _build_error_record(error.cause)
    return record
