"""Very many who decide at once: one outcome, and at most one vote a person."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx2

from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess

DECIDERS = 1000
PEOPLE = 50
AT_ONCE = 100
CROWD = """
hai: flow/v1
name: crowd
version: 1
steps:
  - {id: go, approve: {title: Go?, from: [user:p1, user:p2, user:p3], quorum: 2, reject_when: 2}}
"""


async def _decide(client: httpx2.AsyncClient, id: str, n: int, room: asyncio.Semaphore) -> tuple[int, str]:
    """The `n`-th decider: one of three people in three hundred, each of whom sends what they decide very often."""
    who, decision = f"user:p{n % PEOPLE + 1}", ("approve", "reject")[n // PEOPLE % 2]
    async with room:
        answer = await client.post(
            f"/v1/pendings/{id}/decide", json={"decision": decision}, headers={"HAI-Act-As": who}
        )
    return answer.status_code, answer.json().get("code", "")


async def test_a_thousand_deciders_reach_one_outcome_with_one_vote_a_person(server: ServerProcess) -> None:
    limits = httpx2.Limits(max_connections=AT_ONCE)
    async with httpx2.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
        assert (await client.post("/v1/workflows", content=CROWD, headers=YAML)).status_code in (200, 201)
        body = {"workflow": "crowd", "thread_id": unique("crowd")}
        run = (await client.post("/v1/runs", json=body, headers={"HAI-Act-As": "user:req"})).json()
        pending = None
        while pending is None:
            items = (await client.get("/v1/inbox", headers={"HAI-Act-As": "user:p1"})).json()["items"]
            pending = next((each for each in items if each["run_id"] == run["id"]), None)
        room = asyncio.Semaphore(AT_ONCE)
        deciding = (_decide(client, pending["id"], n, room) for n in range(DECIDERS))
        answers = Counter(await asyncio.gather(*deciding))
        page = await client.get(f"/v1/runs/{run['id']}/events", params={"limit": 200})
        events = page.json()["items"]
        final = (await client.get(f"/v1/pendings/{pending['id']}")).json()
    assert {status for status, _ in answers} <= {200, 403, 409}, answers
    votes = Counter(each["by"] for each in events if each["type"] == "vote_cast")
    assert set(votes.values()) == {1}
    assert set(votes) <= {"user:p1", "user:p2", "user:p3"}
    decided = [each for each in events if each["type"] == "pending_decided"]
    assert len(decided) == 1
    counted = Counter(each["decision"] for each in events if each["type"] == "vote_cast")
    assert counted[decided[0]["outcome"]] == 2
    assert final["status"] == decided[0]["outcome"]
