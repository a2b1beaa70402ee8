"""Every rule has streams that break it, and it alone; the reader has bytes; neither falls over anything."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec
import pytest
from hai_flow_conformance import CATALOGUE, Dialect, judge
from hai_flow_conformance.drive import dialect_of
from hai_flow_conformance.streams import Event, frames, read_message_pack, read_sse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conformance.violators import (
    AGUI,
    BEGUN,
    CALL,
    DATA,
    DONE,
    ERROR,
    HAI,
    HAI_BEGUN,
    HAI_DONE,
    INTERRUPT,
    NOTE,
    OLD,
    SAID,
    STEP,
    STEP_DONE,
    TEXT,
    UNREADABLE,
    VIOLATORS,
    Violator,
    content,
    snapshot,
    sse,
    user,
)

# What is no matter of a stream's bytes: whether it is one, and what a peer was answered with.
_OF_EXCHANGES = {"stream.content-type", "old.chat", "old.no-protobuf"}


def events(*values: dict[str, Any]) -> list[Event]:
    return [Event(value, json.dumps(value).encode()) for value in values]


def broken(dialect: Dialect, *values: dict[str, Any], **how: bool) -> list[str]:
    return [fault.rule for fault in judge(events(*values), dialect, **how)]


def test_every_rule_has_a_stream_that_breaks_it() -> None:
    rules = {id for id in CATALOGUE if id.partition(".")[0] in ("stream", "old", "hai")} - _OF_EXCHANGES
    assert {each.rule for each in VIOLATORS} | {rule for rule, _ in UNREADABLE} == rules


@pytest.mark.parametrize("violator", VIOLATORS, ids=lambda each: f"{each.rule}-{each.dialect}")
def test_a_stream_that_breaks_a_rule_breaks_that_one_alone(violator: Violator) -> None:
    found, faults = read_sse(violator.stream)
    assert faults == []
    assert {fault.rule for fault in judge(found, violator.dialect)} == {violator.rule}


@pytest.mark.parametrize(("rule", "stream"), UNREADABLE, ids=[rule for rule, _ in UNREADABLE])
def test_bytes_that_clients_cannot_read_break_their_rule(rule: str, stream: bytes) -> None:
    _, faults = read_sse(stream)
    assert {fault.rule for fault in faults} == {rule}


def test_a_stream_as_it_should_be_breaks_none() -> None:
    tool = {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "x", "role": "tool"}
    common = [STEP, *CALL, tool, STEP_DONE, NOTE, {"type": "STATE_SNAPSHOT", "snapshot": None}]
    text = [TEXT[0] | {"role": "assistant", "metadata": {}, "timestamp": 1}, SAID, TEXT[1]]
    assert broken(AGUI, BEGUN, *common, *text, DONE, BEGUN, DONE) == []
    assert broken(OLD, BEGUN, *common, *text, DONE) == []
    data = [DATA[0] | {"more": 1}, content('{"output":{}}'), DATA[1], DATA[0], content("plain"), DATA[1]]
    assert broken(HAI, HAI_BEGUN, *common, *data, HAI_DONE) == []
    assert broken(AGUI, {"type": "RUN_ERROR", "message": "x"}) == []
    assert broken(AGUI, BEGUN, DONE, {"type": "RUN_ERROR", "message": "x"}) == []


def test_what_every_subagent_opens_is_closed_by_its_error() -> None:
    started = {"type": "SUBAGENT_STARTED", "subagentRunId": "a", "name": "n"}
    error = {"type": "SUBAGENT_ERROR", "subagentRunId": "a", "message": "x"}
    assert broken(AGUI, BEGUN, started, error, DONE) == []


def test_arguments_may_be_cut_off_where_the_run_is() -> None:
    half = [BEGUN, STEP, CALL[0], CALL[1] | {"delta": '{"a'}, CALL[2], STEP_DONE]
    assert broken(AGUI, *half, ERROR) == []
    assert broken(AGUI, *half, NOTE, DONE | {"outcome": {"type": "cancelled"}}) == []
    assert broken(AGUI, *half, *TEXT, ERROR) == ["stream.arguments"]
    assert broken(AGUI, *half, DONE) == ["stream.arguments"]
    assert broken(AGUI, *half) == ["stream.arguments", "stream.terminal"]
    assert broken(AGUI, *half, whole=False) == []


def test_an_outcome_of_1_0_is_none_of_0_x() -> None:
    for outcome in ({"type": "cancelled"}, {"type": "success", "pendingToolCallIds": ["c"]}):
        assert broken(AGUI, BEGUN, DONE | {"outcome": outcome}) == []
    interrupted = {"type": "interrupt", "interrupts": [INTERRUPT]}
    assert broken(OLD, BEGUN, DONE | {"outcome": interrupted}) == []


def test_messages_of_every_role_are_some() -> None:
    source = {"type": "url", "value": "https://example.com/a"}
    parts = [{"type": "text", "text": "x"}, *({"type": kind, "source": source} for kind in ("image", "document"))]
    messages = [
        user(content=parts),
        {"id": "1", "role": "assistant", "metadata": {}},
        {"id": "2", "role": "tool", "content": "x", "toolCallId": "c", "error": "e"},
        {"id": "3", "role": "activity", "activityType": "a", "content": {}},
        {"id": "4", "role": "reasoning", "content": "x"},
        {"id": "5", "role": "system", "content": "x", "name": "n"},
    ]
    assert broken(AGUI, BEGUN, snapshot(*messages), DONE) == []
    old = user(content=[{"type": "binary", "mimeType": "image/png", "data": "x"}])
    assert broken(OLD, BEGUN, snapshot(old), DONE) == []
    assert broken(HAI, HAI_BEGUN, snapshot({"id": "1", "role": "user", "timestamp": 1, "extra": None}), HAI_DONE) == []


def test_a_document_whose_braces_are_escaped_survives_the_client() -> None:
    escaped = content('{"output":{"type":"text","content":"a}\\u007bb"},"layout":{}}')
    assert broken(HAI, HAI_BEGUN, DATA[0], escaped, content("bare }{ text"), DATA[1], HAI_DONE) == []


def test_a_stream_that_was_left_need_not_end() -> None:
    assert broken(HAI, HAI_BEGUN, whole=False) == []
    assert broken(HAI, HAI_BEGUN) == ["stream.terminal"]


def test_a_piece_of_a_stream_is_not_judged_by_what_came_before_it() -> None:
    piece = (SAID, TEXT[1], CALL[1] | {"delta": "}"}, CALL[2], STEP_DONE, DONE)
    assert set(broken(AGUI, *piece)) == {"stream.first", "stream.brackets", "stream.steps"}
    assert broken(AGUI, *piece, begun=False) == []
    assert broken(AGUI, BEGUN, *piece, begun=False)  # its beginning is here
    assert broken(AGUI, STEP, DONE, begun=False) == ["stream.steps"]
    assert broken(AGUI, DONE, NOTE, begun=False) == ["stream.nothing-after"]
    assert broken(AGUI, NOTE, begun=False) == ["stream.terminal"]


def test_the_dialect_is_told_by_the_events() -> None:
    assert dialect_of(events(HAI_BEGUN)) is HAI
    assert dialect_of(events(BEGUN, DATA[0])) is HAI
    assert dialect_of(events(BEGUN, DONE)) is AGUI


NAMES = sorted({name for each in VIOLATORS for event in each.events for name in event})
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # others may need the processor
JSON = st.recursive(
    st.sampled_from([None, True, 5, 1.5, float("nan"), "", "x", "user", "assistant", "interrupt", "add"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=4,
)
STRANGE = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3)
TYPES = st.sampled_from(sorted({event["type"] for each in VIOLATORS for event in each.events}))


@PATIENT
@given(st.lists(st.builds(lambda fields, type: fields | {"type": type}, STRANGE, TYPES), max_size=4), st.booleans())
@example([BEGUN, DONE | {"outcome": 5}], True)
@example([snapshot({"id": "u", "role": [], "toolCalls": {}, "content": [[]]})], True)
def test_nothing_that_an_endpoint_says_makes_the_judge_fall_over(said: list[dict[str, Any]], begun: bool) -> None:
    for dialect in Dialect:
        faults = judge(events(*said), dialect, begun=begun)
        assert {fault.rule for fault in faults} <= CATALOGUE.keys()
        assert all(fault.found for fault in faults)


@PATIENT
@given(st.binary(max_size=200) | st.lists(st.sampled_from([b"data: ", b"{}", b"\n\n", b"\r", b":"])).map(b"".join))
def test_no_bytes_make_the_reader_fall_over(stream: bytes) -> None:
    read_sse(stream)


def test_comments_ids_and_a_byte_order_mark_are_read_over() -> None:
    found, faults = read_sse(b'\xef\xbb\xbf: hi\n\nid: 1\nevent: X\ndata: {"type":"A"}\n: keep-alive\n\n')
    assert ([event.type for event in found], faults) == (["A"], [])


def test_the_events_of_a_broken_line_end_are_read_all_the_same() -> None:
    found, _ = read_sse(sse(BEGUN, DONE).replace(b"\n", b"\r\n"))
    assert [event.value for event in found] == [BEGUN, DONE]


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b"{}", b'{"type":1}', b'{"type":"A","x":NaN}', b'data: {"type":"A"}', b"\xff"]
)
def test_an_event_that_is_no_object_with_a_type_is_a_fault(data: bytes) -> None:
    found, faults = read_sse(b"data: " + data + b"\n\n")
    assert (found, [fault.rule for fault in faults]) == ([], ["stream.one-object"])


# --- binary -------------------------------------------------------------------------------------------------------


def packed(*events: Any) -> bytes:
    payloads = [msgspec.msgpack.encode(event) for event in events]
    return b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)


def test_binary_frames_are_read_and_a_cut_one_is_told() -> None:
    whole = packed(HAI_BEGUN)
    length = len(whole) - 4
    read, wrong = read_message_pack(whole + b"\0\0\0\0")
    assert ([event.value for event in read], wrong) == ([HAI_BEGUN], "")
    assert frames(whole[:-1])[1] == f"a frame of {length} bytes is cut off after {length - 1}"
    assert frames(whole + b"\0")[1] == "a frame's length is cut off"


@pytest.mark.parametrize("payload", [b"\x01", b"\x80", b"\x81\xa4type\x01", b"\xc1", b"\x81\xa1a", b"\xd6\xff\0\0\0\0"])
def test_a_frame_of_message_pack_that_is_no_event_is_told(payload: bytes) -> None:
    read, wrong = read_message_pack(struct.pack(">I", len(payload)) + payload)
    assert (read, bool(wrong)) == ([], True)


@PATIENT
@given(st.binary(max_size=60))
def test_no_frame_of_message_pack_makes_the_reader_fall_over(payload: bytes) -> None:
    read_message_pack(struct.pack(">I", len(payload)) + payload)
