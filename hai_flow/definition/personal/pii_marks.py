"""Marks: which parts of a value are personal. They begin where a schema says `pii: true` (docs/security.md).

A mark is True (all of the value), False (nothing of it), or a mapping of the marks of its parts: of an object by name
(`EVERY`: every other name), of a list by `ITEM`. Marks hold no False below the top, so an empty one is nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from hai_flow.definition.schemas.schema_paths import resolve
from hai_flow.definition.schemas.schemas import PII
from hai_flow.values import Json

Mark: TypeAlias = "bool | Mapping[str, Mark]"
EVERY: Final = "*"
ITEM: Final = "[]"
MASK: Final = "[personal]"
"""The text in the place of a personal value."""

_DEPTH_MAX: Final = 12  # a mark further down makes everything at this depth personal
_SAME: Final = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
_PARTS: Final = {
    **dict.fromkeys(("items", "prefixItems", "contains", "unevaluatedItems"), ITEM),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), EVERY),
}
_WHOLE: Final = ("propertyNames", "contentSchema")


def join(one: Mark, other: Mark) -> Mark:
    """The mark of everything that either mark covers."""
    if one is True or other is True:
        return True
    if not one or not other:
        return one or other
    parts = ((name, each) for mark in (one, other) if isinstance(mark, Mapping) for name, each in mark.items())
    joined: dict[str, Mark] = {}
    for name, each in parts:
        joined[name] = join(joined.get(name, False), each)
    return joined


def part(mark: Mark, name: str | int) -> Mark:
    """The mark of a part of the value: of a property, or of an item. A value of another shape than its mark, a list for
    an object or an object for a list, is personal as a whole."""
    if not isinstance(mark, Mapping) or not mark:
        return bool(mark)
    if isinstance(name, int):
        return mark.get(ITEM, True)
    return True if mark.keys() == {ITEM} else join(mark.get(name, False), mark.get(EVERY, False))


def mark_at(mark: Mark, path: Sequence[str | int]) -> Mark:
    """The mark of the part at `path` of a value with this mark."""
    for name in path:
        mark = part(mark, name)
    return mark


def under(path: Sequence[str | int], mark: Mark) -> Mark:
    """The mark of a value whose part at `path` has this mark."""
    for name in reversed(path):
        mark = {ITEM if isinstance(name, int) else name: mark} if mark else False
    return mark


def record(**parts: Mark) -> Mark:
    return {name: mark for name, mark in parts.items() if mark}


def covers(declared: Mark, mark: Mark) -> bool:
    """Whether `declared` marks every part that `mark` marks."""
    if not mark or declared is True:
        return True
    if not isinstance(mark, Mapping) or not declared:
        return False
    every = declared.get(EVERY, False)
    return all(
        covers(join(declared.get(name, False), every if name != ITEM else False), inner) for name, inner in mark.items()
    )


def shallow(mark: Mark, depth: int = _DEPTH_MAX) -> Mark:
    """The mark, cut off at a depth: so that marks which grow with each round of a loop end."""
    if not isinstance(mark, Mapping) or not mark:
        return bool(mark)
    return True if depth == 0 else {name: shallow(inner, depth - 1) for name, inner in mark.items()}


def mask_value(value: Json, mark: Mark) -> Json:
    """The value with its personal parts replaced by `MASK`. Where the value has another shape than the mark, all of it
    counts as personal; null is shown."""
    if not mark or value is None:
        return value
    if mark is True:
        return MASK
    if isinstance(value, Mapping) and mark.keys() != {ITEM}:
        names = value if EVERY in mark else [name for name in mark if name in value]
        masked = {name: mask_value(value[name], part(mark, name)) for name in names}
        return masked if names is value else {**value, **masked}
    if isinstance(value, list | tuple) and ITEM in mark:
        return [mask_value(item, mark[ITEM]) for item in value]
    return MASK


def mask_object(value: Json, mark: Mark) -> Json:
    """As `mask_value`, for a value that its readers expect to be an object: if all of an object is personal, its keys
    stay and each value is masked."""
    result = mask_value(value, mark)
    return dict.fromkeys(value, MASK) if result is MASK and isinstance(value, Mapping) else result


def mask_items(value: Sequence[Json], mark: Mark) -> Sequence[Json]:
    """As `mask_value`, for a value that its readers expect to be a list: its length stays."""
    result = mask_value(list(value), mark) if mark else value
    return result if isinstance(result, list | tuple) else [MASK] * len(value)


# --- of schemas -------------------------------------------------------------------------------------------------------


def mark_of_schema(schema: Json) -> Mark:
    """The mark of the values of a schema: of the parts that it marks with `pii: true`. A schema that contains itself in
    so many ways that following them all takes too long is personal as a whole."""
    if not _mentions(schema):
        return False
    return shallow(_Marking(schema).mark_of(schema, ()))


def denies(schema: Json) -> bool:
    """Whether the schema says `pii: false` at its top: its value is not personal although it is made of personal
    values, except for the parts that the schema marks."""
    return isinstance(schema, Mapping) and schema.get(PII) is False


_SCHEMAS_MAX: Final = 20_000  # that are looked at for one mark


class _Marking:
    def __init__(self, root: Json) -> None:
        self._root = root
        self._left = _SCHEMAS_MAX

    def mark_of(self, schema: Json, followed: tuple[str, ...]) -> Mark:
        if not isinstance(schema, Mapping):
            return False
        self._left -= 1
        if schema.get(PII) is True or self._left < 0:
            return True
        marks: dict[str, Mark] = {}
        for name, mark in self._parts(schema, followed):
            if not mark:
                continue
            if name is not None:
                marks[name] = join(marks[name], mark) if name in marks else mark
            elif mark is True:
                return True
            elif isinstance(mark, Mapping):
                for inner, each in mark.items():
                    marks[inner] = join(marks[inner], each) if inner in marks else each
        return marks or False

    def _parts(self, schema: Mapping[str, Json], followed: tuple[str, ...]) -> Iterator[tuple[str | None, Mark]]:
        """The marks of parts of the value by their names, and those of all of it (None)."""
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        if isinstance(reference, str):
            if reference in followed or len(followed) > _DEPTH_MAX or "$dynamicRef" in schema:
                yield None, True  # a schema of itself: no finite mark says how deep
                return
            yield None, self.mark_of(resolve({"$ref": reference}, self._root), (*followed, reference))
        for keyword, inner in schema.items():
            if keyword == "properties" and isinstance(inner, Mapping):
                for name, each in inner.items():
                    yield name, self.mark_of(each, followed)
            elif keyword == "patternProperties" and isinstance(inner, Mapping):
                for each in inner.values():
                    yield EVERY, self.mark_of(each, followed)
            elif keyword in _PARTS:
                for each in inner if isinstance(inner, list) else [inner]:
                    yield _PARTS[keyword], self.mark_of(each, followed)
            elif keyword in _SAME:
                for each in _list_alternatives(keyword, inner):
                    yield None, self.mark_of(each, followed)
            elif keyword in _WHOLE and self.mark_of(inner, followed):
                yield None, True


def _list_alternatives(keyword: str, inner: Json) -> Sequence[Json]:
    if isinstance(inner, list):
        return inner
    return list(inner.values()) if keyword == "dependentSchemas" and isinstance(inner, Mapping) else [inner]


def _mentions(value: Json) -> bool:
    """Whether `pii: true` stands anywhere in a schema."""
    if isinstance(value, Mapping):
        return value.get(PII) is True or any(map(_mentions, value.values()))
    return isinstance(value, list) and any(map(_mentions, value))
