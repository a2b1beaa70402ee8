"""AG-UI's binary frames. `agui_protobuf.json` was written by the protocol's own encoder (`@ag-ui/proto` 1.0.0): events
of every type that we send, each with the bytes that it made of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agui import AGUI, AguiEncoder
from hai_flow.wire.dialects.agui_protobuf import CONTENT_TYPE, encode_event
from tests.support.wire_lint import AGUI_SENT
from tests.wire.stories import RUN, stories
from tests.wire.stories import encode_from as encode
from tests.wire.test_agui_properties import PROFILES

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("agui_protobuf.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["event"]["type"])
def test_the_bytes_are_those_of_the_protocols_own_encoder(case):
    assert encode_event(case["event"]).hex() == case["hex"]


def test_every_type_that_we_send_is_compared():
    assert {case["event"]["type"] for case in CASES} == AGUI_SENT


@settings(deadline=None)
@given(stories(), PROFILES)
def test_every_frame_can_be_written_behind_its_length(story, profile):
    (binary,) = AGUI.others
    assert binary.framing.content_type == CONTENT_TYPE
    frames = encode(AguiEncoder(profile, RunState(RUN)), story.events)
    frames += AguiEncoder(profile, story.state).preface("asker", ())
    stream = binary.render_unnumbered(frames)
    for frame in frames:
        (length,) = struct.unpack(">I", stream[:4])
        assert stream[4 : 4 + length] == encode_event(json.loads(frame.data))
        stream = stream[4 + length :]
    assert stream == b""
