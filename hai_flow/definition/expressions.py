"""Expressions and templates: what stands in `if`, `when` and between `${{` and `}}` (LANGUAGE sections 6 and 11).

`Names` says what may be named at one place of a document. `compile_expression` and `compile_template` check a source
against it and give back what plan.py calls an Expression and a Template. The CEL itself is in cel.py; a hole that is
only a path never gets there: it is copied, so integers, nulls and large values pass unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from hai_flow.definition import cel
from hai_flow.definition.cel import Chain, ExpressionError, Fault, Faults, Kind, Program, Segment
from hai_flow.definition.document import Path, shorten, suggestion
from hai_flow.definition.schemas import resolve

__all__ = [
    "CompiledExpression",
    "CompiledTemplate",
    "ExpressionError",
    "Fault",
    "Faults",
    "Names",
    "Types",
    "compile_expression",
    "compile_template",
]

Json: TypeAlias = Any

ALWAYS: Final = frozenset(("input", "state", "steps", "run", "thread", "now"))
# Roots that exist in some places only, with the sentence for everywhere else.
ELSEWHERE: Final[dict[str, str]] = {
    "error": "`error` exists only in `catch` steps and in the reject handler",
    "item": "`item` exists only inside a `for_each`",
    "index": "`index` exists only inside a loop",
    "args": "`args` exists only in the keys of `approval`",
    "response": "`response` exists only in `http.expect`",
    "event": "`event` exists only in `wait_for.match` and in event triggers",
    "secrets": "`secrets` can be named only in the settings of tools and models",
}
ROOTS: Final = ALWAYS | ELSEWHERE.keys()
STEP_MEMBERS: Final = ("status", "output", "error", "approval")
_MEMBER_HINTS: Final = {
    "decision": "; write steps.X.approval.decision",
    "result": "; did you mean `output`?",
    "items": "; a loop's items are its `output`",
}


def _closed_object(*names: str) -> dict[str, Json]:
    return {
        "type": "object", "properties": {name: {} for name in names}, "required": list(names),
        "additionalProperties": False,
    }  # fmt: skip


_FIXED: Final[dict[str, Json]] = {
    "run": _closed_object("id", "workflow", "version", "started_at", "requester", "trigger"),
    "thread": _closed_object("id", "message"),
    "error": _closed_object("code", "message", "path", "attempt", "at", "retriable", "data", "cause"),
}

ENVELOPE: Final[dict[str, Json]] = _closed_object(
    "decision", "reason", "values", "edits", "votes", "expired", "escalations"
)


# -- types ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Types:
    """The static types of the data: the JSON Schemas of `input`, of all of `state`, and of steps' outputs."""

    input: Json
    state: Json
    outputs: Mapping[str, Json] = field(default_factory=dict)  # id -> schema

    def look(self, path: Sequence[Segment]) -> Look:
        """What the schemas know about `path`."""
        root, rest, depth = path[0], path[1:], 1
        if root == "steps":
            if len(path) < 3 or path[2] not in ("output", "approval"):
                return Look({"type": "string"} if path[2:] == ("status",) else {})
            output = self.outputs.get(str(path[1]), {})
            schema = output if path[2] == "output" or output.get("x-envelope") else ENVELOPE
            root, rest, depth = schema, path[3:], 3
        else:
            root = {"input": self.input, "state": self.state}.get(str(root), _FIXED.get(str(root), {}))
        return _look(root, rest, depth, path)

    def kind(self, path: Sequence[Segment]) -> Kind:
        """The CEL type of the value at `path`."""
        if tuple(path) == ("now",):
            return "timestamp"
        look = self.look(path)
        return "dyn" if look.optional else _kind(look.schema)


@dataclass(frozen=True, slots=True)
class Look:
    """A path seen through the schemas. `optional`: a part of it may be absent; `last_optional`: its last property."""

    schema: Json
    optional: bool = False
    last_optional: bool = False
    wrong: tuple[int, str] | None = None  # (index of the segment, message)


def _look(root: Json, rest: Sequence[Segment], depth: int, path: Sequence[Segment]) -> Look:
    schema, optional, last = resolve(root, root), False, False
    for index, part in enumerate(rest):
        if not isinstance(schema, Mapping):
            return Look({}, optional)
        if isinstance(part, int):
            schema, last = resolve(schema.get("items", {}), root), False
            continue
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or part not in properties:
            wrong = _unknown_property(schema, part, path[: depth + index])
            return Look({}, optional, False, (depth + index, wrong) if wrong else None)
        raw = resolve(properties[part], root)
        has_default = isinstance(raw, Mapping) and "default" in raw
        last = part not in schema.get("required", ()) and not has_default
        optional = optional or last
        schema = raw
    return Look(schema, optional, last)


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


@dataclass(frozen=True, slots=True)
class Names:
    """What may be named at one place. `explain(id)` gives (code, message) for a step id that is not `visible` here."""

    types: Types
    roots: frozenset[str] = ALWAYS
    visible: Collection[str] = frozenset()
    guarded: frozenset[tuple[Segment, ...]] = frozenset()  # paths that an `if` around has tested with has()
    explain: Callable[[str], tuple[str, str] | None] = lambda name: (
        "expression.unknown_step",
        f"there is no step `{name}`",
    )

    def with_roots(self, *names: str) -> Names:
        """The same place with further roots."""
        return replace(self, roots=self.roots | frozenset(names))

    def with_guards(self, expression: CompiledExpression | None) -> Names:
        """The same place, where `expression` is known to be true."""
        return replace(self, guarded=self.guarded | expression.guards) if expression else self

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
            message = f"expected steps.{name}.output (or .status, .error, .approval), found the step itself"
            return Fault(_segment_offset(source, chain, 1), "expression.step", message)
        if member not in STEP_MEMBERS:
            hint = (
                _MEMBER_HINTS.get(str(member))
                or suggestion(str(member), STEP_MEMBERS)
                or f"; it has {', '.join(STEP_MEMBERS)}"
            )
            message = f"a step has no `{member}`{hint.replace('X', name)}"
            return Fault(_segment_offset(source, chain, 2), "expression.step_member", message)
        return None


def _segment_offset(source: str, chain: Chain, index: int) -> int:
    """Where the segment `index` of the path begins in the source."""
    spans = cel.chain_spans(source, chain.start, len(chain.path) - 1)
    if spans is None or index >= len(spans):
        return chain.end - 1 if index else chain.start
    before = spans[index - 1][0] if index else chain.start
    token = re.compile(r"(?:[\s.\[]|//[^\n]*\n)*").match(source, before)
    return token.end() if token and index else before


def _not_here(name: str) -> str:
    return ELSEWHERE.get(name) or f"there is no name `{name}`"


# -- bare expressions ----------------------------------------------------------------------------------------------


class CompiledExpression:
    """plan.Expression: CEL that was checked. `condition` results must be booleans; `doubts` are for warnings."""

    __slots__ = ("_condition", "_program", "doubts", "guards", "roots", "source", "steps")

    def __init__(
        self, source: str, program: Program, chains: Sequence[Chain], doubts: Sequence[Fault], condition: bool
    ) -> None:
        self.source = source
        self.roots, self.steps = _used(chain.path for chain in chains)
        self.guards = _guards(chains)
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
    try:
        program, chains, doubts = _compile(inner, names)
        if condition and program.result_type not in ("BOOL", "DYN"):
            found = program.result_type.lower()
            raise Faults(
                [Fault(0, "expression.not_boolean", f"expected true or false, found an expression of type {found}")]
            )
    except Faults as faults:
        raise Faults([Fault(fault.offset + shift, fault.code, fault.message) for fault in faults.faults]) from None
    shifted = [Fault(doubt.offset + shift, doubt.code, doubt.message) for doubt in doubts]
    return CompiledExpression(inner.strip(), program, chains, shifted, condition)


def _unwrapped(source: str) -> tuple[str, int]:
    """The expression inside one whole `${{ }}`, and where it begins; a bare source is itself."""
    stripped = source.strip()
    if not stripped.startswith("${{"):
        return source, 0
    begin = source.index("${{")
    end = _hole_end(source, begin + 3)
    if end is None or source[end + 2 :].strip():
        return source, 0
    return source[begin + 3 : end], begin + 3


def _compile(source: str, names: Names) -> tuple[Program, list[Chain], list[Fault]]:
    """The program of `source`, the paths it reads, and what is doubtful about it. Raises `Faults`."""
    tree = _parsed(source)
    found = cel.scan(tree, source, ROOTS)
    faults = [fault for chain in found.chains if (fault := names.check(source, chain))]
    faults += [_free_fault(name, names) for name in found.free if name.name not in cel.TYPE_NAMES]
    faults += [
        Fault(offset, "expression.shadow", f"the variable `{name}` would hide a name of the language; rename it")
        for name, offset in found.variables
        if name in ROOTS
    ]
    faults += [
        Fault(message.offset, "expression.syntax", f"`{message.type_name}{{...}}` is not a type of flow/v1")
        for message in found.messages
    ]
    if faults:
        unique = {(fault.offset, fault.message): fault for fault in faults}
        raise Faults(sorted(unique.values(), key=lambda fault: fault.offset))
    kinds = tuple((chain.path, names.types.kind(chain.path)) for chain in found.chains)
    return _program(source, kinds), found.chains, _doubts(tree, found.chains, names)


# Codes of doubts: warnings, not errors.
DOUBTS: Final = frozenset(("expression.enum", "expression.unguarded"))


def _guards(chains: Sequence[Chain]) -> frozenset[tuple[Segment, ...]]:
    """The paths whose presence is tested, by has() or `.?`."""
    return frozenset((*chain.path, chain.field) for chain in chains if chain.field is not None)


def _doubts(tree: cel.Tree, chains: Sequence[Chain], names: Names) -> list[Fault]:
    """Optional properties read without a guard, and texts that an enum does not have."""
    guarded = names.guarded | _guards(chains)
    doubts = [
        Fault(
            chain.start,
            "expression.unguarded",
            f"`{cel.spell(chain.path)}` may be absent; guard it with has(...) or .?{chain.path[-1]}.orValue(...)",
        )
        for chain in chains
        if names.types.look(chain.path).optional and not _is_guarded(chain.path, guarded)
    ]
    by_node = {id(chain.node): chain for chain in chains}
    for node in cel.walk(tree):
        if isinstance(node, cel.Call) and node.function in ("_==_", "_!=_"):
            doubts += _enum_doubts(node, by_node, names)
    return doubts


def _is_guarded(path: tuple[Segment, ...], guarded: frozenset[tuple[Segment, ...]]) -> bool:
    return any(path[:length] in guarded for length in range(1, len(path) + 1))


def _enum_doubts(call: cel.Call, chains: Mapping[int, Chain], names: Names) -> Iterator[Fault]:
    for one, other in (call.arguments, call.arguments[::-1]):
        chain = chains.get(id(one))
        if chain is None or not isinstance(other, cel.Const) or not isinstance(other.value, str):
            continue
        schema = names.types.look(chain.path).schema
        allowed = schema.get("enum") if isinstance(schema, Mapping) else None
        if isinstance(allowed, list) and other.value not in allowed and all(isinstance(a, str) for a in allowed):
            message = f"`{cel.spell(chain.path)}` is never {other.value!r}{suggestion(other.value, allowed)}"
            yield Fault(other.offset, "expression.enum", f"{message} (it is one of {', '.join(allowed)})")


def _free_fault(name: cel.Name, names: Names) -> Fault:
    hint = suggestion(name.name, names.roots)
    if name.name in names.visible:
        hint = f"; did you mean `steps.{name.name}.output`?"
    return Fault(name.offset, "expression.unknown_name", f"there is no name `{name.name}`{hint}")


@lru_cache(maxsize=4096)
def _parsed(source: str) -> cel.Tree:
    return cel.parse(source)


@lru_cache(maxsize=4096)
def _program(source: str, kinds: tuple[tuple[tuple[Segment, ...], Kind], ...]) -> Program:
    """Programs are immutable: two documents with the same source and types share one."""
    tree = _parsed(source)
    return cel.compile_tree(source, tree, cel.scan(tree, source, ROOTS).chains, dict(kinds).__getitem__)


# -- templates -----------------------------------------------------------------------------------------------------


class _Part(Protocol):
    """A piece of a template."""

    def render(self, scope: Mapping[str, Json]) -> Json: ...


class CompiledTemplate:
    """plan.Template: a YAML value with its holes compiled."""

    __slots__ = ("_render", "is_literal", "roots", "steps")

    def __init__(self, part: _Part, paths: Sequence[tuple[Segment, ...]]) -> None:
        self.roots, self.steps = _used(paths)
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


class _PathHole:
    """A hole that is only a path: the value itself, without CEL."""

    __slots__ = ("_optional", "_path")

    def __init__(self, path: tuple[Segment, ...], optional: bool) -> None:
        self._path = path
        self._optional = optional  # its last property is optional by its schema: absent is null

    def render(self, scope: Mapping[str, Json]) -> Json:
        value: Any = scope
        try:
            for part in self._path:
                if type(value) is str:  # "text"[0] would be a character
                    return self._slow(scope)
                value = value[part]
        except (KeyError, IndexError, TypeError):
            return self._slow(scope)
        return value

    def _slow(self, scope: Mapping[str, Json]) -> Json:
        value = cel.look_up(scope, self._path)
        if value is not cel.MISSING:
            return value
        if self._optional and cel.look_up(scope, self._path[:-1]) is not cel.MISSING:
            return None
        raise cel.absent(self._path)


@dataclass(frozen=True, slots=True)
class _NowHole:
    """`${{ now }}`: the scope has milliseconds, a document sees RFC 3339 text."""

    def render(self, scope: Mapping[str, Json]) -> Json:
        return cel.instant_text(scope["now"])


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
    return CompiledTemplate(part if not text or isinstance(part, _Literal) else _Text((part,)), compiler.paths)


class _TemplateCompiler:
    def __init__(self, names: Names, report: Reporter) -> None:
        self.names = names
        self.report = report
        self.paths: list[tuple[Segment, ...]] = []

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
        if isinstance(value, Mapping):
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
            return compiled[id(holes[0])]
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
        chain = _whole_path(hole.source)
        if chain is None:
            program, chains, doubts = _compile(hole.source, self.names)
            for doubt in doubts:
                self.report(at, Fault(doubt.offset + hole.offset, doubt.code, doubt.message))
            self.paths.extend(chain.path for chain in chains)
            return _CelHole(program)
        fault = self.names.check(hole.source, chain)
        if fault is not None:
            raise Faults([fault])
        self.paths.append(chain.path)
        if chain.path == ("now",):
            return _NowHole()
        return _PathHole(chain.path, self.names.types.look(chain.path).last_optional)


def _whole_path(source: str) -> Chain | None:
    """The path, if the hole holds nothing else."""
    stripped = source.strip()
    start = source.find(stripped)
    root = re.match(r"[a-z]+", stripped)
    if root is None or root.group() not in ROOTS:
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
        end = _hole_end(text, begin + 3)
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


_LEXEME = re.compile(
    r"[rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|\"[^\"\n]*\"|'[^'\n]*')"  # raw strings have no escapes
    r"|\"\"\"(?:\\.|.)*?\"\"\"|'''(?:\\.|.)*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    r"|[A-Za-z_]\w*|\}\}|[{}]|.",
    re.DOTALL,
)


def _hole_end(text: str, at: int) -> int | None:
    """Where the first `}}` outside quotes and inner braces stands, from `at` on."""
    depth = 0
    while at < len(text):
        match = _LEXEME.match(text, at)
        assert match is not None, "the last alternative matches any character"
        token = match.group()
        if token == "}}" and depth == 0:
            return at
        if token == "{":
            depth += 1
        elif token in ("}", "}}") and depth > 0:
            depth -= 1
            at += 1
            continue
        at = match.end()
    return None


# -- text ----------------------------------------------------------------------------------------------------------


def as_text(value: Json) -> str:
    """`value` inside a text: ECMAScript's numbers, JSON with sorted keys, null as nothing (LANGUAGE section 11)."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    return json_text(value)


def json_text(value: Json) -> str:
    """`value` as compact JSON with sorted keys and ECMAScript's numbers."""
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
