"""Objects from models: the prompts that ask for one, and the check of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow import foreign, values
from hai_flow.definition.plan import Schema
from hai_flow.definition.schemas.schemas import resolve
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.values import Json

RECEIVED_CHARS_MAX: Final = 2_000  # of an answer that does not fit, as errors repeat it
FAULTS_MAX: Final = 10
STRICT_DEPTH_MAX: Final = 9  # OpenAI takes ten levels
_STRICT: Final = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref", "$defs",
    "definitions", "title", "description", "format", "pattern", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
})  # fmt: skip
_STRICT_FORMATS: Final = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
})  # fmt: skip
_CHOICES: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "enum", "if", "then", "else"})  # refused at the top


def schema_prompt(schema: Mapping[str, Json]) -> str:
    """The prompt for a model that does not accept a schema as a parameter."""
    return (
        "Answer with one JSON value and nothing else: no other words, no Markdown. It has to be valid against this "
        f"JSON Schema:\n{values.dumps(schema).decode()}"
    )


def repair_prompt(faults: str) -> str:
    """The prompt for a model after an answer that did not fit."""
    return f"This does not fit: {faults}. Answer again, with the corrected JSON value and nothing else."


def read_answer(text: str, schema: Schema) -> tuple[Json, str]:
    """The value that an answer holds, and its fault as a sentence ("" if there is none)."""
    try:
        value = foreign.read(_inside(text), pairs=foreign.demand_one_value_each).value
    except values.NotJson as error:
        return None, f"{error}" if text.strip() else "the answer is empty"
    findings = schema.fit(value)[1]
    faults = [f"{fault['path'] or '/'}: {fault['message']}" for fault in findings[:FAULTS_MAX]]
    return value, "; ".join([*faults, *(["..."] if len(findings) > FAULTS_MAX else [])])


async def read_answer_by_size(text: str, schema: Schema) -> tuple[Json, str]:
    """As `read_answer`; a large answer is read beside the loop."""
    return await run_by_size(len(text), read_answer, text, schema)


def excerpt(text: str) -> str:
    """An answer as an error repeats it."""
    return text if len(text) <= RECEIVED_CHARS_MAX else f"{text[:RECEIVED_CHARS_MAX]}…"


def _inside(text: str) -> str:
    """The JSON of an answer that has it in a block of Markdown."""
    text = text.strip()
    if not text.startswith("```"):
        return text
    first, _, rest = text.partition("\n")
    return rest.rstrip().removesuffix("```") if first.strip("` ").lower() in ("", "json") else text


def is_strict(schema: Json) -> bool:
    """Whether OpenAI takes the schema with `strict`. At its top is an object and no choice; each object in it says all
    its properties, and needs them all; and it has no keyword and no format that `strict` lacks."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object" or "anyOf" in schema or "$ref" in schema:
        return False
    return _is_strict(schema, 0)


def _is_strict(schema: Json, depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > STRICT_DEPTH_MAX or not schema.keys() <= _STRICT:
        return False
    if not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        return False
    if schema.get("format", "date") not in _STRICT_FORMATS:
        return False
    kinds = schema.get("type")
    if "properties" in schema or kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
    inner = [each for key in ("properties", "$defs", "definitions") for each in schema.get(key, {}).values()]
    inner += schema.get("anyOf", ())
    inner += [schema["items"]] if "items" in schema else []
    return all(_is_strict(each, depth + 1) for each in inner)


def parameters_shown(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The schema of a tool's arguments as providers of models take it: an object at its top, and no choice. Of a choice
    between objects the properties of all are shown, and those are required that each requires. Arguments are checked by
    the schema itself."""
    parameters = {key: each for key, each in schema.items() if key not in _CHOICES}
    parameters["type"] = "object"
    properties = dict(parameters["properties"]) if isinstance(parameters.get("properties"), Mapping) else {}
    required = list(parameters.get("required", ()))
    for keyword in ("allOf", "anyOf", "oneOf"):
        branches = [resolve(each, schema) for each in schema.get(keyword, ())]
        branches = [each for each in branches if isinstance(each, Mapping)]
        for branch in branches:
            inner = branch.get("properties")
            for name, each in inner.items() if isinstance(inner, Mapping) else ():
                properties.setdefault(name, each)
        needed = [set(each.get("required", ())) for each in branches]
        names = set().union(*needed) if keyword == "allOf" else set.intersection(*needed) if needed else set()
        required += sorted(names - set(required))
    parameters["properties"] = properties
    return {**parameters, "required": required} if required else parameters
