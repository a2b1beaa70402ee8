"""AG-UI's binary frames are read as the protocol's own encoder writes them, and what is none is told as that."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hai_flow_conformance import Dialect, judge
from hai_flow_conformance.protobuf import Malformed, decoded
from hai_flow_conformance.rules import AGUI_TYPES
from hai_flow_conformance.streams import read_protobuf
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.wire.dialects.agui_protobuf import encode_event
from tests.support.examples import examples

# What `@ag-ui/proto` 1.0.0 makes of events: first those that we send, then those of every type, with all their fields.
OURS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "wire" / "agui_protobuf.json").read_text())
ALL: list[dict[str, Any]] = json.loads(Path(__file__).with_name("agui_protobuf.json").read_text())
CASES = [(case["event"], bytes.fromhex(case["hex"])) for case in (*OURS, *ALL)]

STARTED = encode_event({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "timestamp": 1})
STEP = encode_event({"type": "STEP_STARTED", "stepName": "s"})


@pytest.mark.parametrize(("event", "frame"), CASES, ids=[f"{n}-{event['type']}" for n, (event, _) in enumerate(CASES)])
def test_an_event_is_read_as_it_was_written(event: dict[str, Any], frame: bytes) -> None:
    assert decoded(frame) == event


def test_every_type_of_the_protocol_is_read() -> None:
    assert {event["type"] for event, _ in CASES} == AGUI_TYPES


@pytest.mark.parametrize("frame", [frame for _, frame in CASES], ids=[event["type"] for event, _ in CASES])
def test_a_frame_that_is_cut_anywhere_is_told_or_says_less(frame: bytes) -> None:
    for length in range(1, len(frame)):
        with pytest.raises(Malformed):
            decoded(frame[:length])


def field(number: int, content: bytes | int) -> bytes:
    tag = number << 3 | (0 if isinstance(content, int) else 2)
    written = bytes([tag] if tag < 128 else [tag & 127 | 128, tag >> 7])
    return written + (bytes([content]) if isinstance(content, int) else bytes([len(content)]) + content)


BASE = field(1, field(1, 14))  # of STEP_STARTED
CUSTOM = field(1, field(1, 10)) + field(2, b"n")


def custom(value: bytes) -> bytes:
    return field(11, CUSTOM + field(3, value))


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (b"", "expected one event in a frame, found none"),
        (STARTED + STEP, "found RUN_STARTED, STEP_STARTED"),
        (field(15, field(2, b"s")), "expected the type 14 in its baseEvent, found none"),
        (field(15, field(1, field(1, 15)) + field(2, b"s")), "expected the type 14 in its baseEvent, found 15"),
        (field(15, 1), "STEP_STARTED: expected a message, found a number"),
        (field(15, BASE + field(2, 1)), "STEP_STARTED.stepName: expected a length and bytes, found a number"),
        (field(15, BASE + field(2, b"\xff")), "STEP_STARTED.stepName: text that is not UTF-8"),
        (field(15, BASE + b"\x12\x09s"), "field 2 has 9 bytes, of which 1 are there"),
        (field(15, BASE + b"\x12"), "a number is cut off"),
        (b"\x7a" + b"\xff" * 11, "a number of over ten bytes"),
        (field(15, BASE + b"\x00\x00"), "0 begins no field"),
        (field(15, BASE + b"\x1b\x1c"), "27 begins no field"),
        (custom(b""), "CUSTOM.value: expected one of its alternatives, found none"),
        (custom(field(3, b"a") + field(4, 1)), "found text, boolean"),
        (custom(b"\x11" + struct.pack("<d", float("nan"))), "nan is no number of JSON"),
        (custom(field(5, field(1, field(1, b"k")))), "CUSTOM.value.struct.k: no value"),
        (field(8, field(1, field(1, 7)) + field(2, field(1, 9))), "9 is no operation of JSON Patch"),
    ],
)
def test_what_is_no_event_is_told(frame: bytes, found: str) -> None:
    with pytest.raises(Malformed) as told:
        decoded(frame)
    assert found in str(told.value)


def test_content_in_two_forms_is_told() -> None:
    part = field(1, field(1, b"x"))
    result = field(1, field(1, 21)) + field(3, b"m") + field(4, b"c") + field(5, b"text") + field(7, part)
    said = field(1, b"u") + field(2, b"user") + field(3, b"text") + field(8, part)
    for frame in (field(22, result), field(9, field(1, field(1, 8)) + field(2, said))):
        with pytest.raises(Malformed, match="more than one content"):
            decoded(frame)


def test_what_is_nested_too_deep_is_told() -> None:
    value: Any = 1
    for _ in range(64):
        value = [{"a": value}]
    frame = encode_event({"type": "STATE_SNAPSHOT", "snapshot": value})
    with pytest.raises(Malformed, match="nested too deep"):
        decoded(frame)
    deep: Any = 1
    for _ in range(60):
        deep = {"a": deep}
    assert decoded(encode_event({"type": "STATE_SNAPSHOT", "snapshot": deep}))["snapshot"] == deep


def test_fields_of_a_later_version_are_stepped_over() -> None:
    later = field(14, b"new") + field(13, 1) + b"\x61" + bytes(8) + b"\x5d" + bytes(4)
    assert decoded(field(15, BASE + field(2, b"s") + later)) == {"type": "STEP_STARTED", "stepName": "s"}


def test_an_event_of_a_later_version_is_one_that_the_rules_do_not_know() -> None:
    event = decoded(field(40, BASE))
    assert event == {"type": "#40"}
    stream = b"".join(struct.pack(">I", len(frame)) + frame for frame in (STARTED, field(40, BASE)))
    events, wrong = read_protobuf(stream)
    assert wrong == ""
    assert [fault.rule for fault in judge(events, Dialect.AGUI, whole=False)] == ["stream.types"]


def test_what_stands_twice_is_read_as_protocol_buffers_have_it() -> None:
    twice = field(15, field(2, b"old") + BASE) + field(15, field(2, b"new"))
    assert decoded(twice) == {"type": "STEP_STARTED", "stepName": "new"}
    halves = field(1, field(1, 14)) + field(1, field(2, 7)) + field(2, b"s")
    assert decoded(field(15, halves)) == {"type": "STEP_STARTED", "stepName": "s", "timestamp": 7}


def test_a_stream_is_read_up_to_what_is_wrong() -> None:
    whole = b"".join(struct.pack(">I", len(frame)) + frame for frame in (STARTED, STEP))
    events, wrong = read_protobuf(whole)
    assert ([event.type for event in events], wrong) == (["RUN_STARTED", "STEP_STARTED"], "")
    assert len(read_protobuf(whole[:-1])[0]) == 1
    assert read_protobuf(whole + b"\0\0\0\0") == (events, "frame 2: expected one event in a frame, found none")


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=80), st.sampled_from([frame for _, frame in CASES]), st.integers(0, 400))
def test_no_bytes_raise_anything_else(noise: bytes, frame: bytes, at: int) -> None:
    for mixed in (noise, frame[:at] + noise, frame[:at] + noise + frame[at + len(noise) :]):
        events, wrong = read_protobuf(struct.pack(">I", len(mixed)) + mixed)
        assert bool(wrong) is (events == [])
