"""A call of a tool that a frontend performs: handed over, and answered from there."""

from __future__ import annotations

from hai_flow import values
from hai_flow.definition.plan import FrontendTool, Step
from hai_flow.engine import events as e
from hai_flow.engine.completion.consequences import Consequence, FinishStep
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.pendings.open import new_pending_id, open_pending
from hai_flow.engine.pendings.policies import fill_duration
from hai_flow.engine.pendings.selectors import REQUESTER
from hai_flow.engine.pendings.votes import Rules
from hai_flow.engine.state.ids import derive_display_call_id
from hai_flow.engine.state.run_size import demand_wait
from hai_flow.engine.steps.tool_calls import SHOWN, foretell, model_call, show_call


def begin_frontend_call(draft: Draft, step: Step, tool: FrontendTool, args: str) -> Consequence | None:
    """The step begins by handing a call to the client. Raises `Raised`: it fails instead."""
    if tool.answered:
        demand_wait(draft, step)
    findings = tool.parameters.fit(values.loads(args))[1] if tool.parameters is not None else []
    if findings:
        faults = "; ".join(f"{f['path'] or '/'}: {f['message']}" for f in findings)
        raise Raised("tool.invalid_arguments", f"{tool.name} was called with wrong arguments: {faults}.")
    if not tool.answered:
        return _show_only(draft, step, tool, args)
    rules = Rules(from_=(REQUESTER,), deadline=fill_duration(draft, step, tool.deadline, {}))
    _record_start(draft, step, args)
    id = new_pending_id(draft, step)
    if id not in draft.state.tool_calls:  # else its model has shown it
        foretell(draft, step, tool)
        show_call(draft, step, id, tool.name, args, "frontend")
    schema = tool.result.raw if tool.result is not None else None
    open_pending(draft, step, "tool", rules, id=id, tool=tool.name, args=args, schema=schema)
    return None


def _show_only(draft: Draft, step: Step, tool: FrontendTool, args: str) -> Consequence:
    """A call that the client shows, or performs, as it likes: the run goes on behind it."""
    draft.pure_steps += 1
    _record_start(draft, step, args)
    if (call := model_call(draft.state, step.path)) is not None:
        draft.emit(e.ToolCallResolved, tool_call_id=call.id, content=SHOWN)
        return FinishStep(step)
    id = derive_display_call_id(draft.state.run_id, step.path, draft.state.entries)
    foretell(draft, step, tool)
    show_call(draft, step, id, tool.name, args, "frontend")
    draft.emit(e.ToolCallResolved, tool_call_id=id, content=SHOWN)
    return FinishStep(step)


def _record_start(draft: Draft, step: Step, args: str) -> None:
    step_state = draft.state.steps.get(step.path)
    if step_state is None or not step_state.is_open:  # behind a gate it has begun already
        draft.record_start(step, args=args)
