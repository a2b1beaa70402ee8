"""An attempt is over: it succeeded, failed, asks a person, or is lost with its process."""

from __future__ import annotations

from typing import Final

from hai_flow.definition.paths import is_in_cleanup, list_of, loop_of
from hai_flow.definition.plan import AgentTurn, Llm, Run, Step, callback_of
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.advance import go_on
from hai_flow.engine.completion import loop, stopping
from hai_flow.engine.completion.open_steps import is_left_to_the_stop
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.handlers.attempts import fail_attempt
from hai_flow.engine.pendings import tool_questions, unknown_outcome
from hai_flow.engine.runs import children
from hai_flow.engine.state import budget, run_size
from hai_flow.engine.state.jobs import open_attempts
from hai_flow.engine.state.retry_policy import LOST_IN_A_ROW_MAX, RETRIABLE
from hai_flow.engine.steps import still, wait_for_event
from hai_flow.engine.steps.agents import map_calls_requested
from hai_flow.engine.steps.tool_calls import close_message, end_written, resolve_call, show_part
from hai_flow.errors import Rejected
from hai_flow.values import Json


def _handle_step_succeeded(draft: Draft, command: c.StepSucceeded) -> Json:
    step = _accept_outcome(draft, command.path, command.attempt)
    if command.used or command.parts or draft.state.open_messages or not step.is_bare:
        _record_answer(draft, step, command)
    callback = None if step.is_bare else callback_of(step.verb)
    if callback is not None and not is_left_to_the_stop(draft, step.path):
        wait_for_event.await_callback(draft, step, callback, command.output)
    else:
        resolve_call(draft, step, command.output, None)
        loop.finish(draft, step, command.output, notes=command.notes)
    go_on(draft)
    return None


def _record_answer(draft: Draft, step: Step, command: c.StepSucceeded) -> None:
    """What an attempt has brought beside its output: the models that it has used, the text that it has streamed, the
    calls that it has written, and its files."""
    _record_models(draft, command)
    close_message(draft, step.path)
    if draft.state.open_calls and isinstance(step.verb, AgentTurn):
        goes_on = draft.state.status == "running" and not is_left_to_the_stop(draft, step.path)
        end_written(draft, step.path, map_calls_requested(draft.state, step.path, command.output) if goes_on else None)
    if command.parts:
        _record_parts(draft, step, command)


def _record_parts(draft: Draft, step: Step, command: c.StepSucceeded) -> None:
    """The answer of a model holds files. They are shown where its text is."""
    agent = loop_of(list_of(step.path)) if isinstance(step.verb, AgentTurn) else None
    draft.emit(e.PartsMade, path=step.path, attempt=command.attempt, parts=command.parts, agent=agent)
    if isinstance(step.verb, AgentTurn | Llm) and step.verb.stream == "text":
        for part in command.parts:
            show_part(draft, step, command.attempt, part)


def _record_models(draft: Draft, command: c.StepSucceeded | c.StepFailed | c.StepAsks) -> None:
    for use in command.used:
        draft.emit(e.ModelUsed, path=command.path, attempt=command.attempt, use=use)


def _step_failed(draft: Draft, command: c.StepFailed) -> Json:
    step = _accept_outcome(draft, command.path, command.attempt)
    retriable = command.code in RETRIABLE if command.retriable is None else command.retriable
    error = draft.error(command.code, command.message, step.path, command.data, retriable=retriable)
    _record_models(draft, command)
    run_size.keep_trace(draft, step, command.trace)
    if step.path in draft.state.attempts:
        fail_attempt(draft, step, error, command.retry_after)
    else:  # it was in doubt, and is never tried again by itself
        resolve_call(draft, step, None, error)
        loop.fail(draft, step, error)
    go_on(draft)
    return None


def _handle_step_asks(draft: Draft, command: c.StepAsks) -> Json:
    if draft.state.attempts.get(command.path) != command.attempt:
        raise _reject_closed_attempt(command.path, command.attempt)
    step = draft.step(command.path)
    _record_models(draft, command)
    if draft.state.status == "stopping" and not is_in_cleanup(step.path):
        close_message(draft, step.path, aborted=True)
        stopping.stop_leaf(draft, step, "it asks a person")
    elif is_in_cleanup(step.path):
        message = f"Its tool asks a person, and what cleans up waits for nobody: {command.message}"
        fail_attempt(draft, step, draft.error("tool.failed", message, step.path))
    else:
        _ask_for_tool(draft, step, command)
    go_on(draft)
    return None


def _handle_gate_checked(draft: Draft, command: c.GateChecked) -> Json:
    if draft.state.attempts.get(command.path) != command.attempt:
        raise _reject_closed_attempt(command.path, command.attempt)
    step = draft.step(command.path)
    if draft.state.status == "stopping" and not is_in_cleanup(step.path):
        close_message(draft, step.path, aborted=True)
        stopping.stop_leaf(draft, step, "it asks a person")
    elif isinstance(step.verb, Run) and command.why is None and not draft.state.steps[step.path].reading:
        _start_child(draft, step, step.verb)
    else:
        still.take_check(draft, step, command)
    go_on(draft)
    return None


def _start_child(draft: Draft, step: Step, verb: Run) -> None:
    """The approval of a child run still counts."""
    args = draft.state.steps[step.path].args
    assert args is not None, f"{step.path} is no effect"
    try:
        children.start(draft, step, verb, args)
    except Raised as raised:
        loop.fail(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))


def _ask_for_tool(draft: Draft, step: Step, command: c.StepAsks) -> None:
    try:
        run_size.demand_wait(draft, step)
    except Raised as raised:
        fail_attempt(draft, step, draft.error(raised.code, raised.message, step.path, raised.data))
        return
    close_message(draft, step.path)
    tool_questions.open_inquiry(draft, step, command)


_GONE: Final = "The process that performed the step is gone."
_HELD: Final = "A freeze held the attempt before it had begun."


def _handle_step_lost(draft: Draft, command: c.StepLost) -> Json:
    if unknown_outcome.find_doubt(draft.state, command.path, command.attempt) is not None:  # people are asked already
        draft.already = True
        return None
    step = _attempt(draft, command.path, command.attempt)
    if command.held:
        return _give_attempt_back(draft, step, command)
    budget.charge(draft, step)
    close_message(draft, step.path, aborted=True)
    alone = len(open_attempts(draft.state)) == 1
    is_repeated = draft.state.steps[step.path].reading or _is_repeated(step, command)
    draft.cut = True
    in_stop = draft.state.status == "stopping"
    if in_stop and not is_in_cleanup(step.path):
        stopping.stop_leaf(draft, step, "lost")
    elif not is_repeated and not is_in_cleanup(step.path):
        unknown_outcome.open_doubt(draft, step, command.reason)
    elif not is_repeated:  # a step that cleans up does not wait for people
        message = command.reason or "The process that performed the step is gone, and nobody knows whether it happened."
        fail_attempt(draft, step, draft.error("step.in_doubt", message, step.path))
    else:
        error = draft.error("step.lost", command.reason or _GONE, step.path, retriable=True)
        draft.emit(e.StepRetried, path=step.path, attempt=command.attempt, error=error, lost=True)
        lost = draft.state.steps[step.path].lost
        if lost >= LOST_IN_A_ROW_MAX and in_stop:
            loop.fail(draft, step, error)
        elif lost >= LOST_IN_A_ROW_MAX and alone and draft.state.status in ("running", "paused"):
            reason = f"{lost} attempts in a row were lost with their process; retry, stop or terminate the run."
            draft.emit(e.RunNeedsAttention, path=step.path, reason=reason)
    go_on(draft)
    return None


def _give_attempt_back(draft: Draft, step: Step, command: c.StepLost) -> Json:
    """Nothing of the attempt has happened, so the step is ready as before. If a freeze holds it, the run's log does so,
    and not the memory of a process that may die over it, and its timeout does not run meanwhile. Else it begins again
    at once, with its whole time."""
    draft.cut = True
    if draft.state.status == "stopping" and not is_in_cleanup(step.path):
        stopping.stop_leaf(draft, step, "held")
    else:
        error = draft.error("step.lost", command.reason or _HELD, step.path, retriable=True)
        draft.emit(e.StepRetried, path=step.path, attempt=command.attempt, error=error, lost=True, held=True)
    go_on(draft)
    return None


def _is_repeated(step: Step, command: c.StepLost) -> bool:
    """Whether another attempt is made by itself. One that resumes what it finds has said so itself (`reason`), where it
    can't find out."""
    return step.delivery == "at_least_once" or (step.delivery == "resumed" and command.reason is None)


def _accept_outcome(draft: Draft, path: str, attempt: int) -> Step:
    """As `_attempt`; but the outcome of an effect that may happen at most once is taken as long as people are asked
    whether it happened."""
    if draft.state.attempts.get(path) == attempt:  # an attempt that is open is not asked about
        return draft.step(path)
    doubt = unknown_outcome.find_doubt(draft.state, path, attempt)
    if doubt is None:
        return _attempt(draft, path, attempt)
    unknown_outcome.resolve_doubt(draft, doubt)
    return draft.step(path)


def _attempt(draft: Draft, path: str, attempt: int) -> Step:
    """The step whose open attempt this is, or was, if its outcome is in doubt. A result of any other attempt
    is refused (docs/design/store.md#lost-attempts)."""
    doubt = unknown_outcome.find_doubt(draft.state, path, attempt)
    if doubt is not None:
        unknown_outcome.resolve_doubt(draft, doubt)
    elif draft.state.attempts.get(path) != attempt:
        raise _reject_closed_attempt(path, attempt)
    return draft.step(path)


def _reject_closed_attempt(path: str, attempt: int) -> Rejected:
    message = f"attempt {attempt} of step {path} is not open; its result is not recorded."
    return Rejected(409, "attempt_closed", message)


RULES: Final = {
    c.StepSucceeded: _handle_step_succeeded,
    c.StepFailed: _step_failed,
    c.StepAsks: _handle_step_asks,
    c.GateChecked: _handle_gate_checked,
    c.StepLost: _handle_step_lost,
}
