"""Paths into the data (`input.a.b`, `steps.x.output["k"]`): as they stand in a source and in its tree, how they are
written, and what is at one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Mapped, Name, Select, Tree
from hai_flow.definition.expressions.expression_error import ExpressionError, ExpressionFault
from hai_flow.values import Json

Segment: TypeAlias = str | int

SOURCE_MAX: Final = 4 * 1024  # bytes

NAMESPACES: Final = frozenset(("math", "optional", "strings"))
MISSING: Final = object()


class Chain(msgspec.Struct, frozen=True):
    """One path into the data, as it stands in the source: [start, end) and the tree node it covers."""

    node: Tree
    path: tuple[Segment, ...]
    start: int
    end: int
    field: str | None  # the one property that `has()` or `.?` asks of it
    full_path: tuple[Segment, ...] = ()  # the path with that property

    def __post_init__(self) -> None:
        force_setattr(self, "full_path", self.path if self.field is None else (*self.path, self.field))


_ACCESSOR = re.compile(
    r"(?:\s|//[^\n]*\n)*(?:\.(?:\s|//[^\n]*\n)*(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`\n]+`)"
    r"|\[(?:\s|//[^\n]*\n)*(?P<key>\"[^\"\\\n]*\"|'[^'\\\n]*'|[0-9]+)(?:\s|//[^\n]*\n)*\])"
)
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def find_chain_spans(source: str, start: int, length: int) -> list[tuple[int, Segment]] | None:
    """(end, segment) of the root and of each of `length` accessors behind `start`; None where the text is unusual."""
    spans = find_longest_chain(source, start, length)
    return spans if len(spans) == length + 1 else None


def find_longest_chain(source: str, start: int, length: int = SOURCE_MAX) -> list[tuple[int, Segment]]:
    """As `find_chain_spans`, for the longest path that begins with the name at `start`, up to `length` accessors."""
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


def parse_static_path(tree: Tree) -> tuple[Name, tuple[Segment, ...]] | None:
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
    path = parse_static_path(tree)
    if path is not None:
        name, segments = path
        if name.name in bound or name.name.startswith("@"):
            return
        spans = find_chain_spans(source, name.offset, len(segments)) if name.name in roots else None
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
            for child in tree.parts:
                _scan(child, source, roots, bound, None, result)


def _scan_loop(loop: Comprehension, source: str, roots: frozenset[str], bound: frozenset[str], result: Scan) -> None:
    _scan(loop.range, source, roots, bound, None, result)
    _scan(loop.start, source, roots, bound, None, result)
    names = {name for name in (loop.variable, loop.accumulator) if not name.startswith(("@", "#"))}
    result.variables.extend((name, loop.offset) for name in sorted(names))
    for part in (loop.condition, loop.step, loop.result):
        _scan(part, source, roots, bound | names, None, result)


def absent(path: Sequence[Segment]) -> ExpressionError:
    """The error of reading `path` where nothing is."""
    if path[0] == "secrets":  # no guard: nothing is sent in the place of a secret
        return ExpressionError("expression.absent", f"{spell(path)} is no secret that the document names as it is")
    return ExpressionError(
        "expression.absent", f"{spell(path)} is absent; guard it with {' or '.join(spell_guards(path))}"
    )


def spell_guards(path: Sequence[Segment]) -> tuple[str, str]:
    """A condition that shows that something is at `path`, and the path with a default, as they are written."""
    parent, last = spell(path[:-1]), path[-1]
    if isinstance(last, int):
        return f"size({parent}) > {last}", f"{parent}[?{last}].orValue(...)"
    if _PLAIN.fullmatch(last) is None:
        return f'"{last}" in {parent}', f'{parent}[?"{last}"].orValue(...)'
    return f"has({spell(path)})", f"{parent}.?{last}.orValue(...)"


_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def spell(path: Sequence[Segment]) -> str:
    """`path` as it is written in an expression."""
    text = str(path[0]) if path else ""
    for part in path[1:]:
        if isinstance(part, str):
            text += f".{part}" if _PLAIN.fullmatch(part) else f'["{part}"]'
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
    description = "text" if type(value) is str else "null" if value is None else "neither an object nor a list"
    return f"{parent} is {description}: {spell(path[: depth + 1])} can't be read{remedy}"


def find_segment_offset(source: str, chain: Chain, index: int) -> int:
    """Where the segment `index` of the path begins in the source."""
    spans = find_chain_spans(source, chain.start, len(chain.path) - 1)
    if spans is None or index >= len(spans):
        return chain.end - 1 if index else chain.start
    before = spans[index - 1][0] if index else chain.start
    token = re.compile(r"(?:[\s.\[]|//[^\n]*\n)*").match(source, before)
    return token.end() if token and index else before


@lru_cache(maxsize=4096)
def parse_whole_path(source: str, roots: frozenset[str]) -> Chain | None:
    """The path that `source` is as a whole, if it is one that begins with one of `roots`."""
    stripped = source.strip()
    start = source.find(stripped)
    root = re.match(r"[a-z][a-z0-9_]*", stripped)
    if root is None or root.group() not in roots:
        return None
    spans = find_longest_chain(source, start)
    if spans[-1][0] != start + len(stripped):
        return None
    path = tuple(part for _, part in spans)
    return Chain(Name(start, str(path[0])), path, start, spans[-1][0], None)


SECRET_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


HOW_SECRETS_ARE_NAMED: Final = "a secret is named as it is, `secrets.NAME`"
NO_DEFAULT: Final = "whether it is set is looked at before the step, and none is sent in its place"


def check_secret(chain: Chain) -> ExpressionFault | None:
    """Secrets are named one by one, as `secrets.NAME`: what is named otherwise could not be looked for before a run,
    and a default would be sent in the place of a secret."""
    name = chain.path[1] if len(chain.path) > 1 else chain.field
    if len(chain.path) == 2 and chain.field is None and isinstance(name, str) and SECRET_NAME.fullmatch(name):
        return None
    if isinstance(name, str) and SECRET_NAME.fullmatch(name):
        remedy = f"write `secrets.{name}`; {NO_DEFAULT}"
    elif name is None:
        remedy = "one that is computed can't be looked for; write a `switch` with a step for each secret"
    else:
        remedy = "letters, digits and `_`, at most 63, no digit first"
    return ExpressionFault(chain.start, "expression.secret", f"{HOW_SECRETS_ARE_NAMED}: {remedy}")
