"""What holds for every run in each dialect of streams, whatever happens in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.hai import HaiEncoder
from hai_flow.wire.sse import event_bytes
from tests.support.wire_lint import lint, lint_agui
from tests.wire import test_agui_properties, test_hai_properties
from tests.wire.stories import RUN, encode_from, stories

each_dialect = pytest.mark.parametrize(
    ("make", "profiles"),
    [(HaiEncoder, test_hai_properties.PROFILES), (AguiEncoder, test_agui_properties.PROFILES)],
    ids=["hai", "agui"],
)


def judged(stream: Any, profile: Profile, *but: str) -> list[str]:
    """The faults that are some: a story's calls have any text for arguments."""
    faults = lint(stream) if profile.dialect == "hai" else lint_agui(stream, profile.version)
    return [fault for fault in faults if not fault.startswith(("stream.arguments", *but))]


@each_dialect
@settings(deadline=None)
@given(story=stories(), data=st.data())
def test_every_stream_is_clean(make, profiles, story, data):
    profile = data.draw(profiles)
    encoder = make(profile, RunState(RUN))
    frames = encode_from(encoder, story.events)
    if story.state.turn_open:
        frames += encoder.farewell("The server is closing.")
    assert judged(frames, profile) == []
    assert judged(b"".join(event_bytes(frame.data, id="x") for frame in frames), profile) == []


@each_dialect
@settings(deadline=None)
@given(story=stories(), data=st.data())
def test_an_encoder_that_begins_between_turns_writes_the_same_rest(make, profiles, story, data):
    profile, cut = data.draw(profiles), data.draw(st.integers(0, len(story.events)))
    state = story.state_at(cut)
    begin = state.turn.first_seq - 1 if state.turn_open and state.turn else cut
    encoder, whole = make(profile, story.state_at(begin)), make(profile, RunState(RUN))
    encode_from(encoder, story.events[begin:cut])
    encode_from(whole, story.events[:cut])
    for event in story.events[cut:]:
        assert encoder.encode(event) == whole.encode(event)
    assert encoder.farewell("x") == whole.farewell("x")


@each_dialect
@settings(deadline=None)
@given(story=stories(), data=st.data())
def test_who_attaches_anywhere_gets_a_clean_stream(make, profiles, story, data):
    profile, cut = data.draw(profiles), data.draw(st.integers(0, len(story.events)))
    for begin in {0, cut}:
        encoder = make(profile, story.state_at(begin))
        encode_from(encoder, story.events[begin:cut])
        frames = encoder.preface("asker", ())
        if not frames[-1].terminal:
            for event in story.events[cut:]:
                frames += encoder.encode(event)
                if frames[-1].terminal:
                    break
            else:
                frames += encoder.farewell("The server is closing.")
        # the runId of the end is the asker's only once it is readdressed
        assert judged(frames, profile, "stream.ids") == []
