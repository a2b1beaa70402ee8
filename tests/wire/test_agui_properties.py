"""What holds for every run over AG-UI, whatever happens in it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.dialect import Profile
from tests.wire.stories import Story, stories

PROFILES = st.builds(
    Profile,
    dialect=st.just("agui"),
    version=st.sampled_from(["1.0", "0"]),
    client_tools=st.frozensets(st.sampled_from(["confirmAction", "requestInput", "pick"])),
    may_answer=st.booleans(),
    options=st.sampled_from([(), (("agui.reasoning", "off"),), (("agui.fresh", "yes"),)]),
)


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
