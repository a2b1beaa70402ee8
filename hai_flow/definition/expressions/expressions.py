"""Expressions (docs/language.md#expressions): the texts in `if`, `when` and between `${{` and `}}`, checked against the
names of their place and compiled. The CEL itself is in cel.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from hai_flow.definition.checks.condition_facts import collect_guards, sufficient
from hai_flow.definition.checks.constant_conditions import Certainty, doubt_literal_condition
from hai_flow.definition.checks.nullability import Doubts
from hai_flow.definition.checks.value_types import ValueTypes, find_common, write_times
from hai_flow.definition.expressions import cel
from hai_flow.definition.expressions.ast import Name, Tree
from hai_flow.definition.expressions.ast_paths import Chain, Scan, Segment, find_segment_offset, scan, spell
from hai_flow.definition.expressions.cel import Program
from hai_flow.definition.expressions.cel_messages import OTHER_NAMES, find_foreign_loop, suggest_name
from hai_flow.definition.expressions.cel_values import Kind
from hai_flow.definition.expressions.constants import check_literals, doubt_literals, find_failing_constants
from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault, Faults
from hai_flow.definition.names.holes import end_of_hole, find_only_hole, split_holes
from hai_flow.definition.names.known_names import Guards, Names
from hai_flow.definition.names.known_types import NULL, SOURCE
from hai_flow.definition.names.wording import kind_of, suggestion
from hai_flow.definition.schemas.schema_paths import Look, list_alternatives, list_properties
from hai_flow.values import Json


class CompiledExpression:
    """plan.Expression: CEL that was checked. `condition` results must be booleans; `doubts` are for warnings."""

    __slots__ = (
        "_condition",
        "_program",
        "denials",
        "disproof",
        "doubts",
        "guards",
        "paths",
        "proof",
        "roots",
        "source",
        "steps",
    )

    def __init__(
        self, source: str, program: Program, outcomes: _Outcomes, doubts: Sequence[ExpressionFault], condition: bool
    ) -> None:
        self.source = source
        self.paths, self.roots, self.steps, self.guards, self.denials, self.proof, self.disproof = outcomes
        self.doubts = tuple(doubts)
        self._program = program
        self._condition = condition

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value. Raises `ExpressionError` with an `expression.*` code."""
        value = self._program.evaluate(scope)
        if self._condition and type(value) is not bool:
            raise ExpressionError(
                "expression.error", f"{self.source!r}: expected true or false, found {kind_of(value)}"
            )
        return value

    def __repr__(self) -> str:
        return f"CompiledExpression({self.source!r})"


def find_roots_and_steps(paths: Iterable[Sequence[Segment]]) -> tuple[frozenset[str], frozenset[str]]:
    """The names that paths begin with, and the ids behind `steps` ("" for `steps` itself)."""
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
    inner, shift = _unwrap(source) if "${{" in source else (source, 0)
    if shift == 0 and "${{" in source:
        raise Faults([ExpressionFault(0, "expression.holes", _without_holes(source))])
    try:
        program, scanned, doubts = compile_source(inner, names)
        if condition and program.result_type not in ("BOOL", "DYN"):
            type_name = program.result_type.lower()
            raise Faults(
                [
                    ExpressionFault(
                        0,
                        "expression.not_boolean",
                        f"expected true or false, found an expression of type {type_name}{_suggest_quotes(inner)}",
                    )
                ]
            )
    except Faults as faults:
        raise Faults(
            [ExpressionFault(fault.offset + shift, fault.code, fault.message) for fault in faults.faults]
        ) from None
    if condition:
        doubts = [*doubts, *doubt_literal_condition(scanned.tree)]
    shifted = [ExpressionFault(doubt.offset + shift, doubt.code, doubt.message) for doubt in doubts]
    return CompiledExpression(inner.strip(), program, _find_outcomes(inner, scanned, names), shifted, condition)


def _find_outcomes(source: str, scanned: Scanned, names: Names) -> _Outcomes:
    """The outcomes of a condition, and those with the expressions in place of the names that a `let` gave them."""
    outcomes, expanded = _compute_outcomes(source, names.list_roots()), source
    for chain in sorted(scanned.found.chains, key=lambda each: each.start, reverse=True):
        schema = names.types.roots.get(str(chain.path[0])) if len(chain.full_path) == 1 else None
        if isinstance(schema, Mapping) and isinstance(expression := schema.get(SOURCE), str):
            expanded = f"{expanded[: chain.start]}({expression}){expanded[chain.end :]}"
    if expanded == source or len(expanded) > _EXPANDED_MAX:
        return outcomes
    try:
        more = _compute_outcomes(expanded, names.list_roots())
    except Faults:
        return outcomes
    return outcomes._replace(guards=outcomes.guards | more.guards, denials=outcomes.denials | more.denials)


_EXPANDED_MAX: Final = 4096


def is_never_first(source: str, earlier: str, names: Names) -> bool:
    """Whether the condition `source` is never true where the condition `earlier` is false. Both are sound."""
    scanned = _scan(f"({source}) && !({earlier})", names.list_roots())
    return Certainty(scanned.tree, scanned.by_node, names).outcome is False


def _without_holes(source: str) -> str:
    """The sentence about a bare expression with holes in it."""
    try:
        pieces = split_holes(source)
    except Faults:
        return "this is an expression, and takes no holes: drop the `${{` (and the `}}`)"
    marked = "".join(piece if isinstance(piece, str) else f"\0{piece.source.strip()}\0" for piece in pieces)
    bare = re.sub(r"([\"'])\0([^\0]*)\0\1", r"\2", marked).replace("\0", "")  # a hole in quotes is no text
    return f"this is an expression already: drop the `${{{{ }}}}`: {bare}"


def _unwrap(source: str) -> tuple[str, int]:
    """The expression inside one whole `${{ }}`, and where it begins; a bare source is itself."""
    stripped = source.strip()
    if not stripped.startswith("${{"):
        return source, 0
    begin = source.index("${{")
    end = end_of_hole(source, begin)
    if end is None or source[end + 2 :].strip():
        return source, 0
    return source[begin + 3 : end], begin + 3


class Scanned(msgspec.Struct, frozen=True):
    """A source whose paths were found; shared between all places where it stands."""

    tree: Tree
    found: Scan
    by_node: Mapping[int, Chain]
    faults: tuple[ExpressionFault, ...]  # those that stand there in every place
    doubts: tuple[ExpressionFault, ...] = ()


# Roots of which a path means the same wherever it may be named.
EVERYWHERE_ALIKE: Final = frozenset(("input", "state", "run", "thread"))


def compile_source(source: str, names: Names) -> tuple[Program, Scanned, Sequence[ExpressionFault]]:
    """The program of `source`, the paths it reads, and the doubts about it. Raises `Faults`."""
    place = (source, names.roots, names.guarded)  # all that a source depends on that reads no step
    compiled = names.types.sound_sources.get(place)
    if compiled is None:
        compiled = _compile_source(source, names)
        if all(chain.path[0] in EVERYWHERE_ALIKE for chain in compiled[1].found.chains):
            names.types.sound_sources[place] = compiled
    return compiled


def _compile_source(source: str, names: Names) -> tuple[Program, Scanned, Sequence[ExpressionFault]]:
    roots = names.list_roots()
    scanned = _scan(source, roots)
    scan_result = scanned.found
    hyphens = [fault for chain in scan_result.chains if (fault := _check_hyphen(source, chain, names))]
    if hyphens:
        raise Faults(hyphens)  # whatever else is wrong follows from it
    faults = [fault for chain in scan_result.chains if (fault := names.check(source, chain))]
    free_names = [name for name in scan_result.free if name.name not in cel.TYPE_NAMES]
    loops = [fault for name in free_names if (fault := find_foreign_loop(source, name.offset))]
    faults += loops or [_check_free(source, name, names) for name in free_names]
    faults += [
        ExpressionFault(
            offset, "expression.shadow", f"the variable `{name}` would hide a name of the language; rename it"
        )
        for name, offset in scan_result.variables
        if name in roots
    ]
    faults += scanned.faults
    doubts = Doubts(source, scanned.tree, scanned.by_node, names)
    certainty = Certainty(scanned.tree, scanned.by_node, names)
    faults += doubts.faults
    doubts.doubts += [*certainty.faults, *certainty.doubts]
    offsets = {fault.offset for fault in (*scanned.doubts, *certainty.faults)}
    doubts.doubts += find_failing_constants(scanned.tree, offsets)
    if faults:
        unique = {(fault.offset, fault.message): fault for fault in faults}
        raise Faults(sorted(unique.values(), key=lambda fault: fault.offset))
    kinds = tuple((chain.path, names.types.kind(chain.path)) for chain in scan_result.chains)
    program = _program(source, roots, kinds)
    present = tuple((chain.path, names.types.kind_where_there(chain.path)) for chain in scan_result.chains)
    mismatches = _mismatches(source, roots, present) if present != kinds else ()
    return program, scanned, [*doubts.doubts, *scanned.doubts, *mismatches]


@lru_cache(maxsize=4096)
def _mismatches(
    source: str, roots: frozenset[str], kinds: tuple[tuple[tuple[Segment, ...], Kind], ...]
) -> tuple[ExpressionFault, ...]:
    """The operators that fail whenever what may be absent is there, of its type. While an expression runs such numbers
    go with both kinds, and nothing is known of null."""
    try:
        _program(source, roots, kinds)
    except Faults as faults:
        types = [fault for fault in faults.faults if fault.code == "expression.type"]
        operators = [(fault, _OPERATOR.match(fault.message)) for fault in types]
        return tuple(
            ExpressionFault(fault.offset, "expression.mismatch", fault.message)
            for fault, operator in operators
            if operator is not None
            and not _OF_LISTS.search(fault.message)
            and not any(word in fault.message for word in ("null", "dyn", "optional"))
            and re.search(r"string|bool|timestamp|duration|list|map", fault.message)
        )
    return ()


_OPERATOR: Final = re.compile(r"`(<=|>=|==|!=|[-<>+*/%]|get[A-Z][A-Za-z]+|format_time)`")
_OF_LISTS: Final = re.compile(
    r"^`\+` .*\blist\(\w+\)(?:,| and) list\(\w+\)|list\((?:int|double)\) with list\((?:int|double)\)"
)
"""Lists are joined whatever their elements are, and those of numbers may be equal."""


_HYPHENED = re.compile(r"(?:-[A-Za-z0-9_]+)+")


def _check_hyphen(source: str, chain: Chain, names: Names) -> ExpressionFault | None:
    """A name with a hyphen in it, which CEL reads as a subtraction: `steps.check-amount`, `input.first-name`."""
    tail = _HYPHENED.match(source, chain.end)
    if tail is None or len(chain.path) < 2 or not isinstance(chain.path[-1], str):
        return None
    word, parent = chain.path[-1] + tail.group(), chain.path[:-1]
    if parent == ("steps",):
        remedy = f"ids have no hyphens; write `steps.{word.replace('-', '_')}`"
    elif word in list_properties(names.types.look(parent)):
        remedy = f'write `{spell(parent)}["{word}"]`'
    else:
        return None
    message = f"`{spell(parent)}.{word}` is read as a subtraction; {remedy}"
    return ExpressionFault(find_segment_offset(source, chain, len(parent)), "expression.hyphen", message)


def _check_free(source: str, name: Name, names: Names) -> ExpressionFault:
    hint = suggestion(name.name, names.roots)
    for root, schema in (("input", names.types.input), ("state", names.types.state)):
        if isinstance(schema, Mapping) and name.name in schema.get("properties", ()) and root in names.roots:
            hint = f"; did you mean `{root}.{name.name}`?"
    if name.name in names.steps:
        hint = f"; did you mean `steps.{name.name}.output`?"
    alone = not source[name.offset + len(name.name) :].lstrip().startswith((".", "[", "("))
    macro = re.search(r"\.(filter|map|all|exists|exists_one|sort_by|group_by)\($", source[: name.offset].rstrip())
    if macro is not None:
        call = f"{macro[1]}({name.name}, ...)"
        message = f"there is no name `{name.name}`; name the item first, and compute with it behind a comma: {call}"
        return ExpressionFault(name.offset, "expression.unknown_name", message)
    foreign = OTHER_NAMES.get(name.name, "") if name.name[:1].isupper() else ""
    hint = names.steps.explain_let(name.name) or foreign or hint or suggest_name(name.name, alone=alone)
    return ExpressionFault(name.offset, "expression.unknown_name", f"there is no name `{name.name}`{hint}")


@lru_cache(maxsize=4096)
def _scan(source: str, roots: frozenset[str]) -> Scanned:
    tree = cel.parse(source)
    scan_result = scan(tree, source, roots)
    faults = [
        ExpressionFault(message.offset, "expression.syntax", f"`{message.type_name}{{...}}` is not a type of flow/v1")
        for message in scan_result.messages
    ]
    by_node = {id(chain.node): chain for chain in scan_result.chains}
    return Scanned(
        tree,
        scan_result,
        by_node,
        (*faults, *check_literals(tree)),
        doubt_literals(tree),
    )


def infer_type(value: Json, names: Names) -> Look:
    """The type of `value`, where it is one hole, as far as it is certain."""
    hole = find_only_hole(value) if isinstance(value, str) else None
    if hole is None:
        return Look({})
    try:
        scanned = _scan(hole.source, names.list_roots())
    except Faults:
        return Look({})
    chain = scanned.by_node.get(id(scanned.tree))
    look = names.types.look_to_judge(chain.path) if chain is not None else Look({})
    if chain is not None and look.last_optional and look.optional == (len(chain.path),):
        present = Look(look.schema, root=look.root)
        return present if names.is_known(chain.path) else find_common([present, Look(NULL)])  # a whole hole gives null
    look = ValueTypes(scanned.by_node, names).look(scanned.tree, {})
    return msgspec.structs.replace(look, schema=write_times(look.schema))


def list_values(text: str, names: Names) -> list[Json]:
    """The values that `text`, one hole, gives by its literals, perhaps beside others; [] where it has none. That a path
    may lead to null is said elsewhere."""
    parts = list_alternatives(infer_type(text, names).schema)
    literals = [each["const"] for each in parts if isinstance(each, Mapping) and "const" in each]
    return [*literals, *([None] if NULL in parts and names.find_type(text) is None else [])]


def list_choices(text: str, names: Names) -> list[Json]:
    """The values of which `text`, one hole, gives one, as its type lists them; [] where it may give others."""
    look = names.find_type(text)
    choices = look.schema.get("enum") if look is not None and isinstance(look.schema, Mapping) else None
    return choices if isinstance(choices, list) else []


class _Outcomes(NamedTuple):
    """What an expression reads; the paths that are there, and the facts that hold, whenever its result is true, and
    whenever it is false; and the facts that make it so."""

    paths: tuple[tuple[Segment, ...], ...]
    roots: frozenset[str]
    steps: frozenset[str]
    guards: Guards
    denials: Guards
    proof: Guards | None
    disproof: Guards | None


@lru_cache(maxsize=4096)
def _compute_outcomes(source: str, roots: frozenset[str]) -> _Outcomes:
    scanned = _scan(source, roots)
    tree, by_node = scanned.tree, scanned.by_node
    paths = tuple(chain.path for chain in scanned.found.chains)
    return _Outcomes(
        paths, *find_roots_and_steps(paths), collect_guards(tree, by_node, True), collect_guards(tree, by_node, False),
        sufficient(tree, True), sufficient(tree, False),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _program(source: str, roots: frozenset[str], kinds: tuple[tuple[tuple[Segment, ...], Kind], ...]) -> Program:
    """Programs are immutable: two documents with the same source and types share one."""
    scanned = _scan(source, roots)
    return cel.compile_tree(source, scanned.tree, scanned.found.chains, dict(kinds).__getitem__)


def _suggest_quotes(source: str) -> str:
    """A word where the source is one text in quotes, which is always that text."""
    text = source.strip()
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0] or text[0] in text[1:-1]:
        return ""
    return f"; without the quotes it is an expression: {text[1:-1]}"
