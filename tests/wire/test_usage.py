"""What a turn took of models is told with its end, by the dialects that have words for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.engine import events as e
from hai_flow.wire.dialects.agent_api import AGENT_API
from hai_flow.wire.dialects.agui import AGUI
from hai_flow.wire.dialects.dialect import Dialect, Profile
from tests.wire.stories import NEW, Story


def last_frame(dialect: Dialect, *, version: str = "1.0", fails: bool = False, asks: int = 1) -> Any:
    story = Story().start()
    story.tell(e.StepStarted, path="a", verb="llm", args="{}", attempt=1)
    for _ in range(asks):
        use = e.ModelUse("smart", "openai", "gpt", 12, 7, 2, 3, 0.5)
        story.tell(e.ModelUsed, path="a", attempt=1, use=use)
    story.tell(e.StepFinished, path="a")
    story.fail() if fails else story.finish()
    encoder = dialect.encoder(Profile(dialect=dialect.name, version=version), NEW)
    frames = [frame for event in story.events for frame in encoder.encode(event)]
    return json.loads(frames[-1].data)


TOKENS = {
    "provider": "openai", "model": "gpt", "inputTokens": 24, "outputTokens": 14, "totalTokens": 38,
    "reasoningTokens": 6, "cachedInputTokens": 4,
}  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_agui_tells_it_for_each_model(fails: bool) -> None:
    assert last_frame(AGUI, fails=fails, asks=2)["usage"] == [TOKENS]


def test_agui_omits_empty_usage_and_usage_for_clients_that_know_none() -> None:
    assert "usage" not in last_frame(AGUI, asks=0)
    assert "usage" not in last_frame(AGUI, version="0")


def test_the_agent_api_tells_it_with_the_response() -> None:
    assert last_frame(AGENT_API)["usage"] == {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19}
    assert last_frame(AGENT_API, asks=0)["usage"] is None
