"""The consequences of a command: the whole policy of a run, as a pure function.

    decide(plan, state, command, now) -> Decision      or raises Rejected: nothing happened

How it works. Every consequence that does not *start* anything is drawn at once: the end of a step ends its list, which
ends its parent, and so on up to the document. Steps that may start next are only noted, in `ready`; `_advance` takes it
up while the run is running and the decision is within its bounds (docs/design/engine.md#bounds). So a pause, a bound
and a crash all look the same: something is ready and somebody has to go on.

Time comes before commands. Whatever is due by itself at `now` is decided first, as of the instant at which it was due:
so it makes no difference how late a timer fires, or whether it does. An end of this kind was in time; a step that
begins because of it begins now, for it could not be seen before (docs/decisions/0018).

`now` is in milliseconds since 1970, a lower bound of the database's clock. Never read streamed text here
(docs/design/store.md#decisions-and-chunks).

In this room: one function per command, going on, and time. Not here: how a step begins (`starting_steps`), how things
end (`endings`), people (`pendings`), where a failed run goes on (`retry`), and the decision in the making (`draft`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hai_flow.definition.paths import in_cleanup, list_of, loop_of
from hai_flow.definition.plan import AgentTurn, Llm, Plan, Step, callback_of
from hai_flow.engine import (
    answers,
    bounds,
    budget,
    children,
    endings,
    forking,
    migration,
    pendings,
    retry,
    shared,
    signals,
    skipping,
    slots,
    starting_steps,
    stopping,
)
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.agents import asked_by
from hai_flow.engine.attempts import attempt_failed
from hai_flow.engine.calls import close_message, end_written, resolve_call, show_part
from hai_flow.engine.cutting import cut_everything
from hai_flow.engine.draft import DEFAULT_BOUNDS, RUN_END, Bounds, Decision, Draft, Raised
from hai_flow.engine.jobs import Due, is_due, is_working, next_due, next_ready, next_timer, performed
from hai_flow.engine.open_steps import is_left_to_the_stop, is_open_inside, open_leaves
from hai_flow.engine.retry_policy import LOST_IN_A_ROW_MAX, RETRIABLE
from hai_flow.engine.starting import begin_run
from hai_flow.engine.state import Ending, PendingState, RunState, Timer
from hai_flow.errors import Rejected
from hai_flow.values import Json

__all__ = ["DEFAULT_BOUNDS", "Bounds", "Decision", "as_of", "decide"]


def decide(
    plan: Plan, state: RunState, command: c.Command, now: int, limits: Bounds = DEFAULT_BOUNDS, log_bytes: int = 0
) -> Decision:
    """The consequences of `command` for a run in `state`, whose log has `log_bytes`. Raises `Rejected` if it is
    refused."""
    if state.status == "new" and type(command) not in (c.Start, c.Fork):
        raise Rejected(404, "run_unknown", f"there is no run {state.run_id}.")
    draft = Draft(plan, state, max(now, state.at), limits, log_bytes)
    undecided = not _pass_time_before(draft, command) and not isinstance(command, _FOR_TIME)
    passed = len(draft.events)
    outcome = None if undecided else _RULES[type(command)](draft, command)
    if not undecided and (draft.already or len(draft.events) == passed) and not isinstance(command, _FOR_TIME):
        return Decision((), state, outcome, already=True)  # what was due comes with its timer
    children.tell_parent(draft, state)
    slots.tell_freed(draft, state)
    decision = draft.decision(outcome)
    return msgspec.structs.replace(decision, undecided=True) if undecided else decision


def as_of(plan: Plan, state: RunState, now: int, limits: Bounds = DEFAULT_BOUNDS) -> RunState:
    """The run as whatever is decided at `now` finds it, with all that is due by itself. For readers of open questions:
    an answer is late even where no timer has fired yet. Nothing of it is committed, so show no more of it than that.
    """
    done = False
    while not done:
        draft = Draft(plan, state, max(now, state.at), limits)
        done = _pass_time(draft, draft.clock, attempts=False)
        done, state = done or draft.state is state, draft.state
    return state


# --- commands ---------------------------------------------------------------------------------------------------------


def _start(draft: Draft, command: c.Start) -> Json:
    if draft.state.status != "new":
        draft.already = True
        return _run_outcome(draft)
    begin_run(draft, command)
    if draft.plan.limits.duration is not None:
        draft.emit(e.TimerSet, path="", kind="limit", due=draft.now + draft.plan.limits.duration)
    draft.open_turn(command.turn)
    if command.messages:
        draft.emit(e.MessagesChanged, messages=command.messages)
    if command.queued:
        slots.queue(draft, cancels=command.cancels)
    _go_on(draft)
    return _run_outcome(draft)


def _fork(draft: Draft, command: c.Fork) -> Json:
    if draft.state.status != "new":
        draft.already = True
        return _run_outcome(draft)
    forking.take_over(draft, command)
    answer = forking.answer_of(command)
    readings = pendings.readings(draft, answer)
    forking.make_own(draft)
    shared.write(draft, answer.state)  # who forks a run is the fork's requester
    draft.open_turn(answer.turn)
    _take(draft, answer, readings)
    return _run_outcome(draft)


def _admit(draft: Draft, command: c.Admit) -> Json:
    if draft.state.slot is None and not draft.state.ended:
        draft.already = True
        return _run_outcome(draft)
    if draft.state.status != "queued":
        raise _not_now(draft, "admit")
    draft.open_turn(c.Turn())
    _go_on(draft)
    return _run_outcome(draft)


def _step_succeeded(draft: Draft, command: c.StepSucceeded) -> Json:
    step = _outcome_of(draft, command.path, command.attempt)
    _note_models(draft, command)
    close_message(draft, step.path)
    if draft.state.open_calls and isinstance(step.verb, AgentTurn):
        goes_on = draft.state.status == "running" and not is_left_to_the_stop(draft, step.path)
        end_written(draft, step.path, asked_by(draft.state, step.path, command.output) if goes_on else None)
    if command.parts:
        _note_parts(draft, step, command)
    callback = callback_of(step.verb)
    if callback is not None and not is_left_to_the_stop(draft, step.path):
        signals.await_callback(draft, step, callback, command.output)
    else:
        resolve_call(draft, step, command.output, None)
        endings.finish(draft, step, command.output)
    _go_on(draft)
    return None


def _note_parts(draft: Draft, step: Step, command: c.StepSucceeded) -> None:
    """The answer of a model holds files. They are shown where its text is."""
    agent = loop_of(list_of(step.path)) if isinstance(step.verb, AgentTurn) else None
    draft.emit(e.PartsMade, path=step.path, attempt=command.attempt, parts=command.parts, agent=agent)
    if isinstance(step.verb, AgentTurn | Llm) and step.verb.stream == "text":
        for part in command.parts:
            show_part(draft, step, command.attempt, part)


def _note_models(draft: Draft, command: c.StepSucceeded | c.StepFailed | c.StepAsks) -> None:
    for use in command.used:
        draft.emit(e.ModelUsed, path=command.path, attempt=command.attempt, use=use)


def _step_failed(draft: Draft, command: c.StepFailed) -> Json:
    step = _outcome_of(draft, command.path, command.attempt)
    retriable = command.code in RETRIABLE if command.retriable is None else command.retriable
    error = draft.error(command.code, command.message, step.path, command.data, retriable=retriable)
    _note_models(draft, command)
    bounds.keep_trace(draft, step, command.trace)
    if step.path in draft.state.attempts:
        attempt_failed(draft, step, error, command.retry_after)
    else:  # it was in doubt, and is never tried again by itself
        resolve_call(draft, step, None, error)
        endings.fail(draft, step, error)
    _go_on(draft)
    return None


def _step_asks(draft: Draft, command: c.StepAsks) -> Json:
    if draft.state.attempts.get(command.path) != command.attempt:
        raise _attempt_closed(command.path, command.attempt)
    step = draft.step(command.path)
    _note_models(draft, command)
    if draft.state.status == "stopping" and not in_cleanup(step.path):
        close_message(draft, step.path, aborted=True)
        stopping.stop_leaf(draft, step, "it asks a person")
    elif in_cleanup(step.path):
        message = f"Its tool asks a person, and what cleans up waits for nobody: {command.message}"
        attempt_failed(draft, step, draft.error("tool.failed", message, step.path))
    else:
        _ask_for_tool(draft, step, command)
    _go_on(draft)
    return None


def _ask_for_tool(draft: Draft, step: Step, command: c.StepAsks) -> None:
    try:
        bounds.demand_wait(draft, step)
    except Raised as raised:
        attempt_failed(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))
        return
    close_message(draft, step.path)
    pendings.open_inquiry(draft, step, command)


_GONE: Final = "The process that performed the step is gone."


def _step_lost(draft: Draft, command: c.StepLost) -> Json:
    if pendings.doubt_of(draft.state, command.path, command.attempt) is not None:  # people are asked already
        draft.already = True
        return None
    step = _attempt(draft, command.path, command.attempt)
    budget.charge(draft, step)
    close_message(draft, step.path, aborted=True)
    alone = len(performed(draft.state)) == 1
    draft.cut = True
    in_stop = draft.state.status == "stopping"
    if in_stop and not in_cleanup(step.path):
        stopping.stop_leaf(draft, step, "lost")
    elif step.delivery != "at_least_once" and not in_cleanup(step.path):
        pendings.open_doubt(draft, step, command.reason)
    elif step.delivery != "at_least_once":  # what cleans up waits for nobody
        message = command.reason or "The process that performed the step is gone, and nobody knows whether it happened."
        attempt_failed(draft, step, draft.error("step.in_doubt", message, step.path))
    else:
        error = draft.error("step.lost", command.reason or _GONE, step.path, retriable=True)
        draft.emit(e.StepRetried, path=step.path, attempt=command.attempt, error=error, lost=True)
        lost = draft.state.steps[step.path].lost
        if lost >= LOST_IN_A_ROW_MAX and in_stop:
            endings.fail(draft, step, error)
        elif lost >= LOST_IN_A_ROW_MAX and alone and draft.state.status in ("running", "paused"):
            reason = f"{lost} attempts in a row were lost with their process; retry, stop or terminate the run."
            draft.emit(e.RunNeedsAttention, path=step.path, reason=reason)
    _go_on(draft)
    return None


def _answer(draft: Draft, command: c.Answer) -> Json:
    readings = pendings.readings(draft, command)
    if all(known for _, _, known in readings):
        draft.already = True
        results = [pendings.answered(pending, reading, "already", pending.by) for pending, reading, _ in readings]
        return {"answers": results, "turn": draft.state.turn.n if draft.state.turn else None}
    draft.posted = command.turn
    if shared.may_write(draft.state, command.by):
        draft.posted_state = command.state
        shared.write(draft, command.state)
    if not draft.state.turn_open:
        draft.open_turn(command.turn if draft.state.parent is None else c.Turn())
    results = _take(draft, command, readings)
    return {"answers": results, "turn": draft.state.turn.n if draft.state.turn else None}


def _take(
    draft: Draft, command: c.Answer, readings: list[tuple[PendingState, answers.Reading, bool]]
) -> list[dict[str, Json]]:
    """Decide the answers, in the turn that is open. Returns the outcome of each answer."""
    if command.messages:
        draft.emit(e.MessagesChanged, messages=command.messages)
        draft.emit(
            e.WarningRaised,
            code="message_with_answer",
            message="A message that comes with an answer is kept in the thread, but starts no run.",
        )
    results = []
    for pending, reading, known in readings:
        if known:
            results.append(pendings.answered(pending, reading, "already", pending.by))
        elif draft.state.pendings[pending.opened.id].status == "open":
            pendings.decide_pending(draft, pending, reading, command.by, command.via)
            results.append(pendings.answered(pending, reading, "accepted", command.by.id))
        else:  # an answer before it in this very command decided a race, or failed a sibling
            results.append(pendings.answered(pending, reading, "voided", None))
    _go_on(draft)
    return results


def _signal(draft: Draft, command: c.Signal) -> Json:
    _demand_active(draft)
    outcome = signals.arrived(draft, command)
    _go_on(draft)
    return outcome


def _child_moved(draft: Draft, command: c.ChildMoved) -> Json:
    children.moved(draft, command)
    _go_on(draft)
    return None


def _child_told(draft: Draft, command: c.ChildTold) -> Json:
    children.told(draft, command)
    _go_on(draft)
    return None


def _child_ended(draft: Draft, command: c.ChildEnded) -> Json:
    children.ended(draft, command)
    _go_on(draft)
    return None


def _timer_fired(draft: Draft, command: c.TimerFired) -> Json:
    if not draft.events:  # what was due has happened before any command
        raise Rejected(409, "timer_early", "no timer of this run is due yet.")
    return None


def _continue(draft: Draft, command: c.Continue) -> Json:
    goes_on = draft.state.status in ("running", "stopping") and bool(draft.state.ready)
    if goes_on or bounds.is_due(draft.state, draft.log_bytes, draft.limits):
        _go_on(draft)
    else:
        draft.already = not draft.events
    return None


def _need_attention(draft: Draft, command: c.NeedAttention) -> Json:
    if draft.state.status == "stopping":  # a stop always ends: what can't be stored is cut off
        cut_everything(draft, command.reason)
        stopping.end_stop(draft)
        return None
    if draft.state.status not in ("running", "waiting", "paused"):
        draft.already = True
        return None
    draft.emit(e.RunNeedsAttention, path="", reason=command.reason)
    _go_on(draft)
    return None


def _pause(draft: Draft, command: c.Pause) -> Json:
    status = draft.state.status
    if status == "paused":
        draft.already = True
        return _run_outcome(draft)
    if status not in ("queued", "running", "waiting"):
        raise _not_now(draft, "pause")
    draft.emit(e.RunPaused, by=command.by, reason=command.reason)
    children.pass_down(draft, "pause", command.by, command.reason)
    _go_on(draft)
    return _run_outcome(draft)


def _resume(draft: Draft, command: c.Resume) -> Json:
    if draft.state.status != "paused":
        if draft.state.status not in ("queued", "running", "waiting"):
            raise _not_now(draft, "resume")
        draft.already = True
        return _run_outcome(draft)
    status = "running" if draft.state.turn_open else "queued" if draft.state.slot else "waiting"
    draft.emit(e.RunResumed, by=command.by, status=status)
    if status == "queued":
        slots.wait(draft)
    children.pass_down(draft, "resume", command.by)
    if status != "queued":
        _pass_time(draft, draft.clock, since=draft.clock)
        _go_on(draft)
    return _run_outcome(draft)


def _stop(draft: Draft, command: c.Stop) -> Json:
    if draft.state.status in ("stopping", "stopped"):
        draft.already = True
        return _run_outcome(draft)
    _demand_active(draft)
    in_flight = len(draft.state.attempts)
    draft.emit(e.RunStopping, by=command.by, reason=command.reason, in_flight=in_flight, inherited=command.inherited)
    children.pass_down(draft, "stop", command.by, command.reason)
    stopping.begin_stop(draft, "the run is being stopped")
    if in_flight:
        draft.emit(e.TimerSet, path="", kind="grace", due=draft.clock + draft.limits.stop_grace)
    _go_on(draft)
    return {**_run_outcome(draft), "in_flight": in_flight}


def _terminate(draft: Draft, command: c.Terminate) -> Json:
    if draft.state.status == "stopped":
        draft.already = True
        return _run_outcome(draft)
    _demand_active(draft)
    in_flight = len(draft.state.attempts)
    children.pass_down(draft, "terminate", command.by, command.reason)
    cut_everything(draft, "the run was terminated")
    draft.end_turn("stopped")
    draft.emit(e.RunStopped, by=command.by, reason=command.reason, terminated=True)
    return {**_run_outcome(draft), "in_flight": in_flight}


def _retry(draft: Draft, command: c.Retry) -> Json:
    status = draft.state.status
    if status not in ("failed", "needs_attention"):
        if status in ("queued", "running", "waiting", "paused"):
            draft.already = True
            return _run_outcome(draft)
        raise _not_now(draft, "retry")
    _reopen(draft, command.by)
    return _on_again(draft, was=status)


def _reopen(draft: Draft, by: str) -> None:
    """A run that failed, or needs attention, goes on from there. Raises `Rejected` 409 where its log is full."""
    status = draft.state.status
    redo: tuple[str, ...] = ()
    if status == "failed" and bounds.used(draft.state, draft.log_bytes, draft.limits) >= 1:
        detail = "the run's log is full; it can't go on. Start another run."
        raise Rejected(409, "run_full", detail, winner={"status": status, "seq": draft.state.seq})
    if status == "failed":
        redo = retry.to_redo(draft.plan, draft.state)
        frontier = retry.resumed(draft, redo)
    else:
        lost, ready = draft.state.steps, draft.state.ready
        running = [path for path in ready if path in lost and lost[path].status == "running"]
        frontier = retry.Frontier(running, list(ready))
    draft.emit(e.RunRetried, by=by, redo=redo, **frontier.fields())


def _on_again(draft: Draft, *, was: str) -> Json:
    """A run that was reopened goes on, as soon as there is a slot for it: its end has freed the one that it had."""
    if was == "failed" and draft.state.key is not None:
        slots.queue(draft)
        return _run_outcome(draft)
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    _pass_time(draft, draft.clock, since=draft.clock)
    _go_on(draft)
    return _run_outcome(draft)


def _skip(draft: Draft, command: c.Skip) -> Json:
    status = draft.state.status
    if status not in ("running", "waiting", "paused", "failed", "needs_attention"):
        raise _not_now(draft, "skip a step of")
    if status in ("failed", "needs_attention"):
        _reopen(draft, command.by)
    step = skipping.examine(draft, command)
    if not draft.state.turn_open:
        draft.open_turn(c.Turn())
    skipping.skip(draft, step, command)
    if status in ("failed", "needs_attention"):
        return {**_on_again(draft, was=status), "path": step.path}
    _go_on(draft)
    return {**_run_outcome(draft), "path": step.path}


def _jump(draft: Draft, command: c.Jump) -> Json:
    """Time goes on to the next thing that is due, and to the one after it, until `ms` have passed: so the clock of a
    step that begins on the way begins on the way. It goes no further where the run works, or wants something of others:
    that takes real time. Returns how much has `passed` and is `left` (docs/decisions/0033)."""
    if draft.state.status not in _ON_A_CLOCK:
        raise _not_now(draft, "let time pass for")
    left, begun, sent = command.ms, dict(performed(draft.state)), len(draft.outbox)
    while left and draft.state.status in _ON_A_CLOCK and draft.within_bounds():
        timer = next_timer(draft.state)
        step = left if timer is None else min(left, timer.due - draft.clock)
        assert step > 0, "what is due has happened before any command"
        draft.emit(e.TimeJumped, by=command.by, ms=step)
        left -= step
        _pass_time(draft, draft.clock, attempts=False)
        working = any(begun.get(path) != attempt for path, attempt in performed(draft.state).items())
        if working or len(draft.outbox) > sent:
            break
    return {**_run_outcome(draft), "passed": command.ms - left, "left": left}


_ON_A_CLOCK: Final = ("running", "waiting", "paused")


def _migrate(draft: Draft, command: c.Migrate) -> Json:
    plan, state = command.to, draft.state
    if state.sha256 == plan.sha256.hex():
        draft.already = True
        return _run_outcome(draft)
    migration.move(draft, draft.plan, to=plan, by=command.by, paths=command.paths, dev=command.dev, pins=command.pins)
    for pending in migration.bound_pendings(draft.state):
        pendings.restamp(draft, pending)
    return _run_outcome(draft)


# --- refusals ---------------------------------------------------------------------------------------------------------


def _run_outcome(draft: Draft) -> dict[str, Json]:
    return {"id": draft.state.run_id, "status": draft.state.status}


def _not_now(draft: Draft, what: str) -> Rejected:
    status = draft.state.status
    code = "run_ended" if draft.state.ended else "run_" + status
    return Rejected(
        409, code, f"can't {what} a run that is {status}.", winner={"status": status, "seq": draft.state.seq}
    )


def _demand_active(draft: Draft) -> None:
    if draft.state.ended:
        raise _not_now(draft, "change")


def _outcome_of(draft: Draft, path: str, attempt: int) -> Step:
    """As `_attempt`; but the outcome of an effect that may happen at most once is taken as long as people are asked
    what became of it."""
    if draft.state.attempts.get(path) == attempt:  # nobody is asked about an attempt that is open
        return draft.step(path)
    doubt = pendings.doubt_of(draft.state, path, attempt)
    if doubt is None:
        return _attempt(draft, path, attempt)
    pendings.settle_doubt(draft, doubt)
    return draft.step(path)


def _attempt(draft: Draft, path: str, attempt: int) -> Step:
    """The step whose open attempt this is, or was, if its outcome is in doubt. A result of any other attempt
    is refused (docs/design/store.md#lost-attempts)."""
    doubt = pendings.doubt_of(draft.state, path, attempt)
    if doubt is not None:
        pendings.settle_doubt(draft, doubt)
    elif draft.state.attempts.get(path) != attempt:
        raise _attempt_closed(path, attempt)
    return draft.step(path)


def _attempt_closed(path: str, attempt: int) -> Rejected:
    message = f"attempt {attempt} of step {path} is not open; its result is not recorded."
    return Rejected(409, "attempt_closed", message)


# --- going on ---------------------------------------------------------------------------------------------------------


def _go_on(draft: Draft) -> None:
    """Draw every consequence that may be drawn now: start the ready, end the finished."""
    _take_up(draft)
    if draft.state.status != "stopping":
        _suspend(draft)


def _take_up(draft: Draft) -> None:
    """The same, but the turn stays open."""
    bounds.keep(draft)
    if draft.state.status == "stopping":
        _stop_on(draft)
    elif draft.state.status in ("running", "waiting") and draft.state.ready:
        if not draft.state.turn_open:
            draft.open_turn(c.Turn())
        _advance(draft)


def _advance(draft: Draft) -> None:
    while draft.state.status == "running" and draft.within_bounds():
        path = next_ready(draft.state)
        if path is None:
            return
        if path == RUN_END:
            endings.conclude(draft)
        else:
            starting_steps.begin(draft, draft.step(path))


def _stop_on(draft: Draft) -> None:
    """Effects in flight end first; then finished steps are undone, then every begun `finally` runs."""
    while draft.state.status == "stopping":
        path = next_ready(draft.state)
        if path is not None:
            if not draft.within_bounds():
                return
            if not draft.state.turn_open:
                draft.open_turn(c.Turn())
            starting_steps.begin(draft, draft.step(path))
        elif is_open_inside(draft, ""):
            return
        else:
            stopping.stop_on(draft)


def _suspend(draft: Draft) -> None:
    """End the turn if nothing but people, or a distant timer, can move the run."""
    state = draft.state
    if not state.turn_open or is_working(state):
        return
    if state.status == "running" and not state.ready:
        near = draft.now + draft.limits.turn_linger
        if not any(t.due <= near and t.kind in ("wait", "retry") for t in state.timers):
            draft.end_turn("waiting")
    elif state.status == "paused":
        draft.end_turn("paused")
    elif state.status == "needs_attention":
        draft.end_turn("needs_attention")


# --- time -------------------------------------------------------------------------------------------------------------


def _pass_time_before(draft: Draft, command: c.Command) -> bool:
    """Let time pass up to the command. Returns whether it can be decided now: not if the bounds were reached before."""
    if isinstance(command, _OUTCOMES):  # most commands are
        until = draft.clock if command.ended_at is None else min(draft.clock, command.ended_at)
        return _pass_time(draft, until)
    if isinstance(command, c.NeedAttention):
        return True  # what can't be stored may be what is due: who sees to that must not be kept from it by that
    if draft.state.status == "needs_attention" and isinstance(command, _ENDINGS):
        return True
    until = min(draft.clock, command.sent_at) if isinstance(command, c.Signal) else draft.clock
    return _pass_time(draft, until, attempts=isinstance(command, c.TimerFired))


def _pass_time(draft: Draft, until: int, *, since: int = 0, attempts: bool = True) -> bool:
    """Let everything happen that is due by `until`, in the order in which it is due, each as of its instant, but none
    before `since`. Steps that may begin because of one have begun before the next. Returns whether all of it has
    happened: not if the bounds are reached before.

    `attempts`: their time-outs, too. Those are for the performer of the run: if that process is gone, they are lost,
    not late.
    """
    passed = False
    while is_due(draft.state, until, attempts=attempts):
        _take_up(draft)
        due = next_due(draft.state, attempts=attempts)
        if due is None or due.at > until:
            break
        if passed and not draft.within_bounds():
            _go_on(draft)
            return False
        passed = True
        draft.now = max(due.at, since)
        _happen(draft, due)
        draft.now = draft.clock
    if draft.events:
        _go_on(draft)
    return not draft.events or draft.within_bounds()


def _happen(draft: Draft, due: Due) -> None:
    if not draft.state.turn_open and draft.state.status in ("waiting", "paused", "needs_attention"):
        draft.open_turn(c.Turn())
    if due.timer is None:
        _too_late(draft, due.path)
    else:
        draft.emit(e.TimerFired, path=due.path, kind=due.timer.kind)
        _fire(draft, due.timer)


def _fire(draft: Draft, timer: Timer) -> None:
    step = draft.step(timer.path)
    match timer.kind:
        case "wait":
            endings.finish(draft, step, None)
        case "deadline" | "halting_deadline" if timer.path in draft.state.subscriptions:
            signals.deadline_passed(draft, step)
        case "deadline" | "halting_deadline":
            pendings.deadline_passed(draft, step)
        case "remind":
            pendings.remind(draft, step)
        case "grace":
            stopping.cut_attempts(draft, "the grace period of the stop is over")
        case "limit":
            _run_too_long(draft)
        case "retry":
            pass  # the fold has made the step ready


def _run_too_long(draft: Draft) -> None:
    """Every step that is open, and every one that would begin, fails with the limit, unless it cleans up."""
    limit = draft.plan.limits.duration
    message = f"The run has taken longer than its limit of {limit} ms."
    for path in open_leaves(draft):
        if in_cleanup(path) or path not in open_leaves(draft):
            continue
        step = draft.step(path)
        error = draft.error("limit.duration", message, path)
        endings.end(draft, step, Ending("failed", error=error, reason=message))


def _too_late(draft: Draft, path: str) -> None:
    """The step has worked for as long as it may."""
    if path == "":  # a child run that has no time left
        _stop(draft, children.time_out())
        return
    step = draft.step(path)
    error = draft.error("step.timeout", "The step took longer than its timeout.", path, retriable=True)
    if path in draft.state.attempts:
        draft.cut = True
        budget.charge(draft, step)
        attempt_failed(draft, step, error)
    else:
        endings.end(draft, step, Ending("failed", error=error, reason="its block took too long"))


_FOR_TIME: Final = (c.TimerFired, c.Continue)
"""Commands that ask for nothing but the passing of time."""
_OUTCOMES: Final = (c.StepSucceeded, c.StepFailed)
"""Commands of the process that performs the run's attempts, as a timer is: only it knows that those are late, and not
lost."""
_ENDINGS: Final = (c.Stop, c.Terminate)

_RULES: Final[dict[type[c.Command], Callable[[Draft, Any], Json]]] = {
    c.Start: _start,
    c.Fork: _fork,
    c.Admit: _admit,
    c.StepSucceeded: _step_succeeded,
    c.StepFailed: _step_failed,
    c.StepLost: _step_lost,
    c.StepAsks: _step_asks,
    c.Answer: _answer,
    c.Signal: _signal,
    c.ChildMoved: _child_moved,
    c.ChildTold: _child_told,
    c.ChildEnded: _child_ended,
    c.TimerFired: _timer_fired,
    c.Continue: _continue,
    c.NeedAttention: _need_attention,
    c.Pause: _pause,
    c.Resume: _resume,
    c.Stop: _stop,
    c.Terminate: _terminate,
    c.Retry: _retry,
    c.Skip: _skip,
    c.Jump: _jump,
    c.Migrate: _migrate,
}
