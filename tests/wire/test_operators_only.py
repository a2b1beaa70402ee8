"""What is for those who operate a workflow: in the log, and in no frontend's protocol."""

from __future__ import annotations

import pytest

from hai_flow.engine import events as e
from hai_flow.engine.state.run_size import TRACE
from hai_flow.wire.dialects.agent_api import AGENT_API
from hai_flow.wire.dialects.agui import AGUI
from hai_flow.wire.dialects.aui import AUI
from hai_flow.wire.dialects.dialect import Dialect, Frame, Profile
from hai_flow.wire.dialects.hai import HAI
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.dialects.social import SOCIAL
from tests.wire.stories import NEW, Story

PLACE = "File till.py, line 7"


def frames_of(dialect: Dialect) -> list[Frame]:
    story = Story().start()
    story.tell(e.StepStarted, path="a", verb="call", args="{}", attempt=1)
    story.tell(e.WarningRaised, code=TRACE, message=PLACE, path="a")
    story.tell(e.StepFailed, path="a", error=e.Error("tool.failed", "It broke.", "a", 1))
    encoder = dialect.encoder(Profile(dialect=dialect.name), NEW)
    return [frame for event in story.events for frame in encoder.encode(event)]


@pytest.mark.parametrize("dialect", [HAI, AGUI, SOCIAL, AUI, AGENT_API], ids=lambda dialect: dialect.name)
def test_where_a_tool_failed_reaches_no_frontend(dialect: Dialect) -> None:
    frames = frames_of(dialect)
    assert frames
    assert PLACE not in repr(frames)


def test_where_a_tool_failed_reaches_who_reads_the_log() -> None:
    assert PLACE in repr(frames_of(LOG))
