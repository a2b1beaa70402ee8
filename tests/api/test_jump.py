"""Time that passes at once, over REST: what is due comes at once, and only a development server does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from tests.api.test_rest import Checked, code, http, start, wait_for_end, wait_for_pendings
from tests.support.server import YAML

__all__ = ["http"]

STAGES = """
hai: flow/v1
name: jump_stages
version: 1
steps:
  - id: gate
    approve:
      title: Go?
      from: [role:boss]
      deadline: 2d
      on_deadline: [{escalate: {from: [role:ceo], deadline: 1d}}, {approve: {}}]
  - id: rest
    wait: {for: 3h}
output: ${{ steps.gate.output.decision }}
"""


@pytest.fixture
def waiting(http: Checked) -> Iterator[str]:
    assert http.post("/v1/workflows", content=STAGES, headers=YAML).status_code in (200, 201)
    run = start(http, "jump_stages")["id"]
    wait_for_pendings(http, run)
    yield run
    http.post(f"/v1/runs/{run}/terminate")


def jump(http: Checked, run: str, time: str, **headers: str) -> httpx2.Response:
    return http.post(f"/v1/runs/{run}/jump", json={"for": time}, headers=headers)


def asked_by(http: Checked, run: str) -> Any:
    """The open question of the run, as it is listed."""
    items = http.get("/v1/pendings", params={"limit": 200}).json()["items"]
    return next(each for each in items if each["run_id"] == run)


def test_deadlines_and_waits_come_at_once_and_the_log_says_who_jumped(http: Checked, waiting: str) -> None:
    before = asked_by(http, waiting)
    hour = jump(http, waiting, "1h", **{"HAI-Act-As": "user:ann"}).json()
    assert (hour["status"], hour["passed_ms"], hour["left_ms"], hour["children"]) == ("waiting", 3_600_000, 0, [])
    assert asked_by(http, waiting)["deadline"] < before["deadline"]
    assert jump(http, waiting, "2d").json()["status"] == "waiting"
    stage = asked_by(http, waiting)
    assert (stage["id"], stage["policy"]["from"]) == (before["id"], ["role:ceo"])
    assert jump(http, waiting, "P2D").status_code == 200
    assert wait_for_end(http, waiting)["output"] == "approve"
    events = http.get(f"/v1/runs/{waiting}/events", params={"limit": 1000}).json()["items"]
    jumps = [(event["by"], event["ms"]) for event in events if event["type"] == "time_jumped"]
    assert jumps[0] == ("user:ann", 3_600_000)
    assert {by for by, _ in jumps[1:]} == {"user:local"}
    day = 86_400_000
    assert sum(ms for _, ms in jumps) <= 3_600_000 + 4 * day
    assert code(jump(http, waiting, "1d")) == (409, "run_ended")


def test_the_same_key_again_lets_no_more_time_pass(http: Checked, waiting: str) -> None:
    key = {"Idempotency-Key": f"jump-{waiting}"}
    first = jump(http, waiting, "1h", **key).json()
    assert jump(http, waiting, "1h", **key).json()["seq"] == first["seq"]
    assert code(jump(http, waiting, "2h", **key))[0] == 409


@pytest.mark.parametrize("time", ["soon", "-1d", "0s", "11000d", ""])
def test_what_is_no_duration_is_refused(http: Checked, waiting: str, time: str) -> None:
    refused = jump(http, waiting, time)
    assert code(refused) == (422, "request.invalid")
    assert refused.json()["findings"][0]["path"] == "/for"


@asynccontextmanager
async def asked(runtime: Runtime, settings: Settings, *, act_as: bool) -> Any:
    transport = httpx2.ASGITransport(app=create_app(settings, runtime, act_as=act_as))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        yield client


async def test_a_server_that_is_none_for_development_lets_no_time_pass(database_url: str) -> None:
    settings = Settings()
    runtime = Runtime(database_url, settings, performs=False)
    async with runtime.lifespan(), asked(runtime, settings, act_as=False) as client:
        refused = await client.post(f"/v1/runs/{'0' * 8}-0000-0000-0000-{'0' * 12}/jump", json={"for": "1d"})
    assert (refused.status_code, refused.json()["code"]) == (403, "jump.forbidden")
    assert "only a development server" in refused.json()["detail"]
