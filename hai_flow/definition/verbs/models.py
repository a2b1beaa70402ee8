"""`llm` and `agent`: the work of models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from hai_flow.definition import plan
from hai_flow.definition.declarations import check_model
from hai_flow.definition.fields import Record, is_hole
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import record
from hai_flow.definition.names.wording import kind_of, suggestion
from hai_flow.definition.paths import escape
from hai_flow.definition.people.policies import approval
from hai_flow.definition.plan import RESPOND
from hai_flow.definition.raw_steps import StepDraft
from hai_flow.definition.step_context import StepContext
from hai_flow.definition.tools.effect_classes import ASKS_NOBODY
from hai_flow.definition.verbs.calls import CALL_MS, can_call_function, derive_delivery, find_python, is_tool
from hai_flow.definition.verbs.still import with_still
from hai_flow.definition.verbs.verb import VerbRules
from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.key_table import EFFECT_KEYS
from hai_flow.definition.yaml.keys import (
    ANY,
    CEL,
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

TASK: Final = "task"  # the argument of a call of an agent
AGENTS_MAX: Final = 500  # below one agent, each as often as it is a tool of another

LLM: Final = Shape("llm", "`llm`", (
    *_MODEL_KEYS,
    Key("stream", enum("text", "none"), "stream the answer as a message", default="text; with `output` none",
        example="none"),
), at_most_one=(("prompt", "messages"),))  # fmt: skip
AGENT: Final = Shape("agent", "`agent`", (
    *_MODEL_KEYS,
    Key("tools", list_of(LITERAL), "`tool`, `tool.fn` or `tool.*`", required=True, example="[web.search, mail.*]"),
    Key("max_turns", integer(1, 1000), "maximum number of answers of the model", default="25", example="10"),
    Key("approvals", map_of(either(shape_of("approval"), enum("none")), "any"),
        "approvals before tools are used; for a tool not named here the requester decides, unless its `effect` is "
        "`read`, or `reversible` without a graver call beside it",
        example="{mail.send: {from: requester}, web.*: none}"),
    Key("stop_when", CEL, "condition, checked after the calls of an answer; if true, the agent is done, with `output` "
        "after one more answer without calls; sees `answer`: `{number, text, calls}`, with calls as `{name, args, "
        "output, error, denied}`", example='answer.calls.exists(c, c.name == "mail.send" && !c.denied)'),
    Key("memory", enum("thread", "run", "none"), "earlier messages in front of `prompt`: the newest of the thread, "
        "those of this run, or none", default="thread", example="none"),
    Key("stream", enum("text", "steps", "none"), "shown to the frontend: text and calls, calls, or nothing",
        default="text", example="steps"),
), at_most_one=(("prompt", "messages"),))  # fmt: skip


def _llm(context: StepContext, draft: StepDraft, names: Names) -> plan.Llm | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(LLM, value, at, "`llm`")
    name = _model_of(context, fields, value, at)
    arguments = _prompt(context, fields, value, name, at, names)
    output = context.schema(fields["output"], (*at, "output")) if "output" in fields else None
    if name is None or arguments is None:
        return None
    stream = fields.get("stream", "text" if output is None else "none")  # half an object is no use to a reader
    return plan.Llm(name, arguments, output, stream, _list_models(context, name))


def _agent(context: StepContext, draft: StepDraft, names: Names) -> plan.Agent | None:
    value, at = draft.value, draft.value_at
    fields = context.reader.fields(AGENT, value, at, "`agent`")
    name = _model_of(context, fields, value, at)
    arguments = _prompt(context, fields, value, name, at, names)
    output = context.schema(fields["output"], (*at, "output")) if "output" in fields else None
    tools = fields.get("tools", [])
    raw_approvals = fields.get("approvals", {})
    _report_idle_agent(context, fields, at)
    for index, tool in enumerate(tools):
        _check_agent_tool(context, tool, (*at, "tools", index), raw_approvals)
    approvals = _compile_agent_approvals(context, raw_approvals, tools, (*at, "approvals"), names)
    until = None
    if "stop_when" in fields:
        place = names.with_roots(schemas={"answer": ANSWER})
        until = context.condition(fields["stop_when"], (*at, "stop_when"), place)
    if "memory" in fields and "messages" in fields:
        message = "`messages` are the whole conversation, and nothing is put in front of them; take `memory` out"
        context.reader.error((*at, "memory"), "agent.memory", message, key=True)
    if name is None or arguments is None or "tools" not in fields:
        return None
    agent = plan.Agent(
        name,
        arguments,
        tuple(tools),
        f"{draft.path}[]",
        output,
        fields.get("max_turns", 25),
        fields.get("stream", "text"),
        until,
        fields.get("memory", "thread"),
    )
    agent = _build_handing_over(context, agent, at)
    _Body(context, draft, names).add(draft.path, agent, approvals, at)
    return agent


def _report_idle_agent(context: StepContext, fields: Mapping[str, Json], at: Path) -> None:
    """Doubt an agent that has no tools, or no answer left to use what they return."""
    if fields.get("tools") == []:
        message = "an agent without tools has nothing to do but answer once; write an `llm` step, or name its tools"
        context.reader.warning((*at, "tools"), "agent.tools", message)
    elif fields.get("max_turns") == 1 and "stop_when" not in fields:
        message = (
            "with `max_turns: 1` an agent that calls a tool has no answer left, and fails with `agent.max_turns`; "
            "raise it"
        )
        context.reader.warning((*at, "max_turns"), "agent.turns", message)


def _build_handing_over(context: StepContext, agent: plan.Agent, at: Path) -> plan.Agent:
    """The agent with those of its tools that answer in its place."""
    tools = (context.declared.tools.get(name) for name in agent.tools)
    names = tuple(tool.name for tool in tools if isinstance(tool, plan.AgentTool) and tool.settings.get("hand_over"))
    if names and agent.output is not None:
        message = f"`{names[0]}` answers in this agent's place, and need not fit `output`; take one of them out"
        context.reader.error((*at, "output"), "agent.hand_over", message, key=True)
    return msgspec.structs.replace(agent, hands_over=names)


class _Body:
    """Adds the steps of an agent that its document does not list: an answer of its model, a call of each function that
    it may call, and the same for the agents among its tools."""

    def __init__(
        self,
        context: StepContext,
        draft: StepDraft,
        names: Names,
        around: tuple[str, ...] = (),
        counted: Iterator[int] | None = None,
    ) -> None:
        """`around`: the agents that this one is a tool of. `counted` counts all agents below the outermost."""
        self._context = context
        self._draft = draft
        self._names = names
        self._around = around
        self._counted = count(1) if counted is None else counted

    def add(self, path: str, agent: plan.Agent, approvals: Mapping[str, plan.Approval | None], at: Path) -> None:
        """`path` is that of the agent, `at` its place in the document."""
        context, draft = self._context, self._draft
        uses = _add_body(context, draft, path, agent, approvals)
        for index, name in enumerate(agent.tools):
            tool = uses.get(name)
            if isinstance(tool, plan.AgentTool):
                self._add_agent(tool, f"{agent.iteration}/call[]", (*at, "tools", index))

    def _add_agent(self, tool: plan.AgentTool, body: str, at: Path) -> None:
        """The step in which another agent is given a task."""
        context, draft, fields = self._context, self._draft, tool.settings
        if tool.name in self._around:
            message = f"the agent `{tool.name}` would be a tool of itself; take it out of one of them"
            context.reader.error(at, "agent.circle", message)
            return
        number = next(self._counted)
        if number > AGENTS_MAX:
            if number == AGENTS_MAX + 1:
                message = (
                    f"the agents among its tools, with theirs, are more than {AGENTS_MAX}: an agent counts wherever it "
                    "is a tool of another one; let fewer of them have each other"
                )
                context.reader.error(at, "agent.too_many", message)
            return
        place, path = ("tools", tool.name, "agent"), _use_path(body, tool.name)
        name = _model_of(context, fields, fields, place)
        parts: list[tuple[str, plan.Template]] = [("model", context.literal(name))]
        system = context.text(fields, "system", place, self._names)
        parts += [("system", system)] if system is not None else []
        parts.append(("prompt", plan.CallArguments(TASK)))
        output = context.schema(fields["output"], (*place, "output")) if "output" in fields else None
        raw_approvals = fields.get("approvals", {})
        _report_idle_agent(context, fields, place)
        for index, each in enumerate(fields["tools"]):
            _check_agent_tool(context, each, (*place, "tools", index), raw_approvals)
        approvals = _compile_agent_approvals(
            context, raw_approvals, fields["tools"], (*place, "approvals"), self._names
        )
        if name is None:
            return
        hands_over = bool(fields.get("hand_over"))
        agent = plan.Agent(
            name,
            Record(tuple(parts)),
            tuple(fields["tools"]),
            f"{path}[]",
            output,
            fields.get("max_turns", 25),
            "text" if hands_over else "steps",
            memory="thread" if hands_over else "none",
        )
        agent = _build_handing_over(context, agent, place)
        step = plan.Step(path=path, id=path, verb=agent, parent=body, of_agent=True, line=draft.line)
        context.add(step, 2 * draft.order + 1)
        _Body(context, draft, self._names, (*self._around, tool.name), self._counted).add(path, agent, approvals, place)


def _add_body(
    context: StepContext, draft: StepDraft, path: str, agent: plan.Agent, approvals: Mapping[str, plan.Approval | None]
) -> dict[str, plan.Tool]:
    """The steps of one agent; returns the kinds of its calls."""
    declared = context.declared.tools
    offered = [(name, tool) for name in agent.tools if (tool := declared.get(name.partition(".")[0])) is not None]
    body, models = agent.iteration, _list_models(context, agent.model)
    turn = plan.AgentTurn(agent.model, models, tuple(offered), agent.output, agent.stream, agent.memory)
    calls, each = f"{body}/call", f"{body}/call[]"
    uses = _uses(offered, approvals)
    steps = [
        plan.Step(path=body, id=body, verb=plan.Iteration(f"{body}/model"), parent=path, body="[]"),
        plan.Step(path=f"{body}/model", id=f"{body}/model", verb=turn, next=calls, parent=body),
        plan.Step(path=calls, id=calls, verb=plan.AgentCalls(each), parent=body),
        plan.Step(
            path=each,
            id=each,
            verb=plan.AnyCall("", uses=tuple((name, _use_path(each, name)) for name in uses)),
            parent=calls,
            body="[]",
        ),
        *(
            _use(context, each, name, tool, approvals, agent.stream != "none")
            for name, tool in uses.items()
            if not isinstance(tool, plan.AgentTool)
        ),
    ]
    for step in steps:
        context.add(msgspec.structs.replace(step, of_agent=True, line=draft.line), 2 * draft.order + 1)
    return uses


def _uses(offered: Sequence[tuple[str, plan.Tool]], approvals: Mapping[str, object]) -> dict[str, plan.Tool]:
    """The kinds of calls: of a function, or of any function of a tool (`tool.*`); those with an approval of their own
    are kinds of their own."""
    uses: dict[str, plan.Tool] = {}
    for name, tool in offered:
        use_name = name if not _has_functions(tool, name) else f"{tool.name}.*"
        uses[use_name] = tool
        if use_name.endswith(".*"):
            uses |= {each: tool for each in approvals if each.startswith(f"{tool.name}.") and not each.endswith(".*")}
    return uses


def _has_functions(tool: plan.Tool, name: str) -> bool:
    """Whether an entry of an agent's `tools` means all functions of a tool."""
    _, dot, function = name.partition(".")
    return function == plan.ANY_FUNCTION or (not dot and isinstance(tool, plan.McpTool | plan.HttpTool))


def _use_path(body: str, name: str) -> str:
    return f"{body}/{escape(name)}"


def _use(
    context: StepContext,
    body: str,
    name: str,
    tool: plan.PythonTool | plan.McpTool | plan.HttpTool | plan.A2ATool | plan.FrontendTool,
    approvals: Mapping[str, plan.Approval | None],
    expose: bool,
) -> plan.Step:
    """The step that performs calls of the function `name`, with its gate."""
    path = _use_path(body, name)
    people = isinstance(tool, plan.FrontendTool)
    timeout = None if people else tool.timeout
    default = context.declared.default_timeout
    call = plan.Call(tool, name.partition(".")[2], plan.CallArguments())
    return plan.Step(
        path=path,
        id=path,
        verb=call,
        parent=body,
        delivery=derive_delivery(call),
        timeout=None if people else timeout if timeout is not None else CALL_MS if default is None else default,
        approval=_compile_gate(context, name, tool, approvals),
        expose=expose and not people,
    )


def _compile_gate(
    context: StepContext, name: str, tool: plan.Tool, approvals: Mapping[str, plan.Approval | None]
) -> plan.Approval | None:
    """The approval that a call needs: the one that the author has given it, else that of the requester unless its class
    of effect, and those of the calls beside it, ask nobody."""
    for each in (name, f"{tool.name}.*", tool.name):
        if each in approvals:
            return approvals[each]
    declares = isinstance(tool, plan.PythonTool | plan.FrontendTool)
    if isinstance(tool, plan.AgentTool) or (declares and tool.effect in (None, "read")):
        return None
    template = context.literal(["requester"])
    requester = plan.Policy(template, context.declared.default_deadline, plan.Expiry("reject"), names_requester=True)
    asks = declares and tool.effect not in ASKS_NOBODY
    when = None if asks else plan.CallWrites()  # what can be taken back asks beside what is graver
    return _with_respond(plan.Approval(requester, when))


def _with_respond(gate: plan.Approval) -> plan.Approval:
    """The gate with a third answer, which the model is told; it says something."""
    options = tuple(dict.fromkeys((*gate.policy.options, RESPOND)))
    return msgspec.structs.replace(
        gate, policy=msgspec.structs.replace(gate.policy, options=options, reasons=gate.policy.reasons | {RESPOND})
    )


def _list_models(context: StepContext, name: str) -> tuple[plan.Model, ...]:
    """The model, then those that are asked where it does not answer."""
    models = context.declared.models
    first = models.get(name)
    names = (name, *(() if first is None else first.fallback))
    return tuple(model for each in dict.fromkeys(names) if (model := models.get(each)) is not None)


def _model_of(context: StepContext, fields: Mapping[str, Json], value: Mapping[str, Json], at: Path) -> str | None:
    if "model" in fields:
        return fields["model"] if _is_model(context, fields["model"], (*at, "model")) else None
    if context.declared.default_model is None and "model" not in value:
        hint = "; declare one under `models` and name it here or in `defaults`"
        if len(context.declared.models) == 1:
            hint = f"; write `model: {next(iter(context.declared.models))}`"
        context.reader.error(at, "model.missing", f"`model` is missing, and `defaults` has none{hint}", key=True)
    return context.declared.default_model


def _is_model(context: StepContext, name: str, at: Path) -> bool:
    return context.declared.incomplete or check_model(context.reader, context.declared.models, name, at)


def _prompt(
    context: StepContext,
    fields: Mapping[str, Json],
    value: Mapping[str, Json],
    name: str | None,
    at: Path,
    names: Names,
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
        _check_messages(context, messages, (*at, "messages"))
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


def _check_messages(context: StepContext, messages: Json, at: Path) -> None:
    """Report messages that no model is asked with, as far as they are written out."""
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, str) and is_hole(message):
            continue
        if not isinstance(message, Mapping):
            fault = f"expected a message `{{role: user, content: ...}}`, found {kind_of(message)}"
            context.reader.refuse((*at, index), "llm.messages", fault)
            continue
        role = message.get("role", "")
        if role not in ROLES and "${{" not in str(role):
            hint = _ROLES_ELSEWHERE.get(str(role)) or suggestion(str(role), ROLES)
            fault = f"expected one of the roles {', '.join(ROLES)}, found {kind_of(role)}{hint}"
            context.reader.refuse((*at, index, *(("role",) if "role" in message else ())), "llm.messages", fault)


ROLES: Final = ("system", "developer", "user", "assistant")
_ROLES_ELSEWHERE: Final = {
    "human": "; did you mean `user`?",
    **dict.fromkeys(("ai", "bot", "model"), "; did you mean `assistant`?"),
}
ANSWER: Final = record(number={}, text={}, calls={})
"""`answer` of `stop_when`. Its names alone are known: as numbers of any kind they are compared with whole numbers and
others."""


def _check_agent_tool(context: StepContext, text: str, at: Path, approvals: Collection[str]) -> None:
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
    if function != "*" and (
        dot or isinstance(tool, (plan.PythonTool, plan.A2ATool, plan.FrontendTool, plan.AgentTool))
    ):
        fits = can_call_function(context, tool, function, at, "")
        if fits and isinstance(tool, plan.PythonTool):
            find_python(context, tool, function, at)
    undeclared = (isinstance(tool, plan.PythonTool) and not tool.declared_effect) or (
        isinstance(tool, plan.McpTool) and tool.effect is None
    )
    if undeclared and not {text, name, f"{name}.*"} & set(approvals):
        named = any(each.startswith(f"{name}.") for each in approvals)
        calls = "each call that `approvals` doesn't name" if named else "each call"
        message = (
            f"the tool `{name}` doesn't say its `effect`, so the agent asks a person before {calls}; write "
            f"`effect: read`, `reversible`, `external` or `irreversible` in `tools.{name}`"
        )
        context.reader.warning(at, "agent.effect", message)


def _compile_agent_approvals(
    context: StepContext, value: Mapping[str, Json], tools: Iterable[str], at: Path, names: Names
) -> dict[str, plan.Approval | None]:
    approvals: dict[str, plan.Approval | None] = {}
    offered = list(tools)
    for name, raw in value.items():
        place = (*at, name)
        if not any(_covers(each, name) for each in offered):
            hint = suggestion(name, offered) or f"; it has {', '.join(offered) or 'none'}"
            message = f"the agent has no tool `{name}`{hint}"
            context.reader.error(place, "agent.approval", message, key=True)
        tool = context.declared.tools.get(name.partition(".")[0])
        if isinstance(tool, plan.AgentTool) or (isinstance(tool, plan.FrontendTool) and not tool.writes):
            message = f"`{name}` is an agent, which asks people itself; take it out of `approvals`"
            if isinstance(tool, plan.FrontendTool):
                message = (
                    f"`{name}` is a tool of the client, which asks people itself; take it out of `approvals`, or say "
                    f"in `tools.{name}` which `effect` it has beyond the client"
                )
            context.reader.error(place, "agent.approval", message, key=True)
        if raw == "none":
            approvals[name] = None
            if getattr(tool, "effect", None) == "irreversible":
                message = (
                    f"nobody is asked before the agent calls `{name}`, which can't be taken back; write who decides, "
                    "such as `{from: requester}`"
                )
                context.reader.warning(place, "agent.ungated", message)
        elif not isinstance(raw, Mapping):
            message = f"expected `none` or an approval such as `{{from: requester}}`, found {kind_of(raw)}"
            context.reader.error(place, "shape.type", message)
        else:
            arguments = _argument_names(context, tool, name.partition(".")[2], place)
            gate = approval(context, raw, place, names, arguments)
            guarded = None if tool is None else plan.Call(tool, name.partition(".")[2], plan.NOTHING)
            gate = with_still(context, gate, raw, place, names, arguments, guarded)
            if gate is not None:
                responds = "options" not in raw or RESPOND in gate.policy.options
                approvals[name] = _with_respond(gate) if responds else gate
                _refuse_custom_options(context, gate, place)
    return approvals


def _argument_names(context: StepContext, tool: plan.Tool | None, function: str, at: Path) -> Sequence[str] | None:
    """The arguments that calls of a function have, which people may edit; None where they are not known."""
    if not isinstance(tool, plan.PythonTool) or function == plan.ANY_FUNCTION:
        return None
    signature = find_python(context, tool, function, at)
    return None if signature is None or signature.unsure or signature.takes_any else signature.parameters


def _refuse_custom_options(context: StepContext, gate: plan.Approval, at: Path) -> None:
    custom = [option for option in gate.policy.options if option not in ("approve", "reject", RESPOND)]
    if custom:
        message = (
            f"an agent's approvals have approve, reject and {RESPOND}, found `{custom[0]}`; a denial and a response "
            "go to the model"
        )
        context.reader.error((*at, "options"), "agent.options", message)


def _covers(offered: str, name: str) -> bool:
    """Whether an entry of an agent's `tools` has the tool `name` (itself an entry of `approvals`)."""
    if offered == name:
        return True
    tool, _, function = offered.partition(".")
    other, _, _ = name.partition(".")
    return tool == other and (function in ("", "*") or name == f"{tool}.*")


def _gives(context: StepContext, draft: StepDraft) -> Json:
    value = draft.fields.get(draft.verb)
    schema = value.get("output", {"type": "string"}) if isinstance(value, Mapping) else {}
    return schema if isinstance(schema, Mapping) else {}


VERBS: Final = (
    VerbRules(
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
    VerbRules(
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
