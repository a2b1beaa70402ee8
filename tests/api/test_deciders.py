"""Very many who decide at once: one outcome, and at most one vote a person, whichever credential they prove it with."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import httpx2
import pytest

from tests.support.examples import by_night
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, identity_file
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

DECIDERS = by_night(1000, 100)
PEOPLE = DECIDERS // 4  # so that each sends both decisions with both credentials
AT_ONCE = 25  # so that a busy machine answers each within the time that it waits for the database
CROWD = """
hai: flow/v1
name: crowd
version: 1
steps:
  - {id: go, approve: {title: Go?, from: [user:p1, user:p2, user:p3], quorum: 2, reject_when: 2}}
"""
ISSUER = Issuer()


@pytest.fixture(scope="module")
def strict(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, People]]:
    """A server that takes keys, and tokens of an issuer, as which everybody has a second id."""
    folder = tmp_path_factory.mktemp("identity")
    (folder / "keys.json").write_text(json.dumps(ISSUER.jwks))
    corp = {"issuer": ISSUER.url, "audience": AUDIENCE, "jwks_file": "keys.json", "claims": {"roles": "roles"}}
    people = {f"user:p{n}": [f"user:corp-p{n}"] for n in range(1, PEOPLE + 1)}
    file = identity_file(folder, {"corp": {**corp, "prefix": "corp-"}}, people)
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={**KEYS, "HAI_FLOW_IDENTITY": str(file)}) as process,
    ):
        yield process, People(dsn)


def credentials(people: People) -> list[list[dict[str, str]]]:
    """Of each person the headers with their key, and with their token."""
    return [
        [people.person(f"user:p{n}", roles=["decider"]), carried(ISSUER.token(sub=f"p{n}", roles=["decider"]))]
        for n in range(1, PEOPLE + 1)
    ]


async def test_many_deciders_reach_one_outcome_with_one_vote_a_person(strict: tuple[ServerProcess, People]) -> None:
    server, people = strict
    operator = people.person("user:op", roles=["operator", "publisher"])
    known = credentials(people)
    limits, room = httpx2.Limits(max_connections=AT_ONCE), asyncio.Semaphore(AT_ONCE)
    async with httpx2.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:

        async def decide(n: int, id: str) -> tuple[int, str]:
            """The `n`-th decider: one of the people, of whom three may, each of whom sends both decisions very often,
            by turns with their key and their token."""
            decision, headers = ("approve", "reject")[n // PEOPLE % 2], known[n % PEOPLE][n // PEOPLE // 2 % 2]
            async with room:
                answer = await client.post(f"/v1/pendings/{id}/decide", json={"decision": decision}, headers=headers)
            return answer.status_code, answer.json().get("code", "")

        assert (await client.post("/v1/workflows", content=CROWD, headers={**YAML, **operator})).status_code == 201
        body = {"workflow": "crowd", "thread_id": unique("crowd")}
        run = (await client.post("/v1/runs", json=body, headers=people.person("user:req"))).json()
        pending = None
        while pending is None:
            items = (await client.get("/v1/inbox", headers=known[0][0])).json()["items"]
            pending = next((each for each in items if each["run_id"] == run["id"]), None)
        answers = Counter(await asyncio.gather(*(decide(n, pending["id"]) for n in range(DECIDERS))))
        page = await client.get(f"/v1/runs/{run['id']}/events", params={"limit": 200}, headers=operator)
        events = page.json()["items"]
        final = (await client.get(f"/v1/pendings/{pending['id']}", headers=operator)).json()
    assert {status for status, _ in answers} <= {200, 403, 404, 409}, answers
    votes = Counter(each["by"] for each in events if each["type"] == "vote_cast")
    assert set(votes.values()) == {1}
    assert set(votes) <= {"user:p1", "user:p2", "user:p3"}
    decided = [each for each in events if each["type"] == "pending_decided"]
    assert len(decided) == 1
    counted = Counter(each["decision"] for each in events if each["type"] == "vote_cast")
    assert counted[decided[0]["outcome"]] == 2
    assert final["status"] == decided[0]["outcome"]
