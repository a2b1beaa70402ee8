"""Transcripts: what a HAI client is sent, event by event (docs/design/protocols.md#hai)."""

from __future__ import annotations

import json
from typing import Final

import pytest

from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.tool_calls import ABORTED
from hai_flow.wire.a2a.tasks import A2AEncoder
from hai_flow.wire.dialects.agent_api import AgentApiEncoder
from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.aui import AuiEncoder
from hai_flow.wire.dialects.dialect import error_message, readdress
from hai_flow.wire.dialects.hai import HaiEncoder, document
from hai_flow.wire.dialects.social import SocialEncoder
from hai_flow.wire.dialects.transcript import list_entries
from hai_flow.wire.dialects.turns import IGNORED, TurnEncoder
from tests.support.wire_lint import lint
from tests.wire.stories import RUN, Story, deltas, encode, encode_from, parse_json_string, profile, read, types

PLAIN = profile()


def test_every_event_type_is_either_shown_or_ignored_on_purpose():
    assert set(TurnEncoder.SHOWN) | IGNORED == set(e.EVENT_TYPES)
    assert not set(TurnEncoder.SHOWN) & IGNORED


OWN_METHODS: Final = {
    "SHOWN", "encode", "farewell", "filter_event", "message_cut", "open_calls", "open_messages", "preface", "run_id",
    "step_below_ended", "frontend_result", "open_question",  # which is a question, unless a dialect says otherwise
}  # fmt: skip
HIDDEN: Final[dict[type[TurnEncoder], set[str]]] = {  # the methods that each dialect leaves out on purpose
    HaiEncoder: {"frontend_tool_asked"},
    AguiEncoder: {"frontend_tool_asked", "question_decided"},
    AuiEncoder: {"call_args", "question_decided", "raw"},
    AgentApiEncoder: {"call_args", "messages_snapshot", "state_delta", "state_snapshot", "step_edge"},
    SocialEncoder: {
        "break_off", "call_args", "collaboration", "custom", "frontend_tool_asked", "message_content",
        "message_started", "question_decided", "raw",
    },
    A2AEncoder: {  # text as it comes; the rest is the task's status and artifacts
        "break_off", "call_args", "call_ended", "call_result", "call_started", "collaboration", "custom",
        "frontend_tool_asked", "message_started", "messages_snapshot", "question", "question_decided", "raw",
        "run_failed", "run_finished", "run_started", "state_delta", "state_snapshot", "step_edge",
    },
}  # fmt: skip


@pytest.mark.parametrize("encoder", HIDDEN)
def test_a_dialect_leaves_out_what_it_hides_on_purpose_alone(encoder: type[TurnEncoder]):
    methods = {name for name in vars(TurnEncoder) if not name.startswith("_")} - OWN_METHODS
    assert {name for name in methods if getattr(encoder, name) is getattr(TurnEncoder, name)} == HIDDEN[encoder]


def test_a_run_that_says_something_from_start_to_end():
    story = Story().start({"n": None}).say("hi", "Hello", " you", layout={"x": 0})
    frames = encode(story.finish(), PLAIN)
    assert types(frames) == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "BUSINESS_DATA_START",
        "BUSINESS_DATA_CONTENT",
        "BUSINESS_DATA_CONTENT",
        "BUSINESS_DATA_END",
        "CUSTOM",
        "RUN_FINISHED",
    ]
    events = read(frames)
    assert (events[-2]["name"], events[-2]["value"]) == ("hai.output", {"output": {"ok": None}})
    assert events[0] == {
        "type": "RUN_STARTED",
        "threadId": "t1",
        "runId": "r1",
        "messageId": f"msg_{RUN}.1",
        "role": "assistant",
        "timestamp": story.events[1].at,
    }
    assert events[1]["snapshot"] == {"n": None}
    assert events[2] == {
        "type": "BUSINESS_DATA_START",
        "messageId": "m1",
        "role": "assistant",
        "timestamp": story.events[3].at,
    }
    assert events[3]["delta"] == '{"output":{"type":"text","content":"Hello"},"layout":{"x":0}}'
    assert events[-1] == {**events[0], "type": "RUN_FINISHED", "timestamp": story.at}
    assert [frame.terminal for frame in frames] == [False] * 7 + [True]
    assert lint(frames) == []


def test_a_turn_that_no_client_opened_has_its_own_run_id():
    story = Story().start(wire_run_id=None).end_turn()
    assert read(encode(story, PLAIN))[0]["runId"] == f"{RUN}.1"


def test_block_id_and_style_stand_in_the_delta_and_on_top():
    story = (
        Story().start().say("x", '{"type":"button","data":{"name":"go"}}', kind="data", block_id="b1", style={"k": 1})
    )
    content = read(encode(story, PLAIN))[3]
    assert json.loads(content["delta"]) == {
        "output": {"type": "button", "data": {"name": "go"}},
        "layout": {},
        "blockId": "b1",
        "style": {"k": 1},
    }
    assert (content["blockId"], content["style"]) == ("b1", {"k": 1})


def test_thinking_goes_on_until_its_message_ends():
    story = Story().start().say("x", "hm", kind="thinking")
    outputs = [each["output"] for each in parse_json_string(deltas(read(encode(story, PLAIN)), "m1"))]
    assert [(o["type"], o["data"]["content"], o["data"]["thinking"]) for o in outputs] == [
        ("thinking", "hm", True),
        ("thinking", "", False),
    ]
    assert outputs[0]["data"]["collapse"] is True


def test_plain_text_is_bare_on_the_stream_and_in_the_snapshot():
    story = Story().start().say("x", "a}{b", "c")
    plain = profile(text="plain")
    assert deltas(read(encode(story, plain)), "m1") == "a}{bc"
    snapshot = read(HaiEncoder(plain, story.state).preface("r2", ()))[2]
    assert snapshot["messages"][0]["content"] == "a}{bc"


def test_braces_in_a_text_are_not_taken_for_a_seam():
    delta = document({"type": "text", "content": "x}{y}{{"})
    assert "}{" not in delta
    assert parse_json_string(delta * 2) == [json.loads(delta)] * 2
    assert json.loads(delta)["output"]["content"] == "x}{y}{{"


def test_steps_are_named_by_path_and_silent_verbs_have_none():
    story = Story().start().step("ship").step("ship/x", "set").done("ship/x").done("ship").finish()
    frames = encode(story, PLAIN)
    assert [(f["type"], f["stepName"]) for f in read(frames) if "stepName" in f] == [
        ("STEP_STARTED", "ship"),
        ("STEP_FINISHED", "ship"),
    ]


def test_a_step_that_outlives_its_turn_is_closed_and_not_opened_again():
    story = Story().start().step("all", "parallel").step("all/a").end_turn().open_turn("r2")
    story.done("all/a").done("all").finish()
    frames = encode(story, PLAIN)
    steps = [(f["type"], f["stepName"]) for f in read(frames) if "stepName" in f]
    assert steps == [
        ("STEP_STARTED", "all"),
        ("STEP_STARTED", "all/a"),
        ("STEP_FINISHED", "all/a"),
        ("STEP_FINISHED", "all"),
    ]
    assert lint(frames) == []


def test_a_frontend_tool_is_called_and_the_run_ends_for_now():
    story = Story().start().say("x", "look")
    call = story.frontend_call("ask", parent="m1")
    story.end_turn()
    frames = encode(story, PLAIN)
    assert types(frames)[-6:] == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ]
    start = read(frames)[-6]
    assert (start["toolCallId"], start["toolCallName"], start["parentMessageId"]) == (call, "pick", "m1")
    assert [frame.tool_call_id for frame in frames[-6:]] == [call] * 4 + [None] * 2
    assert "".join(f["delta"] for f in read(frames)[-5:-3]) == '{"of":[1,null]}'


def test_an_exposed_server_tool_shows_its_result():
    story = Story().start().step("a")
    call = story.open_call("a", "server")
    story.args(call, "{}").end_call(call)
    story.tell(e.ToolCallResolved, tool_call_id=call, content="42")
    frame = encode(story, PLAIN)[-1]
    assert frame.tool_call_id is None
    assert json.loads(frame.data) == {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{call}:result",
        "toolCallId": call,
        "content": "42",
        "role": "tool",
        "timestamp": story.at,
    }


def test_a_frontend_knows_the_result_of_its_own_tool():
    story = Story().start()
    call = story.frontend_call("a")
    before = len(story.events)
    story.tell(e.ToolCallResolved, tool_call_id=call, content="42")
    assert encode(story, PLAIN, before) == []


@pytest.mark.parametrize("encoder", [HaiEncoder, AguiEncoder])
def test_a_call_with_broken_arguments_is_answered_so_that_nobody_acts(encoder: type[TurnEncoder]) -> None:
    story = Story().start()
    call = story.open_call("a", "frontend")
    story.args(call, '{"doc":"Once u').args(call, '"}').end_call(call)
    story.tell(e.ToolCallResolved, tool_call_id=call, content=ABORTED, error=ABORTED)
    encoding = encoder(PLAIN, RunState(RUN))
    (frame,) = read([frame for event in story.events for frame in encoding.encode(event)][-1:])
    assert (frame["type"], frame["toolCallId"], frame["content"]) == ("TOOL_CALL_RESULT", call, "aborted")


def test_a_question_is_a_pending_to_a_client_without_the_tool_for_it():
    story = Story().start()
    id = story.question("gate", options=("approve", "reject"), deadline=99, evidence='{"a":1}')
    event = read(encode(story, PLAIN))[-1]
    assert event == {
        "type": "CUSTOM",
        "name": "hai.pending",
        "value": {
            "id": id,
            "kind": "approve",
            "title": "Sure?",
            "evidence": {"a": 1},
            "options": ["approve", "reject"],
            "deadline": 99,
            "digest": "d",
        },
        "timestamp": story.at,
    }


def test_a_person_who_cannot_answer_sees_a_question_without_its_contents():
    story = Story().start()
    id = story.question("gate", options=("approve", "reject"), evidence='{"a":1}', policy={"asks_requester": False})
    for who in (PLAIN, profile(may_answer=False)):
        value = read(encode(story, who))[-1]["value"]
        assert value == {"id": id, "kind": "approve", "title": "Sure?", "options": ["approve", "reject"]}


@pytest.mark.parametrize(("kind", "tool"), [("approve", "confirmAction"), ("ask", "requestInput")])
def test_a_question_is_a_call_of_the_tool_that_the_client_advertised(kind, tool):
    story = Story().start()
    id = story.question("gate", kind, message="m", evidence='{"a":null}', schema={"type": "object"}, deadline=9)
    frames = encode(story, profile(tool))[-3:]
    assert types(frames) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    assert [frame.tool_call_id for frame in frames] == [id] * 3
    start, args, _ = read(frames)
    assert (start["toolCallId"], start["toolCallName"]) == (id, tool)
    assert json.loads(args["delta"]) == {
        "title": "Sure?",
        "message": "m",
        "evidence": {"a": None},
        "form": {"type": "object"},
        "deadline": 9,
        "digest": "d",
    }


def test_who_may_not_answer_is_told_but_not_asked():
    story = Story().start()
    story.question("gate")
    assert encode(story, profile("confirmAction", may_answer=False))[-1].name == "CUSTOM"


def test_state_changes_have_a_from():
    ops = ({"op": "add", "path": "/a", "value": None}, {"op": "move", "path": "/b", "from": "/a"})
    story = Story().start().set(*ops)
    assert read(encode(story, PLAIN))[-1]["delta"] == [
        {"op": "add", "path": "/a", "value": None, "from": ""},
        {"op": "move", "path": "/b", "from": "/a"},
    ]


@pytest.mark.parametrize("status", ["paused", "needs_attention", "queued"])
def test_a_turn_that_ends_for_another_reason_than_people_says_so(status):
    frames = encode(Story().start().end_turn(status), PLAIN)
    assert types(frames)[-2:] == ["CUSTOM", "RUN_FINISHED"]
    assert read(frames)[-2]["value"] == {"status": status}
    assert lint(frames) == []


def test_a_stopped_run_says_so_once():
    story = Story().start()
    story.tell(e.RunStopping, by="user:local", reason="enough")
    story.end_turn("stopped")
    story.tell(e.RunStopped, by="user:local", reason="enough")
    frames = encode(story, PLAIN)
    assert types(frames)[-2:] == ["CUSTOM", "RUN_FINISHED"]
    assert read(frames)[-2]["value"] == {"status": "stopped", "reason": "enough"}
    assert lint(frames) == []


def test_a_run_stopped_between_turns_has_no_stream_to_tell():
    story = Story().start().end_turn()
    before = len(story.events)
    story.tell(e.RunStopped, by="user:local", terminated=True)
    assert encode(story, PLAIN, before) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (e.Error("fail", "Out of stock", "a"), "Out of stock"),
        (e.Error("stock.empty", "Out of stock", "a"), "Out of stock"),
        (e.Error("approval.rejected", "Rejected by ann", "gate"), "Rejected by ann"),
        (e.Error("tool.failed", "password=1", "a", 1), "Step a failed."),
        (e.Error("mine.code", "password=1", "a", 1), "Step a failed."),
        (e.Error("expression.error", "inner", "a"), "Step a failed."),
        (e.Error("mcp.unavailable", "inner", "a"), "Step a failed."),
        (e.Error("limit.steps", "inner"), "The run failed."),
    ],
)
def test_an_error_says_no_more_than_its_author_meant_to(error, message):
    assert error_message(error) == message


def test_a_failed_run_ends_in_an_error():
    frames = encode(Story().start().step("a").fail(), PLAIN)
    assert types(frames)[-2:] == ["STEP_FINISHED", "RUN_ERROR"]
    last = read(frames)[-1]
    assert (last["message"], last["code"]) == ("Step a failed.", "tool.failed")
    assert frames[-1].terminal


def test_who_attaches_sees_the_thread_and_then_what_is_open():
    earlier = Story().start().post("u0").say("x", "before").finish()
    story = Story().start({"n": 1})
    story.turn, story.names = 1, 10
    story.post("u1", "hi").say("x", "closed", aborted=True)
    story.step("live")
    live = story.open_message("live")
    story.chunk(live, "so ").chunk(live, "far")
    call = story.open_call("live", "server")
    story.args(call, '{"a"')
    encoder = HaiEncoder(PLAIN, RunState(RUN))
    encode_from(encoder, story.events)
    frames = encoder.preface("asker", list_entries(earlier.state))
    events = read(frames)
    assert types(frames) == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "MESSAGE_SNAPSHOT",
        "STEP_STARTED",
        "BUSINESS_DATA_START",
        "BUSINESS_DATA_CONTENT",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
    ]
    assert events[0]["runId"] == "asker"
    u0, m1, u1, m11 = events[2]["messages"]
    assert u0 == {"id": "u0", "role": "user", "content": "hello", "timestamp": 5}
    assert (m1["role"], parse_json_string(m1["content"])[0]["output"]["content"]) == ("assistant", "before")
    assert u1["content"] == "hi"
    assert m11["extra"] == {"aborted": True}
    assert json.loads(events[5]["delta"])["output"]["content"] == "so far"
    assert events[7]["delta"] == '{"a"'
    rest = [*frames, *encoder.farewell("The server is closing.")]
    assert lint(rest) == []
    assert read(rest)[-1]["code"] == "server_closing"
    assert types(rest)[-4:] == ["TOOL_CALL_END", "BUSINESS_DATA_END", "STEP_FINISHED", "RUN_ERROR"]


def test_an_open_call_stands_in_the_snapshot_and_is_not_streamed_again():
    story = Story().start().say("x", "look")
    call = story.frontend_call("a", parent="m1")
    gate = story.question("gate")
    story.end_turn()
    frames = HaiEncoder(profile("confirmAction"), story.state).preface("r9", ())
    assert types(frames) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGE_SNAPSHOT", "RUN_FINISHED"]
    assert frames[-1].terminal
    assert read(frames)[-1]["runId"] == "r9"
    look, confirm = read(frames)[2]["messages"]
    assert look["toolCalls"] == [
        {"id": call, "type": "function", "function": {"name": "pick", "arguments": '{"of":[1,null]}'}}
    ]
    assert confirm["id"] == gate
    assert confirm["toolCalls"][0]["function"]["name"] == "confirmAction"
    assert lint(frames) == []


def test_an_open_question_is_told_again_to_who_has_no_tool_for_it():
    story = Story().start()
    story.question("gate")
    story.end_turn()
    frames = HaiEncoder(PLAIN, story.state).preface("r9", ())
    assert types(frames)[-2:] == ["CUSTOM", "RUN_FINISHED"]


def test_answered_calls_have_their_answers_in_the_snapshot():
    story = Story().start()
    call, gate = story.frontend_call("a"), story.question("gate")
    other, gone = story.frontend_call("b"), story.question("gate2")
    story.end_turn().open_turn("r2").decide(call, value={"ok": True}).decide(gate, "approve").decide(other, value="x")
    story.tell(e.PendingVoided, id=gone, reason="the branch lost")
    story.say("end", "bye").finish()
    messages = read(HaiEncoder(profile("confirmAction"), story.state).preface(None, ()))[2]["messages"]
    answers = {m["toolCallId"]: m["content"] for m in messages if m["role"] == "tool"}
    assert answers == {call: '{"ok":true}', gate: '{"decision":"approve"}', other: "x", gone: "the branch lost"}
    assert messages[-1]["id"] == "m5"


def test_a_call_that_an_earlier_run_left_open_is_closed_in_the_snapshot():
    earlier = Story().start()
    call = earlier.frontend_call("a")
    messages = read(HaiEncoder(PLAIN, RunState(RUN, thread_id="t1")).preface("r", list_entries(earlier.state)))[2][
        "messages"
    ]
    assert messages[-1] == {
        "id": f"{call}:result",
        "role": "tool",
        "content": "voided",
        "toolCallId": call,
        "error": "voided",
    }


@pytest.mark.parametrize("end", ["failed", "stopped", "finished"])
def test_who_attaches_to_a_run_that_is_over_learns_how_it_ended(end):
    story = Story().start()
    if end == "failed":
        story.fail()
    elif end == "stopped":
        story.tell(e.RunStopped, by="user:local", terminated=True)
    else:
        story.finish()
    expected = {"failed": ["RUN_ERROR"], "stopped": ["CUSTOM", "RUN_FINISHED"], "finished": ["CUSTOM", "RUN_FINISHED"]}[
        end
    ]
    assert types(HaiEncoder(PLAIN, story.state).preface("r9", ()))[3:] == expected


def test_the_end_of_a_turn_can_name_the_run_id_of_who_attached():
    last = encode(Story().start().end_turn(), PLAIN)[-1]
    ours = readdress(last, "asker")
    assert json.loads(ours.data) == {**json.loads(last.data), "runId": "asker"}
    assert (ours.name, ours.terminal) == (last.name, True)
    error = encode(Story().start().fail(), PLAIN)[-1]
    assert readdress(error, "asker") == error


def test_an_unknown_thread_is_empty():
    frames = HaiEncoder(profile(snapshot="MESSAGES_SNAPSHOT"), RunState(RUN, thread_id="t9")).preface("r1", ())
    assert types(frames) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert read(frames)[1]["snapshot"] == {}
    assert read(frames)[0]["threadId"] == "t9"
    assert lint(frames) == []
