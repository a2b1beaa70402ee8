"""Server-Sent Events and other framings of streams: frames to bytes, and cursors, which name a place in a stream.

docs/design/protocols.md#http-exchange. LF only: a CR makes every AG-UI client throw. One `data:` line per event,
with the space that older clients need."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

KEEP_ALIVE: Final = b": keep-alive\n\n"
CONTENT_TYPE: Final = "text/event-stream"

_BREAKS = re.compile(r"[\r\n\x00]")


def event_bytes(data: bytes, *, id: str | None = None, event: str | None = None) -> bytes:
    """One SSE event. Raises `ValueError` for a value that would break out of its line."""
    if b"\n" in data or b"\r" in data:
        raise ValueError("expected event data of one line, found a line break; encode it as JSON")
    return b"%b%bdata: %b\n\n" % (_field("id", id), _field("event", event), data)


def _field(name: str, value: str | None) -> bytes:
    if value is None:
        return b""
    if _BREAKS.search(value):
        raise ValueError(f"expected an SSE {name} of one line, found {value!r}")
    return f"{name}: {value}\n".encode()


class Framing(msgspec.Struct, frozen=True):
    """`render(data, name, id)` gives the bytes of one frame: `data` is its JSON, `name` its event type, `id` its place
    in the stream (None: it has none). `keep_alive` is sent while no event comes; it is empty if the format has none."""

    content_type: str
    render: Callable[[bytes, str, str | None], bytes]
    keep_alive: bytes = b""


def _event(data: bytes, name: str, id: str | None) -> bytes:
    return event_bytes(data, id=id)


def _encode_event_with_name(data: bytes, name: str, id: str | None) -> bytes:
    return event_bytes(data, id=id, event=name)


def encode_with_length(payload: bytes) -> bytes:
    """`payload` behind its length in four bytes, big-endian (docs/design/protocols.md#binary-frames)."""
    return struct.pack(">I", len(payload)) + payload


def _encode_message_pack(data: bytes, name: str, id: str | None) -> bytes:
    return encode_with_length(msgspec.msgpack.encode(msgspec.json.decode(data)))


SSE: Final = Framing(CONTENT_TYPE, _event, KEEP_ALIVE)
NAMED_SSE: Final = Framing(CONTENT_TYPE, _encode_event_with_name, KEEP_ALIVE)
MESSAGE_PACK: Final = Framing("application/vnd.hai.event+msgpack", _encode_message_pack, encode_with_length(b""))
"""Each event as MessagePack, with the maps and values of its JSON. HAI names a binary transport and leaves it
undefined; this is HAI Flow's own (docs/design/protocols.md#binary-frames), and docs/protocols/hai.md describes it for
clients. An empty frame keeps the connection alive: no document is empty, and a client that reads by length skips it
without a special rule. Frames have no ids: a client that loses its stream posts again, or follows with a cursor from
Server-Sent Events."""


LAST_FRAME: Final = 999_999_999
"""A cursor's frame that stands behind all frames of its event."""


class Cursor(NamedTuple):
    """A place in a stream: frame `frame` (from 0) of event `seq` of a run, as the encoding `encoding` writes it."""

    run_id: str
    encoding: str
    seq: int
    frame: int

    def __str__(self) -> str:
        return f"{self.run_id}.{self.encoding}.{self.seq}.{self.frame}"


# 15 digits: more events than any run may have, and a number that JavaScript keeps exactly.
_CURSOR = re.compile(
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"\.([a-z0-9-]{1,32})\.(0|[1-9][0-9]{0,14})\.(0|[1-9][0-9]{0,14})"
)


def parse_cursor(text: str) -> Cursor:
    """The cursor written as `text` (Last-Event-ID). Raises `ValueError` for any spelling that `str` of a cursor does
    not give."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a cursor <run_id>.<encoding>.<seq>.<frame>, found {text[:120]!r}")
    run_id, encoding, seq, frame = match.groups()
    return Cursor(run_id, encoding, int(seq), int(frame))
