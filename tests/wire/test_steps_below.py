"""Steps of a run below that are open when nobody awaits it any more: every dialect ends them."""

from __future__ import annotations

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine.state import RunState
from hai_flow.wire.agent_api import AGENT_API
from hai_flow.wire.agui import AGUI
from hai_flow.wire.aui import AUI
from hai_flow.wire.dialect import Dialect, Profile
from hai_flow.wire.hai import HAI
from hai_flow.wire.social import SOCIAL
from tests.engine.test_children import CHILD, PARENT, Family
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
