"""Skipping a step: a person with the right to control runs lets the flow go on behind it, with an output in place of
its own. A step can be skipped that waits, is about to begin (again), or has failed a run; not an attempt in flight,
which may happen anyhow, nor a block that has begun, nor a step that cleans up. An `approve` is skipped without an
output, which could claim an approval that was never given."""

from __future__ import annotations

from typing import Final

from hai_flow import values
from hai_flow.definition.paths import FINALLY, is_in_cleanup
from hai_flow.definition.plan import BLOCKS, Approve, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.completion import finish
from hai_flow.engine.completion.cancellation import drop_work
from hai_flow.engine.completion.consequences import ListDone
from hai_flow.engine.completion.loop import draw
from hai_flow.engine.completion.open_steps import open_leaves
from hai_flow.engine.draft import RUN_END, Draft
from hai_flow.engine.pendings import bypass
from hai_flow.engine.state.bounds import EVENT_BYTES_MAX
from hai_flow.engine.state.jobs import open_attempts
from hai_flow.engine.steps.tool_calls import resolve_call
from hai_flow.errors import Rejected

SKIPPED: Final = "step.skipped"
"""The code with which a call ends that frontends have seen begin."""


def examine(draft: Draft, command: c.Skip) -> Step:
    """The step that the command means. Raises `Rejected`: 422 where that step can't be skipped now, with those that
    can; 409 where it is being performed; 422 where the output is none for it."""
    path = draft.plan.ids.get(command.path, command.path)
    standing = [each for each in open_leaves(draft) if _find_obstacle(draft, draft.step(each)) is None]
    if path not in open_leaves(draft):
        raise _refuse_elsewhere(draft, f"{command.path!r} is not where the run stands", standing)
    step = draft.step(path)
    if path in open_attempts(draft.state):
        message = f"{path} is being performed; it can be skipped when that has ended. Or stop the run."
        raise Rejected(409, "step_in_flight", message, winner={"status": draft.state.status, "seq": draft.state.seq})
    why = _find_obstacle(draft, step)
    if why is not None:
        raise _refuse_elsewhere(draft, why, standing)
    if not command.again:
        bypass.demand_skip(draft, step, command)
    if isinstance(step.verb, Approve) and command.output is not None:
        message = f"{path} is an `approve`: it can be skipped, but nobody decides it that way; give no output."
        raise Rejected(422, "skip.approval", message)
    size = len(values.dumps(command.output))
    if size > EVENT_BYTES_MAX:
        raise Rejected(422, "skip.too_large", f"expected an output of at most {EVENT_BYTES_MAX} bytes, found {size}.")
    return step


def _refuse_elsewhere(draft: Draft, what: str, standing: list[str]) -> Rejected:
    remedy = f"Those that can be skipped now: {', '.join(standing)}." if standing else "None can be skipped now."
    findings = [{"path": "/step", "message": each} for each in standing]
    return Rejected(422, "skip.not_there", f"{what}. {remedy}", findings=findings, winner={"seq": draft.state.seq})


def _find_obstacle(draft: Draft, step: Step) -> str | None:
    step_state = draft.state.steps.get(step.path)
    if step.path == RUN_END or step.is_iteration or step.of_agent:
        return f"{step.path!r} is no step that an author has written"
    if is_in_cleanup(step.path):
        return f"{step.path} cleans up; terminate the run to cut that off"
    if isinstance(step.verb, BLOCKS) and step_state is not None and step_state.phase != "pending":
        return f"{step.path} is a block that has begun; skip the steps inside it"
    return None


def skip(draft: Draft, step: Step, command: c.Skip) -> None:
    """The step does nothing more; its `finally` runs, if it had begun, and the flow goes on behind it."""
    step_state = draft.state.steps.get(step.path)
    was_open = step_state is not None and step_state.is_open
    if was_open:
        drop_work(draft, step.path, bypass.SKIPPED)
        resolve_call(draft, step, None, draft.error(SKIPPED, "It was skipped.", step.path))
    handler, ready, last = None, (), None
    if was_open and step.finally_ is not None:
        handler, ready = FINALLY, (step.finally_,)
    else:
        ready, last = finish.behind(draft, step)
    draft.emit(
        e.StepSkipped,
        path=step.path,
        handler=handler,
        ready=ready,
        by=command.by,
        output=command.output,
        reason=command.reason,
    )
    draw(draft, None if last is None else ListDone(last))
