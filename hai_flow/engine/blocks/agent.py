"""`agent`: an iteration for each answer of its model. In each, first the answer, then its calls, all at once.

The model's answer is the output of an attempt, which is in the log. It names the calls; the plan says which effects
each call may have. A call that fails is an answer for the model and no failure of the agent, unless the run itself may
not go on."""

from __future__ import annotations

from typing import Final

from hai_flow.definition import paths
from hai_flow.definition.plan import Agent, AgentCalls, Iteration, Step
from hai_flow.engine import events as e
from hai_flow.engine.blocks import loop_rules
from hai_flow.engine.blocks.block import Block
from hai_flow.engine.completion.consequences import Consequence, End, FailStep, FinishStep
from hai_flow.engine.completion.open_steps import is_ending
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.state.retry_policy import UNDO_FAILED
from hai_flow.engine.state.state import Ending, LoopState
from hai_flow.engine.steps.agents import (
    answer_in,
    call_records,
    calls_of,
    count_answers,
    find_agent_in_charge,
    has_answered,
    is_summary,
    is_wrong,
    keys_of,
)
from hai_flow.engine.steps.tool_calls import finish_written, resolve_call
from hai_flow.values import Json

MAX_TURNS: Final = "agent.max_turns"
_FOR_THE_RUN: Final = ("approval.digest", UNDO_FAILED)  # failures of a call that no model can go on from


# --- the answers ------------------------------------------------------------------------------------------------------


def begin(draft: Draft, step: Step) -> None:
    verb = step.verb_as(Agent)
    args = draft.json_text(draft.render(verb.arguments, step))
    first = loop_rules.next_number(draft, step)
    draft.pure_steps += 1
    draft.record_start(step, args=args, ready=(paths.iteration(step.path, first),))


def iteration_done(draft: Draft, step: Step, iteration: Step, output: Json) -> Consequence | None:
    """The next answer, or the end of the agent."""
    verb, loop = step.verb_as(Agent), loop_rules.loop_of(draft, step)
    answer = answer_in(draft.state, iteration.path)
    try:
        done = not is_summary(answer) and (loop.closing or _is_done(draft, step, iteration, verb, loop))
    except Raised as raised:
        return FailStep(iteration, draft.error(raised.code, raised.message, step.path))
    ready = (paths.iteration(step.path, loop.last + 1),)
    if done and verb.output is not None and calls_of(answer) and not loop.closing:
        draft.emit(e.IterationEnded, path=iteration.path, status="finished", output=True, ready=ready)
        return None
    other = find_agent_in_charge(draft.plan, draft.state, iteration.path, verb.hands_over) if verb.hands_over else None
    if done or other is not None:
        draft.emit(e.IterationEnded, path=iteration.path, status="finished")
        if other is None and verb.output is not None and "output" not in answer:
            message = "The model's last answer, behind `stop_when`, is not the object that `output` asks for."
            return FailStep(step, draft.error("llm.invalid_output", message, step.path))
        value = other.output if other is not None else answer["text" if verb.output is None else "output"]
        resolve_call(draft, step, value, None)
        return FinishStep(step, value)
    if not is_summary(answer) and has_answered(draft.state, step.path, loop, verb.max_turns):
        count = count_answers(draft.state, step.path, loop)
        draft.emit(e.IterationEnded, path=iteration.path, status="finished")
        message = f"The agent has not come to an end within {count} answers of its model (`max_turns`)."
        return FailStep(step, draft.error(MAX_TURNS, message, step.path))
    draft.emit(e.IterationEnded, path=iteration.path, status="finished", ready=ready)
    return None


def _is_done(draft: Draft, step: Step, iteration: Step, verb: Agent, loop: LoopState) -> bool:
    """Whether the answer was the last. Raises `Raised`."""
    answer = answer_in(draft.state, iteration.path)
    if not calls_of(answer):
        return True
    if verb.stop_when is None or is_wrong(answer):
        return False
    calls = call_records(draft.plan, draft.state, iteration.path)
    count = count_answers(draft.state, step.path, loop)
    report = {"number": count, "text": answer["text"], "calls": calls}
    return draft.truth(verb.stop_when, step, answer=report)


def behind(draft: Draft, step: Step) -> str | None:
    """Behind `max_turns`, or a last answer that was no object, the conversation goes on with a further answer."""
    loop = draft.state.steps[step.path].loop
    return None if loop is None or loop.last < 0 else paths.iteration(step.path, loop.last + 1)


# --- the calls of an answer -------------------------------------------------------------------------------------------


def begin_calls(draft: Draft, step: Step) -> Consequence | None:
    """Every call of the answer may begin; none, if any of them is wrong: the model hears of it and answers again. None
    behind `stop_when`, either."""
    answer = answer_in(draft.state, step.parent)
    closing = draft.state.steps[paths.loop_of(step.parent)].loop
    keys = () if is_wrong(answer) or (closing is not None and closing.closing) else keys_of(answer)
    draft.pure_steps += 1
    if not keys:
        draft.record_start(step)
        return FinishStep(step)
    draft.record_start(step, keys=keys, ready=tuple(paths.iteration(step.path, key) for key in keys))
    return None


def call_done(draft: Draft, step: Step, call: Step, output: Json) -> Consequence | None:
    finish_written(draft, call.verb_as(Iteration).first, None)
    draft.emit(e.IterationEnded, path=call.path, status="finished")
    return loop_rules.end_if_last(draft, step)


def call_failed(draft: Draft, step: Step, call: Step, error: e.Error) -> Consequence | None:
    """The failure becomes the call's result for the model, unless the run itself may not go on."""
    finish_written(draft, call.verb_as(Iteration).first, error)
    draft.emit(e.IterationEnded, path=call.path, status="failed", error=error)
    if is_ending(draft, step.path) or not (error.code.startswith("limit.") or error.code in _FOR_THE_RUN):
        return loop_rules.end_if_last(draft, step)
    return End(step, Ending("failed", error=error, reason=f"{call.path} failed"))


def behind_calls(draft: Draft, step: Step) -> Consequence | None:
    loop = draft.state.steps[step.path].loop
    return None if loop is None else FinishStep(step)


BLOCKS: Final = {
    Agent: Block(
        begin=begin,
        child_failed=loop_rules.fail_loop,
        iteration_done=iteration_done,
        resume=loop_rules.resume_last,
        behind=behind,
    ),
    AgentCalls: Block(
        begin=begin_calls,
        child_failed=call_failed,
        iteration_done=call_done,
        resume=loop_rules.resume_keys,
        behind=behind_calls,
    ),
}
