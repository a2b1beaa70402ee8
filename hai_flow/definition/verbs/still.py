"""`still` of an approval: what has to be so yet when the effect behind it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.wording import kind_of
from hai_flow.definition.people.policies import STILL, describe_arguments
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.verbs.calls import compile_call
from hai_flow.definition.yaml.document import Path
from hai_flow.values import Json

_CHANGING: Final = frozenset({"state", "now", "response"})
_READING_TOOLS: Final = (plan.PythonTool, plan.McpTool, plan.HttpTool)


def with_still(
    context: StepContext,
    gate: plan.Approval | None,
    value: Json,
    at: Path,
    names: Names,
    arguments: Sequence[str] | None,
    guarded: plan.Verb | None,
) -> plan.Approval | None:
    """The gate with the `still` that its mapping `value` has. `guarded` is the effect behind it, `arguments` as of
    `approval`."""
    raw = value.get("still") if isinstance(value, Mapping) else None
    if raw is None:
        return gate
    at = (*at, "still")
    if isinstance(guarded, plan.Call) and isinstance(guarded.tool, plan.FrontendTool):
        message = (
            f"`still` is checked by the worker that performs a call; `{guarded.tool.name}` is performed by the client: "
            "take `still` out"
        )
        context.reader.error(at, "still.client", message, key=True)
        return gate
    if isinstance(guarded, plan.Call) and _effect_of(guarded) == "read":
        message = (
            f"this guards nothing: `{guarded.tool.name}` changes nothing, so it is never too late to call it; take "
            "`still` out, or say its `effect`"
        )
        context.reader.warning(at, "still.guards_nothing", message)
    names = names.with_roots(schemas={"args": describe_arguments(arguments)})
    still = _compile(context, raw, at, names)
    return gate if gate is None or still is None else msgspec.structs.replace(gate, still=still)


def _compile(context: StepContext, raw: Json, at: Path, names: Names) -> plan.Still | None:
    if isinstance(raw, str | bool):
        condition = context.condition(raw, at, names)
        _demand_change(
            context, condition, at, "of `state` or `now`; for what only a tool knows write `still: {call, expect}`"
        )
        return None if condition is None else plan.Still(condition)
    if not isinstance(raw, Mapping):
        message = f"expected a condition, or `{{call: ..., expect: ...}}`, found {kind_of(raw)}"
        context.reader.error(at, "still.kind", message)
        return None
    fields = context.reader.fields(STILL, raw, at, "`still`")
    call = _compile_reading(context, fields, at, names)
    condition = None
    if "expect" in fields:
        condition = context.condition(fields["expect"], (*at, "expect"), names.with_roots(schemas={"response": {}}))
        _demand_change(context, condition, (*at, "expect"), "of `response`, `state` or `now`")
    if call is None or condition is None:
        return None
    return plan.Still(condition, call)


def _demand_change(context: StepContext, condition: plan.Expression | None, at: Path, hint: str) -> None:
    """Report a condition that comes to the same when people are asked and when the effect begins."""
    if condition is not None and not condition.roots & _CHANGING and not condition.steps:
        message = f"this can't change between the approval and the effect: it reads nothing {hint}"
        context.reader.error(at, "still.never", message)


def _compile_reading(context: StepContext, fields: Mapping[str, Json], at: Path, names: Names) -> plan.Call | None:
    if not isinstance(fields.get("call"), str):
        return None
    parts = {key: fields[key] for key in ("call", "with") if key in fields}
    draft = StepDraft("call", parts, at, "", "", (), 0, parts["call"], (*at, "call"))
    call = compile_call(context, draft, names)
    if call is None:
        return None
    name = call.tool.name
    if not isinstance(call.tool, _READING_TOOLS):
        what = "a tool of the client" if isinstance(call.tool, plan.FrontendTool) else "an agent"
        message = f"`{name}` is {what}; expected a tool in Python, of an MCP server or of an OpenAPI document"
        context.reader.error((*at, "call"), "still.tool", message)
        return None
    effect = _effect_of(call)
    if effect != "read":
        named = f"has the class `{effect}`" if effect is not None else "does not say its class"
        message = (
            f"expected a tool that changes nothing: `{name}` {named}; if it only reads, write `effect: read` in "
            f"`tools.{name}` (a module may be declared twice, once for its functions that read)"
        )
        context.reader.error((*at, "call"), "still.tool", message)
        return None
    return call


def _effect_of(call: plan.Call) -> str | None:
    """The class of the call as the document says it; None: only its server might."""
    tool = call.tool
    if isinstance(tool, plan.HttpTool) and tool.effect is None and tool.service is not None:
        try:
            return tool.service.find(call.function).effect
        except (KeyError, ValueError):
            return None
    return tool.effect
