"""What every stream must obey, checked on its bytes (PROTOCOLS sections 0, 1.4, 1.5, 2, 3).

`lint` (HAI, and what AG-UI has in common with it), `lint_social` and `lint_log` return one sentence per fault;
`faults_of` finds out which it is, so that a client of the tests need not know what it reads. They share no code with
the encoders.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec


class _HasData(Protocol):
    @property
    def data(self) -> bytes: ...


# START type -> (CONTENT types, END type, field that names what is open)
_BRACKETS = {
    "STEP_STARTED": ((), "STEP_FINISHED", "stepName"),
    "BUSINESS_DATA_START": (("BUSINESS_DATA_CONTENT",), "BUSINESS_DATA_END", "messageId"),
    "TEXT_MESSAGE_START": (("TEXT_MESSAGE_CONTENT",), "TEXT_MESSAGE_END", "messageId"),
    "TOOL_CALL_START": (("TOOL_CALL_ARGS",), "TOOL_CALL_END", "toolCallId"),
    "REASONING_START": ((), "REASONING_END", "messageId"),
    "REASONING_MESSAGE_START": (("REASONING_MESSAGE_CONTENT",), "REASONING_MESSAGE_END", "messageId"),
}
_STARTS = {type: (type, field) for type, (_, _, field) in _BRACKETS.items()}
_CONTENTS = {content: (type, field) for type, (contents, _, field) in _BRACKETS.items() for content in contents}
_ENDS = {end: (type, field) for type, (_, end, field) in _BRACKETS.items()}
_TERMINAL = ("RUN_FINISHED", "RUN_ERROR")
_SNAPSHOTS = ("MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT")
# Their values are somebody's JSON, in which null is a value like any other.
_FREE = ("snapshot", "value", "result", "event", "rawEvent", "metadata", "extra", "content")


def lint(stream: bytes | Iterable[_HasData], *, whole: bool = True) -> list[str]:
    """The faults of a stream: SSE bytes, or frames. Empty = none. `whole`: from its first event to its last; else a
    piece of one, of which only that is judged which no other piece could mend."""
    faults: list[str] = []
    documents = _documents(stream, faults) if isinstance(stream, bytes) else [frame.data for frame in stream]
    linter = _Linter(faults, whole)
    for number, data in enumerate(documents):
        event = _event_of(number, data, faults)
        if event is not None:
            linter.event(f"event {number} {event['type']}", event["type"], event)
    linter.end()
    return faults


def lint_binary(stream: bytes, *, whole: bool = True) -> list[str]:
    """The faults of a stream in HAI's binary framing: frames behind their length; empty ones keep alive."""
    faults: list[str] = []
    frames = [_Data(json.dumps(event).encode()) for event in binary_events(stream, faults)]
    return faults + lint(frames, whole=whole)


def lint_log(stream: bytes) -> list[str]:
    """The faults of a stream of the log itself: each event under its seq and its type, one after the other."""
    faults: list[str] = []
    before: int | None = None
    for number, (block, data) in enumerate(zip(_blocks(stream), _documents(stream, faults), strict=False)):
        event = _event_of(number, data, faults, "seq")
        if event is None or "type" not in event:  # a reset
            continue
        if f"event: {event['type']}\n".encode() not in block or f"id: {event['seq']}\n".encode() not in block:
            faults.append(f"event {number}: its lines must name its type and its seq")
        if before is not None and event["seq"] != before + 1:
            faults.append(f"event {number}: {event['seq']} follows {before}")
        before = event["seq"]
    return faults


def faults_of(stream: bytes, *, whole: bool = False) -> list[str]:
    """The faults of SSE bytes of any dialect, told by their lines: the log and the threads' streams name their events,
    HAI's and AG-UI's do not."""
    names = [line for line in stream.split(b"\n") if line.startswith(b"event: ")]
    if stream.startswith(b'data: {"sequence_number":'):
        return lint_agent_api(stream, whole=whole)
    if not names:
        return lint(stream, whole=whole)
    return lint_social(stream) if names[0][7:].isupper() else lint_log(stream)


def lint_agent_api(stream: bytes, *, whole: bool = False) -> list[str]:
    """The faults of a response of the Agent API: numbers without a gap, contents inside of their message, one end."""
    faults: list[str] = ["a carriage return"] if b"\r" in stream else []
    open_messages: set[str] = set()
    statuses: list[str] = []
    blocks = [block[6:] for block in stream.split(b"\n\n") if block.startswith(b"data: ")]
    for number, data in enumerate(blocks):
        shown = _event_of(number, data, faults, "object")
        if shown is None:
            continue
        if shown.get("sequence_number") != number:
            faults.append(f"object {number}: sequence_number {shown.get('sequence_number')}")
        match shown["object"], shown.get("status"):
            case "response", status:
                statuses.append(str(status))
            case "message", "in_progress" if shown["id"] not in open_messages:
                open_messages.add(shown["id"])
                if shown["content"] is not None:
                    faults.append(f"object {number}: a message with content before any was said")
            case "message", "completed" | "incomplete" if shown["id"] in open_messages:
                open_messages.remove(shown["id"])
            case "message", status:
                faults.append(f"object {number}: a message that is {status} out of turn")
            case "content", _ if shown["msg_id"] not in open_messages:
                faults.append(f"object {number}: a content outside of its message")
    if statuses[:2] != ["created", "in_progress"] or (whole and len(statuses) != 3) or (whole and open_messages):
        faults.append(f"expected created, in_progress and one end, found {statuses}, open {sorted(open_messages)}")
    return faults


class _Data:
    def __init__(self, data: bytes) -> None:
        self.data = data


def binary_events(stream: bytes, faults: list[str] | None = None) -> list[Any]:
    """What a client makes of a stream in the binary framing, the empty frames left out."""
    events: list[Any] = []
    position = 0
    while position + 4 <= len(stream):
        (length,) = struct.unpack_from(">I", stream, position)
        position += 4
        payload = stream[position : position + length]
        position += length
        if len(payload) == length and payload:
            events.append(msgspec.msgpack.decode(payload))
    if position != len(stream) and faults is not None:
        faults.append("the last frame is cut off")
    return events


def _event_of(number: int, data: bytes, faults: list[str], key: str = "type") -> dict[str, Any] | None:
    if b"\n" in data or b"\r" in data:
        faults.append(f"event {number}: a line break inside its data")
    try:
        event = json.loads(data)
    except ValueError as error:
        faults.append(f"event {number}: not JSON: {error}")
        return None
    if isinstance(event, dict) and isinstance(event.get(key), str | int):
        return event
    faults.append(f"event {number}: expected an object with a {key}")
    return None


def _blocks(stream: bytes) -> list[bytes]:
    """The events of SSE bytes, without the comments."""
    lines = [b"\n".join(line for line in block.split(b"\n") if line[:1] != b":") for block in stream.split(b"\n\n")]
    return [block + b"\n" for block in lines if block]


def _documents(stream: bytes, faults: list[str]) -> list[bytes]:
    if b"\r" in stream:
        faults.append("a CR in the stream: only LF ends a line")
    if stream and not stream.endswith(b"\n\n"):
        faults.append("the last event lacks its blank line")
    documents: list[bytes] = []
    for block in filter(None, stream.split(b"\n\n")):
        lines = [line for line in block.split(b"\n") if not line.startswith(b":")]
        data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
        for line in lines:
            if not line.startswith((b"data: ", b"id: ", b"event: ")):
                faults.append(f"expected id:, event: or data: and a space, found {line[:60]!r}")
        if lines and len(data) != 1:
            faults.append(f"expected one data line per event, found {len(data)}")
        documents += data
    return documents


class _Linter:
    def __init__(self, faults: list[str], whole: bool = True) -> None:
        self._faults = faults
        self._whole = whole
        self._first = whole
        self._before = not whole  # what was opened in a piece that is not here
        self._running = False
        self._open: dict[tuple[str, str], None] = {}
        self._calls: set[str] = set()

    def event(self, where: str, type: str, event: dict[str, Any]) -> None:
        self._nulls(where, event)
        timestamp = event.get("timestamp", 0)
        if not isinstance(timestamp, int) or isinstance(timestamp, bool):
            self._fault(f"{where}: the timestamp {timestamp!r} is not an integer")
        self._lifecycle(where, type)
        if type in _STARTS:
            self._start(where, type, event)
        elif type in _CONTENTS:
            self._content(where, type, event)
        elif type in _ENDS:
            self._end(where, type, event)
        elif type in _SNAPSHOTS:
            self._snapshot(where, event)

    def end(self) -> None:
        if self._running and self._whole:
            self._fault("the stream ends without a terminal event")

    def _fault(self, text: str) -> None:
        self._faults.append(text)

    def _nulls(self, where: str, record: dict[str, Any]) -> None:
        for name, value in record.items():
            if value is None and name not in _FREE:
                self._fault(f"{where}: {name} is null; leave it out")

    def _lifecycle(self, where: str, type: str) -> None:
        if self._first and type not in ("RUN_STARTED", "RUN_ERROR"):
            self._fault(f"{where}: the first event must be RUN_STARTED or RUN_ERROR")
        elif type == "RUN_STARTED" and self._running and not self._before:
            self._fault(f"{where}: the run before has no terminal event")
        elif type != "RUN_STARTED" and not self._running and not self._first and not self._before:
            self._fault(f"{where}: nothing may follow a terminal event but RUN_STARTED")
        self._first = False
        if type == "RUN_FINISHED":
            for kind, name in self._open:
                self._fault(f"{where}: {kind} {name!r} is still open")
        if type == "RUN_STARTED" or type in _TERMINAL:
            self._running, self._before = type == "RUN_STARTED", False
            self._open.clear()

    def _start(self, where: str, type: str, event: dict[str, Any]) -> None:
        name = self._name(where, _STARTS[type][1], event)
        if (type, name) in self._open:
            self._fault(f"{where}: {name!r} is open already")
        self._open[type, name] = None
        if type == "TOOL_CALL_START":
            if name in self._calls:
                self._fault(f"{where}: the call {name!r} is in the client's history already")
            self._calls.add(name)

    def _content(self, where: str, type: str, event: dict[str, Any]) -> None:
        kind, field = _CONTENTS[type]
        name = self._name(where, field, event)
        if (kind, name) not in self._open and not self._before:
            self._fault(f"{where}: {name!r} is not open")
        if not isinstance(event.get("delta"), str) or not event["delta"]:
            self._fault(f"{where}: the delta must be text and not empty")

    def _end(self, where: str, type: str, event: dict[str, Any]) -> None:
        kind, field = _ENDS[type]
        name = self._name(where, field, event)
        if (kind, name) not in self._open and not self._before:
            self._fault(f"{where}: {name!r} is not open")
        self._open.pop((kind, name), None)

    def _snapshot(self, where: str, event: dict[str, Any]) -> None:
        seen: set[str] = set()
        for message in event.get("messages", ()):
            self._nulls(where, message)
            if message["id"] in seen:
                self._fault(f"{where}: two messages have the id {message['id']!r}")
            seen.add(message["id"])
            self._calls.update(call["id"] for call in message.get("toolCalls", ()))

    def _name(self, where: str, field: str, event: dict[str, Any]) -> str:
        name = event.get(field)
        if isinstance(name, str) and name:
            return name
        self._fault(f"{where}: {field} must be text")
        return ""


# --- the threads' streams -----------------------------------------------------------------------------------------

_HEAD = ("type", "threadId", "runId")
_CALL = (*_HEAD, "messageId", "toolCallId", "toolCallName")
# The fields of the document, all of them always there and in its order.
_SOCIAL = {
    "RUN_STARTED": _HEAD,
    "RUN_FINISHED": _HEAD,
    "RUN_ERROR": (*_HEAD, "message", "code"),
    "STEP_STARTED": (*_HEAD, "stepName"),
    "STEP_FINISHED": (*_HEAD, "stepName"),
    "TOOL_CALL_START": (*_CALL, "stage"),
    "TOOL_CALL_ARGS": (*_CALL, "args", "stage"),
    "TOOL_CALL_END": (*_CALL, "stage"),
    "TOOL_CALL_RESULT": (
        *_HEAD, "messageId", "role", "stage", "tool_name", "tool_call_id", "tool_call_args", "status", "result", "error"
    ),
    "TEXT_MESSAGE_END": (
        *_HEAD, "messageId", "role", "stage", "status", "answer", "key_points", "result_type", "suggested_actions",
        "error", "ui_schema",
    ),
    "STATE_SNAPSHOT": (*_HEAD, "snapshot"),
    "MESSAGES_SNAPSHOT": (*_HEAD, "messages"),
}  # fmt: skip
_ADDED = {"RUN_FINISHED": {"status", "pendings"}}
_MAY_BE_NULL = ("code", "error")


def lint_social(stream: bytes) -> list[str]:
    """The faults of a piece of a thread's stream."""
    faults: list[str] = []
    linter = _SocialLinter(faults)
    for number, (block, data) in enumerate(zip(_blocks(stream), _documents(stream, faults), strict=False)):
        event = _event_of(number, data, faults)
        if event is not None:
            linter.event(f"event {number} {event['type']}", block, event)
    return faults


class _SocialLinter:
    def __init__(self, faults: list[str]) -> None:
        self._faults = faults
        self._steps: set[str] = set()
        self._calls: dict[str, list[str]] = {}
        self._said: set[str] = set()
        self._ids: set[bytes] = set()

    def event(self, where: str, block: bytes, event: dict[str, Any]) -> None:
        type = event["type"]
        if f"event: {type}\n".encode() not in block:
            self._fault(f"{where}: its line `event:` must name its type")
        for line in block.split(b"\n"):
            if line.startswith(b"id: "):
                if line in self._ids:
                    self._fault(f"{where}: its id is another event's")
                self._ids.add(line)
        fields = _SOCIAL.get(type)
        if fields is None:
            self._fault(f"{where}: the document knows no such event")
            return
        shown = [name for name in event if name not in _ADDED.get(type, ())]
        if shown != list(fields):
            self._fault(f"{where}: expected the fields {', '.join(fields)}, found {', '.join(shown)}")
            return
        for name, value in event.items():
            if value is None and name not in (*_MAY_BE_NULL, "snapshot"):
                self._fault(f"{where}: {name} is null")
        if not all(isinstance(event[name], str) and event[name] for name in _HEAD):
            self._fault(f"{where}: threadId and runId must be text")
        self._order(where, type, event)

    def _order(self, where: str, type: str, event: dict[str, Any]) -> None:
        match type:
            case "RUN_STARTED":
                self._steps.clear()
            case "STEP_STARTED":
                if event["stepName"] in self._steps:
                    self._fault(f"{where}: {event['stepName']!r} is open already")
                self._steps.add(event["stepName"])
            case "STEP_FINISHED":
                self._steps.discard(event["stepName"])
            case "RUN_FINISHED" if self._steps:
                self._fault(f"{where}: {sorted(self._steps)} are still open")
            case "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_END":
                so_far = self._calls.setdefault(event["toolCallId"], [])
                so_far.append(type.removeprefix("TOOL_CALL_"))
                if so_far not in (["START"], ["ARGS"], ["END"], *_CALLED):
                    self._fault(f"{where}: {', '.join(so_far)} of one call")
                if not isinstance(event.get("args", {}), dict):
                    self._fault(f"{where}: args must be an object")
            case "TOOL_CALL_RESULT" if event["status"] not in ("success", "failure", "partial"):
                self._fault(f"{where}: the status {event['status']!r} is none of the document's")
            case "TEXT_MESSAGE_END":
                if event["messageId"] in self._said:
                    self._fault(f"{where}: the message {event['messageId']!r} was complete already")
                self._said.add(event["messageId"])
                if event["status"] not in ("success", "partial_success", "failed"):
                    self._fault(f"{where}: the status {event['status']!r} is none of the document's")

    def _fault(self, text: str) -> None:
        self._faults.append(text)


_CALLED = (["START", "ARGS"], ["START", "ARGS", "END"], ["ARGS", "END"])
# --- AG-UI --------------------------------------------------------------------------------------------------------

# type -> (required fields with their types, optional ones); `type`, `timestamp` and `metadata` may always be there.
_ANY, _LIST, _MAP = object, list, dict
_AGUI: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "RUN_STARTED": ({"threadId": str, "runId": str, "protocolVersion": str}, {"parentRunId": str}),
    "RUN_FINISHED": ({"threadId": str, "runId": str}, {"result": _ANY, "outcome": _MAP}),
    "RUN_ERROR": ({"message": str}, {"code": str}),
    "STEP_STARTED": ({"stepName": str}, {}),
    "STEP_FINISHED": ({"stepName": str}, {}),
    "TEXT_MESSAGE_START": ({"messageId": str}, {"role": str, "name": str}),
    "TEXT_MESSAGE_CONTENT": ({"messageId": str, "delta": str}, {}),
    "TEXT_MESSAGE_END": ({"messageId": str}, {}),
    "TOOL_CALL_START": ({"toolCallId": str, "toolCallName": str}, {"parentMessageId": str}),
    "TOOL_CALL_ARGS": ({"toolCallId": str, "delta": str}, {}),
    "TOOL_CALL_END": ({"toolCallId": str}, {}),
    "TOOL_CALL_RESULT": ({"messageId": str, "toolCallId": str, "content": str}, {"role": str}),
    "STATE_SNAPSHOT": ({"snapshot": _ANY}, {}),
    "STATE_DELTA": ({"delta": _LIST}, {}),
    "MESSAGES_SNAPSHOT": ({"messages": _LIST}, {}),
    "ACTIVITY_SNAPSHOT": ({"messageId": str, "activityType": str, "content": _MAP}, {"replace": bool}),
    "REASONING_START": ({"messageId": str}, {}),
    "REASONING_END": ({"messageId": str}, {}),
    "REASONING_MESSAGE_START": ({"messageId": str, "role": str}, {}),
    "REASONING_MESSAGE_CONTENT": ({"messageId": str, "delta": str}, {}),
    "REASONING_MESSAGE_END": ({"messageId": str}, {}),
    "RAW": ({"event": _ANY}, {"source": str}),
    "CUSTOM": ({"name": str, "value": _ANY}, {}),
}
AGUI_TYPES = frozenset(_AGUI)
_ALWAYS: dict[str, type] = {"type": str, "timestamp": int, "metadata": _MAP}
_OPERATION_FIELDS = {
    "add": {"op", "path", "value"},
    "replace": {"op", "path", "value"},
    "test": {"op", "path", "value"},
    "remove": {"op", "path"},
    "move": {"op", "path", "from"},
    "copy": {"op", "path", "from"},
}


def lint_agui(stream: bytes | Iterable[_HasData], version: str) -> list[str]:
    """The faults of a complete AG-UI stream for a peer of `version`: "1.0", or "0" for one that did not say."""
    frames = stream if isinstance(stream, bytes) else list(stream)
    faults = lint(frames)
    documents = _documents(frames, []) if isinstance(frames, bytes) else [frame.data for frame in frames]
    run: dict[str, Any] = {}
    for number, data in enumerate(documents):
        event = json.loads(data)
        where = f"event {number} {event.get('type')}"
        faults += [f"{where}: {fault}" for fault in _agui_faults(event, version)]
        if event.get("type") == "RUN_STARTED":
            run = event
        elif event.get("type") == "RUN_FINISHED":
            for name in ("threadId", "runId"):
                if event.get(name) != run.get(name):
                    faults.append(f"{where}: {name} is not that of RUN_STARTED")
    return faults


def _agui_faults(event: dict[str, Any], version: str) -> Iterable[str]:
    type = event.get("type", "")
    if type not in _AGUI:
        yield "no event of AG-UI"
        return
    required, optional = _AGUI[type]
    known = required | optional | _ALWAYS
    for name in required:
        if name not in event:
            yield f"{name} is missing"
    for name, value in event.items():
        if name not in known:
            yield f"{name} is no field of it"
        elif not isinstance(value, known[name]):
            yield f"{name} has the wrong type"
    if "metadata" in event and version != "1.0":
        yield "metadata came with 1.0"
    if type == "RUN_FINISHED" and "outcome" in event:
        yield from _outcome_faults(event["outcome"], version)
    if type == "STATE_DELTA":
        for operation in event["delta"]:
            if set(operation) != _OPERATION_FIELDS.get(operation.get("op"), set()):
                yield f"no clean operation: {operation}"
    if type == "MESSAGES_SNAPSHOT":
        for message in event["messages"]:
            yield from _message_faults(message, version)


def _outcome_faults(outcome: dict[str, Any], version: str) -> Iterable[str]:
    match outcome.get("type"):
        case "interrupt":
            interrupts = outcome.get("interrupts", [])
            ids = [each["id"] for each in interrupts]
            if not ids or len(set(ids)) != len(ids) or set(outcome) != {"type", "interrupts"}:
                yield f"no clean list of interrupts: {ids}"
            for each in interrupts:
                if None in each.values() or not isinstance(each.get("reason"), str):
                    yield f"no clean interrupt: {each}"
                if "expiresAt" in each and version != "1.0":
                    yield "an older client cannot even cancel what has expired"
        case "cancelled" if version == "1.0":
            if set(outcome) != {"type"}:
                yield "cancelled says nothing else"
        case other:
            yield f"the outcome {other!r} is not for everybody"


_MESSAGE_FIELDS = {
    "user": {"id", "role", "content", "name"},
    "assistant": {"id", "role", "content", "toolCalls", "name", "metadata"},
    "tool": {"id", "role", "content", "toolCallId", "error"},
    "activity": {"id", "role", "activityType", "content"},
    "reasoning": {"id", "role", "content"},
}


def _message_faults(message: dict[str, Any], version: str) -> Iterable[str]:
    role = message.get("role", "")
    if not set(message) <= _MESSAGE_FIELDS.get(role, set()):
        yield f"no message of AG-UI: {message}"
    if version != "1.0" and (role == "reasoning" or "metadata" in message):
        yield f"a message of 1.0: {message}"
    if role == "user" and isinstance(message["content"], list):
        kinds = {"text", "binary"} if version != "1.0" else {"text", "image", "audio", "video", "document"}
        yield from (f"no content part: {part}" for part in message["content"] if part["type"] not in kinds)
    for call in message.get("toolCalls", ()):
        if not isinstance(call["function"]["arguments"], str):
            yield f"arguments are text: {call}"
