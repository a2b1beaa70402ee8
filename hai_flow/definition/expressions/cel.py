"""CEL (docs/language.md#expressions), wrapped: cel-expr-python does the checking and the evaluating, this file the
rest.

Beyond the library, this file does the following:

* The source is parsed unchecked first, and the tree read back from its protobuf bytes (`ast`), so that every name
  has a place; what is wrong with it is said in our words (`cel_messages`).
* Each path into the data (`ast_paths`) becomes a variable of its own, of the static type of its JSON Schema. Only what
  an expression reads is converted, and none of the library's traps with dotted variables apply. The variable's name is
  padded to the length of the path, so columns in error messages stay right.
* An integer literal beside a double is widened (`cel_widening`), and `sort_by` and `group_by` become loops that CEL
  has (`cel_macros`).
* A loop over a map runs over its sorted keys, and a map that comes out has its keys sorted: the library has them in an
  order of chance, which differs from one evaluation to the next.
* Before evaluation an upper bound of every intermediate size is computed from the operands (`cel_growth`): the library
  itself bounds iterations, but seven nested `.map(a, a + a)` would take gigabytes.
* Run-time errors come back as values. Optionals crash `plain_value()` and every function that is written in Python:
  a result is walked by type (`cel_values`), and no optional gets into a list, a map or a function (`cel_optionals`).
"""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_math, ext_optional, ext_strings

from hai_flow import values
from hai_flow.definition.expressions import functions
from hai_flow.definition.expressions.ast import (
    Call,
    Comprehension,
    Const,
    Listing,
    Name,
    Tree,
    is_empty,
    read_tree,
    walk,
)
from hai_flow.definition.expressions.ast_paths import (
    MISSING,
    SOURCE_MAX,
    Chain,
    Segment,
    absent,
    check_secret,
    look_up,
    spell,
)
from hai_flow.definition.expressions.cel_growth import ITERATIONS_MAX, STATE_WORK, WORK_MAX, Growth, check_states
from hai_flow.definition.expressions.cel_macros import PAIRED, Insertion, as_maps, find_macros, pairings, with_pairs
from hai_flow.definition.expressions.cel_messages import TOKEN, describe_overload, faults_of, habits
from hai_flow.definition.expressions.cel_optionals import check_optionals
from hai_flow.definition.expressions.cel_values import Kind, Size, check_result, convert, plain
from hai_flow.definition.expressions.cel_widening import Widening
from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault, Faults
from hai_flow.definition.names.durations import format_cel_duration
from hai_flow.primitives.beside_loop import THIS_THREAD, spend
from hai_flow.values import Json

COMPREHENSIONS_MAX: Final = 3
PARTS_MAX: Final = 100_000
"""Of what an expression reads, by items and members (`MEMBER_PARTS` each): the library takes them over in one call, and
keeps the interpreter's lock meanwhile."""

_OVER_BUDGET: Final = "Iteration budget"

TYPE_NAMES: Final = frozenset(("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"))


# -- parsing -----------------------------------------------------------------------------------------------------

_EXTENSIONS: Final = (ext_strings.ExtStrings(), ext_math.ExtMath(), ext_optional.ExtOptional())


def _list_loop_items(value: Any) -> Any:
    """The items of a loop: the sorted keys of a map, or a list itself."""
    return sorted(value, key=lambda key: (str(type(key)), key)) if isinstance(value, dict) else value


_IN_ORDER: Final = "in_order__"  # functions for rewritten sources alone
_IN_PARTS: Final = "in_parts__"
_JOINED: Final = "joined__"
_WRITTEN: Final = "written__"
_TEXTS: Final = "texts__"
_SUBSTRING: Final = "substring__"
_BOUNDED: Final = "bounded__"
_TURN: Final = "turn__"
_TURN_WORK: Final = 1_000
"""Microseconds of an evaluation in whose loops other threads get their turns."""
_PART: Final = "part__"  # a variable for them
_PART_ITEMS: Final = 128
_LONG: Final = 256  # items of a list that is taken in parts
_LONG_TO_FILTER: Final = 1_000  # where only what is kept is copied
_AGAIN_MAX: Final = 1_000  # items of the longest list of an expression that is begun once more as it is written


def _split_list(items: Any) -> Any:
    """A list as a list of lists, each short enough for a loop whose every round copies what it has so far."""
    items = list(items)
    return [items[at : at + _PART_ITEMS] for at in range(0, len(items), _PART_ITEMS)]


def _join_lists(parts: Any) -> Any:
    return [item for part in parts for item in part]


def _let_others_run() -> bool:
    """True. To call any function of Python is to give the interpreter's lock to a thread that waits for it; the
    library keeps it from the first round of a loop to the last."""
    return True


def _convert_duration_argument(value: Any) -> Any:
    """The argument of `duration`, where it is text: CEL knows neither days nor `PT5M`."""
    return format_cel_duration(value) if isinstance(value, str) else value


class _PatternStates(threading.local):
    """The states of the patterns that were made in the evaluation that goes on in a thread."""

    states = 0


_COUNTED: Final = _PatternStates()


def _count_states(pattern: str) -> str:
    """The pattern, which is about to be compiled. Raises ValueError where it is too large, or all of them are."""
    _COUNTED.states += check_states(pattern)
    if _COUNTED.states > WORK_MAX // STATE_WORK:
        raise ValueError(f"the patterns of one expression have at most {WORK_MAX // STATE_WORK:,} states; use a tool")
    return pattern


def _format_utc(moment: datetime.datetime, pattern: str) -> str:
    return functions.format_time(moment, pattern, "UTC")


def _declare_functions() -> Iterator[cel.FunctionDecl]:
    """The functions that CEL does not have."""
    kinds = cel.Type
    yield cel.FunctionDecl(_IN_ORDER, [cel.Overload(_IN_ORDER, kinds.DYN, [kinds.DYN], True, _list_loop_items)])
    listed, parted = kinds.List(kinds.DYN), kinds.List(kinds.List(kinds.DYN))
    yield cel.FunctionDecl(_IN_PARTS, [cel.Overload(_IN_PARTS, parted, [listed], True, _split_list)])
    yield cel.FunctionDecl(_JOINED, [cel.Overload(_JOINED, listed, [parted], True, _join_lists)])
    yield cel.FunctionDecl(_WRITTEN, [cel.Overload(_WRITTEN, kinds.DYN, [kinds.DYN], True, _convert_duration_argument)])
    texts = [cel.Overload(_TEXTS, kinds.List(kinds.STRING), [listed], True, functions.texts)]
    yield cel.FunctionDecl(_TEXTS, texts)
    pattern = cel.Overload(_BOUNDED, kinds.STRING, [kinds.STRING], True, _count_states)
    yield cel.FunctionDecl(_BOUNDED, [pattern])
    place = [kinds.STRING, kinds.INT, kinds.INT]
    yield cel.FunctionDecl(_SUBSTRING, [cel.Overload(_SUBSTRING, kinds.STRING, place, True, functions.part)])
    yield cel.FunctionDecl(_TURN, [cel.Overload(_TURN, kinds.BOOL, [], False, _let_others_run)])
    for name, compute in PAIRED.items():
        pairs = [kinds.List(kinds.DYN)]
        yield cel.FunctionDecl(f"{name}__", [cel.Overload(f"{name}__", kinds.List(kinds.DYN), pairs, True, compute)])
    # each may be written as a function of its first operand, or behind it
    forms = ((False, ""), (True, "_of"))
    numbers = [kinds.List(kinds.DYN)]
    yield cel.FunctionDecl(
        "sum", [cel.Overload(f"sum{end}", kinds.DOUBLE, numbers, member, functions.total) for member, end in forms]
    )
    formatters: list[cel.Overload] = []
    for member, end in forms:
        time = [kinds.TIMESTAMP, kinds.STRING]
        formatters.append(cel.Overload(f"format_utc{end}", kinds.STRING, time, member, _format_utc))
        zoned = [*time, kinds.STRING]
        formatters.append(cel.Overload(f"format_time{end}", kinds.STRING, zoned, member, functions.format_time))
    yield cel.FunctionDecl("format_time", formatters)


def _declare_mixed_operators() -> Iterator[cel.FunctionDecl]:
    """Arithmetic between an int and a double, for data whose types only a run shows."""
    kinds = cel.Type
    mixed = ([kinds.DOUBLE, kinds.INT], [kinds.INT, kinds.DOUBLE])
    for sign, compute_number in functions.MIXED.items():
        pairs = [[kinds.DOUBLE, kinds.DOUBLE], *mixed] if sign == "%" else mixed
        yield cel.FunctionDecl(
            f"_{sign}_",
            [
                cel.Overload(f"mixed_{compute_number.__name__}_{number}", kinds.DOUBLE, pair, False, compute_number)
                for number, pair in enumerate(pairs)
            ],
        )


_ORDERED: Final = cel.CelExtension("hai_flow", list(_declare_functions()))
_MIXED: Final = cel.CelExtension("hai_flow_mixed", list(_declare_mixed_operators()))
_SYNTAX: Final = cel.NewEnv(extensions=list(_EXTENSIONS))


def parse(source: str) -> Tree:
    """The tree of `source`. Raises `Faults` (syntax, size, number of loops)."""
    if len(source.encode(errors="replace")) > SOURCE_MAX:
        raise Faults(
            [ExpressionFault(0, "expression.too_long", "expected an expression of at most 4 KiB; compute it in a tool")]
        )
    if not source.strip():
        raise Faults([ExpressionFault(0, "expression.syntax", "expected an expression, found nothing")])
    macros = find_macros(source)
    try:
        serialized = _SYNTAX.compile(as_maps(source, macros), disable_check=True).serialize()
    except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
        raise Faults(habits(source) or faults_of(str(error), source, ())) from None
    try:
        tree = read_tree(serialized)
    except RecursionError:
        raise Faults(
            [ExpressionFault(0, "expression.too_deep", "the expression is nested too deeply; use a tool")]
        ) from None
    if macros:
        tree = with_pairs(tree, {macro.opens: macro.name for macro in macros})
    if loose := list(check_optionals(tree, taken=True)):
        raise Faults(loose)
    loops = [node for node in walk(tree) if isinstance(node, Comprehension) and not is_empty(node.range)]
    if len(loops) > COMPREHENSIONS_MAX:
        offset = sorted(loop.offset for loop in loops)[COMPREHENSIONS_MAX]
        message = f"expected at most {COMPREHENSIONS_MAX} of all, exists, filter and map in one expression; use a tool"
        raise Faults([ExpressionFault(offset, "expression.comprehensions", message)])
    return tree


# -- bindings ----------------------------------------------------------------------------------------------------


_CEL_TYPES: Final = {
    "int": cel.Type.INT,
    "double": cel.Type.DOUBLE,
    "string": cel.Type.STRING,
    "bool": cel.Type.BOOL,
    "timestamp": cel.Type.TIMESTAMP,
    "map": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
    "dyn": cel.Type.DYN,
    "list:int": cel.Type.List(cel.Type.INT),
    "list:double": cel.Type.List(cel.Type.DOUBLE),
    "list:string": cel.Type.List(cel.Type.STRING),
    "list:bool": cel.Type.List(cel.Type.BOOL),
    "list:dyn": cel.Type.List(cel.Type.DYN),
    "list:map": cel.Type.List(cel.Type.Map(cel.Type.STRING, cel.Type.DYN)),
}


class Binding(msgspec.Struct, frozen=True):
    """A variable: `name` stands for the value at `path` in the scope. `fields` limits a map to the fields that are
    read."""

    name: str
    path: tuple[Segment, ...]
    kind: Kind
    fields: frozenset[str] | None = None
    keys: bool = False  # a loop runs over it: of a map the sorted keys

    @property
    def bound_kind(self) -> Kind:
        return "list:string" if self.keys and self.kind == "map" else self.kind


# -- compiling -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _environment(variables: tuple[tuple[str, Kind], ...], *, mixed: bool = False) -> cel.Env:
    types = {name: _CEL_TYPES[kind] for name, kind in variables}
    return cel.NewEnv(variables=types, extensions=[*_EXTENSIONS, _ORDERED, *([_MIXED] if mixed else [])])


_NAME_LENGTH: Final = 3
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def _generate_variable_names(taken: frozenset[str]) -> Iterator[str]:
    """Names of `_NAME_LENGTH` characters, which a path with at least two parts has too: a padded one fits there."""
    for first in _DIGITS:
        for second in _DIGITS:
            name = f"v{first}{second}"
            if name not in taken:
                yield name


def compile_tree(
    source: str, tree: Tree, chains: Sequence[Chain], kind_at: Callable[[tuple[Segment, ...]], Kind]
) -> Program:
    """The checked program of a parsed source whose paths (`chains`) were found sound. Raises `Faults`."""
    used_names: set[str] = set()
    ranges: set[int] = set()
    for node in walk(tree):
        if isinstance(node, Name):
            used_names.add(node.name)
        elif isinstance(node, Comprehension):
            used_names |= {node.variable, node.accumulator}
            ranges.add(id(node.range))
    keyed = {id(chain.node) for chain in chains if id(chain.node) in ranges and not _has_own_name(chain.path)}
    bindings = _bindings(chains, kind_at, _generate_variable_names(frozenset(used_names)), keyed)
    by_use = {(binding.path, binding.keys): binding for binding in bindings}
    bound = {id(chain.node): by_use[chain.path, id(chain.node) in keyed] for chain in chains}
    macros = find_macros(source)
    rewritten = as_maps(source, macros)
    for chain in chains:
        rewritten = _replace_path(rewritten, chain, bound[id(chain.node)].name)
    widening = Widening({node: binding.bound_kind for node, binding in bound.items()}, source, keyed)
    widening.type_of(tree, {})
    widened = (Insertion(end, 0, ".0") for end in widening.ends)
    parts = _find_substrings(source, tree)
    calls = [*_find_orderings(source, widening.loops), *_find_joins(source, widening.joins), *parts]
    wrappings = (*_find_durations(source, tree), *_find_patterns(source, tree), *_find_nulls(tree))
    insertions = sorted([*widened, *calls, *pairings(macros), *wrappings])
    inserted = [(each.offset, each.text) for each in insertions]
    loops = _list_makers(tree)
    inner_ranges = frozenset(bound[id(each.range)].name for each in loops[1] if id(each.range) in bound)
    turning = [*insertions, *_find_turns(source, tree)]
    turned = _with(rewritten, sorted(turning)) if len(turning) > len(insertions) else ""
    outer = _with(rewritten, sorted([*turning, *_find_partings(source, loops[0])])) if loops[0] else ""
    every = _with(rewritten, sorted([*turning, *_find_partings(source, loops[0] + loops[1])])) if loops[1] else outer
    rewritten = _with(rewritten, insertions)
    variables = tuple((binding.name, binding.bound_kind) for binding in bindings)
    environment = _environment(variables, mixed=widening.may_mix)
    try:
        program = environment.compile(rewritten)
        result = program.return_type().name()
    except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
        raise Faults(faults_of(str(error), rewritten, inserted)) from None
    if "optional_type" in result:
        secrets = (check_secret(chain) for chain in chains if chain.path[0] == "secrets")
        if (fault := next((each for each in secrets if each is not None), None)) is not None:
            raise Faults([fault])  # no advice may lead to an empty credential
        raise Faults([ExpressionFault(0, "expression.optional", "the result may be absent; end with .orValue(...)")])
    growth = Growth(tree, {node: binding.name for node, binding in bound.items()})
    only_filters = _has_only_filters(loops[0] + loops[1])
    parted = _Parted(environment, turned, outer, every, inner_ranges, only_filters) if turned else None
    return Program(source, program, bindings, result, growth, parted)


def _with(source: str, insertions: Sequence[Insertion]) -> str:
    for each in reversed(insertions):
        source = source[: each.offset] + each.text + source[each.offset :]
    return source


def _list_makers(tree: Tree) -> tuple[list[Comprehension], list[Comprehension]]:
    """The loops that make lists: those inside of no other loop, and the others."""
    outer: list[Comprehension] = []
    inner: list[Comprehension] = []
    every = [node for node in walk(tree) if isinstance(node, Comprehension) and not is_empty(node.range)]
    inside = {id(node) for loop in every for part in (loop.condition, loop.step) for node in walk(part)}
    for node in every:
        if isinstance(node.start, Listing):
            (inner if id(node) in inside else outer).append(node)
    return outer, inner


def _has_only_filters(loops: Sequence[Comprehension]) -> bool:
    return all(isinstance(loop.step, Call) and loop.step.function == "_?_:_" for loop in loops)


def _find_partings(source: str, loops: Sequence[Comprehension]) -> Iterator[Insertion]:
    """The texts to insert so that each of these loops takes its range in parts: the library copies the list for each
    item that it adds, which takes a second for 8,000 of them."""
    for node in loops:
        macro = _MACRO.search(source, 0, node.offset)
        assert macro is not None, "a loop is written as a call of what it runs over"
        yield Insertion(macro.start(), 5, f".{_IN_PARTS}().map({_PART}, {_PART}")
        yield Insertion(_closing(source, node.offset) + 1, 0, f").{_JOINED}()")


def _find_turns(source: str, tree: Tree) -> Iterator[Insertion]:
    """The texts to insert so that other threads get their turns between the rounds of each loop. What a loop asks in
    each round goes into a condition, which has its type and its errors."""
    for node in walk(tree):
        if isinstance(node, Comprehension) and not is_empty(node.range):
            macro = _MACRO.search(source, 0, node.offset)
            assert macro is not None, "a loop is written as a call of what it runs over"
            commas, closes = _find_arguments(source, node.offset)
            if len(commas) == 1 and isinstance(node.start, Listing) and not _has_only_filters([node]):
                yield Insertion(commas[0] + 1, 3, f" {_TURN}(), ")
            else:
                yield Insertion(commas[0] + 1, 3, f" {_TURN}() ? (")
                yield Insertion([*commas, closes][1], 9, ") : false")


def _closing(source: str, opens: int) -> int:
    """The offset of the bracket that closes the one at `opens`."""
    return _find_arguments(source, opens)[1]


def _find_arguments(source: str, opens: int) -> tuple[list[int], int]:
    """Offsets of the commas between the arguments in the bracket at `opens`, and of the bracket that closes it."""
    commas: list[int] = []
    depth = 0
    for token in TOKEN.finditer(source, opens):
        word = token.group()
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if depth == 1 and word == ",":
            commas.append(token.start())
        if not depth and word == ")":
            return commas, token.start()
    raise AssertionError("it was parsed")


_MACRO: Final = re.compile(r"\.(?:\s|//[^\n]*\n)*[A-Za-z_]\w*(?:\s|//[^\n]*\n)*$")


def _find_orderings(source: str, loops: set[int]) -> Iterator[Insertion]:
    """The texts to insert before each of these loops (by the offset of its `(`), so that a map is run through in
    order."""
    for offset in loops:
        macro = _MACRO.search(source, 0, offset)
        assert macro is not None, "a loop is written as a call of what it runs over"
        yield Insertion(macro.start(), 2, f".{_IN_ORDER}()")


def _find_substrings(source: str, tree: Tree) -> Iterator[Insertion]:
    """The texts to insert so that each part of a text up to a place is taken by `functions.part`."""
    for node in walk(tree):
        if isinstance(node, Call) and node.function == "substring" and node.target and len(node.arguments) == 2:
            call = _MACRO.search(source, 0, node.offset)
            assert call is not None, "it is written as a call of the text"
            yield Insertion(call.start() + call.group().index(node.function) + len(node.function), 6, "__")


def _find_joins(source: str, calls: set[int]) -> Iterator[Insertion]:
    """The texts to insert before each of these calls of `join` (by the offset of its `(`), so that it writes numbers
    and booleans as texts do. CEL joins texts alone."""
    for offset in calls:
        call = _MACRO.search(source, 0, offset)
        if call is not None:
            yield Insertion(call.start(), 7, f".{_TEXTS}()")


def _find_durations(source: str, tree: Tree) -> Iterator[Insertion]:
    """The texts to insert so that `duration` takes what is a duration elsewhere in the language."""
    for node in walk(tree):
        if isinstance(node, Call) and node.function == "duration" and node.target is None and len(node.parts) == 1:
            operand = node.parts[0]
            if (
                isinstance(operand, Const)
                and isinstance(operand.value, str)
                and format_cel_duration(operand.value) == operand.value
            ):
                continue
            yield Insertion(node.offset + 1, 6, "(")
            yield Insertion(_closing(source, node.offset), 6, f").{_WRITTEN}()")


def _find_patterns(source: str, tree: Tree) -> Iterator[Insertion]:
    """The texts to insert so that a pattern that is made while the expression is evaluated is measured first."""
    for node in walk(tree):
        if isinstance(node, Call) and node.function == "matches" and not isinstance(node.parts[-1], Const):
            begins = node.offset if node.target is not None else _find_arguments(source, node.offset)[0][0]
            yield Insertion(begins + 1, 6, "(")
            yield Insertion(_closing(source, node.offset), 6, f").{_BOUNDED}()")


def _find_nulls(tree: Tree) -> Iterator[Insertion]:
    """The texts to insert so that a side of `? :` may be null beside one of any type."""
    for node in walk(tree):
        if isinstance(node, Call) and node.function == "_?_:_":
            for side in node.parts[1:]:
                if isinstance(side, Const) and side.value is None:
                    yield Insertion(side.offset, 8, "dyn(")
                    yield Insertion(side.offset + len("null"), 0, ")")


@lru_cache(maxsize=1024)
def check_literal(function: str, text: str) -> str | None:
    """Why the function refuses this literal whenever it is computed, in the library's words; None: it takes it."""
    if function == "matches":
        try:
            check_states(text)
        except ValueError as error:
            return str(error)
    quoted = values.dumps(format_cel_duration(text) if function == "duration" else text).decode()
    source = {"matches": f'"".matches({quoted})', "getHours": f"timestamp(0).getHours({quoted})"}.get(function)
    try:
        value = _environment(()).compile(source or f"{function}({quoted})").eval(data={})
    except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
        return _readable(str(error))
    return _readable(str(value.value())) if value.type() == cel.Type.ERROR else None


def _bindings(
    chains: Sequence[Chain], kind_at: Callable[[tuple[Segment, ...]], Kind], names: Iterator[str], keyed: set[int]
) -> tuple[Binding, ...]:
    """A variable for each path, and one more where a loop runs over it (`keyed`: these nodes)."""
    paths: dict[tuple[tuple[Segment, ...], bool], list[Chain]] = {}
    for chain in chains:
        paths.setdefault((chain.path, id(chain.node) in keyed), []).append(chain)
    result: list[Binding] = []
    for (path, keys), uses in paths.items():
        name = str(path[0]) if _has_own_name(path) else next(names, None)
        if name is None:
            raise Faults(
                [ExpressionFault(0, "expression.too_long", "expected fewer different paths in one expression")]
            )
        fields_read = {use.field for use in uses}
        fields = None if None in fields_read else frozenset(part for part in fields_read if part is not None)
        result.append(Binding(name, path, kind_at(path), fields, keys))
    return tuple(result)


def _has_own_name(path: Sequence[Segment]) -> bool:
    """Whether this is the variable of a `for_each` around, with a name too short for another to fit in its place."""
    return len(path) == 1 and len(str(path[0])) < _NAME_LENGTH


def _replace_path(source: str, chain: Chain, name: str) -> str:
    """`source` with the path's text replaced by a variable, as long as before and with its line breaks."""
    covered = source[chain.start : chain.end]
    padding = "".join(character if character == "\n" else " " for character in covered[len(name) :])
    return source[: chain.start] + name + padding + source[chain.end :]


# -- running -------------------------------------------------------------------------------------------------------


class _Parted:
    """An expression whose loops leave others their turns, and take long lists in parts. A part is one more round of the
    budget, so a loop inside of another is only written so where its own lists are long."""

    __slots__ = ("_environment", "_every", "_inner_ranges", "_longest", "_outer", "_programs", "_splits", "_turned")

    def __init__(
        self,
        environment: cel.Env,
        turned: str,
        outer: str,
        every: str,
        inner_ranges: frozenset[str],
        only_filters: bool,
    ) -> None:
        self._environment = environment
        self._turned = turned
        self._outer, self._every = outer, every
        self._splits = "split" in outer  # a text becomes a list
        self._inner_ranges = inner_ranges
        self._longest = _LONG_TO_FILTER if only_filters else _LONG
        self._programs: dict[str, cel.Expression] = {}

    def compile_program(self, sizes: Mapping[str, Size]) -> cel.Expression | None:
        """The program for operands of these sizes; None: as it is written."""
        deep = any(_count_items(size) > _LONG for size in sizes.values())
        deep = deep or any(sizes[name].count > _LONG for name in self._inner_ranges if name in sizes)
        items = sum(size.total if self._splits else size.count for size in sizes.values())
        if not self._outer or (not deep and items <= self._longest):
            return None
        return self._compile(self._every if deep else self._outer)

    def compile_turned(self) -> cel.Expression:
        """The program as it is written, but for turns."""
        return self._compile(self._turned)

    def _compile(self, source: str) -> cel.Expression:
        program = self._programs.get(source)
        if program is None:
            program = self._programs[source] = self._environment.compile(source)
        return program


def _count_items(size: Size) -> int:
    """The items of the longest list inside of a value."""
    most = 0
    while size.element is not None:
        size = size.element
        most = max(most, size.count)
    return most


class Program:
    """A compiled expression. `evaluate` is the only door; it holds the interpreter's lock while it runs."""

    __slots__ = ("_bindings", "_by_name", "_growth", "_parted", "_program", "result_type", "source")

    def __init__(
        self,
        source: str,
        program: cel.Expression,
        bindings: tuple[Binding, ...],
        result: str,
        growth: Growth,
        parted: _Parted | None = None,
    ) -> None:
        self.source = source
        self.result_type = result
        self._program = program
        self._bindings = bindings
        self._by_name = {binding.name: binding for binding in bindings}
        self._growth = growth
        self._parted = parted

    def _run_in_parts(self, data: dict[str, Json], sizes: Mapping[str, Size]) -> cel.Value | None:
        """The result of the program that takes lists in parts. None: where there is no need for it; and where it fails,
        as the other one says why. Only if that takes the budget up a second time this one's word counts."""
        if self._parted is None:
            return None
        try:
            program = self._parted.compile_program(sizes)
            if program is None:
                return None
            value = program.eval(data=data)
            if value.type() != cel.Type.ERROR:
                return value
            text = str(value.value())
        except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
            text = str(error)
        longest = max(max(size.count, _count_items(size)) for size in sizes.values())
        if _OVER_BUDGET in text and longest > _AGAIN_MAX:
            raise self._failure(text, {})
        return None

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value; timestamps, durations and bytes as text. Raises `ExpressionError`."""
        spend(0)
        before = THIS_THREAD.work.units
        data: dict[str, Json] = {}
        sizes: dict[str, Size] = {}
        unreadable: dict[str, ExpressionError] = {}  # an error only if it is read: `a != null && a.b` does not
        for binding in self._bindings:
            try:
                value = look_up(scope, binding.path)
            except ExpressionError as error:
                unreadable[binding.name] = error
                continue
            if value is not MISSING:
                data[binding.name], sizes[binding.name] = self._bind(binding, value)
        if THIS_THREAD.work.units - before > PARTS_MAX:
            message = f"{self.source!r} reads a value of more than {PARTS_MAX:,} parts; use a tool"
            raise ExpressionError("expression.budget", message)
        work = self._growth.check(sizes)
        spend(work)
        _COUNTED.states = 0
        try:
            value = self._run_in_parts(data, sizes)
            if value is None:
                turns = self._parted if work > _TURN_WORK else None
                value = (self._program if turns is None else turns.compile_turned()).eval(data=data)
            return self._result(value, unreadable)
        except ExpressionError:
            raise
        except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
            raise self._failure(str(error), unreadable) from None

    def _bind(self, binding: Binding, value: Json) -> tuple[Json, Size]:
        if binding.fields is not None and type(value) is dict:
            value = {name: value[name] for name in binding.fields if name in value}
        kind = binding.kind
        try:
            if binding.keys:
                if isinstance(value, Mapping):
                    value = sorted(value)
                elif kind == "map":
                    raise TypeError
                kind = binding.bound_kind
            return convert(value, kind, self._growth.deep)
        except (TypeError, ValueError, OverflowError):
            raise ExpressionError(
                "expression.error",
                f"expected {_describe_kind(binding.kind)} in {spell(binding.path)}, found another type",
            ) from None

    def _result(self, value: cel.Value, unreadable: Mapping[str, ExpressionError]) -> Json:
        if value.type() == cel.Type.ERROR:
            raise self._failure(str(value.value()), unreadable)
        return check_result(plain(value))

    def _failure(self, text: str, unreadable: Mapping[str, ExpressionError]) -> ExpressionError:
        """The library's run-time message as an error of the language."""
        missing = re.search(r'No value with name "(\w+)" found', text)
        if missing and missing[1] in unreadable:
            return unreadable[missing[1]]
        if missing and missing[1] in self._by_name:
            return absent(self._by_name[missing[1]].path)
        key = re.search(r"Key not found in map : (.*)", text)
        if key:
            return ExpressionError(
                "expression.absent", f"{self.source!r}: there is no {key[1]}; guard it with has() or .?x.orValue(...)"
            )
        if _OVER_BUDGET in text:
            return ExpressionError(
                "expression.budget", f"{self.source!r} needs more than {ITERATIONS_MAX:,} iterations; use a tool"
            )
        return ExpressionError("expression.error", f"{self.source!r}: {_readable(text)}")


_NO_ITEM: Final = re.compile(r"Index error: index=(-?\d+) size=(\d+)")


def _readable(text: str) -> str:
    text = re.sub(r"^[A-Z_]+: ", "", text.splitlines()[0] if text else "failed")
    overload = re.match(r"No matching overloads found : (.*)", text)
    if overload:
        function, _, types = overload[1].replace("int64", "int").replace("null_type", "null").partition("(")
        return f"the values have the wrong types: {describe_overload(function, f'({types}')}"
    if (index := _NO_ITEM.fullmatch(text)) is not None:
        return f"there is no item [{index[1]}]: the list has {index[2]}"
    text = text.replace("math.@max", "math.greatest").replace("math.@min", "math.least")
    return text.replace("Applying SELECT to non-message type", "a property was asked of something that is no object")


def _describe_kind(kind: Kind) -> str:
    return {"int": "an integer", "double": "a number", "string": "text", "bool": "a boolean", "map": "an object"}.get(
        kind, "a list" if kind.startswith("list") else kind
    )
