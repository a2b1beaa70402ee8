"""JSON as it is sent: on one line for every reader, and what is absent left out."""

from __future__ import annotations

from collections.abc import Mapping

from hai_flow import values
from hai_flow.values import Json

# Some clients' `splitlines` ends a line at these characters; the SSE standard does not. In JSON text they stand only
# inside strings, so they can be escaped.
_LINE_ENDS = {"\u0085".encode(): b"\\u0085", "\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def dump(value: Json) -> bytes:
    """`value` as JSON on one line, for readers with any notion of a line end."""
    data = values.dumps(value)
    if data.isascii():
        return data
    for character, escape in _LINE_ENDS.items():
        data = data.replace(character, escape)
    return data


def strip_none(fields: Mapping[str, Json]) -> dict[str, Json]:
    """`fields` without the absent ones: null for an optional field is fatal to clients
    (docs/design/protocols.md#absent-never-null)."""
    return {name: value for name, value in fields.items() if value is not None}


def parse_object(text: str) -> dict[str, Json]:
    """The object that a JSON text holds. A model may have written another value, or no JSON: this is kept as
    `value`."""
    try:
        value = values.loads(text) if text else {}
    except values.NotJson:
        value = text
    return value if isinstance(value, dict) else {"value": value}
