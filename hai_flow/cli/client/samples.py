"""Examples of a workflow's input, for suggested commands: they must work as they are printed."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final

from hai_flow.cli.client.patterns import LONGEST, matching
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.definition.plan import Schema


ITEMS_MAX: Final = 5  # more are tedious to type
_MORE_MAX: Final = 40  # longer texts that are tried for a pattern with a `minLength`
_FILE: Final = "@FILE"  # `decide` uploads the file at this path
_BY_FORMAT: Final = {
    "file": _FILE,
    "email": "ann@example.com",
    "uri": "https://example.com",
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
}


def generate_input(schema: Schema) -> dict[str, Json] | None:
    """The smallest input that the schema takes, as far as it can be guessed from types and bounds. None: it can't."""
    sample = sample_of(schema.raw) if isinstance(schema.raw, dict) else {}
    return sample if isinstance(sample, dict) and not schema.findings(sample) else None


def misfit(schema: Json, sample: Json) -> str:
    """Why the schema does not take the sample; "" if it does, or can't be read."""
    from hai_flow.definition.schemas.schemas import JsonSchema

    try:
        faults = JsonSchema(schema).findings(sample)
    except ValueError:
        return ""
    files = {f"/{name}" for name, value in sample.items() if value == _FILE} if isinstance(sample, dict) else set()
    faults = [each for each in faults if each["path"] not in files]
    return f"{faults[0]['path']}: {faults[0]['message']}".removeprefix(": ") if faults else ""


def as_options(sample: dict[str, Json]) -> str:
    """`sample` as the options of `run`, with a space before each; text stands as it is."""
    pairs = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in sample.items()]
    return "".join(f" -i {shlex.quote(pair)}" for pair in pairs)


def sample_of(schema: Json) -> Json:
    """A value of the JSON Schema: its default, its first choice, else something small of its type."""
    if not isinstance(schema, dict):
        return "text"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    kind = schema.get("type")
    return _generate_sample_of_type(kind[0] if isinstance(kind, list) and kind else kind, schema)


def _generate_sample_of_type(kind: Json, schema: dict[str, Json]) -> Json:
    match kind:
        case "object":
            properties = schema.get("properties") or {}
            return {name: sample_of(properties.get(name)) for name in schema.get("required") or ()}
        case "array":
            return [sample_of(schema.get("items"))] * min(int(schema.get("minItems", 0)), ITEMS_MAX)
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            return low + 1 if "exclusiveMinimum" in schema else low or min(1, schema.get("maximum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _text(schema)


def _text(schema: dict[str, Json]) -> str:
    """A text of the schema, as far as its format, pattern and lengths can be followed; "text" else."""
    if schema.get("format") in _BY_FORMAT:
        return _BY_FORMAT[schema["format"]]
    least, most = (length if isinstance(length := schema.get(key), int) else None for key in ("minLength", "maxLength"))
    if isinstance(schema.get("pattern"), str):
        tries = range(_MORE_MAX if least else 1)
        texts = (text for more in tries if (text := matching(schema["pattern"], more)) is not None)
        return next((text for text in texts if len(text) >= (least or 0)), "text")
    length = max(least or 0, 4 if most is None else min(4, most))
    return ("text" * (length // 4 + 1))[:length] if length <= LONGEST else "text"
