"""The linter finds what it is there for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.wire.dialect import Frame
from tests.support.wire_lint import lint

START, FINISH = {"type": "RUN_STARTED", "timestamp": 1}, {"type": "RUN_FINISHED", "timestamp": 2}
CALL = {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"}
CALL_END = {"type": "TOOL_CALL_END", "toolCallId": "c"}


def frames(*events: Any) -> list[Frame]:
    return [Frame("", json.dumps(event).encode()) for event in events]


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + frame.data + b"\n\n" for frame in frames(*events))


def test_a_clean_stream_has_no_faults():
    text = {"messageId": "m", "delta": "x"}
    events = [
        START,
        {"type": "STEP_STARTED", "stepName": "s"},
        {"type": "BUSINESS_DATA_START", "messageId": "m"},
        {"type": "BUSINESS_DATA_CONTENT", **text},
        {"type": "BUSINESS_DATA_END", "messageId": "m"},
        {"type": "STATE_SNAPSHOT", "snapshot": None},
        CALL,
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"},
        CALL_END,
        {"type": "STEP_FINISHED", "stepName": "s"},
        FINISH,
    ]
    assert lint(frames(*events)) == []
    assert lint(b": keep-alive\n\n" + sse(*events)) == []
    assert lint(frames({"type": "RUN_ERROR", "message": "x"})) == []
    assert lint(frames(START, FINISH, START, FINISH)) == []


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([FINISH], "first event"),
        ([START], "without a terminal event"),
        ([START, FINISH, FINISH], "nothing may follow"),
        ([START, FINISH, {"type": "CUSTOM"}], "nothing may follow"),
        ([START, START, FINISH], "has no terminal event"),
        ([START | {"parentRunId": None}, FINISH], "parentRunId is null"),
        ([START | {"timestamp": 1.5}, FINISH], "not an integer"),
        ([START | {"timestamp": True}, FINISH], "not an integer"),
        ([START | {"timestamp": "1"}, FINISH], "not an integer"),
        ([START, {"type": "STEP_STARTED", "stepName": "s"}, FINISH], "still open"),
        ([START, CALL, FINISH], "still open"),
        ([START, *[{"type": "STEP_STARTED", "stepName": "s"}] * 2, {"type": "RUN_ERROR"}], "open already"),
        ([START, {"type": "STEP_FINISHED", "stepName": "s"}, FINISH], "not open"),
        ([START, {"type": "STEP_STARTED"}, {"type": "RUN_ERROR"}], "stepName must be text"),
        ([START, {"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": "x"}, FINISH], "not open"),
        ([START, CALL, {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": {}}, CALL_END, FINISH], "must be text"),
        ([START, CALL, CALL_END, CALL, CALL_END, FINISH], "history already"),
        (
            [
                START,
                {"type": "MESSAGE_SNAPSHOT", "messages": [{"id": "a", "toolCalls": [{"id": "c"}]}]},
                CALL,
                CALL_END,
                FINISH,
            ],
            "history already",
        ),
        ([START, {"type": "MESSAGE_SNAPSHOT", "messages": [{"id": "a", "name": None}]}, FINISH], "name is null"),
        ([START, {"type": "MESSAGE_SNAPSHOT", "messages": [{"id": "a"}] * 2}, FINISH], "two messages"),
        ([START, 5, FINISH], "object with a type"),
    ],
)
def test_a_fault_is_named(events, fault):
    assert len(lint(frames(*events))) == 1
    assert fault in lint(frames(*events))[0]
    assert lint(sse(*events)) == lint(frames(*events))


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        (sse(START, FINISH).replace(b"\n", b"\r\n"), "a CR"),
        (sse(START, FINISH)[:-1], "blank line"),
        (sse(START, FINISH).replace(b"data: ", b"data:"), "and a space"),
        (b"data: " + sse(START, FINISH), "not JSON"),
        (sse(START, FINISH) + b"data: 1\ndata: 2\n\n", "one data line"),
        (sse(START, FINISH) + b"id: 5\n\n", "one data line"),
        (sse(START, FINISH) + b"retry: 5\n\n", "expected id:"),
    ],
)
def test_bytes_that_clients_cannot_read_are_named(stream, fault):
    assert any(fault in found for found in lint(stream))


def test_a_frame_has_no_line_breaks():
    assert any("line break" in fault for fault in lint([Frame("", b'{"type":\n"RUN_ERROR"}')]))
