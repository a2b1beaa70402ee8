"""Expressions and templates: the texts in `if`, `when` and between `${{` and `}}` (docs/language.md#names,
docs/language.md#expressions).

`Names` are the names that one place of a document has. `compile_expression` and `compile_template` check a source
against it and return an Expression and a Template (plan.py). The CEL itself is in cel.py; a hole that is only a path
never gets there: it is copied, so integers, nulls and large values pass unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from hai_flow.definition import cel, cel_values
from hai_flow.definition.cel import Chain, Fault, Faults, Program, Segment
from hai_flow.definition.cel_values import Kind
from hai_flow.definition.document import Path
from hai_flow.definition.expression_error import ExpressionError
from hai_flow.definition.functions import pattern_fault, zone_fault
from hai_flow.definition.holes import end_of_hole
from hai_flow.definition.plan import Hole
from hai_flow.definition.schemas import resolve
from hai_flow.definition.wording import shorten, suggestion
from hai_flow.values import Json

__all__ = [
    "REQUEST",
    "CompiledExpression",
    "CompiledTemplate",
    "ExpressionError",
    "Fault",
    "Faults",
    "Guards",
    "Names",
    "Types",
    "compile_expression",
    "compile_template",
]


ALWAYS: Final = frozenset(("input", "state", "steps", "run", "thread", "now"))
# Roots that exist in some places only, with the sentence for everywhere else.
ELSEWHERE: Final[dict[str, str]] = {
    "error": "`error` exists only in `catch` steps and in the reject handler",
    "item": "`item` exists only inside a `for_each`",
    "index": "`index` exists only inside a loop",
    "args": "`args` exists only in the keys of `approval`",
    "response": "`response` exists only in `http.expect`",
    "event": "`event` exists only in `wait_for.match` and in triggers",
    "secrets": "`secrets` can be named only in the settings of tools and models, "
    "in `auth` and `headers` of `http`, and as a webhook's `secret`",
}
# No loop variable but `item` may have one of these names; outside of their places they keep their own sentence.
ROOTS: Final = ALWAYS | frozenset(ELSEWHERE)
STEP_MEMBERS: Final = ("status", "output", "error", "approval", "usage", "parts")
_MEMBER_HINTS: Final = {
    "decision": "; write steps.X.approval.decision",
    "result": "; did you mean `output`?",
    "items": "; a loop's items are its `output`",
    "approved": '; write steps.X.approval.decision == "approve"',
    "outcome": "; did you mean `status`?",
}


_STATUS: Final[dict[str, Json]] = {
    "type": "string",
    "enum": ["pending", "running", "waiting", "finished", "skipped", "failed", "stopped", "undone"],
}


def _closed_object(**properties: Json) -> dict[str, Json]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


_FIXED: Final[dict[str, Json]] = {
    "run": _closed_object(id={}, workflow={}, version={}, started_at={}, requester={}, trigger={}),
    "thread": _closed_object(id={}, message={}, content={}),
    "error": _closed_object(code={}, message={}, path={}, attempt={}, at={}, retriable={}, data={}, cause={}),
    "response": _closed_object(
        status={"type": "integer"}, headers={}, json={}, text={"type": "string"}, url={"type": "string"}
    ),
    "event": _closed_object(id={}, type={"type": "string"}, data={}, at={}),
    "index": {"type": "integer"},
}
# `event` of a webhook.
REQUEST: Final[Json] = _closed_object(
    id={"type": "string"}, type={"type": "string"}, data={}, at={}, headers={"additionalProperties": {"type": "string"}}
)

# `usage` of a step that asks a model.
USAGE: Final[dict[str, Json]] = _closed_object(
    **{name: {"type": "integer"} for name in ("calls", "input_tokens", "output_tokens", "cached_tokens")},
    reasoning_tokens={"type": "integer"},
    cost_usd={"type": ["number", "null"]},
)
PARTS: Final[dict[str, Json]] = {"type": "array", "items": {"type": "object"}}
ENVELOPE: Final[dict[str, Json]] = _closed_object(
    decision={}, reason={"type": ["string", "null"]}, values={}, edits={}, votes={}, expired={}, escalations={}
)


# -- types ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Types:
    """The static types of the data, as JSON Schemas; `{}` where nothing is known."""

    input: Json
    state: Json  # an object with a property for each name of `state`
    outputs: Mapping[str, Json] = field(default_factory=dict)  # id -> schema of steps.ID.output
    approvals: Mapping[str, Json] = field(default_factory=dict)  # id -> schema of steps.ID.approval; else ENVELOPE
    roots: Mapping[str, Json] = field(default_factory=dict)  # of roots that exist at some places only: item, args, ...
    ungated: Container[str] = ()  # ids of steps without `approval`
    mindless: Container[str] = ()  # ids of steps that ask no model: they have no `usage`
    _looks: dict[tuple[Segment, ...], Look] = field(default_factory=dict, init=False, repr=False, compare=False)
    holes: dict[str, _PathHole] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Sound holes that are paths, by their source: most documents name few things often."""

    def look(self, path: Sequence[Segment]) -> Look:
        """`path` as the schemas see it."""
        key = tuple(path)
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = self._look(key)
        return look

    def _look(self, path: tuple[Segment, ...]) -> Look:
        root = str(path[0])
        if root == "steps":
            return self._look_at_step(path)
        known = {"input": self.input, "state": self.state}
        schema = known[root] if root in known else self.roots.get(root, _FIXED.get(root, {}))
        return _look(schema, path[1:], 1, path)

    def _look_at_step(self, path: Sequence[Segment]) -> Look:
        member = path[2] if len(path) > 2 else None
        if member == "output":
            return _look(self.outputs.get(str(path[1]), {}), path[3:], 3, path)
        if member == "approval":
            return _look(self.approvals.get(str(path[1]), ENVELOPE), path[3:], 3, path)
        if member == "error":
            return _look(_FIXED["error"], path[3:], 3, path)
        if member == "usage":
            return _look(USAGE, path[3:], 3, path)
        if member == "parts":
            return _look(PARTS, path[3:], 3, path)
        return Look(_STATUS if path[2:] == ("status",) else {})

    def kind(self, path: Sequence[Segment]) -> Kind:
        """The CEL type of the value at `path`."""
        if tuple(path) == ("now",):
            return "timestamp"
        look = self.look(path)
        return "dyn" if look.optional else _kind(look.schema)


@dataclass(frozen=True, slots=True)
class Look:
    """A path seen through the schemas."""

    schema: Json
    optional: tuple[int, ...] = ()  # lengths of the beginnings of the path that may be absent
    last_optional: bool = False  # the last property itself may be absent
    wrong: tuple[int, str] | None = None  # (index of the segment, message)
    barren: tuple[int, str] | None = None  # the same of a property that is asked of a list, a text or a number
    root: Json = None  # the schema that references inside `schema` point into


def _look(root: Json, rest: Sequence[Segment], depth: int, path: Sequence[Segment]) -> Look:
    schema, last = resolve(root, root), False
    optional: list[int] = []
    for index, part in enumerate(rest):
        if not isinstance(schema, dict):
            return Look({}, tuple(optional), root=root)
        if isinstance(part, int):
            schema, last = resolve(schema.get("items", {}), root), False
            continue
        properties = schema.get("properties")
        if not isinstance(properties, dict) or part not in properties:
            wrong = _unknown_property(schema, part, path[: depth + index])
            barren = _barren(schema, part, path[: depth + index])
            at = depth + index
            return Look(
                {}, tuple(optional), False, (at, wrong) if wrong else None, (at, barren) if barren else None, root
            )
        raw = resolve(properties[part], root)
        has_default = isinstance(raw, Mapping) and "default" in raw
        last = part not in schema.get("required", ()) and not has_default
        if last:
            optional.append(depth + index + 1)
        schema = raw
    return Look(schema, tuple(optional), last, root=root)


def _unknown_property(schema: Mapping[str, Json], part: str, parent: Sequence[Segment]) -> str | None:
    """Why `part` can't be there, or None where the schema leaves it open."""
    properties = schema.get("properties")
    if properties is None and schema.get("additionalProperties", True) is not False:
        return None
    if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
        return None
    if any(key in schema for key in ("anyOf", "oneOf", "allOf", "if", "dependentSchemas")):
        return None
    known = list(properties or ())
    listed = f" (it has {', '.join(known)})" if 0 < len(known) <= 8 else ""
    return f"there is no `{part}` in `{cel.spell(parent)}`{suggestion(part, known) or listed}"


_LENGTHS: Final = ("length", "len", "size", "count")
_BARREN: Final = {
    "array": "a list",
    "string": "text",
    "integer": "a number",
    "number": "a number",
    "boolean": "a boolean",
}


def _barren(schema: Mapping[str, Json], part: str, parent: Sequence[Segment]) -> str | None:
    """Why something that is no object has no property `part`, or None where it may be one."""
    types = schema.get("type")
    given = [kind for kind in (types if isinstance(types, list) else [types]) if kind != "null"]
    if not given or not all(kind in _BARREN for kind in given):
        return None
    text = cel.spell(parent)
    remedy = ""
    if part in _LENGTHS and ("array" in given or "string" in given):
        remedy = f"; write size({text})"
    elif given == ["array"]:
        remedy = f"; write {text}.map(x, x.{part}), or {text}[0].{part}"
    return f"`{text}` is {_BARREN[str(given[0])]} and has no `{part}`{remedy}"


def _kind(schema: Json) -> Kind:
    if not isinstance(schema, Mapping):
        return "dyn"
    match schema.get("type"):
        case "integer":
            return "int"
        case "number":
            return "double"
        case "string":
            return "string"
        case "boolean":
            return "bool"
        case "object":
            return "map"
        case "array":
            element = _kind(schema.get("items", {}))
            return f"list:{element}" if element in ("int", "double", "string", "bool", "map") else "list:dyn"
        case _:
            return "dyn"


# -- names ---------------------------------------------------------------------------------------------------------


Guards: TypeAlias = frozenset[tuple[Segment, ...]]


@dataclass(frozen=True, slots=True)
class Names:
    """The names that one place has.

    `explain(id)` gives (code, message) for a step id that is not `visible` here. `absent` has the reasons why visible
    steps may have no output when this place is reached, each a clause like "the step has an `if`". Its keys are ids, or
    `id.member` where only that member may be absent.
    """

    types: Types
    roots: frozenset[str] = ALWAYS
    visible: Container[str] = frozenset()
    guarded: Guards = frozenset()  # paths that conditions around have shown to be there
    explain: Callable[[str], tuple[str, str] | None] = lambda name: (
        "expression.unknown_step",
        f"there is no step `{name}`",
    )
    absent: Mapping[str, str] = field(default_factory=dict)  # id, or id.member -> reason

    def with_roots(self, *names: str, schemas: Mapping[str, Json] | None = None) -> Names:
        """The same place with further roots: `names`, and those of `schemas` with their types."""
        types = replace(self.types, roots={**self.types.roots, **schemas}) if schemas else self.types
        return replace(self, types=types, roots=self.roots | {*names, *(schemas or ())})

    def with_guards(self, expression: CompiledExpression | None) -> Names:
        """The same place, where `expression` is known to be true."""
        return replace(self, guarded=self.guarded | expression.guards) if expression else self

    def element_schema(self, value: Json) -> Json:
        """The type of the items of `value`, where it is one hole with only a path to a list of known type; else {}."""
        look = self._look_at(value)
        items = look.schema.get("items") if isinstance(look.schema, Mapping) else None
        if not isinstance(items, Mapping):
            return {}
        return {**{key: look.root[key] for key in ("$defs", "definitions") if key in look.root}, **items}

    def type_of(self, value: Json) -> str | None:
        """The JSON type of `value`, where it is one hole with only a path to something of one known type."""
        schema = self._look_at(value).schema
        found = schema.get("type") if isinstance(schema, Mapping) else None
        return found if isinstance(found, str) else None

    def named(self, text: str, *, guess: bool = False) -> str | None:
        """The path that `text` is, where it leads to something of this place; else None. With `guess` it may also lack
        its beginning: `amount` for `input.amount`, `pay.output` for `steps.pay.output`."""
        paths = [text, *self._completed(text)] if guess else [text]
        return next((path for path in paths if self._leads_somewhere(path)), None)

    def _completed(self, text: str) -> Iterator[str]:
        word = text.partition(".")[0]
        if word != text and word in self.visible:
            yield f"steps.{text}"
        for root, schema in (("input", self.types.input), ("state", self.types.state)):
            if isinstance(schema, Mapping) and word in schema.get("properties", ()):
                yield f"{root}.{text}"

    def _leads_somewhere(self, text: str) -> bool:
        chain = _whole_path(text, self.scanned_roots())
        if chain is None or chain.path[0] not in self.roots:
            return False
        least = 3 if chain.path[0] == "steps" else 1 if chain.path[0] not in ROOTS - {"item"} else 2
        return len(chain.path) >= least and self.check(text, chain) is None

    def may_be_null(self, value: Json) -> str | None:
        """The path that `value` consists of as one hole, if null may be there and nothing around has excluded that."""
        hole = _only_hole(value)
        chain = _whole_path(hole.source, self.scanned_roots()) if hole else None
        if chain is None or chain.path[0] not in self.roots or self._is_known(chain.path, frozenset()):
            return None
        look = self.types.look(chain.path)
        types = look.schema.get("type") if isinstance(look.schema, Mapping) else None
        nullable = look.last_optional or (isinstance(types, list) and "null" in types)
        return cel.spell(chain.path) if nullable else None

    def _look_at(self, value: Json) -> Look:
        hole = _only_hole(value)
        chain = _whole_path(hole.source, self.scanned_roots()) if hole else None
        return self.types.look(chain.path) if chain and chain.path[0] in self.roots else Look({})

    def scanned_roots(self) -> frozenset[str]:
        """The names that begin a path into the data, here or elsewhere."""
        return ROOTS if self.roots <= ROOTS else ROOTS | self.roots

    def doubt(self, chain: Chain, known: Guards = frozenset(), *, alone: bool = False) -> Fault | None:
        """The doubt about a path that may be absent where only `known` (and the guards around) is there.

        `alone`: the path is a whole hole, where an optional property is null.
        """
        path, absent = chain.path, None
        if path[0] == "steps" and len(path) > 2 and path[2] in _MAY_BE_ABSENT:
            absent = self.absent.get(f"{path[1]}.{path[2]}") or self.absent.get(str(path[1]))
            if absent is not None and not self._is_known(path[:3], known):
                return Fault(chain.start, "expression.unguarded", _absent_step(path, absent))
        look = self.types.look(path if chain.field is None else (*path, chain.field))
        if look.barren is not None:
            return Fault(chain.start, "expression.no_object", look.barren[1])
        look = self.types.look(path)
        for length in look.optional:
            if alone and look.last_optional and length == len(path):
                continue
            if not self._is_known(path[:length], known):
                text, parent = cel.spell(path[:length]), cel.spell(path[: length - 1])
                remedy = f"guard it with has({text}) or {parent}.?{path[length - 1]}.orValue(...)"
                return Fault(chain.start, "expression.unguarded", f"`{text}` may be absent; {remedy}")
        return None

    def _is_known(self, path: tuple[Segment, ...], known: Guards) -> bool:
        return any(guard[: len(path)] == path for guards in (known, self.guarded) for guard in guards)

    def check(self, source: str, chain: Chain) -> Fault | None:
        """The fault of one path, or None."""
        if chain.path[0] not in self.roots:
            return Fault(chain.start, "expression.unknown_name", _not_here(str(chain.path[0])))
        if chain.path[0] == "steps":
            fault = self._check_step(source, chain)
            if fault is not None:
                return fault
        path = chain.path if chain.field is None else (*chain.path, chain.field)
        wrong = self.types.look(path).wrong
        if wrong is None:
            return None
        return Fault(_segment_offset(source, chain, wrong[0]), "expression.unknown_property", wrong[1])

    def _check_step(self, source: str, chain: Chain) -> Fault | None:
        if len(chain.path) < 2:
            return Fault(chain.start, "expression.step", "expected steps.ID.output, found `steps` alone; name the step")
        name = str(chain.path[1])
        if name not in self.visible:
            explained = self.explain(name)
            return Fault(_segment_offset(source, chain, 1), *explained) if explained else None
        member = chain.path[2] if len(chain.path) > 2 else chain.field
        if member is None:
            message = (
                f"expected steps.{name}.output (or .status, .error, .approval, .usage, .parts), found the step itself"
            )
            return Fault(_segment_offset(source, chain, 1), "expression.step", message)
        if member not in STEP_MEMBERS:
            hint = (
                _MEMBER_HINTS.get(str(member))
                or suggestion(str(member), STEP_MEMBERS)
                or f"; it has {', '.join(STEP_MEMBERS)}"
            )
            message = f"a step has no `{member}`{hint.replace('X', name)}"
            return Fault(_segment_offset(source, chain, 2), "expression.step_member", message)
        if member == "approval" and name in self.types.ungated:
            message = f"nobody approves the step `{name}`: only `approve` steps and steps with an `approval` have one"
            return Fault(_segment_offset(source, chain, 2), "expression.step_member", message)
        if member in ("usage", "parts") and name in self.types.mindless:
            message = f"the step `{name}` asks no model: only `llm` and `agent` have `{member}`"
            return Fault(_segment_offset(source, chain, 2), "expression.step_member", message)
        return None


_MAY_BE_ABSENT: Final = ("output", "error", "approval", "usage", "parts")


def _absent_step(path: Sequence[Segment], reason: str) -> str:
    step, member = cel.spell(path[:2]), path[2]
    status = f', or test {step}.status == "finished" before' if member != "error" else ""
    guards = f"has({step}.{member}) or {step}.?{member}.orValue(...){status}"
    return f"`{step}.{member}` may be absent: {reason}; guard it with {guards}"


def _segment_offset(source: str, chain: Chain, index: int) -> int:
    """Where the segment `index` of the path begins in the source."""
    spans = cel.chain_spans(source, chain.start, len(chain.path) - 1)
    if spans is None or index >= len(spans):
        return chain.end - 1 if index else chain.start
    before = spans[index - 1][0] if index else chain.start
    token = re.compile(r"(?:[\s.\[]|//[^\n]*\n)*").match(source, before)
    return token.end() if token and index else before


def _not_here(name: str) -> str:
    if name in ALWAYS:
        return f"`{name}` can't be named here: this is evaluated before there is a run"
    return ELSEWHERE.get(name) or f"there is no name `{name}`"


# -- bare expressions ----------------------------------------------------------------------------------------------


class CompiledExpression:
    """plan.Expression: CEL that was checked. `condition` results must be booleans; `doubts` are for warnings."""

    __slots__ = ("_condition", "_program", "doubts", "guards", "paths", "roots", "source", "steps")

    def __init__(
        self, source: str, program: Program, chains: Sequence[Chain], doubts: Sequence[Fault], condition: bool,
        guards: Guards,
    ) -> None:  # fmt: skip
        self.source = source
        self.paths = tuple(chain.path for chain in chains)
        self.roots, self.steps = _used(self.paths)
        self.guards = guards  # the paths that are there whenever the result is true
        self.doubts = tuple(doubts)
        self._program = program
        self._condition = condition

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value. Raises `ExpressionError` with an `expression.*` code."""
        value = self._program.evaluate(scope)
        if self._condition and type(value) is not bool:
            raise ExpressionError(
                "expression.error", f"{self.source!r}: expected true or false, found {shorten(str(value))}"
            )
        return value

    def __repr__(self) -> str:
        return f"CompiledExpression({self.source!r})"


def _used(paths: Any) -> tuple[frozenset[str], frozenset[str]]:
    roots: set[str] = set()
    steps: set[str] = set()
    for path in paths:
        if path[0] == "steps":
            steps.add(str(path[1]) if len(path) > 1 else "")
        else:
            roots.add(str(path[0]))
    return frozenset(roots), frozenset(steps)


def compile_expression(source: str, names: Names, *, condition: bool = False) -> CompiledExpression:
    """`source` (bare, or one whole `${{ }}` around) checked and compiled. Raises `Faults` with offsets in `source`."""
    inner, shift = _unwrapped(source)
    if shift == 0 and "${{" in source:
        raise Faults([Fault(0, "expression.holes", _without_holes(source))])
    try:
        program, scanned, doubts = _compile(inner, names)
        if condition and program.result_type not in ("BOOL", "DYN"):
            found = program.result_type.lower()
            raise Faults(
                [Fault(0, "expression.not_boolean", f"expected true or false, found an expression of type {found}")]
            )
    except Faults as faults:
        raise Faults([Fault(fault.offset + shift, fault.code, fault.message) for fault in faults.faults]) from None
    shifted = [Fault(doubt.offset + shift, doubt.code, doubt.message) for doubt in doubts]
    guards = _shown(scanned.tree, scanned.by_node, True)
    return CompiledExpression(inner.strip(), program, scanned.found.chains, shifted, condition, guards)


def _without_holes(source: str) -> str:
    """The sentence about a bare expression with holes in it."""
    try:
        pieces = split_holes(source)
    except Faults:
        return "this is an expression, and takes no holes: drop the `${{` (and the `}}`)"
    bare = "".join(piece if isinstance(piece, str) else piece.source.strip() for piece in pieces)
    return f"this is an expression already: drop the `${{{{ }}}}`: {bare}"


def _unwrapped(source: str) -> tuple[str, int]:
    """The expression inside one whole `${{ }}`, and where it begins; a bare source is itself."""
    stripped = source.strip()
    if not stripped.startswith("${{"):
        return source, 0
    begin = source.index("${{")
    end = end_of_hole(source, begin)
    if end is None or source[end + 2 :].strip():
        return source, 0
    return source[begin + 3 : end], begin + 3


@dataclass(frozen=True, slots=True)
class _Scanned:
    """A source whose paths were found; shared between all places where it stands."""

    tree: cel.Tree
    found: cel.Scan
    by_node: Mapping[int, Chain]
    faults: tuple[Fault, ...]  # those that stand there in every place


def _compile(source: str, names: Names) -> tuple[Program, _Scanned, list[Fault]]:
    """The program of `source`, the paths it reads, and the doubts about it. Raises `Faults`."""
    roots = names.scanned_roots()
    scanned = _scan(source, roots)
    found = scanned.found
    hyphens = [fault for chain in found.chains if (fault := _hyphen_fault(source, chain, names))]
    if hyphens:
        raise Faults(hyphens)  # whatever else is wrong follows from it
    faults = [fault for chain in found.chains if (fault := names.check(source, chain))]
    faults += [_free_fault(source, name, names) for name in found.free if name.name not in cel.TYPE_NAMES]
    faults += [
        Fault(offset, "expression.shadow", f"the variable `{name}` would hide a name of the language; rename it")
        for name, offset in found.variables
        if name in roots
    ]
    faults += scanned.faults
    doubts = _Doubts(source, scanned, names)
    faults += doubts.faults
    if faults:
        unique = {(fault.offset, fault.message): fault for fault in faults}
        raise Faults(sorted(unique.values(), key=lambda fault: fault.offset))
    kinds = tuple((chain.path, names.types.kind(chain.path)) for chain in found.chains)
    return _program(source, roots, kinds), scanned, doubts.doubts


def _time_faults(tree: cel.Tree) -> Iterator[Fault]:
    """Literal patterns and time zones of `format_time` that are none."""
    for node in cel.walk(tree):
        if isinstance(node, cel.Call) and node.function == "format_time":
            for operand, fault_of in zip(node.operands[1:], (pattern_fault, zone_fault), strict=False):
                literal = operand.value if isinstance(operand, cel.Const) else None
                fault = fault_of(literal) if isinstance(literal, str) else None
                if fault is not None:
                    yield Fault(operand.offset, "expression.format_time", fault)


# Codes of doubts: warnings, not errors.
DOUBTS: Final = frozenset(("expression.unguarded",))
# Codes of doubts that new documents are refused for.
REFUSALS: Final = frozenset(("expression.enum", "expression.no_object"))


def _shown(tree: cel.Tree, chains: Mapping[int, Chain], outcome: bool) -> Guards:
    """The paths that are certainly there when `tree` is `outcome`."""
    match tree:
        case cel.Select(test=True):
            chain = chains.get(id(tree.operand))
            return frozenset([(*chain.path, tree.name)]) if outcome and chain and chain.field else frozenset()
        case cel.Call(function="hasValue", target=cel.Call(function="_?._", arguments=(operand, cel.Const()))):
            chain = chains.get(id(operand))
            return frozenset([(*chain.path, chain.field)]) if outcome and chain and chain.field else frozenset()
        case cel.Call(function="!_", arguments=(operand,)):
            return _shown(operand, chains, not outcome)
        case cel.Call(function="_&&_" | "_||_", arguments=(left, right)):
            one, other = _shown(left, chains, outcome), _shown(right, chains, outcome)
            return one | other if outcome == (tree.function == "_&&_") else one & other
        case cel.Call(function="_==_" | "_!=_", arguments=(left, right)) if outcome == (tree.function == "_==_"):
            return _shown_by_status(left, right, chains) or _shown_by_status(right, left, chains)
        case cel.Call(function="_==_" | "_!=_", arguments=(left, cel.Const(value=None))):
            chain = chains.get(id(left))
            return (
                frozenset([chain.path]) if chain is not None and outcome == (tree.function == "_!=_") else frozenset()
            )
        case _:
            return frozenset()


_SHOWN_BY_STATUS: Final = {"finished": ("output", "approval", "usage", "parts"), "failed": ("error",)}


def _shown_by_status(one: cel.Tree, other: cel.Tree, chains: Mapping[int, Chain]) -> Guards:
    chain = chains.get(id(one))
    if chain is None or not isinstance(other, cel.Const) or not isinstance(other.value, str):
        return frozenset()
    if chain.path[0] != "steps" or chain.path[2:] != ("status",):
        return frozenset()
    return frozenset((*chain.path[:2], member) for member in _SHOWN_BY_STATUS.get(other.value, ()))


class _Doubts:
    """One walk through a tree: unguarded paths, texts outside their enum, map order, fields of typed list items."""

    def __init__(self, source: str, scanned: _Scanned, names: Names) -> None:
        self.source = source
        self.names = names
        self.chains = scanned.by_node
        self.doubts: list[Fault] = []
        self.faults: list[Fault] = []
        self._visit(scanned.tree, frozenset(), {})

    def _visit(self, tree: cel.Tree, known: Guards, items: Mapping[str, Look]) -> None:
        """`known`: paths shown to be there; `items`: the types of the variables of loops around."""
        chain = self.chains.get(id(tree))
        if chain is not None:
            doubt = self.names.doubt(chain, known)
            self.doubts += [doubt] if doubt else []
            return
        if isinstance(tree, (cel.Select, cel.Call)) and self._item(tree, items):
            return
        match tree:
            case cel.Call(function="_&&_" | "_||_", arguments=(left, right)):
                self._visit(left, known, items)
                self._visit(right, known | _shown(left, self.chains, tree.function == "_&&_"), items)
            case cel.Call(function="_?_:_", arguments=(condition, then, otherwise)):
                self._visit(condition, known, items)
                self._visit(then, known | _shown(condition, self.chains, True), items)
                self._visit(otherwise, known | _shown(condition, self.chains, False), items)
            case cel.Comprehension():
                self._loop(tree, known, items)
            case _:
                if isinstance(tree, cel.Call) and tree.function in ("_==_", "_!=_", "@in"):
                    self.doubts += _enum_doubts(tree, self.chains, self.names)
                for child in cel.children(tree):
                    self._visit(child, known, items)

    def _loop(self, loop: cel.Comprehension, known: Guards, items: Mapping[str, Look]) -> None:
        over = self._look(loop.range, items)
        schema = over.schema if isinstance(over.schema, Mapping) else {}
        item = schema.get("items") if schema.get("type") == "array" else None
        inner = {**items, loop.variable: Look(resolve(item, over.root), root=over.root) if item else Look({})}
        self._visit(loop.range, known, items)
        self._visit(loop.start, known, items)
        for part in (loop.condition, loop.step, loop.result):
            self._visit(part, known, inner)

    def _look(self, tree: cel.Tree, items: Mapping[str, Look]) -> Look:
        """The type of a loop's range: a path, a part of a loop's item, or one of these filtered."""
        chain = self.chains.get(id(tree))
        if chain is not None:
            return self.names.types.look(chain.path)
        path = cel.static_path(tree)
        if path is not None and path[0].name in items:
            outer = items[path[0].name]
            return _look_inside(outer, (path[0].name, *path[1]))
        if isinstance(tree, cel.Call) and tree.function == cel.SORTED and isinstance(tree.target, cel.Comprehension):
            return self._look(tree.target.range, items)
        if isinstance(tree, cel.Comprehension) and _is_filter(tree):
            return self._look(tree.range, items)
        return Look({})

    def _item(self, tree: cel.Select | cel.Call, items: Mapping[str, Look]) -> bool:
        """Check a path that begins with a loop's variable; whether `tree` is one."""
        inside, last = (tree.operand, (tree.name,)) if isinstance(tree, cel.Select) and tree.test else (tree, ())
        path = cel.static_path(inside)
        if path is None or path[0].name not in items:
            return False
        whole = (path[0].name, *path[1], *last)
        wrong = _look_inside(items[path[0].name], whole).wrong
        if wrong is not None:
            start = path[0].offset
            chain = Chain(tree, whole, start, start + len(path[0].name), None)
            offset = _segment_offset(self.source, chain, wrong[0])
            self.faults.append(Fault(offset, "expression.unknown_property", wrong[1]))
        barren = _look_inside(items[path[0].name], whole).barren
        if barren is not None:
            self.doubts.append(Fault(path[0].offset, "expression.no_object", barren[1]))
        return True


def _look_inside(item: Look, path: tuple[Segment, ...]) -> Look:
    """The type of `path`, which begins with a variable of the type `item`."""
    schema = item.schema
    if isinstance(schema, Mapping) and isinstance(item.root, Mapping):
        schema = {**{key: item.root[key] for key in ("$defs", "definitions") if key in item.root}, **schema}
    return _look(schema, path[1:], 1, path)


def _is_filter(loop: cel.Comprehension) -> bool:
    """Whether the loop gives some of the items of its range: `filter`, but no `map`."""
    match loop.step:
        case cel.Call(
            function="_?_:_",
            arguments=(_, cel.Call(function="_+_", arguments=(_, cel.Listing(elements=(cel.Name() as kept,)))), _),
        ):
            return kept.name == loop.variable
        case _:
            return False


def _enum_doubts(call: cel.Call, chains: Mapping[int, Chain], names: Names) -> Iterator[Fault]:
    """Texts that are compared with, or looked for among, values of an enum that does not have them."""
    one, other = call.arguments
    pairs = [(one, other), (other, one)]
    if call.function == "@in":
        pairs = [(one, element) for element in other.elements] if isinstance(other, cel.Listing) else []
    for read, written in pairs:
        chain = chains.get(id(read))
        if chain is None or not isinstance(written, cel.Const) or not isinstance(written.value, str):
            continue
        schema = names.types.look(chain.path).schema
        allowed = schema.get("enum") if isinstance(schema, Mapping) else None
        if isinstance(allowed, list) and written.value not in allowed and all(isinstance(a, str) for a in allowed):
            message = f"`{cel.spell(chain.path)}` is never {written.value!r}{suggestion(written.value, allowed)}"
            yield Fault(written.offset, "expression.enum", f"{message} (it is one of {', '.join(allowed)})")


_HYPHENED = re.compile(r"(?:-[A-Za-z0-9_]+)+")


def _hyphen_fault(source: str, chain: Chain, names: Names) -> Fault | None:
    """A name with a hyphen in it, which CEL reads as a subtraction: `steps.check-amount`, `input.first-name`."""
    tail = _HYPHENED.match(source, chain.end)
    if tail is None or len(chain.path) < 2 or not isinstance(chain.path[-1], str):
        return None
    word, parent = chain.path[-1] + tail.group(), chain.path[:-1]
    if parent == ("steps",):
        remedy = f"ids have no hyphens; write `steps.{word.replace('-', '_')}`"
    elif word in _properties(names.types.look(parent)):
        remedy = f'write `{cel.spell(parent)}["{word}"]`'
    else:
        return None
    message = f"`{cel.spell(parent)}.{word}` is read as a subtraction; {remedy}"
    return Fault(_segment_offset(source, chain, len(parent)), "expression.hyphen", message)


def _properties(look: Look) -> Mapping[str, Json]:
    properties = look.schema.get("properties") if isinstance(look.schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _free_fault(source: str, name: cel.Name, names: Names) -> Fault:
    hint = suggestion(name.name, names.roots)
    for root, schema in (("input", names.types.input), ("state", names.types.state)):
        if isinstance(schema, Mapping) and name.name in schema.get("properties", ()) and root in names.roots:
            hint = f"; did you mean `{root}.{name.name}`?"
    if name.name in names.visible:
        hint = f"; did you mean `steps.{name.name}.output`?"
    alone = not source[name.offset + len(name.name) :].lstrip().startswith((".", "[", "("))
    hint = hint or _strange_name(name.name, alone=alone)
    return Fault(name.offset, "expression.unknown_name", f"there is no name `{name.name}`{hint}")


_CONSTANTS: Final = {"True": "true", "False": "false", "None": "null", "nil": "null", "undefined": "null"}
_ELSEWHERE_CALLED: Final = {
    "env": "; name a secret where it is used, as ${{ secrets.NAME }}; other values are `input`",
    "vars": "; values of a run are `input`, and `state`",
    "each": "; the item of a loop is `item`, or what `as` says",
    "it": "; the item of a loop is `item`, or what `as` says",
    "github": "; what started a run is its `input`",
    "trigger": "; what started a run is its `input`",
}


def _strange_name(name: str, *, alone: bool) -> str:
    """A word on a name that is nearly none of ours; `alone`: nothing of it is asked for."""
    if name in _CONSTANTS:
        return f"; did you mean `{_CONSTANTS[name]}`?"
    return _ELSEWHERE_CALLED.get(name) or (f'; text stands in quotes: "{shorten(name)}"' if alone else "")


@lru_cache(maxsize=4096)
def _scan(source: str, roots: frozenset[str]) -> _Scanned:
    tree = cel.parse(source)
    found = cel.scan(tree, source, roots)
    faults = [
        Fault(message.offset, "expression.syntax", f"`{message.type_name}{{...}}` is not a type of flow/v1")
        for message in found.messages
    ]
    by_node = {id(chain.node): chain for chain in found.chains}
    return _Scanned(tree, found, by_node, (*faults, *_time_faults(tree)))


@lru_cache(maxsize=4096)
def _program(source: str, roots: frozenset[str], kinds: tuple[tuple[tuple[Segment, ...], Kind], ...]) -> Program:
    """Programs are immutable: two documents with the same source and types share one."""
    scanned = _scan(source, roots)
    return cel.compile_tree(source, scanned.tree, scanned.found.chains, dict(kinds).__getitem__)


# -- templates -----------------------------------------------------------------------------------------------------


class _Part(Protocol):
    """A piece of a template."""

    def render(self, scope: Mapping[str, Json]) -> Json: ...


class CompiledTemplate:
    """plan.Template: a YAML value with its holes compiled. `written` is that value."""

    __slots__ = ("_render", "holes", "is_literal", "roots", "steps", "written")

    def __init__(self, part: _Part, holes: Sequence[Hole], written: Json) -> None:
        self.holes = tuple(holes)
        self.roots, self.steps = _used(path for hole in holes for path in hole.paths)
        self.written = written
        self.is_literal = isinstance(part, _Literal)
        self._render: Callable[[Mapping[str, Json]], Json] = part.render

    def render(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value with every hole filled. Raises `ExpressionError`."""
        return self._render(scope)


@dataclass(frozen=True, slots=True)
class _Literal:
    value: Json

    def render(self, scope: Mapping[str, Json]) -> Json:
        return self.value


# Roots of which a path means the same wherever it may be named.
_EVERYWHERE_ALIKE: Final = frozenset(("input", "state", "run", "thread"))


class _PathHole:
    """A hole that is only a path: the value itself, without CEL."""

    __slots__ = ("_optional", "path", "root")

    def __init__(self, path: tuple[Segment, ...], optional: bool) -> None:
        self.path = path
        self.root = path[0]
        self._optional = optional  # its last property is optional by its schema: absent is null

    def render(self, scope: Mapping[str, Json]) -> Json:
        value: Any = scope
        try:
            for part in self.path:
                if type(value) is str:  # "text"[0] would be a character
                    return self._slow(scope)
                value = value[part]
        except (KeyError, IndexError, TypeError):
            return self._slow(scope)
        return value

    def _slow(self, scope: Mapping[str, Json]) -> Json:
        value = cel.look_up(scope, self.path)
        if value is not cel.MISSING:
            return value
        if self._optional and cel.look_up(scope, self.path[:-1]) is not cel.MISSING:
            return None
        raise cel.absent(self.path)


@dataclass(frozen=True, slots=True)
class _NowHole:
    """`${{ now }}`: the scope has milliseconds, a document sees RFC 3339 text."""

    def render(self, scope: Mapping[str, Json]) -> Json:
        return cel_values.instant_text(scope["now"])


@dataclass(frozen=True, slots=True)
class _CelHole:
    program: Program

    def render(self, scope: Mapping[str, Json]) -> Json:
        return self.program.evaluate(scope)


@dataclass(frozen=True, slots=True)
class _Text:
    """Literal pieces and holes, joined as text."""

    parts: tuple[str | _Part, ...]

    def render(self, scope: Mapping[str, Json]) -> Json:
        return "".join(part if isinstance(part, str) else as_text(part.render(scope)) for part in self.parts)


@dataclass(frozen=True, slots=True)
class _List:
    parts: tuple[_Part, ...]

    def render(self, scope: Mapping[str, Json]) -> Json:
        return [part.render(scope) for part in self.parts]


@dataclass(frozen=True, slots=True)
class _Map:
    parts: tuple[tuple[str, _Part], ...]

    def render(self, scope: Mapping[str, Json]) -> Json:
        return {key: part.render(scope) for key, part in self.parts}


Reporter: TypeAlias = Callable[[Path, Fault], None]  # path inside the value


def compile_template(value: Json, names: Names, report: Reporter, *, text: bool = False) -> CompiledTemplate:
    """`value` with its holes compiled. With `text` a single hole becomes text as well, where it else keeps its type.

    Faults (and doubts: see DOUBTS) go to `report`, by the path inside `value`; a faulty hole is null.
    """
    compiler = _TemplateCompiler(names, report)
    part = compiler.part(value, ())
    if not text or isinstance(part, _Literal):
        return CompiledTemplate(part, compiler.holes, value)
    return CompiledTemplate(_Text((part,)), [hole._replace(whole=False) for hole in compiler.holes], value)


class _TemplateCompiler:
    def __init__(self, names: Names, report: Reporter) -> None:
        self.names = names
        self.report = report
        self.holes: list[Hole] = []

    def part(self, value: Json, at: Path) -> _Part:
        """Recursion is bounded by the document's depth (40)."""
        if isinstance(value, str):
            return self._text(value, at)
        if isinstance(value, list):
            parts = [self.part(item, (*at, index)) for index, item in enumerate(value)]
            return (
                _Literal(value)
                if all(isinstance(p, _Literal) for p in parts) and "$" not in str(value)
                else _List(tuple(parts))
            )
        if isinstance(value, dict):
            return self._mapping(value, at)
        return _Literal(value)

    def _mapping(self, value: Mapping[str, Json], at: Path) -> _Part:
        pairs: list[tuple[str, _Part]] = []
        for key, item in value.items():
            if "${{" in key:
                self.report((*at, key), Fault(0, "expression.hole_in_key", "a key can't have holes; only values can"))
            pairs.append((key, self.part(item, (*at, key))))
        if all(isinstance(part, _Literal) for _, part in pairs):
            return _Literal({key: part.render({}) for key, part in pairs})
        return _Map(tuple(pairs))

    def _text(self, text: str, at: Path) -> _Part:
        if "{{" not in text:
            return _Literal(text)
        pieces = self._pieces(text, at)
        holes = [piece for piece in pieces if not isinstance(piece, str)]
        if not holes:
            return _Literal("".join(piece for piece in pieces if isinstance(piece, str)))
        compiled = {id(hole): self._hole(hole, at) for hole in holes}
        if len(pieces) == 1:
            part = compiled[id(holes[0])]
            if isinstance(part, _PathHole):
                self.holes[-1] = self.holes[-1]._replace(whole=True)
            return part
        return _Text(tuple(piece if isinstance(piece, str) else compiled[id(piece)] for piece in pieces))

    def _pieces(self, text: str, at: Path) -> list[str | _Hole]:
        try:
            return split_holes(text)
        except Faults as faults:
            for fault in faults.faults:
                self.report(at, fault)
            return [""]

    def _hole(self, hole: _Hole, at: Path) -> _Part:
        try:
            return self._compiled(hole, at)
        except Faults as faults:
            for fault in faults.faults:
                self.report(at, Fault(fault.offset + hole.offset, fault.code, fault.message))
            return _Literal(None)

    def _compiled(self, hole: _Hole, at: Path) -> _Part:
        known = self.names.types.holes.get(hole.source)
        if known is not None and known.root in self.names.roots:
            self.holes.append(Hole(at, (known.path,)))
            return known
        chain = _whole_path(hole.source, self.names.scanned_roots())
        if chain is None:
            program, scanned, doubts = _compile(hole.source, self.names)
            self._doubt(doubts, hole, at)
            self.holes.append(Hole(at, tuple(chain.path for chain in scanned.found.chains)))
            return _CelHole(program)
        fault = self.names.check(hole.source, chain)
        if fault is not None:
            raise Faults([fault])
        doubt = self.names.doubt(chain, alone=True)
        self._doubt([doubt] if doubt else [], hole, at)
        self.holes.append(Hole(at, (chain.path,)))
        if chain.path == ("now",):
            return _NowHole()
        part = _PathHole(chain.path, self.names.types.look(chain.path).last_optional)
        if doubt is None and part.root in _EVERYWHERE_ALIKE and not self.names.guarded:
            self.names.types.holes[hole.source] = part
        return part

    def _doubt(self, doubts: Sequence[Fault], hole: _Hole, at: Path) -> None:
        for doubt in doubts:
            self.report(at, Fault(doubt.offset + hole.offset, doubt.code, doubt.message))


@lru_cache(maxsize=4096)
def _whole_path(source: str, roots: frozenset[str]) -> Chain | None:
    """The path, if the hole holds nothing else."""
    stripped = source.strip()
    start = source.find(stripped)
    root = re.match(r"[a-z][a-z0-9_]*", stripped)
    if root is None or root.group() not in roots:
        return None
    spans = cel.longest_chain(source, start)
    if spans[-1][0] != start + len(stripped):
        return None
    path = tuple(part for _, part in spans)
    return Chain(cel.Name(start, str(path[0])), path, start, spans[-1][0], None)


# -- holes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Hole:
    source: str
    offset: int  # of the source inside the text


def _only_hole(value: Json) -> _Hole | None:
    """The hole that `value` consists of, or None."""
    if not isinstance(value, str) or "${{" not in value:
        return None
    try:
        pieces = split_holes(value)
    except Faults:
        return None
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], _Hole) else None


def split_holes(text: str) -> list[str | _Hole]:
    """`text` as literal pieces and holes, in order. `$${{` is a literal `${{`. Raises `Faults` for an open hole."""
    pieces: list[str | _Hole] = []
    literal: list[str] = []
    at = 0
    while True:
        begin = text.find("${{", at)
        if begin < 0:
            literal.append(text[at:])
            break
        if begin > at and text[begin - 1] == "$":
            literal.append(text[at : begin - 1] + "${{")
            at = begin + 3
            continue
        literal.append(text[at:begin])
        end = end_of_hole(text, begin)
        if end is None:
            message = "the hole that begins here has no end `}}`; a ` #` cuts unquoted text off, so quote it or use `|`"
            raise Faults([Fault(begin, "expression.open_hole", message)])
        if "".join(literal):
            pieces.append("".join(literal))
        literal = []
        pieces.append(_Hole(text[begin + 3 : end], begin + 3))
        at = end + 2
    if "".join(literal) or not pieces:
        pieces.append("".join(literal))
    return pieces


# -- text ----------------------------------------------------------------------------------------------------------


def as_text(value: Json) -> str:
    """`value` inside a text: ECMAScript's numbers, JSON with sorted keys, null as nothing
    (docs/language.md#expressions)."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    return json_text(value)


def json_text(value: Json) -> str:
    """`value` as compact JSON with sorted keys and ECMAScript's numbers."""
    # Nearly RFC 8785, but the library `rfc8785` writes other texts: it sorts keys by UTF-16 units, where this sorts
    # them by characters, and it refuses integers beyond 2^53, which documents may have. These texts stand in logs.
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return number_text(float(value)) if abs(value) >= 10**21 else str(value)
        case float():
            return number_text(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            return "{" + ",".join(f"{json_text(key)}:{json_text(value[key])}" for key in sorted(value)) + "}"
        case _:
            return "[" + ",".join(map(json_text, value)) + "]"


def number_text(number: float) -> str:
    """A double as ECMAScript's Number::toString writes it: 900, 0.1, 1e+21, 1e-7."""
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + ("" if fraction == "0" else fraction)).lstrip("0")
    point = len(whole) + int(exponent or 0)  # where the decimal point stands among whole + fraction
    if whole == "0":
        point -= len(fraction) - len(fraction.lstrip("0")) + 1
    digits = digits.rstrip("0") or "0"
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    exponent = point - 1
    tail = f"e{'+' if exponent >= 0 else '-'}{abs(exponent)}"
    return f"{digits[0]}.{digits[1:]}{tail}" if count > 1 else f"{digits}{tail}"
