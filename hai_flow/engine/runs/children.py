"""Child runs: an effect that no process performs, because it is a run of its own.

A parent and its child never share a commit. The wishes of one to the other go through the outbox
(docs/design/store.md#outbox):

    parent -> child     start_child; pause, resume, stop, terminate as they come to the parent (`pass_down`)
    child -> parent     child_told its questions, words, steps and the state that it shows, child_moved when it
                        begins to wait, goes on or takes an event, child_ended at its end (`tell_parent`)

The parent passes that on to its own parent, so the log of the outermost run has all questions of its thread
(docs/decisions/0027). An answer goes to the run that asks, which the question's id names.

A run that is started to be left alone (`detach`) is no child: it has a thread of its own, no `parent`, and hears
of nothing that is done to the run that started it. Its step waits only until it is stored:

    starter -> started  start_detached
    delivery -> starter  the step has finished with `{run_id}`; or the start was refused, as of a child that has failed

The child's id is made from the parent's, the step's path and the number of its attempt. So a start that is delivered
twice finds the child that is there, and a retry by the step's policy starts another one. A Retry of the parent goes on
with the child that failed, or was cut off (docs/decisions/0088):

    parent -> child     retry_child: the child goes on where it ended, for the step's new attempt
    delivery -> parent  child_ended, where the child has finished meanwhile, or can't go on

The child notes the attempt that waits for it now. So what it has said to an attempt before is refused as late, and its
numbers (tokens, calls of tools) count since its birth: the parent subtracts what it has noted of them already.

`timeout` bounds the child's working time, so it is the child that watches it: by a Stop of its own, which its parent
knows by the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.definition.paths import inside, is_in_cleanup
from hai_flow.definition.plan import Run, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.completion import loop
from hai_flow.engine.completion.cancellation import tell_child
from hai_flow.engine.decision import Message
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.evolve.children import hash_args
from hai_flow.engine.handlers.attempts import fail_attempt
from hai_flow.engine.state import budget, shared_state
from hai_flow.engine.state.ids import derive_child_run_id
from hai_flow.engine.state.instigators import list_new_senders
from hai_flow.engine.state.run_size import demand_wait, used
from hai_flow.engine.state.state import Expense, LastChild, RunState, StepState
from hai_flow.engine.state.tracing import derive_attempt_place
from hai_flow.engine.steps.tool_calls import resolve_call
from hai_flow.errors import Rejected
from hai_flow.values import Json

DEPTH_MAX: Final = 8
START: Final = "start_child"
START_DETACHED: Final = "start_detached"
RETRY: Final = "retry_child"
ENDED: Final = "child_ended"
MOVED: Final = "child_moved"
TOLD: Final = "child_told"
TIMED_OUT: Final = "the timeout of its parent's step is over"
_MOVING: Final = frozenset({"new", "running", "stopping"})
STEPS_UNTIL: Final = 0.5
"""When the run's log has reached this share of its bound, it records the steps of the runs below no more."""
SILENT_VERBS: Final = frozenset(
    {"say", "emit", "let", "set", "switch", "try", "iteration", "agent_calls", "break", "continue", "return", "fail"}
)
"""Steps without an effect that anybody could watch (docs/design/protocols.md#hai)."""
News: TypeAlias = e.ChildAsked | e.ChildSaid | e.ChildStepped | e.ChildShared
_QUIET: Final = (e.ChildStepped, e.ChildShared)  # these open no turn of a run that is held


def build_command(kind: str, target: str, body: Json) -> c.Command | None:
    """The command that a message between parent and child is; None for a kind that is none of theirs.

    Raises `msgspec.ValidationError` for a body that no release wrote."""
    match kind:
        case "start_child":
            born = msgspec.convert(body, _Born)
            return c.Start(run_id=UUID(target), trigger="run", **msgspec.structs.asdict(born))
        case "start_detached":
            start = msgspec.convert(body, _Left)
            return c.Start(run_id=UUID(target), thread_id=target, trigger="run", **msgspec.structs.asdict(start))
        case "retry_child":
            again = msgspec.convert(body, _Again)
            return c.RetryChild(by=again.by, awaited=e.Awaited(again.parent.attempt, again.timeout, again.allowance))
        case "child_ended":
            return msgspec.convert(body, c.ChildEnded)
        case "child_moved":
            return msgspec.convert(body, c.ChildMoved)
        case "child_told":
            return msgspec.convert(body, c.ChildTold)
        case "pause" | "resume" | "stop" | "terminate":
            control = msgspec.convert(body, _Told)
            if kind == "resume":
                return c.Resume(by=control.by)
            return _CONTROL[kind](by=control.by, reason=control.reason)
    return None


class _Born(msgspec.Struct):
    """The fields of the `Start` of a child that its parent says."""

    thread_id: str
    requester: str
    input: Json
    message: str
    parent: e.Parent
    pins: dict[str, e.Pin]
    instigators: tuple[str, ...] = ()
    dev: bool = False
    timeout: int | None = None
    origin: e.Origin | None = None
    allowance: e.Allowance | None = None
    trace: str | None = None


class _Again(msgspec.Struct):
    """The part of a `retry_child` that is for a child that is there; the rest starts one that never was."""

    by: str
    parent: e.Parent
    timeout: int | None = None
    allowance: e.Allowance | None = None


class _Left(msgspec.Struct):
    """The fields of the `Start` of a run that its starter does not wait for."""

    requester: str
    input: Json
    origin: e.Origin
    instigators: tuple[str, ...] = ()
    dev: bool = False
    trace: str | None = None


class _Told(msgspec.Struct):
    by: str = "system"
    reason: str = ""


_CONTROL: Final[dict[str, type[c.Pause] | type[c.Stop] | type[c.Terminate]]] = {
    "pause": c.Pause,
    "stop": c.Stop,
    "terminate": c.Terminate,
}


# --- the parent's side ------------------------------------------------------------------------------------------------


def start(draft: Draft, step: Step, verb: Run, args: str) -> None:
    """The attempt that has just begun starts a child with the input `args` (JSON text). Behind a Retry it goes on with
    the one that it had. Raises `Raised`."""
    state = draft.state
    last = None if verb.detach else _to_go_on_with(state, step, verb, args)
    child = derive_child_run_id(state.run_id, step.path, state.attempts[step.path]) if last is None else last.run_id
    reference = reference_of(verb)
    pin = state.pins.get(reference)
    body = {
        "workflow": reference,
        "sha256": None if pin is None else pin.sha256,
        "dev": pin is not None and pin.dev,
        "input": values.loads(args),
        "requester": state.requester,
    }
    body |= _start_detached(draft, step) if verb.detach else _start_awaited(draft, step)
    if state.all_instigators:
        body["instigators"] = list(state.all_instigators)
    allowance = None if verb.detach else budget.compute_allowance(draft, step)
    if allowance is not None:
        body["allowance"] = msgspec.to_builtins(allowance if last is None else budget.raise_allowance(allowance, last))
    trace = derive_attempt_place(state, step.path, state.attempts[step.path])
    if trace is not None:
        body["trace"] = str(trace)
    draft.emit(e.CollaborationStarted, **_build_task_fields(draft, step, verb), run_id=child, allowance=allowance)
    if last is not None:
        draft.send(RETRY, child, {**body, "by": state.retried_by})
        return
    draft.send(START_DETACHED if verb.detach else START, child, body)


def _to_go_on_with(state: RunState, step: Step, verb: Run, args: str) -> LastChild | None:
    """The child that the step had before a Retry; None: it starts another one, for it had none, or it has other
    arguments now."""
    last = state.last_children.get(step.path)
    if last is None or last.workflow != verb.workflow or last.args != hash_args(args):
        return None
    return last if last.rounds == state.steps[step.path].rounds else None


def _start_awaited(draft: Draft, step: Step) -> dict[str, Json]:
    """The fields of a child's start beside its workflow and its input. Raises `Raised`."""
    state = draft.state
    depth = 1 if state.parent is None else state.parent.depth + 1
    if depth > DEPTH_MAX:
        raise Raised("run.failed", f"A run may have children down to the {DEPTH_MAX}th generation; this is one more.")
    demand_wait(draft, step)
    timeout = state.timeouts.get(step.path)
    place = {"path": step.path, "attempt": state.attempts[step.path]}
    root = {} if state.parent is None else {"root": root_of(state.parent)}
    return {
        "thread_id": state.thread_id,
        "message": state.message,
        "parent": {"run_id": state.run_id, **place, "depth": depth, **root},
        "pins": msgspec.to_builtins(state.pins),
        "timeout": None if timeout is None else max(0, timeout - state.compute_working_time(draft.now)),
        **({} if state.origin is None else {"origin": msgspec.to_builtins(state.origin)}),
    }


def root_of(parent: e.Parent) -> str:
    """The run at the top of a child's tree; the one above it, where a release before has started the child."""
    return parent.run_id if parent.root is None else parent.root


def _start_detached(draft: Draft, step: Step) -> dict[str, Json]:
    """The fields of the start of a run that is not awaited (`detach`). `by`: the attempt that hears whether it was
    started."""
    state = draft.state
    origin = e.Origin(state.run_id, step.path, 0 if state.origin is None else state.origin.depth)
    return {"origin": msgspec.to_builtins(origin), "by": {"path": step.path, "attempt": state.attempts[step.path]}}


def reference_of(verb: Run) -> str:
    """The child's workflow as the author wrote it: `name` or `name@version`. The key of its pin."""
    return verb.workflow if verb.version is None else f"{verb.workflow}@{verb.version}"


def child_ended(draft: Draft, command: c.ChildEnded) -> None:
    """The child has ended: its step finishes with its output, fails with its error, or was stopped with it. A step that
    has given the child up still notes the tokens that it took."""
    given_up = _find_abandoned_child(draft, command)
    step = draft.step(command.path) if given_up else _demand_awaited(draft, command.path, command.attempt)
    verb = step.verb_as(Run)
    for each in () if given_up else command.told:
        _record_quietly(draft, each, step.path)
    child = given_up or draft.state.children[step.path]
    last = draft.state.last_children.get(step.path)
    counted = last if last is not None and last.run_id == child else None
    for use in command.used if counted is None else budget.compute_use_to_report(command.used, counted):
        draft.emit(e.ModelUsed, path=step.path, attempt=command.attempt, use=use)
    between = _build_task_fields(draft, step, verb)
    calls = command.tool_calls - (0 if counted is None else counted.calls)
    senders = _list_new_senders(draft, command)
    draft.emit(e.CollaborationEnded, **between, run_id=child, tool_calls=max(0, calls), senders=senders)
    if given_up:
        return
    if command.status == "finished":
        resolve_call(draft, step, command.output, None)
        loop.finish(draft, step, command.output)
        return
    if command.status == "failed":
        what = "could not be started" if verb.detach else "has failed"
        message = f"The run of {reference_of(verb)} {what}: {command.error.message if command.error else 'no reason'}"
        error = msgspec.structs.replace(draft.error("run.failed", message, step.path), cause=command.error)
    elif command.reason == TIMED_OUT:
        message = f"The run of {reference_of(verb)} worked for longer than the step's timeout."
        error = draft.error("step.timeout", message, step.path, retriable=True)
    else:
        message = f"The run of {reference_of(verb)} was stopped{': ' + command.reason if command.reason else ''}."
        error = draft.error("run.stopped", message, step.path)
    fail_attempt(draft, step, error)


def _find_abandoned_child(draft: Draft, command: c.ChildEnded) -> str | None:
    """The id of the child that has ended, if its step does not wait for it any more and something is reserved for it
    still; else None."""
    state = draft.state
    child = command.run_id or derive_child_run_id(state.run_id, command.path, command.attempt)
    return child if child in state.granted and state.children.get(command.path) != child and not state.ended else None


def child_moved(draft: Draft, command: c.ChildMoved) -> None:
    """The child waits for people, signals or time, or it goes on: so does its parent, if it does nothing else."""
    step = _demand_awaited(draft, command.path, command.attempt)
    if command.working and step.path in draft.state.idle and draft.state.status == "waiting":
        draft.open_turn(c.Turn())
    draft.already = not _record_move(draft, step, command)


def _record_move(draft: Draft, step: Step, command: c.ChildMoved | c.ChildTold) -> bool:
    """Record that the child waits, or works again, what it has taken of its allowance, and who sent the events that it
    has taken; False: all that is known."""
    child = draft.state.children[step.path]
    expense, last = draft.state.expenses.get(child), draft.state.last_children.get(step.path)
    if last is not None and last.run_id == child and (last.spent or last.calls):  # it goes on behind a Retry
        rest, calls = budget.compute_use_to_report(command.used, last), max(0, command.tool_calls - last.calls)
        command = msgspec.structs.replace(command, used=tuple(rest), tool_calls=calls)
    works = step.path not in draft.state.idle
    moves = command.working is not None and command.working != works
    senders = _list_new_senders(draft, command)
    if not moves and not senders and _amount(command) <= ((0, 0) if expense is None else _amount(expense)):
        return False
    working, expenses = command.working if moves else works, {"used": command.used, "tool_calls": command.tool_calls}
    draft.emit(e.ChildMoved, path=step.path, working=working, **expenses, senders=senders)
    return True


def _list_new_senders(draft: Draft, command: c.ChildMoved | c.ChildTold | c.ChildEnded) -> tuple[str, ...]:
    return list_new_senders(draft.state.senders, command.senders)


def _amount(taken: c.ChildMoved | c.ChildTold | Expense) -> tuple[int, int]:
    return sum(use.calls for use in taken.used), taken.tool_calls


def apply_child_news(draft: Draft, command: c.ChildTold) -> None:
    """The child, or one below it, asks people something, was answered, or has written something.

    The turn for that is opened, if there is none: the author of an answer sees its consequences. But
    steps alone open none where the run is held: work that was under way when it was paused ends in the child."""
    step = _demand_awaited(draft, command.path, command.attempt)
    if draft.state.parent is not None:
        draft.posted = command.turn
    news = (*command.streamed, *command.told)
    opening = {"waiting"} if all(isinstance(each, _QUIET) for each in news) else _TURNLESS
    if command.state:
        shared_state.write_above(draft, command.state)
    over = any(not call.open for call in command.calls)
    if over:
        opening = _TURNLESS
    if (news or over) and not draft.state.turn_open and draft.state.status in opening:
        draft.open_turn(c.Turn() if command.turn is None or draft.state.parent is not None else command.turn)
    for event in news:
        path = inside(step.path, event.path)
        if isinstance(event, e.ChildStepped | e.ChildShared):
            _record_quietly(draft, event, step.path)
            continue
        if isinstance(event, e.ChildSaid):
            _record_message(draft, event, path)
            continue
        opened = msgspec.structs.replace(event.opened, path=inside(step.path, event.opened.path))
        is_relayed, child = opened.id in draft.state.relayed, draft.state.children[step.path]
        _emit(draft, event, path=step.path, run_id=child, opened=opened, known=is_relayed)
    for call in command.calls:
        _record_call(draft, call, inside(step.path, call.path))
    for message in command.growing:
        _record_growth(draft, message, inside(step.path, message.path))
    _record_move(draft, step, command)


def _record_message(draft: Draft, event: e.ChildSaid, path: str) -> None:
    """A message of a run below is over."""
    before = draft.state.messages.get(event.message_id)
    if before is None or before.open or before.content != event.content:
        _emit(draft, event, path=path)


def _record_growth(draft: Draft, message: e.ChildSaid, path: str) -> None:
    """A message of a run below has grown to this text. No turn is opened for it, and once the log is half full it is
    not recorded any more (nor are steps); the pieces that are left out come with the message's end."""
    state = draft.state
    before = state.messages.get(message.message_id)
    rest = message.content[0 if before is None else len(before.content) :]
    closed = before is not None and not before.open
    if not rest or closed or not state.turn_open or used(state, draft.log_bytes, draft.limits) >= STEPS_UNTIL:
        return
    if before is None:
        words = {name: getattr(message, name) for name in ("role", "kind", "block_id", "layout", "style")}
        draft.emit(e.MessageStarted, message_id=message.message_id, path=path, **words)
    n = 0 if before is None else before.chunks
    draft.emit(e.MessageChunk, message_id=message.message_id, n=n, content=rest)


def _record_call(draft: Draft, call: c.ShownCall, path: str) -> None:
    """A call that a run below shows has grown to this text. The rules are those of `_record_growth`."""
    state = draft.state
    before = state.tool_calls.get(call.id)
    full = used(state, draft.log_bytes, draft.limits) >= STEPS_UNTIL
    if not state.turn_open or (before is None and full) or (before is not None and not before.open):
        return
    if before is None:
        if call.predicted is not None:
            draft.emit(e.CustomEmitted, path=path, name=e.PREDICTED, value=call.predicted)
        fields = {"tool_call_id": call.id, "name": call.name, "path": path, "message_id": call.id}
        draft.emit(e.ToolCallStarted, executor="frontend", **fields)
    rest = call.args[0 if before is None else len(before.args) :]
    if rest and not (call.open and full):
        draft.emit(e.ToolCallArgsChunk, tool_call_id=call.id, content=rest)
    if not call.open:
        draft.emit(e.ToolCallEnded, tool_call_id=call.id)
        draft.emit(e.ToolCallResolved, tool_call_id=call.id, content=call.result, error=call.error)


def _record_quietly(draft: Draft, event: e.ChildStepped | e.ChildShared, step: str) -> None:
    path = inside(step, event.path) if event.path else step
    if isinstance(event, e.ChildStepped):
        _record_step(draft, event, path)
        return
    own = draft.state.state or {}  # a run's own variables hide those of the runs below it
    visible = {name: value for name, value in event.values.items() if name not in own}
    if visible and used(draft.state, draft.log_bytes, draft.limits) < STEPS_UNTIL:
        _emit(draft, event, path=path, values=visible)


def _record_step(draft: Draft, event: e.ChildStepped, path: str) -> None:
    """Record the beginning or the end of a step of a run below. An end is recorded only if the beginning was."""
    begins, state = event.status == "running", draft.state
    if begins == (path in state.below):
        return
    if not begins or used(state, draft.log_bytes, draft.limits) < STEPS_UNTIL:
        _emit(draft, event, path=path)


_TURNLESS: Final = frozenset({"waiting", "paused", "needs_attention"})


def _emit(draft: Draft, event: News, **changes: Json) -> None:
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in ("at", "turn")}
    draft.emit(type(event), **{**fields, **changes})


def start_anew(draft: Draft) -> None:
    """A fork starts children of its own, for those that it has copied are the other run's. What those had taken counts
    for the fork as well, also of a child that the other run had given up and of whose end it has not heard."""
    expenses = draft.state.expenses
    for child, expense in sorted(expenses.items()):
        for use in expense.used:
            draft.emit(e.ModelUsed, path=expense.path, attempt=expense.attempt, use=use)
        if draft.state.children.get(expense.path) != child:
            step = draft.step(expense.path)
            assert isinstance(step.verb, Run)
            between = _build_task_fields(draft, step, step.verb)
            draft.emit(e.CollaborationEnded, **between, run_id=child, tool_calls=expense.tool_calls)
    for path, child in sorted(draft.state.children.items()):
        step = draft.step(path)
        assert isinstance(step.verb, Run)
        attempt = draft.state.attempts[path]
        calls = expenses[child].tool_calls if child in expenses else 0
        draft.emit(e.CollaborationEnded, **_build_task_fields(draft, step, step.verb), run_id=child, tool_calls=calls)
        error = draft.error("run.forked", "The child is that of the run that this one was forked from.", path)
        draft.emit(e.StepRetried, path=path, attempt=attempt, error=error, lost=True)


def pass_down(draft: Draft, what: str, by: str, reason: str = "") -> None:
    """Pass a control on to the children: "pause", "resume", "stop" or "terminate".

    To be called before the parent's own end closes its steps. A stop spares those that clean up."""
    for path in sorted(draft.state.children):
        if what != "stop" or not is_in_cleanup(path):
            tell_child(draft, path, what, by, reason)


def _demand_awaited(draft: Draft, path: str, attempt: int) -> Step:
    if path not in draft.state.children or draft.state.attempts.get(path) != attempt:
        raise Rejected(409, "attempt_closed", f"step {path} does not wait for the child run of its attempt {attempt}.")
    return draft.step(path)


def _build_task_fields(draft: Draft, step: Step, verb: Run) -> dict[str, Json]:
    name = step.id if step.title is None else draft.text(step.title, step)
    task = {"id": step.path, "name": name}
    return {"path": step.path, "from_": draft.state.workflow, "to": verb.workflow, "task": task}


# --- the child's side -------------------------------------------------------------------------------------------------


def tell_parent(draft: Draft, before: RunState) -> None:
    """Send the consequences of this decision for the run's parent, if it has one. To be called when nothing follows any
    more."""
    state, parent = draft.state, draft.state.parent
    if parent is None:
        return
    place = _place(parent)
    was, works = _works(before), _works(state)
    news = _news(draft, before)
    ends = [each for each in draft.events if isinstance(each, e.MessageEnded)]
    streamed = [_build_message_news(state, each, "") for each in ends if each.message_id in before.open_messages]
    grown, calls = _list_growing(state, draft.events), _calls(state, draft.events)
    usage = _report_usage(before, state)
    last = news if state.ended and not streamed and not calls and all(isinstance(each, _QUIET) for each in news) else []
    if (news or streamed or grown or calls) and not last:
        # For its parent a run that has ended still works: the parent's reaction belongs to the same turn.
        working = True if state.ended and not was else None if state.ended or was == works else works
        turn = None if draft.posted is None else msgspec.to_builtins(draft.posted)
        body = {**place, "told": msgspec.to_builtins(news), "working": working, "turn": turn}
        if streamed:
            body["streamed"] = msgspec.to_builtins(streamed)
        if draft.posted_state:
            body["state"] = draft.posted_state
        if grown:
            body["growing"] = msgspec.to_builtins(grown)
        if calls:
            body["calls"] = msgspec.to_builtins(calls)
        draft.send(TOLD, parent.run_id, {**body, **usage})
        usage = {}
    if state.ended and not (before.ended and state.retried == before.retried):  # a child may fail again at once
        last_news = {"told": msgspec.to_builtins(last)} if last else {}
        draft.send(ENDED, parent.run_id, {**outcome_of(state), **place, **last_news})
        return
    moves = state.status != before.status and works != was and not (news or streamed or grown or calls)
    if not state.ended and (moves or usage):
        draft.send(MOVED, parent.run_id, {**place, "working": works, **usage})


def _report_usage(before: RunState, state: RunState) -> dict[str, Json]:
    """What the run has taken in all, for the run above whose limits it counts for, and the senders of its events; what
    is as it was is left out."""
    if state.ended:
        return {}
    senders = {} if state.senders == before.senders else {"senders": list(state.senders)}
    if state.allowance is None:
        return senders
    was, now = _sum_usage(before), _sum_usage(state)
    return senders if was == now else {"used": msgspec.to_builtins(now[0]), "tool_calls": now[1], **senders}


def _sum_usage(state: RunState) -> tuple[list[e.ModelUse], int]:
    """The models that the run and those below it have asked, and how many tools they have called."""
    below = [expense for _, expense in sorted(state.expenses.items())]
    used = [*budget.sum_use(state), *(use for expense in below for use in expense.used)]
    return used, state.begun_calls + sum(expense.tool_calls for expense in below)


def outcome_of(state: RunState) -> dict[str, Json]:
    """The end of a child, as its parent is told of it, but for whom it is told."""
    error = None if state.error is None else msgspec.to_builtins(state.error)
    reason = "" if state.stop_reason is None else state.stop_reason
    ended = {"status": state.status, "output": state.output, "error": error, "reason": reason, "run_id": state.run_id}
    if state.spent_on:
        ended["used"] = msgspec.to_builtins(budget.sum_use(state))
    if state.begun_calls:
        ended["tool_calls"] = state.begun_calls
    if state.senders:
        ended["senders"] = list(state.senders)
    return ended


def grown(state: RunState, events: Sequence[e.Event]) -> Message | None:
    """The notice to the run's parent of these `events`, in which the holder has written the streamed text of an
    attempt. It names the messages and the calls that grow; all others are reported when they are over."""
    if state.parent is None:
        return None
    growth = {"growing": _list_growing(state, events), "calls": [each for each in _calls(state, events) if each.open]}
    if not any(growth.values()):
        return None
    return Message(TOLD, state.parent.run_id, {**_place(state.parent), **msgspec.to_builtins(growth)})


def _place(parent: e.Parent) -> dict[str, Json]:
    return {"path": parent.path, "attempt": parent.attempt}


def _works(state: RunState) -> bool:
    """Whether the run does something. One that is held does as long as its turn is open: work under way goes on."""
    return state.status in _MOVING or (state.turn_open and not state.ended)


def _list_growing(state: RunState, events: Sequence[e.Event]) -> list[e.ChildSaid]:
    """The messages to which the events have added something, and that are still open; without their text."""
    pieces = [each for each in events if isinstance(each, e.MessageChunk) and each.message_id in state.open_messages]
    return [_build_message_news(state, each, "") for each in {each.message_id: each for each in pieces}.values()]


def _news(draft: Draft, before: RunState) -> list[News]:
    """The questions, words and steps of this decision, and those of the runs below, in order; each question once, as it
    is now. Without streamed text, which no decision knows (docs/design/store.md#decisions-and-chunks)."""
    news: dict[object, News] = {}
    growing: dict[str, list[str]] = {}
    started: set[str] = set()  # the steps that began in this decision, and can be watched
    for number, event in enumerate(draft.events):
        if isinstance(event, _OF_PENDINGS):
            news[event.id] = _build_question_news(draft.state, event.id)
        elif isinstance(event, e.ChildAsked):
            news[event.opened.id] = event
        elif isinstance(event, e.ChildSaid):
            news[event.message_id] = event
        elif isinstance(event, e.ChildStepped | e.ChildShared):
            news[number] = event
        elif isinstance(event, e.StepStarted):
            if event.path and event.verb not in SILENT_VERBS:
                started.add(event.path)
                news[number] = _build_stepping(event, "running")
        elif isinstance(event, e.StepFinished | e.StepFailed | e.StepStopped | e.StepSkipped):
            if event.path in started or _is_seen(before.steps.get(event.path)):
                started.discard(event.path)
                news[number] = _build_stepping(event, _ENDS_OF_STEPS[type(event)])
        elif isinstance(event, e.MessageStarted):
            growing[event.message_id] = []
        elif isinstance(event, e.MessageChunk) and event.message_id in growing:
            growing[event.message_id].append(event.content)
        elif isinstance(event, e.MessageEnded) and event.message_id in growing:
            news[event.message_id] = _build_message_news(draft.state, event, "".join(growing[event.message_id]))
    changes = shared_state.filter_visible_changes(draft.plan, before.state, draft.state.state or {})
    if changes:
        news["state"] = e.ChildShared(at=draft.state.at, turn=0, path="", values=changes)
    return list(news.values())


def _is_seen(step: StepState | None) -> bool:
    return step is not None and step.status in ("running", "waiting") and step.verb not in SILENT_VERBS


def _build_stepping(event: _OfStep, status: e.StatusBelow) -> e.ChildStepped:
    return e.ChildStepped(at=event.at, turn=event.turn, path=event.path, status=status)


def _calls(state: RunState, events: Sequence[e.Event]) -> list[c.ShownCall]:
    """The calls of frontend tools that the events have added to, if they wait for no answer; without their text. Calls
    that wait for an answer are questions."""
    ids = dict.fromkeys(each.tool_call_id for each in events if isinstance(each, _OF_CALLS))
    calls = [state.tool_calls[id] for id in ids if id not in state.pendings and id not in state.relayed]
    return [
        c.ShownCall(each.id, each.name, each.path, open=each.open, predicted=state.predicted.get(each.path))
        for each in calls
        if each.executor == "frontend"
    ]


_OF_CALLS: Final = (e.ToolCallStarted, e.ToolCallArgsChunk, e.ToolCallEnded, e.ToolCallResolved)
_OfStep: TypeAlias = e.StepStarted | e.StepFinished | e.StepFailed | e.StepStopped | e.StepSkipped
_ENDS_OF_STEPS: Final[dict[type[e.Event], e.StatusBelow]] = {
    e.StepFinished: "finished",
    e.StepFailed: "failed",
    e.StepStopped: "stopped",
    e.StepSkipped: "skipped",
}
_OF_PENDINGS: Final = (
    e.PendingOpened,
    e.VoteCast,
    e.PendingEdited,
    e.PendingEscalated,
    e.PeoplePicked,
    e.PendingRestamped,
    e.PendingDecided,
    e.PendingVoided,
)


def _build_question_news(state: RunState, id: str) -> e.ChildAsked:
    pending = state.pendings[id]
    return e.ChildAsked(
        at=state.at,
        turn=pending.opened.turn,
        path=pending.opened.path,
        run_id=state.run_id,
        opened=pending.opened,
        status=pending.status,
        by=pending.by,
        value=pending.value,
        reason=pending.reason,
        edits=pending.edits,
        votes=pending.votes,
    )


def _build_message_news(state: RunState, event: e.MessageEnded | e.MessageChunk, content: str) -> e.ChildSaid:
    message = state.messages[event.message_id]
    return e.ChildSaid(
        at=event.at,
        turn=event.turn,
        path=message.path or "",
        message_id=message.id,
        content=content,
        kind=message.kind,
        role=message.role,
        aborted=message.aborted,
        block_id=message.block_id,
        layout=message.layout,
        style=message.style,
    )
