"""The schema of the arguments of an approved call: forms in which people change the arguments are made of it."""

from __future__ import annotations

from typing import Any

from hai_flow.api.requests.access import Access
from hai_flow.definition.plan import Call, FrontendTool, HttpTool, Plan, PythonTool
from hai_flow.definition.schemas.schemas import strip_marks
from hai_flow.engine.canaries import find_disguise
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import StepError
from hai_flow.values import Json


async def describe_arguments(access: Access, run: RunState, pending: PendingState) -> dict[str, Any]:
    """The arguments of the call that the question is about (`shapes.PendingArguments`)."""
    disguise = find_disguise(run) if pending.status == "open" else None
    sha256 = run.sha256 if disguise is None else disguise.sha256
    plan = await access.catalog.plan(access.tenant, bytes.fromhex(sha256))
    description, parameters = await _describe(access, plan, pending)
    return {
        "tool": pending.opened.tool,
        "description": description,
        "parameters": parameters,
    }


async def _describe(access: Access, plan: Plan, pending: PendingState) -> tuple[str | None, Json]:
    """The function's own description and the schema of its parameters; None for each that it lacks. Servers of MCP are
    not asked: no page must wait for them."""
    verb = resolve_step(plan, pending.opened.path).verb
    if not isinstance(verb, Call):
        return None, None
    tool = verb.tool
    if isinstance(tool, FrontendTool):
        return tool.description or None, None if tool.parameters is None else strip_marks(tool.parameters.raw)
    if not isinstance(tool, PythonTool | HttpTool):
        return None, None
    try:
        offered = await access.runtime.registry.offered(tool.name, tool, from_disk=plan.from_disk, workflow=plan.name)
    except StepError:  # its module or its service is not known here
        return None, None
    offer = next((each for each in offered if each.name == pending.opened.tool), None)
    return (None, None) if offer is None else (offer.description or None, dict(offer.parameters))
