"""What holds for every run, whatever happens in it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.hai import HaiEncoder
from tests.wire.stories import RUN, TEXTS, Story, deltas, encode, encode_from, parse_json_string, profile, read, stories

PROFILES = st.sampled_from(
    [
        profile(),
        profile("confirmAction", "requestInput"),
        profile("confirmAction", may_answer=False),
        profile(text="plain"),
        profile("confirmAction", "requestInput", results="all"),
    ]
)


@settings(deadline=None)
@given(stories(), PROFILES, st.data())
def test_an_encoder_beginning_inside_a_turn_lacks_at_most_step_ends(story, profile, data):
    cut = data.draw(st.integers(0, len(story.events)))
    ours = encode(story, profile, cut)
    whole = HaiEncoder(profile, RunState(RUN))
    encode_from(whole, story.events[:cut])
    theirs = encode_from(whole, story.events[cut:])
    missing = [frame for frame in theirs if frame not in ours]
    assert all(frame.name == "STEP_FINISHED" for frame in missing)
    assert [frame for frame in theirs if frame not in missing] == ours


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6), st.sampled_from(["text", "thinking"]))
def test_the_documents_own_client_reads_every_text_back(texts, kind):
    story = Story().start().say("x", *texts, kind=kind)
    buffer = deltas(read(encode(story, profile())), "m1")
    outputs = [each["output"] for each in parse_json_string(buffer)]
    shown = [output["content"] if kind == "text" else output["data"]["content"] for output in outputs]
    assert "".join(shown) == "".join(texts)
    assert [text for text in shown if text] == [text for text in texts if text]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(JSON, min_size=1, max_size=3), JSON)
def test_the_documents_own_client_reads_every_structured_output_back(values, layout):
    story = Story().start()
    for n, value in enumerate(values):
        output = {"type": "card", "data": value}
        story.say(f"s{n}", json.dumps(output), kind="data", block_id="b", layout={"x": layout}, style={"s": value})
    events = read(encode(story, profile()))
    buffer = "".join(deltas(events, f"m{n + 1}") for n in range(len(values)))
    assert parse_json_string(buffer) == [
        {"output": {"type": "card", "data": v}, "style": {"s": v}, "blockId": "b", "layout": {"x": layout}}
        for v in values
    ]


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=4))
def test_a_snapshot_holds_what_the_stream_said(texts):
    story = Story().start().say("x", *texts)
    (message,) = read(HaiEncoder(profile(), story.state).preface("r", ()))[2]["messages"]
    said = "".join(each["output"]["content"] for each in parse_json_string(message.get("content", "") or " "))
    assert said == "".join(texts)
