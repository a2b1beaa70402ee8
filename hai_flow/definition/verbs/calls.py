"""`call`: a tool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from hai_flow.definition import plan
from hai_flow.definition.checks.type_mismatches import doubt_fraction, misfits, path_inside, types_taken
from hai_flow.definition.expressions.evaluation import CompiledTemplate
from hai_flow.definition.fields import is_literal
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import record
from hai_flow.definition.names.secret_names import CallbackBearing
from hai_flow.definition.names.wording import shorten, suggestion
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.schemas.python_modules import FunctionSource, PythonModule
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.tools.a2a_agents import ARGUMENTS
from hai_flow.definition.verbs.http import AWAIT_CALLBACK, compile_callback_terms
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import DECIDED_KEYS, DOCUMENT_SHAPES, EFFECT_KEYS
from hai_flow.definition.yaml.keys import LITERAL
from hai_flow.values import Json

CALL_MS: Final = 300_000  # of one attempt, unless the tool or the document says otherwise


def compile_call(context: StepContext, draft: StepDraft, names: Names) -> plan.Call | None:
    value, at = draft.value, draft.value_at
    arguments = draft.fields.get("with", {})
    back = draft.fields.get("await_callback")
    if back is not None:
        back = context.reader.fields(AWAIT_CALLBACK, back, (*draft.at, "await_callback"), "`await_callback`")
    argument_names = names if back is None else names.with_roots("callback")
    template = context.template(arguments, (*draft.at, "with"), argument_names)
    stream = draft.fields.get("stream")
    if isinstance(stream, Mapping):
        stream = context.reader.fields(DOCUMENT_SHAPES["stream"], stream, (*draft.at, "stream"), "`stream`")
    name, _, function = value.partition(".")
    if not is_tool(context, value if "${{" in value else name, at, function):
        return None
    tool = context.declared.tools.get(name)
    if function and not re.fullmatch(r"[A-Za-z0-9_./-]+", function):
        hint = "; its arguments stand under `with`" if "(" in function else ""
        context.reader.error(at, "tool.function", f"expected `call: tool.function`, found `{shorten(value)}`{hint}")
        return None
    if tool is None or not can_call_function(context, tool, function, at, "call: "):
        return None
    if isinstance(tool, plan.PythonTool):
        _check_python(context, tool, function, draft, argument_names, template)
    if isinstance(tool, plan.HttpTool) and tool.service is not None:
        operation = tool.service.find(function)
        who, raw = f"the operation `{value}`", operation.parameters.raw
        check_arguments(context, who, raw, "call", draft, argument_names, template, binds_formats=False)
    if isinstance(tool, plan.A2ATool):
        check_arguments(context, f"the agent `{name}`", ARGUMENTS.raw, "call", draft, argument_names, template)
        if isinstance(arguments, Mapping) and not arguments.keys() & {"text", "data"}:
            message = f"the agent `{name}` needs something to read: write `text` or `data` under `with`"
            context.reader.error(at, "call.missing_argument", message)
    if isinstance(tool, plan.FrontendTool):
        if tool.parameters is not None:
            check_arguments(
                context, f"the tool `{tool.name}`", tool.parameters.raw, "call", draft, argument_names, template
            )
        for key in ("retry", "timeout", "approval", "delivery", "idempotency_key"):
            if key in draft.fields and not (key == "approval" and tool.writes):
                hint = "people have a `deadline` (in `tools.{name}.frontend`)"
                if not tool.answered:
                    hint = "the call of `{name}` is only shown (`answer: none`)"
                if key == "approval":
                    hint = "a frontend tool asks a person itself; say its `effect`, or put an `approve` step before it"
                message = f"`{key}` is for effects; {hint.format(name=name)}"
                context.reader.error((*draft.at, key), "call.people", message, key=True)
    into = _compile_into(context, stream, (*draft.at, "stream"), tool) if isinstance(stream, Mapping) else None
    streams = into is not None or stream == "text"
    if back is None:
        return plan.Call(tool, function, template, streams, into)
    callback = _callback(context, draft, back, names, tool, function, template)
    return plan.Call(tool, function, CallbackBearing(template), streams, into, callback)


def _callback(
    context: StepContext,
    draft: StepDraft,
    fields: Mapping[str, Json],
    names: Names,
    tool: plan.Tool,
    function: str,
    template: plan.Template,
) -> plan.Callback | None:
    """The callback that the call waits for after its answer. Its schema comes from `await_callback`, or else from the
    operation, where its document describes one callback."""
    at = (*draft.at, "await_callback")
    if not isinstance(tool, plan.HttpTool):
        message = f"`{tool.name}` is no service that an OpenAPI document describes; only such a one calls back"
        context.reader.error(at, "call.callback", message, key=True)
        return None
    described = tool.service.find(function).callback if tool.service is not None else None
    hint = (
        f"; its document says that it belongs to `{described.place}`"
        if described is not None and described.place
        else ""
    )
    deadline, schema = compile_callback_terms(context, fields, at, names, template.written, hint)
    return plan.Callback(deadline, schema or (described.schema if described is not None else None))


def derive_delivery(call: plan.Call) -> Literal["at_least_once", "asked", "resumed"]:
    """How a call is delivered whose document does not say it. A server of MCP can't recognise a repetition, so a
    call that may have changed something is not repeated without asking. An agent that speaks A2A is asked what it has
    begun."""
    if isinstance(call.tool, plan.A2ATool):
        return "resumed"
    return "asked" if isinstance(call.tool, plan.McpTool) and call.tool.effect != "read" else "at_least_once"


def _compile_into(context: StepContext, fields: Mapping[str, Json], at: Path, tool: plan.Tool) -> plan.Growing | None:
    """The call of a frontend's tool that grows by the texts that this one yields."""
    if isinstance(tool, plan.FrontendTool):
        message = f"`{tool.name}` is a tool of the client: nothing of it streams; `stream` is for the others"
        context.reader.error(at, "stream.tool", message, key=True)
        return None
    if "to" not in fields or not is_tool(context, fields["to"], (*at, "to")):
        return None
    frontend_tool = context.declared.tools.get(fields["to"])
    if frontend_tool is None or "argument" not in fields:
        return None
    if not isinstance(frontend_tool, plan.FrontendTool) or frontend_tool.answered or frontend_tool.writes:
        message = (
            f"`{fields['to']}` has to be a `frontend` tool with `answer: none` and no `effect` beyond the client: its "
            "call is shown while it grows"
        )
        context.reader.error((*at, "to"), "stream.tool", message)
        return None
    _check_growing(context, frontend_tool, fields["argument"], (*at, "argument"))
    return plan.Growing(frontend_tool, fields["argument"])


def _check_growing(context: StepContext, tool: plan.FrontendTool, argument: str, at: Path) -> None:
    """The argument has to be a text, and the only one that the tool needs."""
    raw = {} if tool.parameters is None else tool.parameters.raw
    properties = raw.get("properties", {})
    others = [name for name in raw.get("required", ()) if name != argument]
    if argument not in properties:
        hint = suggestion(argument, properties) or "; it has to be one of its `parameters`"
        context.reader.error(at, "stream.argument", f"`{tool.name}` has no argument `{shorten(argument)}`{hint}")
    elif others:
        message = f"`{tool.name}` needs `{others[0]}` as well, and only `{argument}` is streamed"
        context.reader.error(at, "stream.argument", message)
    elif isinstance(properties[argument], Mapping) and properties[argument].get("type", "string") != "string":
        message = f"`{argument}` of `{tool.name}` has to be a string: it grows by text"
        context.reader.error(at, "stream.argument", message)


def is_tool(context: StepContext, name: str, at: Path, function: str = "") -> bool:
    if "${{" in name:
        message = "the name of a tool is literal: holes are not filled here; use a `switch` with one `call` each"
        context.reader.error(at, "tool.hole", message)
        return False
    if name in context.declared.tools or context.declared.incomplete:
        return True
    targets = {getattr(tool, "target", ""): each for each, tool in context.declared.tools.items()}
    module, _, attribute = f"{name}.{function}".rpartition(".")
    hint = (
        f"; write `call: {targets[module]}.{attribute}`: the tool `{targets[module]}` is that module"
        if module in targets
        else suggestion(name, context.declared.tools)
        or "; declare it under `tools` (what is not declared can't be called)"
    )
    context.reader.error(at, "tool.unknown", f"there is no tool `{shorten(name)}`{hint}")
    return False


def can_call_function(context: StepContext, tool: plan.Tool, function: str, at: Path, call: str) -> bool:
    """Whether a tool can be called by its name and this function. `call` is the text before the name."""
    fault = _check_function(tool, function, call)
    if fault is not None:
        context.reader.error(at, "tool.function", fault)
    return fault is None


def _check_function(tool: plan.Tool, function: str, call: str) -> str | None:
    name = tool.name
    match tool:
        case plan.FrontendTool():
            return f"a frontend tool is called by its name alone: `{call}{name}`" if function else None
        case plan.PythonTool():
            if ":" in tool.target and function:
                return f"the tool `{name}` is the one function {tool.target}; write `{call}{name}`"
            if tool.target and ":" not in tool.target and not function:
                return f"the tool `{name}` is the module {tool.target}; name a function: `{call}{name}.function`"
            return None
        case plan.AgentTool():
            if call:
                return f"the tool `{name}` is an agent, which another agent calls; write an `agent` step"
            return f"an agent is called by its name alone: `{name}`" if function else None
        case plan.A2ATool():
            return f"an agent is called by its name alone: `{call}{name}`" if function else None
        case plan.McpTool(allow=allow) | plan.HttpTool(allow=allow):
            if not function:
                return f"the tool `{name}` has many functions; name one: `{call}{name}.function`"
            if allow is not None and function not in allow:
                hint = suggestion(function, allow) or f"; it has {', '.join(allow)}"
                return f"the tool `{name}` does not `allow` the function `{function}`{hint}"
            if isinstance(tool, plan.HttpTool) and tool.service is not None:
                return _check_operation(tool.service, function, name)
            return None


def _check_operation(service: plan.Service, function: str, name: str) -> str | None:
    try:
        service.find(function)
    except KeyError:
        hint = suggestion(function, service.ids) or f"; it has {', '.join(service.ids[:20]) or 'none'}"
        return f"the document of `{name}` has no operation `{shorten(function)}`{hint}"
    except ValueError as error:
        return f"the operation `{function}` of `{name}` can't be called: {error}"
    return None


def check_arguments(
    context: StepContext,
    who: str,
    raw: Mapping[str, Any],
    code: str,
    draft: StepDraft,
    names: Names,
    template: CompiledTemplate | None,
    *,
    binds_formats: bool = True,
) -> None:
    """Report the keys and values of `with` that do not fit a JSON Schema, `raw`, whose formats bind or do not. `who`
    names the tool or workflow in messages; `template` is `with` compiled."""
    report = context.reader.refuse if code == "run" else context.reader.error
    arguments = draft.fields.get("with", {})
    properties = raw.get("properties", {})
    at = (*draft.at, "with")
    if "with" not in draft.fields and context.reader.is_wrong(at):
        return
    strangers = [name for name in arguments if name not in properties]
    for name in raw.get("required", ()):
        is_given = name in arguments or any(suggestion(stranger, [name]) for stranger in strangers)
        if not is_given and "default" not in properties.get(name, {}):
            place = at if "with" in draft.fields else (*draft.at, draft.verb)
            message = f"{who} needs the argument `{name}`; add it under `with`"
            report(place, f"{code}.missing_argument", message, key=True)
    for name, value in arguments.items():
        if name in properties:
            place = (*at, name)
            _check_argument(context, who, raw, properties[name], value, place, code, binds_formats=binds_formats)
            for path, fault in misfits({name: value}, template, {"properties": properties}, raw, names):
                message = f"the argument `{name}` never fits {who}: {fault}"
                context.reader.refuse((*at, *path), f"{code}.argument", message)
            _check_null(context, who, name, properties[name], value, place, code, names, raw)
            if (doubt := doubt_fraction(value, properties[name], raw, names)) is not None:
                context.reader.warning(place, f"{code}.fraction", doubt)
        elif "patternProperties" not in raw and not raw.get("additionalProperties"):
            hint = suggestion(name, properties) or f"; it takes {', '.join(properties) or 'none'}"
            report((*at, name), f"{code}.unknown_argument", f"{who} has no argument `{name}`{hint}", key=True)


def _check_argument(
    context: StepContext,
    who: str,
    root: Json,
    schema: Json,
    value: Json,
    at: Path,
    code: str,
    *,
    binds_formats: bool,
) -> None:
    if not is_literal(value) or not isinstance(schema, Mapping):
        return
    definitions = {key: part for key, part in root.items() if key in ("$defs", "definitions")}
    for fault in JsonSchema({**schema, **definitions}, binds_formats=binds_formats).findings(value)[:1]:
        report = context.reader.refuse if code == "run" else context.reader.error
        place = (*at, *path_inside(value, fault["path"]))
        report(place, f"{code}.argument", f"the argument `{at[-1]}` does not fit {who}: {fault['message']}")


def _check_null(
    context: StepContext, who: str, name: str, schema: Json, value: Json, at: Path, code: str, names: Names, root: Json
) -> None:
    """Doubt a hole that may be null where its argument takes no null."""
    nullable = names.find_null_path(value)
    types = types_taken(schema, root) if nullable is not None else None
    if nullable is None or types is None or "null" in types:
        return
    message = (
        f"`{nullable}` may be null, which the argument `{name}` of {who} does not take; {names.remedy_for_null(value)}"
    )
    context.reader.warning(at, f"{code}.nullable", message)


def names_of_python(tool: plan.PythonTool, function: str) -> tuple[str, list[str]]:
    """The module of a call ("": any in which functions are registered), and the names that it may mean there."""
    target, _, attribute = tool.target.partition(":")
    name = attribute or function or tool.name
    return target, [name, f"{tool.name}.{name}"] if target else [f"{tool.name}.{function}" if function else tool.name]


def find_python(context: StepContext, tool: plan.PythonTool, function: str, at: Path) -> FunctionSource | None:
    """The function that a call names, as far as it is known. Reports, at `at`, one that is certainly not there, and
    what `python` names at the tool."""
    target, names = names_of_python(tool, function)
    module = context.modules(target, names)
    tools = context.reader.document.value.get("tools")
    is_here = isinstance(tools, Mapping) and isinstance(tools.get(tool.name), Mapping)
    declared = ("tools", tool.name, "python") if is_here else at  # a name is reported where it is typed
    if isinstance(module, str):
        context.reader.error(declared, "tool.no_module", f"the tool `{tool.name}` can't be called: {module}")
        return None
    signature = module.find(names) if module is not None else None
    if module is not None and signature is None and target and module.is_sure_of(names):
        has = [each for each in module.functions if "." not in each and not each.startswith("_")]
        hint = suggestion(names[0], has) or f"; it defines {', '.join(has[:20]) or 'none'}"
        message = f"the module {target} has no function `{shorten(names[0])}`{hint}"
        context.reader.error(declared if ":" in tool.target else at, "tool.no_function", message)
    return signature


def result_of_python(context: StepContext, draft: StepDraft) -> Mapping[str, Json] | None:
    """The JSON Schema of what a called function of Python returns, as far as its annotation is known."""
    value = draft.fields.get("call")
    name, _, function = value.partition(".") if isinstance(value, str) else ("", "", "")
    tool = context.declared.tools.get(name)
    if not isinstance(tool, plan.PythonTool) or _check_function(tool, function, "") is not None:
        return None
    target, names = names_of_python(tool, function)
    module = context.modules(target, names)
    called = module.find(names) if isinstance(module, PythonModule) else None
    return None if called is None or called.unsure else called.result


def _check_python(
    context: StepContext,
    tool: plan.PythonTool,
    function: str,
    draft: StepDraft,
    place: Names,
    template: CompiledTemplate,
) -> None:
    """Report a call of a Python function that is not there, or does not take these arguments."""
    signature = find_python(context, tool, function, draft.value_at)
    if signature is None or signature.unsure or not isinstance(draft.fields.get("with", {}), Mapping):
        return
    target, names = names_of_python(tool, function)
    properties: dict[str, Json] = {each: dict(signature.types.get(each, {})) for each in signature.parameters}
    raw = {
        "properties": properties,
        "required": sorted(signature.required),
        "additionalProperties": signature.takes_any,
    }
    who = f"the function `{names[0]}` of {target}" if target else f"the registered function `{names[0]}`"
    check_arguments(context, who, raw, "call", draft, place, template)


def _gives(context: StepContext, draft: StepDraft) -> Json:
    value = draft.fields.get("call")
    tool = context.declared.tools.get(value.partition(".")[0]) if isinstance(value, str) else None
    if "await_callback" in draft.fields:
        return record(answer={}, callback={})
    if isinstance(tool, plan.A2ATool):
        return record(text={"type": "string"}, data={}, parts={"type": "array", "items": {"type": "object"}})
    if not isinstance(tool, plan.FrontendTool):
        return {}
    if not tool.answered:
        return {"type": "null"}
    return tool.result.raw if tool.result is not None else {}


VERBS: Final = (
    VerbRules(
        "call",
        type=LITERAL,
        does="a tool: `tool.function`, or `tool` for one that is a function or the client's",
        keys=(
            "with",
            "approval",
            *DECIDED_KEYS,
            "idempotency_key",
            "delivery",
            "stream",
            "await_callback",
            *EFFECT_KEYS,
        ),
        output="return value of the tool; `{answer, callback}` with `await_callback`",
        fails="`tool.*`",
        example="shop.refund",
        compile=compile_call,
        kind="effect",
        timeout=CALL_MS,
        gives=_gives,
        aka=("tool", "action", "activity", "function", "uses", "invoke", "use"),
    ),
)
