"""Questions of MCP servers: which answers a call is begun anew with."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from hai_flow.steps.mcp import asking as mcp_asking
from hai_flow.steps.mcp.asking import RepeatedAnswers, Settled, Sitting, complete
from hai_flow.steps.mcp.receipts import CallReceipt


async def test_settled_answers_are_there_behind_a_poll_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_asking, "_POLL_SECONDS", 0.0)
    settled = (Settled("a question", "accept", {"ok": True}),)
    done = types.CallToolResult(content=[])
    replies = [types.InputRequiredResult(request_state="s1"), types.InputRequiredResult(request_state="s2"), done]
    seen: list[tuple[str | None, Any]] = []

    async def call(*, responses: Any, state: str | None, sitting: Sitting) -> Any:
        seen.append((state, tuple(sitting._left)))
        return replies[len(seen) - 1]

    assert await complete(call, RepeatedAnswers(settled=settled), CallReceipt()) is done
    assert seen == [(None, settled), ("s1", settled), ("s2", settled)]
