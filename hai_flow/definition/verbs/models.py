"""`llm` and `agent`: the work of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from hai_flow.definition import plan
from hai_flow.definition.context import Context
from hai_flow.definition.declarations import check_model
from hai_flow.definition.document import Path, kind_of, suggestion
from hai_flow.definition.drafts import StepDraft
from hai_flow.definition.expressions import Names
from hai_flow.definition.parts import Record, is_hole
from hai_flow.definition.policies import approval
from hai_flow.definition.reference import (
    ANY,
    EFFECT_KEYS,
    HOLE,
    LITERAL,
    NAME,
    SCHEMA,
    TEXT,
    Key,
    Shape,
    either,
    enum,
    integer,
    list_of,
    map_of,
    shape_of,
)
from hai_flow.definition.verbs.calls import function_fits, is_tool
from hai_flow.definition.verbs.verb import Verb
from hai_flow.values import Json

_MODEL_KEYS: Final = (
    Key("model", NAME, "one of `models`; without it `defaults.model`", example="smart"),
    Key("system", TEXT, "the system prompt", example="You are a careful analyst."),
    Key("prompt", TEXT, "the user's message", example="Summarise ${{ input.topic }}."),
    Key("messages", either(list_of(ANY), HOLE), "a whole conversation, in place of `prompt`: `{role, content}`, the "
        "content text or a list of parts",
        example='[{role: user, content: "${{ input.question }}"}]', read=ANY),
    Key("output", SCHEMA, "the answer is an object of this schema, not text",
        example="{type: object, required: [subject], properties: {subject: {type: string}}}"),
)  # fmt: skip

LLM: Final = Shape("llm", "`llm`", (
    *_MODEL_KEYS,
    Key("stream", enum("text", "none"), "whether the answer streams as a message",
        default="text; with `output` none", example="none"),
), at_most_one=(("prompt", "messages"),))  # fmt: skip
AGENT: Final = Shape("agent", "`agent`", (
    *_MODEL_KEYS,
    Key("tools", list_of(LITERAL), "`tool`, `tool.fn` or `tool.*`", required=True, example="[web.search, mail.*]"),
    Key("max_turns", integer(1, 1000), "answers of the model", default="25", example="10"),
    Key("approvals", map_of(either(shape_of("approval"), enum("none")), "any"),
        "who decides before a tool is used; a tool that writes and is not named here asks the requester",
        example="{mail.send: {from: requester}, web.*: none}"),
    Key("stream", enum("text", "steps", "none"), "what the frontend sees", default="text", example="steps"),
), at_most_one=(("prompt", "messages"),))  # fmt: skip


def _llm(context: Context, draft: StepDraft, names: Names) -> plan.Llm | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(LLM, value, at, "`llm`")
    name = _model_of(context, fields, value, at)
    arguments = _prompt(context, fields, value, name, at, names)
    output = context.schema(fields["output"], (*at, "output")) if "output" in fields else None
    if name is None or arguments is None:
        return None
    stream = fields.get("stream", "text" if output is None else "none")  # what is half an object says nothing
    return plan.Llm(name, arguments, output, stream, _models_asked(context, name))


def _agent(context: Context, draft: StepDraft, names: Names) -> plan.Agent | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(AGENT, value, at, "`agent`")
    name = _model_of(context, fields, value, at)
    arguments = _prompt(context, fields, value, name, at, names)
    output = context.schema(fields["output"], (*at, "output")) if "output" in fields else None
    tools = fields.get("tools", [])
    for index, tool in enumerate(tools):
        _check_agent_tool(context, tool, (*at, "tools", index))
    approvals = _agent_approvals(context, fields.get("approvals", {}), tools, (*at, "approvals"), names)
    if name is None or arguments is None or "tools" not in fields:
        return None
    return plan.Agent(
        name,
        arguments,
        tuple(tools),
        output,
        fields.get("max_turns", 25),
        approvals,
        fields.get("stream", "text"),
    )


def _models_asked(context: Context, name: str) -> tuple[plan.Model, ...]:
    """The model, then those that are asked where it does not answer."""
    models = context.declared.models
    first = models.get(name)
    names = (name, *(() if first is None else first.fallback))
    return tuple(found for each in dict.fromkeys(names) if (found := models.get(each)) is not None)


def _model_of(context: Context, fields: Mapping[str, Json], value: Mapping[str, Json], at: Path) -> str | None:
    if "model" in fields:
        return fields["model"] if _is_model(context, fields["model"], (*at, "model")) else None
    if context.declared.default_model is None and "model" not in value:
        hint = "; declare one under `models` and name it here or in `defaults`"
        if len(context.declared.models) == 1:
            hint = f"; write `model: {next(iter(context.declared.models))}`"
        context.reader.error(at, "model.missing", f"`model` is missing, and `defaults` has none{hint}", key=True)
    return context.declared.default_model


def _is_model(context: Context, name: str, at: Path) -> bool:
    return context.declared.incomplete or check_model(context.reader, context.declared.models, name, at)


def _prompt(
    context: Context, fields: Mapping[str, Json], value: Mapping[str, Json], name: str | None, at: Path, names: Names
) -> plan.Template | None:
    """The arguments of a model: `{model, system?, prompt? | messages?}`."""
    parts: list[tuple[str, plan.Template]] = [("model", context.literal(name))]
    for key in ("system", "prompt"):
        text = context.text(fields, key, at, names)
        parts += [(key, text)] if text is not None else []
    if "messages" in fields:
        messages = fields["messages"]
        if not isinstance(messages, (str, list)) or (isinstance(messages, str) and not is_hole(messages)):
            message = f"expected a list of messages `{{role, content}}` or a hole, found {kind_of(messages)}"
            context.reader.error((*at, "messages"), "llm.messages", message)
        parts.append(("messages", context.template(messages, (*at, "messages"), names)))
    if "prompt" in value and "messages" in value:
        message = "expected `prompt` or `messages`, found both; put the prompt behind the messages as one of them"
        context.reader.error((*at, "messages"), "llm.prompt", message, key=True)
    elif "prompt" not in value and "messages" not in value:
        strange = [key for key in value if suggestion(key, ("prompt", "messages")) and key not in fields]
        if not strange:
            context.reader.error(at, "llm.prompt", "`prompt` (or `messages`) is missing: say what to answer", key=True)
        return None
    return Record(tuple(parts))


def _check_agent_tool(context: Context, text: str, at: Path) -> None:
    name, dot, function = text.partition(".")
    if name == "client" and name not in context.declared.tools:
        message = "tools that a client only advertises can't be offered; declare them with `frontend` in `tools`"
        context.reader.error(at, "tool.client", message)
        return
    if not is_tool(context, name, at):
        return
    tool = context.declared.tools.get(name)
    if tool is None:
        return
    if function != "*" and (dot or isinstance(tool, (plan.PythonTool, plan.FrontendTool))):
        function_fits(context, tool, function, at, "")
    undeclared = (isinstance(tool, plan.PythonTool) and not tool.declared_effect) or (
        isinstance(tool, plan.McpTool) and tool.effect is None
    )
    if undeclared:
        message = (
            f"the tool `{name}` doesn't say its `effect`, so the agent asks a person before each call; write "
            f"`effect: read` or `effect: write` in `tools.{name}`"
        )
        context.reader.warning(at, "agent.effect", message)


def _agent_approvals(
    context: Context, value: Mapping[str, Json], tools: Iterable[str], at: Path, names: Names
) -> dict[str, plan.Approval | None]:
    approvals: dict[str, plan.Approval | None] = {}
    offered = list(tools)
    for name, raw in value.items():
        place = (*at, name)
        if not any(_covers(each, name) for each in offered):
            hint = suggestion(name, offered) or f"; it has {', '.join(offered) or 'none'}"
            message = f"the agent has no tool `{name}`{hint}"
            context.reader.error(place, "agent.approval", message, key=True)
        if raw == "none":
            approvals[name] = None
        elif not isinstance(raw, Mapping):
            message = f"expected `none` or an approval such as `{{from: requester}}`, found {kind_of(raw)}"
            context.reader.error(place, "shape.type", message)
        else:
            gate = approval(context, raw, place, names, None)
            if gate is not None:
                approvals[name] = gate
                _no_custom_options(context, gate, place)
    return approvals


def _no_custom_options(context: Context, gate: plan.Approval, at: Path) -> None:
    custom = [option for option in gate.policy.options if option not in ("approve", "reject")]
    if custom:
        message = (
            f"an agent's approvals have no options of their own, found `{custom[0]}`; its denial goes to the model"
        )
        context.reader.error((*at, "options"), "agent.options", message)


def _covers(offered: str, name: str) -> bool:
    """Whether an entry of an agent's `tools` has the tool `name` (itself an entry of `approvals`)."""
    if offered == name:
        return True
    tool, _, function = offered.partition(".")
    other, _, _ = name.partition(".")
    return tool == other and (function in ("", "*") or name == f"{tool}.*")


def _gives(context: Context, draft: StepDraft) -> Json:
    value = draft.fields.get(draft.verb)
    schema = value.get("output", {"type": "string"}) if isinstance(value, Mapping) else {}
    return schema if isinstance(schema, Mapping) else {}


VERBS: Final = (
    Verb(
        "llm",
        type=shape_of("llm"),
        does="one call of a model, streamed",
        keys=EFFECT_KEYS,
        output="the text, or the object of `output`",
        fails="`llm.*`",
        example='{model: smart, prompt: "Summarise ${{ input.topic }}."}',
        compile=_llm,
        kind="model",
        shapes=(LLM,),
        timeout=300_000,
        gives=_gives,
        aka=("prompt",),
    ),
    Verb(
        "agent",
        type=shape_of("agent"),
        does="a model that uses tools until it is done",
        keys=EFFECT_KEYS,
        output="as `llm`",
        fails="`llm.*`, `agent.max_turns`",
        example='{model: smart, prompt: "Research ${{ input.topic }}.", tools: [web.search]}',
        compile=_agent,
        kind="model",
        shapes=(AGENT,),
        timeout=1_800_000,
        gives=_gives,
    ),
)
