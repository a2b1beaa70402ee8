"""The log as AG-UI events: what each event becomes, in both profiles (docs/protocols/agui.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.engine import events as e
from hai_flow.engine.state.ids import pending_id, tool_call_id
from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.turns import IGNORED
from tests.support.wire_lint import lint_agui
from tests.wire.stories import RUN, Story, read, types

VERSIONS = pytest.mark.parametrize("version", ["1.0", "0"])


def profile(*tools: str, version: str = "1.0", **more: Any) -> Profile:
    return Profile(dialect="agui", version=version, client_tools=frozenset(tools), **more)


def encode(story: Story, profile: Profile, after: int = 0) -> list[dict[str, Any]]:
    encoder = AguiEncoder(profile, story.state_at(after))
    frames = [frame for event in story.events[after:] for frame in encoder.encode(event)]
    whole = after == 0 and not story.state.turn_open
    assert not whole or lint_agui(frames, profile.version) == []
    assert all(types(frames))
    return read(frames)


def preface(story: Story, profile: Profile, transcript: Any = ()) -> list[dict[str, Any]]:
    frames = AguiEncoder(profile, story.state).preface("asker", transcript)
    assert not frames[-1].terminal or lint_agui(frames, profile.version) == []
    return read(frames)


def body(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of a turn without its beginning and its times."""
    shown = [{key: value for key, value in event.items() if key != "timestamp"} for event in events]
    return [event for event in shown if event["type"] not in ("RUN_STARTED", "STATE_SNAPSHOT", "RUN_FINISHED")]


def test_every_event_is_shown_or_left_out_on_purpose():
    shown = set(AguiEncoder.SHOWN)
    assert shown.isdisjoint(IGNORED)
    assert set(e.Event.__subclasses__()) == shown | IGNORED


@VERSIONS
def test_a_run_begins_with_our_version_and_ends_without_an_outcome(version):
    story = Story().start({"a": None}).finish()
    assert encode(story, profile(version=version)) == [
        {
            "type": "RUN_STARTED",
            "threadId": "t1",
            "runId": "r1",
            "protocolVersion": "1.0",
            "timestamp": story.events[1].at,
        },
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": None}, "timestamp": story.events[1].at},
        {"type": "RUN_FINISHED", "threadId": "t1", "runId": "r1", "timestamp": story.at},
    ]


def test_a_branch_names_the_run_that_it_comes_from():
    options = (("agui.parent", "r0"),)
    assert encode(Story().start().finish(), profile(options=options))[0]["parentRunId"] == "r0"


@VERSIONS
def test_text_is_a_text_message(version):
    story = Story().start().say("x", "a", "", "b").finish()
    assert body(encode(story, profile(version=version))) == [
        {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "a"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "b"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
    ]


def test_a_texts_place_is_metadata_for_those_who_know_metadata():
    story = Story().start().say("x", "a", block_id="b", layout={"x": 1}).finish()
    new, old = encode(story, profile()), encode(story, profile(version="0"))
    assert new[2]["metadata"] == {"hai": {"blockId": "b", "layout": {"x": 1}}}
    assert "metadata" not in old[2]


@VERSIONS
def test_thinking_is_reasoning(version):
    story = Story().start().say("x", "hm", kind="thinking").finish()
    assert body(encode(story, profile(version=version))) == [
        {"type": "REASONING_START", "messageId": "m1"},
        {"type": "REASONING_MESSAGE_START", "messageId": "m1", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m1", "delta": "hm"},
        {"type": "REASONING_MESSAGE_END", "messageId": "m1"},
        {"type": "REASONING_END", "messageId": "m1"},
    ]
    off = profile(version=version, options=(("agui.reasoning", "off"),))
    assert body(encode(story, off)) == []
    assert "MESSAGES_SNAPSHOT" not in [event["type"] for event in preface(story, off)]


@VERSIONS
def test_a_structured_output_is_an_activity(version):
    output = {"type": "button", "data": {"name": None}}
    story = Story().start().say("x", json.dumps(output), kind="data", block_id="b").finish()
    activity = {"messageId": "m1", "activityType": "hai.block", "content": {"output": output, "blockId": "b"}}
    assert body(encode(story, profile(version=version))) == [{"type": "ACTIVITY_SNAPSHOT", **activity}]
    messages = preface(story, profile(version=version))[2]["messages"]
    assert messages == [{"id": "m1", "role": "activity", "activityType": "hai.block", "content": activity["content"]}]


def test_a_collaboration_is_a_custom_event():
    story = Story().start()
    story.tell(e.CollaborationStarted, path="x", from_="a", to="b", task={"id": "t", "name": "T"})
    (event,) = body(encode(story.finish(), profile()))
    assert (event["name"], event["value"]["from"], event["value"]["to"]) == ("hai.collaboration", "a", "b")


def test_raw_and_custom_are_the_authors_own_also_where_they_say_null():
    story = Story().start()
    story.tell(e.RawEmitted, path="x", event=None)
    story.tell(e.RawEmitted, path="x", event={"a": 1}, source="s")
    story.tell(e.CustomEmitted, path="x", name="mine", value=None)
    assert body(encode(story.finish(), profile())) == [
        {"type": "RAW", "event": None},
        {"type": "RAW", "event": {"a": 1}, "source": "s"},
        {"type": "CUSTOM", "name": "mine", "value": None},
    ]


def test_a_change_of_state_is_rfc_6902_and_nothing_else():
    story = Story().start({"a": 1}).set({"op": "replace", "path": "/a", "value": None}).finish()
    assert body(encode(story, profile())) == [
        {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/a", "value": None}]}
    ]


@VERSIONS
def test_a_frontend_call_ends_the_run_without_an_outcome(version):
    story = Story().start()
    id = story.frontend_call("f")
    events = encode(story.end_turn(), profile("pick", version=version))
    assert [event["type"] for event in body(events)] == [
        "STEP_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "TOOL_CALL_END", "STEP_FINISHED",
    ]  # fmt: skip
    assert "outcome" not in events[-1]
    shown = preface(story, profile("pick", version=version))
    assert shown[2]["messages"][0]["toolCalls"][0]["id"] == id
    assert [event["type"] for event in shown] == [
        "RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED",
    ]  # fmt: skip


def test_a_call_hangs_on_text_and_on_nothing_else():
    story = Story().start().say("a", "x").say("b", "{}", kind="data").say("c", "y", kind="thinking")
    for parent in ("m1", "m2", "m3", "m9"):
        story.frontend_call(story.name("f"), parent)
    starts = [event for event in encode(story.end_turn(), profile("pick")) if event["type"] == "TOOL_CALL_START"]
    assert [event.get("parentMessageId") for event in starts] == ["m1", None, None, None]


# --- questions ----------------------------------------------------------------------------------------------------


@VERSIONS
def test_an_approval_is_an_interrupt(version):
    story = Story().start()
    id = story.question("q", options=("approve", "reject"), evidence='{"a":null}', deadline=1_700_000_000_000)
    story.end_turn()
    events = encode(story, profile(version=version))
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    assert interrupt == {
        "id": id,
        "reason": "confirmation",
        "message": "Sure?",
        "responseSchema": {
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["approved"],
        },
        **({"expiresAt": "2023-11-14T22:13:20.000Z"} if version == "1.0" else {}),
        "metadata": {
            "hai": {
                "kind": "approve",
                "title": "Sure?",
                "evidence": {"a": None},
                "options": ["approve", "reject"],
                "deadline": 1_700_000_000_000,
                "digest": "d",
            }
        },
    }
    told = {event["name"]: event["value"] for event in events if event["type"] == "CUSTOM"}
    if version == "1.0":
        assert told == {}
    else:
        assert (told["hai.pending"]["id"], told["hai.pending"]["evidence"]) == (id, {"a": None})
        assert told["on_interrupt"] == interrupt
    looking_on = encode(story, profile(version=version, may_answer=False))
    (told,) = [event["value"] for event in looking_on if event["type"] == "CUSTOM"]
    assert told.keys().isdisjoint({"evidence", "digest"})
    assert preface(story, profile(version=version))[-1]["outcome"]["interrupts"] == [interrupt]


@pytest.mark.parametrize(
    ("fields", "properties", "required"),
    [
        ({"options": ("approve", "reject")}, {"approved", "reason"}, ["approved"]),
        ({"options": ("approve", "reject", "later")}, {"decision", "reason"}, ["decision"]),
        ({"options": ("approve", "reject"), "schema": {"type": "object"}}, {"decision", "reason", "values"}, None),
        (
            {"options": ("approve", "reject"), "policy": {"edit": ["a"]}},
            {"approved", "reason", "edits", "editedArgs"},
            ["approved"],
        ),
    ],
)
def test_the_answers_schema_asks_for_no_more_than_there_is_to_say(fields, properties, required):
    story = Story().start()
    story.question("q", **fields)
    schema = encode(story.end_turn(), profile())[-1]["outcome"]["interrupts"][0]["responseSchema"]
    assert schema["properties"].keys() == properties
    assert schema["required"] == (required or ["decision"])
    assert "additionalProperties" not in schema


def test_a_forms_references_still_count_from_the_root():
    form = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}
    story = Story().start()
    story.question("q", options=("approve", "reject"), schema=form)
    schema = encode(story.end_turn(), profile())[-1]["outcome"]["interrupts"][0]["responseSchema"]
    assert schema["$defs"] == {"a": {"type": "string"}}
    assert "$defs" not in schema["properties"]["values"]


@pytest.mark.parametrize("policy", [{"escalations": [{}]}, {"pause_clock": "stop"}])
def test_what_may_be_answered_after_its_deadline_has_no_expiry(policy):
    story = Story().start()
    story.question("q", options=("approve", "reject"), deadline=5, policy=policy)
    assert "expiresAt" not in encode(story.end_turn(), profile())[-1]["outcome"]["interrupts"][0]


@VERSIONS
@pytest.mark.parametrize(
    ("kind", "fields", "more"),
    [
        ("approve", {"policy": {"asks_requester": False}}, {}),
        ("doubt", {"policy": {"asks_requester": False}, "tool": "t"}, {}),
        ("ask", {}, {"may_answer": False}),
    ],
)
def test_who_is_not_asked_is_told(version, kind, fields, more):
    story = Story().start()
    id = story.question("q", kind, **fields)
    who = profile("confirmAction", "requestInput", version=version, **more)
    events = encode(story.end_turn(), who)
    (told,) = [event["value"] for event in events if event["type"] == "CUSTOM"]
    assert (told["id"], told["kind"]) == (id, kind)
    assert "outcome" not in events[-1]
    assert [event["name"] for event in preface(story, who) if event["type"] == "CUSTOM"] == ["hai.pending"]


@VERSIONS
@pytest.mark.parametrize(("kind", "tool"), [("approve", "confirmAction"), ("ask", "requestInput")])
def test_who_has_the_tool_for_it_gets_a_call(version, kind, tool):
    story = Story().start()
    id = story.question("q", kind, schema={"type": "object"} if kind == "ask" else None)
    events = encode(story.end_turn(), profile(tool, version=version))
    (start,) = [event for event in events if event["type"] == "TOOL_CALL_START"]
    assert (start["toolCallId"], start["toolCallName"]) == (id, tool)
    assert "outcome" not in events[-1]


@VERSIONS
def test_what_the_client_answers_by_itself_goes_before_interrupts(version):
    story = Story().start()
    story.question("q", options=("approve", "reject"))
    call = story.frontend_call("f")
    story.end_turn()
    assert "outcome" not in encode(story, profile("pick", version=version))[-1]
    assert "outcome" in encode(story, profile(version=version))[-1]  # nobody there has the tool
    story.open_turn("r2").decide(call, "answered", 1).end_turn()
    assert "outcome" in encode(story, profile("pick", version=version))[-1]


def test_a_vote_that_does_not_decide_closes_the_question_for_its_voter():
    story = Story().start()
    id = story.question("q", options=("approve", "reject"))
    story.end_turn().open_turn("r2")
    story.tell(e.VoteCast, id=id, by="user:ann", decision="approve")
    story.end_turn()
    assert "outcome" not in encode(story, profile())[-1]
    assert preface(story, profile())[-1]["outcome"]["interrupts"][0]["id"] == id


# --- pages that were just opened ----------------------------------------------------------------------------------

FRESH = (("agui.fresh", "yes"),)


@VERSIONS
def test_a_page_without_history_gets_the_gated_call_after_the_snapshot(version):
    """docs/design/protocols.md#reloading; assistant-ui shows its card only at a call that the stream itself has
    brought."""
    story = Story().start().say("a", "I would.")
    story.question("s", "gate", tool="t.f", args='{"n":1}', options=("approve", "reject"))
    story.end_turn()
    known, fresh = (preface(story, profile(version=version, options=each)) for each in ((), FRESH))
    (call,) = (call for message in known[2]["messages"] for call in message.get("toolCalls", ()))
    assert [message.get("content") for message in fresh[2]["messages"]] == ["I would."]
    streamed = [event for event in fresh if event.get("toolCallId") == call["id"]]
    assert [event["type"] for event in streamed] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    assert (streamed[0]["toolCallName"], streamed[1]["delta"]) == ("t.f", '{"n":1}')
    assert fresh.index(streamed[0]) > 2
    assert fresh[-1] == known[-1]
    assert fresh[-1]["outcome"]["interrupts"][0]["toolCallId"] == call["id"]


def test_a_gated_call_is_not_streamed_again_beside_an_open_client_call():
    """The turn ends without interrupts then, and the client would wait for both to be answered."""
    story = Story().start()
    story.question("s", "gate", tool="t.f", args='{"n":1}', options=("approve", "reject"))
    story.frontend_call("b")
    shown = preface(story.end_turn(), profile("pick", options=FRESH))
    assert [event["type"] for event in shown] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]


@VERSIONS
@pytest.mark.parametrize("over", [True, False])
def test_a_question_without_call_finds_a_message_on_a_fresh_page(version, over):
    """Wherever the snapshot, which takes that message away again, ends in one of the assistant's."""
    story = Story().start().say("a", "I would.")
    if over:
        story.question("q", options=("approve", "reject"))
        story.end_turn()
    who = profile(version=version, options=FRESH)
    started, ended, snapshot = (event for event in preface(story, who) if event["type"][:4] in ("TEXT", "MESS"))
    assert (started["type"], started["messageId"]) == ("TEXT_MESSAGE_START", "asker:asked")
    assert (ended["type"], ended["messageId"]) == ("TEXT_MESSAGE_END", "asker:asked")
    assert [message["content"] for message in snapshot["messages"]] == ["I would."]


@pytest.mark.parametrize(
    ("story", "options"),
    [
        (Story().start().say("a", "I would."), ()),
        (Story().start().post("u"), FRESH),
        (Story().start().say("a", "I would.").finish(), FRESH),
    ],
    ids=["it has a history", "the snapshot ends in a user's message", "nothing is asked any more"],
)
def test_there_is_no_such_message_where_nothing_needs_it(story, options):
    shown = [event["type"] for event in preface(story, profile(options=options))]
    assert "TEXT_MESSAGE_START" not in shown


def test_what_is_said_meanwhile_is_such_a_message():
    story = Story().start().say("a", "I would.")
    id = story.open_message("b")
    story.chunk(id, "And")
    shown = preface(story, profile(options=FRESH))
    assert [event["messageId"] for event in shown if event["type"] == "TEXT_MESSAGE_START"] == [id]


# --- gates --------------------------------------------------------------------------------------------------------


def gated(exposed: bool, decision: str = "approve") -> tuple[Story, str, str]:
    """A gate and what followed, as the engine tells it; the pending's id and the call's."""
    story = Story().start()
    story.tell(e.StepStarted, path="s", verb="call", args='{"n":1}')
    id, call = pending_id(RUN, "s", 0), tool_call_id(RUN, "s", 1)
    story.tell(
        e.PendingOpened, id=id, path="s", kind="gate", digest="d", title="t.f?", tool="t.f", args='{"n":1}',
        options=("approve", "reject"),
    )  # fmt: skip
    story.end_turn().open_turn("r2")
    story.tell(e.PendingDecided, id=id, outcome=decision, value={"decision": decision})
    if decision == "approve":
        story.tell(e.AttemptStarted, path="s", attempt=1)
        if exposed:
            story.tell(e.ToolCallStarted, tool_call_id=call, name="t.f", path="s", executor="server", message_id=call)
            story.args(call, '{"n":1}').end_call(call)
            story.tell(e.ToolCallResolved, tool_call_id=call, content="done")
        story.done("s", "done")
    else:
        story.tell(e.StepFailed, path="s", error=e.Error("approval.rejected", "no", "s"), handler="~catch/0")
    return story.finish(), id, call


@VERSIONS
@pytest.mark.parametrize(
    ("exposed", "decision", "content"),
    [
        (True, "approve", "done"),
        (False, "approve", '{"decision":"approve"}'),
        (True, "reject", '{"decision":"reject"}'),
    ],
)
def test_a_gate_is_the_call_that_it_guards(version, exposed, decision, content):
    story, id, call = gated(exposed, decision)
    events = encode(story, profile(version=version))
    of_call = [event for event in events if event.get("toolCallId") == call]
    assert [event["type"] for event in of_call] == [
        "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
    ]  # fmt: skip
    first = [event["type"] for event in events].index("RUN_FINISHED")
    (interrupt,) = events[first]["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["reason"], interrupt["toolCallId"]) == (id, "tool_call", call)
    assert of_call[0]["toolCallName"] == "t.f"
    assert of_call[-1]["content"] == content
    assert events.index(of_call[-1]) > first
    messages = preface(story, profile(version=version))[2]["messages"]
    assert [message["role"] for message in messages] == ["assistant", "tool"]
    assert (messages[1]["toolCallId"], messages[1]["content"]) == (call, content)


def test_who_cannot_answer_a_gate_sees_the_call_when_it_is_made():
    story, _, call = gated(exposed=True)
    events = encode(story, profile(may_answer=False))
    kinds = [event["type"] for event in events if event.get("toolCallId") == call]
    assert kinds == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
    assert [event["type"] for event in events].index("TOOL_CALL_START") > 4


# --- ends ---------------------------------------------------------------------------------------------------------


@VERSIONS
def test_a_failure_says_where_and_no_more(version):
    events = encode(Story().start().step("a").fail(), profile(version=version))
    assert {**events[-1], "timestamp": 0} == {
        "type": "RUN_ERROR",
        "message": "Step a failed.",
        "code": "tool.failed",
        "timestamp": 0,
    }


def stopped() -> Story:
    story = Story().start().step("a")
    story.tell(e.RunStopping, by="user:local", reason="enough")
    story.end_turn("stopped")
    story.tell(e.RunStopped, by="user:local", reason="enough")
    return story


def test_a_stop_is_cancelled_for_new_peers_and_an_abort_for_old_ones():
    new, old = encode(stopped(), profile()), encode(stopped(), profile(version="0"))
    assert new[-1]["outcome"] == {"type": "cancelled"}
    assert (old[-1]["type"], old[-1]["code"], old[-1]["message"]) == ("RUN_ERROR", "abort", "enough")
    assert [event["value"]["status"] for event in new if event["type"] == "CUSTOM"] == ["stopped"]


def test_a_pause_is_told_and_its_questions_can_still_be_answered():
    story = Story().start()
    story.question("q", options=("approve", "reject"))
    story.tell(e.RunPaused, by="user:local")
    story.end_turn("paused")
    events = encode(story, profile())
    assert events[-2]["value"] == {"status": "paused"}
    assert len(events[-1]["outcome"]["interrupts"]) == 1


def test_an_empty_thread_has_no_snapshot_of_messages():
    frames = AguiEncoder(profile(), RunState("t", thread_id="t")).preface("r", ())
    assert [frame.name for frame in frames] == ["RUN_STARTED", "STATE_SNAPSHOT", "RUN_FINISHED"]
