"""AUI, event by event (docs/protocols/aui.md)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine import events as e
from hai_flow.wire.dialects import aui
from hai_flow.wire.dialects.aui import AuiEncoder
from hai_flow.wire.dialects.dialect import Frame
from tests.support.examples import examples
from tests.wire.stories import Story, stories

Object = dict[str, Any]


def encode(story: Story, after: int = 0) -> list[Frame]:
    encoder = AuiEncoder(aui.profile(), story.state_at(after))
    return [frame for event in story.events[after:] for frame in encoder.encode(event)]


def shown(story: Story, after: int = 0) -> list[Object]:
    return [json.loads(frame.data) for frame in encode(story, after)]


def of_type(events: list[Object], type: str) -> list[Object]:
    return [event for event in events if event["type"] == type]


def activities(story: Story, after: int = 0) -> list[tuple[str, str]]:
    return [(each["activity_id"], each["status"]) for each in of_type(shown(story, after), "aui_activity_snapshot")]


def test_a_step_that_fails_is_an_activity_that_failed():
    story = Story().start().step("a")
    story.tell(e.StepFailed, path="a", error=e.Error("tool.failed", "no", "a", 1), handler="~catch/0")
    assert activities(story) == [("a", "running"), ("a", "failed")]


def test_an_activity_that_waits_for_a_person_goes_on_when_its_turn_is_over():
    story = Story().start()
    asked = story.question("q", options=("approve", "reject"))
    story.end_turn().open_turn("r2")
    before = len(story.events)
    assert activities(story) == [("q", "running")]
    story.decide(asked, "approve")
    assert activities(story, before) == [("q", "completed")]


def test_an_activity_that_was_under_way_when_its_run_failed_has_failed():
    assert activities(Story().start().step("a").step("b").fail()) == [
        ("a", "running"), ("b", "running"), ("b", "failed"), ("a", "failed"),
    ]  # fmt: skip


def test_a_step_that_was_stopped_because_another_was_first_has_not_failed():
    story = Story().start().step("a")
    story.tell(e.StepStopped, path="a")
    assert activities(story) == [("a", "running"), ("a", "completed")]


def test_a_stop_between_two_turns_ends_the_run():
    story = Story().start()
    story.question("q")
    story.end_turn()
    before = len(story.events)
    story.tell(e.RunStopping, by="user:local", reason="enough")
    story.tell(e.StepStopped, path="q")
    story.tell(e.RunStopped, by="user:local", reason="enough")
    frames = encode(story, before)
    assert [frame.name for frame in frames] == ["aui_activity_snapshot", "aui_run_finished"]
    assert activities(story, before) == [("q", "failed")]
    assert json.loads(frames[-1].data)["outcome"] == "cancelled"
    assert frames[-1].terminal


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ({"type": "boolean"}, ["yes", "no"]),
        ({"type": ["boolean", "string", "object"]}, ["yes", "no"]),
        ({"enum": ["keep", "drop"]}, ["keep", "drop"]),
        ({"enum": [1, 2]}, ["answer"]),
        ({"type": "array"}, ["answer"]),
        (True, ["answer"]),
        (None, ["answer"]),
    ],
)
def test_a_tools_call_offers_the_results_that_can_be_listed(schema: Any, options: list[str]):
    story = Story().start()
    story.tell(e.StepStarted, path="a", verb="call")
    story.tell(e.PendingOpened, id="c", path="a", kind="tool", digest="d", tool="pick", args="{}", schema=schema)
    (asked,) = of_type(shown(story), "aui_interrupt")
    assert [each["action"] for each in asked["payload"]["options"]] == options


@pytest.mark.parametrize(
    ("action", "payload", "content"),
    [
        ("yes", {}, "true"),
        ("no", {}, "false"),
        ("confirmed", {}, "confirmed"),
        ("yes", {"result": "of course"}, "of course"),
        ("yes", {"city": "Berlin"}, '{"city":"Berlin"}'),
        (None, {"result": False}, "false"),
    ],
)
def test_an_option_of_a_tools_call_is_its_result(action: str | None, payload: Object, content: str):
    story = Story().start()
    story.tell(e.StepStarted, path="a", verb="call")
    schema = {"type": ["boolean", "string", "object"]}
    story.tell(e.PendingOpened, id="c", path="a", kind="tool", digest="d", tool="pick", args="{}", schema=schema)
    assert aui.answer_message(story.state.pendings["c"], action, payload).content == content


@pytest.mark.parametrize(("text", "args"), [("", {}), ("[1]", {"value": [1]}), ("{a", {"value": "{a"})])
def test_arguments_are_an_object_whatever_a_model_wrote(text: str, args: Object):
    story = Story().start().step("a")
    call = story.open_call("a", "server")
    if text:
        story.args(call, text)
    (told,) = of_type(shown(story.end_call(call)), "aui_tool_call_args")
    assert told["args_delta"] == args


@settings(max_examples=examples(200), deadline=None)
@given(stories(), st.data())
def test_every_event_of_a_run_has_its_own_id_a_time_and_no_null(story: Story, data: st.DataObject):
    after = data.draw(st.integers(0, len(story.events)))
    encoder = AuiEncoder(aui.profile(), story.state_at(after))
    frames = encoder.preface(None, ()) if after else []
    frames += [frame for event in story.events[after:] for frame in encoder.encode(event)]
    events = [json.loads(frame.data) for frame in frames]
    assert len({UUID(event["id"]) for event in events}) == len(events)
    for event in events:
        assert event["timestamp"].endswith("Z")
        assert None not in event.values()
    if story.state.ended:
        assert sum(frame.terminal for frame in frames) == 1
    followed, whole = [frame.data for frame in encode(story, after)], [frame.data for frame in encode(story)]
    assert whole[len(whole) - len(followed) :] == followed, "the same bytes for all, from wherever one follows"
