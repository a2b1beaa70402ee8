"""What holds for every run over AG-UI, whatever happens in it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.sse import event_bytes
from tests.support.wire_lint import lint_agui
from tests.wire.stories import RUN, Story, stories

PROFILES = st.builds(
    Profile,
    dialect=st.just("agui"),
    version=st.sampled_from(["1.0", "0"]),
    client_tools=st.frozensets(st.sampled_from(["confirmAction", "requestInput", "pick"])),
    may_answer=st.booleans(),
    options=st.sampled_from([(), (("agui.reasoning", "off"),), (("agui.fresh", "yes"),)]),
)


def encode(encoder: AguiEncoder, events):
    return [frame for event in events for frame in encoder.encode(event)]


def judged(faults: list[str], *but: str) -> list[str]:
    """The faults that are some: a story's calls have any text for arguments."""
    return [fault for fault in faults if not fault.startswith(("stream.arguments", *but))]


@settings(deadline=None)
@given(stories(), PROFILES)
def test_every_stream_is_clean(story, profile):
    encoder = AguiEncoder(profile, RunState(RUN))
    frames = encode(encoder, story.events)
    if story.state.turn_open:
        frames += encoder.farewell("The server is closing.")
    assert judged(lint_agui(frames, profile.version)) == []
    stream = b"".join(event_bytes(frame.data, id="x") for frame in frames)
    assert judged(lint_agui(stream, profile.version)) == []


@settings(deadline=None)
@given(stories(), PROFILES, st.data())
def test_an_encoder_that_begins_between_turns_writes_the_same_rest(story, profile, data):
    cut = data.draw(st.integers(0, len(story.events)))
    state = story.state_at(cut)
    begin = state.turn.first_seq - 1 if state.turn_open and state.turn else cut
    encoder = AguiEncoder(profile, story.state_at(begin))
    encode(encoder, story.events[begin:cut])
    whole = AguiEncoder(profile, RunState(RUN))
    encode(whole, story.events[:cut])
    for event in story.events[cut:]:
        assert encoder.encode(event) == whole.encode(event)
    assert encoder.farewell("x") == whole.farewell("x")


@settings(deadline=None)
@given(stories(), PROFILES, st.data())
def test_who_attaches_anywhere_gets_a_clean_stream(story, profile, data):
    cut = data.draw(st.integers(0, len(story.events)))
    encoder = AguiEncoder(profile, story.state_at(cut))
    frames = encoder.preface("asker", ())
    if not frames[-1].terminal:
        for event in story.events[cut:]:
            frames += encoder.encode(event)
            if frames[-1].terminal:
                break
        else:
            frames += encoder.farewell("The server is closing.")
    # the runId of the end is the asker's only once it is readdressed
    assert judged(lint_agui(frames, profile.version), "stream.ids") == []


@settings(deadline=None)
@given(stories(), PROFILES)
def test_what_is_asked_is_exactly_what_is_open(story: Story, profile):
    """No open question is asked twice, none that is closed is asked, and none is lost."""
    story_frames = AguiEncoder(profile, story.state).preface("asker", ())
    end = json.loads(story_frames[-1].data)
    asked = {each["id"] for each in end.get("outcome", {}).get("interrupts", [])}
    opened = {p.opened.id: p.opened.kind for p in story.state.pendings.values() if p.status == "open"}
    assert asked <= opened.keys()
    shown = asked | {
        call["id"]
        for frame in story_frames
        for message in json.loads(frame.data).get("messages", ())
        for call in message.get("toolCalls", ())
    }
    shown |= {json.loads(frame.data)["value"]["id"] for frame in story_frames if b'"hai.pending"' in frame.data}
    waits = {"waiting": True}.get(story.state.status, False) and not story.state.turn_open
    if waits and not any(kind == "tool" for kind in opened.values()):
        tools = {"approve": "confirmAction", "ask": "requestInput"}
        calls = any(tools.get(kind) in profile.client_tools for kind in opened.values()) and profile.may_answer
        assert calls or opened.keys() <= shown
