"""Checks the rules for all streams of our server on their bytes (docs/design/protocols.md).

The rules of HAI and AG-UI for any server are in `hai_flow_conformance.rules`, and only there; it shares no code with
the encoders either. Here are the rules for our own server alone: how it frames events, the narrower AG-UI that every
one of its clients takes, the threads' streams, the log, the Agent API.

Each function returns one sentence per fault, which begins with the rule that is broken. `faults_of` recognises the
dialect of a stream, so that a client of the tests need not know it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from hai_flow_conformance.rules import AGUI_TYPES, HAI_TYPES, TERMINAL, Dialect, judge
from hai_flow_conformance.streams import Event, Fault, read_message_pack, read_protobuf, read_sse


class _HasData(Protocol):
    @property
    def data(self) -> bytes: ...


_TURN = ("RUN_STARTED", "RUN_FINISHED")
_NAMES = ("messageId", "toolCallId", "stepName")


def lint(stream: bytes | Iterable[_HasData], *, whole: bool = True, dialect: Dialect | None = None) -> list[str]:
    """The faults of a stream of HAI or AG-UI: SSE bytes, or frames. Empty = none. `whole`: from its first event to its
    last; else a piece of one, of which only that is judged which no other piece could mend. Without `dialect` its
    events tell; a stream for an AG-UI peer of unknown version must be right for one of them."""
    events, faults = _read(stream)
    return faults + _lint(events, whole, dialect)


def lint_binary(stream: bytes, *, whole: bool = True) -> list[str]:
    """The faults of a stream in HAI's binary framing: frames behind their length; empty ones keep alive."""
    events, wrong = read_message_pack(stream)
    return [*([f"frames: {wrong}"] if wrong else []), *_lint(events, whole, Dialect.HAI)]


def lint_protobuf(stream: bytes) -> list[str]:
    """The faults of a complete stream in AG-UI's binary framing."""
    events, wrong = read_protobuf(stream)
    return [*([f"frames: {wrong}"] if wrong else []), *_lint(events, True, Dialect.AGUI), *_ours_in_agui(events, "1.0")]


def binary_events(stream: bytes) -> list[Any]:
    """The events that a client reads from a stream in HAI's binary framing, the empty frames left out."""
    return [event.value for event in read_message_pack(stream)[0]]


def _lint(events: Sequence[Event], whole: bool, dialect: Dialect | None) -> list[str]:
    candidates = (dialect,) if dialect else _dialects(events)
    judged = [judge(events, each, begun=whole, whole=whole) for each in candidates]
    return [*map(_sentence, min(judged, key=len)), *_after_the_end(events), *_empty_names(events)]


def _sentence(fault: Fault) -> str:
    return f"{fault.rule}: {fault.found}"


def _dialects(events: Sequence[Event]) -> tuple[Dialect, ...]:
    """The dialects that the events may be of. HAI's events are open to more properties: a stream that could be either
    is judged as HAI."""
    types = {event.type for event in events}
    named = all("messageId" in event.value for event in events if event.type in _TURN)
    return (Dialect.HAI,) if named and not types & (AGUI_TYPES - HAI_TYPES) else (Dialect.AGUI, Dialect.AGUI_0)


def _after_the_end(events: Sequence[Event]) -> list[str]:
    """Clients allow an error after a run's end; we never send one."""
    types = [event.type for event in events]
    return ["ours.one-end: RUN_ERROR after RUN_FINISHED"] if TERMINAL in itertools.pairwise(types) else []


def _empty_names(events: Sequence[Event]) -> list[str]:
    """Text to a client, but a name of nothing."""
    named = [(event.type, name) for event in events for name in _NAMES if event.value.get(name) == ""]
    return [f"ours.names: {type}: an empty {name}" for type, name in named]


def _read(stream: bytes | Iterable[_HasData]) -> tuple[list[Event], list[str]]:
    if isinstance(stream, bytes):
        events, faults = read_sse(stream)
        return events, [*map(_sentence, faults), *_framing_faults(stream)]
    documents = [frame.data for frame in stream]
    events, faults = read_sse(b"".join(b"data: " + data + b"\n\n" for data in documents))
    broken = ["ours.one-line: a frame with a line break" for data in documents if b"\n" in data or b"\r" in data]
    return events, [*map(_sentence, faults), *broken]


def _framing_faults(stream: bytes) -> list[str]:
    """Readers treat other lines, and several data lines for one event, in different ways; so neither may be sent."""
    faults: list[str] = []
    for block in filter(None, stream.split(b"\n\n")):
        lines = [line for line in block.split(b"\n") if line and not line.startswith(b":")]
        for line in lines:
            if not line.startswith((b"data: ", b"id: ", b"event: ")):
                faults.append(f"ours.lines: expected id:, event: or data: and a space, found {line[:60]!r}")
        if lines and sum(line.startswith(b"data: ") for line in lines) != 1:
            faults.append(f"ours.one-line: expected one data line per event, found {block[:60]!r}")
    return faults


def lint_log(stream: bytes) -> list[str]:
    """The faults of a stream of the log itself: each event under its seq and its type, one after the other."""
    faults: list[str] = []
    before: int | None = None
    for number, (block, data) in enumerate(zip(_blocks(stream), _documents(stream, faults), strict=False)):
        if b"event: auth.expired\n" in block:  # no event of the log: the reader has to authenticate again
            continue
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
    """The faults of SSE bytes of any dialect, which is recognised by its lines: the log and the threads' streams name
    their events, HAI's and AG-UI's do not."""
    names = [line for line in stream.split(b"\n") if line.startswith(b"event: ")]
    if stream.startswith(b'data: {"sequence_number":'):
        return lint_agent_api(stream, whole=whole)
    if not names:
        return lint(stream, whole=whole)
    return lint_social(stream) if names[0][7:].isupper() else lint_log(stream)


def lint_agent_api(stream: bytes, *, whole: bool = False) -> list[str]:
    """The faults of a response of the Agent API: numbers without a gap, contents inside of their message, one end."""
    faults: list[str] = ["stream.line-feeds: a carriage return"] if b"\r" in stream else []
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
    """The data of each event of SSE bytes."""
    _, found = read_sse(stream)
    faults += [_sentence(fault) for fault in found if fault.rule != "stream.one-object"]
    faults += _framing_faults(stream)
    lines = [line for block in _blocks(stream) for line in block.split(b"\n")]
    return [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]


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

# The events of AG-UI that we send, with their properties: no more than every one of its clients takes.
_SENT: dict[str, set[str]] = {
    "RUN_STARTED": {"threadId", "runId", "protocolVersion", "parentRunId"},
    "RUN_FINISHED": {"threadId", "runId", "result", "outcome", "usage"},
    "RUN_ERROR": {"message", "code"},
    "STEP_STARTED": {"stepName"},
    "STEP_FINISHED": {"stepName"},
    "TEXT_MESSAGE_START": {"messageId", "role", "name"},
    "TEXT_MESSAGE_CONTENT": {"messageId", "delta"},
    "TEXT_MESSAGE_END": {"messageId"},
    "TOOL_CALL_START": {"toolCallId", "toolCallName", "parentMessageId"},
    "TOOL_CALL_ARGS": {"toolCallId", "delta"},
    "TOOL_CALL_END": {"toolCallId"},
    "TOOL_CALL_RESULT": {"messageId", "toolCallId", "content", "role"},
    "STATE_SNAPSHOT": {"snapshot"},
    "STATE_DELTA": {"delta"},
    "MESSAGES_SNAPSHOT": {"messages"},
    "ACTIVITY_SNAPSHOT": {"messageId", "activityType", "content", "replace"},
    "REASONING_START": {"messageId"},
    "REASONING_END": {"messageId"},
    "REASONING_MESSAGE_START": {"messageId", "role"},
    "REASONING_MESSAGE_CONTENT": {"messageId", "delta"},
    "REASONING_MESSAGE_END": {"messageId"},
    "RAW": {"event", "source"},
    "CUSTOM": {"name", "value"},
}
AGUI_SENT = frozenset(_SENT)
_ALWAYS = {"type", "timestamp", "metadata"}
_OPERATION = {
    "add": {"op", "path", "value"},
    "replace": {"op", "path", "value"},
    "test": {"op", "path", "value"},
    "remove": {"op", "path"},
    "move": {"op", "path", "from"},
    "copy": {"op", "path", "from"},
}
_MESSAGE = {
    "user": {"id", "role", "content", "name"},
    "assistant": {"id", "role", "content", "toolCalls", "name", "metadata"},
    "tool": {"id", "role", "content", "toolCallId", "error"},
    "activity": {"id", "role", "activityType", "content"},
    "reasoning": {"id", "role", "content"},
}


def lint_agui(stream: bytes | Iterable[_HasData], version: str) -> list[str]:
    """The faults of a complete AG-UI stream for a peer of `version`: "1.0", or "0" for one that did not say."""
    events, faults = _read(stream)
    dialect = Dialect.AGUI if version == "1.0" else Dialect.AGUI_0
    return [*faults, *_lint(events, True, dialect), *_ours_in_agui(events, version)]


def _ours_in_agui(events: Sequence[Event], version: str) -> list[str]:
    return [f"ours.agui: {event.type}: {fault}" for event in events for fault in _agui_faults(event, version)]


def _agui_faults(event: Event, version: str) -> Iterable[str]:
    type, value = event.type, event.value
    if type not in _SENT:
        yield "we send no such event"
        return
    yield from (f"we send no {name}" for name in value if name not in _SENT[type] | _ALWAYS)
    if "metadata" in value and version != "1.0":
        yield "metadata came with 1.0"
    match type:
        case "RUN_STARTED" if "protocolVersion" not in value:
            yield "it must say which protocolVersion we speak"
        case "RUN_FINISHED" if "outcome" in value:
            yield from _outcome_faults(value["outcome"])
        case "TOOL_CALL_RESULT" if not isinstance(value.get("content"), str):
            yield "we send results as text"
        case "STATE_DELTA":
            unclean = (each for each in value.get("delta", ()) if set(each) != _OPERATION.get(each.get("op")))
            yield from (f"no clean operation: {each}" for each in unclean)
        case "MESSAGES_SNAPSHOT":
            for message in value.get("messages", ()):
                yield from _message_faults(message, version)


def _outcome_faults(outcome: Any) -> Iterable[str]:
    """An explicit success keeps assistant-ui from posting its answers
    (docs/design/protocols.md#no-outcome-while-a-tool-is-open)."""
    kind = outcome.get("type") if isinstance(outcome, dict) else None
    if kind == "success":
        yield "we never say success"
    elif kind is not None and set(outcome) != ({"type", "interrupts"} if kind == "interrupt" else {"type"}):
        yield f"an outcome {kind} with {sorted(outcome)}"


def _message_faults(message: dict[str, Any], version: str) -> Iterable[str]:
    role = message.get("role", "")
    if not set(message) <= _MESSAGE.get(role, set()):
        yield f"no message of ours: {message}"
    if version != "1.0" and (role == "reasoning" or "metadata" in message):
        yield f"a message of 1.0: {message}"
    content = message.get("content")
    if version != "1.0" and role == "user" and isinstance(content, list):
        unknown = (part for part in content if part["type"] not in ("text", "binary"))
        yield from (f"a part that 0.0.42 does not know: {part}" for part in unknown)
