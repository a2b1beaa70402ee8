"""A decision in the making: the speculative state, the events that lead to it, and what it may still take.

Also the values a step sees (scope, rendering, errors). Not here: what follows from what; a draft only records it.
Never read streamed text here (STORE H1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition.cel import ExpressionError
from hai_flow.definition.plan import Expression, Plan, Step, Template
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.jobs import Job, open_jobs
from hai_flow.engine.state import RunState, StepState, evolve

Json: TypeAlias = Any

STEP_EVENTS: Final = 72  # what one pure step may add to a decision: the chunks of the longest `say`, and its frame
EVENT_BYTES_MAX: Final = 256 * 1024
RUN_END: Final = ""


class Limits(msgspec.Struct, frozen=True):
    """What one decision may take, and how long a turn stays open for a timer. Times in milliseconds."""

    pure_steps: int = 100
    events: int = 256
    event_bytes: int = 256 * 1024
    evaluations: int = 300
    turn_linger: int = 30_000
    stop_grace: int = 30_000


DEFAULT_LIMITS: Final = Limits()


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What is to be committed: `events` in order, and the `state` that they make.

    `cut` tells that an attempt was closed by someone other than its performer, who must be fenced off. `outcome` is
    the answer to the command (JSON), which the same command id gets again. `already`: nothing new, events are empty.
    """

    events: tuple[e.Event, ...]
    state: RunState
    outcome: Json = None
    cut: bool = False
    already: bool = False

    @property
    def jobs(self) -> list[Job]:
        """What a holder of the run does once this is committed."""
        return open_jobs(self.state)


class Raised(Exception):
    """A step could not be begun; the error becomes the step's."""

    def __init__(self, code: str, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Draft:
    """One decision in the making: the speculative state, and the events that lead to it."""

    def __init__(self, plan: Plan, state: RunState, now: int, limits: Limits) -> None:
        self.plan = plan
        self.state = state
        self.now = now
        self.limits = limits
        self.events: list[e.Event] = []
        self.already = False
        self.cut = False
        self.pure_steps = 0
        self.evaluations = 0
        self.rendered_bytes = 0

    def decision(self, outcome: Json) -> Decision:
        events = tuple(self.events)
        return Decision(events, self.state, outcome, self.cut, self.already or not events)

    def emit(self, kind: Callable[..., e.Event], /, **fields: Any) -> None:
        turn = self.state.turn
        event = kind(at=self.now, turn=turn.n if turn else 0, **fields)
        self.state = evolve(self.state, event)
        self.events.append(event)

    def within_bounds(self) -> bool:
        return (
            self.pure_steps < self.limits.pure_steps
            and len(self.events) < self.limits.events - STEP_EVENTS
            and self.rendered_bytes < self.limits.event_bytes
            and self.evaluations < self.limits.evaluations
        )

    def open_turn(self, turn: c.Turn) -> None:
        n = self.state.turn.n + 1 if self.state.turn else 1
        event = e.TurnStarted(
            at=self.now,
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
        known = self.state.steps.get(path)
        return e.Error(code, message, path, known.attempt if known else 0, self.now, retriable, data)

    def truth(self, expression: Expression, step: Step) -> bool:
        value = self._evaluated(lambda: expression.evaluate(self._scope(expression, step)))
        if not isinstance(value, bool):
            raise Raised("expression.error", f"expected true or false from {expression.source}, found {value!r}.")
        return value

    def render(self, template: Template, step: Step | None) -> Json:
        return self._evaluated(lambda: template.render(self._scope(template, step)))

    def _evaluated(self, evaluate: Callable[[], Json]) -> Json:
        self.evaluations += 1
        try:
            return evaluate()
        except ExpressionError as error:
            raise Raised(error.code, error.message) from None

    def text(self, template: Template, step: Step) -> str:
        value = self.render(template, step)
        return value if isinstance(value, str) else values.dumps(value).decode()

    def json_text(self, value: Json) -> str:
        written = values.dumps(value)
        self.take(len(written))
        return written.decode()

    def take(self, size: int) -> None:
        """Count what a step renders against the bounds of an event and of this decision."""
        if size > EVENT_BYTES_MAX:
            raise Raised("expression.too_large", f"a rendered value has at most {EVENT_BYTES_MAX} bytes, found {size}.")
        self.rendered_bytes += size

    def _scope(self, uses: Expression | Template, step: Step | None) -> dict[str, Json]:
        """The names that an expression uses, and no others (LANGUAGE section 6)."""
        scope: dict[str, Json] = {root: _ROOTS[root](self, step) for root in uses.roots}
        if uses.steps:
            scope["steps"] = {id: self._step_value(self.plan.ids.get(id, id)) for id in uses.steps}
        return scope

    def _step_value(self, path: str) -> dict[str, Json]:
        known: StepState | None = self.state.steps.get(path)
        if known is None:
            return {"status": "pending"}
        value: dict[str, Json] = {"status": known.status}
        if known.status == "finished" or known.approval is not None:
            value["output"] = known.output
        if known.error is not None:
            value["error"] = msgspec.to_builtins(known.error)
        if known.approval is not None:
            value["approval"] = known.approval
        return value

    def _handled_error(self, step: Step | None) -> Json:
        while step is not None:
            if step.body.startswith("~"):
                known = self.state.steps.get(step.parent)
                return msgspec.to_builtins(known.error) if known is not None else None
            step = self.plan.steps.get(step.parent)
        return None


def _run_value(draft: Draft, step: Step | None) -> Json:
    state = draft.state
    return {
        "id": state.run_id,
        "workflow": state.workflow,
        "version": state.version,
        "started_at": values.rfc3339(state.started_at),
        "requester": state.requester,
        "trigger": state.trigger,
    }


def _thread_value(draft: Draft, step: Step | None) -> Json:
    return {"id": draft.state.thread_id, "message": draft.state.message}


_ROOTS: Final[dict[str, Callable[[Draft, Step | None], Json]]] = {
    "input": lambda draft, step: draft.state.input,
    "state": lambda draft, step: draft.state.state,
    "run": _run_value,
    "thread": _thread_value,
    "now": lambda draft, step: draft.now,
    "error": Draft._handled_error,
    "steps": lambda draft, step: {},
}
