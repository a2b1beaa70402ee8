"""Integer literals beside a double, which CEL would refuse (`< 100` becomes `< 100.0`), found by the types around them;
and loops whose range may be a map."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Final

from hai_flow.definition.cel_tree import Call, Comprehension, Const, Listing, Name, Select, Tree, children, is_empty
from hai_flow.definition.cel_values import Kind

_ARITHMETIC: Final = frozenset(("_+_", "_-_", "_*_", "_/_"))
_COMPARISON: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"))
_RETURNS: Final = {
    "double": "double", "int": "int", "size": "int", "math.ceil": "double", "math.floor": "double",
    "split": "list:string", "sum": "double",
}  # fmt: skip


class Widening:
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
