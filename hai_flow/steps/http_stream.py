"""A response that becomes text of a message while it arrives: plain text as it is, and of a stream of server-sent
events the text of each event."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from hai_flow import foreign, values
from hai_flow.errors import StepError
from hai_flow.steps.runner import Stream
from hai_flow.values import Json, storable

EVENTS: Final = "text/event-stream"


@dataclass(slots=True)
class Event:
    """One event of a stream, as expressions see it. `json` is None where `data` is no JSON."""

    type: str = ""
    data: str = ""
    id: str = ""

    @property
    def shown(self) -> dict[str, Json]:
        try:
            value = foreign.read(self.data).value
        except values.NotJson:
            value = None
        return {"type": self.type or "message", "data": self.data, "id": self.id, "json": value}


class Events:
    """Text of the format in pieces, as events. The beginning of an unfinished event is kept, without a bound: the
    caller limits the size of the body."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._cut = False  # the last piece ended with a carriage return, whose line feed may come yet
        self._event = Event()
        self._data: list[str] = []

    def fed(self, text: str) -> Iterator[Event]:
        """The events that end in this piece."""
        if self._cut and text.startswith("\n"):
            text = text[1:]
        self._cut = text.endswith("\r")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines[:-1]:
            self._line.append(line)
            last_line = "".join(self._line)
            self._line.clear()
            if last_line:
                self._take(last_line)
            elif self._data:
                self._event.data = "\n".join(self._data)
                yield self._event
                self._event, self._data = Event(id=self._event.id), []
            else:
                self._event.type = ""
        self._line.append(lines[-1])

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                self._data.append(value)
            case "event":
                self._event.type = value
            case "id":
                self._event.id = value


class Telling:
    """Streams the text of a body while it arrives. `piece` gives the text of an event; None: its data."""

    def __init__(
        self, media: str, charset: str, stream: Stream, piece: Callable[[dict[str, Json]], Json] | None
    ) -> None:
        try:
            self._decoder = codecs.getincrementaldecoder(charset)(errors="replace")
        except LookupError:
            self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._events = Events() if media == EVENTS else None
        self._stream = stream
        self._piece = piece
        self._said: list[str] = []
        self._begun = False

    @property
    def text(self) -> str:
        """All the text so far."""
        return "".join(self._said)

    async def take(self, chunk: bytes, *, final: bool = False) -> None:
        """Stream the text in the next bytes of the body. Raises StepError where `piece` fails, or gives no text."""
        text = storable(self._decoder.decode(chunk, final))
        if not self._begun and text:
            self._begun, text = True, text.removeprefix("\ufeff")
        if self._events is None:
            await self._say(text)
            return
        for event in self._events.fed(text):
            piece_text = event.data if self._piece is None else self._piece(event.shown)
            if piece_text is not None and not isinstance(piece_text, str):
                message = f"expected a text from `piece`, found {values.dumps(piece_text).decode()[:100]}"
                raise StepError(message, code="http.invalid_response", retriable=False)
            await self._say(piece_text or "")

    async def _say(self, text: str) -> None:
        if text:
            self._said.append(text)
            await self._stream(text)
