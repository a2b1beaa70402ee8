"""The messages of a server of the Model Context Protocol, checked before the SDK gets them. The SDK ends a connection
with all its calls at a number that it can't convert, and drops an answer that it can't parse, for which the call waits
for ever. So a message that it can't read is left out here, or replaced by an error where it answers a call. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any, Final

import mcp_types as types
import msgspec

from hai_flow import foreign, values
from hai_flow.steps.mcp.receipts import HIDDEN_CHARS_MAX

FAULT: Final = f"hai-flow/fault/{token_hex(8)}"
"""The key in the `data` of an error that is ours and not the server's. No server can guess it, and say the same."""
CHANGED: Final = f"hai-flow/changed/{token_hex(8)}"
"""The key in the `_meta` of a result under which the notes stand on what of it was changed (`list_notes`)."""
NO_ID: Final = f"hai-flow/no-id/{token_hex(8)}"
"""The id of a result that came without one."""
BARE: Final = f"hai-flow/bare/{token_hex(8)}"
"""The key in a result under which a list or a text stands that came in its place."""
UNREADABLE: Final = "it answers with what can't be read"
_BROKEN: Final = "its answer breaks off"
_BATCH: Final = re.compile(r"\ufeff?\s*\[")
_CONTRADICTED: Final = "it answers with a result and an error at once"

_ESCAPED: Final = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<bad>\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000))"
)
_TEXT: Final = r'"(?:[^"\\]++|\\.)*+(?P<end>"?+)'  # or what begins as one and has no end: it is looked through once
_WORD: Final = re.compile(r'[{}\[\]:,]|[^\s"{}\[\]:,]+')
_TOKEN: Final = re.compile(rf"{_TEXT}|{_WORD.pattern}", re.DOTALL)

_SIGN: Final = re.compile(rf"{_TEXT}|[\[\]{{}}]", re.DOTALL)
_MAYBE_ODD: Final = re.compile(r"\d{300}|[eE]\+?\d{3}|NaN|Infinity")
_TEXT_OR_NUMBER: Final = re.compile(rf"{_TEXT}|-?(?:\d++(?:\.\d++)?+(?:[eE][+-]?+\d++)?+|Infinity|NaN)", re.DOTALL)
_TEXT_OR_COMMAS: Final = re.compile(rf"{_TEXT}|,[\s,]*+(?P<bracket>[}}\]]?+)", re.DOTALL)
_BEGINNING: Final = re.compile(r'\{\s*+"(?:jsonrpc|id|result|error|method)"\s*+:')
_SEVERAL: Final = re.compile(r"\}\s*+" + _BEGINNING.pattern)  # which a text in a message has with backslashes
_ENCODED: Final = re.compile(r'\s*+"\{\s*+\\"')
_DECODER: Final = json.JSONDecoder()
_DIGITS_MAX: Final = 4000  # of an integer; Python converts no more than 4300
_DEPTH_MAX: Final = values.DEPTH_MAX + 2  # a value of a result stands in the result, and that in its message


class Read(msgspec.Struct, frozen=True):
    """A message, and the text that it stands in."""

    message: types.JSONRPCMessage
    text: str


def read_all(raw: bytes | bytearray) -> list[Read]:
    """The messages in `raw`: one, or those of a batch (protocol 2025-03-26), or of a text with something around them.
    Those that can't be read are left out."""
    text = raw.decode(errors="surrogateescape")
    if _BATCH.match(text):
        parts = _split(text)
    else:
        message_read = read(raw)
        is_odd = message_read is None or _is_fault(message_read.message) or _SEVERAL.search(text) is not None
        parts = _find_messages(text) if is_odd else []
        if parts in ([], [text]):
            return [] if message_read is None else [message_read]
    return [each for part in parts if (each := read(part.encode(errors="surrogateescape"))) is not None]


def _is_fault(message: types.JSONRPCMessage) -> bool:
    return (
        isinstance(message, types.JSONRPCError) and isinstance(message.error.data, dict) and FAULT in message.error.data
    )


def _find_messages(text: str) -> list[str]:
    """The messages in a text that has something else around them: a warning of PHP, a guard against scripts, further
    messages; or that is encoded twice. Empty where one of them is no whole JSON: a result may hold what looks like a
    message."""
    messages: list[str] = []
    end = 0
    try:
        if _ENCODED.match(text):
            text = _DECODER.decode(text)
        while (beginning := _BEGINNING.search(text, end)) is not None:
            start = beginning.start()
            _, end = _DECODER.raw_decode(text, start)
            messages.append(text[start:end])
    except (ValueError, RecursionError):
        return []
    return messages


def _split(text: str) -> list[str]:
    """The objects in a list, as they are written; empty where its brackets don't match."""
    parts: list[str] = []
    depth = start = 0
    for match in _SIGN.finditer(text):
        if match[0] in ("[", "{"):
            depth += 1
            start = match.start() if depth == 2 else start
        elif match[0] in ("]", "}"):
            depth -= 1
            if depth == 1:
                parts.append(text[start : match.end()])
    return [] if depth else parts


def measure(text: str) -> int | None:
    """How many brackets of JSON text stay open; None: a text in it has no end."""
    depth = 0
    for match in _SIGN.finditer(text):
        if match["end"] == "":
            return None
        depth += 1 if match[0] in ("[", "{") else -1 if match[0] in ("]", "}") else 0
    return depth


def read(raw: bytes | bytearray) -> Read | None:
    """The message in `raw`. For an answer that can't be read, or breaks off, an error with the same id; for any other
    message that can't be read, None."""
    decoded = raw.decode(errors="replace").removeprefix("\ufeff")
    text = _quote_numbers(_storable(decoded))
    try:
        message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        shallow = foreign.make_shallow(text, _DEPTH_MAX)
        if shallow is not None and (inner := read(shallow.encode())) is not None:
            return _with_notes(inner, [f"what is nested deeper than {values.DEPTH_MAX} levels is kept as JSON text"])
        plain = _TEXT_OR_COMMAS.sub(lambda each: each["bracket"] or each[0], text)
        if plain != text:
            return read(plain.encode())
        stand_in = _find_contradiction(text) or _mend(text) or _stand_in(text)
        return None if stand_in is None else to_read(stand_in)
    if '"error"' in text and '"result"' in text and (stand_in := _find_contradiction(text)) is not None:
        return to_read(stand_in)
    if isinstance(message, types.JSONRPCNotification) and not values.is_json(message.params):
        return None
    message_read = Read(message, text)
    if text == decoded and (b"\xef\xbf\xbd" in raw or "\ufffd" not in text):
        return message_read
    return _with_notes(message_read, _changes_in(decoded, raw))


def list_notes(meta: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What of a result was changed so that a run can hold it: its place in the result, and how."""
    return tuple((meta or {}).get(CHANGED, ()))


def _with_notes(message_read: Read, notes: list[str]) -> Read:
    """An answer, with the notes in its `_meta`; any other message as it is."""
    message = message_read.message
    if not notes or not isinstance(message, types.JSONRPCResponse):
        return message_read
    meta = message.result.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    noted = {**message.result, "_meta": {**meta, CHANGED: [*list_notes(meta), *notes]}}
    return to_read(message.model_copy(update={"result": noted}))


def _changes_in(written: str, raw: bytes | bytearray) -> list[str]:
    """Notes on what of the result in a message can't be held by a run. `raw`: its bytes."""
    try:
        raw.decode()
        notes = []
    except UnicodeDecodeError:
        notes = ["the result has U+FFFD where its bytes are no UTF-8"]
    try:
        remaining = foreign.read(written)
    except values.NotJson:
        return notes
    named = (note.removeprefix("/result") for note in remaining.notes if note.startswith("/result"))
    return [*notes, *(note for note in named if not note.endswith((foreign.BIG, foreign.DEEP)))]


def make_stand_in(raw: bytes, why: str) -> types.JSONRPCMessage | None:
    """The stand-in for a message of which only the beginning is known: the same as for one that can't be read. Raises
    ValueError if the beginning has neither an id nor a method."""
    text = _storable(raw.decode(errors="replace"))
    message = _stand_in(text, why)
    if message is None and "method" not in _members(text):
        raise ValueError(why)
    return message


def to_read(message: types.JSONRPCMessage) -> Read:
    """A message of our own making, with its text."""
    return Read(message, message.model_dump_json(by_alias=True, exclude_unset=True))


def fault(
    message: str,
    id: types.RequestId | None = None,
    *,
    code: str = "mcp.unavailable",
    reached: bool = True,
    final: bool = False,
    after: float | None = None,
    text: str | None = None,
) -> types.JSONRPCError:
    """The answer that says why there is none. `reached`: the request may have arrived. `final`: the server has
    answered, only not in a form that is taken. `after`: seconds, after which it may be asked again. `text`: what it
    has answered."""
    fields = {
        "code": code,
        "message": message,
        "reached": reached,
        "final": final,
        "after": after,
        "text": None if text is None else text[:HIDDEN_CHARS_MAX],
    }
    data = {FAULT: fields}
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=-32000, message=message, data=data))


def unread(id: types.RequestId | None, text: str) -> types.JSONRPCError:
    """The answer in the place of one that can't be read: of one that breaks off, nobody knows what it was."""
    beginning = _BEGINNING.search(text)
    body = text[beginning.start() :] if beginning else text.lstrip("\ufeff \t\r\n")
    is_broken = body[:2] in ("", '"{') or (body.startswith(("{", "[")) and measure(body) != 0)
    return fault(_BROKEN, id, text=text) if is_broken else unreadable(id, text=text)


def unreadable(id: types.RequestId | None, why: str = UNREADABLE, text: str | None = None) -> types.JSONRPCError:
    """The answer in the place of one that is not taken, with what came."""
    return fault(why, id, code="tool.invalid_result", final=True, text=text)


def _storable(text: str) -> str:
    """JSON text without characters that can't be stored, also where they are escaped."""
    text = values.storable(text)
    return _ESCAPED.sub(lambda each: "\\ufffd" if each["bad"] else each[0], text) if "\\u" in text else text


def _quote_numbers(text: str) -> str:
    """JSON text in which a number that Python or JSON can't hold (`1e400`, `NaN`, an integer of 5,000 digits) is the
    text that it is written as."""
    return _TEXT_OR_NUMBER.sub(_quote_if_large, text) if _MAYBE_ODD.search(text) else text


def _quote_if_large(token: re.Match[str]) -> str:
    literal = token[0]
    if literal.startswith('"'):
        return literal
    is_integer = literal.lstrip("-").isdecimal()
    is_odd = len(literal) > _DIGITS_MAX if is_integer else not math.isfinite(float(literal))
    return f'"{literal}"' if is_odd else literal


def _stand_in(text: str, why: str | None = None) -> types.JSONRPCMessage | None:
    """The stand-in for a message that can't be read: for an answer of the server, an error; for a request of the
    server, the same request without its parameters, which the SDK refuses; for a notification, None."""
    members = _members(text)
    try:
        id, method = values.loads(members.get("id", "null")), values.loads(members.get("method", "null"))
    except values.NotJson:
        return None
    if isinstance(id, bool) or not isinstance(id, int | str):
        return None
    if method is not None:
        return types.JSONRPCRequest(jsonrpc="2.0", id=id, method=str(method))
    return unread(id, text) if why is None else unreadable(id, why, text)


def _find_contradiction(text: str) -> types.JSONRPCError | None:
    """The stand-in for an answer that has both a result and an error, neither of them empty; else None."""
    message = _find_answer(text)
    if message is None or not message.get("result") or not message.get("error"):
        return None
    return fault(_CONTRADICTED, message["id"], text=text)


def _find_answer(text: str) -> dict[str, Any] | None:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "method" in message:
        return None
    if "id" not in message and not {"jsonrpc", "result"} <= message.keys():
        return None
    id = message.setdefault("id", None)
    if isinstance(id, float) and id.is_integer():
        message["id"] = int(id)
    elif isinstance(id, bool) or not isinstance(id, int | str | None):
        return None
    return message


def _mend(text: str) -> types.JSONRPCResponse | types.JSONRPCError | None:
    """An answer that lacks `jsonrpc` or its id, or whose result or error has another form; None for anything else."""
    message = _find_answer(text)
    if message is None:
        return None
    id, result, error = message["id"], message.get("result"), message.get("error")
    try:
        if error:
            parts = error if isinstance(error, dict) else {"message": error}
            code, words = parts.get("code"), parts.get("message")
            words = words if isinstance(words, str) else json.dumps(error, ensure_ascii=False)
            report = types.ErrorData(code=code if type(code) is int else -32000, message=words, data=parts.get("data"))
            return types.JSONRPCError(jsonrpc="2.0", id=id, error=report)
        if not isinstance(result, dict | list | str):
            return None
        result = result if isinstance(result, dict) else {BARE: result}
        return types.JSONRPCResponse(jsonrpc="2.0", id=NO_ID if id is None else id, result=result)
    except ValueError:
        return None


def _members(text: str) -> dict[str, str]:
    """The members of an object that are no lists and no objects, as they are written. The others may be as deep or as
    broken as they like."""
    members: dict[str, str] = {}
    depth, name, before = 0, None, ""
    for token in _iter_tokens(text):
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        elif depth == 1 and token == ":":
            name = before.strip('"')
        elif depth == 1 and token == ",":
            name = None
        elif depth == 1 and name is not None:
            members.setdefault(name, token)
        before = token
    return members


def _iter_tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        if match["end"] == "":
            yield from _WORD.findall(match[0])
        else:
            yield match[0]
