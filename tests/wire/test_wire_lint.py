"""The linter finds what it is there for: what the protocols demand of anybody, and what only we promise."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hai_flow_conformance import Dialect

from hai_flow.wire.dialects.agui_protobuf import encode_event
from hai_flow.wire.dialects.dialect import Frame
from hai_flow.wire.sse import MESSAGE_PACK, event_bytes
from tests.conformance.violators import (
    BEGUN,
    CALL,
    CALLED,
    DATA,
    DONE,
    ERROR,
    HAI_BEGUN,
    HAI_DONE,
    INTERRUPT,
    NOTE,
    SAID,
    STEP,
    TEXT,
    UNREADABLE,
    VIOLATORS,
    Violator,
    content,
    snapshot,
    sse,
    user,
)
from tests.support.wire_lint import (
    faults_of,
    lint,
    lint_agent_api,
    lint_agui,
    lint_binary,
    lint_log,
    lint_protobuf,
    lint_social,
)


def frames(*events: Any) -> list[Frame]:
    return [Frame("", json.dumps(event).encode()) for event in events]


def rules(faults: list[str]) -> set[str]:
    return {fault.partition(":")[0] for fault in faults}


# --- what the protocols demand ------------------------------------------------------------------------------------


@pytest.mark.parametrize("violator", VIOLATORS, ids=lambda each: f"{each.rule}-{each.dialect}")
def test_what_breaks_a_rule_of_the_kit_breaks_it_here(violator: Violator) -> None:
    assert violator.rule in rules(lint(violator.stream, dialect=violator.dialect))
    assert lint(frames(*violator.events), dialect=violator.dialect) == lint(violator.stream, dialect=violator.dialect)


@pytest.mark.parametrize(("rule", "stream"), UNREADABLE, ids=[rule for rule, _ in UNREADABLE])
def test_bytes_that_clients_cannot_read_are_named(rule: str, stream: bytes) -> None:
    assert rule in rules(lint(stream))


def test_a_clean_stream_has_no_faults() -> None:
    events = [
        HAI_BEGUN,
        STEP,
        DATA[0],
        content("x"),
        DATA[1],
        *CALL,
        {"type": "STEP_FINISHED", "stepName": "s"},
        HAI_DONE,
    ]
    assert lint(frames(*events)) == []
    assert lint(b": keep-alive\n\n" + sse(*events)) == []
    assert lint(sse(ERROR)) == []
    assert lint(sse(HAI_BEGUN, HAI_DONE, HAI_BEGUN, HAI_DONE)) == []
    for version in ("1.0", "0"):
        assert lint_agui(sse(BEGUN, TEXT[0], SAID, TEXT[1], *CALL, NOTE, DONE), version) == []


def test_the_events_tell_the_dialect() -> None:
    assert lint(sse(BEGUN, *TEXT, DONE)) == []
    assert rules(lint(sse(HAI_BEGUN, *TEXT, HAI_DONE))) == {"stream.unknown-fields"}
    assert rules(lint(sse(BEGUN, *DATA, DONE))) == {"stream.types"}
    assert lint(sse(STEP, *CALL, NOTE), whole=False) == []


def test_a_stream_for_a_peer_of_unknown_version_must_be_right_for_one() -> None:
    binary = user(content=[{"type": "binary", "mimeType": "image/png", "data": "x"}])
    cancelled = DONE | {"outcome": {"type": "cancelled"}}
    assert lint(sse(BEGUN, snapshot(binary), DONE)) == []
    assert lint(sse(BEGUN, cancelled)) == []
    assert rules(lint(sse(BEGUN, snapshot(binary), cancelled))) <= {"old.outcome", "stream.messages"}
    assert lint(sse(BEGUN, snapshot(binary), cancelled))


# --- what only we promise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "stream"),
    [
        ("ours.one-end", sse(BEGUN, DONE, ERROR)),
        ("ours.names", sse(BEGUN, TEXT[0] | {"messageId": ""}, TEXT[1] | {"messageId": ""}, DONE)),
        ("ours.one-line", sse(BEGUN, DONE) + b'data: {"type":\ndata: "RUN_ERROR"}\n\n'),
        ("ours.one-line", sse(BEGUN, DONE) + b"id: 5\n\n"),
        ("ours.lines", sse(BEGUN, DONE).replace(b"data: ", b"retry: 5\ndata: ", 1)),
    ],
)
def test_a_promise_of_ours_that_is_broken_is_named(rule: str, stream: bytes) -> None:
    assert rule in rules(lint(stream))


def test_a_frame_has_no_line_breaks() -> None:
    assert rules(lint([Frame("", b'{"type":"RUN_ERROR",\n"message":"x"}')])) >= {"ours.one-line"}


IMAGE = {"type": "image", "source": {"type": "url", "value": "https://example.com/a"}}


@pytest.mark.parametrize(
    ("fault", "version", "events"),
    [
        ("we send no such event", "1.0", [BEGUN, {"type": "TEXT_MESSAGE_CHUNK"}, DONE]),
        ("metadata came with 1.0", "0", [BEGUN, TEXT[0] | {"metadata": {}}, TEXT[1], DONE]),
        ("which protocolVersion", "1.0", [{k: v for k, v in BEGUN.items() if k != "protocolVersion"}, DONE]),
        ("never say success", "1.0", [BEGUN, DONE | {"outcome": {"type": "success"}}]),
        ("an outcome cancelled with", "1.0", [BEGUN, DONE | {"outcome": {"type": "cancelled", "reason": "x"}}]),
        (
            "an outcome interrupt with",
            "1.0",
            [BEGUN, DONE | {"outcome": {"type": "interrupt", "interrupts": [INTERRUPT], "pendingToolCallIds": []}}],
        ),
        (
            "results as text",
            "1.0",
            [BEGUN, {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": []}, DONE],
        ),
        (
            "no clean operation",
            "1.0",
            [BEGUN, {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/a", "from": ""}]}, DONE],
        ),
        ("no message of ours", "1.0", [BEGUN, snapshot(user(subagentRunId="a")), DONE]),
        ("no message of ours", "1.0", [BEGUN, snapshot({"id": "s", "role": "system", "content": "x"}), DONE]),
        ("a message of 1.0", "0", [BEGUN, snapshot(CALLED | {"metadata": {}}), DONE]),
        ("a message of 1.0", "0", [BEGUN, snapshot({"id": "r", "role": "reasoning", "content": "x"}), DONE]),
        ("that 0.0.42 does not know", "0", [BEGUN, snapshot(user(content=[IMAGE])), DONE]),
    ],
)
def test_ag_ui_of_ours_is_narrower(fault: str, version: str, events: list[Any]) -> None:
    found = lint_agui(sse(*events), version)
    assert rules(found) == {"ours.agui"}
    assert any(fault in each for each in found)


# --- pieces of streams --------------------------------------------------------------------------------------------


def test_a_piece_of_a_stream_may_lack_its_beginning_and_its_end() -> None:
    piece = sse(content("x"), CALL[2], CALL[0] | {"toolCallId": "d"})
    assert len(lint(piece)) > 1
    assert lint(piece, whole=False) == []
    assert faults_of(piece) == []


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([HAI_DONE, HAI_BEGUN, CALL[2], HAI_DONE], "stream.brackets"),
        ([STEP, HAI_DONE], "stream.steps"),
        ([NOTE | {"name": None}], "stream.no-nulls"),
        ([HAI_BEGUN | {"timestamp": 1.5}], "stream.timestamps"),
        ([HAI_BEGUN, HAI_BEGUN], "stream.first"),
        ([HAI_BEGUN, HAI_DONE, NOTE], "stream.nothing-after"),
    ],
)
def test_a_piece_shows_the_faults_that_no_other_could_mend(events: list[Any], rule: str) -> None:
    assert rule in rules(faults_of(sse(*events)))


# --- binary -------------------------------------------------------------------------------------------------------


def test_binary_frames_are_linted_like_others_and_a_cut_one_is_named() -> None:
    frames_ = [MESSAGE_PACK.render(frame.data, "", None) for frame in frames(HAI_BEGUN, HAI_DONE)]
    whole = MESSAGE_PACK.keep_alive + b"".join(frames_)
    assert lint_binary(whole) == []
    assert rules(lint_binary(whole[:-1])) == {"frames", "stream.terminal"}
    assert rules(lint_binary(whole[:-1], whole=False)) == {"frames"}
    assert rules(lint_binary(frames_[0])) == {"stream.terminal"}


@pytest.mark.parametrize("violator", [each for each in VIOLATORS if each.dialect is Dialect.HAI and each.events])
def test_what_breaks_a_rule_breaks_it_in_binary_too(violator: Violator) -> None:
    stream = b"".join(MESSAGE_PACK.render(frame.data, "", None) for frame in frames(*violator.events))
    assert rules(lint_binary(stream)) == {violator.rule}


def test_protobuf_frames_are_linted_like_others() -> None:
    def written(*events: dict[str, Any]) -> bytes:
        return b"".join(struct.pack(">I", len(frame)) + frame for frame in map(encode_event, events))

    assert lint_protobuf(written(BEGUN, TEXT[0], SAID, TEXT[1], DONE)) == []
    assert rules(lint_protobuf(written(BEGUN, TEXT[0], SAID, DONE))) == {"stream.brackets"}
    assert rules(lint_protobuf(written(BEGUN, DONE)[:-1])) == {"frames", "stream.terminal"}
    assert rules(lint_protobuf(written(BEGUN, DONE | {"outcome": {"type": "success"}}))) == {"ours.agui"}


# --- the Agent API ------------------------------------------------------------------------------------------------


def process(*objects: dict[str, Any]) -> bytes:
    return sse(*({"sequence_number": number} | each for number, each in enumerate(objects)))


RESPONSES = [{"object": "response", "status": status} for status in ("created", "in_progress", "completed")]
MESSAGE = {"object": "message", "id": "m", "status": "in_progress", "content": None}
CONTENT = {"object": "content", "msg_id": "m"}


def test_a_clean_response_has_no_faults() -> None:
    stream = process(*RESPONSES[:2], MESSAGE, CONTENT, MESSAGE | {"status": "completed"}, RESPONSES[2])
    assert lint_agent_api(stream, whole=True) == faults_of(stream, whole=True) == []


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        (process(*RESPONSES).replace(b"\n", b"\r\n"), "a carriage return"),
        (process(*RESPONSES).replace(b'number": 2', b'number": 3'), "object 2: sequence_number 3"),
        (process(*RESPONSES[:2], MESSAGE, MESSAGE, RESPONSES[2]), "in_progress out of turn"),
        (process(*RESPONSES[:2], MESSAGE | {"content": []}), "content before any was said"),
        (process(*RESPONSES[:2], MESSAGE | {"status": "completed"}, RESPONSES[2]), "completed out of turn"),
        (process(*RESPONSES[:2], CONTENT, RESPONSES[2]), "outside of its message"),
        (process(*RESPONSES[:2]), "one end"),
        (process(*RESPONSES[1:]), "expected created"),
        (process(*RESPONSES[:2], MESSAGE, RESPONSES[2]), "open ['m']"),
        (process(*RESPONSES[:2], {"object": None}, RESPONSES[2]), "an object with a object"),
        (process(*RESPONSES) + b"data: x\n\n", "not JSON"),
    ],
)
def test_a_fault_of_a_response_is_named(stream: bytes, fault: str) -> None:
    assert any(fault in found for found in lint_agent_api(stream, whole=True))


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
WHOLE = {
    "type": "TEXT_MESSAGE_END", **WHO, "messageId": "m", "role": "assistant", "stage": "worker", "status": "success",
    "answer": "", "key_points": [], "result_type": "unknown", "suggested_actions": [], "error": None, "ui_schema": {},
}  # fmt: skip
STEP_OF_RUN = {"type": "STEP_STARTED", **WHO, "stepName": "s"}
ARGS = {"type": "TOOL_CALL_ARGS", **NAMED, "args": {}, "stage": "worker"}
RESULT = {
    "type": "TOOL_CALL_RESULT", **WHO, "messageId": "m", "role": "tool", "stage": "worker", "tool_name": "t",
    "tool_call_id": "c", "tool_call_args": {}, "status": "done", "result": "x", "error": None,
}  # fmt: skip
FINISHED = {"type": "RUN_FINISHED", **WHO}


def social(*events: dict[str, Any], **lines: str) -> bytes:
    return b"".join(
        event_bytes(json.dumps(event).encode(), **({"id": str(n), "event": event["type"]} | lines))
        for n, event in enumerate(events)
    )


def test_a_clean_thread_has_no_faults():
    call = [{"type": f"TOOL_CALL_{edge}", **NAMED, "stage": "worker"} for edge in ("START", "END")]
    events = [
        {"type": "RUN_STARTED", **WHO},
        STEP_OF_RUN,
        WHOLE,
        call[0],
        ARGS,
        call[1],
        {**STEP_OF_RUN, "type": "STEP_FINISHED"},
    ]
    assert lint_social(social(*events, {**FINISHED, "status": "waiting", "pendings": []})) == []
    assert faults_of(social(*events, FINISHED)) == []


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([{**FINISHED, "runId": None}], "runId is null"),
        ([{"type": "RUN_FINISHED", "threadId": "t"}], "expected the fields"),
        ([{"type": "RUN_ERROR", **WHO, "message": "x"}], "expected the fields"),
        ([{"type": "TEXT_MESSAGE_CONTENT", **WHO}], "no such event"),
        ([{**WHOLE, "cost": 1}], "expected the fields"),
        ([{**WHOLE, "status": "ok"}], "none of the document's"),
        ([WHOLE, WHOLE], "complete already"),
        ([STEP_OF_RUN, STEP_OF_RUN], "open already"),
        ([STEP_OF_RUN, FINISHED], "still open"),
        ([ARGS, ARGS], "ARGS, ARGS of one call"),
        ([{**ARGS, "args": "{}"}], "must be an object"),
        ([RESULT], "none of the document's"),
        ([{**FINISHED, "threadId": ""}], "threadId and runId must be text"),
    ],
)
def test_a_fault_of_a_thread_is_named(events, fault):
    assert any(fault in found for found in faults_of(social(*events)))


def test_a_threads_lines_name_each_event_and_its_place():
    assert len(lint_social(social(FINISHED, event="RUN_STARTED"))) == 1
    assert len(lint_social(social(FINISHED, FINISHED, id="5"))) == 1
