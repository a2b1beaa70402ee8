"""Defaults of a JSON Schema, put where a value has nothing. Pure.

The schemas that a part of a value is held against are taken together, each once, so that a schema which is referred to
often makes no more work than one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hai_flow.definition.schemas.schema_paths import resolve
from hai_flow.definition.schemas.schema_work import Work, count_parts
from hai_flow.values import Json

DEPTH_MAX: Final = 40
STEPS_MAX: Final = 50_000
"""Schemas looked at for one value (for each of its parts those that lead to a default), and parts of defaults."""


class _TooMuch(Exception):
    pass


class Defaults:
    """The defaults of one schema. Only `properties`, `items`, `prefixItems`, `allOf` and local references are followed:
    which branch of `anyOf` or `if` holds may itself depend on a default."""

    def __init__(self, root: Json, work: Work) -> None:
        self._root = root
        self._work = work
        self._leading = work.find_leading_to_default()
        self._largest = _measure_largest_default(root)
        self._together: dict[int, list[Mapping[str, Json]]] = {}
        self._properties: dict[int, list[tuple[str, Mapping[str, Json], int]]] = {}

    def fill(self, value: Json) -> Json:
        """A copy of `value` with defaults; `value` itself where that takes too many steps."""
        try:
            return _Filling(self).fill([self._root], value, 0)
        except _TooMuch:
            return value

    def fault(self, value: Json) -> dict[str, Any] | None:
        """The fault of a value whose defaults take too many steps; None: they don't."""
        nodes, _ = self._work.size(value)
        if nodes * len(self._leading) * self._largest <= STEPS_MAX:
            return None
        try:
            _Filling(self).fill([self._root], value, 0)
        except _TooMuch:
            message = (
                f"too large for its schema: to put in the defaults takes over {STEPS_MAX:,} steps; send fewer values, "
                "or declare fewer defaults inside of lists"
            )
            return {"path": "", "message": message, "code": "value.too_large", "params": []}
        return None

    def together(self, schemas: Iterable[Json]) -> list[Mapping[str, Json]]:
        """The schemas with those of their `allOf` before them, each once, as far as they lead to defaults."""
        unique: dict[int, Mapping[str, Json]] = {}
        for schema in schemas:
            for each in self._parts(resolve(schema, self._root)):
                unique.setdefault(id(each), each)
        return list(unique.values())

    def _parts(self, schema: Json) -> list[Mapping[str, Json]]:
        if not isinstance(schema, Mapping) or id(schema) not in self._leading:
            return []
        parts = self._together.get(id(schema))
        if parts is None:
            order: dict[int, Mapping[str, Json]] = {}
            visited = {id(schema)}
            stack: list[tuple[Mapping[str, Json], list[Json]]] = [(schema, _list_all_of_parts(schema))]
            while stack:
                outer, remaining = stack[-1]
                if not remaining:
                    stack.pop()
                    order[id(outer)] = outer
                    continue
                inner = resolve(remaining.pop(), self._root)
                if isinstance(inner, Mapping) and id(inner) in self._leading and id(inner) not in visited:
                    visited.add(id(inner))
                    stack.append((inner, _list_all_of_parts(inner)))
            parts = self._together[id(schema)] = list(order.values())
        return parts

    def properties(self, schema: Mapping[str, Json]) -> list[tuple[str, Mapping[str, Json], int]]:
        """The properties that lead to a default: name, schema with its reference followed, and how many parts its own
        default has; 0: it has none."""
        cached = self._properties.get(id(schema))
        if cached is None:
            cached = self._properties[id(schema)] = []
            named = schema.get("properties")
            for name, raw in named.items() if isinstance(named, Mapping) else ():
                part = resolve(raw, self._root)
                if isinstance(part, Mapping) and id(part) in self._leading:
                    size = count_parts(part["default"], STEPS_MAX, texts=False)[0] if "default" in part else 0
                    cached.append((name, part, size))
        return cached


def _measure_largest_default(root: Json) -> int:
    """The parts of the largest default in a schema, counted up to what is too much anyway."""
    largest, stack = 1, [root]
    while stack:
        schema = stack.pop()
        if isinstance(schema, Mapping):
            if "default" in schema:
                largest = max(largest, count_parts(schema["default"], STEPS_MAX, texts=False)[0])
            stack.extend(schema.values())
        elif isinstance(schema, list):
            stack.extend(schema)
    return largest


def _list_all_of_parts(schema: Mapping[str, Json]) -> list[Json]:
    parts = schema.get("allOf")
    return list(reversed(parts)) if isinstance(parts, list) else []


class _Filling:
    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults
        self._left = STEPS_MAX

    def _take(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuch

    def fill(self, schemas: Sequence[Json], value: Json, depth: int) -> Json:
        if not isinstance(value, dict | list) or depth > DEPTH_MAX:
            return value
        together = self._defaults.together(schemas)
        self._take(1 + len(together))
        if not together:
            return value
        if isinstance(value, dict):
            return self._fill_object(together, value, depth)
        filled = list(value)
        first = max((len(each["prefixItems"]) for each in together if _has_first(each)), default=0)
        others = [each["items"] for each in together if "items" in each]
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                parts = others
                if index < first:
                    parts = [part for each in together if (part := _find_item_schema(each, index)) is not None]
                filled[index] = self.fill(parts, item, depth + 1)
        return filled

    def _fill_object(self, together: list[Mapping[str, Json]], value: dict[str, Json], depth: int) -> dict[str, Json]:
        filled = dict(value)
        inside: dict[str, list[Json]] = {}
        for schema in together:
            properties = self._defaults.properties(schema)
            self._take(len(properties))
            for name, part, size in properties:
                if name not in filled and size:
                    self._take(size)
                    filled[name] = part["default"]
                if name in filled:
                    inside.setdefault(name, []).append(part)
        for name, parts in inside.items():
            filled[name] = self.fill(parts, filled[name], depth + 1)
        return filled


def _find_item_schema(schema: Mapping[str, Json], index: int) -> Json:
    """The schema of an item of a list; None: it has none."""
    if _has_first(schema) and index < len(schema["prefixItems"]):
        return schema["prefixItems"][index]
    return schema.get("items")


def _has_first(schema: Mapping[str, Json]) -> bool:
    return isinstance(schema.get("prefixItems"), list)
