"""The rules that only one dialect has, on events; and the reader, on bytes."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec
import pytest

from hai_flow.conformance import Dialect, judge
from hai_flow.conformance.drive import dialect_of
from hai_flow.conformance.streams import Event, frames, read_message_pack, read_sse

START = {"type": "RUN_STARTED", "messageId": "m", "role": "assistant", "threadId": "t", "runId": "r"}
FINISH = START | {"type": "RUN_FINISHED"}
DATA = {"type": "BUSINESS_DATA_START", "messageId": "m", "role": "assistant"}
END = DATA | {"type": "BUSINESS_DATA_END"}
INTERRUPT = {"id": "i", "reason": "confirmation"}


def events(*values: dict[str, Any]) -> list[Event]:
    return [Event(value, json.dumps(value).encode()) for value in values]


def content(delta: Any) -> dict[str, Any]:
    return {"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": delta}


def broken(dialect: Dialect, *values: dict[str, Any]) -> list[str]:
    return [fault.rule for fault in judge(events(START, *values), dialect)]


def test_a_message_of_hai_may_be_opened_many_times() -> None:
    document = content('{"output":{"type":"text","content":"x"},"layout":{}}')
    assert broken(Dialect.HAI, DATA, document, END, DATA, document, END, FINISH) == []


def test_a_document_that_the_client_would_cut_is_a_fault() -> None:
    cut = content('{"output":{"type":"text","content":"a}{b"},"layout":{}}')
    assert broken(Dialect.HAI, DATA, cut, END, FINISH) == ["hai.documents"]
    escaped = content(cut["delta"].replace("}{b", "}\\u007bb"))
    assert broken(Dialect.HAI, DATA, escaped, content("bare text"), END, FINISH) == []


def test_an_object_as_delta_is_a_fault_of_hai() -> None:
    assert broken(Dialect.HAI, DATA, content({"output": {}}), END, FINISH) == ["stream.deltas"]


def test_the_words_of_one_dialect_are_none_of_the_other() -> None:
    text = {"type": "TEXT_MESSAGE_START", "messageId": "m"}, {"type": "TEXT_MESSAGE_END", "messageId": "m"}
    assert broken(Dialect.HAI, *text, FINISH) == ["stream.types", "stream.types"]
    assert broken(Dialect.AGUI, *text, FINISH) == []
    assert broken(Dialect.AGUI, DATA, END, FINISH) == ["stream.types", "stream.types"]


@pytest.mark.parametrize(
    "interrupts",
    [[], None, [{}], [{"id": "i"}], [INTERRUPT, INTERRUPT]],
    ids=["none", "null", "no id", "no reason", "twice"],
)
def test_an_interrupt_outcome_has_interrupts(interrupts: Any) -> None:
    outcome = {"type": "interrupt", "interrupts": interrupts}
    assert broken(Dialect.AGUI, FINISH | {"outcome": outcome}) == ["stream.outcome"]


def test_an_interrupt_has_no_null() -> None:
    finish = FINISH | {"outcome": {"type": "interrupt", "interrupts": [INTERRUPT | {"message": None}]}}
    assert broken(Dialect.AGUI, finish) == ["stream.no-nulls"]


def test_cancelled_is_for_peers_of_1_0_alone() -> None:
    finish = FINISH | {"outcome": {"type": "cancelled"}}
    assert broken(Dialect.AGUI, finish) == []
    assert broken(Dialect.AGUI_0, finish) == ["old.outcome"]


def test_a_call_of_a_snapshot_is_not_streamed_again() -> None:
    called = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "toolCalls": [called]}]}
    again = (
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
    )
    assert broken(Dialect.AGUI, snapshot, *again, FINISH) == ["stream.calls-once"]


def test_a_piece_of_a_stream_need_not_end() -> None:
    assert judge(events(START), Dialect.HAI, whole=False) == []
    assert [fault.rule for fault in judge(events(START), Dialect.HAI)] == ["stream.terminal"]


def test_the_dialect_is_told_by_the_events() -> None:
    bare = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    assert dialect_of(events(START)) is Dialect.HAI
    assert dialect_of(events(bare, DATA)) is Dialect.HAI
    assert dialect_of(events(bare, FINISH)) is Dialect.AGUI


def test_comments_ids_and_a_byte_order_mark_are_read_over() -> None:
    found, faults = read_sse(b'\xef\xbb\xbf: hi\n\nid: 1\nevent: X\ndata: {"type":"A"}\n: keep-alive\n\n')
    assert ([event.type for event in found], faults) == (["A"], [])


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b"{}", b'{"type":1}', b'{"type":"A","x":NaN}', b'data: {"type":"A"}', b"\xff"]
)
def test_an_event_that_is_no_object_with_a_type_is_a_fault(data: bytes) -> None:
    found, faults = read_sse(b"data: " + data + b"\n\n")
    assert (found, [fault.rule for fault in faults]) == ([], ["stream.one-object"])


def test_binary_frames_are_read_and_a_cut_one_is_told() -> None:
    payload = msgspec.msgpack.encode(START)
    whole = struct.pack(">I", len(payload)) + payload
    read, wrong = read_message_pack(whole + b"\0\0\0\0")
    assert ([event.value for event in read], wrong) == ([START], "")
    assert frames(whole[:-1])[1] == f"a frame of {len(payload)} bytes is cut off after {len(payload) - 1}"
    assert frames(whole + b"\0")[1] == "a frame's length is cut off"
    assert read_message_pack(b"\0\0\0\x01\x01")[1] == "a frame is no map with a type"
