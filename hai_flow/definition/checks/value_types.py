"""The types of the values that expressions give, as JSON Schemas, as far as they are certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Listing, Name, Tree
from hai_flow.definition.expressions.ast_paths import Chain, parse_static_path
from hai_flow.definition.expressions.cel_macros import SORTED
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import Look, look_inside
from hai_flow.definition.schemas.schema_references import resolve
from hai_flow.values import Json

_TEXT: Final[Json] = {"type": "string"}
_NUMBER: Final[Json] = {"type": "number"}
_TRUTH: Final[Json] = {"type": "boolean"}
_CONSTANTS: Final[dict[type, Json]] = {str: _TEXT, bool: _TRUTH, int: {"type": "integer"}, float: _NUMBER}
_GIVEN: Final[dict[str, Json]] = {
    **dict.fromkeys(("string", "join", "lowerAscii", "upperAscii", "format_time", "format"), _TEXT),
    **dict.fromkeys(("trim", "charAt", "substring", "replace"), _TEXT),
    **dict.fromkeys(("size", "int", "double", "sum", "indexOf", "lastIndexOf"), _NUMBER),
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "!_"), _TRUTH),
    **dict.fromkeys(("startsWith", "endsWith", "contains", "matches"), _TRUTH),
    "split": {"type": "array", "items": _TEXT},
}


class ValueTypes:
    """Derives the types of parts of one expression, at a place that has `names`."""

    def __init__(self, chains: Mapping[int, Chain], names: Names) -> None:
        self.chains = chains  # by the id of their node
        self.names = names

    def look(self, tree: Tree, items: Mapping[str, Look]) -> Look:
        """The type of a part; `items` are those of the variables of the loops around it."""
        chain = self.chains.get(id(tree))
        if chain is not None:
            look = self.names.types.look_to_judge(chain.path)
            return Look({}) if look.optional else look
        path = parse_static_path(tree)
        if path is not None and path[0].name in items:
            return look_inside(items[path[0].name], (path[0].name, *path[1]))
        match tree:
            case Const(value=value):
                return Look(_CONSTANTS.get(type(value), {}))
            case Listing(elements=elements):
                return self._find_list([self.look(each, items) for each in elements])
            case Comprehension() if is_filter(tree):
                return self.look(tree.range, items)
            case Comprehension() if (element := find_mapped(tree)) is not None:
                return self._find_list([self.look(element, self.with_item(tree, items))])
            case Call(function=function, target=Comprehension() as pairs) if function == SORTED:
                return self.look(pairs.range, items)
            case Call(function="_?_:_", operands=(_, one, other)) | Call(function="_+_", operands=(one, other)):
                return self._find_common([self.look(one, items), self.look(other, items)])
            case Call(function="_[_]", operands=(of, _)):
                return find_element(self.look(of, items))
            case Call(function=function):
                return Look(_GIVEN.get(function, {}))
            case _:
                return Look({})

    def with_item(self, loop: Comprehension, items: Mapping[str, Look]) -> dict[str, Look]:
        """The types of variables inside of a loop."""
        return {**items, loop.variable: find_element(self.look(loop.range, items))}

    def _find_list(self, elements: list[Look]) -> Look:
        common = self._find_common(elements)
        return Look({"type": "array", "items": common.schema} if common.schema else {"type": "array"}, root=common.root)

    def _find_common(self, looks: list[Look]) -> Look:
        return looks[0] if looks and all(each.schema == looks[0].schema for each in looks) else Look({})


def find_element(over: Look) -> Look:
    """The type of the elements of a list; that of the fields of a map is not known."""
    schema = over.schema if isinstance(over.schema, Mapping) else {}
    items = schema.get("items") if schema.get("type") == "array" else None
    return Look(resolve(items, over.root), root=over.root) if isinstance(items, Mapping) else Look({})


def find_mapped(loop: Comprehension) -> Tree | None:
    """What `map` makes of each item, if the loop is one without a condition."""
    match loop.step:
        case Call(function="_+_", arguments=(_, Listing(elements=(element,)))):
            return element
        case _:
            return None


def is_filter(loop: Comprehension) -> bool:
    """Whether the loop gives some of the items of its range: `filter`, but no `map`."""
    match loop.step:
        case Call(
            function="_?_:_",
            arguments=(_, Call(function="_+_", arguments=(_, Listing(elements=(Name() as kept,)))), _),
        ):
            return kept.name == loop.variable
        case _:
            return False
