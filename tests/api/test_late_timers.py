"""What REST says of questions whose deadline has passed while no process fires timers: what an answer would be told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings

SECOND, HOUR = 1_000, 3_600_000
FLOW = b"""
hai: flow/v1
name: staged
version: 1
steps:
  - id: gate
    approve:
      title: Go?
      from: user:ann
      deadline: 1h
      on_deadline: [{escalate: {from: user:carl, deadline: 1h}}, {reject: {}}]
"""


class Place:
    """A server in which nobody performs, so that no timer ever fires; and its clock, which can be set ahead."""

    def __init__(self, runtime: Runtime, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.http = http
        self._ahead_ms = 0
        clock = runtime.committer.clock
        at = clock.at
        monkeypatch.setattr(clock, "at", lambda moment: at(moment) + self._ahead_ms)

    def wait(self, ms: int) -> None:
        self._ahead_ms += ms

    async def decide(self, id: str, who: str) -> int:
        path, headers = f"/v1/pendings/{id}/decide", {"HAI-Act-As": who}
        return (await self.http.post(path, json={"decision": "approve"}, headers=headers)).status_code


@pytest.fixture
async def place(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    settings = Settings()
    runtime = Runtime(database_url, settings, performs=False)
    async with runtime.lifespan():
        await runtime.catalog.publish(LOCAL_TENANT, FLOW)
        transport = httpx2.ASGITransport(app=create_app(settings, runtime, act_as=True))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Place(runtime, http, monkeypatch)


async def test_a_question_past_its_deadline_refuses_answers_before_its_timer(place: Place) -> None:
    started = await place.http.post("/v1/runs", json={"workflow": "staged", "input": {}})
    assert started.status_code == 201, started.text
    (listed,) = (await place.http.get("/v1/pendings")).json()["items"]
    id = listed["id"]
    asked = listed["policy"]

    place.wait(HOUR + SECOND)
    shown = (await place.http.get(f"/v1/pendings/{id}")).json()
    assert (shown["status"], shown["needed"]["from"]) == ("open", ["user:carl"])
    (listed,) = (await place.http.get("/v1/pendings")).json()["items"]
    assert (listed["policy"], listed["deadline"]) == (shown["policy"], shown["deadline"])
    assert listed["policy"] != asked
    assert await place.decide(id, "user:ann") == 403

    place.wait(HOUR)
    shown = (await place.http.get(f"/v1/pendings/{id}")).json()
    assert shown["status"] == "expired"
    assert (await place.http.get("/v1/pendings")).json() == {"items": [], "next_cursor": None, "missing": []}
    assert await place.decide(id, "user:carl") == 410
    run = (await place.http.get(f"/v1/runs/{started.json()['id']}")).json()
    assert run["status"] == "waiting", "looking commits nothing"
