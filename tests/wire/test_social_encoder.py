"""The threads' streams, event by event (docs/protocols/social.md)."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.dialect import Frame
from hai_flow.wire.dialects.social import SOCIAL, SocialEncoder, profile, report_of
from hai_flow.wire.dialects.transcript import list_entries
from tests.support.wire_lint import lint_social
from tests.wire.stories import Story, read, stories, types

WHO = {"threadId": "t1", "runId": "r1"}


def encode(story: Story, after: int = 0) -> list[Frame]:
    encoder = SocialEncoder(profile(), story.state_at(after))
    return [frame for event in story.events[after:] for frame in encoder.encode(event)]


def shown(story: Story, after: int = 0) -> list[dict]:
    return read(encode(story, after))


def linted(frames: list[Frame]) -> list[str]:
    return lint_social(SOCIAL.render_unnumbered(frames))


def test_a_run_from_start_to_end_as_the_document_writes_it():
    story = Story().start({"n": 1}).step("work").say("hi", "Hel", "lo").done("work").finish()
    frames = encode(story)
    assert read(frames) == [
        {"type": "RUN_STARTED", **WHO},
        {"type": "STEP_STARTED", **WHO, "stepName": "work"},
        {
            "type": "TEXT_MESSAGE_END",
            **WHO,
            "messageId": "m1",
            "role": "assistant",
            "stage": "worker",
            "status": "success",
            "answer": "Hello",
            "key_points": [],
            "result_type": "unknown",
            "suggested_actions": [],
            "error": None,
            "ui_schema": {},
        },
        {"type": "STEP_FINISHED", **WHO, "stepName": "work"},
        {"type": "RUN_FINISHED", **WHO},
    ]
    assert [frame.terminal for frame in frames] == [False] * 4 + [True]
    assert linted(frames) == []


def test_a_call_has_its_arguments_whole_and_its_result_in_snake_case():
    story = Story().start().step("a")
    call = story.open_call("a", "server", name="weather")
    story.args(call, '{"city":').args(call, '"北京"}').end_call(call)
    story.tell(e.ToolCallResolved, tool_call_id=call, content="晴")
    named = {"messageId": call, "toolCallId": call, "toolCallName": "weather"}
    assert shown(story)[2:] == [
        {"type": "TOOL_CALL_START", **WHO, **named, "stage": "worker"},
        {"type": "TOOL_CALL_ARGS", **WHO, **named, "args": {"city": "北京"}, "stage": "worker"},
        {"type": "TOOL_CALL_END", **WHO, **named, "stage": "worker"},
        {
            "type": "TOOL_CALL_RESULT",
            **WHO,
            "messageId": f"{call}:result",
            "role": "tool",
            "stage": "worker",
            "tool_name": "weather",
            "tool_call_id": call,
            "tool_call_args": {"city": "北京"},
            "status": "success",
            "result": "晴",
            "error": None,
        },
    ]
    assert linted(encode(story)) == []


def test_a_frontend_tools_answer_is_told_like_any_other_result():
    story = Story().start()
    call = story.frontend_call("pick")
    story.end_turn().open_turn("r2")
    before = len(story.events)
    story.tell(e.ToolCallResolved, tool_call_id=call, content="", error="no permission")
    (result,) = shown(story, before)
    assert (result["runId"], result["status"], result["error"]) == ("r2", "failure", "no permission")


def test_arguments_that_are_no_object_are_kept_as_a_value():
    story = Story().start().step("a")
    for args, found in [("[1]", {"value": [1]}), ("{no", {"value": "{no"}), ("", {})]:
        call = story.open_call("a", "server")
        if args:
            story.args(call, args)
        before = len(story.events)
        story.end_call(call)
        assert shown(story, before)[0]["args"] == found


def test_a_turn_that_waits_says_so_and_for_what_and_the_stream_goes_on():
    story = Story().start()
    gate = story.question("gate", options=("approve", "reject"), deadline=99)
    story.end_turn().open_turn("r2").decide(gate, "approve").finish()
    frames = encode(story)
    waits = read(frames)[4]
    assert waits == {
        "type": "RUN_FINISHED",
        **WHO,
        "status": "waiting",
        "pendings": [
            {"id": gate, "kind": "approve", "title": "Sure?", "options": ["approve", "reject"], "deadline": 99}
        ],
    }
    assert [frame.terminal for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert linted(frames) == []


def test_a_question_is_a_message_that_asks_for_clarification():
    story = Story().start()
    form = {"type": "object"}
    id = story.question("q", "ask", message="Which one?", schema=form)
    said = shown(story)[-1]
    assert (said["messageId"], said["answer"], said["result_type"]) == (id, "Sure?\nWhich one?", "clarification")
    assert said["ui_schema"]["form"] == form


def test_an_output_fills_the_ui_schema_and_a_report_its_message_fields():
    story = Story().start()
    button = {"type": "button", "data": {"name": "go"}}
    story.say("a", json.dumps(button), kind="data", block_id="b", layout={"x": 0})
    data = {
        "answer": "Done", "key_points": ["one"], "result_type": "execution_report", "status": "partial_success",
        "ui_schema": "no", "cost": 5,
    }  # fmt: skip
    story.say("b", json.dumps({"type": "report", "data": data}), kind="data")
    story.say("c", json.dumps({"type": "report", "data": {"status": "great", "key_points": {}}}), kind="data")
    block, report, wrong = [event for event in shown(story) if event["type"] == "TEXT_MESSAGE_END"]
    assert (block["answer"], block["ui_schema"]) == ("", {"output": button, "layout": {"x": 0}, "blockId": "b"})
    assert (report["answer"], report["key_points"], report["result_type"]) == ("Done", ["one"], "execution_report")
    assert (report["status"], report["ui_schema"]) == ("partial_success", {})
    assert "cost" not in report
    assert (wrong["status"], wrong["key_points"]) == ("success", [])


def test_thoughts_and_what_only_other_dialects_know_are_not_sent():
    story = Story().start()
    before = len(story.events)
    story.say("a", "hm", kind="thinking").say("b", '{"type":"thinking","data":{"content":"hm"}}', kind="data")
    story.tell(e.CustomEmitted, path="c", name="x", value=1)
    story.tell(e.RawEmitted, path="c", event={}, source=None)
    story.tell(e.CollaborationStarted, path="d", from_="a", to="b", task={"id": "1", "name": "n"})
    assert encode(story, before) == []


def test_a_message_that_was_cut_off_says_so():
    story = Story().start().say("a", "half", aborted=True).say("b", aborted=True)
    half, nothing = [event for event in shown(story) if event["type"] == "TEXT_MESSAGE_END"]
    assert (half["status"], half["answer"], half["result_type"]) == ("partial_success", "half", "error_report")
    assert half["error"]
    assert nothing["status"] == "failed"


def test_a_changed_state_is_told_whole():
    story = Story().start({"n": 1}).set({"op": "add", "path": "/x", "value": [None]})
    assert shown(story)[-1] == {"type": "STATE_SNAPSHOT", **WHO, "snapshot": {"n": 1, "x": [None]}}


def test_a_failed_run_ends_in_an_error_with_its_code():
    frames = encode(Story().start().step("a").fail())
    assert read(frames)[-1] == {"type": "RUN_ERROR", **WHO, "message": "Step a failed.", "code": "tool.failed"}
    assert frames[-1].terminal


def test_a_stopped_run_is_cancelled_once_in_a_turn_and_between_two():
    inside, between = Story().start().step("a"), Story().start().step("a").end_turn()
    inside.tell(e.RunStopping, by="user:local", reason="enough")
    inside.end_turn("stopped")
    for story in (inside, between):
        story.tell(e.RunStopped, by="user:local", reason="enough")
        frames = encode(story)
        errors = [event for event in read(frames) if event["type"] == "RUN_ERROR"]
        assert errors == [{"type": "RUN_ERROR", **WHO, "message": "enough", "code": "cancelled"}]
        assert frames[-1].terminal
        assert linted(frames) == []
        assert types(SocialEncoder(profile(), story.state).preface(None, ()))[-1] == "RUN_ERROR"


def test_who_has_lost_his_place_is_told_all_messages():
    earlier = Story().start().post("u0").say("x", "before").finish()
    story = Story().start({"n": 1})
    story.names = 10
    story.post("u1", [{"type": "text", "text": "hi"}]).say("y", "now", kind="thinking").say("z", "then")
    story.question("gate")
    story.end_turn()
    frames = SocialEncoder(profile(), story.state).preface(None, list_entries(earlier.state))
    assert types(frames) == [
        "RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_END", "RUN_FINISHED"
    ]  # fmt: skip
    messages = read(frames)[2]["messages"]
    assert [(each["role"], each["content"]) for each in messages] == [
        ("user", "hello"), ("assistant", "before"), ("user", [{"type": "text", "text": "hi"}]), ("assistant", "then"),
    ]  # fmt: skip
    assert messages[1]["result_type"] == "unknown"
    assert linted(frames) == []


def test_the_history_is_what_the_thread_has_said_and_asks():
    story = Story().start().post("u1").say("x", "hi")
    id = story.frontend_call("pick", parent="m1")
    story.end_turn()
    shown = SocialEncoder(profile(), story.state).history(())
    assert (shown["threadId"], shown["runId"], shown["status"]) == ("t1", "r1", "waiting")
    assert [message["id"] for message in shown["messages"]] == ["u1", "m1"]
    assert shown["messages"][1]["toolCalls"][0]["id"] == id
    assert shown["pendings"] == [{"id": id, "kind": "tool", "title": "Pick?", "tool": "pick"}]
    empty = SocialEncoder(profile(), RunState("", thread_id="t9")).history(())
    assert empty == {"threadId": "t9", "runId": None, "status": None, "messages": [], "pendings": []}


def test_a_closing_server_says_nothing():
    assert SocialEncoder(profile(), Story().start().state).farewell("The server is closing.") == []


@settings(deadline=None)
@given(stories(), st.data())
def test_every_stream_is_clean_from_any_place(story, data):
    cut = data.draw(st.integers(1, len(story.events)))
    assert linted(encode(story, cut)) == []
    assert linted(SocialEncoder(profile(), story.state_at(cut)).preface("asker", ())) == []


@settings(deadline=None)
@given(stories())
def test_each_message_of_the_run_is_told_exactly_once(story):
    told = [event["messageId"] for event in shown(story) if event["type"] == "TEXT_MESSAGE_END"]
    ours = [m for m in story.state.messages.values() if m.path is not None and not m.open and report_of(m) is not None]
    asked = [p.opened.id for p in story.state.pendings.values() if p.opened.kind != "tool"]
    assert sorted(told) == sorted([m.id for m in ours] + asked)
