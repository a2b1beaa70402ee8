"""A response that becomes text of a message while it arrives: plain text as it is, and of a stream of server-sent
events the text of each event."""

from __future__ import annotations

import codecs
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from hai_flow import foreign, values
from hai_flow.errors import StepError
from hai_flow.foreign import find_codec
from hai_flow.models.calls.text_pieces import whole_text
from hai_flow.steps.runner import Stream
from hai_flow.values import Json, storable

EVENTS: Final = "text/event-stream"
_PRIVATE: Final = 0x100000  # from a surrogate to a sign in plane 16, which nobody gives a meaning
_HALF: Final = re.compile("[\ud800-\udfff]")
_MARK: Final = re.compile("[\U0010d800-\U0010dfff]")
_ESCAPED: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in JSON. The group: one for half a character that stands alone."""
_MARKED: Final = re.compile(r"\\u[dD][bB][fF][67]\\u")  # the first half of those signs


@dataclass(slots=True)
class StreamEvent:
    """One event of a stream. `data` may hold half a character (`_HALF`): the next event has the rest."""

    type: str = ""
    data: str = ""
    id: str = ""
    has_marks: bool = False  # whether halves stand as signs in `shown`

    @property
    def shown(self) -> dict[str, Json]:
        """The event as expressions see it, which know no half characters: each stands as a sign for private use.
        `json` is None where `data` is no JSON."""
        data, escapes = self.data, [escape[0] for escape in _ESCAPED.finditer(self.data)]
        has_halves = _HALF.search(data) is not None or any(len(escape) == 6 for escape in escapes)
        is_taken = _MARK.search(data) is not None or any(_MARKED.match(escape) for escape in escapes)
        self.has_marks = has_halves and not is_taken
        if self.has_marks:
            data = _HALF.sub(lambda half: chr(ord(half[0]) + _PRIVATE), data)
        try:
            value = foreign.read(_ESCAPED.sub(_private_of, data) if self.has_marks else data).value
        except values.NotJson:
            value = None
        fields = {"type": storable(self.type) or "message", "data": storable(data), "id": storable(self.id)}
        return {**fields, "json": value}

    def text_of(self, piece: str) -> str:
        """A text that an expression has made of `shown`, with the halves that it holds."""
        return _MARK.sub(lambda mark: chr(ord(mark[0]) - _PRIVATE), piece) if self.has_marks else piece


def _private_of(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else chr(int(escape[1], 16) + _PRIVATE)


class Events:
    """Text of the format in pieces, as events. The beginning of an unfinished event is kept, without a bound: the
    caller limits the size of the body."""

    def __init__(self) -> None:
        self._line: list[str] = []
        self._cut = False  # the last piece ended with a carriage return, whose line feed may come yet
        self._event = StreamEvent()
        self._data: list[str] = []

    def fed(self, text: str) -> Iterator[StreamEvent]:
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
                self._event, self._data = StreamEvent(id=self._event.id), []
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
        self, media: str, charset: str, stream: Stream, piece: Callable[[dict[str, Json]], Awaitable[Json]] | None
    ) -> None:
        codec = find_codec(charset)
        errors = "surrogateescape" if codec == "utf-8" else "replace"  # the next event may have the rest of a character
        self._decoder = codecs.getincrementaldecoder(codec)(errors=errors)
        self._events = Events() if media == EVENTS else None
        self._stream = stream
        self._piece = piece
        self._said: list[str] = []
        self._begun = False

    @property
    def text(self) -> str:
        """All the text so far."""
        return storable(whole_text("".join(self._said)))

    @property
    def notes(self) -> list[str]:
        """What was changed in the text."""
        lost = self.text.count("\ufffd") - "".join(self._said).count("\ufffd")
        return ["`text` has U+FFFD where characters can't be read or stored"] if lost else []

    async def take(self, chunk: bytes, *, final: bool = False) -> None:
        """Stream the text in the next bytes of the body. Raises StepError where `piece` fails, or gives no text."""
        text = self._decoder.decode(chunk, final)
        if not self._begun and text:
            self._begun, text = True, text.removeprefix("\ufeff")
        if self._events is None:
            await self._say(text)
            return
        for event in self._events.fed(text):
            piece_text = event.data if self._piece is None else await self._piece(event.shown)
            if piece_text is not None and not isinstance(piece_text, str):
                message = f"expected a text from `piece`, found {values.dumps(piece_text).decode()[:100]}"
                raise StepError(message, code="http.invalid_response", retriable=False)
            await self._say(event.text_of(piece_text or ""))

    async def _say(self, text: str) -> None:
        if text:
            self._said.append(text)
            await self._stream(text)
