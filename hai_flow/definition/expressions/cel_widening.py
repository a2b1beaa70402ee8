"""Integer literals beside a double, which CEL would refuse (`< 100` becomes `< 100.0`), found by the types around them;
loops whose range may be a map; and calls of `join` over more than texts."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Final

from hai_flow.definition.expressions.ast import (
    Call,
    Comprehension,
    Const,
    Listing,
    Mapped,
    Name,
    Select,
    Tree,
    is_empty,
)
from hai_flow.definition.expressions.cel_macros import SORTED
from hai_flow.definition.expressions.cel_values import Kind

_ARITHMETIC: Final = frozenset(("_+_", "_-_", "_*_", "_/_"))
_TYPED: Final = frozenset(("int", "double", "string", "timestamp"))
_COMPARISON: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"))
_JOINED: Final = frozenset(
    ("dyn", "list", "list:dyn", "list:other", "list:int", "list:double", "list:bool")
)  # kinds of lists that may hold numbers or booleans
_RETURNS: Final = {
    "double": "double", "int": "int", "size": "int", "math.ceil": "double", "math.floor": "double",
    "split": "list:string", "sum": "double", "join": "string", "string": "string",
}  # fmt: skip


class Widening:
    """Finds the integer literals that stand beside a double, from the types of the paths around them."""

    def __init__(self, kinds: Mapping[int, Kind], source: str, keyed: Container[int]) -> None:
        self.kinds = kinds  # id(node of a chain) -> kind
        self.keyed = keyed  # nodes of which a loop gets the keys as they are bound
        self.source = source
        self.ends: set[int] = set()  # offsets just behind the literals to widen
        self.loops: set[int] = set()  # offsets of loops whose range may be a map
        self.may_mix = False  # whether arithmetic has operands whose types only a run shows
        self.joins: set[int] = set()  # offsets of calls of `join` whose list may hold numbers or booleans

    def type_of(self, tree: Tree, bound: Mapping[str, Kind]) -> Kind:
        """The kind of `tree` ("other" where it does not matter), widening literals inside on the way."""
        if id(tree) in self.kinds:
            return self.kinds[id(tree)]
        match tree:
            case Const():
                return _derive_constant_kind(tree)
            case Name():
                return bound.get(tree.name, "other")
            case Select():
                return "bool" if tree.test else self._derive_member_kind(tree.operand, tree.name, bound)
            case Listing():
                return f"list:{self._derive_common_kind(tree.elements, bound)}"
            case Mapped():
                for key, _ in tree.entries:
                    if key is not None:
                        self.type_of(key, bound)
                return f"map:{self._derive_common_kind([value for _, value in tree.entries], bound)}"
            case Call():
                return self._call(tree, bound)
            case Comprehension():
                return self._loop(tree, bound)
            case _:
                for child in tree.parts:
                    self.type_of(child, bound)
                return "map"

    def _derive_common_kind(self, values: Sequence[Tree], bound: Mapping[str, Kind]) -> Kind:
        """The kind of all values of a literal. Whole numbers beside others become doubles, as all numbers of dyn data
        are."""
        kinds = {self.type_of(value, bound) for value in values}
        if len(kinds) <= 1:
            return next(iter(kinds), "dyn")
        self._convert_literal(values)
        numbers = {"double" if _is_integer(value) else self.type_of(value, bound) for value in values}
        return numbers.pop() if len(numbers) == 1 else "dyn"

    def _derive_member_kind(self, operand: Tree, field: str, bound: Mapping[str, Kind]) -> Kind:
        """The kind of a field: of a map that is written there that of its value."""
        kind = self.type_of(operand, bound)
        if isinstance(operand, Mapped) and kind == "map:dyn":
            literals = [value for key, value in operand.entries if isinstance(key, Const) and key.value == field]
            if literals and not _is_integer(literals[-1]):
                return self.type_of(literals[-1], bound)
        return _element(kind)

    def _loop(self, loop: Comprehension, bound: Mapping[str, Kind]) -> Kind:
        over = self.type_of(loop.range, bound)
        if not over.startswith("list:") and id(loop.range) not in self.keyed and not is_empty(loop.range):
            self.loops.add(loop.offset)
        element = _element(over) if over.startswith("list:") else "dyn" if over == "dyn" else "other"
        inner = {**bound, loop.variable: element, loop.accumulator: "other"}
        start = self.type_of(loop.start, bound)
        if loop.variable.startswith("#"):  # optMap: the variable is the accumulator, bound to an optional's value
            inner[loop.accumulator] = start
        for part in (loop.condition, loop.step):
            self.type_of(part, inner)
        kind = self._derive_step_kind(loop.step, loop.accumulator, inner) if start.startswith("list") else None
        if kind is not None:
            return kind
        result = self.type_of(loop.result, inner)
        return result if result != "other" else start if start.startswith("list") else "other"

    def _derive_step_kind(self, step: Tree, accumulator: str, inner: Mapping[str, Kind]) -> Kind | None:
        """The kind of the list that a `map` or a `filter` makes, item by item."""
        if isinstance(step, Call) and step.function == "_?_:_":
            step = step.parts[1]
        if not isinstance(step, Call) or step.function != "_+_" or len(step.parts) != 2:
            return None
        before, added = step.parts
        if not (isinstance(before, Name) and before.name == accumulator and isinstance(added, Listing)):
            return None
        return self.type_of(added, inner)

    def _call(self, call: Call, bound: Mapping[str, Kind]) -> Kind:
        kinds = [self.type_of(operand, bound) for operand in call.parts]
        if call.function == "join" and (kinds[0] in _JOINED or _is_sorted(call.parts[0])):
            self.joins.add(call.offset)
        self.may_mix |= call.function in (*_ARITHMETIC, "_%_") and not _TYPED.issuperset(kinds)
        if call.function in _ARITHMETIC:
            return self._convert_arithmetic(call, kinds)
        if call.function == "_%_":
            return "double" if {"double", "dyn"} & set(kinds) else "int"
        if call.function in _COMPARISON:
            if "double" in kinds:
                self._convert_literal(call.parts)
            return "bool"
        if call.function == "_?_:_":
            if "double" in kinds[1:]:
                self._convert_literal(call.parts[1:])
                return "double"
            return kinds[1] if kinds[1] == kinds[2] else "dyn" if "dyn" in kinds[1:] else "other"
        if call.function == "-_":
            return kinds[0]
        if call.function in ("value", "orValue"):
            return _element(kinds[0]) if kinds[0].startswith("list:") else "dyn"
        if call.function == "_[_]":
            if isinstance(call.parts[0], Mapped) and isinstance(call.parts[-1], Const):
                return self._derive_member_kind(call.parts[0], str(call.parts[-1].value), bound)
            return _element(kinds[0])
        if call.function in ("filter", "reverse"):
            return kinds[0]
        if call.function == SORTED and isinstance(call.parts[0], Comprehension):
            return self.type_of(call.parts[0].range, bound)
        return _RETURNS.get(call.function, "other")

    def _convert_arithmetic(self, call: Call, kinds: list[Kind]) -> Kind:
        """Numbers in dyn data are always bound as doubles, so a literal beside them is widened as well."""
        if "double" in kinds:
            self._convert_literal(call.parts)
            return "double"
        if "dyn" in kinds and any(_is_integer(operand) for operand in call.parts):
            self._convert_literal(call.parts)
            return "double"
        return kinds[0] if kinds and kinds[0] == kinds[-1] else "dyn" if "dyn" in kinds else "other"

    def _convert_literal(self, operands: Sequence[Tree]) -> None:
        for operand in operands:
            if _is_integer(operand):
                assert isinstance(operand, Const)
                match = re.compile(r"-?\s*[0-9]+(?![0-9xXuU.eE])").match(self.source, operand.offset)
                if match:  # hexadecimal literals stay integers
                    self.ends.add(match.end())


def _is_sorted(tree: Tree) -> bool:
    return isinstance(tree, Call) and tree.function == SORTED


def _element(kind: Kind) -> Kind:
    """The kind of the elements of a list, or of the values of a map."""
    container, _, inside = kind.partition(":")
    return inside if inside and container in ("list", "map") else "dyn"


def _derive_constant_kind(constant: Const) -> Kind:
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
