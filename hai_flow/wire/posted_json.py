"""The one reader of posted JSON: within limits that are checked before anything is parsed, each key of an object once,
and every value one that may enter a run (docs/design/threats.md)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from hai_flow import foreign, values
from hai_flow.errors import Rejected
from hai_flow.foreign import Foreign
from hai_flow.values import Json

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)

LISTS_MAX: Final = 200_000
"""Lists and objects in a body: Python frees them in one go on the loop, 0.1 us each."""

_OF_TOOL: Final = "role: tool"
_RESULTS: Final = (
    ("messages", _OF_TOOL, "content"),  # HAI, AG-UI
    ("body", "messages", _OF_TOOL, "content"),  # CopilotKit
    ("result",),  # REST: an answer
    ("items", "*", "result"),  # REST: several
    ("payload", "result"),  # AUI
    ("resume", "*", "payload"),  # AG-UI
    ("body", "resume", "*", "payload"),  # CopilotKit
    ("input", "*", "content", "*", "data", "output"),  # Agent API
    ("params", "arguments", "result"),  # MCP
    ("message", "parts", "*", "data", "hai.pending", "result"),  # A2A
    ("params", "message", "parts", "*", "data", "hai.pending", "result"),  # A2A in JSON-RPC
)
"""The places of posted results of frontend tools."""


class Limits(msgspec.Struct, frozen=True):
    """The most that one POST may hold (docs/design/promises.md#bounds). An id longer than `id_chars_max` gives 422;
    each other limit gives 413."""

    body_bytes_max: int = 1 << 20
    depth_max: int = values.DEPTH_MAX
    messages_max: int = 500
    tools_max: int = 200
    id_chars_max: int = 200


def load(body: bytes, limits: Limits) -> Json:
    """The JSON value in `body`. Size and depth are checked before anything is parsed. A byte-order mark
    before it is ignored (RFC 8259, section 8.1). In the result of a frontend tool,
    what a run can't hold is text (`foreign.take`): the tool has had its effect. Raises `Rejected`."""
    _demand_small(body, limits)
    try:
        value = json.loads(body.decode("utf-8-sig"), object_pairs_hook=build_object, parse_constant=_refuse_constant)
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are kinds of it
        reason = "a number has too many digits" if str(error).startswith("Exceeds the limit") else str(error)
        raise Rejected(400, "body.not_json", f"expected a body of JSON in UTF-8: {reason}") from None
    try:
        return values.check(value)
    except values.NotJson:
        value = _with_results(value, _RESULTS)
    try:
        return values.check(value)
    except values.NotJson as error:
        place, _, message = str(error).partition(": ")
        path = place if place.startswith("/") else ""  # it repeats keys as they were sent
        raise invalid([{"path": values.storable(path), "message": values.storable(message)}]) from None


def load_foreign(text: str) -> Foreign:
    """The JSON value in a body whose sender can't be changed, as a run can hold it (`foreign`): also what is nested too
    deep. Raises `Rejected` 400 where it is no JSON, or a key stands in an object with two values."""
    try:
        return foreign.read(text, pairs=foreign.demand_one_value_each)
    except values.NotJson as error:
        raise Rejected(400, "body.not_json", values.storable(str(error))) from None


def _with_results(value: Json, places: Iterable[tuple[str, ...]]) -> Json:
    """`value` with what runs can hold at these places; `*` stands for each member of a list, and `_OF_TOOL` for each
    message of a tool in it."""
    if () in places:
        try:
            return foreign.take(value).value
        except values.NotJson:
            return value
    if isinstance(value, list):
        inner = [place[1:] for place in places if place[0] == "*"]
        of_tools = inner + [place[1:] for place in places if place[0] == _OF_TOOL]
        return [_with_results(each, of_tools if _is_of_tool(each) else inner) for each in value] if of_tools else value
    if isinstance(value, dict):
        inner_of = {name: [place[1:] for place in places if place[0] == name] for name in value}
        return {name: _with_results(each, inner_of[name]) for name, each in value.items()}
    return value


def _is_of_tool(message: Json) -> bool:
    return isinstance(message, dict) and message.get("role") == "tool"


def _demand_small(body: bytes, limits: Limits) -> None:
    if len(body) > limits.body_bytes_max:
        raise too_large(f"a body of at most {limits.body_bytes_max} bytes", f"{len(body)} bytes")
    if body.count(b"[") + body.count(b"{") > LISTS_MAX and _count_lists(body) > LISTS_MAX:
        raise too_large(f"at most {LISTS_MAX} lists and objects", "more")
    if _depth(body, limits.depth_max) > limits.depth_max:
        raise too_large(f"JSON nested at most {limits.depth_max} deep", "more")


def too_large(expected: str, found: str) -> Rejected:
    """The refusal of a body that is beyond a limit."""
    return Rejected(413, "body.too_large", f"expected {expected}, found {found}")


def invalid(findings: list[dict[str, str]]) -> Rejected:
    """The refusal of a body with these findings, each a `path` (a JSON pointer) and a `message`."""
    first = findings[0]
    more = f" ({len(findings)} findings)" if len(findings) > 1 else ""
    detail = f"{first['path'] or 'the body'}: {first['message']}{more}"
    return Rejected(422, "body.invalid", detail, findings=findings)


def _depth(body: bytes, enough: int) -> int:
    """How deep `body` nests, or the first number beyond `enough`."""
    depth = deepest = 0
    for match in _TOKEN.finditer(body):
        token = match[0]
        if token in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
            if deepest > enough:
                break
        elif token in (b"]", b"}"):
            depth -= 1
    return deepest


def _count_lists(body: bytes) -> int:
    return sum(match[0] in (b"[", b"{") for match in _TOKEN.finditer(body))


def build_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """The object of these members. Raises ValueError if a key stands twice."""
    record = dict(pairs)
    if len(record) != len(pairs):  # parsers disagree on which one counts: one might be checked and the other used
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the key {values.storable(twice[:120])!r} stands twice in one object")
    return record


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON number")
