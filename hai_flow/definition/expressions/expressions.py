"""Expressions and templates (docs/language.md#expressions): the texts in `if`, `when` and between `${{` and `}}`, and
values with such holes, checked against the names of their place and compiled. The CEL itself is in cel.py, the results
in evaluation.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import asdict, replace

from hai_flow.definition.checks.condition_facts import collect_guards, is_filter, sufficient
from hai_flow.definition.checks.constant_conditions import Certainty, doubt_literal_condition
from hai_flow.definition.checks.nullability import Doubts
from hai_flow.definition.checks.value_types import ValueTypes, find_common, write_times
from hai_flow.definition.expressions import cel
from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Listing, Mapped, Name, Tree
from hai_flow.definition.expressions.ast_paths import Chain, Scan, Segment, find_segment_offset, scan, spell
from hai_flow.definition.expressions.cel import Program
from hai_flow.definition.expressions.cel_messages import OTHER_NAMES, find_foreign_loop, suggest_name
from hai_flow.definition.expressions.constants import check_literals, doubt_literals, find_failing_constants
from hai_flow.definition.expressions.evaluation import (
    CelHole,
    CompiledExpression,
    CompiledTemplate,
    ListPart,
    LiteralPart,
    MapPart,
    NowHole,
    Outcomes,
    PathHole,
    TemplatePart,
    TextPart,
)
from hai_flow.definition.expressions.expression_error import ExpressionFault, Faults
from hai_flow.definition.names.holes import Pieces, WrittenHole, end_of_hole, find_only_hole, split_holes, split_text
from hai_flow.definition.names.known_names import Kinds, Names
from hai_flow.definition.names.known_types import EVERYWHERE_ALIKE, NULL, SOURCE
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.plan import Hole
from hai_flow.definition.schemas.schema_paths import Look, list_alternatives, list_properties
from hai_flow.definition.yaml.document import Path
from hai_flow.values import Json


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
    outcomes = _find_outcomes(inner, scanned, names)
    return CompiledExpression(
        source=inner.strip(), program=program, is_condition=condition, doubts=tuple(shifted), **asdict(outcomes)
    )


def _find_outcomes(source: str, scanned: Scanned, names: Names) -> Outcomes:
    """The outcomes of a condition, and those with the expressions in place of the names that a `let` gave them."""
    outcomes, expanded = _compute_outcomes(source, scanned.all_roots), _expand(source, scanned, names)
    if expanded == source:
        return outcomes
    try:
        more = _compute_outcomes(expanded, scanned.all_roots)
    except Faults:
        return outcomes
    return replace(outcomes, guards=outcomes.guards | more.guards, denials=outcomes.denials | more.denials)


def _expand(source: str, scanned: Scanned, names: Names) -> str:
    """The source with the expressions in place of the names that a `let` gave them; as it is where that gets long."""
    expanded = source
    for chain in sorted(scanned.scan.chains, key=lambda each: each.start, reverse=True):
        schema = names.types.roots.get(str(chain.path[0])) if len(chain.full_path) == 1 else None
        if isinstance(schema, Mapping) and isinstance(expression := schema.get(SOURCE), str):
            expanded = f"{expanded[: chain.start]}({expression}){expanded[chain.end :]}"
    return expanded if len(expanded) <= _EXPANDED_MAX else source


_EXPANDED_MAX: Final = 4096


def _keep_doubts(doubts: list[ExpressionFault], source: str, scanned: Scanned, names: Names) -> list[ExpressionFault]:
    """The doubts without those that a condition excludes which a `let` has named."""
    unguarded = any(doubt.code == "expression.unguarded" for doubt in doubts)
    expanded = _expand(source, scanned, names) if unguarded else source
    if expanded == source:
        return doubts
    try:
        scanned = _scan(expanded, names.list_roots())
    except Faults:
        return doubts
    messages = {doubt.message for doubt in Doubts(expanded, scanned.tree, scanned.by_node, names).doubts}
    return [doubt for doubt in doubts if doubt.code != "expression.unguarded" or doubt.message in messages]


def is_never_first(source: str, earlier: str, names: Names) -> bool:
    """Whether the condition `source` is never true where the condition `earlier` is false. Both are sound."""
    scanned = _scan(f"({source}) && !({earlier})", names.list_roots())
    return Certainty(scanned.tree, scanned.by_node, names).find_outcome(scanned.tree) is False


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
    """A source whose paths were found; shared between all places where it stands. `all_roots`: the names that begin a
    path into the data."""

    tree: Tree
    scan: Scan
    by_node: Mapping[int, Chain]
    all_roots: frozenset[str]
    faults: tuple[ExpressionFault, ...]  # those that stand there in every place
    doubts: tuple[ExpressionFault, ...] = ()


def compile_source(source: str, names: Names) -> tuple[Program, Scanned, Sequence[ExpressionFault]]:
    """The program of `source`, the paths it reads, and the doubts about it. Raises `Faults`."""
    place = (source, names.roots, names.guarded)  # all that a source depends on that reads no step
    compiled = names.types.sound_sources.get(place)
    if compiled is None:
        compiled = _compile_source(source, names)
        if all(chain.path[0] in EVERYWHERE_ALIKE for chain in compiled[1].scan.chains):
            names.types.sound_sources[place] = compiled
    return compiled


def _compile_source(source: str, names: Names) -> tuple[Program, Scanned, Sequence[ExpressionFault]]:
    roots = names.list_roots()
    scanned = _scan(source, roots)
    scan_result = scanned.scan
    if "-" in source:
        hyphens = [fault for chain in scan_result.chains if (fault := _check_hyphen(source, chain, names))]
        if hyphens:
            raise Faults(hyphens)  # whatever else is wrong follows from it
    faults = names.check_paths(source, scan_result.chains)
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
    if doubts.doubts:
        doubts.doubts = _keep_doubts(doubts.doubts, source, scanned, names)
    certainty = Certainty(scanned.tree, scanned.by_node, names)
    faults += doubts.faults
    doubts.doubts += [*certainty.faults, *certainty.doubts]
    offsets = {fault.offset for fault in (*scanned.doubts, *certainty.faults)}
    doubts.doubts += find_failing_constants(scanned.tree, offsets)
    if faults:
        unique = {(fault.offset, fault.message): fault for fault in faults}
        raise Faults(sorted(unique.values(), key=lambda fault: fault.offset))
    kinds, present = names.types.find_kinds(chain.path for chain in scan_result.chains)
    program = _program(source, roots, kinds)
    mismatches = _mismatches(source, roots, present) if present != kinds else ()
    return program, scanned, [*doubts.doubts, *scanned.doubts, *mismatches]


@lru_cache(maxsize=4096)
def _mismatches(source: str, roots: frozenset[str], kinds: Kinds) -> tuple[ExpressionFault, ...]:
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
        roots,
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
    return replace(look, schema=write_times(look.schema))


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


def list_sources(text: str, names: Names) -> tuple[list[Json], list[tuple[Segment, ...]]]:
    """The literals and the paths of which `text`, one hole, gives one, or a list of some; no condition of it is among
    them."""
    hole, literals, paths = find_only_hole(text), list[Json](), list[tuple[Segment, ...]]()
    try:
        scanned = None if hole is None else _scan(hole.source, names.list_roots())
    except Faults:
        scanned = None
    trees: list[Tree] = [] if scanned is None else [scanned.tree]
    while scanned is not None and trees:
        tree = trees.pop()
        if (chain := scanned.by_node.get(id(tree))) is not None:
            paths.append(chain.path)
            continue
        match tree:
            case Const(value=value):
                literals.append(value)
            case Call(function="_?_:_", parts=(_, *parts)) | Call(function="_+_" | "orValue", parts=parts):
                trees += parts
            case Listing(elements=parts):
                trees += parts
            case Mapped(entries=entries):
                trees += [each for _, each in entries]
            case Call(function="_[_]", parts=(of, _)):
                trees.append(of)
            case Comprehension(range=over) if is_filter(tree):
                trees.append(over)
            case _:
                pass
    return literals, paths


@lru_cache(maxsize=4096)
def _compute_outcomes(source: str, roots: frozenset[str]) -> Outcomes:
    scanned = _scan(source, roots)
    tree, by_node = scanned.tree, scanned.by_node
    paths = tuple(chain.path for chain in scanned.scan.chains)
    return Outcomes(
        paths, *find_roots_and_steps(paths), collect_guards(tree, by_node, True), collect_guards(tree, by_node, False),
        sufficient(tree, True), sufficient(tree, False),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _program(source: str, roots: frozenset[str], kinds: Kinds) -> Program:
    """Programs are immutable: two documents with the same source and types share one."""
    scanned = _scan(source, roots)
    return cel.compile_tree(source, scanned.tree, scanned.scan.chains, dict(kinds).__getitem__)


def _suggest_quotes(source: str) -> str:
    """A word where the source is one text in quotes, which is always that text."""
    text = source.strip()
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0] or text[0] in text[1:-1]:
        return ""
    return f"; without the quotes it is an expression: {text[1:-1]}"


# -- templates ---------------------------------------------------------------------------------------------------------

Reporter: TypeAlias = Callable[[Path, ExpressionFault], None]  # path inside the value


def compile_template(value: Json, names: Names, report: Reporter, *, text: bool = False) -> CompiledTemplate:
    """`value` with its holes compiled. With `text` a single hole becomes text as well, where it else keeps its type.

    Faults (and doubts: see DOUBTS) go to `report`, by the path inside `value`; a faulty hole is null."""
    compiler = _TemplateCompiler(value, names, report)
    part, holes = compiler.part(value, ()), compiler.holes
    if text and not isinstance(part, LiteralPart):
        part, holes = TextPart((part,)), [hole._replace(is_whole=False) for hole in holes]
    reads = find_roots_and_steps([path for hole in holes for path in hole.paths]) if holes else ()
    return CompiledTemplate(part, value, tuple(holes), *reads)


def _list_texts(value: Json) -> list[tuple[Path, str]]:
    """The texts inside `value` that may have holes, with their paths."""
    texts: list[tuple[Path, str]] = []
    waiting: list[tuple[Path, Json]] = [((), value)]
    while waiting:
        at, part = waiting.pop()
        if isinstance(part, str):
            if "{{" in part:
                texts.append((at, part))
        elif isinstance(part, dict):
            for key, item in part.items():
                waiting.append(((*at, key), item))
        elif isinstance(part, list):
            for index, item in enumerate(part):
                waiting.append(((*at, index), item))
    return texts


class _TemplateCompiler:
    """Splits all texts of a value, judges all paths in their holes, and then compiles its parts one by one."""

    def __init__(self, value: Json, names: Names, report: Reporter) -> None:
        self._names = names
        self._report = report
        self._texts = {at: split_text(text) for at, text in _list_texts(value)}
        holes = [each for text in self._texts.values() for each in text if isinstance(each, WrittenHole)]
        self._paths = names.judge_paths([hole.source for hole in holes]) if holes else {}
        self.holes: list[Hole] = []

    def part(self, value: Json, at: Path) -> TemplatePart:
        """Recursion is bounded by the document's depth (40)."""
        if isinstance(value, str):
            pieces = self._texts.get(at)
            return LiteralPart(value) if pieces is None else self._text(pieces, at)
        if isinstance(value, list):
            parts = [self.part(item, (*at, index)) for index, item in enumerate(value)]
            is_literal = all(isinstance(each, LiteralPart) for each in parts) and "$" not in str(value)
            return LiteralPart(value) if is_literal else ListPart(tuple(parts))
        if isinstance(value, dict):
            return self._mapping(value, at)
        return LiteralPart(value)

    def _mapping(self, value: Mapping[str, Json], at: Path) -> TemplatePart:
        pairs: list[tuple[str, TemplatePart]] = []
        for key, item in value.items():
            if "${{" in key:
                message = "a key can't have holes; only values can"
                self._report((*at, key), ExpressionFault(0, "expression.hole_in_key", message))
            pairs.append((key, self.part(item, (*at, key))))
        literals = {key: part.value for key, part in pairs if isinstance(part, LiteralPart)}
        return LiteralPart(literals) if len(literals) == len(pairs) else MapPart(tuple(pairs))

    def _text(self, pieces: Pieces, at: Path) -> TemplatePart:
        parts: list[str | TemplatePart] = []
        for piece in pieces:
            if isinstance(piece, ExpressionFault):
                self._report(at, piece)
                return LiteralPart("")
            parts.append(piece if isinstance(piece, str) else self._hole(piece, at))
        match parts:
            case [str() as text]:
                return LiteralPart(text)
            case [PathHole() as hole]:
                self.holes[-1] = self.holes[-1]._replace(is_whole=True)
                return hole
            case [part] if not isinstance(part, str):
                return part
        return TextPart(tuple(parts))

    def _hole(self, hole: WrittenHole, at: Path) -> TemplatePart:
        try:
            return self._compile_hole(hole, at)
        except Faults as faults:
            self._report_in_hole(faults.faults, hole, at)
            return LiteralPart(None)

    def _compile_hole(self, hole: WrittenHole, at: Path) -> TemplatePart:
        judged = self._paths[hole.source]
        if judged is None:
            program, scanned, doubts = compile_source(hole.source, self._names)
            self._report_in_hole(doubts, hole, at)
            self.holes.append(Hole(at, tuple(chain.path for chain in scanned.scan.chains)))
            return CelHole(program)
        if judged.fault is not None:
            raise Faults([judged.fault])
        if judged.doubt is not None:
            self._report_in_hole([judged.doubt], hole, at)
        self.holes.append(Hole(at, (judged.path,)))
        return NowHole() if judged.path == ("now",) else PathHole(judged.path, judged.is_optional)

    def _report_in_hole(self, faults: Sequence[ExpressionFault], hole: WrittenHole, at: Path) -> None:
        for fault in faults:
            self._report(at, ExpressionFault(fault.offset + hole.offset, fault.code, fault.message))
