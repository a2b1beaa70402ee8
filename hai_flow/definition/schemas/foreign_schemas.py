"""Schemas of others, of servers of the Model Context Protocol and of OpenAPI, read as JSON Schema 2020-12.

Servers write as the library of their language does: draft 4 to 2019-09, the types of that language, references to
definitions that are not there. Each form has one meaning in 2020-12, or none at all, and then it does not bind; nor
does a `format`, which is an annotation there. So a schema that is read here refuses no value for a reason that the
server did not give. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from hai_flow import foreign, values
from hai_flow.definition.schemas import schemas
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.primitives.json_pointers import find_key, unescape
from hai_flow.values import Json

NOTHING: Final[Mapping[str, Json]] = {"type": "object", "properties": {}}
_TYPES: Final = ("null", "boolean", "object", "array", "number", "integer", "string")
_OTHER_TYPES: Final[Mapping[str, str]] = {
    "int": "integer", "long": "integer", "int32": "integer", "int64": "integer", "bigint": "integer",
    "float": "number", "double": "number", "decimal": "number", "num": "number",
    "str": "string", "text": "string", "uuid": "string", "date": "string", "datetime": "string", "url": "string",
    "bool": "boolean", "dict": "object", "map": "object", "record": "object", "struct": "object",
    "list": "array", "tuple": "array", "set": "array", "none": "null", "nil": "null",
}  # fmt: skip
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONES: Final = (
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip
_TEXTS: Final = ("pattern", "format", "title", "description", "$comment", "contentEncoding", "contentMediaType")
_LEFT_OUT: Final = frozenset({"$schema", "id", "$id", "$vocabulary", "$recursiveAnchor", "$recursiveRef"})
_DEPTH_MAX: Final = 60


def read_schema(raw: Any) -> dict[str, Json]:
    """The schema that a server has written, as one of 2020-12; of an object that may hold anything, where it is none.

    Raises NotJson where it holds a value that no run can hold."""
    if not isinstance(raw, Mapping):
        return dict(NOTHING)
    return dict(_SchemaReader(raw).schema(raw, 0)) if raw else dict(NOTHING)


def read_part(raw: Json) -> Json:
    """A schema as `read_schema`, whose references are known to lead to schemas; one that may hold anything, where it is
    none. Raises NotJson as that does."""
    if isinstance(raw, bool):
        return raw
    return _SchemaReader(raw, is_part=True).schema(raw, 0) if isinstance(raw, Mapping) else {}


def compile_schema(raw: Json) -> JsonSchema:
    """`raw`, a schema of a server, compiled. Raises NotJson, or an error of the library of schemas."""
    return schemas.compile_cached(values.dumps(values.check(read_schema(raw))), binds_formats=False)


def read_form(raw: Any) -> dict[str, Json]:
    """The form of a question as `read_schema`, without the parts that a form of ours can't have: keywords of other
    libraries, and defaults that do not fit. Raises NotJson as that does."""
    return _SchemaReader(raw, is_form=True).schema(raw, 0) if isinstance(raw, Mapping) else dict(NOTHING)


class _SchemaReader:
    """Reads the schemas inside of `root`, which their references are held against, unless it is a part of one
    that is not here (`is_part`). `is_form`: people fill it in."""

    def __init__(self, root: Mapping[str, Any], *, is_form: bool = False, is_part: bool = False) -> None:
        self._root = root
        self._is_form = is_form
        self._is_part = is_part

    def schema(self, raw: Any, depth: int) -> dict[str, Json]:
        """A schema, without keywords that bind nothing."""
        result: dict[str, Json] = {}
        if depth > _DEPTH_MAX:
            return result
        for keyword, value in raw.items():
            if keyword not in _LEFT_OUT:
                self._keyword(result, keyword, value, depth)
        _read_bounds(result, raw)
        self._read_tuple(result, raw, depth)
        _read_required(result, raw)
        if raw.get("nullable") is True and isinstance(result.get("type"), str):
            result["type"] = [result["type"], "null"]
        if self._is_form and "default" in result and not _fits_itself(result):
            del result["default"]
        return result

    def _inner(self, raw: Any, depth: int) -> Json:
        return raw if isinstance(raw, bool) else self.schema(raw, depth + 1)

    def _inner_list(self, raw: Any, depth: int) -> list[Json]:
        schemas = raw if isinstance(raw, list) else []
        return [self._inner(each, depth) for each in schemas if isinstance(each, (Mapping, bool))]

    def _keyword(self, found: dict[str, Json], keyword: str, value: Any, depth: int) -> None:
        if keyword == "type":
            found.update(_type_of(value))
        elif keyword in ("$ref", "$dynamicRef"):
            if self._leads(value):
                found["$ref"] = value
        elif keyword in _MAPS:
            if isinstance(value, Mapping):
                found[keyword] = {
                    name: self._inner(each, depth) for name, each in value.items() if isinstance(each, (Mapping, bool))
                }
        elif keyword in _LISTS:
            if parts := self._inner_list(value, depth):
                found[keyword] = parts
        elif keyword in _ONES:
            if isinstance(value, (Mapping, bool)):
                found[keyword] = self._inner(value, depth)
        elif keyword == "dependencies":
            self._read_dependencies(found, value, depth)
        # Of an integer beyond 2^53 a run has the digits, as text: no choice of such, and no bound, says anything of it.
        elif keyword in ("enum", "const"):
            if values.is_json(value) and (keyword == "const" or (isinstance(value, list) and value)):
                found[keyword] = value
        elif keyword == "required":
            pass  # `_read_required`
        elif keyword in _NUMBERS:
            if (
                isinstance(value, (int, float))
                and not isinstance(value, bool)
                and (keyword != "multipleOf" or value > 0)
                and values.is_json(value)
            ):
                found[keyword] = value
        elif keyword in _COUNTS:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number and 0 <= value <= values.INTEGER_MAX and value == int(value):
                found[keyword] = int(value)
        elif keyword == "uniqueItems":
            if isinstance(value, bool):
                found[keyword] = value
        elif keyword in _TEXTS:
            if isinstance(value, str) and (keyword != "pattern" or _is_pattern(value)):
                found[keyword] = values.storable(value)
        elif keyword == "dependentRequired":
            if isinstance(value, Mapping) and all(_names(each) == each for each in value.values()):
                found[keyword] = dict(value)
        elif not self._is_form or keyword in schemas.KEYWORDS:  # the rest says something to people and models only
            with suppress(values.NotJson):
                found[keyword] = foreign.take(value).value

    def _leads(self, reference: Any) -> bool:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return False
        if self._is_part:
            return True
        node: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = find_key(node, unescape(unquote(part)))
            if key is None:
                return False
            node = node[key]
        return isinstance(node, (Mapping, bool))

    def _read_tuple(self, found: dict[str, Json], raw: Mapping[str, Any], depth: int) -> None:
        """Until 2019-09 `items` may be a list, and `additionalItems` is for those behind it."""
        found.pop("additionalItems", None)
        if not isinstance(raw.get("items"), list):
            return
        if parts := self._inner_list(raw["items"], depth):
            found["prefixItems"] = parts
        rest = raw.get("additionalItems")
        if isinstance(rest, (Mapping, bool)):
            found["items"] = self._inner(rest, depth)

    def _read_dependencies(self, found: dict[str, Json], value: Any, depth: int) -> None:
        for name, each in value.items() if isinstance(value, Mapping) else ():
            if isinstance(each, (Mapping, bool)):
                found.setdefault("dependentSchemas", {})[name] = self._inner(each, depth)
            elif names := [each] if isinstance(each, str) else _names(each):
                found.setdefault("dependentRequired", {})[name] = names


def _type_of(value: Any) -> dict[str, Json]:
    """The keyword `type`, with the types that JSON has; nothing for a word that says none of them."""
    words = value if isinstance(value, list) else [value]
    names = [each if each in _TYPES else _OTHER_TYPES.get(each.lower()) for each in words if isinstance(each, str)]
    types = list(dict.fromkeys(each for each in names if each is not None))
    if not types or len(names) < len(words) or None in names:  # `any`, or a list with it: nothing is excluded
        return {}
    return {"type": types if len(types) > 1 else types[0]}


def _read_bounds(found: dict[str, Json], raw: Mapping[str, Any]) -> None:
    """In draft 4 `exclusiveMinimum: true` says how `minimum` is meant."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if raw.get(exclusive) is True and bound in found:
            found[exclusive] = found.pop(bound)
    if "divisibleBy" in raw:
        found.pop("divisibleBy", None)


def _read_required(found: dict[str, Json], raw: Mapping[str, Any]) -> None:
    """The names that are required: also those that stand among the properties by mistake (`required: [a]` there), and
    properties that say `required: true` themselves, as draft 3 has it."""
    properties = raw.get("properties")
    names = _names(raw.get("required"))
    if isinstance(properties, Mapping):
        if isinstance(properties.get("required"), list):
            names += _names(properties["required"])
        names += [
            name for name, each in properties.items() if isinstance(each, Mapping) and each.get("required") is True
        ]
    if names:
        found["required"] = list(dict.fromkeys(names))


def _fits_itself(schema: Mapping[str, Json]) -> bool:
    try:
        return JsonSchema(schema).findings(schema["default"]) == []
    except Exception:  # the library raises several unrelated types here
        return False


def _names(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


@lru_cache(maxsize=4096)
def _is_pattern(text: str) -> bool:
    try:
        JsonSchema({"pattern": text})
    except Exception:  # the library raises several unrelated types here
        return False
    return True
