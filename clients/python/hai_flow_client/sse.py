"""Server-Sent Events: bytes to frames. An event that was cut off before its blank line is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Frame(NamedTuple):
    """One event: its name, its data as it was sent, and the last id that the stream named."""

    name: str
    data: bytes
    id: str = ""


class Parser:
    """Takes bytes as they arrive, cut anywhere."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # of the line that has not ended
        self._name = ""
        self._data: list[bytes] = []
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that are complete with `chunk`."""
        first, *others = chunk.split(b"\n")
        self._partial.append(first)
        for rest in others:
            frame = self._line(b"".join(self._partial).removesuffix(b"\r"))
            self._partial = [rest]
            if frame is not None:
                yield frame

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            frame = Frame(self._name, b"\n".join(self._data), self._id) if self._data else None
            self._name, self._data = "", []
            return frame
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id":
            self._id = value.decode(errors="replace")
        return None
