"""What a run below does and says, as every dialect shows it: as it goes on, and when nobody awaits it any more."""

from __future__ import annotations

import re

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine.state.patch import apply_patch
from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.agent_api import AGENT_API
from hai_flow.wire.dialects.agui import AGUI
from hai_flow.wire.dialects.aui import AUI
from hai_flow.wire.dialects.dialect import Dialect, Frame, Profile
from hai_flow.wire.dialects.hai import HAI
from hai_flow.wire.dialects.social import SOCIAL
from tests.engine.test_children import CHILD, PARENT, TALKING, Family, read_from, sharing, stream
from tests.engine.test_growing_calls import WRITE, yielded
from tests.support.runs import Play
from tests.wire.stories import read


@pytest.mark.parametrize("dialect", [HAI, AGUI, SOCIAL, AUI, AGENT_API], ids=lambda dialect: dialect.name)
def test_what_is_open_below_when_a_run_is_terminated_ends_with_it(dialect: Dialect) -> None:
    family = Family(PARENT, CHILD)
    family.deliver()
    assert set(family.parent.state.below) == {"sub/look"}
    family.do(family.parent, c.Terminate(by="user:op"))
    encoder = dialect.encoder(Profile(dialect=dialect.name), RunState(str(family.parent.run_id)))
    frames = [frame for event in family.parent.events for frame in encoder.encode(event)]
    assert frames[-1].terminal
    if dialect in (HAI, AGUI):
        steps = [event for event in read(frames) if event.get("stepName") == "sub/look"]
        assert [event["type"] for event in steps] == ["STEP_STARTED", "STEP_FINISHED"]


@pytest.mark.parametrize("dialect", [HAI, AGUI, SOCIAL, AUI, AGENT_API], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("cut", [False, True], ids=["to the end", "cut off"])
def test_what_a_run_below_streams_is_shown_as_it_comes_and_once(dialect: Dialect, cut: bool) -> None:
    family = Family(PARENT, TALKING)
    family.deliver()
    encoder = dialect.encoder(Profile(dialect=dialect.name), RunState(str(family.parent.run_id)))
    frames: list[Frame] = []

    def show() -> str:
        told = len(family.parent.events)
        new = [frame for event in family.parent.events[show_from[0] : told] for frame in encoder.encode(event)]
        show_from[0] = told
        frames.extend(new)
        return str([frame.data for frame in new])

    show_from = [0]
    for text in ("so far", ", and on"):
        piece = stream(family.child, text)
        assert piece is not None
        family.do(family.parent, read_from(family.child, piece))
        assert (text in show()) == (dialect is not SOCIAL), "which has no pieces"
    if cut:
        family.do(family.parent, c.Terminate(by="user:op"))
    else:
        stream(family.child, " to the end")
        family.succeed("look")
        family.do(family.parent, read_from(family.child, family.mail.popleft()))
    rest = show()
    assert (" to the end" in rest) == (not cut)
    if dialect in (HAI, AGUI):
        story = [event for event in read(frames) if event.get("messageId") == "m"]
        kinds = [event["type"].rpartition("_")[2] for event in story]
        assert kinds == ["START", "CONTENT", "CONTENT", *(() if cut else ("CONTENT",)), "END"]
        pieces = re.findall("so far|, and on| to the end", str(story))
        assert pieces == ["so far", ", and on", *(() if cut else (" to the end",))]


@pytest.mark.parametrize("dialect", [HAI, AGUI, SOCIAL, AUI], ids=lambda dialect: dialect.name)
def test_a_child_runs_state_is_in_the_snapshot_and_in_the_deltas(dialect: Dialect) -> None:
    family = sharing(state={"note": "written"})
    start = RunState(str(family.parent.run_id))
    encoder = dialect.encoder(Profile(dialect=dialect.name), start)
    told = read([frame for event in family.parent.events for frame in encoder.encode(event)])
    states, state = [], None
    for event in told:
        kind = event["type"].lower()
        if "state_snapshot" in kind:
            state = event.get("snapshot", event.get("state"))
        elif "state_delta" in kind:
            ops = [{key: value for key, value in op.items() if key in ("op", "path", "value")} for op in event["delta"]]
            state = apply_patch(state, ops)
        else:
            continue
        states.append(state)
    seen = [(each.get("flights"), each.get("note"), each["ours"]) for each in states]
    assert (["KL1"], "none", "of the parent") in seen
    assert seen[-1] == (["KL1", "KL2"], "written", "of the parent")
    attached = dialect.encoder(Profile(dialect=dialect.name), family.parent.state)
    assert "KL2" in str([frame.data for frame in attached.preface(None, ())])


@pytest.mark.parametrize("dialect", [HAI, AGUI], ids=lambda dialect: dialect.name)
def test_a_follower_during_a_growing_call_gets_its_predicted_state(dialect: Dialect) -> None:
    play = Play(WRITE)
    yielded(play, "so far")
    encoder = dialect.encoder(Profile(dialect=dialect.name), play.state)
    attached = read(encoder.preface(None, ()))
    kinds = [event["type"] for event in attached]
    assert kinds.index("CUSTOM") < kinds.index("TOOL_CALL_START")
    foretold = attached[kinds.index("CUSTOM")]
    assert "PredictState" in str(foretold)
    assert "tool_argument" in str(foretold)
    play.succeed("a", "all")
    ended = dialect.encoder(Profile(dialect=dialect.name), play.state).preface(None, ())
    assert "PredictState" not in str(ended)
