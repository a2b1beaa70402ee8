"""The linter finds what it is there for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.wire.dialect import Frame
from hai_flow.wire.framing import MESSAGE_PACK
from hai_flow.wire.sse import event_bytes
from tests.support.wire_lint import faults_of, lint, lint_binary, lint_log, lint_social

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


# --- pieces of streams --------------------------------------------------------------------------------------------


def test_a_piece_of_a_stream_may_lack_its_beginning_and_its_end():
    piece = sse({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": "x"}, CALL_END, CALL | {"toolCallId": "d"})
    assert len(lint(piece)) > 1
    assert lint(piece, whole=False) == []
    assert faults_of(piece) == []


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([FINISH, START, CALL_END, FINISH], "not open"),
        ([{"type": "CUSTOM", "name": None}], "name is null"),
        ([START | {"timestamp": 1.5}], "not an integer"),
        ([START, START], "has no terminal event"),
        ([START, FINISH, CALL], "nothing may follow"),
    ],
)
def test_a_piece_shows_the_faults_that_no_other_could_mend(events, fault):
    (found,) = faults_of(sse(*events))
    assert fault in found


# --- binary -------------------------------------------------------------------------------------------------------


def test_binary_frames_are_linted_like_others_and_a_cut_one_is_named():
    frames_ = [MESSAGE_PACK.render(frame.data, "", None) for frame in frames(START, FINISH)]
    whole = MESSAGE_PACK.keep_alive + b"".join(frames_)
    assert lint_binary(whole) == []
    assert lint_binary(whole[:-1]) == ["the last frame is cut off", "the stream ends without a terminal event"]
    assert lint_binary(whole[:-1], whole=False) == ["the last frame is cut off"]
    assert lint_binary(frames_[0]) == ["the stream ends without a terminal event"]


# --- the log ------------------------------------------------------------------------------------------------------


def log(*events: dict[str, Any], **lines: str) -> bytes:
    named = [{"id": str(event["seq"]), "event": event["type"], **lines} for event in events]
    return b"".join(event_bytes(json.dumps(event).encode(), **line) for event, line in zip(events, named, strict=True))


def test_the_log_goes_on_by_one_under_its_own_names():
    events = [{"seq": n, "type": "x"} for n in (3, 4, 6)]
    assert lint_log(log(*events[:2])) == faults_of(log(*events[:2])) == []
    assert lint_log(log(*events)) == ["event 2: 6 follows 4"]
    assert len(faults_of(log(events[0], event="y"))) == 1
    assert len(lint_log(log(events[0], id="4"))) == 1


# --- the threads' streams -----------------------------------------------------------------------------------------

WHO = {"threadId": "t", "runId": "r"}
NAMED = {**WHO, "messageId": "m", "toolCallId": "c", "toolCallName": "t"}
SAID = {
    "type": "TEXT_MESSAGE_END", **WHO, "messageId": "m", "role": "assistant", "stage": "worker", "status": "success",
    "answer": "", "key_points": [], "result_type": "unknown", "suggested_actions": [], "error": None, "ui_schema": {},
}  # fmt: skip
STEP = {"type": "STEP_STARTED", **WHO, "stepName": "s"}
ARGS = {"type": "TOOL_CALL_ARGS", **NAMED, "args": {}, "stage": "worker"}
DONE = {"type": "RUN_FINISHED", **WHO}


def social(*events: dict[str, Any], **lines: str) -> bytes:
    return b"".join(
        event_bytes(json.dumps(event).encode(), **({"id": str(n), "event": event["type"]} | lines))
        for n, event in enumerate(events)
    )


def test_a_clean_thread_has_no_faults():
    call = [{"type": f"TOOL_CALL_{edge}", **NAMED, "stage": "worker"} for edge in ("START", "END")]
    events = [{"type": "RUN_STARTED", **WHO}, STEP, SAID, call[0], ARGS, call[1], {**STEP, "type": "STEP_FINISHED"}]
    assert lint_social(social(*events, {**DONE, "status": "waiting", "pendings": []})) == []
    assert faults_of(social(*events, DONE)) == []


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([{**DONE, "runId": None}], "runId is null"),
        ([{"type": "RUN_FINISHED", "threadId": "t"}], "expected the fields"),
        ([{"type": "RUN_ERROR", **WHO, "message": "x"}], "expected the fields"),
        ([{"type": "TEXT_MESSAGE_CONTENT", **WHO}], "no such event"),
        ([{**SAID, "cost": 1}], "expected the fields"),
        ([{**SAID, "status": "ok"}], "none of the document's"),
        ([SAID, SAID], "complete already"),
        ([STEP, STEP], "open already"),
        ([STEP, DONE], "still open"),
        ([ARGS, ARGS], "ARGS, ARGS of one call"),
        ([{**ARGS, "args": "{}"}], "must be an object"),
    ],
)
def test_a_fault_of_a_thread_is_named(events, fault):
    assert any(fault in found for found in faults_of(social(*events)))


def test_a_threads_lines_name_each_event_and_its_place():
    assert len(lint_social(social(DONE, event="RUN_STARTED"))) == 1
    assert len(lint_social(social(DONE, DONE, id="5"))) == 1
