"""The body of a model's answer: from its bytes to the events of its protocol, and from these to pieces. Pure.

Most servers stream Server-Sent Events, though not all as the standard has them; some answer with one JSON document,
with a JSON document a line, with a page in HTML, or with a plain sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from hai_flow import foreign
from hai_flow.models import faults
from hai_flow.models.answer import Answer
from hai_flow.models.ends import Stand
from hai_flow.models.failures.reports import is_report
from hai_flow.models.vocabulary import Piece, Usage
from hai_flow.values import Json

_DONE: Final = re.compile(r"""(?:[\["<|]*+DONE[\]">|]*+\s*+)++""", re.I)
"""`[DONE]`, the mark of the end, in the forms in which servers write it."""
_END_EVENTS: Final = frozenset({"done", "end", "complete", "completed", "finish", "finished"})
"""The names of events that mark the end, where they say nothing else."""
FIRST_CHARS_MAX: Final = 1000  # of an event that an error repeats
BODY_BYTES_MAX: Final = 128 * 1024 * 1024  # of an event or a document: they may hold pictures and sound
_BOM: Final = b"\xef\xbb\xbf"
_LINE: Final = re.compile(rb"\r\n|\n|\r")
_DIGITS_MAX: Final = 4000  # of an integer; Python converts no more than 4300
_BLANK: Final = b" \t\r\n"
_PREFIX: Final = re.compile(r"\A(?:data:\s*)+")  # of gateways that wrap an event as it came
_CALLS: Final = re.compile("tool_calls|tool_use|function_call")
_WRAPPERS: Final = ("data", "result", "response", "body")
"""The members in which gateways put an answer that they pass on."""
_ALIVE: Final = frozenset({"ping", "pong", "heartbeat", "keepalive", "keep-alive", "keep_alive"})
"""The names of events that say nothing, and their texts."""
_FIELDS: Final = frozenset({b"data", b"event", b"id", b"retry", b"error"})  # `error:`: llama.cpp, once


class BodyEvent(NamedTuple):
    """One event of a body: its name ("" for none), and its data as text."""

    name: str
    data: str


class Form(StrEnum):
    """The form of a body, by its beginning."""

    UNKNOWN = "unknown"
    EVENTS = "events"
    DOCUMENT = "document"  # JSON
    PAGE = "page"  # HTML
    SENTENCE = "sentence"


class EventBody:
    """The events of a body, which may be cut into chunks anywhere. Bytes that are no UTF-8 are escaped
    (`surrogateescape`): the other half of a character may stand in the next event."""

    def __init__(self) -> None:
        self.form = Form.UNKNOWN
        self.is_one_document = False  # and no line of several, of which others may have been cut off
        self._rest = b""  # of events: of the line that has not ended; else all of the body
        self._parts: list[bytes] = []  # of `_rest`, as they came
        self._size = 0
        self._after_return = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[BodyEvent]:
        """The events that are complete with this chunk. Raises StepError for a body without any bound."""
        if self.form is Form.UNKNOWN:
            chunk = self._rest + chunk
            self._rest = b""
            if not self._is_known(chunk):
                self._rest = chunk
                return
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._size > BODY_BYTES_MAX:
            raise faults.unreadable(f"it is longer than {BODY_BYTES_MAX // 1024**2} MiB without an end")
        if self.form is Form.EVENTS and (b"\n" in chunk or b"\r" in chunk):
            yield from self._lines(b"".join(self._parts))

    def end(self) -> Iterator[BodyEvent]:
        """The events that are complete with the end of the body: a document as a whole, and a last event whose blank
        line is missing. Raises StepError for a body that is no answer."""
        if self.form is Form.UNKNOWN:
            self._parts, self._rest = [self._rest], b""
            self.form = _form_of(self._parts[0].lstrip(_BLANK)) or Form.SENTENCE
        body, self._parts = b"".join(self._parts), []
        if self.form is Form.EVENTS:
            if body:
                yield from self._line(body)
            yield from self._dispatch()
            return
        text = body.lstrip(_BLANK).removeprefix(_BOM).decode(errors="surrogateescape").strip()
        if self.form is Form.DOCUMENT:
            documents = list(_documents(text))
            self.is_one_document = len(documents) == 1 and ("\n" in text or b"\n" not in body.lstrip(_BLANK))
            yield from documents
        elif self.form is Form.PAGE:
            raise faults.web_page(None, text)
        elif text:
            raise faults.fault_of_body(text)

    def _is_known(self, beginning: bytes) -> bool:
        """Whether the beginning of the body is enough to know its form."""
        if _BOM.startswith(beginning[:3]) and len(beginning) < 3:
            return False
        text = beginning.removeprefix(_BOM).lstrip(_BLANK)
        form = _form_of(text)
        if form is None and not _LINE.search(text):
            return False
        self.form = form or Form.SENTENCE
        return True

    def _lines(self, text: bytes) -> Iterator[BodyEvent]:
        """The events of all lines that have ended; the rest is kept."""
        start = 0
        if self._after_return and text.startswith(b"\n"):
            start = 1
        for end in _LINE.finditer(text, start):
            yield from self._line(text[start : end.start()])
            start = end.end()
        self._after_return = start == len(text) and text.endswith(b"\r")
        rest = text[start:]
        self._parts = [rest] if rest else []
        self._size = len(rest) + sum(map(len, self._data))

    def _line(self, line: bytes) -> Iterator[BodyEvent]:
        line = line.removeprefix(_BOM)  # also of later ones: of servers that join streams
        if not line:
            yield from self._dispatch()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if self._data and _is_complete(b"\n".join(self._data)):  # some servers leave the blank line out
                yield from self._dispatch()
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace").strip()
        elif field == b"error":
            yield from self._dispatch()
            self._name, self._data = "error", [value]
        elif line.lstrip(_BLANK).startswith(b"<"):  # a proxy's page behind what came before
            yield from self._dispatch()
            self._data = [line]
            yield from self._dispatch()
        elif line[:1] in (b"{", b"[") and _is_complete(line):  # a document between events: of a fault, or `[DONE]`
            yield from self._dispatch()
            self._data = [line]

    def _dispatch(self) -> Iterator[BodyEvent]:
        name, data = self._name, b"\n".join(self._data).decode(errors="surrogateescape")
        self._name, self._data = "", []
        if data.strip() or name.lower() in _END_EVENTS:
            yield BodyEvent(name, data)


def _form_of(text: bytes) -> Form | None:
    """The form of a body that begins with this text; None: more of it is needed."""
    if not text:
        return None
    if text[:1] in (b"{", b"["):
        return Form.DOCUMENT
    if text[:1] == b"<":
        return Form.PAGE
    if text[:1] == b":":
        return Form.EVENTS
    field, colon, _ = _LINE.split(text, 1)[0].partition(b":")
    return Form.EVENTS if colon and field in _FIELDS else None


def _is_complete(data: bytes) -> bool:
    text = data.decode(errors="surrogateescape").strip()
    if _DONE.fullmatch(text):
        return True
    try:
        _parse(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(text: str) -> Json:
    """A JSON value; an integer with more digits than Python converts is their text. Raises ValueError, also where a
    call may stand in an object with two values of one name."""
    pairs = foreign.demand_one_value_each if _CALLS.search(text) else None
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except ValueError:
        few = lambda digits: int(digits) if len(digits) <= _DIGITS_MAX else digits  # noqa: E731
        return json.loads(text, parse_int=few, object_pairs_hook=pairs)


def _decode(value: Json) -> Json:
    """A value that a gateway has encoded a second time, as a JSON string."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return _parse(value)
    return value


def _documents(text: str) -> Iterator[BodyEvent]:
    """One JSON document, or one in each line."""
    lines = text.split("\n")  # `splitlines` would cut texts at U+2028
    if len(lines) > 1 and not _is_complete(text.encode(errors="surrogateescape")):
        yield from (BodyEvent("", line) for line in lines if line.strip())
    else:
        yield BodyEvent("", text)


# --- the answer -------------------------------------------------------------------------------------------------------


class EventReader(Protocol):
    """The meaning of a protocol's events."""

    answer: Answer

    def is_answer(self, event: Mapping[str, Json]) -> bool:
        """Whether an event is one of the protocol, and no report of a fault."""
        ...

    def read(self, event: Mapping[str, Json]) -> Iterator[Piece]:
        """The pieces of one event. Raises StepError for one that reports a fault."""
        ...

    def end(self) -> Iterator[Piece]:
        """The last pieces, behind the stream. An answer that is not whole gets no `Finish`."""
        ...


class StreamReader:
    """An answer from its bytes, by a protocol. All methods raise StepError for an answer that is none."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader
        self._body = EventBody()
        self._first = ""  # the first event, where it is a piece of nothing
        self._is_whole = False  # an event had a message, and not a piece of one
        self.has_said_all = False
        """The server has given a reason for the end behind what it had said before, and has said nothing since. Some
        give one with each piece."""

    @property
    def is_over(self) -> bool:
        """Whether the server has marked the end."""
        return self._reader.answer.is_over

    def feed(self, chunk: bytes) -> Iterator[Piece]:
        for event in self._body.feed(chunk):
            yield from self._read(event)

    def end(self) -> Iterator[Piece]:
        """The last pieces, when the body has ended in order."""
        for event in self._body.end():
            yield from self._read(event)
        if self._body.is_one_document and self._is_whole and not self._reader.answer.has_calls:
            # Also without a reason: of a text in one document nothing can be missing. A call needs a reason, as the end
            # of a first line and that of a document are the same where the line's own end was cut off.
            self._reader.answer.mark()
        if self._first and self._reader.answer.stand in (Stand.SILENT, Stand.BROKEN):
            raise faults.unreadable(self._first)
        yield from self._reader.end()

    def _read(self, event: BodyEvent) -> Iterator[Piece]:
        if self.is_over:
            return
        text = _PREFIX.sub("", event.data.strip())
        name, is_object = event.name.lower(), text.startswith("{")
        if name in _ALIVE or (not is_object and text.lower() in _ALIVE):
            return
        if (not is_object and _DONE.fullmatch(text)) or (name in _END_EVENTS and text in ("", "{}", "null")):
            self._reader.answer.mark()
            return
        try:
            value = _parse(text)
        except (ValueError, RecursionError):
            if event.name == "error":
                raise faults.fault_of_body(text) from None
            if text.startswith("<"):
                raise faults.page_within(text) from None
            if self._reader.answer.stand is Stand.SILENT and text[:1] not in ("{", "[", '"'):
                raise faults.fault_of_body(text) from None  # a sentence in place of an answer
            raise faults.unreadable(text) from None
        for each in value if isinstance(value, list) else (value,):
            yield from self._value(event.name, _decode(each))

    def _value(self, name: str, value: Json) -> Iterator[Piece]:
        if value is None or value == "":
            return
        if value == {"done": True}:
            self._reader.answer.mark()
            return
        if name == "error" or not isinstance(value, dict):
            raise faults.fault_of_body(value) if name == "error" else faults.unreadable(str(value))
        if name and "type" not in value and "choices" not in value:
            value = {"type": name, **value}
        value = self._unwrap(value)
        if is_report(value, is_answer=self._reader.is_answer(value)):
            raise faults.fault_of_body(value)
        if not self._first and self._reader.answer.stand is Stand.SILENT:
            self._first = text_of(value)[:FIRST_CHARS_MAX]
        try:
            self._is_whole = any(isinstance(each, dict) and "message" in each for each in value.get("choices") or ())
            answer, is_alone = self._reader.answer, True
            before, reasons = answer.stand, answer.reasons
            for piece in self._reader.read(value):
                is_alone = is_alone and isinstance(piece, Usage)
                self.has_said_all = self.has_said_all and is_alone
                yield piece
            has_ended = answer.reasons > reasons and (is_alone or before is Stand.SPEAKING)
            self.has_said_all |= has_ended and before is not Stand.SILENT and not answer.may_go_on
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # an event of another shape
            raise faults.unreadable(f"{type(error).__name__} in {text_of(value)}") from error

    def _unwrap(self, event: Mapping[str, Json]) -> Mapping[str, Json]:
        """The event of an answer, also where a gateway passes it on in a member of its own."""
        if not self._reader.is_answer(event):
            for name in _WRAPPERS:
                inner = _decode(event.get(name))
                if isinstance(inner, dict) and self._reader.is_answer(inner):
                    return inner
        return event


def text_of(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
