"""The Agent API's objects, event by event (docs/protocols/agent-api.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.agent_api import Sequence
from hai_flow.engine import events as e
from hai_flow.wire import sse
from hai_flow.wire.dialects import agent_api
from hai_flow.wire.dialects.agent_api import AgentApiEncoder
from hai_flow.wire.dialects.dialect import Frame, Profile
from tests.support.examples import examples
from tests.support.wire_lint import lint_agent_api
from tests.wire.stories import Story, stories

Object = dict[str, Any]


def profile(*tools: str) -> Profile:
    return Profile(dialect="agent-api", version="1", client_tools=frozenset(tools))


def encode(story: Story, *tools: str, after: int = 0) -> list[Frame]:
    encoder = AgentApiEncoder(profile(*tools), story.state_at(after))
    return [frame for event in story.events[after:] for frame in encoder.encode(event)]


def attach(story: Story, *tools: str) -> list[Object]:
    return read(AgentApiEncoder(profile(*tools), story.state).preface("mine", ()))


def read(frames: list[Frame]) -> list[Object]:
    return [json.loads(frame.data) for frame in frames]


def last_turn(story: Story, *tools: str) -> list[Object]:
    """What the newest turn's response streams."""
    turn = story.state.turn
    assert turn is not None
    return read(encode(story, *tools, after=turn.first_seq - 1))


def messages(objects: list[Object], *statuses: str) -> list[tuple[str, Any]]:
    """The messages that are over, by their type, with the data of their only content."""
    return [
        (each["type"], each["content"][0].get("data"))
        for each in objects
        if each["object"] == "message" and each["status"] in (statuses or ("completed",))
    ]


def output(response: Object) -> list[tuple[str, Any]]:
    """The same of the messages in a response's output."""
    return messages(response["output"], "completed", "incomplete")


def waiting_for_a_tool() -> tuple[Story, str]:
    story = Story().start()
    call = story.frontend_call("a")
    return story.end_turn(), call


def answered(story: Story, call: str, content: str = "yes", error: str | None = None) -> Story:
    """A further turn, opened by the answer to a frontend tool's call."""
    story.open_turn("r2")
    story.tell(e.ToolCallResolved, tool_call_id=call, content=content, error=error)
    outcome = "answered" if error is None else "declined"
    return story.decide(call, outcome, content)


def test_a_call_of_a_server_tool_and_its_output_begin_empty_and_end_whole():
    story = Story().start().step("a")
    call = story.open_call("a", "server", name="weather")
    story.args(call, '{"city":"北京"}').end_call(call)
    story.tell(e.ToolCallResolved, tool_call_id=call, content="晴")
    objects = read(encode(story.done("a").finish()))
    named = {"call_id": call, "name": "weather"}
    said = [
        ("plugin_call", {**named, "arguments": '{"city":"北京"}'}),
        ("plugin_call_output", {**named, "output": "晴"}),
    ]
    assert messages(objects) == said
    begun = [each for each in objects if each["object"] == "message" and each["status"] == "in_progress"]
    assert [each["content"] for each in begun] == [None, None]
    assert output(objects[-1]) == said


def test_a_frontends_answer_is_a_function_call_output_of_the_next_response():
    story, call = waiting_for_a_tool()
    objects = last_turn(answered(story, call).finish())
    given = ("function_call_output", {"call_id": call, "name": "pick", "output": "yes"})
    assert messages(objects) == [given]
    assert output(objects[-1]) == [given]


def test_a_frontend_tool_that_failed_says_why_in_its_output():
    story, call = waiting_for_a_tool()
    objects = last_turn(answered(story, call, "no disk", "no disk").finish())
    assert messages(objects)[0][1] == {"call_id": call, "name": "pick", "output": "no disk", "error": "no disk"}


@pytest.mark.parametrize(("outcome", "approve"), [("approve", True), ("reject", False), ("later", False)])
def test_a_decision_is_an_approval_response_of_the_next_response(outcome: str, approve: bool):
    story = Story().start()
    asked = story.question("q", options=("approve", "reject", "later"))
    story.end_turn().open_turn("r2").decide(asked, outcome)
    objects = last_turn(story.finish())
    said = ("mcp_approval_response", {"approval_request_id": asked, "approve": approve, "reason": None})
    assert messages(objects) == [said]
    assert output(objects[-1]) == [said]


@pytest.mark.parametrize(
    ("kind", "tools", "name"), [("ask", (), "requestInput"), ("approve", ("confirmAction",), "confirmAction")]
)
def test_a_question_that_was_asked_as_a_call_is_answered_by_its_output(kind: str, tools: tuple[str, ...], name: str):
    story = Story().start()
    asked = story.question("q", kind, schema={"type": "object"})
    assert [type for type, _ in messages(read(encode(story, *tools)))] == ["function_call"]
    story.end_turn().open_turn("r2").decide(asked, "answered" if kind == "ask" else "approve", {"n": 1})
    ((type, data),) = messages(last_turn(story, *tools))
    assert (type, data["call_id"], data["name"]) == ("function_call_output", asked, name)


def test_an_incomplete_response_holds_all_open_items_of_earlier_turns():
    story, call = waiting_for_a_tool()
    question = story.question("q", options=("approve", "reject"))
    story.open_turn("r2").say("s", "still waiting").end_turn()
    response = last_turn(story)[-1]
    assert response["status"] == "incomplete"
    assert [type for type, _ in output(response)] == ["function_call", "mcp_approval_request", "message"]
    assert [data.get("call_id", data.get("id")) for _, data in output(response)[:2]] == [call, question]


def test_a_new_follower_gets_every_open_call_and_finds_it_in_the_output():
    story, call = waiting_for_a_tool()
    story.open_turn("r2").say("s", "still waiting").end_turn()
    objects = attach(story)
    assert [(type, data["call_id"]) for type, data in messages(objects)] == [("function_call", call)]
    assert [type for type, _ in output(objects[-1])] == ["function_call", "message"]
    assert (objects[-1]["id"], objects[-1]["status"]) == ("response_mine", "incomplete")


def test_a_call_is_told_once_while_it_happens():
    story, _ = waiting_for_a_tool()
    assert [type for type, _ in messages(read(encode(story)))] == ["function_call"]


def test_a_message_that_was_cut_off_is_incomplete():
    story = Story().start().say("a", "Hel", aborted=True).say("b", "Hello").finish()
    objects = read(encode(story))
    ended = [each["status"] for each in objects if each["object"] == "message" and each["status"] != "in_progress"]
    assert ended == ["incomplete", "completed"]
    assert [each["status"] for each in objects[-1]["output"]] == ["incomplete", "completed"]


def test_a_stream_that_must_end_leaves_its_message_incomplete():
    story = Story().start().step("a")
    story.chunk(story.open_message("a"), "Hel")
    farewell = read(AgentApiEncoder(profile(), story.state).farewell("the server is closing"))
    assert [(each["object"], each["status"]) for each in farewell] == [
        ("content", "completed"), ("message", "incomplete"), ("response", "failed"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"type": "image", "data": {"image_url": "data:,x"}}, {"type": "image", "image_url": "data:,x"}),
        (
            {"type": "audio", "data": {"data": "UklG", "format": "wav"}},
            {"type": "audio", "data": "UklG", "format": "wav"},
        ),
        (
            {"type": "file", "data": {"file_url": "https://a/b", "filename": "b"}},
            {"type": "file", "file_url": "https://a/b", "filename": "b", "file_id": None, "file_data": None},
        ),
        ({"type": "refusal", "data": {"refusal": "No."}}, {"type": "refusal", "refusal": "No."}),
        ({"type": "button", "data": {"name": "Go"}}, {"type": "data"}),
        ({"type": "image", "data": {"image_url": {"url": "nested"}}}, {"type": "data"}),
        ({"type": "image", "data": {"width": "5"}}, {"type": "data"}),
        ({"type": "image", "data": {"self": "5"}}, {"type": "data"}),
        ({"type": "refusal"}, {"type": "data"}),
    ],
)
def test_a_structured_output_is_the_content_of_its_kind_or_data(said: Object, shown: Object):
    story = Story().start().say("a", json.dumps(said), kind="data").finish()
    ((content,),) = [message["content"] for message in read(encode(story))[-1]["output"]]
    expected = shown if shown["type"] != "data" else {"type": "data", "data": said}
    assert {name: content[name] for name in expected} == expected
    assert (content["index"], content["status"]) == (0, "completed")


@settings(max_examples=examples(200), deadline=None)
@given(stories(), st.data())
def test_any_turn_is_a_well_formed_response_from_wherever_one_follows(story: Story, data: st.DataObject):
    at = data.draw(st.integers(1, len(story.events)))
    encoder = AgentApiEncoder(profile(), story.state_at(at))
    frames = [*encoder.preface("mine", ())]
    for event in story.events[at:]:
        if frames[-1].terminal:
            break
        frames += encoder.encode(event)
    if not frames[-1].terminal:
        frames += encoder.farewell("bye")
    numbers = Sequence()
    stream = b"".join(sse.event_bytes(agent_api.frame_with_number(frame, numbers.next())) for frame in frames)
    assert lint_agent_api(stream, whole=True) == []
    response = json.loads(frames[-1].data)
    if response["status"] == "incomplete":
        opened = {said.get("call_id", said.get("id")) for _, said in output(response) if said is not None}
        assert set(encoder.state.open_pendings.values()) <= opened
