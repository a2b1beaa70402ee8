"""What a failing tool says of the machine it ran on stays in the log: no protocol shows it to who started the run."""

from __future__ import annotations

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess

BREAKS = """
hai: flow/v1
name: breaks_and_tells
version: 1
tools: {fx: {python: tests.support.effects, effect: write}}
steps: [{id: s, call: fx.breaks, retry: {max: 0}}]
"""
SECRETS = ("till is locked", "ValueError", "effects.py", "Traceback")


@pytest.mark.parametrize("dialect", ["hai", "agui", "social", "aui", "agent-api"])
def test_what_a_tool_says_of_the_machine_stays_in_the_log(server: ServerProcess, dialect: str) -> None:
    assert httpx2.post(f"{server.url}/v1/workflows", content=BREAKS, headers=YAML).status_code in (200, 201)
    body = {"workflow": "breaks_and_tells", "thread_id": unique("leaks")}
    run = httpx2.post(f"{server.url}/v1/runs", json=body, timeout=20).json()
    path, stream = f"{server.url}/v1/runs/{run['id']}/events", {"Accept": "text/event-stream"}
    log = httpx2.get(path, headers=stream, timeout=20).text
    assert [word for word in SECRETS if word not in log] == []
    shown = httpx2.get(path, params={"dialect": dialect}, headers=stream, timeout=20).text
    assert "tool.failed" in shown
    assert [word for word in SECRETS if word in shown] == []
