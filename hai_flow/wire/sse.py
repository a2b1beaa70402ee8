"""Server-Sent Events: frames to bytes.

docs/design/protocols.md#http-exchange. LF only: a CR makes every AG-UI client throw. One `data:` line per event,
with the space that older clients need.
"""

from __future__ import annotations

import re
from typing import Final

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
