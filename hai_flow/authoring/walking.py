"""A document walked by the table of keys: the type of each value, without compiling anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hai_flow.definition.yaml.document import Path
from hai_flow.definition.yaml.keys import Type
from hai_flow.definition.yaml.language import SHAPES, VERBS
from hai_flow.values import Json

_STEP_TYPES = {
    **{verb.name: verb.type for verb in VERBS.values()},
    **{key.name: key.type for key in SHAPES["step"].keys},
}
_TYPES = {name: {key.name: key.type for key in shape.keys} for name, shape in SHAPES.items()}


def expressions(document: Json) -> Iterator[tuple[Path, str]]:
    """Every bare expression (`if when until while match expect`) that is text, with its path."""
    for path, value, type_ in _walk(document, Type("shape", "", shape="document"), ()):
        if type_.kind == "cel" and isinstance(value, str):
            yield path, value


def mappings_with_order(document: Json) -> Iterator[tuple[Path, bool]]:
    """The path of every mapping whose keys have an order of their own; True for a step, False for the document."""
    if isinstance(document, Mapping):
        yield (), False
    for path, value, type_ in _walk(document, Type("shape", "", shape="document"), ()):
        if type_.kind == "steps" and isinstance(value, list):
            for index, step in enumerate(value):
                if isinstance(step, Mapping):
                    yield (*path, index), True


def _walk(value: Json, type_: Type, path: Path) -> Iterator[tuple[Path, Json, Type]]:
    """Every value whose type the table knows, from the outside in. Values of another shape are left out."""
    yield path, value, type_
    match type_.kind, value:
        case "shape", Mapping():
            yield from _walk_mapping(value, _TYPES[type_.shape], path)
        case "steps", list():
            for index, step in enumerate(value):
                if isinstance(step, Mapping):
                    yield from _walk_mapping(step, _STEP_TYPES, (*path, index))
        case "list", list():
            for index, item in enumerate(value):
                yield from _walk(item, type_.parts[0], (*path, index))
        case "map", Mapping():
            for key, item in value.items():
                yield from _walk(item, type_.parts[0], (*path, key))
        case "either", _:
            for part in type_.parts:
                if _admits(part, value):
                    yield from _walk(value, part, path)
        case _:
            pass


def _walk_mapping(
    value: Mapping[str, Json], types: Mapping[str, Type], path: Path
) -> Iterator[tuple[Path, Json, Type]]:
    for key, item in value.items():
        if key in types:
            yield from _walk(item, types[key], (*path, key))


def _admits(type_: Type, value: Json) -> bool:
    if isinstance(value, Mapping):
        return type_.kind in ("shape", "map")
    if isinstance(value, list):
        return type_.kind in ("list", "steps")
    return False
