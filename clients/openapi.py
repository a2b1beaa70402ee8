"""The shapes of REST's answers and bodies as TypeScript, from the server's own OpenAPI document."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from typing import Any, Final

from docs.rights_page import application

_HEAD: Final = """\
// Written by `make generate` from the server's OpenAPI document: change api/requests/schemas.py, or clients/openapi.py.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
"""
_WORDS: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def types() -> str:
    """The text of the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        schemas: dict[str, Any] = application().openapi()["components"]["schemas"]
    return "\n".join([_HEAD, *(_declared(name, schemas[name]) for name in sorted(schemas) if _NAME.fullmatch(name))])


def _declared(name: str, schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        return f"export type {name} = {_type(schema)};\n"
    return f"export interface {name} {_object(schema, '')}\n"


def _object(schema: Mapping[str, Any], indent: str) -> str:
    required = set(schema.get("required", ()))
    lines = [
        f"{indent}  {key if _NAME.fullmatch(key) else json.dumps(key)}{'' if key in required else '?'}: "
        f"{_type(each, indent + '  ')};\n"
        for key, each in schema["properties"].items()
    ]
    return "{\n" + "".join(lines) + indent + "}"


def _type(schema: Mapping[str, Any], indent: str = "") -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(_type(each, indent) for each in schema[key]))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(each) for each in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        each = _type(schema.get("items", {}), indent)
        return f"({each})[]" if " | " in each else f"{each}[]"
    if kind == "object" and schema.get("properties"):
        return _object(schema, indent)
    if kind == "object":
        more = schema.get("additionalProperties", {})
        return f"Record<string, {_type(more, indent) if isinstance(more, dict) else 'Json'}>"
    return _WORDS.get(str(kind), "Json")
