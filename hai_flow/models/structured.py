"""Objects from models: the prompts that ask for one, and the check of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hai_flow import foreign, values
from hai_flow.definition.plan import Schema
from hai_flow.values import Json

RECEIVED_CHARS_MAX: Final = 2_000  # of an answer that does not fit, as errors repeat it
FAULTS_MAX: Final = 10


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
        value = foreign.read(_inside(text)).value
    except values.NotJson as error:
        return None, f"{error}" if text.strip() else "the answer is empty"
    found = foreign.fit(schema, value)[1]
    faults = [f"{fault['path'] or '/'}: {fault['message']}" for fault in found[:FAULTS_MAX]]
    return value, "; ".join([*faults, *(["..."] if len(found) > FAULTS_MAX else [])])


def received(text: str) -> str:
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
    """Whether OpenAI takes the schema with `strict`: each object in it says all its properties, and needs them all."""
    if isinstance(schema, list):
        return all(is_strict(each) for each in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
        inner = [each for key, each in schema.items() if key != "properties"]
        return is_strict(list(properties.values())) and is_strict(inner)
    return is_strict(list(schema.values()))
