"""The parameters of each verb, read and compiled (docs/language.md#verbs).

What is here looks at one step alone: which steps there are, their paths and who sees whom is the outline's and the
compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

from hai_flow.definition import plan
from hai_flow.definition.approvals import Approvals
from hai_flow.definition.children import Child, Children, nobody
from hai_flow.definition.declarations import Declarations
from hai_flow.definition.document import Path, kind_of, shorten, suggestion
from hai_flow.definition.expressions import Names
from hai_flow.definition.names import WORKFLOW
from hai_flow.definition.outline import Draft, loop_around
from hai_flow.definition.pieces import CODE, RESERVED_PREFIXES, Record, is_hole, texts
from hai_flow.definition.reference import SHAPES
from hai_flow.definition.schemas import JsonSchema

Json: TypeAlias = Any

(METHODS,) = SHAPES["http"].exactly_one
(_BODIES,) = SHAPES["http"].at_most_one
_CHILD: Final = re.compile(rf"(?P<name>{WORKFLOW})(@(?P<version>[1-9][0-9]{{0,8}}))?")
(_EMITTED,) = SHAPES["emit"].exactly_one


class Verbs(Approvals, Declarations):
    """Compiles parameters. The declarations it checks them against are filled in before the first verb."""

    children: Children = staticmethod(nobody)
    itself: tuple[Json, Json, Child | None] = (None, None, None)  # name, version, and what a parent knows of it

    def verb(self, draft: Draft, names: Names) -> plan.Verb | None:
        """The verb of a step that is no block; None after a finding."""
        value, at = draft.fields[draft.verb], (*draft.at, draft.verb)
        match draft.verb:
            case "call":
                return self._call(draft, value, at, names)
            case "http":
                return self._http(value, at, names)
            case "llm":
                return self._llm(value, at, names)
            case "agent":
                return self._agent(value, at, names)
            case "run":
                return self._run(draft, value, at, names)
            case "say":
                return self._say(value, at, names)
            case "emit":
                return self._emit(value, at, names)
            case "ask":
                return self.ask(value, at, names)
            case "approve":
                return self.approve(value, at, names)
            case "set":
                return self._set(value, at, names)
            case "wait":
                return self._wait(value, at, names)
            case "wait_for":
                return self._wait_for(value, at, names)
            case "break" | "continue":
                frame = loop_around(draft.chain)
                if frame is None:  # the lint says so
                    return None
                return plan.Break(frame.parent) if draft.verb == "break" else plan.Continue(frame.parent)
            case "return":
                return plan.Return(self.template(value, at, names))
            case _:
                return self._fail(value, at, names)

    # -- effects ---------------------------------------------------------------------------------------------------

    def _call(self, draft: Draft, value: str, at: Path, names: Names) -> plan.Call | None:
        arguments = draft.fields.get("with", {})
        template = self.template(arguments, (*draft.at, "with"), names)
        stream = draft.fields.get("stream")
        if isinstance(stream, Mapping):
            stream = self.reader.fields(SHAPES["stream"], stream, (*draft.at, "stream"), "`stream`")
        name, _, function = value.partition(".")
        if not self._is_tool(name, at):
            return None
        tool = self.tools[name]
        if function and not re.fullmatch(r"[A-Za-z0-9_./-]+", function):
            self.reader.error(at, "tool.function", f"expected `call: tool.function`, found `{shorten(value)}`")
            return None
        if tool is None or not self._function_fits(tool, function, at, "call: "):
            return None
        if isinstance(tool, plan.FrontendTool):
            if tool.parameters is not None:
                self._check_arguments(f"the tool `{tool.name}`", tool.parameters, "call", draft)
            for key in ("retry", "timeout", "approval", "delivery", "idempotency_key"):
                if key in draft.fields:
                    hint = "people have a `deadline` (in `tools.{name}.frontend`)"
                    if not tool.answered:
                        hint = "the call of `{name}` is only shown (`answer: none`)"
                    if key == "approval":
                        hint = "a frontend tool asks a person itself; put an `approve` step before it"
                    message = f"`{key}` is for effects; {hint.format(name=name)}"
                    self.reader.error((*draft.at, key), "call.people", message, key=True)
        into = self._into(stream, (*draft.at, "stream"), tool) if isinstance(stream, Mapping) else None
        return plan.Call(tool, function, template, into is not None or stream == "text", into)

    def _into(self, fields: Mapping[str, Json], at: Path, tool: plan.Tool) -> plan.Growing | None:
        """The call of a frontend's tool that grows by what this one yields."""
        if isinstance(tool, plan.FrontendTool):
            message = f"`{tool.name}` is a tool of the client: nothing of it streams; `stream` is for the others"
            self.reader.error(at, "stream.tool", message, key=True)
            return None
        if "to" not in fields or not self._is_tool(fields["to"], (*at, "to")):
            return None
        shown = self.tools[fields["to"]]
        if shown is None or "argument" not in fields:
            return None
        if not isinstance(shown, plan.FrontendTool) or shown.answered:
            message = (
                f"`{fields['to']}` has to be a `frontend` tool with `answer: none`: its call is shown while it grows"
            )
            self.reader.error((*at, "to"), "stream.tool", message)
            return None
        self._check_growing(shown, fields["argument"], (*at, "argument"))
        return plan.Growing(shown, fields["argument"])

    def _check_growing(self, tool: plan.FrontendTool, argument: str, at: Path) -> None:
        """The argument has to be a text, and the only one that the tool needs."""
        raw = {} if tool.parameters is None else tool.parameters.raw
        known = raw.get("properties", {})
        others = [name for name in raw.get("required", ()) if name != argument]
        if argument not in known:
            hint = suggestion(argument, known) or "; it has to be one of its `parameters`"
            self.reader.error(at, "stream.argument", f"`{tool.name}` has no argument `{shorten(argument)}`{hint}")
        elif others:
            message = f"`{tool.name}` needs `{others[0]}` as well, and only `{argument}` is streamed"
            self.reader.error(at, "stream.argument", message)
        elif isinstance(known[argument], Mapping) and known[argument].get("type", "string") != "string":
            message = f"`{argument}` of `{tool.name}` has to be a string: it grows by text"
            self.reader.error(at, "stream.argument", message)

    def _is_tool(self, name: str, at: Path) -> bool:
        if "${{" in name:
            message = "the name of a tool is literal: holes are not filled here; use a `switch` with one `call` each"
            self.reader.error(at, "tool.hole", message)
            return False
        if self.incomplete:
            self.tools.setdefault(name, None)
        if name in self.tools:
            return True
        hint = suggestion(name, self.tools) or "; declare it under `tools` (what is not declared can't be called)"
        self.reader.error(at, "tool.unknown", f"there is no tool `{shorten(name)}`{hint}")
        return False

    def _function_fits(self, tool: plan.Tool, function: str, at: Path, call: str) -> bool:
        """Whether a tool can be called by its name and this function. `call` is what stands before the name."""
        fault = _function_fault(tool, function, call)
        if fault is not None:
            self.reader.error(at, "tool.function", fault)
        return fault is None

    def _check_arguments(self, who: str, schema: plan.Schema, code: str, draft: Draft) -> None:
        """The keys of `with` against a schema, and those values that have no holes. `who` names what is called."""
        report = self.reader.refuse if code == "run" else self.reader.error
        raw, arguments = schema.raw, draft.fields.get("with", {})
        properties = raw.get("properties", {})
        at = (*draft.at, "with")
        strangers = [name for name in arguments if name not in properties]
        for name in raw.get("required", ()):
            given = name in arguments or any(suggestion(stranger, [name]) for stranger in strangers)
            if not given and "default" not in properties.get(name, {}):
                place = at if "with" in draft.fields else (*draft.at, draft.verb)
                message = f"{who} needs the argument `{name}`; add it under `with`"
                report(place, f"{code}.missing_argument", message, key=True)
        for name, value in arguments.items():
            if name in properties:
                self._check_argument(who, raw, properties[name], value, (*at, name), code)
            elif "patternProperties" not in raw and not raw.get("additionalProperties"):
                hint = suggestion(name, properties) or f"; it takes {', '.join(properties) or 'none'}"
                report((*at, name), f"{code}.unknown_argument", f"{who} has no argument `{name}`{hint}", key=True)

    def _check_argument(self, who: str, root: Json, schema: Json, value: Json, at: Path, code: str) -> None:
        if any("${{" in text for _, text in texts(value, ())) or not isinstance(schema, Mapping):
            return
        definitions = {key: part for key, part in root.items() if key in ("$defs", "definitions")}
        for fault in JsonSchema({**schema, **definitions}).findings(value)[:1]:
            report = self.reader.refuse if code == "run" else self.reader.error
            report(at, f"{code}.argument", f"the argument does not fit {who}: {fault['message']}")

    def _http(self, value: Json, at: Path, names: Names) -> plan.Http | None:
        fields = self.reader.fields(SHAPES["http"], value, at, "`http`")
        given = [method for method in METHODS if method in value]
        if len(given) != 1:
            self._no_method(value, given, at)
        bodies = [key for key in _BODIES if key in fields]
        if len(bodies) > 1:
            found = " and ".join(f"`{key}`" for key in bodies)
            message = f"expected at most one of `body`, `form`, `text` in `http`, found {found}; remove one"
            self.reader.error((*at, bodies[1]), "http.bodies", message, key=True)
        url = self.text(fields, given[0], at, names) if given else None
        parts: list[tuple[str, plan.Template]] = []
        for key in ("query", "headers", "auth", *_BODIES):
            if key in fields:
                here = names.with_roots("secrets") if key in ("headers", "auth") else names
                parts.append((key, self.template(fields[key], (*at, key), here)))
        if "auth" in fields:
            self.check_auth(fields["auth"], (*at, "auth"))
        expect = None
        if "expect" in fields:
            expect = self.condition(fields["expect"], (*at, "expect"), names.with_roots("response"))
        if url is None or len(given) != 1:
            return None
        method = self.literal(given[0].upper())
        return plan.Http(Record((("method", method), ("url", url), *parts)), expect)

    def _no_method(self, value: Mapping[str, Json], given: list[str], at: Path) -> None:
        listed = ", ".join(f"`{method}`" for method in METHODS)
        if given:
            found = " and ".join(f"`{method}`" for method in given)
            message = f"expected one of {listed} in `http`, found {found}; make it {len(given)} steps"
            self.reader.error((*at, given[1]), "http.method", message, key=True)
        elif all(key in SHAPES["http"].words for key in value):
            message = f"expected one of {listed} in `http`, found none; write `get: https://...`"
            self.reader.error(at, "http.method", message, key=True)

    def _llm(self, value: Json, at: Path, names: Names) -> plan.Llm | None:
        fields = self.reader.fields(SHAPES["llm"], value, at, "`llm`")
        name = self._model_of(fields, value, at)
        arguments = self._prompt(fields, value, name, at, names)
        output = self.schema(fields["output"], (*at, "output")) if "output" in fields else None
        if name is None or arguments is None:
            return None
        stream = fields.get("stream", "text" if output is None else "none")  # what is half an object says nothing
        return plan.Llm(name, arguments, output, stream, self.models_asked(name))

    def _agent(self, value: Json, at: Path, names: Names) -> plan.Agent | None:
        fields = self.reader.fields(SHAPES["agent"], value, at, "`agent`")
        name = self._model_of(fields, value, at)
        arguments = self._prompt(fields, value, name, at, names)
        output = self.schema(fields["output"], (*at, "output")) if "output" in fields else None
        tools = fields.get("tools", [])
        for index, tool in enumerate(tools):
            self._check_agent_tool(tool, (*at, "tools", index))
        approvals = self._agent_approvals(fields.get("approvals", {}), tools, (*at, "approvals"), names)
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

    def _model_of(self, fields: Mapping[str, Json], value: Mapping[str, Json], at: Path) -> str | None:
        if "model" in fields:
            return fields["model"] if self.check_model(fields["model"], (*at, "model")) else None
        if self.default_model is None and "model" not in value:
            hint = "; declare one under `models` and name it here or in `defaults`"
            if len(self.models) == 1:
                hint = f"; write `model: {next(iter(self.models))}`"
            self.reader.error(at, "model.missing", f"`model` is missing, and `defaults` has none{hint}", key=True)
        return self.default_model

    def _prompt(
        self, fields: Mapping[str, Json], value: Mapping[str, Json], name: str | None, at: Path, names: Names
    ) -> plan.Template | None:
        """The arguments of a model: `{model, system?, prompt? | messages?}`."""
        parts: list[tuple[str, plan.Template]] = [("model", self.literal(name))]
        for key in ("system", "prompt"):
            text = self.text(fields, key, at, names)
            parts += [(key, text)] if text is not None else []
        if "messages" in fields:
            messages = fields["messages"]
            if not isinstance(messages, (str, list)) or (isinstance(messages, str) and not is_hole(messages)):
                message = f"expected a list of messages `{{role, content}}` or a hole, found {kind_of(messages)}"
                self.reader.error((*at, "messages"), "llm.messages", message)
            parts.append(("messages", self.template(messages, (*at, "messages"), names)))
        if "prompt" in value and "messages" in value:
            message = "expected `prompt` or `messages`, found both; put the prompt behind the messages as one of them"
            self.reader.error((*at, "messages"), "llm.prompt", message, key=True)
        elif "prompt" not in value and "messages" not in value:
            strange = [key for key in value if suggestion(key, ("prompt", "messages")) and key not in fields]
            if not strange:
                self.reader.error(at, "llm.prompt", "`prompt` (or `messages`) is missing: say what to answer", key=True)
            return None
        return Record(tuple(parts))

    def _check_agent_tool(self, text: str, at: Path) -> None:
        name, dot, function = text.partition(".")
        if name == "client" and name not in self.tools:
            message = "tools that a client only advertises can't be offered; declare them with `frontend` in `tools`"
            self.reader.error(at, "tool.client", message)
            return
        if not self._is_tool(name, at):
            return
        tool = self.tools[name]
        if tool is None:
            return
        if function != "*" and (dot or isinstance(tool, (plan.PythonTool, plan.FrontendTool))):
            self._function_fits(tool, function, at, "")
        undeclared = (isinstance(tool, plan.PythonTool) and not tool.declared_effect) or (
            isinstance(tool, plan.McpTool) and tool.effect is None
        )
        if undeclared:
            message = (
                f"the tool `{name}` doesn't say its `effect`, so the agent asks a person before each call; write "
                f"`effect: read` or `effect: write` in `tools.{name}`"
            )
            self.reader.warning(at, "agent.effect", message)

    def _agent_approvals(
        self, value: Mapping[str, Json], tools: Iterable[str], at: Path, names: Names
    ) -> dict[str, plan.Approval | None]:
        approvals: dict[str, plan.Approval | None] = {}
        offered = list(tools)
        for name, raw in value.items():
            place = (*at, name)
            if not any(_covers(each, name) for each in offered):
                hint = suggestion(name, offered) or f"; it has {', '.join(offered) or 'none'}"
                message = f"the agent has no tool `{name}`{hint}"
                self.reader.error(place, "agent.approval", message, key=True)
            if raw == "none":
                approvals[name] = None
            elif not isinstance(raw, Mapping):
                message = f"expected `none` or an approval such as `{{from: requester}}`, found {kind_of(raw)}"
                self.reader.error(place, "shape.type", message)
            else:
                gate = self.approval(raw, place, names, None)
                if gate is not None:
                    approvals[name] = gate
                    self._no_custom_options(gate, place)
        return approvals

    def _no_custom_options(self, gate: plan.Approval, at: Path) -> None:
        custom = [option for option in gate.policy.options if option not in ("approve", "reject")]
        if custom:
            message = (
                f"an agent's approvals have no options of their own, found `{custom[0]}`; its denial goes to the model"
            )
            self.reader.error((*at, "options"), "agent.options", message)

    def _run(self, draft: Draft, value: str, at: Path, names: Names) -> plan.Run | None:
        arguments = self.template(draft.fields.get("with", {}), (*draft.at, "with"), names)
        child = _CHILD.fullmatch(value)
        if child is None:
            hint = "; it is literal, holes are not filled here" if "${{" in value else ""
            message = f"expected a workflow's name, or name@version, found `{shorten(value)}`{hint}"
            self.reader.error(at, "run.name", message)
            return None
        known = self.child(value)
        if known is not None:
            self._check_arguments(f"the workflow `{value}`", known.input, "run", draft)
        detach = draft.fields.get("detach", False)
        if detach and "timeout" in draft.fields:
            message = (
                "`timeout` bounds the work of a child that is waited for; nobody waits for a run with `detach: true`: "
                f"write `limits: {{duration: ...}}` in `{child['name']}`"
            )
            self.reader.error((*draft.at, "timeout"), "run.detached_timeout", message, key=True)
        version = child["version"]
        return plan.Run(child["name"], int(version) if version else None, arguments, detach)

    def child(self, reference: str) -> Child | None:
        """The workflow that `run` names, where it is known. A workflow may run itself."""
        named = _CHILD.fullmatch(reference)
        if named is None:
            return None
        name, version = named["name"], int(named["version"]) if named["version"] else None
        own_name, own_version, itself = self.itself
        if name == own_name and version in (None, own_version):
            return itself
        return self.children(name, version)

    # -- messages --------------------------------------------------------------------------------------------------

    def _say(self, value: Json, at: Path, names: Names) -> plan.Say | None:
        if isinstance(value, str):
            return plan.Say("text", self.template(value, at, names, text=True))
        fields = self.reader.fields(SHAPES["say"], value, at, "`say`")
        kinds = [kind for kind in ("text", "thinking", "fold", "output") if kind in fields]
        if len(kinds) != 1:
            if kinds or not (isinstance(value, Mapping) and value.keys() - set(SHAPES["say"].words)):
                found = " and ".join(f"`{kind}`" for kind in kinds) or "none"
                self.reader.error(
                    at, "say.kind", f"expected one of `text`, `thinking`, `fold`, `output` in `say`, found {found}"
                )
            return None
        kind: Any = kinds[0]
        self._check_message(kind, fields[kind], (*at, kind))
        parts = {
            key: self.template(fields[key], (*at, key), names)
            for key in ("block_id", "layout", "style")
            if key in fields
        }
        content = self.template(fields[kind], (*at, kind), names, text=isinstance(fields[kind], str))
        return plan.Say(kind, content, **parts)

    def _check_message(self, kind: str, content: Json, at: Path) -> None:
        if kind == "fold":
            self.reader.fields(SHAPES["fold"], content, at, "`fold`")
            position = content.get("position")
            if isinstance(position, str) and position not in ("", "start", "end") and "${{" not in position:
                self.reader.error((*at, "position"), "say.position", f"expected `start` or `end`, found `{position}`")
        elif kind == "output" and "type" not in content:
            self.reader.error(at, "shape.missing_key", "`type` is missing in `output`", key=True)
        elif kind == "thinking" and isinstance(content, Mapping) and "content" not in content:
            self.reader.error(at, "shape.missing_key", "`content` is missing in `thinking`", key=True)

    def _emit(self, value: Json, at: Path, names: Names) -> plan.Emit | None:
        fields = self.reader.fields(SHAPES["emit"], value, at, "`emit`")
        kinds = [kind for kind in _EMITTED if kind in value]
        if len(kinds) != 1:
            if kinds or all(key in _EMITTED for key in value):
                found = " and ".join(f"`{kind}`" for kind in kinds) or "none"
                message = f"expected one of `custom`, `raw`, `collaboration` in `emit`, found {found}"
                self.reader.error((*at, kinds[1]) if kinds else at, "emit.kind", message, key=True)
            return None
        kind: Any = kinds[0]
        if kind not in fields:
            return None
        inner = (*at, kind)
        content = self.reader.fields(SHAPES[kind], fields[kind], inner, f"`{kind}`")
        if kind == "collaboration" and "task" in content:
            self.reader.fields(SHAPES["task"], content["task"], (*inner, "task"), "`task`")
        return plan.Emit(cast("Any", kind), self.template(fields[kind], inner, names))

    # -- state -----------------------------------------------------------------------------------------------------

    def _set(self, value: Json, at: Path, names: Names) -> plan.Set | None:
        if isinstance(value, list):
            for index, raw in enumerate(value):
                self._check_operation(raw, (*at, index))
            return plan.Set(ops=self.template(value, at, names))
        if not value:
            self.reader.error(at, "set.empty", "expected at least one state variable in `set`, found none")
            return None
        pairs: list[tuple[str, plan.Template]] = []
        for key, item in value.items():
            self._check_target(key, (*at, key), pointer_form=key.startswith("/"))
            pairs.append((key, self.template(item, (*at, key), names)))
            self._check_value(key, item, (*at, key), names)
        return plan.Set(assign=tuple(pairs))

    def _check_value(self, name: str, value: Json, at: Path, names: Names) -> None:
        """A literal value against the variable's type; of a hole, whether it may be null."""
        variable = self.state.get(name)
        if variable is None:
            return
        nullable = names.may_be_null(value)
        if nullable is not None and not _takes_null(variable):
            message = (
                f"`{nullable}` may be null, which the state `{name}` does not take; give the step "
                f"`if: {nullable} != null`, or set a value in its place"
            )
            self.reader.warning(at, "set.nullable", message)
        if any("${{" in text for _, text in texts(value, ())):
            return
        schema = variable.schema
        if variable.reduce == "append":
            items = schema.raw.get("items")
            if not isinstance(items, Mapping) or "$ref" in str(items):
                return
            schema = JsonSchema(items)
        elif variable.reduce == "merge" or (value is None and "default" not in variable.schema.raw):
            return
        for fault in schema.findings(value)[:1]:
            what = "an element of " if variable.reduce == "append" else ""
            self.reader.error(at, "set.type", f"the value does not fit {what}the state `{name}`: {fault['message']}")

    def _check_operation(self, raw: Json, at: Path) -> None:
        fields = self.reader.fields(SHAPES["operation"], raw, at, "an operation of `set`")
        op = fields.get("op")
        if op in ("add", "replace", "test") and "value" not in fields:
            self.reader.error(at, "shape.missing_key", f"`value` is missing: `{op}` needs one")
        if op in ("move", "copy") and "from" not in fields:
            self.reader.error(at, "shape.missing_key", f"`from` is missing: `{op}` needs one")
        for key in ("path", "from") if op else ():
            if key in fields and fields[key] == "" and op != "test":
                self.reader.error((*at, key), "set.root", "the whole state can't be replaced; name a variable: /name")
            elif key in fields and fields[key] != "":
                self._check_target(fields[key], (*at, key), pointer_form=True, key=False)

    def _check_target(self, target: str, at: Path, *, pointer_form: bool, key: bool = True) -> None:
        """That `target` (a state name or a JSON Pointer) begins at a declared variable, and may be set so."""
        name = target
        if pointer_form:
            if not target.startswith("/"):
                message = f"expected a JSON Pointer such as /name/0, found `{shorten(target)}`"
                self.reader.error(at, "set.pointer", message, key=key)
                return
            name = target.split("/")[1].replace("~1", "/").replace("~0", "~")
        if name not in self.state:
            hint = suggestion(name, self.state) or "; declare it under `state`"
            self.reader.error(at, "set.unknown", f"there is no state variable `{shorten(name)}`{hint}", key=key)
            return
        variable = self.state[name]
        if pointer_form and variable is not None and variable.reduce:
            message = f"`{name}` has `reduce: {variable.reduce}`: set it by its name, not by a pointer"
            self.reader.error(at, "set.reduce", message, key=key)

    # -- time and signals ------------------------------------------------------------------------------------------

    def _wait(self, value: Json, at: Path, names: Names) -> plan.Wait | None:
        fields = self.reader.fields(SHAPES["wait"], value, at, "`wait`")
        given = [key for key in ("for", "until") if key in value]
        if len(given) != 1:
            if given or all(key in SHAPES["wait"].words for key in value):
                found = " and ".join(f"`{key}`" for key in given) or "none"
                message = f"expected one of `for`, `until` in `wait`, found {found}"
                self.reader.error(at, "wait.kind", message)
            return None
        if "until" in fields:
            self._check_instant(fields["until"], (*at, "until"))
            return plan.Wait(until=self.template(fields["until"], (*at, "until"), names, text=True))
        duration = self.duration(fields, "for", at, names)
        return plan.Wait(for_=duration) if duration is not None else None

    def _check_instant(self, text: str, at: Path) -> None:
        if "${{" in text:
            return
        if JsonSchema({"type": "string", "format": "date-time"}).findings(text):
            message = f"expected an instant with its offset such as 2026-03-02T09:00:00Z, or a hole, found {text!r}"
            self.reader.error(at, "wait.until", message)

    def _wait_for(self, value: Json, at: Path, names: Names) -> plan.WaitFor | None:
        fields = self.reader.fields(SHAPES["wait_for"], value, at, "`wait_for`")
        kinds = [key for key in ("event", "any", "all") if key in value]
        deadline = self.duration(fields, "deadline", at, names) or self.default_deadline
        _, expiry = self.on_deadline(fields, at, names, ("fail", "default"), escalates=False)
        if len(kinds) != 1:
            if kinds or all(key in SHAPES["wait_for"].words for key in value):
                found = " and ".join(f"`{kind}`" for kind in kinds) or "none"
                message = f"expected one of `event`, `any`, `all` in `wait_for`, found {found}"
                self.reader.error((*at, kinds[1]) if kinds else at, "wait_for.kind", message, key=True)
            return None
        kind: Any = kinds[0]
        if kind not in fields:
            return None
        here = names.with_roots("event")
        if kind == "event":
            given = {key: fields[key] for key in ("event", "match") if key in fields}
            subscriptions = [self._subscription(given, at, here)]
        else:
            if "match" in value:
                message = f"`match` belongs to each entry of `{kind}`: move it there"
                self.reader.error((*at, "match"), "wait_for.match", message, key=True)
            entries = enumerate(fields[kind])
            subscriptions = [self._subscription(raw, (*at, kind, index), here) for index, raw in entries]
        mode: Any = "one" if kind == "event" else kind
        sound = tuple(each for each in subscriptions if each is not None)
        pause_clock = fields.get("pause_clock", "run")
        return plan.WaitFor(mode, sound, deadline, expiry, pause_clock) if sound else None

    def _subscription(self, raw: Json, at: Path, names: Names) -> plan.Subscription | None:
        fields = self.reader.fields(SHAPES["subscription"], raw, at, "an event of `wait_for`")
        match = self.condition(fields["match"], (*at, "match"), names) if "match" in fields else None
        if "${{" in str(fields.get("event", "")):
            message = "an event's type is literal: holes are not filled here; tell events apart by `match`"
            self.reader.error((*at, "event"), "wait_for.hole", message)
            return None
        return plan.Subscription(fields["event"], match) if "event" in fields else None

    def _fail(self, value: Json, at: Path, names: Names) -> plan.Fail | None:
        if isinstance(value, str):
            return plan.Fail(self.template(value, at, names, text=True))
        fields = self.reader.fields(SHAPES["fail"], value, at, "`fail`")
        message = self.text(fields, "message", at, names)
        code = fields.get("code", "fail")
        self._check_own_code(code, (*at, "code"))
        data = self.template(fields["data"], (*at, "data"), names) if "data" in fields else None
        return plan.Fail(message, code, data) if message is not None else None

    def _check_own_code(self, code: str, at: Path) -> None:
        if not CODE.fullmatch(code):
            self.reader.error(at, "fail.code", f"expected a code such as `stock.empty`, found `{shorten(code)}`")
        elif code.partition(".")[0] in RESERVED_PREFIXES:
            prefix = code.partition(".")[0]
            self.reader.error(
                at, "fail.reserved_code", f"codes that begin with `{prefix}` are the engine's own; choose another"
            )


def _takes_null(variable: plan.StateVariable) -> bool:
    """Whether a `set` of null fits: replacing the variable, or as one more element."""
    if variable.reduce is None:
        return not variable.schema.findings(None)
    items = variable.schema.raw.get("items")
    return variable.reduce != "append" or not isinstance(items, Mapping) or not JsonSchema(items).findings(None)


def _function_fault(tool: plan.Tool, function: str, call: str) -> str | None:
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
        case plan.McpTool(allow=allow) | plan.HttpTool(allow=allow):
            if not function:
                return f"the tool `{name}` has many functions; name one: `{call}{name}.function`"
            if allow is not None and function not in allow:
                hint = suggestion(function, allow) or f"; it has {', '.join(allow)}"
                return f"the tool `{name}` does not `allow` the function `{function}`{hint}"
            return None


def _covers(offered: str, name: str) -> bool:
    """Whether an entry of an agent's `tools` has the tool `name` (itself an entry of `approvals`)."""
    if offered == name:
        return True
    tool, _, function = offered.partition(".")
    other, _, _ = name.partition(".")
    return tool == other and (function in ("", "*") or name == f"{tool}.*")
