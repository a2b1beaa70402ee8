"""References inside of a JSON Schema, followed to what they name. Pure."""

from __future__ import annotations

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
