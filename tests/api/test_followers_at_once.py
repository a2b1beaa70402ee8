"""Followers that connect at the same moment share the loads of their run, and nothing that is not for all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.engine import events as e
from hai_flow.runtime.commit import states
from hai_flow.settings import Settings
from hai_flow.store.runs import logs
from tests.runtime.conftest import Make, make  # noqa: F401 - a fixture
from tests.support import effects
from tests.support.hai_client import unique
from tests.support.identities import People
from tests.support.server import YAML
from tests.support.waiting import until

SECRET = "Zoe Meier"
FLOW = """
hai: flow/v1
name: storm
version: 1
input: {type: object, properties: {who: {type: string, pii: true}}}
tools: {fx: {python: tests.support.effects, effect: write}}
state: {whose: {type: string, default: "", pii: true}}
steps:
  - say: "It is ${{ input.who }}."
  - {id: wait, call: fx.gated}
"""
FOLLOWERS = 50  # of each of two people
FEW = 25  # of each, while every follower costs one and more if nothing is shared
CENSUS = ((logs, "load_run_at"), (logs, "read_log"), (states, "_fold_stored"), (e, "decode_events"))


@pytest.mark.parametrize("dialect", ["hai", "agui", "attach"])
async def test_followers_at_once_cost_few_loads_and_see_what_is_theirs(
    make: Make,  # noqa: F811
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
) -> None:
    people = People(database_url)
    ann = people.person(f"user:{unique('ann')}", roles=["publisher", "operator"])
    vic = people.person(f"user:{unique('vic')}", roles=["viewer"])
    bob = people.person(f"user:{unique('bob')}", roles=["requester"])
    runtime = await make(performs=True, identity="keys", publish=True)
    counts: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        real = getattr(module, name)

        def counted(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return real(*given, **more)

        monkeypatch.setattr(module, name, counted)

    transport = httpx2.ASGITransport(app=create_app(Settings(identity="keys", publish=True), runtime))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
        (await http.post("/v1/workflows", content=FLOW, headers=YAML | ann)).raise_for_status()
        thread = unique("t")
        begun = await http.post(
            "/v1/runs", json={"workflow": "storm", "thread_id": thread, "input": {"who": SECRET}}, headers=ann
        )
        run_id = begun.raise_for_status().json()["id"]

        async def follow(who: dict[str, str], number: int) -> str:
            if dialect == "attach":
                body = {"threadId": thread, "runId": f"r{number}", "messages": [], "tools": [], "context": []}
                body |= {"state": {}, "forwardedProps": {}}
                response = await http.post("/ag-ui", json=body, headers=who)
            else:
                response = await http.get(f"/v1/runs/{run_id}/events", params={"dialect": dialect}, headers=who)
            assert response.status_code == 200, response.text
            return response.text

        await until(lambda: (run := runtime.committer.peek(UUID(run_id))) is not None and "wait" in run.state.steps)
        for module, name in CENSUS:
            count(module, name)
        load, state_at = logs.load_run_at, runtime.fanout.state_at
        asked, all_asked = 0, asyncio.Event()

        async def ask(*given: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2 * FOLLOWERS:
                all_asked.set()
            return await state_at(*given)

        async def load_late(*given: Any) -> Any:
            loaded = await load(*given)
            await all_asked.wait()
            return loaded

        monkeypatch.setattr(runtime.fanout, "state_at", ask)
        monkeypatch.setattr(logs, "load_run_at", load_late)
        following = [asyncio.create_task(follow(who, n)) for n in range(FOLLOWERS) for who in (ann, vic)]
        stranger = asyncio.create_task(http.get(f"/v1/runs/{run_id}/events", params={"dialect": "hai"}, headers=bob))
        await until(lambda: runtime.fanout.followers == 2 * FOLLOWERS)
        assert (await stranger).status_code == 404
        effects.gate.set()
        bodies = await asyncio.gather(*following)
    assert all(count <= FEW for count in counts.values()), counts
    assert all(SECRET in each for each in bodies[::2])
    assert not any(SECRET in each for each in bodies[1::2])
