"""RFC 6902 patches on shared state: applied by copying only the path that changes.

Given patches (a `set` in list form) are validated and applied by this too, so that the log, the fold and every client
agree on one meaning. Operations: add, remove, replace, move, copy, test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_flow.primitives.json_pointers import NotAPointer, parse_pointer, pointer_of, read_index
from hai_flow.values import Json

OPERATIONS_MAX = 256


class PatchError(ValueError):
    """A patch that does not apply. The message names the operation (from 0) and the place."""


def apply_patch(document: Json, operations: Iterable[Mapping[str, Json]]) -> Json:
    """`document` after all `operations`, or `PatchError` and nothing changed. The given document is never modified."""
    for index, operation in enumerate(operations):
        if index >= OPERATIONS_MAX:
            raise PatchError(f"a patch has at most {OPERATIONS_MAX} operations")
        try:
            document = _apply(document, operation)
        except (PatchError, NotAPointer) as error:
            raise PatchError(f"operation {index}: {error}") from None
    return document


def _apply(document: Json, operation: Mapping[str, Json]) -> Json:
    op, path = operation.get("op"), parse_pointer(operation.get("path", None))  # type: ignore[arg-type]
    if op in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"{op} needs a value")
    if op == "add":
        return _put(document, path, operation["value"], insert=True)
    if op == "replace":
        _get(document, path)
        return _put(document, path, operation["value"], insert=False)
    if op == "remove":
        return _remove(document, path)
    if op == "test":
        if not is_same_json(_get(document, path), operation["value"]):
            raise PatchError(f"test failed at {operation['path'] or 'the root'}")
        return document
    if op in ("move", "copy"):
        source = parse_pointer(operation.get("from", None))  # type: ignore[arg-type]
        value = _get(document, source)
        if op == "move":
            if path[: len(source)] == source and path != source:
                raise PatchError("a value can't be moved into itself")
            document = _remove(document, source)
        return _put(document, path, value, insert=True)
    raise PatchError(f"expected op add, remove, replace, move, copy or test, found {op!r}")


def is_same_json(left: Json, right: Json) -> bool:
    """Whether two JSON values are the same: true is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same_json, left, right))
    return left == right


def _index(part: str, length: int, *, insert: bool) -> int:
    if part == "-" and insert:
        return length
    index = read_index(part)
    if index is None:
        raise PatchError(f"expected a list index, found {part!r:.100}")
    if index > (length if insert else length - 1):
        raise PatchError(f"index {index} is beyond the list's {length} items")
    return index


def _get(document: Json, path: tuple[str, ...]) -> Json:
    for part in path:
        if isinstance(document, dict):
            if part not in document:
                raise PatchError(f"there is no {part!r}")
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document), insert=False)]
        else:
            raise PatchError(f"{part!r} lies inside a value that is neither an object nor a list")
    return document


def _put(document: Json, path: tuple[str, ...], value: Json, *, insert: bool) -> Json:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(document, dict):
        if rest and part not in document:
            raise PatchError(f"there is no {part!r}: a parent must exist")
        return {**document, part: _put(document.get(part), rest, value, insert=insert)}
    if isinstance(document, list):
        if rest or not insert:
            index = _index(part, len(document), insert=False)
            return [*document[:index], _put(document[index], rest, value, insert=insert), *document[index + 1 :]]
        index = _index(part, len(document), insert=True)
        return [*document[:index], value, *document[index:]]
    raise PatchError(f"{part!r} lies inside a value that is neither an object nor a list")


def _remove(document: Json, path: tuple[str, ...]) -> Json:
    if not path:
        raise PatchError("the whole document can't be removed")
    part, rest = path[0], path[1:]
    if isinstance(document, dict):
        if part not in document:
            raise PatchError(f"there is no {part!r}")
        if rest:
            return {**document, part: _remove(document[part], rest)}
        return {key: value for key, value in document.items() if key != part}
    if isinstance(document, list):
        index = _index(part, len(document), insert=False)
        if rest:
            return [*document[:index], _remove(document[index], rest), *document[index + 1 :]]
        return [*document[:index], *document[index + 1 :]]
    raise PatchError(f"{part!r} lies inside a value that is neither an object nor a list")


def difference(before: Json, after: Json) -> list[dict[str, Json]]:
    """A patch that makes `after` of `before`: of objects member by member, of lists of one length item by item. One
    that would have more operations than a patch may replaces all of it."""
    operations: list[dict[str, Json]] = []
    _differ(before, after, "", operations)
    if len(operations) > OPERATIONS_MAX:
        return [{"op": "replace", "path": "", "value": after}]
    return operations


def _differ(before: Json, after: Json, at: str, operations: list[dict[str, Json]]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before:
            if name not in after:
                operations.append({"op": "remove", "path": at + pointer_of(name)})
        for name, value in after.items():
            if name in before:
                _differ(before[name], value, at + pointer_of(name), operations)
            else:
                operations.append({"op": "add", "path": at + pointer_of(name), "value": value})
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for index, value in enumerate(before):
            _differ(value, after[index], at + pointer_of(index), operations)
        operations += [{"op": "add", "path": at + "/-", "value": value} for value in after[len(before) :]]
    elif not is_same_json(before, after) or type(before) is not type(after):
        operations.append({"op": "replace", "path": at, "value": after})
