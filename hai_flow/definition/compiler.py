"""From a document's bytes to a plan, or to every finding at once (docs/language.md).

Three passes. The *outline* reads the shape of every step and gives each its path, so that every id is known. The
*compilation* walks the outline in order, knowing at each place which steps are visible, and compiles expressions. The
*lint* looks at steps together.

Tools written as `python: pkg.mod` or `python: pkg.mod:fn` are found by import. `python: registered` means a function
registered in code by the decorator, under the name that the call uses (`shop.refund`, or `shop` for `call: shop`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias

from hai_flow.definition import plan
from hai_flow.definition.approvals import OPTIONS, literal_form
from hai_flow.definition.children import Child, Children, nobody
from hai_flow.definition.declarations import state_raw
from hai_flow.definition.document import Document, Path, kind_of, parse, shorten
from hai_flow.definition.expressions import ALWAYS, ENVELOPE, ROOTS, CompiledExpression, Names, Types
from hai_flow.definition.fixes import completed
from hai_flow.definition.lint import lint
from hai_flow.definition.outline import Chain, Clause, Draft, Frame, Outline
from hai_flow.definition.reader import Reader, TooMany
from hai_flow.definition.reference import EFFECTS, SHAPES, SHARED
from hai_flow.definition.schemas import JsonSchema
from hai_flow.definition.scope import END, Place
from hai_flow.definition.triggers import Triggers
from hai_flow.definition.uses import KIND, Part, label, opened
from hai_flow.definition.verbs import Verbs
from hai_flow.errors import DefinitionError, Finding

Json: TypeAlias = Any


def compile_workflow(
    source: bytes, file: str = "<workflow>", *, children: Children = nobody, stored: bool = False
) -> plan.Plan:
    """The plan of a workflow. Raises `DefinitionError` with every finding, in document order, if any is an error.

    `children` finds the workflows that it runs, where they are known. `stored`: it was published, maybe before some of
    the rules were made; what those refuse is a warning.
    """
    compiled, findings = _compile(source, file, children, stored)
    if compiled is None:
        raise DefinitionError(findings)
    return compiled


def check_workflow(source: bytes, file: str = "<workflow>", *, children: Children = nobody) -> list[Finding]:
    """Every error and warning of a workflow, in document order. Never raises."""
    return _compile(source, file, children, False)[1]


def _compile(source: bytes, file: str, children: Children, stored: bool) -> tuple[plan.Plan | None, list[Finding]]:
    document, parts = _documents(source, file)
    reader = Reader(document, stored=stored)
    compiler = _Compiler(document, reader, source, children, parts)
    compiled = None
    # Without a whole tree (the scanner stopped) every further finding would be about what could not be read.
    if document.value is not None or not document.findings:
        with suppress(TooMany):
            compiled = compiler.compile()
    findings = [finding for each in (reader, *compiler.shared) for finding in _in_order(each)]
    if any(finding.severity == "error" for finding in findings):
        return None, findings
    assert compiled is not None, "a document without errors compiles"
    return replace(compiled, warnings=tuple(findings)), findings


def _documents(source: bytes, file: str) -> tuple[Document, list[Part]]:
    """The workflow, and the documents behind it that it uses. Without `use` there must be none, which reading says."""
    first, parts = opened(source)
    document = parse(first, file)
    if parts and not (isinstance(document.value, Mapping) and "use" in document.value):
        return parse(source, file), []
    return document, parts


def _in_order(reader: Reader) -> list[Finding]:
    findings = sorted(reader.findings, key=lambda finding: (finding.line, finding.column))
    return completed(reader.document, findings)


_TIMEOUTS: Final = {"http": 30_000, "call": 300_000, "llm": 300_000, "agent": 1_800_000}  # milliseconds
_NOT_SENT: Final = (
    "{name} is not here: what is published holds what it uses; let `hai-flow publish` send it along, or put the file "
    "behind this document, after a line `---`"
)
_TEXT: Final = {"type": "string"}
_EVENT: Final = {
    "type": "object",
    "properties": {"id": {}, "type": _TEXT, "data": {}, "at": {}},
    "required": ["id", "type", "data", "at"],
    "additionalProperties": False,
}


class _Compiler(Verbs, Triggers):
    def __init__(
        self, document: Document, reader: Reader, source: bytes, children: Children, parts: Sequence[Part]
    ) -> None:
        super().__init__(reader)
        self.parts = parts
        self.shared: list[Reader] = []
        self.children = children
        self.document = document
        self.source = source
        self.outline = Outline(reader)
        self.steps: dict[str, plan.Step] = {}
        self.order: dict[str, int] = {}  # path -> place in the document; a loop's body stands behind the loop

    # -- the document ----------------------------------------------------------------------------------------------

    def compile(self) -> plan.Plan | None:
        """The plan; None, or one with holes in it, where findings say so."""
        if self._is_test_file():
            return None
        fields = self.reader.fields(SHAPES["document"], self.document.value, (), "the workflow")
        if not fields:
            return None
        self.read_state(fields.get("state", {}))
        input_schema = self.read_input(fields.get("input", {}))
        self.itself = (fields.get("name"), fields.get("version"), Child(input_schema))
        steps, clauses, finally_ = self.outline.document(fields)
        self.fail_codes = self.outline.fail_codes
        types = Types(input_schema.raw, state_raw(self.state))
        first = self._names(types, Place(self.outline, (), 0))
        used = self._used(fields)
        for reader, given in used:
            with self._reading(reader):
                self.read_models(given.get("models", {}), first)
        self.read_models(fields.get("models", {}), first)
        self.check_fallbacks()
        default_retry, notify = self.read_defaults(fields.get("defaults", {}), first)
        for reader, given in used:
            with self._reading(reader):
                self.read_tools(given.get("tools", {}), first)
                self.read_roles(given.get("roles", {}))
        self.read_tools(fields.get("tools", {}), first)
        self.read_roles(fields.get("roles", {}))
        self.own_name = fields.get("name")
        triggers = self.read_triggers(fields.get("triggers", ()), first, input_schema)
        limits = self.read_limits(fields.get("limits", {}))
        concurrency = self.read_concurrency(fields["concurrency"], first) if "concurrency" in fields else None
        types = self._types(input_schema)
        top = self._names(types, Place(self.outline, (), 0))
        default_notify = self.notify({"notify": notify}, ("defaults",), top)
        self._compile_list(steps, top)
        catch = self._compile_catch(clauses, top)
        self._compile_list(finally_, top)
        output = None
        if "output" in fields:
            output = self.template(fields["output"], ("output",), self._names(types, Place(self.outline, (), END)))
        for each in (steps, *(clause.steps for clause in clauses), finally_):
            lint(self, each)
        if "steps" not in fields or "name" not in fields or "version" not in fields:
            return None
        return plan.Plan(
            name=fields["name"],
            version=fields["version"],
            sha256=hashlib.sha256(self.source).digest(),
            source=self.source,
            title=fields.get("title", ""),
            description=fields.get("description", ""),
            input=input_schema,
            state={name: variable for name, variable in self.state.items() if variable is not None},
            state_schema=_schema_or_any(state_raw(self.state)),
            tools={name: tool for name, tool in self.tools.items() if tool is not None},
            steps=dict(sorted(self.steps.items(), key=lambda entry: self.order[entry[0]])),
            ids={name: draft.path for name, draft in self.outline.ids.items()},
            first=steps[0].path if steps else "",
            output=output,
            catch=catch,
            finally_=finally_[0].path if finally_ else None,
            models={name: each for name, each in self.models.items() if each is not None},
            roles={name: members for name, members in self.roles.items() if members is not None},
            triggers=triggers,
            limits=limits,
            concurrency=concurrency,
            default_retry=default_retry,
            default_notify=default_notify,
        )

    # -- what it uses ----------------------------------------------------------------------------------------------

    def _used(self, fields: Mapping[str, Json]) -> list[tuple[Reader, dict[str, Json]]]:
        """The documents that the workflow uses, each with who reads it; names that stand twice are findings."""
        named = [each for each in fields.get("use", ()) if isinstance(each, str)]
        used: list[tuple[Reader, dict[str, Json]]] = []
        for index, name in enumerate(named):
            part = self.parts[index] if index < len(self.parts) else Part(b"", _NOT_SENT.format(name=shorten(name, 80)))
            if part.fault:
                self.incomplete = True
                self.reader.error(("use", index), "use.missing", part.fault)
                continue
            reader = Reader(parse(part.text, label(self.document.file, name)), stored=self.reader.stored)
            self.shared.append(reader)
            if reader.document.value is None and reader.findings:
                self.incomplete = True
                continue
            given = reader.fields(SHARED, reader.document.value, (), "a file that is used")
            self.incomplete = self.incomplete or bool(reader.findings)
            used.append((reader, given))
        if len(self.parts) > len(named):
            self.reader.error(("use",), "use.more", f"expected {len(named)} documents behind this one, found more")
        self._refuse_twins([*used, (self.reader, dict(fields))])
        return used

    def _refuse_twins(self, documents: Sequence[tuple[Reader, Mapping[str, Json]]]) -> None:
        for section in ("models", "tools", "roles"):
            known: dict[str, str] = {}
            for reader, fields in documents:
                for name in fields.get(section, ()):
                    if name in known:
                        message = f"`{name}` of `{section}` stands in {known[name]} already; take one of them out"
                        reader.error((section, name), "use.twice", message, key=True)
                    known.setdefault(name, reader.document.file)

    @contextmanager
    def _reading(self, reader: Reader) -> Iterator[None]:
        """Inside, what is wrong is told of another document."""
        own, self.reader = self.reader, reader
        try:
            yield
        finally:
            self.reader = own

    def _is_test_file(self) -> bool:
        """Whether this is another kind of document; nothing else is said about one."""
        value = self.document.value
        if isinstance(value, Mapping) and value.get("hai") == KIND:
            message = f"expected a workflow (`hai: flow/v1`), found `{KIND}`: it is checked with what uses it"
            self.reader.error(("hai",), "document.kind", message)
            return True
        if not isinstance(value, Mapping) or not str(value.get("hai")).startswith("test/"):
            return False
        message = f"expected a workflow (`hai: flow/v1`), found `{value['hai']}`; run tests with `hai-flow test`"
        self.reader.error(("hai",), "document.kind", message)
        return True

    def _names(self, types: Types, place: Place, base: Names | None = None) -> Names:
        """What may be named at a place. `base` has the roots and guards of what is around."""
        if base is None:
            return Names(types, ALWAYS, visible=place, explain=place.explain, absent=place)
        return Names(base.types, base.roots, place, base.guarded, place.explain, place)

    def _at(self, names: Names, draft: Draft, chain: Chain, order: int, **more: Any) -> Names:
        """What may be named at another place of the same step."""
        return self._names(names.types, Place(self.outline, chain, order, **more), names)

    # -- types -----------------------------------------------------------------------------------------------------

    def _types(self, input_schema: JsonSchema) -> Types:
        """What is known of the type of each step's output and approval."""
        outputs: dict[str, Json] = {}
        approvals: dict[str, Json] = {}
        ungated: set[str] = set()
        for name, draft in self.outline.ids.items():
            outputs[name] = self._output_type(draft)
            gate = draft.fields.get("approve" if draft.verb == "approve" else "approval")
            if isinstance(gate, Mapping):
                approvals[name] = _envelope(gate)
                if draft.verb == "approve":
                    outputs[name] = approvals[name]
            elif draft.verb:
                ungated.add(name)
        return Types(input_schema.raw, state_raw(self.state), outputs, approvals, {}, ungated)

    def _output_type(self, draft: Draft) -> Json:
        value = draft.fields.get(draft.verb)
        match draft.verb:
            case "call":
                tool = self.tools.get(value.partition(".")[0]) if isinstance(value, str) else None
                return _answer_type(tool) if isinstance(tool, plan.FrontendTool) else {}
            case "run" if draft.fields.get("detach") is True:
                return _record(run_id=_TEXT)
            case "run":
                child = self.child(value) if isinstance(value, str) else None
                return child.output if child is not None else {}
            case "http":
                return _record(status={"type": "integer"}, headers={}, json={}, text=_TEXT, url=_TEXT)
            case "llm" | "agent" if isinstance(value, Mapping):
                schema = value.get("output", _TEXT)
                return schema if isinstance(schema, Mapping) else {}
            case "ask" if isinstance(value, Mapping):
                form = value.get("form")
                return literal_form(form) if isinstance(form, Mapping) else {}
            case "switch":
                return _record(case={})
            case "parallel":
                if type(draft.fields.get("join")) is int:
                    return _record(winners={"type": "array", "items": _TEXT})
                return _record(winner={})
            case "repeat":
                return _record(count={"type": "integer"})
            case "for_each":
                return {"type": "array", "items": _record(key=_TEXT, status=_TEXT, output={}, error={})}
            case "wait_for" if isinstance(value, Mapping):
                if isinstance(value.get("on_deadline"), Mapping):  # the default may be anything
                    return {}
                return {"type": "array", "items": _EVENT} if "all" in value else _EVENT
            case _:
                return {}

    # -- lists and steps -------------------------------------------------------------------------------------------

    def _compile_list(self, drafts: Sequence[Draft], names: Names) -> None:
        for draft in drafts:
            place = Place(self.outline, draft.chain, draft.order, draft)
            self._compile_step(draft, self._names(names.types, place, names))

    def _compile_step(self, draft: Draft, names: Names) -> None:
        fields, at = draft.fields, draft.at
        condition = None
        if "if" in fields:
            condition = self.condition(fields["if"], (*at, "if"), names)
            names = names.with_guards(condition)
        verb = self._compile_verb(draft, names)
        gate = self._gate(draft, names) if "approval" in fields else None
        handlers = self._compile_handlers(draft, names)
        catch = self._compile_catch(draft.catch, names)
        self._compile_list(draft.finally_, names)
        undo = self._compile_undo(draft.undo, names)
        title = self.text(fields, "title", at, names)
        retry = self.retry(fields, at, names)
        timeout = self._timeout(draft, verb, names)
        key = self.text(fields, "idempotency_key", at, names)
        if verb is None:
            return
        self.order[draft.path] = 2 * draft.order
        self.steps[draft.path] = plan.Step(
            path=draft.path,
            id=draft.id,
            verb=verb,
            next=draft.next,
            parent=draft.parent,
            body=draft.body,
            title=title,
            condition=condition,
            retry=retry,
            timeout=timeout,
            idempotency_key=key,
            delivery=fields.get("delivery", "at_least_once"),
            approval=gate,
            handlers=handlers,
            undo=undo,
            catch=catch,
            finally_=draft.finally_[0].path if draft.finally_ else None,
            expose=fields.get("expose", False),
            line=self.document.position(at)[0],
        )

    def _timeout(self, draft: Draft, verb: plan.Verb | None, names: Names) -> plan.Duration | None:
        """The step's own timeout, its tool's, or the default of its kind. Never for people: they have a deadline."""
        if "timeout" in draft.fields:
            return self.duration(draft.fields, "timeout", draft.at, names)
        if draft.verb not in EFFECTS:
            return None
        if isinstance(verb, plan.Call):
            if isinstance(verb.tool, plan.FrontendTool):
                return None
            if verb.tool.timeout is not None:
                return verb.tool.timeout
        return self.default_timeout if self.default_timeout is not None else _TIMEOUTS.get(draft.verb)

    def _gate(self, draft: Draft, names: Names) -> plan.Approval | None:
        value = draft.fields["approval"]
        given = draft.fields.get("http" if draft.verb == "http" else "with", {})
        arguments: list[str] = [str(key) for key in given] if isinstance(given, Mapping) else []
        if draft.verb == "http":
            arguments = ["method", "url", *arguments]
        return self.approval(value, (*draft.at, "approval"), names, arguments)

    def _compile_handlers(self, draft: Draft, names: Names) -> dict[str, str]:
        for option, steps in draft.handlers.items():
            self._compile_list(steps, names.with_roots("error") if option == "reject" else names)
        return {option: steps[0].path for option, steps in draft.handlers.items() if steps}

    def _compile_catch(self, clauses: Sequence[Clause], names: Names) -> tuple[plan.CatchClause, ...]:
        compiled: list[plan.CatchClause] = []
        for clause in clauses:
            self._compile_list(clause.steps, names.with_roots("error"))
            errors = clause.fields.get("errors", ())
            self.patterns(errors, (*clause.at, "errors"))
            if clause.steps:
                compiled.append(plan.CatchClause(tuple(errors), clause.steps[0].path))
        return tuple(compiled)

    def _compile_undo(self, draft: Draft | None, names: Names) -> str | None:
        if draft is None:
            return None
        self._compile_step(draft, self._names(names.types, Place(self.outline, draft.chain, draft.order, draft), names))
        return draft.path if draft.path in self.steps else None

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _compile_verb(self, draft: Draft, names: Names) -> plan.Verb | None:
        match draft.verb:
            case word if not word or word not in draft.fields:
                return None
            case "switch":
                return self._switch(draft, names)
            case "parallel":
                for steps in draft.blocks.values():
                    self._compile_list(steps, names)
                branches = tuple((name, steps[0].path) for name, steps in draft.blocks.items() if steps)
                return plan.Parallel(branches, self._join(draft))
            case "try":
                self._compile_list(draft.blocks[""], names)
                return plan.Try(draft.blocks[""][0].path)
            case "for_each":
                return self._for_each(draft, names)
            case "repeat":
                return self._repeat(draft, names)
            case _:
                return self.verb(draft, names)

    def _join(self, draft: Draft) -> Any:
        join, count = draft.fields.get("join", "all"), len(draft.fields["parallel"])
        if join in ("all", "any") if isinstance(join, str) else (type(join) is int and 1 <= join <= count):
            return join
        found = join if type(join) is int else kind_of(join)
        message = f"expected `all`, `any` or a number from 1 to {count}, as there are branches, found {found}"
        self.reader.error((*draft.at, "join"), "parallel.join", message)
        return "all"

    def _switch(self, draft: Draft, names: Names) -> plan.Verb:
        cases: list[tuple[CompiledExpression | None, str]] = []
        for body, steps in draft.blocks.items():
            raw = draft.fields["switch"][int(body)]
            when = raw.get("when") if isinstance(raw, Mapping) else None
            condition = None
            if isinstance(when, (str, bool)):
                condition = self.condition(when, (*draft.at, "switch", int(body), "when"), names)
            self._compile_list(steps, names.with_guards(condition))
            if steps:
                cases.append((condition, steps[0].path))
        return plan.Switch(tuple(cases))

    def _for_each(self, draft: Draft, names: Names) -> plan.Verb | None:
        params, at = draft.params, (*draft.at, "for_each")
        self._check_items(params, at, names)
        items = self.template(params["items"], (*at, "items"), names) if "items" in params else None
        variable = self._loop_variable(params, at, names)
        element = names.element_schema(params.get("items"))
        inside = names.with_roots("index", schemas={variable: element})
        key = self.text(params, "key", at, inside)
        self._compile_list(draft.blocks[""], inside)
        output = None
        if "output" in params:
            frame = self._frame(draft)
            here = self._at(inside, draft, (*draft.chain, frame), draft.body_end, at_end=True)
            output = self.template(params["output"], (*at, "output"), here)
        iteration = self._iteration(draft, output)
        if items is None or iteration is None:
            return None
        return plan.ForEach(
            items,
            iteration,
            variable,
            key,
            params.get("max_parallel", 1),
            params.get("on_failure", "stop"),
            params.get("rollback", "item"),
        )

    def _check_items(self, params: Mapping[str, Json], at: Path, names: Names) -> None:
        items = params.get("items", [])
        known = names.type_of(items)
        if known not in (None, "array"):
            message = f"expected a list, found something of type {known}; name a list"
            self.reader.error((*at, "items"), "for_each.items", message)
            return
        if isinstance(items, list) or (isinstance(items, str) and "${{" in items):
            return
        hint = "; write it as a hole: ${{ ... }}" if isinstance(items, str) else ""
        message = f"expected a list or a hole that gives one, found {kind_of(items)}{hint}"
        self.reader.error((*at, "items"), "for_each.items", message)

    def _loop_variable(self, params: Mapping[str, Json], at: Path, names: Names) -> str:
        variable = params.get("as", "item")
        if variable in names.roots and (variable == "item" or variable not in ROOTS):
            message = f"`{variable}` is the variable of a loop around already; name this one with `as`"
            self.reader.error((*at, "as"), "for_each.as", message, key="as" not in params)
        return variable

    def _repeat(self, draft: Draft, names: Names) -> plan.Verb | None:
        params, at = draft.params, (*draft.at, "repeat")
        if "while" in params and "until" in params:
            message = "expected `while` or `until`, found both; one loop has one condition"
            self.reader.error((*at, "until"), "repeat.conditions", message, key=True)
        inside = names.with_roots("index")
        chain = (*draft.chain, self._frame(draft))
        again = None
        if "while" in params:
            here = self._at(inside, draft, chain, draft.body_end, at_end=True, before=draft)
            again = self.condition(params["while"], (*at, "while"), here)
        self._compile_list(draft.blocks[""], inside.with_guards(again) if again else inside)
        done = None
        if "until" in params:
            here = self._at(inside, draft, chain, draft.body_end, at_end=True)
            done = self.condition(params["until"], (*at, "until"), here)
        iteration = self._iteration(draft, None)
        if "max" not in params or iteration is None:
            return None
        return plan.Repeat(params["max"], iteration, again, done)

    def _frame(self, draft: Draft) -> Frame:
        """The body of a loop, as its steps have it."""
        steps = draft.blocks[""]
        return steps[0].chain[-1] if steps else Frame(draft, "", f"{draft.path}[]")

    def _iteration(self, draft: Draft, output: plan.Template | None) -> str | None:
        """The pseudo-step of a loop's body; None where it has no steps."""
        steps = draft.blocks[""]
        if not steps:
            return None
        path = f"{draft.path}[]"
        self.order[path] = 2 * draft.order + 1
        self.steps[path] = plan.Step(
            path=path,
            id=f"{draft.id}[]",
            verb=plan.Iteration(steps[0].path, output),
            parent=draft.path,
            body="[]",
            line=self.document.position(draft.at)[0],
        )
        return path


def _record(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _answer_type(tool: plan.FrontendTool) -> Json:
    """What comes back of a call of a frontend's tool."""
    if not tool.answered:
        return {"type": "null"}
    return tool.result.raw if tool.result is not None else {}


def _envelope(gate: Mapping[str, Json]) -> Json:
    """The type of an approval's envelope, with the values of its form."""
    form = gate.get("form")
    values: Json = {}
    if isinstance(form, Mapping):
        values = {**literal_form(form), "type": ["object", "null"]}
    options = gate.get("options", list(OPTIONS))
    decision = {"enum": options} if isinstance(options, list) and all(isinstance(o, str) for o in options) else {}
    return {**ENVELOPE, "properties": {**ENVELOPE["properties"], "values": values, "decision": decision}}


def _schema_or_any(raw: Json) -> JsonSchema:
    """The compiled schema; one that accepts everything where a finding already says what is wrong with it."""
    try:
        return JsonSchema(raw)
    except ValueError:
        return JsonSchema({})
