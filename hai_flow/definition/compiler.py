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
from typing import Any, Final, TypeAlias

from hai_flow.definition import model, plan
from hai_flow.definition.document import Document, Path, kind_of, parse, shorten, suggestion
from hai_flow.definition.durations import NotADuration, milliseconds
from hai_flow.definition.expressions import (
    ALWAYS,
    DOUBTS,
    ENVELOPE,
    CompiledExpression,
    CompiledTemplate,
    Fault,
    Faults,
    Names,
    Types,
    compile_expression,
    compile_template,
    split_holes,
)
from hai_flow.definition.model import Reader, TooMany
from hai_flow.definition.schemas import JsonSchema, closed, compile_schema
from hai_flow.errors import DefinitionError, Finding

Json: TypeAlias = Any

DEADLINE_DEFAULT: Final = 7 * 24 * 3_600_000  # milliseconds

KNOWN_CODES: Final = frozenset((
    "input.invalid", "state.invalid", "expression.error", "expression.absent", "expression.budget",
    "expression.too_large", "step.timeout", "step.lost", "step.in_doubt", "tool.failed", "tool.unavailable",
    "tool.invalid_arguments", "tool.invalid_result", "tool.expired", "tool.declined", "http.status",
    "http.connection", "http.expect", "http.refused", "http.too_large", "llm.rate_limited", "llm.timeout",
    "llm.unavailable", "llm.truncated", "llm.invalid_output", "llm.refused", "agent.max_turns", "approval.rejected",
    "approval.expired", "approval.impossible", "ask.expired", "wait_for.expired", "for_each.duplicate_key",
    "repeat.exhausted", "run.failed", "run.stopped", "undo.failed", "limit.tokens", "limit.cost",
    "limit.tool_calls", "limit.duration", "limit.steps",
))  # fmt: skip
RESERVED_PREFIXES: Final = frozenset(code.partition(".")[0] for code in KNOWN_CODES)
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}(\.[a-z0-9_]{1,63}){0,3}")
_SELECTOR: Final = re.compile(r"(user|role|group):.+|requester|anyone")


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


class _Compiler:
    def __init__(self, document: Document, reader: Reader, source: bytes) -> None:
        self.document = document
        self.reader = reader
        self.source = source
        self.ids: dict[str, _Draft] = {}
        self.tolerated: set[str] = set()  # ids inside of what can't be compiled: no reference to them is reported
        self.fail_codes: set[str] = set()
        self.tools: dict[str, plan.Tool | None] = {}  # None: declared, but wrong
        self.state: dict[str, plan.StateVariable | None] = {}
        self.types = Types({}, {})
        self.outputs: dict[str, Json] = {}
        self.steps: dict[str, plan.Step] = {}
        self.default_deadline = DEADLINE_DEFAULT
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
        self.types = Types(input_schema.raw, _state_raw(self.state), self.outputs)
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

    def _schema(self, raw: Json, at: Path, *, holes: bool = False) -> JsonSchema | None:
        """`raw` compiled. Holes are findings, but where a form may have them they are `not_yet`."""
        clean = self._no_holes(raw, at, holes)

        def report(path: Path, code: str, message: str) -> None:
            self.reader.error((*at, *path), code, message, key=code == "schema.unknown_keyword")

        compiled = compile_schema(raw, report)
        return compiled if clean else None

    def _no_holes(self, raw: Json, at: Path, form: bool) -> bool:
        clean = True
        for path, text in _texts(raw, at):
            if "${{" in text.replace("$${{", ""):
                clean = False
                if form:
                    message = (
                        "holes in a form are part of flow/v1, but this release cannot fill them yet; write the value"
                    )
                    self.reader.error(path, "not_yet", message)
                else:
                    self.reader.error(path, "schema.hole", "a schema is literal: holes `${{ }}` are not filled here")
        return clean

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
            return plan.PythonTool(name, "", fields.get("effect", "write"))
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", target):
            message = (
                f"expected a module (`pkg.mod`), a function (`pkg.mod:fn`) or `registered`, found `{shorten(target)}`"
            )
            self.reader.error((*at, "python"), "tool.python", message)
            return None
        return plan.PythonTool(name, target, fields.get("effect", "write"))

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
                self.outputs[draft.id] = {**ENVELOPE, "properties": properties, "x-envelope": True}

    def _drop_unknown_outputs(self) -> None:
        """Ids that are used twice have no one type."""
        self.outputs = {name: schema for name, schema in self.outputs.items() if name in self.ids}

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
            on_reject=draft.reject[0].path if draft.reject else None,
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

    # -- verbs -----------------------------------------------------------------------------------------------------

    def _call(self, draft: _Draft, value: str, at: Path, names: Names) -> plan.Call | None:
        arguments = draft.fields.get("with", {})
        template = self._template(arguments, (*draft.at, "with"), names)
        name, _, function = value.partition(".")
        if name not in self.tools:
            hint = suggestion(name, self.tools) or "; declare it under `tools` (what is not declared can't be called)"
            self.reader.error(at, "tool.unknown", f"there is no tool `{shorten(name)}`{hint}")
            return None
        tool = self.tools[name]
        if function and not re.fullmatch(r"[A-Za-z0-9_./-]+", function):
            self.reader.error(at, "tool.function", f"expected `call: tool.function`, found `{shorten(value)}`")
            return None
        if tool is None or not self._function_fits(tool, function, value, at):
            return None
        if isinstance(tool, plan.FrontendTool):
            self._check_arguments(tool, arguments, draft)
            for key in ("retry", "timeout"):
                if key in draft.fields:
                    message = f"`{key}` is for effects; people have a `deadline` (in `tools.{name}.frontend`)"
                    self.reader.error((*draft.at, key), "call.people", message, key=True)
        return plan.Call(tool, function, template, draft.fields.get("stream") == "text")

    def _function_fits(self, tool: plan.Tool, function: str, value: str, at: Path) -> bool:
        if isinstance(tool, plan.FrontendTool):
            if function:
                self.reader.error(
                    at, "tool.function", f"a frontend tool is called by its name alone: `call: {tool.name}`"
                )
            return not function
        if ":" in tool.target and function:
            message = f"the tool `{tool.name}` is the one function {tool.target}; write `call: {tool.name}`"
            self.reader.error(at, "tool.function", message)
            return False
        if tool.target and ":" not in tool.target and not function:
            message = (
                f"the tool `{tool.name}` is the module {tool.target}; name a function: `call: {tool.name}.function`"
            )
            self.reader.error(at, "tool.function", message)
            return False
        return True

    def _check_arguments(self, tool: plan.FrontendTool, arguments: Mapping[str, Json], draft: _Draft) -> None:
        """The keys of `with` against the declared parameters, and those values that have no holes."""
        if tool.parameters is None:
            return
        raw = tool.parameters.raw
        properties = raw.get("properties", {})
        at = (*draft.at, "with")
        for name in raw.get("required", ()):
            if name not in arguments and "default" not in properties.get(name, {}):
                place = at if "with" in draft.fields else (*draft.at, "call")
                self.reader.error(
                    place, "call.missing_argument", f"the tool `{tool.name}` needs the argument `{name}`", key=True
                )
        for name, value in arguments.items():
            if name in properties:
                self._check_argument(tool, properties[name], value, (*at, name))
            elif "additionalProperties" not in raw and "patternProperties" not in raw:
                hint = suggestion(name, properties) or f"; it takes {', '.join(properties) or 'none'}"
                message = f"the tool `{tool.name}` has no argument `{name}`{hint}"
                self.reader.error((*at, name), "call.unknown_argument", message, key=True)

    def _check_argument(self, tool: plan.FrontendTool, schema: Json, value: Json, at: Path) -> None:
        if any("${{" in text for _, text in _texts(value, ())) or not isinstance(schema, Mapping):
            return
        definitions = (
            {key: part for key, part in tool.parameters.raw.items() if key in ("$defs", "definitions")}
            if tool.parameters
            else {}
        )
        for fault in JsonSchema({**schema, **definitions}).findings(value)[:1]:
            message = f"the argument does not fit the tool `{tool.name}`: {fault['message']}"
            self.reader.error(at, "call.argument", message)

    def _say(self, value: Json, at: Path, names: Names) -> plan.Say | None:
        if isinstance(value, str):
            return plan.Say("text", self._template(value, at, names, text=True))
        fields = self.reader.fields(model.MessageShape, value, at, "`say`")
        kinds = [kind for kind in ("text", "thinking", "fold", "output") if kind in fields]
        if len(kinds) != 1:
            if kinds or not (isinstance(value, Mapping) and value.keys() - set(model.keys_of(model.MessageShape))):
                found = " and ".join(f"`{kind}`" for kind in kinds) or "none"
                self.reader.error(
                    at, "say.kind", f"expected one of `text`, `thinking`, `fold`, `output` in `say`, found {found}"
                )
            return None
        kind: Any = kinds[0]
        self._check_message(kind, fields[kind], (*at, kind))
        parts = {
            key: self._template(fields[key], (*at, key), names)
            for key in ("block_id", "layout", "style")
            if key in fields
        }
        content = self._template(fields[kind], (*at, kind), names, text=isinstance(fields[kind], str))
        return plan.Say(kind, content, **parts)

    def _check_message(self, kind: str, content: Json, at: Path) -> None:
        if kind == "fold":
            self.reader.fields(model.FoldShape, content, at, "`fold`")
            position = content.get("position")
            if isinstance(position, str) and position not in ("", "start", "end") and "${{" not in position:
                self.reader.error((*at, "position"), "say.position", f"expected `start` or `end`, found `{position}`")
        elif kind == "output" and "type" not in content:
            self.reader.error(at, "shape.missing_key", "`type` is missing in `output`", key=True)
        elif kind == "thinking" and isinstance(content, Mapping) and "content" not in content:
            self.reader.error(at, "shape.missing_key", "`content` is missing in `thinking`", key=True)

    def _ask(self, value: Json, at: Path, names: Names) -> plan.Ask | None:
        fields = self.reader.fields(model.AskParametersShape, value, at, "`ask`")
        self._on_deadline(fields, at, ("fail",))
        form, schema = self._form(fields, at)
        title = self._text(fields, "title", at, names)
        message = self._text(fields, "message", at, names)
        policy = self._policy(fields, at, names, default=["requester"])
        deadline = self._duration(fields, "deadline", at) or self.default_deadline
        if title is None or schema is None or form is None or policy is None:
            return None
        return plan.Ask(title, message, form, schema, policy, deadline)

    def _approve(self, value: Json, at: Path, names: Names) -> plan.Approve | None:
        fields = self.reader.fields(model.ApproveParametersShape, value, at, "`approve`")
        outcome: Any = self._on_deadline(fields, at, ("reject", "fail"))
        form, schema = self._form(fields, at) if fields.get("form") else (None, None)
        title = self._text(fields, "title", at, names)
        message = self._text(fields, "message", at, names)
        evidence = self._template(fields["evidence"], (*at, "evidence"), names) if "evidence" in fields else None
        policy = self._policy(fields, at, names, default=None)
        deadline = self._duration(fields, "deadline", at) or self.default_deadline
        self._options(fields, at)
        if title is None or policy is None:
            return None
        return plan.Approve(title, message, evidence, form, schema, policy, deadline, on_deadline=outcome)

    def _options(self, fields: Mapping[str, Json], at: Path) -> None:
        options = fields.get("options", ["approve", "reject"])
        if not {"approve", "reject"} <= set(options):
            message = "expected `approve` and `reject` among the options; both must be possible"
            self.reader.error((*at, "options"), "approve.options", message)
        elif len(options) > 2:
            self.reader.error(
                (*at, "options"),
                "not_yet",
                "further options are part of flow/v1, but this release cannot run them yet; leave them out",
            )

    def _on_deadline(self, fields: Mapping[str, Json], at: Path, allowed: Sequence[str]) -> str:
        value = fields.get("on_deadline", allowed[0])
        if value in allowed if isinstance(value, str) else False:
            return value
        if isinstance(value, (Mapping, list)) and value:
            self.reader.error(
                (*at, "on_deadline"), "not_yet",
                f"this form of `on_deadline` is part of flow/v1, but this release knows only {' and '.join(allowed)}",
            )  # fmt: skip
        else:
            message = f"expected {' or '.join(f'`{word}`' for word in allowed)}, found {kind_of(value)}"
            self.reader.error((*at, "on_deadline"), "deadline.outcome", message)
        return allowed[0]

    def _form(self, fields: Mapping[str, Json], at: Path) -> tuple[Json, JsonSchema | None]:
        if "form" not in fields:
            return None, None
        form = fields["form"]
        place = (*at, "form")
        if form.get("type", "object") != "object":
            self.reader.error(
                (*place, "type"), "form.type", f"expected a form with `type: object`, found `{form['type']}`"
            )
            return form, None
        return form, self._schema({"type": "object", **form}, place, holes=True)

    def _policy(self, fields: Mapping[str, Json], at: Path, names: Names, default: Json) -> plan.Policy | None:
        if "from" not in fields and default is None:
            return None
        from_ = self._selectors(fields.get("from", default), (*at, "from"), names)
        exclude = None
        if "exclude" in fields:
            exclude = self._selectors(fields["exclude"], (*at, "exclude"), names, extra=("editor",), empty=True)
        quorum = fields.get("quorum", 1)
        self._check_quorum(quorum, fields, (*at, "quorum"))
        return plan.Policy(from_, exclude, quorum)

    def _selectors(
        self, value: Json, at: Path, names: Names, extra: Sequence[str] = (), empty: bool = False
    ) -> CompiledTemplate:
        """A selector or a list of them, as a template of a list (a whole hole may give the list itself)."""
        is_hole = isinstance(value, str) and _is_hole(value)
        items = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not value and not empty:
            self.reader.error(at, "selector.none", "expected at least one selector, found an empty list")
        for index, item in enumerate(items):
            place = (*at, index) if isinstance(value, list) else at
            self._check_selector(item, place, extra)
        return self._template(
            value if is_hole or isinstance(value, list) else [value],
            at,
            names,
            wrapped=not isinstance(value, list) and not is_hole,
        )

    def _check_selector(self, item: Json, at: Path, extra: Sequence[str]) -> None:
        if isinstance(item, str) and ("${{" in item or _SELECTOR.fullmatch(item) or item in extra):
            return
        words = ("requester", "anyone", *extra)
        hint = suggestion(item, words) if isinstance(item, str) and len(item) > 4 else ""  # `ann` is no `anyone`
        if isinstance(item, str) and not hint and re.fullmatch(r"\w+", item):
            hint = f"; did you mean `user:{item}` or `role:{item}`?"
        message = f"expected user:ID, role:NAME, group:NAME, {', '.join(words)}, found {kind_of(item)}{hint}"
        self.reader.error(at, "selector.invalid", message)

    def _check_quorum(self, quorum: Json, fields: Mapping[str, Json], at: Path) -> None:
        """The shape, and that one decider is enough: more is counted by a later release."""
        if type(quorum) is int and quorum >= 1:
            if quorum > 1:
                self.reader.error(
                    at, "not_yet", "a quorum above 1 is part of flow/v1, but this release counts one decider only"
                )
        elif quorum == "all" or isinstance(quorum, Mapping):
            self.reader.error(
                at, "not_yet", "this form of `quorum` is part of flow/v1, but this release counts one decider only"
            )
        else:
            self.reader.error(
                at, "quorum.invalid", f"expected a number from 1, `all` or a mapping, found {kind_of(quorum)}"
            )

    def _set(self, value: Json, at: Path, names: Names) -> plan.Set | None:
        if isinstance(value, list):
            for index, raw in enumerate(value):
                self._check_operation(raw, (*at, index))
            return plan.Set(ops=self._template(value, at, names))
        if not value:
            self.reader.error(at, "set.empty", "expected at least one state variable in `set`, found none")
            return None
        pairs: list[tuple[str, plan.Template]] = []
        for key, item in value.items():
            self._check_target(key, (*at, key), pointer_form=key.startswith("/"))
            pairs.append((key, self._template(item, (*at, key), names)))
        return plan.Set(assign=tuple(pairs))

    def _check_operation(self, raw: Json, at: Path) -> None:
        fields = self.reader.fields(model.OperationShape, raw, at, "an operation of `set`")
        op = fields.get("op")
        if op in ("add", "replace", "test") and "value" not in fields:
            self.reader.error(at, "shape.missing_key", f"`value` is missing: `{op}` needs one")
        if op in ("move", "copy") and "from" not in fields:
            self.reader.error(at, "shape.missing_key", f"`from` is missing: `{op}` needs one")
        for key in ("path", "from"):
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

    def _wait(self, value: Json, at: Path, names: Names) -> plan.Wait | None:
        fields = self.reader.fields(model.WaitForShape, value, at, "`wait`")
        given = [key for key in ("for", "until") if key in value]
        if len(given) != 1:
            found = " and ".join(f"`{key}`" for key in given) or "none"
            self.reader.error(at, "wait.kind", f"expected one of `for`, `until` in `wait`, found {found}")
            return None
        if "until" in fields:
            self._check_instant(fields["until"], (*at, "until"))
            return plan.Wait(until=self._template(fields["until"], (*at, "until"), names, text=True))
        if "for" not in fields:
            return None
        if _is_hole(fields["for"]):
            return plan.Wait(for_=self._template(fields["for"], (*at, "for"), names, text=True))
        duration = self._duration(fields, "for", at)
        return plan.Wait(for_=duration) if duration is not None else None

    def _check_instant(self, text: str, at: Path) -> None:
        if "${{" in text:
            return
        if JsonSchema({"type": "string", "format": "date-time"}).findings(text):
            message = f"expected an instant with its offset such as 2026-03-02T09:00:00Z, or a hole, found {text!r}"
            self.reader.error(at, "wait.until", message)

    def _fail(self, value: Json, at: Path, names: Names) -> plan.Fail | None:
        if isinstance(value, str):
            return plan.Fail(self._template(value, at, names, text=True))
        fields = self.reader.fields(model.FailParametersShape, value, at, "`fail`")
        message = self._text(fields, "message", at, names)
        code = fields.get("code", "fail")
        self._check_own_code(code, (*at, "code"))
        data = self._template(fields["data"], (*at, "data"), names) if "data" in fields else None
        return plan.Fail(message, code, data) if message is not None else None

    def _check_own_code(self, code: str, at: Path) -> None:
        if not _CODE.fullmatch(code):
            self.reader.error(at, "fail.code", f"expected a code such as `stock.empty`, found `{shorten(code)}`")
        elif code.partition(".")[0] in RESERVED_PREFIXES:
            prefix = code.partition(".")[0]
            self.reader.error(
                at, "fail.reserved_code", f"codes that begin with `{prefix}` are the engine's own; choose another"
            )

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _retry(self, owner: Mapping[str, Json], at: Path) -> plan.Retry | None:
        if not isinstance(owner, Mapping) or not isinstance(owner.get("retry"), Mapping):
            return None
        at = (*at, "retry")
        fields = self.reader.fields(model.RetryShape, owner["retry"], at, "`retry`")
        errors = fields.get("errors")
        if errors is not None:
            self._check_patterns(errors, (*at, "errors"))
        every = self._duration(fields, "every", at, shortest=1)
        max_delay = self._duration(fields, "max_delay", at)
        if "max" not in fields:
            return None
        return plan.Retry(
            max=fields["max"],
            errors=tuple(errors) if errors is not None else None,
            backoff=fields.get("backoff", "fixed"),
            every=every if every is not None else plan.Retry(0).every,
            max_delay=max_delay if max_delay is not None else plan.Retry(0).max_delay,
            jitter=fields.get("jitter", True),
        )

    def _check_patterns(self, patterns: Sequence[str], at: Path) -> None:
        for index, pattern in enumerate(patterns):
            place = (*at, index)
            prefix = pattern.partition(".")[0]
            if pattern == "*" or pattern in KNOWN_CODES or pattern in self.fail_codes:
                continue
            if pattern.endswith(".*") and _CODE.fullmatch(pattern[:-2]):
                if prefix in RESERVED_PREFIXES or any(code.startswith(pattern[:-1]) for code in self.fail_codes):
                    continue
            elif not _CODE.fullmatch(pattern):
                message = f"expected an error code, `prefix.*` or `*`, found `{shorten(pattern)}`"
                self.reader.error(place, "errors.pattern", message)
                continue
            self._doubt_pattern(pattern, prefix, place)

    def _doubt_pattern(self, pattern: str, prefix: str, at: Path) -> None:
        """A code that nobody is known to raise. Python tools may raise codes of their own: those need a near match."""
        known = KNOWN_CODES | self.fail_codes | {f"{word}.*" for word in RESERVED_PREFIXES}
        hint = suggestion(pattern, known)
        tools_may_raise = any(isinstance(tool, plan.PythonTool) or tool is None for tool in self.tools.values())
        if prefix in RESERVED_PREFIXES or hint or not tools_may_raise:
            self.reader.warning(at, "errors.unknown_code", f"nothing raises the error code `{pattern}`{hint}")

    def _duration(self, fields: Mapping[str, Json], key: str, at: Path, shortest: int = 1_000) -> int | None:
        """Milliseconds of the duration under `key`; None where there is none, or after a finding."""
        text = fields.get(key)
        if not isinstance(text, str):
            return None
        if _is_hole(text):
            self.reader.error(
                (*at, key),
                "not_yet",
                f"a hole in `{key}` is part of flow/v1, but this release needs a duration written out",
            )
            return None
        try:
            return milliseconds(text, shortest=shortest)
        except NotADuration as error:
            self.reader.error((*at, key), "duration.invalid", f"`{key}`: {error}")
            return None

    def _condition(self, value: Json, at: Path, names: Names) -> CompiledExpression | None:
        source = value if isinstance(value, str) else str(value).lower()
        try:
            compiled = compile_expression(source, names, condition=True)
            for doubt in compiled.doubts:
                self.reader.warning_inside(at, doubt.offset, doubt.code, doubt.message)
            return compiled
        except Faults as faults:
            for fault in faults.faults:
                self.reader.error_inside(at, fault.offset, fault.code, fault.message)
            return None

    def _text(self, fields: Mapping[str, Json], key: str, at: Path, names: Names) -> CompiledTemplate | None:
        return self._template(fields[key], (*at, key), names, text=True) if key in fields else None

    def _template(
        self, value: Json, at: Path, names: Names, *, text: bool = False, wrapped: bool = False
    ) -> CompiledTemplate:
        """`value` compiled; `text`: as text; `wrapped`: the document has only the one item of the list `value`."""

        def report(path: Path, fault: Fault) -> None:
            place = (*at, *(path[1:] if wrapped else path))
            if fault.code == "expression.hole_in_key":
                self.reader.error(place, fault.code, fault.message, key=True)
            elif fault.code in DOUBTS:
                self.reader.warning_inside(place, fault.offset, fault.code, fault.message)
            else:
                self.reader.error_inside(place, fault.offset, fault.code, fault.message)

        self._warn_braces(value, at)
        return compile_template(value, names, report, text=text)

    def _warn_braces(self, value: Json, at: Path) -> None:
        """`{{ x }}` is what other languages write for a hole."""
        for path, text in _texts(value, at):
            found = re.search(r"(?<![${])\{\{[^{}]*\}\}", text)
            if found and "${{" not in text:
                message = "`{{ }}` is plain text here; a hole is written ${{ }}"
                self.reader.warning_inside(path, found.start(), "text.braces", message)


def _is_hole(text: str) -> bool:
    """Whether `text` is exactly one hole."""
    if not text.strip().startswith("${{"):
        return False
    try:
        pieces = split_holes(text.strip())
    except Faults:
        return True  # open: the template's own finding says so
    return len(pieces) == 1 and not isinstance(pieces[0], str)


def _texts(value: Json, at: Path) -> Iterator[tuple[Path, str]]:
    """Every text inside `value`, with its path."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*at, index))


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
