"""From a document's bytes to a plan, or to every finding at once (LANGUAGE sections 1 to 9).

Two passes. The *outline* reads the shape of every step and gives each its path, so that every id is known. The
*compilation* then walks the outline in order, knowing at each place which steps are visible, and compiles expressions.

Tools written as `python: pkg.mod` or `python: pkg.mod:fn` are found by import. `python: registered` means a function
registered in code by the decorator, under the name that the call uses (`shop.refund`, or `shop` for `call: shop`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

from hai_flow.definition import model, plan
from hai_flow.definition.document import Document, Path, kind_of, parse, shorten, suggestion
from hai_flow.definition.expressions import (
    ALWAYS,
    ENVELOPE,
    CompiledExpression,
    Names,
    Types,
)
from hai_flow.definition.model import Reader, TooMany
from hai_flow.definition.schemas import JsonSchema, closed
from hai_flow.definition.verbs import DEADLINE_DEFAULT, Verbs
from hai_flow.errors import DefinitionError, Finding

Json: TypeAlias = Any


def compile_workflow(source: bytes, file: str = "<workflow>") -> plan.Plan:
    """The plan of a workflow. Raises `DefinitionError` with every finding, in document order, if any is an error."""
    compiled, findings = _compile(source, file)
    if compiled is None:
        raise DefinitionError(findings)
    return compiled


def check_workflow(source: bytes, file: str = "<workflow>") -> list[Finding]:
    """Every error and warning of a workflow, in document order. Never raises."""
    return _compile(source, file)[1]


def _compile(source: bytes, file: str) -> tuple[plan.Plan | None, list[Finding]]:
    document = parse(source, file)
    reader = Reader(document)
    compiled = None
    # Without a whole tree (the scanner stopped) every further finding would be about what could not be read.
    if document.value is not None or not document.findings:
        with suppress(TooMany):
            compiled = _Compiler(document, reader, source).compile()
    findings = sorted(reader.findings, key=lambda finding: (finding.line, finding.column))
    if any(finding.severity == "error" for finding in findings):
        return None, findings
    assert compiled is not None, "a document without errors compiles"
    return compiled, findings


Chain: TypeAlias = tuple[tuple[str, str], ...]  # (path of the block, which of its lists), outermost first


@dataclass(slots=True)
class _Draft:
    """A step of the outline. `verb` is "" for one that is too wrong (or too new) to be compiled."""

    verb: str
    fields: dict[str, Json]
    at: Path
    path: str
    id: str
    chain: Chain
    next: str | None = None
    blocks: dict[str, list[_Draft]] = field(default_factory=dict)  # body -> steps
    reject: list[_Draft] = field(default_factory=list)
    catch: list[_Clause] = field(default_factory=list)

    @property
    def parent(self) -> str:
        return self.chain[-1][0] if self.chain else ""

    @property
    def body(self) -> str:
        return self.chain[-1][1] if self.chain else ""

    def inside(self) -> Iterator[_Draft]:
        """Every step nested in this one, handlers included."""
        lists = [*self.blocks.values(), self.reject, *(clause.steps for clause in self.catch)]
        for steps in lists:
            for step in steps:
                yield step
                yield from step.inside()


@dataclass(slots=True)
class _Clause:
    fields: dict[str, Json]
    at: Path
    steps: list[_Draft]


class _Compiler(Verbs):
    def __init__(self, document: Document, reader: Reader, source: bytes) -> None:
        super().__init__(reader)
        self.document = document
        self.source = source
        self.ids: dict[str, _Draft] = {}
        self.tolerated: set[str] = set()  # ids inside of what can't be compiled: no reference to them is reported
        self.types = Types({}, {})
        self.outputs: dict[str, Json] = {}
        self.approvals: dict[str, Json] = {}
        self.steps: dict[str, plan.Step] = {}
        self.default_timeout: int | None = None

    # -- the document ----------------------------------------------------------------------------------------------

    def compile(self) -> plan.Plan | None:
        """The plan; None, or one with holes in it, where findings say so."""
        fields = self.reader.fields(model.DocumentShape, self.document.value, (), "the workflow")
        if not fields:
            return None
        self._defaults(fields.get("defaults", {}))
        default_retry = self._retry(fields.get("defaults", {}), ("defaults",))
        self._read_tools(fields.get("tools", {}))
        self._read_state(fields.get("state", {}))
        input_schema = self._input(fields.get("input", {}))
        outline = self._outline(fields.get("steps", []), ("steps",), "", ())
        clauses = self._outline_catch(fields, (), "", ())
        self._drop_unknown_outputs()
        self.types = Types(input_schema.raw, _state_raw(self.state), self.outputs, self.approvals)
        names = Names(self.types, ALWAYS, explain=self._explain(()))
        visible = self._compile_list(outline, names)
        after = replace(names, visible=visible)
        catch = self._compile_catch(clauses, after)
        output = self._template(fields["output"], ("output",), after) if "output" in fields else None
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
            state_schema=_schema_or_any(_state_raw(self.state)),
            tools={name: tool for name, tool in self.tools.items() if tool is not None},
            steps=self.steps,
            ids={name: draft.path for name, draft in self.ids.items()},
            first=outline[0].path if outline else "",
            output=output,
            catch=catch,
            default_retry=default_retry,
            warnings=tuple(sorted(self.reader.findings, key=lambda finding: (finding.line, finding.column))),
        )

    def _defaults(self, value: Json) -> None:
        fields = self.reader.fields(model.DefaultsShape, value, ("defaults",), "`defaults`")
        self.default_timeout = self._duration(fields, "timeout", ("defaults",))
        self.default_deadline = self._duration(fields, "deadline", ("defaults",)) or DEADLINE_DEFAULT

    def _input(self, raw: Json) -> JsonSchema:
        if not raw:
            return JsonSchema({"type": "object", "additionalProperties": False})
        if raw.get("type", "object") != "object" or "type" not in raw:
            found = f"`{raw['type']}`" if isinstance(raw.get("type"), str) else "none"
            self.reader.error(("input",), "input.type", f"expected `type: object` at the top of `input`, found {found}")
        compiled = self._schema(raw, ("input",))
        return JsonSchema(closed(compiled.raw)) if compiled else JsonSchema({})

    def _read_state(self, value: Mapping[str, Json]) -> None:
        for name, raw in value.items():
            at = ("state", name)
            fault = model.name_fault(name, capitals=True, roots=False)
            if fault:
                self.reader.error(at, "name.invalid", fault, key=True)
            self.state[name] = self._state_variable(name, raw, at)

    def _state_variable(self, name: str, raw: Json, at: Path) -> plan.StateVariable | None:
        if not isinstance(raw, Mapping):
            self.reader.error(at, "shape.type", f"expected a schema for the state `{name}`, found {kind_of(raw)}")
            return None
        extras = self.reader.fields(
            model.StateExtras, {"reduce": raw["reduce"]} if "reduce" in raw else {"reduce": "max"}, at, "`state`"
        )
        schema = self._schema({key: part for key, part in raw.items() if key != "reduce"}, at)
        if schema is None:
            return None
        reduce = extras.get("reduce") if "reduce" in raw else None
        self._check_reduce(reduce, raw, at)
        return plan.StateVariable(name, schema, schema.with_defaults(raw.get("default")), reduce)

    def _check_reduce(self, reduce: Json, raw: Mapping[str, Json], at: Path) -> None:
        wanted = {"append": ("array",), "merge": ("object",), "max": ("number", "integer")}.get(reduce or "", ())
        given = raw.get("type")
        if reduce and isinstance(given, str) and given not in wanted:
            self.reader.error(
                (*at, "reduce"),
                "state.reduce",
                f"`reduce: {reduce}` needs `type: {' or '.join(wanted)}`, found `{given}`",
            )

    # -- tools -----------------------------------------------------------------------------------------------------

    def _read_tools(self, value: Mapping[str, Json]) -> None:
        for name, raw in value.items():
            fault = model.name_fault(name, capitals=True, roots=False)
            if fault:
                self.reader.error(("tools", name), "name.invalid", fault, key=True)
            self.tools[name] = self._tool(name, raw, ("tools", name))

    def _tool(self, name: str, raw: Json, at: Path) -> plan.Tool | None:
        if not isinstance(raw, Mapping):
            self.reader.error(at, "shape.type", f"expected a mapping for the tool `{name}`, found {kind_of(raw)}")
            return None
        kinds = [kind for kind in ("python", "frontend", "mcp", "http") if kind in raw]
        if len(kinds) != 1:
            self._no_tool_kind(name, raw, kinds, at)
            return None
        if kinds[0] in ("mcp", "http"):
            self.reader.not_yet((*at, kinds[0]), kinds[0])
            return None
        return self._python_tool(name, raw, at) if kinds[0] == "python" else self._frontend_tool(name, raw, at)

    def _no_tool_kind(self, name: str, raw: Mapping[str, Json], kinds: Sequence[str], at: Path) -> None:
        message = f"expected one of `python`, `frontend` in the tool `{name}`, found {' and '.join(kinds) or 'none'}"
        stranger = next((key for key in raw if suggestion(key, ("python", "frontend"))), None) if not kinds else None
        if stranger is not None:
            message += suggestion(stranger, ("python", "frontend"))
        self.reader.error(at, "tool.kind", message, key=True)

    def _python_tool(self, name: str, raw: Json, at: Path) -> plan.Tool | None:
        fields = self.reader.fields(model.PythonToolShape, raw, at, f"the tool `{name}`")
        target = fields.get("python")
        if target is None:
            return None
        if target == "registered":
            return plan.PythonTool(name, "", fields.get("effect", "write"), "effect" in fields)
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", target):
            message = (
                f"expected a module (`pkg.mod`), a function (`pkg.mod:fn`) or `registered`, found `{shorten(target)}`"
            )
            self.reader.error((*at, "python"), "tool.python", message)
            return None
        return plan.PythonTool(name, target, fields.get("effect", "write"), "effect" in fields)

    def _frontend_tool(self, name: str, raw: Json, at: Path) -> plan.Tool | None:
        outer = self.reader.fields(model.FrontendToolShape, raw, at, f"the tool `{name}`")
        if "frontend" not in outer:
            return None
        at = (*at, "frontend")
        fields = self.reader.fields(model.FrontendShape, outer["frontend"], at, f"the frontend tool `{name}`")
        parameters = self._schema(fields["parameters"], (*at, "parameters")) if "parameters" in fields else None
        result = self._schema(fields["result"], (*at, "result")) if "result" in fields else None
        deadline = self._duration(fields, "deadline", at) or self.default_deadline
        return plan.FrontendTool(name, fields.get("description", ""), parameters, result, deadline)

    # -- the outline -----------------------------------------------------------------------------------------------

    def _outline(self, value: Sequence[Json], at: Path, prefix: str, chain: Chain) -> list[_Draft]:
        """The steps of one list. Every step gets a path and its id, also a wrong one."""
        drafts: list[_Draft] = []
        counts: dict[str, int] = {}
        for index, raw in enumerate(value):
            drafts.append(self._outline_step(raw, (*at, index), prefix, chain, counts))
        for draft, following in pairwise(drafts):
            draft.next = following.path
        self._warn_unreachable(drafts)
        return drafts

    def _outline_step(self, raw: Json, at: Path, prefix: str, chain: Chain, counts: dict[str, int]) -> _Draft:
        verb = self._verb(raw, at)
        word = verb or "step"
        counts[word] = counts.get(word, 0) + 1
        runnable = verb in model.STEP_SHAPES
        fields: dict[str, Json] = {}
        if runnable:
            fields = self.reader.fields(model.STEP_SHAPES[verb], raw, at, f"a `{verb}` step")
        elif isinstance(raw, Mapping):
            self.tolerated.update(_nested_ids(raw))
        given = raw.get("id") if isinstance(raw, Mapping) else None
        usable = isinstance(given, str) and model.name_fault(given) is None
        own = given if usable and isinstance(given, str) else f"{word}#{counts[word]}"
        draft = _Draft(verb if runnable else "", fields, at, f"{prefix}{own}", own, chain)
        if usable:
            self._declare(draft, at)
        if runnable:
            self._outline_inside(draft)
        return draft

    def _declare(self, draft: _Draft, at: Path) -> None:
        first = self.ids.setdefault(draft.id, draft)
        if first is not draft:
            line = self.document.position((*first.at, "id"), key=True)[0]
            message = f"the id `{draft.id}` is used twice (first at line {line}); ids are unique in the document"
            self.reader.error((*at, "id"), "id.duplicate", message)

    def _verb(self, raw: Json, at: Path) -> str:
        """The step's verb; "" after a finding."""
        if not isinstance(raw, Mapping):
            self.reader.error(at, "step.type", f"expected a step (a mapping with one verb), found {kind_of(raw)}")
            return ""
        verbs = [key for key in raw if key in model.VERBS]
        if len(verbs) == 1:
            if verbs[0] in model.NOT_YET_VERBS:
                self.reader.not_yet((*at, verbs[0]), verbs[0])
            return verbs[0]
        if verbs:
            names = " and ".join(f"`{verb}`" for verb in verbs)
            message = f"expected exactly one verb in a step, found {names}; make it {len(verbs)} steps"
            self.reader.error((*at, verbs[1]), "step.two_verbs", message, key=True)
            return ""
        self._no_verb(raw, at)
        return ""

    def _no_verb(self, raw: Mapping[str, Json], at: Path) -> None:
        strangers = [key for key in raw if key not in model.STEP_KEYS]
        if strangers:
            hint = suggestion(strangers[0], model.VERBS) or f"; the verbs are {', '.join(sorted(model.STEP_SHAPES))}"
            message = f"expected exactly one verb in a step, found the unknown key `{strangers[0]}`{hint}"
            self.reader.error((*at, strangers[0]), "step.no_verb", message, key=True)
            return
        found = f"only {', '.join(f'`{key}`' for key in raw)}" if raw else "nothing"
        message = (
            f"expected exactly one verb in a step, found {found}; the verbs are {', '.join(sorted(model.STEP_SHAPES))}"
        )
        self.reader.error(at, "step.no_verb", message)

    def _outline_inside(self, draft: _Draft) -> None:
        """The lists inside a step: blocks, the reject handler, catch clauses."""
        fields, at, prefix = draft.fields, draft.at, f"{draft.path}/"
        match draft.verb:
            case "switch" if "switch" in fields:
                self._outline_cases(draft)
            case "parallel" if "parallel" in fields:
                self._outline_branches(draft)
            case "approve" if "on_reject" in fields:
                inner = (*draft.chain, (draft.path, "~reject"))
                draft.reject = self._outline(fields["on_reject"], (*at, "on_reject"), f"{prefix}~reject/", inner)
            case "fail":
                code = fields["fail"].get("code") if isinstance(fields.get("fail"), Mapping) else "fail"
                self.fail_codes.add(code if isinstance(code, str) else "fail")
            case _:
                pass
        draft.catch = self._outline_catch(fields, at, prefix, draft.chain, draft.path)
        if draft.verb in ("ask", "approve", "call"):
            self._note_output(draft)

    def _outline_catch(
        self, fields: Mapping[str, Json], at: Path, prefix: str, chain: Chain, owner: str = ""
    ) -> list[_Clause]:
        clauses: list[_Clause] = []
        for number, raw in enumerate(fields.get("catch", ())):
            place = (*at, "catch", number)
            given = (
                {**raw, "errors": [raw["errors"]]}
                if isinstance(raw, Mapping) and isinstance(raw.get("errors"), str)
                else raw
            )
            clause = self.reader.fields(model.CatchShape, given, place, "a `catch` clause")
            inner = (*chain, (owner, f"~catch/{number}"))
            steps = self._outline(clause.get("steps", ()), (*place, "steps"), f"{prefix}~catch/{number}/", inner)
            clauses.append(_Clause(clause, place, steps))
        return clauses

    def _outline_cases(self, draft: _Draft) -> None:
        cases = draft.fields["switch"]
        for number, raw in enumerate(cases):
            at = (*draft.at, "switch", number)
            is_default = isinstance(raw, Mapping) and "default" in raw and "when" not in raw
            shape = model.DefaultCaseShape if is_default else model.CaseShape
            fields = self.reader.fields(shape, raw, at, "the default case" if is_default else "a case of `switch`")
            if is_default and number < len(cases) - 1:
                self.reader.error(
                    (*at, "default"),
                    "switch.default",
                    "expected the default case last: nothing after it would run",
                    key=True,
                )
            inner = (*draft.chain, (draft.path, str(number)))
            draft.blocks[str(number)] = self._outline(
                fields.get("steps", ()), (*at, "steps"), f"{draft.path}/{number}/", inner
            )

    def _outline_branches(self, draft: _Draft) -> None:
        for name, raw in draft.fields["parallel"].items():
            at = (*draft.at, "parallel", name)
            fault = model.name_fault(name)
            if fault:
                self.reader.error(at, "name.invalid", fault, key=True)
            if not isinstance(raw, list) or not raw:
                found = "an empty list" if raw == [] else kind_of(raw)
                self.reader.error(at, "shape.type", f"expected a list of steps in the branch `{name}`, found {found}")
                continue
            inner = (*draft.chain, (draft.path, name))
            draft.blocks[name] = self._outline(raw, at, f"{draft.path}/{name}/", inner)

    def _note_output(self, draft: _Draft) -> None:
        """What is known of the type of this step's output."""
        value = draft.fields.get(draft.verb)
        if draft.verb == "call":
            tool = self.tools.get(value.partition(".")[0]) if isinstance(value, str) else None
            if isinstance(tool, plan.FrontendTool) and tool.result is not None:
                self.outputs[draft.id] = tool.result.raw
        elif isinstance(value, Mapping):
            form = value.get("form")
            form = form if isinstance(form, Mapping) else {}
            if draft.verb == "ask":
                self.outputs[draft.id] = form
            else:
                properties = {**ENVELOPE["properties"], "values": {**form, "type": ["object", "null"]}}
                self.outputs[draft.id] = self.approvals[draft.id] = {**ENVELOPE, "properties": properties}

    def _drop_unknown_outputs(self) -> None:
        """Ids that are used twice have no one type."""
        self.outputs = {name: schema for name, schema in self.outputs.items() if name in self.ids}
        self.approvals = {name: schema for name, schema in self.approvals.items() if name in self.ids}

    def _warn_unreachable(self, drafts: Sequence[_Draft]) -> None:
        for draft, following in pairwise(drafts):
            if draft.verb in ("return", "fail") and "if" not in draft.fields:
                message = f"this step can't be reached: `{draft.verb}` before it always ends the list"
                self.reader.warning(following.at, "step.unreachable", message)
                return

    # -- visibility ------------------------------------------------------------------------------------------------

    def _explain(self, chain: Chain, own: str = "") -> Callable[[str], tuple[str, str] | None]:
        """A function that says why a step can't be named from the place `chain`; None where nothing needs saying."""

        def explain(name: str) -> tuple[str, str] | None:
            target = self.ids.get(name)
            if target is None:
                if name in self.tolerated:
                    return None
                return "expression.unknown_step", f"there is no step `{name}`{suggestion(name, self.ids)}"
            if name == own:
                return "expression.own_step", f"a step can't use itself: `{name}` has no output yet"
            split = _parting(chain, target.chain)
            if split is not None:
                return self._sibling(name, *split)
            line = self.document.position(target.at)[0]
            return "expression.later_step", f"step `{name}` comes later (line {line}); only steps before can be used"

        return explain

    def _sibling(self, name: str, block: str, body: str) -> tuple[str, str]:
        if body.isdigit():
            message = f"step `{name}` is in another case of `{block}`, which doesn't run when this one does"
        elif body.startswith("~"):
            message = f"step `{name}` is in another handler ({block}/{body}), which doesn't run with this one"
        else:
            message = (
                f"step `{name}` is in the branch `{body}` of `{block}`; parallel branches don't see each other, "
                f"use it after the block"
            )
        return "expression.sibling_step", message

    # -- the compilation -------------------------------------------------------------------------------------------

    def _compile_list(self, drafts: Sequence[_Draft], names: Names) -> frozenset[str]:
        """Compile one list; the ids visible after it."""
        visible = frozenset(names.visible)
        for draft in drafts:
            here = replace(names, visible=visible, explain=self._explain(draft.chain, draft.id))
            self._compile_step(draft, here)
            # Ids that were made up (`say#1`) can't be named: they would move with every step put before them.
            visible |= {draft.id, *(step.id for step in draft.inside())} & self.ids.keys()
        return visible

    def _compile_step(self, draft: _Draft, names: Names) -> None:
        fields, at = draft.fields, draft.at
        condition = self._condition(fields["if"], (*at, "if"), names) if "if" in fields else None
        names = names.with_guards(condition)
        whens = self._compile_blocks(draft, names)
        nested = {step.id for steps in draft.blocks.values() for top in steps for step in (top, *top.inside())}
        handlers = replace(names.with_roots("error"), visible=frozenset({*names.visible, draft.id, *nested}))
        self._compile_list(draft.reject, handlers)
        catch = self._compile_catch(draft.catch, handlers)
        if not draft.verb:
            return
        verb = self._compile_verb(draft, names, whens)
        title = self._text(fields, "title", at, names)
        retry = self._retry(fields, at)
        timeout = self._duration(fields, "timeout", at)
        if timeout is None and isinstance(verb, plan.Call) and isinstance(verb.tool, plan.PythonTool):
            timeout = self.default_timeout  # never on people: a frontend tool has a deadline
        if verb is None:
            return
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
            expose=fields.get("expose", False),
            catch=catch,
            handlers={"reject": draft.reject[0].path} if draft.reject else {},
            line=self.document.position(at)[0],
        )

    def _compile_catch(self, clauses: Sequence[_Clause], names: Names) -> tuple[plan.CatchClause, ...]:
        compiled: list[plan.CatchClause] = []
        inner = names.with_roots("error")
        for clause in clauses:
            self._compile_list(clause.steps, inner)
            errors = clause.fields.get("errors", ())
            self._check_patterns(errors, (*clause.at, "errors"))
            if clause.steps:
                compiled.append(plan.CatchClause(tuple(errors), clause.steps[0].path))
        return tuple(compiled)

    def _compile_blocks(self, draft: _Draft, names: Names) -> dict[str, CompiledExpression | None]:
        """Compile the lists of a block; the conditions of a switch's cases by their number."""
        whens: dict[str, CompiledExpression | None] = {}
        for body, steps in draft.blocks.items():
            whens[body] = self._when(draft, int(body), names) if draft.verb == "switch" else None
            self._compile_list(steps, names.with_guards(whens[body]))
        return whens

    def _when(self, draft: _Draft, number: int, names: Names) -> CompiledExpression | None:
        case = draft.fields["switch"][number]
        when = case.get("when") if isinstance(case, Mapping) else None
        at = (*draft.at, "switch", number, "when")
        return self._condition(when, at, names) if isinstance(when, (str, bool)) else None

    def _compile_verb(
        self, draft: _Draft, names: Names, whens: Mapping[str, CompiledExpression | None]
    ) -> plan.Verb | None:
        if draft.verb not in draft.fields:
            return None
        value, at = draft.fields[draft.verb], (*draft.at, draft.verb)
        match draft.verb:
            case "call":
                return self._call(draft, value, at, names)
            case "say":
                return self._say(value, at, names)
            case "ask":
                return self._ask(value, at, names)
            case "approve":
                return self._approve(value, at, names)
            case "set":
                return self._set(value, at, names)
            case "switch":
                return plan.Switch(tuple((whens[n], steps[0].path) for n, steps in draft.blocks.items() if steps))
            case "parallel":
                branches = tuple((name, steps[0].path) for name, steps in draft.blocks.items() if steps)
                return plan.Parallel(branches, draft.fields.get("join", "all"))
            case "wait":
                return self._wait(value, at, names)
            case "return":
                return plan.Return(self._template(value, at, names))
            case _:
                return self._fail(value, at, names)


def _nested_ids(value: Json) -> Iterable[str]:
    """Ids of all steps inside something that is not compiled."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "id" and isinstance(item, str):
                yield item
            else:
                yield from _nested_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nested_ids(item)


def _parting(reader: Chain, target: Chain) -> tuple[str, str] | None:
    """Where the target's place parts from the reader's inside one block: (block, the target's list), else None."""
    for mine, other in zip(reader, target, strict=False):
        if mine != other:
            return other if mine[0] == other[0] else None
    return None


def _state_raw(state: Mapping[str, plan.StateVariable | None]) -> dict[str, Json]:
    """The schema of all of `state`. A variable without default starts null, so null is among its types."""
    properties: dict[str, Json] = {}
    required: list[str] = []
    for name, variable in state.items():
        if variable is None:
            properties[name] = {}
            continue
        raw = variable.schema.raw
        if "default" in raw:
            required.append(name)
            properties[name] = raw
        else:
            properties[name] = {"anyOf": [raw, {"type": "null"}]}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema_or_any(raw: Json) -> JsonSchema:
    """The compiled schema; one that accepts everything where a finding already says what is wrong with it."""
    try:
        return JsonSchema(raw)
    except ValueError:
        return JsonSchema({})
