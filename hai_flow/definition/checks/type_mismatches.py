"""Whether what holes give can fit where they stand, by the types that are known of both. Said is only what never fits:
a text for a number, a list for an object; what may fit is left to the moment when the step begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hai_flow.definition.expressions.evaluation import CompiledTemplate
from hai_flow.definition.expressions.expressions import infer_type, list_choices, list_values
from hai_flow.definition.fields import is_literal
from hai_flow.definition.names.holes import find_only_hole
from hai_flow.definition.names.known_names import Names
from hai_flow.definition.schemas.schema_paths import resolve
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.yaml.document import Path
from hai_flow.primitives.json_pointers import find_key, unescape
from hai_flow.values import Json

_DEPTH_MAX: Final = 8
_OF_VALUES: Final[dict[type, str]] = {
    str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
_WORDS: Final = {
    "string": "text", "number": "a number", "boolean": "true or false", "array": "a list", "object": "a mapping",
    "null": "null",
}  # fmt: skip


def misfits(
    value: Json, template: CompiledTemplate | None, schema: Json, root: Json, names: Names, at: Path = ()
) -> Iterator[tuple[Path, str]]:
    """The holes in `value` that never give what `schema` takes: their paths, and a clause that says both. `template`
    is `value` compiled; `root` the schema in which the references of `schema` are."""
    if len(at) > _DEPTH_MAX or is_literal(value):
        return
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping):
        return
    if isinstance(value, str):
        accepted, produced = types_taken(schema, root), _types_given(value, template, names, at)
        if accepted is not None and produced is not None and accepted.isdisjoint(produced):
            yield at, f"expected {spell_types(accepted)}, found {spell_types(produced)}"
        elif "$ref" not in str(schema):
            yield from ((at, fault) for fault in _find_unfit_values(value, schema, names))
        return
    accepted = types_taken(schema, root)
    if accepted is not None and _OF_VALUES[type(value)] not in accepted:
        yield at, f"expected {spell_types(accepted)}, found {spell_types(frozenset((_OF_VALUES[type(value)],)))}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from misfits(item, template, schema.get("items", {}), root, names, (*at, index))
    elif isinstance(value, Mapping) and isinstance(properties := schema.get("properties", {}), Mapping):
        others = schema.get("additionalProperties", {})
        for key, item in value.items():
            yield from misfits(item, template, properties.get(key, others), root, names, (*at, key))


def path_inside(value: Json, pointer: str) -> Path:
    """A JSON Pointer into `value` as a path in the document, as far as it leads."""
    path: list[str | int] = []
    for part in pointer.split("/")[1:]:
        key = find_key(value, unescape(part))
        if key is None:
            break
        value = value[key]  # type: ignore[index]
        path.append(key)
    return tuple(path)


def types_taken(schema: Json, root: Json, depth: int = 0) -> frozenset[str] | None:
    """The JSON types of which a schema takes values (integers are numbers); None: it may be any."""
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
        return None
    if "const" in schema:
        return frozenset((_OF_VALUES[type(schema["const"])],))
    if isinstance(schema.get("enum"), list):
        return frozenset(_OF_VALUES[type(each)] for each in schema["enum"])
    word = schema.get("type")
    if isinstance(word, str):
        return frozenset((_plain(word),))
    if isinstance(word, list):
        return frozenset(_plain(each) for each in word if isinstance(each, str))
    for several in ("anyOf", "oneOf"):
        if isinstance(schema.get(several), list):
            parts = [types_taken(each, root, depth + 1) for each in schema[several]]
            schemas = [each for each in parts if each is not None]
            return frozenset().union(*schemas) if len(schemas) == len(parts) else None
    return None


def doubt_fraction(value: Json, schema: Json, root: Json, names: Names) -> str | None:
    """The doubt about a hole that may give a fraction where `schema` takes whole numbers; None: there is none."""
    schema = resolve(schema, root)
    if not isinstance(value, str) or not isinstance(schema, Mapping) or schema.get("type") != "integer":
        return None
    look = names.find_type(value) or infer_type(value, names)
    if not isinstance(look.schema, Mapping) or look.schema.get("type") != "number" or list_values(value, names):
        return None
    hole = find_only_hole(value)
    source = hole.source.strip() if hole is not None else ""
    return f"this may be a fraction, and a whole number belongs here; write `${{{{ int({source}) }}}}`, or round it"


def _find_unfit_values(text: str, schema: Mapping[str, Json], names: Names) -> Iterator[str]:
    """Why values do not fit which the hole `text` gives for certain: a literal in it, or all values of an enum."""
    compiled_schema = JsonSchema(schema)
    for value in list_values(text, names) if find_only_hole(text) is not None else ():
        for fault in compiled_schema.findings(value)[:1]:
            yield fault["message"]
    choices = list_choices(text, names)
    if choices and all(compiled_schema.findings(each) for each in choices):
        yield compiled_schema.findings(choices[0])[0]["message"]


def _types_given(text: str, template: CompiledTemplate | None, names: Names, at: Path) -> frozenset[str] | None:
    if find_only_hole(text) is None:
        return frozenset(("string",))
    look = names.find_type(text) or infer_type(text, names)
    if look.schema:
        produced = types_taken(look.schema, look.root)
        return produced | {"null"} if produced is not None and look.optional else produced
    word = template.type_at(at) if template is not None else None
    return None if word is None else frozenset((word,))


def _plain(word: str) -> str:
    return "number" if word == "integer" else word


def spell_types(types: frozenset[str]) -> str:
    """JSON types in words: "text or null"."""
    return " or ".join(_WORDS.get(each, each) for each in sorted(types))
