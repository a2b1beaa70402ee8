"""The syntax tree of a CEL expression, read back from the protobuf bytes that the library serializes, and written as a
source.

The library shows its tree in no other way, and does not bring protobuf's Python classes; cel.expr.ParsedExpr is small
enough to be read by hand. Offsets count characters from the beginning of the source."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec.structs import force_setattr, replace

from hai_flow import values
from hai_flow.primitives import protobuf
from hai_flow.values import Json


# `parts` of a node: its direct parts, in source order.
class Const(msgspec.Struct, frozen=True):
    offset: int
    value: Json  # int, float, str, bool, None or bytes
    unsigned: bool = False
    parts: ClassVar[tuple[Tree, ...]] = ()


class Name(msgspec.Struct, frozen=True):
    offset: int
    name: str
    parts: ClassVar[tuple[Tree, ...]] = ()


class Select(msgspec.Struct, frozen=True):
    offset: int
    operand: Tree
    name: str
    test: bool  # has(operand.name)
    parts: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "parts", (self.operand,))


class Call(msgspec.Struct, frozen=True):
    offset: int
    function: str
    target: Tree | None
    arguments: tuple[Tree, ...]
    parts: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "parts", self.arguments if self.target is None else (self.target, *self.arguments))


class Listing(msgspec.Struct, frozen=True):
    """A list literal; `optional` are the indices of the elements written `?x`."""

    offset: int
    elements: tuple[Tree, ...]
    optional: frozenset[int] = frozenset()
    parts: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "parts", self.elements)


class Mapped(msgspec.Struct, frozen=True):
    """A map literal; `type_name` is not empty for a message literal, which the language does not have. `optional` are
    the indices of the entries written `?key: x`."""

    offset: int
    type_name: str
    entries: tuple[tuple[Tree | None, Tree], ...]
    optional: frozenset[int] = frozenset()
    parts: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "parts", tuple(part for entry in self.entries for part in entry if part is not None))


class Comprehension(msgspec.Struct, frozen=True):
    """`all`, `map`, ... after expansion, and the form that `optMap` takes (a loop over nothing)."""

    offset: int
    variable: str
    range: Tree
    accumulator: str
    start: Tree
    condition: Tree
    step: Tree
    result: Tree
    parts: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "parts", (self.range, self.start, self.condition, self.step, self.result))


Tree: TypeAlias = Const | Name | Select | Call | Listing | Mapped | Comprehension


def begin(tree: Tree) -> int:
    """Where the tree begins: an operator stands behind its first operand."""
    offsets = [tree.offset]
    match tree:
        case Call(function=function) if function.startswith("_") or tree.target is not None:
            offsets += [begin(each) for each in tree.parts[:1]]
        case Select() as select:
            offsets.append(begin(select.operand))
        case Name() | Const() | Listing():
            pass
    return min(offsets)


_Fields: TypeAlias = list[tuple[int, Any]]  # numbers and contents, those of messages as fields again


class _TreeReader:
    """Reads the fields of cel.expr.Expr. `offsets`: where the node with a number begins. Recursion is bounded: the
    parser refuses nesting deeper than 32."""

    def __init__(self, offsets: Mapping[int, int]) -> None:
        self._offsets = offsets

    def tree(self, fields: _Fields) -> Tree:
        parts = dict(fields)
        offset = self._offsets.get(parts.get(2, 0), 0)
        for number, read in _READERS:
            if number in parts:
                return read(self, offset, parts[number])
        return Const(offset, None)

    def _parse_constant(self, offset: int, fields: _Fields) -> Tree:
        for number, value in fields:
            match number:
                case 1:
                    return Const(offset, None)
                case 2:
                    return Const(offset, bool(value))
                case 3:
                    return Const(offset, value - (1 << 64) if value >= 1 << 63 else value)
                case 4:
                    return Const(offset, value, unsigned=True)
                case 5:
                    return Const(offset, _double(value))
                case 6:
                    return Const(offset, value.decode())
                case _:
                    return Const(offset, value)
        return Const(offset, None)

    def _name(self, offset: int, fields: _Fields) -> Tree:
        return Name(offset, dict(fields).get(1, b"").decode())

    def _select(self, offset: int, fields: _Fields) -> Tree:
        parts = dict(fields)
        return Select(offset, self.tree(parts[1]), parts[2].decode(), bool(parts.get(3, 0)))

    def _call(self, offset: int, fields: _Fields) -> Tree:
        target, function, arguments = None, "", []
        for number, value in fields:
            if number == 1:
                target = self.tree(value)
            elif number == 2:
                function = value.decode()
            elif number == 3:
                arguments.append(self.tree(value))
        return Call(offset, function, target, tuple(arguments))

    def _list(self, offset: int, fields: _Fields) -> Tree:
        elements = tuple(self.tree(value) for number, value in fields if number == 1)
        optional = frozenset(at for number, value in fields if number == 2 for at in protobuf.varints(value))
        return Listing(offset, elements, optional)

    def _struct(self, offset: int, fields: _Fields) -> Tree:
        type_name, entries, optional = "", [], []
        for number, value in fields:
            if number == 1:
                type_name = value.decode()
            elif number == 2:
                parts = dict(value)
                if parts.get(5):
                    optional.append(len(entries))
                entries.append((self.tree(parts[3]) if 3 in parts else None, self.tree(parts[4])))
        return Mapped(offset, type_name, tuple(entries), frozenset(optional))

    def _parse_comprehension(self, offset: int, fields: _Fields) -> Tree:
        parts = dict(fields)
        range_, start, condition, step, result = (self.tree(parts[n]) for n in (2, 4, 5, 6, 7))
        return Comprehension(offset, parts[1].decode(), range_, parts[3].decode(), start, condition, step, result)


_READERS: Final[tuple[tuple[int, Callable[[_TreeReader, int, _Fields], Tree]], ...]] = (
    (4, _TreeReader._name), (3, _TreeReader._parse_constant), (5, _TreeReader._select), (6, _TreeReader._call),
    (7, _TreeReader._list), (8, _TreeReader._struct), (9, _TreeReader._parse_comprehension),
)  # fmt: skip
_EXPRESSION: Final[dict[int, protobuf.Messages]] = {}
_EXPRESSION.update({
    3: {}, 4: {}, 5: {1: _EXPRESSION}, 6: {1: _EXPRESSION, 3: _EXPRESSION}, 7: {1: _EXPRESSION},
    8: {2: {3: _EXPRESSION, 4: _EXPRESSION}}, 9: dict.fromkeys((2, 4, 5, 6, 7), _EXPRESSION),
})  # fmt: skip
_SERIALIZED: Final[protobuf.Messages] = {2: {2: _EXPRESSION, 3: {4: {}}}}


def _double(data: bytes) -> float:
    return struct.unpack("<d", data)[0]


def read_tree(serialized: bytes) -> Tree:
    """The tree in a serialized expression. Raises RecursionError for one that is nested beyond reason."""
    parsed = dict(dict(protobuf.nested_fields(serialized, _SERIALIZED))[2])
    entries = (dict(content) for number, content in parsed.get(3, ()) if number == 4)
    return _TreeReader({entry.get(1, 0): entry.get(2, 0) for entry in entries}).tree(parsed[2])


def is_empty(tree: Tree) -> bool:
    """Whether `tree` is the literal `[]`."""
    return isinstance(tree, Listing) and not tree.elements


def rebuilt(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """`tree` with `change` made to each of its nodes, parts first."""
    match tree:
        case Select():
            tree = replace(tree, operand=rebuilt(tree.operand, change))
        case Call():
            target = None if tree.target is None else rebuilt(tree.target, change)
            tree = replace(tree, target=target, arguments=tuple(rebuilt(each, change) for each in tree.arguments))
        case Listing():
            tree = replace(tree, elements=tuple(rebuilt(each, change) for each in tree.elements))
        case Mapped():
            entries = (
                (None if key is None else rebuilt(key, change), rebuilt(each, change)) for key, each in tree.entries
            )
            tree = replace(tree, entries=tuple(entries))
        case Comprehension():
            range_, start, condition, step, result = (rebuilt(part, change) for part in tree.parts)
            tree = replace(tree, range=range_, start=start, condition=condition, step=step, result=result)
        case _:
            pass
    return change(tree)


def walk(tree: Tree) -> Iterator[Tree]:
    """`tree` and everything in it, parents first."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.parts))


def write(tree: Tree) -> str | None:
    """The source of a tree without names and loops; None for any other."""
    if isinstance(tree, Comprehension):
        return None
    parts = [write(part) for part in tree.parts]
    texts = [part for part in parts if part is not None]
    if len(texts) < len(parts):
        return None
    match tree:
        case Const(value=None | bool() | int() | float() | str() as value):
            return values.dumps(value).decode() + "u" * tree.unsigned
        case Listing(optional=optional) if not optional:
            return f"[{', '.join(texts)}]"
        case Mapped(type_name="", optional=optional) if not optional:
            pairs = zip(texts[::2], texts[1::2], strict=True)
            return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        case Select():
            member = f"{texts[0]}.{tree.name}"
            return f"has({member})" if tree.test else member
        case Call(function=function) if function.startswith(("_", "-", "!", "@")):
            return _write_operator(function, texts)
        case Call(function=function) if function.isidentifier():
            first, arguments = (f"{texts[0]}.", texts[1:]) if tree.target is not None else ("", texts)
            return f"{first}{function}({', '.join(arguments)})"
        case _:
            return None


def _write_operator(function: str, texts: list[str]) -> str | None:
    match texts:
        case [operand] if function in ("!_", "-_"):
            return f"({function[0]}{operand})"
        case [left, right] if function in ("_[_]", "@in"):
            return f"{left}[{right}]" if function == "_[_]" else f"({left} in {right})"
        case [left, right] if function[0] == function[-1] == "_" and "?" not in function:
            return f"({left} {function.strip('_')} {right})"
        case [condition, left, right] if function == "_?_:_":
            return f"({condition} ? {left} : {right})"
        case _:
            return None
