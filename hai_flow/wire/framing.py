"""How frames become the bytes of a connection: Server-Sent Events, or length-prefixed binary."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from hai_flow.wire import sse


@dataclass(frozen=True, slots=True)
class Framing:
    """`render(data, name, id)` gives the bytes of one frame: `data` is its JSON, `name` its event type, `id` its place
    in the stream (None: it has none). `keep_alive` is sent while no event comes; it is empty if the format has none.
    """

    content_type: str
    render: Callable[[bytes, str, str | None], bytes]
    keep_alive: bytes = b""


def _event(data: bytes, name: str, id: str | None) -> bytes:
    return sse.event_bytes(data, id=id)


def _encode_event_with_name(data: bytes, name: str, id: str | None) -> bytes:
    return sse.event_bytes(data, id=id, event=name)


def encode_with_length(payload: bytes) -> bytes:
    """`payload` behind its length in four bytes, big-endian (docs/design/protocols.md#binary-frames)."""
    return struct.pack(">I", len(payload)) + payload


def _encode_message_pack(data: bytes, name: str, id: str | None) -> bytes:
    return encode_with_length(msgspec.msgpack.encode(msgspec.json.decode(data)))


SSE: Final = Framing(sse.CONTENT_TYPE, _event, sse.KEEP_ALIVE)
NAMED_SSE: Final = Framing(sse.CONTENT_TYPE, _encode_event_with_name, sse.KEEP_ALIVE)
MESSAGE_PACK: Final = Framing("application/vnd.hai.event+msgpack", _encode_message_pack, encode_with_length(b""))
"""Each event as MessagePack, with the maps and values of its JSON. HAI names a binary transport and leaves it
undefined; this is HAI Flow's own (docs/design/protocols.md#binary-frames), and docs/protocols/hai.md describes it for
clients. An empty frame keeps the connection alive: no document is empty, and a client that reads by length skips it
without a special rule. Frames have no ids: a client that loses its stream posts again, or follows with a cursor from
Server-Sent Events."""
