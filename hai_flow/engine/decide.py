"""What follows from a command: the whole policy of a run, as a pure function.

    decide(plan, state, command, now) -> Decision      or raises Rejected: nothing happened

How it works. Every consequence that does not *start* anything is drawn at once: the end of a step ends its list, which
ends its parent, and so on up to the document. What may start next is only noted, in `ready`; `_advance` takes it up
while the run is running and the decision is within its bounds (STORE B5). So a pause, a bound and a crash all look the
same: something is ready and somebody has to go on.

`now` is in milliseconds since 1970, a lower bound of the database's clock. Never read streamed text here (STORE H1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from hai_flow import values
from hai_flow.definition.cel import ExpressionError
from hai_flow.definition.durations import NotADuration
from hai_flow.definition.durations import milliseconds as duration_ms
from hai_flow.definition.plan import (
    Approve,
    Ask,
    Call,
    Expression,
    Fail,
    FrontendTool,
    Parallel,
    Plan,
    Policy,
    Return,
    Say,
    Set,
    Step,
    Switch,
    Template,
    Wait,
)
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.approval import Reading, digest, envelope, read_answer
from hai_flow.engine.ids import message_id, pending_id, tool_call_id
from hai_flow.engine.jobs import Job, next_ready, open_jobs
from hai_flow.engine.patch import PatchError, apply_patch, parse_pointer, pointer_of
from hai_flow.engine.retry import (
    LOST_IN_A_ROW_MAX,
    RETRIABLE,
    catching,
    delay,
)
from hai_flow.engine.state import PendingState, RunState, StepState, evolve
from hai_flow.errors import Rejected

Json: TypeAlias = Any

SAY_CHUNK_CHARS: Final = 4096
STEP_EVENTS: Final = 72  # what one pure step may add to a decision: the chunks of the longest `say`, and its frame
EVENT_BYTES_MAX: Final = 256 * 1024
STATE_BYTES_MAX: Final = 1024 * 1024
_RUN_END: Final = ""


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


def decide(plan: Plan, state: RunState, command: c.Command, now: int, limits: Limits = DEFAULT_LIMITS) -> Decision:
    """The consequences of `command` for a run in `state`. Raises `Rejected` if it is refused."""
    if state.status == "new" and type(command) is not c.Start:
        raise Rejected(404, "run_unknown", f"there is no run {state.run_id}.")
    decider = _Decider(plan, state, max(now, state.at), limits)
    outcome = _RULES[type(command)](decider, command)
    return decider.decision(outcome)


class _Already(Exception):
    """The command changes nothing: what it asks for is so. Carries the outcome."""

    def __init__(self, outcome: Json) -> None:
        self.outcome = outcome


class _Raised(Exception):
    """A step could not be begun; the error becomes the step's."""

    def __init__(self, code: str, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class _Decider:
    """One decision in the making: the speculative state, and the events that lead to it."""

    def __init__(self, plan: Plan, state: RunState, now: int, limits: Limits) -> None:
        self.plan = plan
        self.state = state
        self.now = now
        self.limits = limits
        self.events: list[e.Event] = []
        self.already = False
        self.cut = False
        self._pure_steps = 0
        self._evaluations = 0
        self._bytes = 0

    def decision(self, outcome: Json) -> Decision:
        events = tuple(self.events)
        return Decision(events, self.state, outcome, self.cut, self.already or not events)

    def emit(self, kind: Callable[..., e.Event], /, **fields: Any) -> None:
        turn = self.state.turn
        event = kind(at=self.now, turn=turn.n if turn else 0, **fields)
        self.state = evolve(self.state, event)
        self.events.append(event)

    # --- commands -------------------------------------------------------------------------------------------------

    def start(self, command: c.Start) -> Json:
        if self.state.status != "new":
            self.already = True
            return self._run_outcome()
        given = self.plan.input.with_defaults(command.input)
        findings = self.plan.input.findings(given)
        if findings:
            raise Rejected(
                422,
                "input.invalid",
                f"the input does not fit workflow {self.plan.name}@{self.plan.version}.",
                findings=findings,
            )
        self.emit(
            e.RunStarted,
            workflow=self.plan.name,
            version=self.plan.version,
            sha256=self.plan.sha256.hex(),
            thread_id=command.thread_id,
            requester=command.requester,
            input=given,
            state={name: variable.default for name, variable in self.plan.state.items()},
            message=command.message,
            trigger=command.trigger,
            dev=command.dev,
            ready=(self.plan.first,),
        )
        self._open_turn(command.turn)
        if command.messages:
            self.emit(e.MessagesChanged, messages=command.messages)
        self._go_on()
        return self._run_outcome()

    def step_succeeded(self, command: c.StepSucceeded) -> Json:
        step = self._attempt(command.path, command.attempt)
        self._close_message(step.path)
        self._resolve_call(step, command.output, None)
        if self.state.status == "stopping":
            self.emit(e.StepFinished, path=step.path, output=command.output)
        else:
            self._finish(step, command.output)
        self._go_on()
        return None

    def step_failed(self, command: c.StepFailed) -> Json:
        step = self._attempt(command.path, command.attempt)
        retriable = command.code in RETRIABLE if command.retriable is None else command.retriable
        error = self._error(command.code, command.message, step.path, command.data, retriable=retriable)
        self._attempt_failed(step, error, command.retry_after)
        self._go_on()
        return None

    def step_lost(self, command: c.StepLost) -> Json:
        step = self._attempt(command.path, command.attempt)
        self._close_message(step.path, aborted=True)
        alone = len(self.state.attempts) == 1
        self.cut = True
        if self.state.status == "stopping":
            self.emit(e.StepStopped, path=step.path, reason="lost")
        else:
            error = self._error("step.lost", "The process that performed the step is gone.", step.path, retriable=True)
            self.emit(e.StepRetried, path=step.path, attempt=command.attempt, error=error, lost=True)
            lost = self.state.steps[step.path].lost
            if lost >= LOST_IN_A_ROW_MAX and alone and self.state.status in ("running", "paused"):
                reason = f"{lost} attempts in a row were lost with their process; retry, stop or terminate the run."
                self.emit(e.RunNeedsAttention, path=step.path, reason=reason)
        self._go_on()
        return None

    def answer(self, command: c.Answer) -> Json:
        readings = self._readings(command)
        if all(known for _, _, known in readings):
            self.already = True
            results = [_answered(pending, reading, "already", pending.by) for pending, reading, _ in readings]
            return {"answers": results, "turn": self.state.turn.n if self.state.turn else None}
        if not self.state.turn_open:
            self._open_turn(command.turn)
        if command.messages:
            self.emit(e.MessagesChanged, messages=command.messages)
            self.emit(
                e.WarningRaised,
                code="message_with_answer",
                message="A message that comes with an answer is kept in the thread, but starts no run.",
            )
        results = []
        for pending, reading, known in readings:
            if known:
                results.append(_answered(pending, reading, "already", pending.by))
            elif self.state.pendings[pending.opened.id].status == "open":
                self._decide_pending(pending, reading, command.by, command.via)
                results.append(_answered(pending, reading, "accepted", command.by))
            else:  # an answer before it in this very command decided a race, or failed a sibling
                results.append(_answered(pending, reading, "voided", None))
        self._go_on()
        return {"answers": results, "turn": self.state.turn.n if self.state.turn else None}

    def signal(self, command: c.Signal) -> Json:
        self._demand_active()
        if any(signal.id == command.id for signal in self.state.signals):
            self.already = True
        else:
            self.emit(e.SignalReceived, id=command.id, name=command.name, data=command.data)
        return {"id": command.id}

    def timer_fired(self, command: c.TimerFired) -> Json:
        if not self._fire_timers():
            raise Rejected(409, "timer_early", "no timer of this run is due yet.")
        self._go_on()
        return None

    def go_on(self, command: c.Continue) -> Json:
        if self.state.status != "running" or not self.state.ready:
            self.already = True
            return None
        self._go_on()
        return None

    def need_attention(self, command: c.NeedAttention) -> Json:
        if self.state.status == "stopping":  # a stop always ends: what can't be stored is cut off
            self._stop_inside("", command.reason)
            self._go_on()
            return None
        if self.state.status not in ("running", "waiting", "paused"):
            self.already = True
            return None
        self.emit(e.RunNeedsAttention, path="", reason=command.reason)
        self._go_on()
        return None

    def pause(self, command: c.Pause) -> Json:
        status = self.state.status
        if status == "paused":
            self.already = True
            return self._run_outcome()
        if status not in ("queued", "running", "waiting"):
            raise self._not_now("pause")
        self.emit(e.RunPaused, by=command.by, reason=command.reason)
        self._go_on()
        return self._run_outcome()

    def resume(self, command: c.Resume) -> Json:
        if self.state.status != "paused":
            if self.state.status not in ("queued", "running", "waiting"):
                raise self._not_now("resume")
            self.already = True
            return self._run_outcome()
        status = "running" if self.state.turn_open else "queued" if self.state.slot else "waiting"
        self.emit(e.RunResumed, by=command.by, status=status)
        if status != "queued":
            self._fire_timers()
            self._go_on()
        return self._run_outcome()

    def stop(self, command: c.Stop) -> Json:
        if self.state.status in ("stopping", "stopped"):
            self.already = True
            return self._run_outcome()
        self._demand_active()
        in_flight = len(self.state.attempts)
        self.emit(e.RunStopping, by=command.by, reason=command.reason, in_flight=in_flight)
        self._stop_inside("", "the run is being stopped", attempts=False)
        if in_flight:
            self.emit(e.TimerSet, path="", kind="grace", due=self.now + self.limits.stop_grace)
        self._go_on()
        return {**self._run_outcome(), "in_flight": in_flight}

    def terminate(self, command: c.Terminate) -> Json:
        if self.state.status == "stopped":
            self.already = True
            return self._run_outcome()
        self._demand_active()
        in_flight = len(self.state.attempts)
        self._stop_inside("", "the run was terminated")
        self._end_turn("stopped")
        self.emit(e.RunStopped, by=command.by, reason=command.reason, terminated=True)
        return {**self._run_outcome(), "in_flight": in_flight}

    def retry(self, command: c.Retry) -> Json:
        status = self.state.status
        if status not in ("failed", "needs_attention"):
            if status in ("queued", "running", "waiting", "paused"):
                self.already = True
                return self._run_outcome()
            raise self._not_now("retry")
        if status == "failed":
            reopened, ready = self._resumption()
        else:
            lost, ready = self.state.steps, self.state.ready
            reopened = tuple(path for path in ready if path in lost and lost[path].status == "running")
        self.emit(e.RunRetried, by=command.by, reopened=reopened, ready=ready)
        if not self.state.turn_open:
            self._open_turn(c.Turn())
        self._fire_timers()
        self._go_on()
        return self._run_outcome()

    # --- refusals -------------------------------------------------------------------------------------------------

    def _run_outcome(self) -> dict[str, Json]:
        return {"id": self.state.run_id, "status": self.state.status}

    def _not_now(self, what: str) -> Rejected:
        status = self.state.status
        code = "run_ended" if self.state.ended else "run_" + status
        return Rejected(
            409, code, f"can't {what} a run that is {status}.", winner={"status": status, "seq": self.state.seq}
        )

    def _demand_active(self) -> None:
        if self.state.ended:
            raise self._not_now("change")

    def _attempt(self, path: str, attempt: int) -> Step:
        """The step whose open attempt this is. A result of any other attempt is refused (STORE H4)."""
        if self.state.attempts.get(path) != attempt:
            raise Rejected(
                409,
                "attempt_closed",
                f"attempt {attempt} of step {path} is not open; its result is not recorded.",
            )
        return self.plan.steps[path]

    # --- going on -------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Draw every consequence that may be drawn now: start what is ready, end what is over."""
        if self.state.status == "stopping":
            if not self.state.attempts:
                self._stop_remaining()
                self._end_turn("stopped")
                self.emit(e.RunStopped, by=self.state.stop_by, reason=self.state.stop_reason)
            return
        if self.state.status in ("running", "waiting") and self.state.ready:
            if not self.state.turn_open:
                self._open_turn(c.Turn())
            self._advance()
        self._suspend()

    def _advance(self) -> None:
        while self.state.status == "running" and self._within_bounds():
            path = next_ready(self.state)
            if path is None:
                return
            if path == _RUN_END:
                self._conclude()
            else:
                self._begin(self.plan.steps[path])

    def _within_bounds(self) -> bool:
        return (
            self._pure_steps < self.limits.pure_steps
            and len(self.events) < self.limits.events - STEP_EVENTS
            and self._bytes < self.limits.event_bytes
            and self._evaluations < self.limits.evaluations
        )

    def _suspend(self) -> None:
        """End the turn if nothing but people, or a distant timer, can move the run."""
        state = self.state
        if not state.turn_open or state.attempts:
            return
        if state.status == "running" and not state.ready:
            near = self.now + self.limits.turn_linger
            if not any(t.due <= near and t.kind in ("wait", "retry") for t in state.timers):
                self._end_turn("waiting")
        elif state.status == "paused":
            self._end_turn("paused")
        elif state.status == "needs_attention":
            self._end_turn("needs_attention")

    def _open_turn(self, turn: c.Turn) -> None:
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

    def _end_turn(self, reason: str) -> None:
        if self.state.turn_open:
            self.emit(e.TurnEnded, reason=reason)

    def _conclude(self) -> None:
        """The last list has ended: the run's output, or its failure."""
        if self.state.failure is not None:
            self._end_turn("failed")
            self.emit(e.RunFailed, error=self.state.failure)
            return
        output = None
        root = self.state.steps.get("")
        if self.plan.output is not None and (root is None or root.status != "failed"):
            try:
                output = self._render(self.plan.output, None)
            except _Raised as raised:
                self._raise_to_document(self._error(raised.code, raised.message, ""))
                return
        self._complete(output)

    def _complete(self, output: Json) -> None:
        self._end_turn("finished")
        self.emit(e.RunFinished, output=output)

    # --- beginning a step -----------------------------------------------------------------------------------------

    def _begin(self, step: Step) -> None:
        known = self.state.steps.get(step.path)
        if known is not None and known.status == "running" and known.attempt:
            self.emit(e.AttemptStarted, path=step.path, attempt=known.attempt + 1, timeout=step.timeout)
            return
        try:
            if step.condition is not None and not self._truth(step.condition, step):
                self._pure_steps += 1
                self._leave(step, e.StepSkipped)
                return
            _BEGINNINGS[type(step.verb)](self, step, step.verb)
        except _Raised as raised:
            self._pure_steps += 1
            self._fail(step, self._error(raised.code, raised.message, step.path, raised.data))

    def _started(self, step: Step, /, **fields: Any) -> None:
        title = None if step.title is None else self._text(step.title, step)
        self.emit(e.StepStarted, path=step.path, verb=step.verb_name, title=title, timeout=step.timeout, **fields)

    def _begin_call(self, step: Step, verb: Call) -> None:
        known = self.state.steps.get(step.path)
        if known is not None and known.args is not None:  # every attempt uses the arguments first rendered
            args = known.args
        else:
            args = self._json_text(self._render(verb.arguments, step))
        if isinstance(verb.tool, FrontendTool):
            self._begin_frontend_call(step, verb.tool, args)
            return
        self._started(step, args=args, attempt=known.attempt + 1 if known else 1)
        if step.expose:
            name = f"{verb.tool.name}.{verb.function}" if verb.function else verb.tool.name
            id = tool_call_id(self.state.run_id, step.path, self.state.steps[step.path].asked)
            self._show_call(step, id, name, args, "server")

    def _begin_frontend_call(self, step: Step, tool: FrontendTool, args: str) -> None:
        findings = tool.parameters.findings(values.loads(args)) if tool.parameters is not None else []
        if findings:
            faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in findings)
            raise _Raised("tool.invalid_arguments", f"{tool.name} was called with wrong arguments: {faults}.")
        self._started(step, args=args)
        id = self._pending_id(step)
        self._show_call(step, id, tool.name, args, "frontend")
        schema = tool.result.raw if tool.result is not None else None
        self._open_pending(step, id, "tool", tool.deadline, tool=tool.name, args=args, schema=schema)

    def _show_call(self, step: Step, id: str, name: str, args: str, executor: str) -> None:
        parent = self.state.last_message.get(step.path.rpartition("/")[0])
        self.emit(
            e.ToolCallStarted,
            tool_call_id=id,
            name=name,
            path=step.path,
            executor=executor,
            message_id=parent or id,
            parent_message_id=parent,
        )
        self.emit(e.ToolCallArgsChunk, tool_call_id=id, content=args)
        self.emit(e.ToolCallEnded, tool_call_id=id)

    def _begin_ask(self, step: Step, verb: Ask) -> None:
        shown = self._question(step, verb.title, verb.message, verb.policy)
        self._started(step)
        self._open_pending(step, self._pending_id(step), "ask", verb.deadline, schema=dict(verb.form), **shown)

    def _begin_approve(self, step: Step, verb: Approve) -> None:
        shown = self._question(step, verb.title, verb.message, verb.policy)
        if verb.evidence is not None:
            shown["evidence"] = self._json_text(self._render(verb.evidence, step))
        self._started(step)
        schema = None if verb.form is None else dict(verb.form)
        self._open_pending(
            step, self._pending_id(step), "approve", verb.deadline, schema=schema, options=verb.options, **shown
        )

    def _question(self, step: Step, title: Template, message: Template | None, policy: Policy) -> dict[str, Any]:
        return {
            "title": self._text(title, step),
            "message": None if message is None else self._text(message, step),
            "policy": {
                "from": self._render(policy.from_, step),
                "exclude": None if policy.exclude is None else self._render(policy.exclude, step),
                "quorum": policy.quorum,
            },
        }

    def _pending_id(self, step: Step) -> str:
        asked = self.state.steps[step.path].asked if step.path in self.state.steps else 0
        return pending_id(self.state.run_id, step.path, asked)

    def _open_pending(self, step: Step, id: str, kind: str, deadline: int | None, /, **shown: Any) -> None:
        due = None if deadline is None else self.now + deadline
        bound = digest(self.state.sha256, self.state.run_id, {"path": step.path, **shown})
        self._pure_steps += 1
        self.emit(e.PendingOpened, id=id, path=step.path, kind=kind, digest=bound, deadline=due, **shown)
        if due is not None:
            self.emit(e.TimerSet, path=step.path, kind="deadline", due=due)

    def _begin_say(self, step: Step, verb: Say) -> None:
        content = self._render(verb.content, step)
        kind = "data" if verb.kind in ("fold", "output") else verb.kind
        if kind == "text" or (kind == "thinking" and not isinstance(content, dict)):
            if isinstance(content, str):
                text = content
                self._take(len(text.encode()))
            else:
                text = self._json_text(content)
        elif verb.kind == "output":
            text = self._json_text(content)
        else:
            text = self._json_text({"type": verb.kind, "data": content})
            kind = "data"
        self._started(step)
        self._pure_steps += 1
        id = message_id(self.state.run_id, step.path, 1, self.state.entries)
        self.emit(
            e.MessageStarted,
            message_id=id,
            path=step.path,
            kind=kind,
            block_id=None if verb.block_id is None else self._text(verb.block_id, step),
            layout=None if verb.layout is None else self._render(verb.layout, step),
            style=None if verb.style is None else self._render(verb.style, step),
        )
        size = len(text) or 1 if kind == "data" else SAY_CHUNK_CHARS  # structured output is one document, one chunk
        for n, start in enumerate(range(0, len(text), size)):
            self.emit(e.MessageChunk, message_id=id, n=n, content=text[start : start + size])
        self.emit(e.MessageEnded, message_id=id)
        self._finish(step, None)

    def _begin_set(self, step: Step, verb: Set) -> None:
        ops = self._operations(step, verb)
        try:
            after = apply_patch(self.state.state, ops)
        except PatchError as error:
            raise _Raised("state.invalid", f"The change of state does not apply: {error}.") from None
        findings = self.plan.state_schema.findings(after)
        if findings:
            faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in findings)
            raise _Raised("state.invalid", f"The state would not fit its types: {faults}.", findings)
        if len(values.dumps(after)) > STATE_BYTES_MAX:
            raise _Raised("state.invalid", f"The state would be larger than {STATE_BYTES_MAX} bytes.")
        self._started(step)
        self._pure_steps += 1
        self._bytes += len(values.dumps(ops))
        self.emit(e.StateChanged, path=step.path, ops=tuple(ops))
        self._finish(step, None)

    def _operations(self, step: Step, verb: Set) -> list[dict[str, Json]]:
        if verb.ops is not None:
            return self._render(verb.ops, step)
        document, ops = self.state.state, []
        for key, template in verb.assign:
            value = self._render(template, step)
            op = self._pointer_operation(document, key, value) if key.startswith("/") else None
            ops.append(op or self._variable_operation(document, key, value))
            try:
                document = apply_patch(document, ops[-1:])
            except PatchError as error:
                raise _Raised("state.invalid", f"{key} can't be set: {error}.") from None
        return ops

    def _pointer_operation(self, document: Json, pointer: str, value: Json) -> dict[str, Json]:
        try:
            parts = parse_pointer(pointer)
            apply_patch(document, [{"op": "replace", "path": pointer, "value": value}])
        except PatchError:
            return {"op": "add", "path": pointer, "value": value}
        return {"op": "replace", "path": pointer_of(*parts), "value": value}

    def _variable_operation(self, document: Json, name: str, value: Json) -> dict[str, Json]:
        reduce, before = self.plan.state[name].reduce, document.get(name)
        path = pointer_of(name)
        if reduce == "append":
            if isinstance(before, list):
                return {"op": "add", "path": path + "/-", "value": value}
            value = [value]
        elif reduce == "merge" and isinstance(before, dict):
            if not isinstance(value, dict):
                raise _Raised("state.invalid", f"{name} is merged: expected a map, found {type(value).__name__}.")
            value = {**before, **value}
        elif reduce == "max" and before is not None:
            try:
                value = max(before, value)
            except TypeError:
                raise _Raised("state.invalid", f"{name} keeps the larger number; found {value!r}.") from None
        return {"op": "replace" if name in document else "add", "path": path, "value": value}

    def _begin_switch(self, step: Step, verb: Switch) -> None:
        self._pure_steps += 1
        for number, (condition, first) in enumerate(verb.cases):
            if condition is None or self._truth(condition, step):
                self._started(step, case=number, ready=(first,))
                return
        self._started(step)
        self._finish(step, {"case": None})

    def _begin_parallel(self, step: Step, verb: Parallel) -> None:
        self._pure_steps += 1
        self._started(step, branches=len(verb.branches), ready=tuple(first for _, first in verb.branches))

    def _begin_wait(self, step: Step, verb: Wait) -> None:
        due = self._due(step, verb)
        self._pure_steps += 1
        self._started(step)
        if due <= self.now:
            self._finish(step, None)
        else:
            self.emit(e.TimerSet, path=step.path, kind="wait", due=due)

    def _due(self, step: Step, verb: Wait) -> int:
        if isinstance(verb.for_, int):
            return self.now + verb.for_
        if verb.for_ is not None:
            text = self._render(verb.for_, step)
            try:
                return self.now + duration_ms(text)
            except NotADuration as error:
                raise _Raised("expression.error", f"wait.for: {error}.") from None
        assert verb.until is not None
        text = self._text(verb.until, step)
        try:
            instant = datetime.fromisoformat(text)
        except ValueError:
            instant = None
        if instant is None or instant.tzinfo is None:
            raise _Raised(
                "expression.error",
                f"wait.until: expected a timestamp with offset such as 2026-03-02T09:00:00Z, found {text!r}.",
            )
        return int(instant.timestamp() * 1000)

    def _begin_return(self, step: Step, verb: Return) -> None:
        value = self._render(verb.value, step)
        self._started(step)
        self.emit(e.StepFinished, path=step.path)
        self._stop_inside("", "the run returned", around=step)
        self._complete(value)

    def _begin_fail(self, step: Step, verb: Fail) -> None:
        message = self._text(verb.message, step)
        data = None if verb.data is None else self._render(verb.data, step)
        self._started(step)
        self._pure_steps += 1
        self._fail(step, self._error(verb.code, message, step.path, data))

    # --- ending a step --------------------------------------------------------------------------------------------

    def _finish(self, step: Step, output: Json, /, **fields: Any) -> None:
        self._leave(step, e.StepFinished, output=output, **fields)

    def _leave(self, step: Step, kind: Callable[..., e.Event], /, **fields: Any) -> None:
        """End `step` with an event of `kind`, and whatever ends with it."""
        ready, last = self._continuation(step)
        self.emit(kind, path=step.path, ready=ready, **fields)
        if last is not None:
            self._list_ended(last)

    def _continuation(self, step: Step) -> tuple[tuple[str, ...], Step | None]:
        """What may begin after `step`; or the step whose list has ended with it. After a `catch` list the flow goes on
        behind the step that was caught."""
        while step.next is None:
            if step.parent == "":
                return (_RUN_END,), None
            if not step.body.startswith("~catch"):
                return (), step
            step = self.plan.steps[step.parent]
        return (step.next,), None

    def _list_ended(self, last: Step) -> None:
        parent = self.plan.steps[last.parent]
        if last.body == "~reject":
            rejected = self.state.steps[parent.path].error
            assert rejected is not None
            self._fail(parent, rejected)
        elif isinstance(parent.verb, Switch):
            self._finish(parent, {"case": self.state.steps[parent.path].case})
        else:
            self._branch_ended(parent, last.body)

    def _branch_ended(self, parallel: Step, branch: str) -> None:
        assert isinstance(parallel.verb, Parallel)
        self.emit(e.BranchEnded, path=parallel.path, branch=branch)
        joined = self.state.steps[parallel.path]
        if parallel.verb.join == "any" and joined.winner is not None:
            self._stop_inside(parallel.path, f"branch {joined.winner} won")
            self._finish(parallel, {"winner": joined.winner})
        elif joined.left == 0:
            self._finish(parallel, {"winner": None})

    def _fail(self, step: Step, error: e.Error, approval: Json = None) -> None:
        """The step has failed: its `catch` goes on, or the failure is raised to what is around it."""
        self._close_message(step.path, aborted=True)
        caught = catching(step.catch, error.code)
        if caught is not None:
            number, clause = caught
            self.emit(
                e.StepFailed,
                path=step.path,
                error=error,
                approval=approval,
                handler=f"~catch/{number}",
                ready=(clause.first,),
            )
            return
        self.emit(e.StepFailed, path=step.path, error=error, approval=approval)
        self._raise_from(step, error)

    def _raise_from(self, step: Step, error: e.Error) -> None:
        if step.parent == "":
            inside_catch = step.body.startswith("~")
            self._raise_to_document(self._replacing("", error) if inside_catch else error, inside_catch)
            return
        parent = self.plan.steps[step.parent]
        if step.body.startswith("~"):
            self._raise_out_of_handler(parent, self._replacing(parent.path, error), step.body)
        elif isinstance(parent.verb, Parallel):
            self._branch_failed(parent, step.body, error)
        else:
            self._fail(parent, error)

    def _replacing(self, path: str, error: e.Error) -> e.Error:
        """An error inside a handler replaces the one being handled, which becomes its cause: the first of all causes,
        where the error has some of its own."""
        cause = self.state.steps[path].error if error.cause is None else self._replacing(path, error.cause)
        return msgspec.structs.replace(error, cause=cause)

    def _raise_out_of_handler(self, step: Step, error: e.Error, handler: str) -> None:
        if handler == "~reject":  # the step's own `catch` stands around its reject list
            self._fail(step, error)
            return
        self.emit(e.StepFailed, path=step.path, error=error)
        self._raise_from(step, error)

    def _branch_failed(self, parallel: Step, branch: str, error: e.Error) -> None:
        assert isinstance(parallel.verb, Parallel)
        if parallel.verb.join == "any":
            self.emit(e.BranchEnded, path=parallel.path, branch=branch, failed=True)
            joined = self.state.steps[parallel.path]
            if joined.dropped < joined.left:
                return
        self._stop_inside(parallel.path, f"branch {branch} failed")
        self._fail(parallel, error)

    def _raise_to_document(self, error: e.Error, inside_catch: bool = False) -> None:
        caught = None if inside_catch else catching(self.plan.catch, error.code)
        if caught is None:
            self.emit(e.StepFailed, path="", error=error, ready=(_RUN_END,))
        else:
            number, clause = caught
            self.emit(e.StepFailed, path="", error=error, handler=f"~catch/{number}", ready=(clause.first,))

    def _attempt_failed(self, step: Step, error: e.Error, retry_after: int | None = None) -> None:
        """An attempt of an effect failed: another one after a while, or the step fails."""
        self._close_message(step.path, aborted=True)
        if self.state.status == "stopping":
            self.emit(e.StepStopped, path=step.path, reason=error.message)
            return
        attempt = self.state.attempts[step.path]
        wait = delay(
            step.retry or self.plan.default_retry,
            self.state.steps[step.path].failures,
            error.code,
            error.retriable,
            retry_after,
            (self.state.run_id, step.path, attempt),
        )
        if wait is None:
            self._resolve_call(step, None, error)
            self._fail(step, error)
            return
        due = self.now + wait
        self.emit(e.StepRetried, path=step.path, attempt=attempt, error=error, due=due)
        self.emit(e.TimerSet, path=step.path, kind="retry", due=due)

    def _resolve_call(self, step: Step, output: Json, error: e.Error | None) -> None:
        if not step.expose:
            return
        id = tool_call_id(self.state.run_id, step.path, self.state.steps[step.path].asked - 1)
        if error is not None:
            self.emit(e.ToolCallResolved, tool_call_id=id, content=error.message, error=error.code)
        else:
            content = output if isinstance(output, str) else values.dumps(output).decode()
            self.emit(e.ToolCallResolved, tool_call_id=id, content=content)

    def _close_message(self, path: str, *, aborted: bool = False) -> None:
        """End the messages that the step's attempt was streaming."""
        for id, owner in self.state.open_messages.items():
            if owner == path:
                self.emit(e.MessageEnded, message_id=id, aborted=aborted)

    # --- stopping what is inside ----------------------------------------------------------------------------------

    def _stop_inside(self, prefix: str, reason: str, *, attempts: bool = True, around: Step | None = None) -> None:
        """Cut off everything open below `prefix` ("" = everywhere): attempts, pendings, timers, and the blocks around
        them, and around the step `around`.

        With attempts=False, effects in flight stay open with the blocks that hold them: they were told to cancel and
        report their own end.
        """
        below = prefix + "/" if prefix else ""
        state = self.state
        open_paths = [*state.open_pendings, *(t.path for t in state.timers if t.path), *state.ready]
        if attempts:
            open_paths += state.attempts
            self.cut = self.cut or any(path.startswith(below) for path in state.attempts)
        leaves = {path for path in open_paths if path.startswith(below) and path != _RUN_END}
        if not attempts:
            leaves -= set(state.attempts)
        for path in sorted(leaves):
            pending = self.state.open_pendings.get(path)
            if pending is not None:
                self.emit(e.PendingVoided, id=pending, reason=reason)
            self._close_message(path, aborted=True)
        stopped = leaves | self._blocks_around([*leaves, *([around.path] if around else [])], below)
        if not attempts:
            stopped -= self._blocks_around(self.state.attempts, below)
        self._stop_steps(stopped, reason)

    def _stop_steps(self, paths: Iterable[str], reason: str) -> None:
        """Innermost first: a step ends before the block around it."""
        for path in sorted(paths, key=lambda path: (-path.count("/"), path)):
            self.emit(e.StepStopped, path=path, reason=reason)

    def _stop_remaining(self) -> None:
        """The blocks that stood around the last attempts of a stopping run, innermost first."""
        open_blocks = [p for p, s in self.state.steps.items() if p and s.status in ("running", "waiting")]
        self._stop_steps(open_blocks, "the run is being stopped")

    def _blocks_around(self, paths: Iterable[str], below: str) -> set[str]:
        """The blocks below the prefix that are open around any of the steps."""
        blocks: set[str] = set()
        for path in paths:
            parent = self.plan.steps[path].parent
            while parent and parent.startswith(below) and parent not in blocks:
                if self.state.steps[parent].status == "running":
                    blocks.add(parent)
                parent = self.plan.steps[parent].parent
        return blocks

    # --- where a failed run goes on -----------------------------------------------------------------------------------

    def _resumption(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a Retry reopens (the blocks around what is not done) and what begins anew in them, in the plan's order.

        A list goes on at its first step that is not done. A step whose handler was cut off goes on inside the handler.
        """
        reopened = [""] if "" in self.state.steps else []
        ready: list[str] = []
        if self._resume_list(self.plan.first, reopened, ready):  # all is done but the output, which failed
            ready.append(_RUN_END)
        return tuple(reopened), tuple(ready)

    def _resume_list(self, first: str, reopened: list[str], ready: list[str]) -> bool:
        """Whether the list that begins at `first` is done; if not, notes where it goes on."""
        path: str | None = first
        while path is not None:
            step = self.plan.steps[path]
            if not self._resume_step(step, reopened, ready):
                return False
            path = step.next
        return True

    def _resume_step(self, step: Step, reopened: list[str], ready: list[str]) -> bool:
        known = self.state.steps.get(step.path)
        if known is not None and known.status in ("finished", "skipped"):
            return True
        if known is not None and known.handler is not None:
            return self._resume_list(self._handler_first(step, known.handler), reopened, ready)
        inner = () if known is None else self._lists_begun(step, known)
        notes: tuple[list[str], list[str]] = ([], [])
        done = [self._resume_list(first, *notes) for first in inner]
        if all(done):  # an effect or a question; or a block that failed before it began
            ready.append(step.path)
        else:
            reopened.extend((step.path, *notes[0]))
            ready.extend(notes[1])
        return False

    def _handler_first(self, step: Step, handler: str) -> str:
        if handler == "~reject":
            assert step.on_reject is not None
            return step.on_reject
        return step.catch[int(handler.rpartition("/")[2])].first

    def _lists_begun(self, step: Step, known: StepState) -> tuple[str, ...]:
        if isinstance(step.verb, Switch):
            return () if known.case is None else (step.verb.cases[known.case][1],)
        if isinstance(step.verb, Parallel) and known.verb:
            return tuple(first for _, first in step.verb.branches)
        return ()

    # --- people ---------------------------------------------------------------------------------------------------

    def _readings(self, command: c.Answer) -> list[tuple[PendingState, Reading, bool]]:
        """Every answer read against its pending, or one refusal that lists what stands against each."""
        read: dict[str, tuple[PendingState, Reading, bool]] = {}
        refusals: list[Rejected] = []
        for answer in command.answers:
            try:
                entry = self._reading(answer)
                same = read.setdefault(answer.id, entry)
                if same[1].sha != entry[1].sha:
                    raise Rejected(
                        422, "answer.invalid", f"{answer.id}: answered twice, and differently, in one request."
                    )
            except Rejected as rejected:
                refusals.append(rejected)
        if len(refusals) == 1:
            raise refusals[0]
        if refusals:
            first = refusals[0]
            raise Rejected(
                first.status,
                first.code,
                " ".join(rejected.detail for rejected in refusals),
                winner=first.winner,
                findings=[finding for rejected in refusals for finding in rejected.findings],
            )
        return list(read.values())

    def _reading(self, answer: c.PendingAnswer) -> tuple[PendingState, Reading, bool]:
        pending = self.state.pendings.get(answer.id)
        if pending is None:
            raise Rejected(404, "pending_unknown", f"there is no pending {answer.id}.")
        opened, status = pending.opened, pending.status
        if status == "expired":
            raise Rejected(
                410, "pending_expired", f"{opened.id} expired; its deadline has passed.", winner=_winner(pending)
            )
        if status == "voided":
            raise Rejected(
                409,
                "pending_voided",
                f"{opened.id} needs no answer any more: {pending.reason}.",
                winner=_winner(pending),
            )
        verb = self.plan.steps[opened.path].verb
        asker = verb.tool if isinstance(verb, Call) else verb
        assert isinstance(asker, FrontendTool | Ask | Approve)
        try:
            reading = read_answer(opened, asker, answer)
        except Rejected:
            if status == "open":
                raise
            reading = None
        if status == "open":
            assert reading is not None
            return pending, reading, False
        if reading is None or reading.sha != pending.answer_sha:
            raise Rejected(
                409,
                "pending_decided",
                f"{opened.id} was answered already, and differently; the first answer stands.",
                winner=_winner(pending),
            )
        return pending, reading, True

    def _decide_pending(self, pending: PendingState, reading: Reading, by: str, via: str) -> None:
        opened = pending.opened
        step = self.plan.steps[opened.path]
        if opened.kind == "approve":
            self._decide_approval(step, pending, reading, by, via)
            return
        if opened.kind == "tool":
            content = reading.reason if reading.outcome == "declined" else _content(reading.value)
            declined = "tool.declined" if reading.outcome == "declined" else None
            self.emit(e.ToolCallResolved, tool_call_id=opened.id, content=content, error=declined)
        self._record_decision(opened.id, reading, by, via, reading.value)
        if reading.outcome == "declined":
            message = f"The frontend reported an error: {reading.reason}"
            self._fail(step, self._error("tool.declined", message, step.path))
        else:
            self._finish(step, reading.value)

    def _decide_approval(self, step: Step, pending: PendingState, reading: Reading, by: str, via: str) -> None:
        opened = pending.opened
        vote = {
            "by": by,
            "on_behalf_of": None,
            "roles": [],
            "decision": reading.outcome,
            "reason": reading.reason,
            "values": reading.value,
            "at": values.rfc3339(self.now),
            "via": via,
            "digest": opened.digest,
            "counts": True,
        }
        self.emit(
            e.VoteCast,
            id=opened.id,
            by=by,
            decision=reading.outcome,
            reason=reading.reason,
            values=reading.value,
            via=via,
            digest=opened.digest,
        )
        result = envelope(reading.outcome, reason=reading.reason, values=reading.value, votes=[vote])
        self._record_decision(opened.id, reading, by, via, result)
        if reading.outcome == "approve":
            self._finish(step, result, approval=result)
        else:
            self._reject(step, result, reading.reason or f"Rejected by {by}.")

    def _record_decision(self, id: str, reading: Reading, by: str, via: str, value: Json) -> None:
        self.emit(
            e.PendingDecided,
            id=id,
            outcome=reading.outcome,
            by=by,
            value=value,
            reason=reading.reason,
            answer_sha=reading.sha,
            via=via,
        )

    def _reject(self, step: Step, result: dict[str, Json], message: str) -> None:
        """A rejection: the step's reject list runs first, then `approval.rejected` is raised, whatever it did."""
        error = self._error("approval.rejected", message, step.path)
        if step.on_reject is None:
            self._fail(step, error, result)
        else:
            self.emit(
                e.StepFailed,
                path=step.path,
                error=error,
                approval=result,
                handler="~reject",
                ready=(step.on_reject,),
            )

    # --- time -----------------------------------------------------------------------------------------------------

    def _fire_timers(self) -> bool:
        """Fire whatever is due. While paused (or in need of attention) only deadlines are; the rest waits."""
        fired = False
        paused = self.state.status in ("paused", "needs_attention")
        for timer in self.state.timers:
            if timer.due > self.now:
                break
            if timer not in self.state.timers or (paused and timer.kind != "deadline") or self.state.ended:
                continue
            fired = True
            self._turn_for_time()
            self.emit(e.TimerFired, path=timer.path, kind=timer.kind)
            if timer.kind == "wait":
                self._finish(self.plan.steps[timer.path], None)
            elif timer.kind == "deadline":
                self._expire(self.plan.steps[timer.path])
            elif timer.kind == "grace":
                self._stop_inside("", "the grace period of the stop is over")
        return self._fire_timeouts() or fired

    def _turn_for_time(self) -> None:
        if not self.state.turn_open and self.state.status in ("waiting", "paused", "needs_attention"):
            self._open_turn(c.Turn())

    def _fire_timeouts(self) -> bool:
        if self.state.running_since is None:
            return False
        worked = self.state.worked_at(self.now)
        late = [path for path, due in self.state.timeouts.items() if due <= worked]
        for path in sorted(late, key=lambda path: path.count("/")):
            if path not in self.state.timeouts:  # it was stopped with the block around it
                continue
            step = self.plan.steps[path]
            error = self._error("step.timeout", f"The step took longer than {step.timeout} ms.", path, retriable=True)
            if path in self.state.attempts:
                self.cut = True
                self._attempt_failed(step, error)
            else:
                self._stop_inside(path, "its block took too long")
                self._fail(step, error)
        return bool(late)

    def _expire(self, step: Step) -> None:
        """The deadline of the step's pending has passed: its default outcome."""
        id = self.state.open_pendings[step.path]
        opened = self.state.pendings[id].opened
        verb = step.verb
        if isinstance(verb, Approve) and verb.on_deadline == "reject":
            reason = "Nobody decided before the deadline."
            result = envelope("reject", reason=reason, votes=[], expired=True)
            self.emit(e.PendingDecided, id=id, outcome="expired", value=result, reason=reason, via="deadline")
            self._reject(step, result, reason)
            return
        self.emit(e.PendingDecided, id=id, outcome="expired", reason="deadline", via="deadline")
        code = {"tool": "tool.expired", "ask": "ask.expired", "approve": "approval.expired"}[opened.kind]
        approval = envelope("expired", reason=None, votes=[], expired=True) if opened.kind == "approve" else None
        self._fail(step, self._error(code, "Nobody answered before the deadline.", step.path), approval)

    # --- values ---------------------------------------------------------------------------------------------------

    def _error(self, code: str, message: str, path: str, data: Json = None, *, retriable: bool = False) -> e.Error:
        known = self.state.steps.get(path)
        return e.Error(code, message, path, known.attempt if known else 0, self.now, retriable, data)

    def _truth(self, expression: Expression, step: Step) -> bool:
        value = self._evaluated(lambda: expression.evaluate(self._scope(expression, step)))
        if not isinstance(value, bool):
            raise _Raised("expression.error", f"expected true or false from {expression.source}, found {value!r}.")
        return value

    def _render(self, template: Template, step: Step | None) -> Json:
        return self._evaluated(lambda: template.render(self._scope(template, step)))

    def _evaluated(self, evaluate: Callable[[], Json]) -> Json:
        self._evaluations += 1
        try:
            return evaluate()
        except ExpressionError as error:
            raise _Raised(error.code, error.message) from None

    def _text(self, template: Template, step: Step) -> str:
        value = self._render(template, step)
        return value if isinstance(value, str) else values.dumps(value).decode()

    def _json_text(self, value: Json) -> str:
        written = values.dumps(value)
        self._take(len(written))
        return written.decode()

    def _take(self, size: int) -> None:
        """Count what a step renders against the bounds of an event and of this decision."""
        if size > EVENT_BYTES_MAX:
            raise _Raised(
                "expression.too_large", f"a rendered value has at most {EVENT_BYTES_MAX} bytes, found {size}."
            )
        self._bytes += size

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


def _content(value: Json) -> str:
    return value if isinstance(value, str) else values.dumps(value).decode()


def _answered(pending: PendingState, reading: Reading, status: str, by: str | None) -> dict[str, Json]:
    return {"id": pending.opened.id, "outcome": reading.outcome, "status": status, "by": by}


def _winner(pending: PendingState) -> dict[str, Json]:
    """What stands instead of a late or different answer."""
    return {
        "id": pending.opened.id,
        "outcome": pending.status,
        "by": pending.by,
        "at": None if pending.at is None else values.rfc3339(pending.at),
        "value": pending.value,
        "reason": pending.reason,
    }


def _run_value(decider: _Decider, step: Step | None) -> Json:
    state = decider.state
    return {
        "id": state.run_id,
        "workflow": state.workflow,
        "version": state.version,
        "started_at": values.rfc3339(state.started_at),
        "requester": state.requester,
        "trigger": state.trigger,
    }


def _thread_value(decider: _Decider, step: Step | None) -> Json:
    return {"id": decider.state.thread_id, "message": decider.state.message}


_ROOTS: Final[dict[str, Callable[[_Decider, Step | None], Json]]] = {
    "input": lambda decider, step: decider.state.input,
    "state": lambda decider, step: decider.state.state,
    "run": _run_value,
    "thread": _thread_value,
    "now": lambda decider, step: decider.now,
    "error": _Decider._handled_error,
    "steps": lambda decider, step: {},
}

_BEGINNINGS: Final[dict[type, Callable[[_Decider, Step, Any], None]]] = {
    Call: _Decider._begin_call,
    Say: _Decider._begin_say,
    Ask: _Decider._begin_ask,
    Approve: _Decider._begin_approve,
    Set: _Decider._begin_set,
    Switch: _Decider._begin_switch,
    Parallel: _Decider._begin_parallel,
    Wait: _Decider._begin_wait,
    Return: _Decider._begin_return,
    Fail: _Decider._begin_fail,
}

_RULES: Final[dict[type[c.Command], Callable[[_Decider, Any], Json]]] = {
    c.Start: _Decider.start,
    c.StepSucceeded: _Decider.step_succeeded,
    c.StepFailed: _Decider.step_failed,
    c.StepLost: _Decider.step_lost,
    c.Answer: _Decider.answer,
    c.Signal: _Decider.signal,
    c.TimerFired: _Decider.timer_fired,
    c.Continue: _Decider.go_on,
    c.NeedAttention: _Decider.need_attention,
    c.Pause: _Decider.pause,
    c.Resume: _Decider.resume,
    c.Stop: _Decider.stop,
    c.Terminate: _Decider.terminate,
    c.Retry: _Decider.retry,
}
