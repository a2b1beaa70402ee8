"""One stream for each rule, which breaks that rule and no other: what any linter of such streams has to find."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hai_flow_conformance import Dialect

HAI, AGUI, OLD = Dialect.HAI, Dialect.AGUI, Dialect.AGUI_0

BEGUN = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
DONE = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
HAI_BEGUN = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "messageId": "m0", "role": "assistant"}
HAI_DONE = HAI_BEGUN | {"type": "RUN_FINISHED"}
DATA = [
    {"type": "BUSINESS_DATA_START", "messageId": "m", "role": "assistant"},
    {"type": "BUSINESS_DATA_END", "messageId": "m"},
]
TEXT = [{"type": "TEXT_MESSAGE_START", "messageId": "m"}, {"type": "TEXT_MESSAGE_END", "messageId": "m"}]
SAID = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"}
STEP = {"type": "STEP_STARTED", "stepName": "s"}
STEP_DONE = {"type": "STEP_FINISHED", "stepName": "s"}
CALL = [
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"},
    {"type": "TOOL_CALL_END", "toolCallId": "c"},
]
FUNCTION = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
CALLED = {"id": "a", "role": "assistant", "toolCalls": [FUNCTION]}
INTERRUPT = {"id": "i", "reason": "confirmation"}
ERROR = {"type": "RUN_ERROR", "message": "x"}
NOTE = {"type": "CUSTOM", "name": "n", "value": None}


class Violator(NamedTuple):
    rule: str
    dialect: Dialect
    events: list[Any]

    @property
    def stream(self) -> bytes:
        return sse(*self.events)


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def content(delta: Any) -> dict[str, Any]:
    return {"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": delta}


def snapshot(*messages: Any) -> dict[str, Any]:
    return {"type": "MESSAGES_SNAPSHOT", "messages": list(messages)}


def user(**fields: Any) -> dict[str, Any]:
    return {"id": "u", "role": "user", "content": "x"} | fields


def _agui(rule: str, *events: Any) -> Violator:
    return Violator(rule, AGUI, [BEGUN, *events, DONE])


def _old(rule: str, *events: Any) -> Violator:
    return Violator(rule, OLD, [BEGUN, *events, DONE])


def _hai(rule: str, *events: Any) -> Violator:
    return Violator(rule, HAI, [HAI_BEGUN, *events, HAI_DONE])


def _ends(rule: str, dialect: Dialect, **fields: Any) -> Violator:
    return Violator(rule, dialect, [BEGUN, DONE | fields])


def _interrupted(*interrupts: Any) -> dict[str, Any]:
    return {"type": "interrupt", "interrupts": list(interrupts)}


NO_OPERATIONS = [
    "x",
    {"op": "put", "path": ""},
    {"op": "add", "path": ""},
    {"op": "move", "path": ""},
    {"op": "remove"},
]
NO_INTERRUPTS = [[], [{}], ["i"], [{"id": "i"}], [INTERRUPT, INTERRUPT]]
VIOLATORS = [
    # --- one after the other
    Violator("stream.first", AGUI, [NOTE, DONE]),
    Violator("stream.first", AGUI, [BEGUN, BEGUN, DONE]),
    Violator("stream.terminal", AGUI, [BEGUN, NOTE]),
    Violator("stream.terminal", HAI, [HAI_BEGUN]),
    Violator("stream.terminal", AGUI, []),
    Violator("stream.nothing-after", AGUI, [BEGUN, DONE, DONE]),
    Violator("stream.nothing-after", AGUI, [BEGUN, ERROR, ERROR]),
    Violator("stream.nothing-after", HAI, [HAI_BEGUN, HAI_DONE, NOTE, HAI_BEGUN, HAI_DONE]),
    _hai("stream.brackets", DATA[0]),
    _hai("stream.brackets", content("x")),
    _hai("stream.brackets", DATA[1]),
    _hai("stream.brackets", DATA[0], DATA[0], DATA[1]),
    _agui("stream.brackets", TEXT[0]),
    _agui("stream.brackets", SAID),
    _agui("stream.brackets", CALL[1]),
    _agui("stream.brackets", CALL[2]),
    _agui("stream.brackets", *CALL[:2]),
    _agui("stream.brackets", {"type": "REASONING_START", "messageId": "m"}),
    _agui("stream.brackets", {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m", "delta": "x"}),
    _agui("stream.brackets", {"type": "REASONING_MESSAGE_END", "messageId": "m"}),
    _agui("stream.brackets", {"type": "SUBAGENT_STARTED", "subagentRunId": "a", "name": "n"}),
    _hai("stream.brackets", {"type": "AGENT_COLLABORATIVE_MESSAGE_END", "messageId": "m"}),
    _agui("stream.steps", STEP),
    _agui("stream.steps", STEP, STEP, STEP_DONE),
    _hai("stream.steps", STEP_DONE),
    _agui("stream.calls-once", *CALL, *CALL),
    _agui("stream.calls-once", snapshot(CALLED), *CALL),
    _hai("stream.calls-once", snapshot(CALLED) | {"type": "MESSAGE_SNAPSHOT"}, *CALL),
    _agui("stream.arguments", *CALL[:2], *CALL[1:]),
    _hai("stream.arguments", CALL[0], CALL[1] | {"delta": "[]"}, CALL[2]),
    _ends("stream.ids", AGUI, runId="other"),
    _ends("stream.ids", OLD, threadId="other"),
    Violator("stream.ids", HAI, [HAI_BEGUN, HAI_DONE | {"runId": "other"}]),
    # --- fields
    _ends("stream.no-nulls", AGUI, usage=None),
    _agui("stream.no-nulls", {"type": "RAW", "event": None, "source": None}),
    _agui("stream.no-nulls", snapshot(user(name=None))),
    _ends("stream.no-nulls", AGUI, outcome=_interrupted(INTERRUPT | {"message": None})),
    _hai("stream.no-nulls", CALL[0] | {"parentMessageId": None}, *CALL[1:]),
    *(_agui("stream.timestamps", NOTE | {"timestamp": at}) for at in (1.5, "1", True, 1 << 53)),
    _agui("stream.fields", {"type": "CUSTOM", "value": 1}),
    _agui("stream.fields", {"type": "STATE_SNAPSHOT"}),
    _agui("stream.fields", STEP | {"stepName": 1}),
    _agui("stream.fields", NOTE | {"metadata": []}),
    _agui("stream.fields", TEXT[0] | {"role": "tool"}, TEXT[1]),
    _agui("stream.fields", {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": {}}),
    _ends("stream.fields", AGUI, usage={}),
    Violator("stream.fields", HAI, [HAI_BEGUN, {"type": "RUN_FINISHED", "messageId": "m0"}]),
    _hai("stream.fields", DATA[0], content("x") | {"blockId": 1}, DATA[1]),
    _agui("stream.unknown-fields", NOTE | {"id": "x"}),
    _agui("stream.unknown-fields", snapshot(user(timestamp=1))),
    _ends("stream.unknown-fields", AGUI, subagentRunId="a"),
    _agui("stream.deltas", TEXT[0], SAID | {"delta": {}}, TEXT[1]),
    _agui("stream.deltas", {"type": "STATE_DELTA", "delta": "[]"}),
    _hai("stream.deltas", DATA[0], content({"output": {}}), DATA[1]),
    _hai("stream.deltas", {"type": "STATE_DELTA"}),
    _agui("stream.empty-deltas", TEXT[0], SAID | {"delta": ""}, TEXT[1]),
    _hai("stream.empty-deltas", DATA[0], content(""), DATA[1]),
    _agui("stream.types", {"type": "BUSINESS_DATA_END", "messageId": "m"}),
    _hai("stream.types", {"type": "TEXT_MESSAGE_START", "messageId": "m"}),
    # --- what they carry
    _agui("stream.messages", snapshot({"role": "user", "content": "x"})),
    _agui("stream.messages", snapshot("x")),
    _agui("stream.messages", snapshot(user(), user())),
    _agui("stream.messages", snapshot(user(role="owner"))),
    _agui("stream.messages", snapshot({"id": "u", "role": "user"})),
    _agui("stream.messages", snapshot({"id": "u", "role": "tool", "content": "x"})),
    _agui("stream.messages", snapshot(user(content=[{"type": "image"}]))),
    _agui("stream.messages", snapshot(user(content=[{"type": "image", "source": {"type": "data", "value": "x"}}]))),
    _agui("stream.messages", snapshot(user(content=[{"type": "binary", "mimeType": "image/png", "data": "x"}]))),
    _agui("stream.messages", snapshot({"id": "a", "role": "assistant", "toolCalls": [{"id": "c"}]})),
    _agui("stream.messages", snapshot({"id": "a", "role": "assistant", "toolCalls": [FUNCTION | {"type": "x"}]})),
    _hai("stream.messages", snapshot({"id": "a", "role": "activity"})),
    *(_agui("stream.patches", {"type": "STATE_DELTA", "delta": [each]}) for each in NO_OPERATIONS),
    _agui("stream.patches", {"type": "ACTIVITY_DELTA", "messageId": "m", "activityType": "a", "patch": [{}]}),
    _hai("stream.patches", {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/a", "from": ""}]}),
    *(_ends("stream.outcome", AGUI, outcome=outcome) for outcome in ("interrupt", 5, True, {}, {"type": "done"})),
    *(_ends("stream.outcome", AGUI, outcome=_interrupted(*each)) for each in NO_INTERRUPTS),
    _ends("stream.outcome", OLD, outcome=5),
    _hai("hai.documents", DATA[0], content('{"output":{"type":"text","content":"a}{b"},"layout":{}}'), DATA[1]),
    # --- peers of 0.x
    _old("old.types", {"type": "SUBAGENT_ERROR", "subagentRunId": "a", "message": "x"}),
    _old("old.types", {"type": "THOUGHT"}),
    _ends("old.outcome", OLD, outcome={"type": "cancelled"}),
    _ends("old.outcome", OLD, outcome={"type": "success", "pendingToolCallIds": []}),
    _ends("old.expiry", OLD, outcome=_interrupted(INTERRUPT | {"expiresAt": "2026-01-01T00:00:00Z"})),
    _old("old.deltas", TEXT[0], SAID | {"delta": ""}, TEXT[1]),
]

# Not valid JSON, or not bytes that a client reads: the reader's rules.
UNREADABLE = [
    ("stream.line-feeds", sse(BEGUN, DONE).replace(b"\n", b"\r\n")),
    ("stream.line-feeds", sse(BEGUN, DONE).replace(b"\n\n", b"\r\r")),
    ("stream.last-blank", sse(BEGUN, DONE)[:-1]),
    ("stream.data-space", sse(BEGUN, DONE).replace(b"data: ", b"data:")),
    ("stream.one-object", sse(BEGUN, 5, DONE)),
    ("stream.one-object", sse(BEGUN, {"type": 1}, DONE)),
    ("stream.one-object", sse(BEGUN, [], DONE)),
    ("stream.one-object", sse(BEGUN) + b"data: " + sse(DONE)),
    ("stream.one-object", sse(BEGUN, DONE) + b"data: [DONE]\n\n"),
    ("stream.one-object", sse(BEGUN, NOTE | {"value": float("nan")}, DONE)),
    ("stream.one-object", sse(BEGUN, DONE).replace(b'"r"', b'"\xff"')),
]
