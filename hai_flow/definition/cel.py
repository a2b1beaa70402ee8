"""CEL (docs/language.md#expressions), wrapped: cel-expr-python does the checking and the evaluating, this file the
rest.

Beyond the library, this file does the following:

* The source is parsed unchecked first, and the tree read back from its protobuf bytes, so that every name has a place.
* Each path into the data (`input.a.b`, `steps.x.output["k"]`) becomes a variable of its own, of the static type of its
  JSON Schema. Only what an expression reads is converted, and none of the library's traps with dotted variables apply.
  The variable's name is padded to the length of the path, so columns in error messages stay right.
* An integer literal beside a double is widened (`< 100` becomes `< 100.0`).
* `rows.sort_by(r, r.name)` is read as the loop `rows.map(r, [r.name, r])` with a function behind it, and so is
  `group_by`: their places stay those of the source, and they count as loops.
* A loop over a map runs over its sorted keys, and a map that comes out has its keys sorted: the library has them in an
  order of chance, which differs from one evaluation to the next.
* Before evaluation an upper bound of every intermediate size is computed from the operands (`cel_growth`): the library
  itself bounds iterations, but seven nested `.map(a, a + a)` would take gigabytes.
* Run-time errors come back as values. Optionals crash `plain_value()` and every function that is written in Python:
  a result is walked by type (`cel_values`), and no optional gets into a list, a map or a function.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from cel_expr_python import cel
from cel_expr_python.ext import ext_math, ext_optional, ext_strings

from hai_flow.definition import functions
from hai_flow.definition.cel_growth import Growth
from hai_flow.definition.cel_tree import (
    Call,
    Comprehension,
    Const,
    Listing,
    Mapped,
    Name,
    Select,
    Tree,
    children,
    is_empty,
    read_tree,
    rebuilt,
    walk,
)
from hai_flow.definition.cel_values import Kind, Size, convert, finished, plain
from hai_flow.definition.expression_error import ExpressionError
from hai_flow.values import Json

Segment: TypeAlias = str | int

SOURCE_MAX: Final = 4 * 1024  # bytes
COMPREHENSIONS_MAX: Final = 3
ITERATIONS_MAX: Final = 10_000  # the library's own budget; stated here for the message

TYPE_NAMES: Final = frozenset(("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"))
NAMESPACES: Final = frozenset(("math", "optional", "strings"))
MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake in an expression; `offset` counts characters from the beginning of its source."""

    offset: int
    code: str
    message: str


class Faults(Exception):
    """An expression that can't be compiled, with every fault found."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = tuple(faults)


# -- parsing -----------------------------------------------------------------------------------------------------

_EXTENSIONS: Final = (ext_strings.ExtStrings(), ext_math.ExtMath(), ext_optional.ExtOptional())


def _in_order(value: Any) -> Any:
    """The items of a loop: the sorted keys of a map, or a list itself."""
    return sorted(value, key=lambda key: (str(type(key)), key)) if isinstance(value, dict) else value


_IN_ORDER: Final = "in_order__"  # a function for rewritten sources alone
_PAIRED: Final = {"sort_by": functions.sorted_by, "group_by": functions.grouped_by}
SORTED: Final = "sort_by__"  # behind the loop that a `sort_by` is, in rewritten sources and their trees


def _in_utc(moment: datetime.datetime, pattern: str) -> str:
    return functions.format_time(moment, pattern, "UTC")


def _declared() -> Iterator[cel.FunctionDecl]:
    """The functions that CEL does not have."""
    kinds = cel.Type
    yield cel.FunctionDecl(_IN_ORDER, [cel.Overload(_IN_ORDER, kinds.DYN, [kinds.DYN], True, _in_order)])
    for name, compute in _PAIRED.items():
        pairs = [kinds.List(kinds.DYN)]
        yield cel.FunctionDecl(f"{name}__", [cel.Overload(f"{name}__", kinds.List(kinds.DYN), pairs, True, compute)])
    # each may be written as a function of its first operand, or behind it
    forms = ((False, ""), (True, "_of"))
    numbers = [kinds.List(kinds.DYN)]
    yield cel.FunctionDecl(
        "sum", [cel.Overload(f"sum{end}", kinds.DOUBLE, numbers, member, functions.total) for member, end in forms]
    )
    shown: list[cel.Overload] = []
    for member, end in forms:
        time = [kinds.TIMESTAMP, kinds.STRING]
        shown.append(cel.Overload(f"format_utc{end}", kinds.STRING, time, member, _in_utc))
        zoned = [*time, kinds.STRING]
        shown.append(cel.Overload(f"format_time{end}", kinds.STRING, zoned, member, functions.format_time))
    yield cel.FunctionDecl("format_time", shown)


_ORDERED: Final = cel.CelExtension("hai_flow", list(_declared()))
_SYNTAX: Final = cel.NewEnv(extensions=list(_EXTENSIONS))


def parse(source: str) -> Tree:
    """The tree of `source`. Raises `Faults` (syntax, size, number of loops)."""
    if len(source.encode(errors="replace")) > SOURCE_MAX:
        raise Faults([Fault(0, "expression.too_long", "expected an expression of at most 4 KiB; compute it in a tool")])
    if not source.strip():
        raise Faults([Fault(0, "expression.syntax", "expected an expression, found nothing")])
    macros = _macros(source)
    try:
        serialized = _SYNTAX.compile(_as_maps(source, macros), disable_check=True).serialize()
    except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
        raise Faults(_habits(source) or _faults(str(error), source, ())) from None
    try:
        tree = read_tree(serialized)
    except RecursionError:
        raise Faults([Fault(0, "expression.too_deep", "the expression is nested too deeply; use a tool")]) from None
    if macros:
        tree = _paired(tree, {macro.opens: macro.name for macro in macros})
    if loose := list(_loose_optionals(tree, taken=True)):
        raise Faults(loose)
    loops = [node for node in walk(tree) if isinstance(node, Comprehension) and not is_empty(node.range)]
    if len(loops) > COMPREHENSIONS_MAX:
        offset = sorted(loop.offset for loop in loops)[COMPREHENSIONS_MAX]
        message = f"expected at most {COMPREHENSIONS_MAX} of all, exists, filter and map in one expression; use a tool"
        raise Faults([Fault(offset, "expression.comprehensions", message)])
    return tree


# -- optionals -----------------------------------------------------------------------------------------------------

_GIVE_OPTIONALS: Final = frozenset(
    ("_?._", "_[?_]", "first", "last", "none", "of", "ofNonZeroValue", "optional.none", "optional.of", "or")
)
_TAKE_OPTIONALS: Final[Mapping[str, Sequence[int]]] = {
    "_==_": (0, 1), "_!=_": (0, 1), "_?_:_": (1, 2), "_?._": (0,), "_[?_]": (0,), "_[_]": (0,),
    "hasValue": (0,), "or": (0, 1), "orValue": (0,), "value": (0,),
}  # fmt: skip


def _loose_optionals(tree: Tree, *, taken: bool) -> Iterator[Fault]:
    """A fault for each optional in `tree` that is used as if it were a value. `taken`: the call around `tree` takes an
    optional.

    The library has no form of an optional for the functions that are written in Python: one that comes to them, itself
    or inside a list or a map, ends the process. So an optional ends where it began, in `orValue` and the like.
    """
    if not taken and _is_optional(tree):
        message = "this may be absent, which is no value yet; end it with .orValue(...)"
        yield Fault(tree.offset, "expression.optional", message)
        return
    for part, part_taken in _parts(tree, taken=taken):
        yield from _loose_optionals(part, taken=part_taken)


def _is_optional(tree: Tree) -> bool:
    match tree:
        case Call(function="_?_:_"):
            return any(_is_optional(branch) for branch in tree.arguments[1:])
        case Call(function="_[_]"):
            return _is_optional(tree.arguments[0])
        case Call():
            return tree.function in _GIVE_OPTIONALS
        case Select(test=False):
            return _is_optional(tree.operand)
        case Comprehension():  # the parser's form of optFlatMap
            return is_empty(tree.range) and _is_optional(tree.result)
        case _:
            return False


def _parts(tree: Tree, *, taken: bool) -> Iterator[tuple[Tree, bool]]:
    """The parts of a tree, and whether each may be an optional."""
    match tree:
        case Select():
            yield tree.operand, True
        case Call():
            places = _TAKE_OPTIONALS.get(tree.function, ())
            yield from ((operand, index in places) for index, operand in enumerate(tree.operands))
        case Listing():
            yield from ((element, index in tree.optional) for index, element in enumerate(tree.elements))
        case Mapped():
            for index, (key, value) in enumerate(tree.entries):
                if key is not None:
                    yield key, False
                yield value, index in tree.optional
        case Comprehension():
            yield from ((part, False) for part in (tree.range, tree.start, tree.condition, tree.step))
            yield tree.result, taken and is_empty(tree.range)
        case _:
            pass


# -- sort_by and group_by ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Macro:
    """`.sort_by(x, body)`: offsets in the source of the name, the bracket that opens, the body, and the one that
    closes."""

    name: str
    begins: int
    opens: int
    variable: str
    body: int
    closes: int


def _macros(source: str) -> list[_Macro]:
    """The calls of `sort_by` and `group_by`, in the order in which they close. Raises `Faults` for one without its two
    arguments."""
    if not any(name in source for name in _PAIRED):
        return []
    found: list[_Macro] = []
    around: list[tuple[int, str, int, list[int]]] = []  # of each open bracket: offset, name before it, its, commas
    before: list[tuple[str, int]] = [("", 0), ("", 0)]
    for token in _TOKEN.finditer(source):
        word, at = token.group(), token.start()
        if not word.strip() or word.startswith("//"):
            continue
        if word in ("(", "[", "{"):
            name, begins = before[1] if word == "(" and before[0][0] == "." else ("", 0)
            around.append((at, name, begins, []))
        elif word == "," and around:
            around[-1][3].append(at)
        elif word in (")", "]", "}") and around:
            opens, name, begins, commas = around.pop()
            if name in _PAIRED and len(commas) != 1:
                message = f"write rows.{name}(r, r.name): a word for each item, and what is asked of it"
                raise Faults([Fault(begins, "expression.syntax", message)])
            if name in _PAIRED:
                found.append(_Macro(name, begins, opens, source[opens + 1 : commas[0]].strip(), commas[0] + 1, at))
        before = [before[1], (word, at)]
    return found


def _as_maps(source: str, macros: Sequence[_Macro]) -> str:
    """The source with each of these calls named `map`, in which nothing moves."""
    for macro in macros:
        source = source[: macro.begins] + "map".ljust(len(macro.name)) + source[macro.begins + len(macro.name) :]
    return source


def _paired(tree: Tree, names: Mapping[int, str]) -> Tree:
    """The tree in which these loops (by the offset of their bracket) give pairs of result and item, and the function
    that takes the pairs behind them."""

    def change(node: Tree) -> Tree:
        if not isinstance(node, Comprehension) or node.offset not in names:
            return node
        step = node.step
        assert isinstance(step, Call), "a map adds to its accumulator"
        added, listed = step.arguments
        assert isinstance(listed, Listing), "one element at a time"
        pair = Listing(listed.offset, (*listed.elements, Name(node.offset, node.variable)))
        loop = replace(node, step=replace(step, arguments=(added, replace(listed, elements=(pair,)))))
        return Call(node.offset, f"{names[node.offset]}__", loop, ())

    return rebuilt(tree, change)


class _Insertion(NamedTuple):
    """A text that comes into a source at an offset; `rank` orders those that come in at the same."""

    offset: int
    rank: int
    text: str


def _pairings(macros: Sequence[_Macro]) -> Iterator[_Insertion]:
    """The texts to insert so that a loop named `map` gives pairs, and the function takes them."""
    for macro in macros:
        yield _Insertion(macro.body, 4, "[")
        yield _Insertion(macro.closes, 3, f", {macro.variable}]")
        yield _Insertion(macro.closes + 1, 1, f".{macro.name}__()")


# -- messages of the library ---------------------------------------------------------------------------------------

# By operator of another language: the CEL for it, or a sentence.
_HABITS: Final = {
    "and": "&&", "or": "||", "not": "!", "===": "==", "!==": "!=", "?.": ".?", "<>": "!=",
    "if": "write a ? b : c",
    "not in": "write !(x in list)",
    "??": "a default is written a.?b.orValue(c)",
    "is": "== or !=",
    "${{": "this is an expression already; drop the `${{ }}`",
    "|": "there are no filters; call a function, such as size(x), x.join(', ')",
}  # fmt: skip
_WRITTEN_SO: Final = ("and", "or", "not", "===", "!==", "?.", "<>")
_TOKEN: Final = re.compile(
    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|//[^\n]*|===|!==|<>|not\s+in\b|\?\?|\?\.|\$\{\{|\|\||\||[A-Za-z_]\w*|."
)


def _habits(source: str) -> list[Fault]:
    """The first habit of another language in a source that can't be read."""
    before = ""
    for token in _TOKEN.finditer(source):
        word = " ".join(token.group().split()) or " "
        remedy = _HABITS.get(word) if before != "." else None
        if remedy is not None:
            written = f"`{remedy}`" if word in _WRITTEN_SO else remedy
            verb = "write " if " " not in remedy or word == "is" else ""
            return [Fault(token.start(), "expression.syntax", f"`{word}` is not CEL; {verb}{written}")]
        before = word if word.strip() else before
    return []


_MESSAGE = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_HINTS: Final = {
    "length": "use size(x)",
    "len": "use size(x)",
    "not": "write !(...)",
    "count": "use size(x)",
    "now": "`now` is a value: write now, without ()",
    "str": "use string(x)",
    "float": "use double(x)",
    "default": "write a.?b.orValue(c)",
    "coalesce": "write a.?b.orValue(c)",
    "format": 'write "%s".format([x])',
    "find": "use filter(x, ...)[0]",
    "some": "use exists(x, ...)",
    "any": "use exists(x, ...)",
    "every": "use all(x, ...)",
    "sort": "write rows.sort_by(r, r.name)",
    "sorted": "write rows.sort_by(r, r.name)",
    "sort_by": "write rows.sort_by(r, r.name)",
    "group_by": "write rows.group_by(r, r.team)",
    "groupBy": "write rows.group_by(r, r.team)",
    "strftime": 'write format_time(t, "%Y-%m-%d", "Europe/Berlin")',
    "bind": "cel.bind is not part of flow/v1; use a `set` step",
    "lower": "use lowerAscii()",
    "upper": "use upperAscii()",
    "toLowerCase": "use lowerAscii()",
    "toUpperCase": "use upperAscii()",
    "includes": "use contains() for text, `x in list` for lists",
    "contains": 'write text.contains("x"), or x in list',
    "startswith": "use startsWith()",
    "endswith": "use endsWith()",
    "strip": "use trim()",
    "toJSON": "a list or a map in a text becomes JSON by itself",
    "always": "what always runs stands under `finally`",
    "failure": "what runs after a failure stands under `catch`",
    "success": "a step runs only if those before it have succeeded; leave it out",
    "sum": "write x.sum()",
    "empty": "write size(x) == 0",
    "isEmpty": "write size(x) == 0",
}


Insertions: TypeAlias = Sequence[tuple[int, str]]  # texts inserted into a source, each with its offset there


def _faults(text: str, source: str, inserted: Insertions) -> list[Fault]:
    """The library's messages about `source`, into which `inserted` came, as faults of the source as it was written."""
    found: dict[int, Fault] = {}
    for match in _MESSAGE.finditer(text):
        line, column, message = int(match[1]), int(match[2]), match[3]
        if line < 1 or "parsetree" in message:
            continue
        offset = _unshifted(_offset(source, line, column), inserted)
        found.setdefault(offset, Fault(offset, *_translated(message.removesuffix(" [INVALID_ARGUMENT]"))))
    if "recursion" in text:
        message = "the expression is nested too deeply (at most 32 levels, or operators in a row); use a tool"
        return [Fault(0, "expression.too_deep", message)]
    if not found:
        return [Fault(0, "expression.syntax", f"expected an expression: {text.splitlines()[0] if text else 'not CEL'}")]
    faults = sorted(found.values(), key=lambda fault: fault.offset)
    # Behind the first place that can't be read, the parser guesses.
    return faults[:1] if faults[0].code == "expression.syntax" else faults


def _offset(source: str, line: int, column: int) -> int:
    return sum(len(text) + 1 for text in source.split("\n")[: line - 1]) + column - 1


def _unshifted(offset: int, inserted: Insertions) -> int:
    before = 0
    for place, text in inserted:
        if offset <= place + before:
            break
        before += len(text)
    return max(0, offset - before)


def _translated(message: str) -> tuple[str, str]:
    overload = re.match(r"found no matching overload for '(.+?)' applied to '(.*)'", message)
    if overload:
        return "expression.type", _overload_message(overload[1], overload[2])
    undeclared = re.match(r"undeclared reference to '(.+?)'", message)
    if undeclared:
        hint = _HINTS.get(undeclared[1], "`hai-flow grammar` lists the functions")
        return "expression.unknown_function", f"there is no function `{undeclared[1]}`; {hint}"
    if message.startswith("Syntax error"):
        return "expression.syntax", f"can't read this expression: {_short_syntax(message)}"
    return "expression.invalid", message


_STRANGERS: Final = {
    "#": "a comment begins with `//`, text stands in quotes",
    "=": "comparison is ==",
    "&": "write && for and",
    "|": "write || for or; there are no filters, call a function: size(x)",
    '"': "close the quotes",
    "'": "close the quotes",
}


def _short_syntax(message: str) -> str:
    strange = re.match(r"Syntax error: token recognition error at: '(.)", message)
    if strange:
        return f"`{strange[1]}` means nothing here; {_STRANGERS.get(strange[1], 'text stands in quotes')}"
    text = message.removeprefix("Syntax error: ").replace("'<EOF>'", "the end")
    text = re.sub(r" expecting \{.*\}", "", text)
    text = text.replace("mismatched input", "did not expect").replace("extraneous input", "did not expect")
    if "'='" in text or "'=" in text:
        text += "; comparison is =="
    return text


def _overload_message(function: str, types: str) -> str:
    shown = re.sub(r"^_(.+)_$", r"\1", function)
    given = types.removeprefix("(").removesuffix(")")
    shown = shown.removeprefix("@")
    if shown == "==" or shown == "!=":
        return f"`{shown}` compares {given.replace(', ', ' with ')}, which can never be equal"
    if shown == "+" and "string" in given:
        return f"`+` can't join ({given}); write string(x) around what is no text, or use a text with holes"
    if "int" in given and "double" in given:
        return f"`{shown}` can't mix {given.replace(', ', ' and ')}; write double(x) or int(x)"
    if shown == "?_:":
        return f"both sides of `? :` must have one type, found ({given}); wrap one in dyn(...)"
    return f"`{shown}` can't be applied to ({given})"


# -- types and bindings --------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Binding:
    """A variable: `name` stands for the value at `path` in the scope. `fields` limits a map to the fields that are
    read."""

    name: str
    path: tuple[Segment, ...]
    kind: Kind
    fields: frozenset[str] | None = None
    keys: bool = False  # a loop runs over it: of a map the sorted keys

    @property
    def bound_kind(self) -> Kind:
        """The kind of the value that is bound to the variable."""
        return "list:string" if self.keys and self.kind == "map" else self.kind


@dataclass(frozen=True, slots=True)
class Chain:
    """One path into the data, as it stands in the source: [start, end) and the tree node it covers."""

    node: Tree
    path: tuple[Segment, ...]
    start: int
    end: int
    field: str | None  # the one property that `has()` or `.?` asks of it


_ACCESSOR = re.compile(
    r"(?:\s|//[^\n]*\n)*(?:\.(?:\s|//[^\n]*\n)*(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`\n]+`)"
    r"|\[(?:\s|//[^\n]*\n)*(?P<key>\"[^\"\\\n]*\"|'[^'\\\n]*'|[0-9]+)(?:\s|//[^\n]*\n)*\])"
)
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def chain_spans(source: str, start: int, length: int) -> list[tuple[int, Segment]] | None:
    """(end, segment) of the root and of each of `length` accessors behind `start`; None where the text is unusual."""
    spans = longest_chain(source, start, length)
    return spans if len(spans) == length + 1 else None


def longest_chain(source: str, start: int, length: int = SOURCE_MAX) -> list[tuple[int, Segment]]:
    """As `chain_spans`, for the longest path that begins with the name at `start`, up to `length` accessors."""
    root = _ROOT.match(source, start)
    assert root is not None, "a path begins with a name"
    spans: list[tuple[int, Segment]] = [(root.end(), root.group())]
    while len(spans) <= length:
        match = _ACCESSOR.match(source, spans[-1][0])
        if match is None:
            break
        spans.append((match.end(), _segment(match)))
    return spans


def _segment(match: re.Match[str]) -> Segment:
    name, key = match.group("name"), match.group("key")
    if name is not None:
        return name.strip("`")
    return int(key) if key[0].isdigit() else key[1:-1]


def static_path(tree: Tree) -> tuple[Name, tuple[Segment, ...]] | None:
    """The root and the path of a tree that is only a path (`input.a["b"][0]`), else None."""
    segments: list[Segment] = []
    while True:
        match tree:
            case Name():
                return tree, tuple(reversed(segments))
            case Select(test=False):
                segments.append(tree.name)
                tree = tree.operand
            case Call(function="_[_]", arguments=(operand, Const(value=int() | str() as key, unsigned=False))):
                if isinstance(key, bool) or (isinstance(key, int) and key < 0):
                    return None
                segments.append(key)
                tree = operand
            case _:
                return None


@dataclass(slots=True)
class Scan:
    """The names in a tree: data paths, other free names, and the variables of its loops."""

    chains: list[Chain] = field(default_factory=list)
    free: list[Name] = field(default_factory=list)
    variables: list[tuple[str, int]] = field(default_factory=list)
    messages: list[Mapped] = field(default_factory=list)


def scan(tree: Tree, source: str, roots: frozenset[str]) -> Scan:
    """Every path that begins with one of `roots` and every other free name of `tree`."""
    result = Scan()
    _scan(tree, source, roots, frozenset(), None, result)
    return result


def _scan(
    tree: Tree, source: str, roots: frozenset[str], bound: frozenset[str], field_: str | None, result: Scan
) -> None:
    path = static_path(tree)
    if path is not None:
        name, segments = path
        if name.name in bound or name.name.startswith("@"):
            return
        spans = chain_spans(source, name.offset, len(segments)) if name.name in roots else None
        if spans is not None and tuple(part for _, part in spans[1:]) == segments:
            result.chains.append(Chain(tree, (name.name, *segments), name.offset, spans[-1][0], field_))
        elif name.name in roots:  # written in an unusual way: bind the whole root
            end = name.offset + len(name.name)
            result.chains.append(Chain(name, (name.name,), name.offset, end, None))
        else:
            result.free.append(name)
        return
    match tree:
        case Select(test=True):
            _scan(tree.operand, source, roots, bound, tree.name, result)
        case Call(function="_?._", arguments=(operand, Const(value=str() as key))):
            _scan(operand, source, roots, bound, key, result)
        case Call(target=Name(name=namespace)) if namespace in NAMESPACES - bound - roots:
            for argument in tree.arguments:
                _scan(argument, source, roots, bound, None, result)
        case Comprehension():
            _scan_loop(tree, source, roots, bound, result)
        case _:
            if isinstance(tree, Mapped) and tree.type_name:
                result.messages.append(tree)
            for child in children(tree):
                _scan(child, source, roots, bound, None, result)


def _scan_loop(loop: Comprehension, source: str, roots: frozenset[str], bound: frozenset[str], result: Scan) -> None:
    _scan(loop.range, source, roots, bound, None, result)
    _scan(loop.start, source, roots, bound, None, result)
    names = {name for name in (loop.variable, loop.accumulator) if not name.startswith(("@", "#"))}
    result.variables.extend((name, loop.offset) for name in sorted(names))
    for part in (loop.condition, loop.step, loop.result):
        _scan(part, source, roots, bound | names, None, result)


# -- widening ------------------------------------------------------------------------------------------------------

_ARITHMETIC: Final = frozenset(("_+_", "_-_", "_*_", "_/_"))
_COMPARISON: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"))
_RETURNS: Final = {
    "double": "double", "int": "int", "size": "int", "math.ceil": "double", "math.floor": "double",
    "split": "list:string", "sum": "double",
}  # fmt: skip


class _Widening:
    """Finds the integer literals that stand beside a double, from the types of the paths around them."""

    def __init__(self, kinds: Mapping[int, Kind], source: str, keyed: Container[int]) -> None:
        self.kinds = kinds  # id(node of a chain) -> kind
        self.keyed = keyed  # nodes of which a loop gets the keys as they are bound
        self.source = source
        self.ends: set[int] = set()  # offsets just behind the literals to widen
        self.loops: set[int] = set()  # offsets of loops whose range may be a map

    def type_of(self, tree: Tree, bound: Mapping[str, Kind]) -> Kind:
        """The kind of `tree` ("other" where it does not matter), widening literals inside on the way."""
        if id(tree) in self.kinds:
            return self.kinds[id(tree)]
        match tree:
            case Const():
                return _constant_kind(tree)
            case Name():
                return bound.get(tree.name, "other")
            case Select():
                self.type_of(tree.operand, bound)
                return "bool" if tree.test else "dyn"
            case Call():
                return self._call(tree, bound)
            case Comprehension():
                return self._loop(tree, bound)
            case _:
                for child in children(tree):
                    self.type_of(child, bound)
                return "list:dyn" if isinstance(tree, Listing) else "map"

    def _loop(self, loop: Comprehension, bound: Mapping[str, Kind]) -> Kind:
        over = self.type_of(loop.range, bound)
        if not over.startswith("list:") and id(loop.range) not in self.keyed and not is_empty(loop.range):
            self.loops.add(loop.offset)
        element = over.removeprefix("list:") if over.startswith("list:") else "dyn" if over == "dyn" else "other"
        inner = {**bound, loop.variable: element, loop.accumulator: "other"}
        start = self.type_of(loop.start, bound)
        if loop.variable.startswith("#"):  # optMap: the variable is the accumulator, bound to an optional's value
            inner[loop.accumulator] = start
        for part in (loop.condition, loop.step):
            self.type_of(part, inner)
        result = self.type_of(loop.result, inner)
        return result if result != "other" else start if start.startswith("list") else "other"

    def _call(self, call: Call, bound: Mapping[str, Kind]) -> Kind:
        kinds = [self.type_of(operand, bound) for operand in call.operands]
        if call.function in _ARITHMETIC:
            return self._arithmetic(call, kinds)
        if call.function in _COMPARISON:
            if "double" in kinds:
                self._widen(call.operands)
            return "bool"
        if call.function == "_?_:_":
            if "double" in kinds[1:]:
                self._widen(call.operands[1:])
                return "double"
            return kinds[1] if kinds[1] == kinds[2] else "dyn" if "dyn" in kinds[1:] else "other"
        if call.function == "-_":
            return kinds[0]
        if call.function in ("_[_]", "value", "orValue"):
            return kinds[0].removeprefix("list:") if kinds[0].startswith("list:") else "dyn"
        if call.function in ("filter", "reverse"):
            return kinds[0]
        return _RETURNS.get(call.function, "other")

    def _arithmetic(self, call: Call, kinds: list[Kind]) -> Kind:
        """Numbers in dyn data are always bound as doubles, so a literal beside them is widened as well."""
        if "double" in kinds:
            self._widen(call.operands)
            return "double"
        if "dyn" in kinds and any(_is_integer(operand) for operand in call.operands):
            self._widen(call.operands)
            return "double"
        return kinds[0] if kinds and kinds[0] == kinds[-1] else "dyn" if "dyn" in kinds else "other"

    def _widen(self, operands: Sequence[Tree]) -> None:
        for operand in operands:
            if _is_integer(operand):
                assert isinstance(operand, Const)
                match = re.compile(r"-?\s*[0-9]+(?![0-9xXuU.eE])").match(self.source, operand.offset)
                if match:  # hexadecimal literals stay integers
                    self.ends.add(match.end())


def _constant_kind(constant: Const) -> Kind:
    match constant.value:
        case bool():
            return "bool"
        case int():
            return "other" if constant.unsigned else "int"
        case float():
            return "double"
        case str():
            return "string"
        case _:
            return "other"


def _is_integer(tree: Tree) -> bool:
    return isinstance(tree, Const) and type(tree.value) is int and not tree.unsigned


# -- compiling -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _environment(variables: tuple[tuple[str, Kind], ...]) -> cel.Env:
    types = {name: _CEL_TYPES[kind] for name, kind in variables}
    return cel.NewEnv(variables=types, extensions=[*_EXTENSIONS, _ORDERED])


_NAME_LENGTH: Final = 3
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def _variable_names(taken: frozenset[str]) -> Iterator[str]:
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
    taken: set[str] = set()
    ranges: set[int] = set()
    for node in walk(tree):
        if isinstance(node, Name):
            taken.add(node.name)
        elif isinstance(node, Comprehension):
            taken |= {node.variable, node.accumulator}
            ranges.add(id(node.range))
    keyed = {id(chain.node) for chain in chains if id(chain.node) in ranges and not _keeps_its_name(chain.path)}
    bindings = _bindings(chains, kind_at, _variable_names(frozenset(taken)), keyed)
    by_use = {(binding.path, binding.keys): binding for binding in bindings}
    bound = {id(chain.node): by_use[chain.path, id(chain.node) in keyed] for chain in chains}
    macros = _macros(source)
    rewritten = _as_maps(source, macros)
    for chain in chains:
        rewritten = _replaced(rewritten, chain, bound[id(chain.node)].name)
    widening = _Widening({node: binding.bound_kind for node, binding in bound.items()}, source, keyed)
    widening.type_of(tree, {})
    widened = (_Insertion(end, 0, ".0") for end in widening.ends)
    insertions = sorted([*widened, *_orderings(source, widening.loops), *_pairings(macros)])
    inserted = [(each.offset, each.text) for each in insertions]
    for offset, text in reversed(inserted):
        rewritten = rewritten[:offset] + text + rewritten[offset:]
    environment = _environment(tuple((binding.name, binding.bound_kind) for binding in bindings))
    try:
        program = environment.compile(rewritten)
        result = program.return_type().name()
    except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
        raise Faults(_faults(str(error), rewritten, inserted)) from None
    if "optional_type" in result:
        raise Faults([Fault(0, "expression.optional", "the result may be absent; end with .orValue(...)")])
    growth = Growth(tree, {node: binding.name for node, binding in bound.items()})
    return Program(source, program, bindings, result, growth)


_MACRO: Final = re.compile(r"\.(?:\s|//[^\n]*\n)*[A-Za-z_]\w*(?:\s|//[^\n]*\n)*$")


def _orderings(source: str, loops: set[int]) -> Iterator[_Insertion]:
    """The texts to insert before each of these loops (by the offset of its `(`), so that a map is run through in
    order."""
    for offset in loops:
        macro = _MACRO.search(source, 0, offset)
        assert macro is not None, "a loop is written as a call of what it runs over"
        yield _Insertion(macro.start(), 2, f".{_IN_ORDER}()")


def _bindings(
    chains: Sequence[Chain], kind_at: Callable[[tuple[Segment, ...]], Kind], names: Iterator[str], keyed: set[int]
) -> tuple[Binding, ...]:
    """A variable for each path, and one more where a loop runs over it (`keyed`: these nodes)."""
    paths: dict[tuple[tuple[Segment, ...], bool], list[Chain]] = {}
    for chain in chains:
        paths.setdefault((chain.path, id(chain.node) in keyed), []).append(chain)
    result: list[Binding] = []
    for (path, keys), uses in paths.items():
        name = str(path[0]) if _keeps_its_name(path) else next(names, None)
        if name is None:
            raise Faults([Fault(0, "expression.too_long", "expected fewer different paths in one expression")])
        asked = {use.field for use in uses}
        fields = None if None in asked else frozenset(part for part in asked if part is not None)
        result.append(Binding(name, path, kind_at(path), fields, keys))
    return tuple(result)


def _keeps_its_name(path: Sequence[Segment]) -> bool:
    """Whether this is the variable of a `for_each` around, with a name too short for another to fit in its place."""
    return len(path) == 1 and len(str(path[0])) < _NAME_LENGTH


def _replaced(source: str, chain: Chain, name: str) -> str:
    """`source` with the path's text replaced by a variable, as long as before and with its line breaks."""
    covered = source[chain.start : chain.end]
    padding = "".join(character if character == "\n" else " " for character in covered[len(name) :])
    return source[: chain.start] + name + padding + source[chain.end :]


# -- running -------------------------------------------------------------------------------------------------------


class Program:
    """A compiled expression. `evaluate` is the only door; it holds the interpreter's lock while it runs."""

    __slots__ = ("_bindings", "_by_name", "_growth", "_program", "result_type", "source")

    def __init__(
        self, source: str, program: cel.Expression, bindings: tuple[Binding, ...], result: str, growth: Growth
    ) -> None:
        self.source = source
        self.result_type = result
        self._program = program
        self._bindings = bindings
        self._by_name = {binding.name: binding for binding in bindings}
        self._growth = growth

    def evaluate(self, scope: Mapping[str, Json]) -> Json:
        """The JSON value; timestamps, durations and bytes as text. Raises `ExpressionError`."""
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
                data[binding.name], sizes[binding.name] = self._bound(binding, value)
        self._growth.check(sizes)
        try:
            value = self._program.eval(data=data)
            return self._result(value, unreadable)
        except ExpressionError:
            raise
        except Exception as error:  # pybind raises RuntimeError, TypeError or SystemError
            raise self._failure(str(error), unreadable) from None

    def _bound(self, binding: Binding, value: Json) -> tuple[Json, Size]:
        if binding.fields is not None and type(value) is dict:
            value = {name: value[name] for name in binding.fields if name in value}
        try:
            if binding.keys and isinstance(value, Mapping):
                value = sorted(value)
            elif binding.bound_kind != binding.kind:
                raise TypeError
            return convert(value, binding.bound_kind, self._growth.deep)
        except (TypeError, ValueError, OverflowError):
            raise ExpressionError(
                "expression.error", f"expected {_spoken(binding.kind)} in {spell(binding.path)}, found another type"
            ) from None

    def _result(self, value: cel.Value, unreadable: Mapping[str, ExpressionError]) -> Json:
        if value.type() == cel.Type.ERROR:
            raise self._failure(str(value.value()), unreadable)
        return finished(plain(value))

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
        if "Iteration budget" in text:
            return ExpressionError(
                "expression.budget", f"{self.source!r} needs more than {ITERATIONS_MAX:,} iterations; use a tool"
            )
        return ExpressionError("expression.error", f"{self.source!r}: {_readable(text)}")


def _readable(text: str) -> str:
    text = re.sub(r"^[A-Z_]+: ", "", text.splitlines()[0] if text else "failed")
    overload = re.match(r"No matching overloads found : (.*)", text)
    if overload:
        return f"{overload[1].replace('int64', 'int')} does not exist: the values have the wrong types"
    return text.replace("Applying SELECT to non-message type", "a property was asked of something that is no object")


def _spoken(kind: Kind) -> str:
    return {"int": "an integer", "double": "a number", "string": "text", "bool": "a boolean", "map": "an object"}.get(
        kind, "a list" if kind.startswith("list") else kind
    )


def absent(path: Sequence[Segment]) -> ExpressionError:
    """The error of reading `path` where nothing is."""
    return ExpressionError(
        "expression.absent",
        f"{spell(path)} is absent; guard it with has({spell(path)}) or {spell(path[:-1])}.?{path[-1]}.orValue(...)",
    )


def spell(path: Sequence[Segment]) -> str:
    """`path` as it is written in an expression."""
    text = str(path[0]) if path else ""
    for part in path[1:]:
        if isinstance(part, str):
            text += f".{part}" if re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) else f'["{part}"]'
        else:
            text += f"[{part}]"
    return text


_NOT_BEGUN: Final[dict[str, Json]] = {"status": "pending"}  # `steps.X.status` never fails, even before X began


def look_up(scope: Mapping[str, Json], path: Sequence[Segment]) -> Json:
    """The value at `path`, or MISSING. Raises ExpressionError where a property is asked of something that is no
    object."""
    value: Json = scope
    for depth, part in enumerate(path):
        kind = type(value)
        if kind is dict or isinstance(value, Mapping):
            if part not in value:
                if depth == 1 and path[0] == "steps":
                    value = _NOT_BEGUN
                    continue
                return MISSING
            value = value[part]
        elif kind is list and type(part) is int:
            if part >= len(value):
                return MISSING
            value = value[part]
        else:
            raise ExpressionError("expression.error", _unreadable(value, path, depth))
    return value


def _unreadable(value: Json, path: Sequence[Segment], depth: int) -> str:
    """Why `path[depth]` can't be read of `value`, which stands at the path before it."""
    parent, part = spell(path[:depth]), path[depth]
    if type(value) is list:
        remedy = f"; write size({parent})" if part in ("length", "size", "count") else "; name an element: [0]"
        return f"{parent} is a list and has no {part}{remedy}"
    remedy = f"; write size({parent})" if type(value) is str and part in ("length", "size") else ""
    found = "text" if type(value) is str else "null" if value is None else "neither an object nor a list"
    return f"{parent} is {found}: {spell(path[: depth + 1])} can't be read{remedy}"
