"""A message that broke off is marked in every dialect, and left out of a snapshot once another attempt has answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects import aui, social
from hai_flow.wire.dialects.agent_api import AgentApiEncoder
from hai_flow.wire.dialects.agui import AguiEncoder
from hai_flow.wire.dialects.aui import AuiEncoder
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.hai import HaiEncoder
from hai_flow.wire.dialects.social import SocialEncoder
from hai_flow.wire.dialects.transcript import drop_superseded, list_entries
from tests.wire.stories import RUN, Story

ENCODERS: dict[str, Any] = {
    "hai": lambda state: HaiEncoder(Profile(dialect="hai"), state),
    "agui": lambda state: AguiEncoder(Profile(dialect="agui", version="1.0"), state),
    "old agui": lambda state: AguiEncoder(Profile(dialect="agui", version="0"), state),
    "aui": lambda state: AuiEncoder(aui.profile(), state),
    "social": lambda state: SocialEncoder(social.profile(), state),
    "agent_api": lambda state: AgentApiEncoder(Profile(dialect="agent_api"), state),
}
MARKS = {
    "hai": '"extra":{"aborted":true}',
    "agui": '"metadata":{"hai":{"aborted":true}}',
    "old agui": '"name":"hai.aborted"',
    "aui": '"extra":{"aborted":true}',
    "social": '"error_report"',
    "agent_api": '"incomplete"',
}


def broken(story: Story, kind: str = "text") -> Story:
    """One attempt of the step `q` that breaks off while it speaks."""
    id = story.open_message("q", kind=kind)
    story.chunk(id, "Part of it")
    story.tell(e.MessageEnded, message_id=id, aborted=True)
    return story


def answered(story: Story) -> Story:
    id = story.open_message("q")
    story.chunk(id, "All of it")
    story.tell(e.MessageEnded, message_id=id)
    return story.done("q")


def streamed(dialect: str, story: Story) -> str:
    encoder = ENCODERS[dialect](RunState(RUN))
    return "\n".join(frame.data.decode() for event in story.events for frame in encoder.encode(event))


@pytest.mark.parametrize("dialect", ENCODERS)
def test_a_message_that_broke_off_is_marked_and_a_whole_one_is_not(dialect: str) -> None:
    assert MARKS[dialect] in streamed(dialect, broken(Story().start().step("q")))
    assert MARKS[dialect] not in streamed(dialect, answered(Story().start().step("q")))


def said(story: Story) -> list[Any]:
    return [entry.content for entry in drop_superseded(list_entries(story.state)) if hasattr(entry, "content")]


def test_it_stands_in_a_snapshot_until_another_attempt_has_answered() -> None:
    story = broken(broken(Story().start().step("q")))
    assert said(story) == ["Part of it", "Part of it"]
    assert said(answered(story)) == ["All of it"]


def test_another_step_and_another_run_leave_it_where_it_is() -> None:
    story = broken(Story().start().step("q")).done("q").say("r", "Sorry.")
    assert said(story) == ["Part of it", "Sorry."]
    failed, good = broken(Story().start().step("q")), answered(Story().start().step("q"))
    entries = [*list_entries(failed.state), *list_entries(good.state)]
    assert [entry.content for entry in drop_superseded(entries) if hasattr(entry, "content")] == [
        "Part of it", "All of it",
    ]  # fmt: skip


@pytest.mark.parametrize("dialect", ["hai", "agui", "old agui", "aui", "social"])
def test_snapshots_say_each_answer_once(dialect: str) -> None:
    story = answered(broken(broken(Story().start().step("q"), "thinking")))
    frames = ENCODERS[dialect](story.state).preface("asker", ())
    shown = json.dumps([json.loads(frame.data) for frame in frames])
    assert ("All of it" in shown, "Part of it" in shown) == (True, False)
