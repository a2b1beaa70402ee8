"""The log as REST shows it."""

from __future__ import annotations

import json

from hypothesis import given, settings

from hai_flow.engine import events as e
from hai_flow.primitives.instants import rfc3339
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LogEncoder, event_json
from tests.wire.stories import NEW, stories

PROFILE = Profile(dialect="log")


def test_a_time_is_utc_with_milliseconds():
    assert rfc3339(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"


def test_texts_that_hold_json_are_shown_as_values():
    event = e.PendingOpened(
        at=0, turn=1, id="c", path="gate", kind="approve", digest="d", evidence='{"a":null}', deadline=1000
    )
    assert event_json(5, event) == {
        "seq": 5,
        "type": "pending_opened",
        "at": "1970-01-01T00:00:00.000Z",
        "turn": 1,
        "path": "gate",
        "id": "c",
        "kind": "approve",
        "digest": "d",
        "evidence": {"a": None},
        "deadline": "1970-01-01T00:00:01.000Z",
    }
    assert list(event_json(5, event))[:5] == ["seq", "type", "at", "turn", "path"]


def test_an_error_and_its_cause_have_times_too():
    error = e.Error("a", "b", at=1000, cause=e.Error("c", "d", at=2000))
    shown = event_json(1, e.RunFailed(at=3000, error=error))
    assert shown["turn"] == 0
    assert shown["error"]["at"] == "1970-01-01T00:00:01.000Z"
    assert shown["error"]["cause"]["at"] == "1970-01-01T00:00:02.000Z"


def test_a_tools_error_text_is_left_alone():
    event = e.ToolCallResolved(at=0, tool_call_id="c", content="", error="broken")
    assert event_json(1, event)["error"] == "broken"


@settings(deadline=None)
@given(stories())
def test_every_event_is_one_frame_under_its_own_seq(story):
    encoder = LogEncoder(PROFILE, NEW)
    assert encoder.preface(None, ()) == []
    for seq, event in enumerate(story.events, 1):
        (frame,) = encoder.encode(event)
        shown = json.loads(frame.data)
        assert (shown["seq"], shown["type"], frame.name) == (seq, event.type, event.type)
        assert frame.terminal == isinstance(event, e.TERMINAL)
    assert encoder.farewell("x") == []
