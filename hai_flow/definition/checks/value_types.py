"""The types of the values that expressions give, as JSON Schemas, as far as they are certain."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

import msgspec

from hai_flow.definition.checks.condition_facts import collect_guards, is_filter
from hai_flow.definition.expressions.ast import Call, Comprehension, Const, Listing, Select, Tree
from hai_flow.definition.expressions.ast_paths import Chain, Segment, parse_static_path
from hai_flow.definition.expressions.cel_macros import SORTED
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.names.known_types import FILTERED, GIVEN, NULL
from hai_flow.definition.schemas.schema_paths import Look, list_alternatives, look_inside, resolve
from hai_flow.values import Json

_TEXT: Final[dict[str, Json]] = {"type": "string"}
_NUMBER: Final[dict[str, Json]] = {"type": "number"}
_WHOLE: Final[dict[str, Json]] = {"type": "integer"}
_TRUTH: Final[dict[str, Json]] = {"type": "boolean"}
_CONSTANTS: Final[dict[type, dict[str, Json]]] = {
    str: _TEXT, bool: _TRUTH, int: _WHOLE, float: _NUMBER, type(None): NULL,
}  # fmt: skip
_CEL: Final = "x-cel"  # of a value that JSON has no type for: its type in an expression
_TIMESTAMP: Final[dict[str, Json]] = {_CEL: "timestamp"}
_DURATION: Final[dict[str, Json]] = {_CEL: "duration"}
_ALTERNATIVES_MAX: Final = 20
_GIVEN: Final[dict[str, Json]] = {
    **dict.fromkeys(("string", "join", "lowerAscii", "upperAscii", "format_time", "format"), _TEXT),
    **dict.fromkeys(("trim", "charAt", "substring", "replace"), _TEXT),
    **dict.fromkeys(("size", "int", "indexOf", "lastIndexOf"), _WHOLE),
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "!_"), _TRUTH),
    **dict.fromkeys(("startsWith", "endsWith", "contains", "matches", "_&&_", "_||_", "hasValue"), _TRUTH),
    "split": {"type": "array", "items": _TEXT},
    "timestamp": _TIMESTAMP, "duration": _DURATION,
}  # fmt: skip


class ValueTypes(msgspec.Struct, frozen=True, eq=False):
    """Derives the types of parts of one expression, at a place that has `names`."""

    chains: Mapping[int, Chain]  # by the id of their node
    names: Names

    def look(self, tree: Tree, items: Mapping[str, Look]) -> Look:
        """The type of a part; `items` are those of the variables of the loops around it."""
        chain = self.chains.get(id(tree))
        if chain is not None:
            look = self.names.types.look_to_judge(chain.path)
            return Look({}) if look.optional else Look(_TIMESTAMP) if chain.path == ("now",) else look
        path = parse_static_path(tree)
        if path is not None and path[0].name in items:
            return look_inside(items[path[0].name], (path[0].name, *path[1]))
        match tree:
            case Select(test=True) | Comprehension(step=Call(function="_||_" | "_&&_")):  # `has`, `exists`, `all`
                return Look(_TRUTH)
            case Const(value=value):
                kind = _CONSTANTS.get(type(value), {})
                return Look({**kind, "const": value} if kind and value is not None else kind)
            case Listing(elements=elements):
                return self._find_list([self.look(each, items) for each in elements])
            case Comprehension(step=Call(arguments=(condition, *_))) if is_filter(tree):
                over = self.look(tree.range, items)
                is_list = isinstance(over.schema, Mapping) and over.schema.get("type") == "array"
                guards = collect_guards(condition, self.chains, True)
                schema = _mark_given(over.schema, {path[1:] for path in guards if path[0] == tree.variable})
                return Look({**schema, FILTERED: True}, root=over.root) if is_list else over
            case Comprehension() if (element := find_mapped(tree)) is not None:
                return self._find_list([self.look(element, self.with_item(tree, items))])
            case Call(function=function, target=Comprehension() as pairs) if function == SORTED:
                return self.look(pairs.range, items)
            case Call(function="_?_:_", parts=(_, one, other)) | Call(function="orValue", parts=(one, other)):
                return find_common([self.look(one, items), self.look(other, items)])
            case Call(function="_?._", parts=(of, Const(value=str() as name))):
                return self._find_member(of, name, items)
            case Call(function="_[?_]", parts=(of, _)):
                return find_element(self.look(of, items))
            case Call(function="_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "-_" | "double" | "sum", parts=operands):
                return self._find_computed(tree, [self.look(each, items) for each in operands])
            case Call(function="_[_]", parts=(of, _)):
                return find_element(self.look(of, items))
            case Call(function=function):
                return Look(_GIVEN.get(function, {}))
            case _:
                return Look({})

    def with_item(self, loop: Comprehension, items: Mapping[str, Look]) -> dict[str, Look]:
        """The types of variables inside of a loop."""
        return {**items, loop.variable: find_element(self.look(loop.range, items))}

    def _find_list(self, elements: list[Look]) -> Look:
        common = find_common([each if each.root else Look(drop_constant(each.schema)) for each in elements])
        return Look({"type": "array", "items": common.schema} if common.schema else {"type": "array"}, root=common.root)

    def _find_member(self, of: Tree, name: str, items: Mapping[str, Look]) -> Look:
        """The type of an optional property where it is there."""
        chain = self.chains.get(id(of))
        if chain is not None:
            look = self.names.types.look_to_judge((*chain.path, name))
            return Look({}) if look.wrong or look.barren else Look(look.schema, root=look.root)
        return Look(look_inside(self.look(of, items), ("", name)).schema)

    def _find_computed(self, call: Call, looks: list[Look]) -> Look:
        """The type of the result of an operator for operands of these types."""
        function = call.function
        if function == "sum":
            looks = [find_element(each) for each in looks]
        if _TIMESTAMP in (schemas := [each.schema for each in looks]) or _DURATION in schemas:
            return Look(_find_time(function, schemas))
        types = {_find_word(each.schema) for each in looks}
        if function == "_+_" and types in ({"string"}, {"array"}):
            return Look(_TEXT) if types == {"string"} else find_common(looks)
        if not types <= {"integer", "number"}:
            return Look(_NUMBER if function in ("sum", "double") else {})
        fraction = function == "_/_" and self._reads_double(call)
        return Look(_WHOLE if types == {"integer"} and not fraction else _NUMBER)

    def _reads_double(self, tree: Tree) -> bool:
        """Whether a whole number in an arithmetic expression is bound as a double, because only an inferred type says
        that it is whole."""
        chain = self.chains.get(id(tree))
        if chain is not None:
            return self.names.types.kind(chain.path) == "dyn"
        operators = ("_+_", "_-_", "_*_", "_/_", "_%_", "-_")
        return isinstance(tree, Call) and tree.function in operators and any(map(self._reads_double, tree.parts))


def _find_time(function: str, operands: list[Json]) -> Json:
    """The type of a sum or a difference of instants and lengths of time; nothing where an operand is another."""
    instants, lengths = operands.count(_TIMESTAMP), operands.count(_DURATION)
    if instants + lengths < 2 or function not in ("_+_", "_-_"):
        return {}
    return _TIMESTAMP if instants == 1 else _DURATION


def write_times(schema: Json) -> Json:
    """The type as it is outside of the expression, where instants and lengths of time are texts."""
    match schema:
        case {"x-cel": "timestamp"}:
            return {**_TEXT, "format": "date-time"}
        case {"x-cel": _}:
            return _TEXT
        case {"items": items}:
            return {**schema, "items": write_times(items)}
        case {"anyOf": list(parts)}:
            return {**schema, "anyOf": [write_times(each) for each in parts]}
    return schema


def find_common(looks: list[Look]) -> Look:
    """The type of a value that has one of these types; nothing where one is unknown, but for null beside it."""
    if not looks:
        return Look({})
    if all(each.schema == looks[0].schema and each.root == looks[0].root for each in looks):
        return looks[0]
    schemas = [each.schema for each in looks]
    if len(looks) > _ALTERNATIVES_MAX or any("$ref" in str(each) for each in schemas):
        return Look({})
    parts = [part for each in schemas for part in list_alternatives(each)]
    if {} in parts:
        return Look({"anyOf": [{}, NULL]} if NULL in parts else {})
    common: dict[str, Json] = {"anyOf": parts}
    types = {_find_word(each) for each in schemas}
    if len(types) == 1 and (word := types.pop()) is not None:
        common = {"type": word, **common}
    elif types == {"integer", "number"}:
        common = {"type": "number", **common}
    return Look(common)


def _mark_given(over: Mapping[str, Json], paths: Set[tuple[Segment, ...]]) -> Mapping[str, Json]:
    """The type of a list in whose items these `paths` are there: the items, or members of theirs, are not null."""
    items = over.get("items")
    if not isinstance(items, Mapping) or not paths:
        return over
    items = {**items, GIVEN: True} if () in paths else items
    properties = items.get("properties")
    if isinstance(properties, Mapping):
        marked = {
            name: {**each, GIVEN: True} if (name,) in paths and isinstance(each, Mapping) else each
            for name, each in properties.items()
        }
        items = {**items, "properties": marked}
    return {**over, "items": items}


def _find_word(schema: Json) -> str | None:
    """The one type of a schema, if it has one."""
    word = schema.get("type") if isinstance(schema, Mapping) else None
    return word if isinstance(word, str) else None


def drop_constant(schema: Json) -> Json:
    """A type without the value of a literal."""
    return {key: each for key, each in schema.items() if key != "const"} if isinstance(schema, Mapping) else schema


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
