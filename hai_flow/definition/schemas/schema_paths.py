"""Paths into the values of a JSON Schema: what is at one, and why a part can't be there. References are followed.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hai_flow.definition.expressions.ast_paths import Segment, spell
from hai_flow.definition.names.known_types import FILLED, NULL_INSTEAD, REMEDY
from hai_flow.definition.names.wording import suggestion
from hai_flow.primitives.json_pointers import find_key, unescape
from hai_flow.values import Json


def resolve(schema: Json, root: Json) -> Json:
    """`schema` with local references (`#/$defs/x`) followed; `{}` where there is nothing to follow."""
    for _ in range(16):  # a chain of references that is longer than this is a circle
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        schema = resolve_reference(root, schema["$ref"])
    return {}


def resolve_reference(root: Json, reference: Json) -> Json:
    """What a reference into the schema names; `{}`: nothing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    node = root
    for part in reference[1:].split("/")[1:]:
        key = find_key(node, unescape(part))
        if key is None:
            return {}
        node = node[key]
    return node


def find_part(schema: Mapping[str, Json], part: Segment) -> Json:
    """The schema of a property, or (a number) of an item, of the values of a schema; None: it is not known."""
    if isinstance(part, int):
        return schema.get("items", {})
    properties = schema.get("properties")
    return properties.get(part) if isinstance(properties, Mapping) else None


class Look(msgspec.Struct, frozen=True):
    """A path seen through the schemas."""

    schema: Json
    optional: tuple[int, ...] = ()  # lengths of the beginnings of the path that may be absent
    last_optional: bool = False  # the last property itself may be absent
    wrong: tuple[int, str] | None = None  # (index of the segment, message)
    barren: tuple[int, str] | None = None  # the same of a property that is asked of a list, a text or a number
    root: Json = None  # the schema that references inside `schema` point into
    along: tuple[Json, ...] = ()  # the schema of each beginning of the path, as far as they are known


def look_along(root: Json, rest: Sequence[Segment], depth: int, path: Sequence[Segment]) -> Look:
    """The type at `path`, whose first `depth` segments lead to a value of the schema `root` and which goes on with
    `rest`."""
    schema, last = resolve(root, root), False
    along: list[Json] = [{}] * (depth - 1)
    optional: list[int] = [depth] if rest and isinstance(schema, dict) and NULL_INSTEAD in schema else []
    for length, part in enumerate(rest, depth):
        along.append(schema)
        if not isinstance(schema, dict):
            return Look({}, tuple(optional), root=root, along=tuple(along))
        inner = find_part(schema, part)
        no_object = _explain_no_property(schema, part, path[:length])
        if no_object is not None or (inner is None and isinstance(part, str)):
            unknown = explain_unknown_property(schema, part, path[:length]) if isinstance(part, str) else None
            wrong, barren = ((length, each) if each else None for each in (unknown, no_object))
            return Look({}, tuple(optional), wrong=wrong, barren=barren, root=root, along=tuple(along))
        required = schema.get("required", ())
        schema, last = resolve(inner, root), False
        if isinstance(part, int):
            continue
        has_default = isinstance(schema, Mapping) and ("default" in schema or FILLED in schema)
        last = part not in required and not has_default
        if last:
            optional.append(length + 1)
    return Look(schema, tuple(optional), last, root=root, along=(*along, schema))


def look_inside(item: Look, path: tuple[Segment, ...]) -> Look:
    """The type of `path`, which begins with a variable of the type `item`."""
    schema = item.schema
    if isinstance(schema, Mapping) and isinstance(item.root, Mapping):
        schema = {**{key: item.root[key] for key in ("$defs", "definitions") if key in item.root}, **schema}
    return look_along(schema, path[1:], 1, path)


def explain_unknown_property(schema: Mapping[str, Json], part: str, parent: Sequence[Segment]) -> str | None:
    """Why `part` can't be there, or None where the schema leaves it open."""
    properties = schema.get("properties")
    if properties is None and schema.get("additionalProperties", True) is not False:
        return None
    if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
        return None
    if any(key in schema for key in ("anyOf", "oneOf", "allOf", "if", "dependentSchemas")):
        return None
    names = list(properties or ())
    listed = f" (it has {', '.join(names)})" if 0 < len(names) <= 8 else ""
    dotted = [name for name in names if name.startswith(f"{part}.")]
    meant = f'; a name with a dot is written `{spell(parent)}["{dotted[0]}"]`' if dotted else ""
    if names == ["id", "type", "data", "at"] and not suggestion(part, names, likeness=0.8):
        meant = f"; what the event brings is in its `data`: {spell(parent)}.data.{part}"
    return f"there is no `{part}` in `{spell(parent)}`{meant or suggestion(part, names) or listed}"


_LENGTHS: Final = ("length", "len", "size", "count")
_BARREN: Final = {
    "array": "a list",
    "string": "text",
    "integer": "a number",
    "number": "a number",
    "boolean": "a boolean",
}


def _explain_no_property(schema: Mapping[str, Json], part: Segment, parent: Sequence[Segment]) -> str | None:
    """Why something that is no object has no property, or no item, `part`, or None where it may be one."""
    types = schema.get("type")
    if isinstance(part, int):
        is_text = types == "string" and part >= 0
        return f"`{spell(parent)}` is text and has no items; write {spell(parent)}.charAt({part})" if is_text else None
    if types == "null":
        return f"`{spell(parent)}` is always null and has no `{part}`{schema.get(REMEDY, '')}"
    kinds = [kind for kind in (types if isinstance(types, list) else [types]) if kind != "null"]
    if not kinds or not all(kind in _BARREN for kind in kinds):
        return None
    text = spell(parent)
    remedy = ""
    if part in _LENGTHS and ("array" in kinds or "string" in kinds):
        remedy = f"; write size({text})"
    elif kinds == ["array"]:
        remedy = f"; write {text}.map(x, x.{part}), or {text}[0].{part}"
    return f"`{text}` is {_BARREN[str(kinds[0])]} and has no `{part}`{remedy}"


def list_alternatives(schema: Json) -> list[Json]:
    """The schemas of which a value has one; of most schemas that is the schema alone."""
    parts = schema.get("anyOf") if isinstance(schema, Mapping) else None
    return parts if isinstance(parts, list) else [schema]


def list_properties(look: Look) -> Mapping[str, Json]:
    """The schemas of the properties that are known of it, by their names."""
    properties = look.schema.get("properties") if isinstance(look.schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}
