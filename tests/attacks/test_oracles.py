"""What is somebody else's, and what is not there, is told apart by nothing: the same answer after the same statements.

Statements are counted, not seconds: each is a trip to the database, which is what a clock would see."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.api.auth import authenticate, keys
from hai_flow.api.auth.directory import erased_people
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from tests.support.identities import People, carried
from tests.support.server import YAML
from tests.support.waiting import until

VAULT: Final = """
hai: flow/v1
name: vault
version: 1
steps:
  - say: Hello.
  - id: open
    approve: {title: Pay?, from: [role:boss]}
"""

ABSENT = "5f0b7a52-6c1d-4f0e-9a3b-2d8e7c6b5a49"  # an id of nothing; the same in every process of a test run


_asking: ContextVar[bool] = ContextVar("asking", default=False)  # in what a request does, and in nothing else


class Place:
    """A server in this process, and the statements that its requests send."""

    def __init__(self, http: httpx2.AsyncClient, people: People) -> None:
        self.http, self.people = http, people
        self.sent: list[str] = []

    async def ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str, list[str]]:
        """The status, the body without the id that was asked for, and the statements."""
        del self.sent[:]
        body = {"decision": "approve"} if path.endswith("/decide") else None
        asking = _asking.set(True)
        try:
            answer = await self.http.request(method, path, headers=headers, json=body)
        finally:
            _asking.reset(asking)
        for _ in range(3):  # connections tell of their statements a turn of the loop later
            await asyncio.sleep(0)
        return answer.status_code, answer.text.replace(path.split("/")[3], "ID"), list(self.sent)


@contextmanager
def listened_to(place: list[Place]) -> Iterator[None]:
    """Connections that are made inside tell the place of their statements."""
    connect = asyncpg.connect

    def told(query: Any) -> None:
        of_the_driver = "typeinfo_tree" in query.query or "'jit'" in query.query  # the first time on a connection
        for each in place if _asking.get() and not of_the_driver else ():
            each.sent.append(query.query)

    async def watched(*arguments: Any, **options: Any) -> Any:
        connection = await connect(*arguments, **options)
        if "listen" not in str(options.get("server_settings")):
            connection.add_query_logger(told)
        return connection

    asyncpg.connect = watched
    try:
        yield
    finally:
        asyncpg.connect = connect


@pytest.fixture
async def place(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    for each in (keys, erased_people):  # or what is kept for a second has gone on a slow machine between two questions
        monkeypatch.setattr(each, "SECONDS", 3600.0)
    monkeypatch.setattr(authenticate, "HOLDINGS_SECONDS", 3600.0)
    settings = Settings(identity="keys", publish=True)
    made: list[Place] = []
    with listened_to(made):
        runtime = Runtime(database_url, settings, performs=True)
        async with runtime.lifespan():
            transport = httpx2.ASGITransport(app=create_app(settings, runtime))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
                made.append(Place(http, People(database_url)))
                yield made[0]


ATTACKERS: Final[dict[str, dict[str, Any]]] = {
    "another tenant's operator": {"roles": ["operator", "decider", "boss"], "tenant": "globex"},
    "a stranger": {},
    "a decider of other questions": {"roles": ["decider", "requester"]},
}
PATHS: Final = {
    "a run": ("GET", "/v1/runs/{run}"),
    "its snapshot": ("GET", "/v1/runs/{run}/snapshot"),
    "its log": ("GET", "/v1/runs/{run}/events"),
    "stopping it": ("POST", "/v1/runs/{run}/stop"),
    "its question": ("GET", "/v1/pendings/{pending}"),
    "deciding it": ("POST", "/v1/pendings/{pending}/decide"),
    "it in the inbox": ("GET", "/v1/inbox/{pending}"),
    "its thread": ("GET", "/v1/threads/{thread}"),
    "its messages": ("GET", "/v1/threads/{thread}/messages"),
}


@pytest.fixture
async def victim(place: Place) -> dict[str, str]:
    """The ids of a run of Ann's that asks its boss."""
    publisher, ann = place.people.person("user:pat", roles=["publisher"]), place.people.person("user:ann")
    assert (await place.http.post("/v1/workflows", content=VAULT, headers={**YAML, **publisher})).status_code == 201
    body = {"workflow": "vault", "thread_id": "of-ann-1"}
    run = (await place.http.post("/v1/runs", json=body, headers=ann)).json()
    boss = place.people.person("user:bob", roles=["boss", "decider"])

    async def asked() -> list[dict[str, Any]]:
        return (await place.http.get("/v1/inbox", headers=boss)).json()["items"]

    return {"run": run["id"], "pending": (await until(asked))[0]["id"], "thread": run["thread_id"]}


@pytest.mark.parametrize("attacker", ATTACKERS)
async def test_what_is_anothers_is_as_what_is_not_there(place: Place, victim: dict[str, str], attacker: str) -> None:
    who = place.people.person("user:mallory", **ATTACKERS[attacker])
    absent = {name: f"{id[:-4]}aaaa" for name, id in victim.items()}
    for what, (method, path) in PATHS.items():
        theirs, nothing = (path.format(**ids) for ids in (victim, absent))
        for each in (theirs, nothing):  # what is kept for a moment is there
            await place.ask(method, each, who)
        assert await place.ask(method, theirs, who) == await place.ask(method, nothing, who), what


@pytest.mark.parametrize("id", ["x", "%20", "0" * 36, "a" * 300, "../x", "call_x", "1e9"])
async def test_what_is_no_id_is_answered_like_one_that_is_not_there(place: Place, id: str) -> None:
    who = place.people.person("user:mallory", roles=["requester", "decider"])
    for path, absent in (
        ("/v1/runs/{}", str(uuid4())),
        ("/v1/pendings/{}", "call_" + "a" * 26 + "_" + "b" * 26),
        ("/v1/inbox/{}", "call_" + "a" * 26 + "_" + "b" * 26),
    ):
        status, body, _ = await place.ask("GET", path.format(absent), who)
        wrong = await place.http.get(path.format(id), headers=who)
        assert wrong.status_code == status == 404
        if "/" not in id:
            assert wrong.json()["code"] == json.loads(body)["code"]


async def test_a_wrong_secret_takes_the_statements_of_a_key_that_never_was(place: Place) -> None:
    key, text = place.people.key("user:ann", roles=["operator"])
    gone, of_gone = place.people.key("user:gone")
    place.people.revoke(gone)
    tries = {
        "a wrong secret": text[:-4] + ("AAAA" if text[-4:] != "AAAA" else "BBBB"),
        "an unknown key": f"hai_{'0' * 12}_{text.rpartition('_')[2] if '_' not in text[17:] else 'A' * 43}",
        "a revoked key": of_gone,
    }
    found = []
    for number, sent in enumerate(tries.values()):
        headers = {**carried(sent), "X-Forwarded-For": f"192.0.2.{number}"}
        status, body, statements = await place.ask("GET", "/v1/runs/x", headers)
        found.append((status, body, [each for each in statements if "INSERT INTO audit" not in each]))
    assert found[0] == found[1] == found[2]
    assert key.id not in str(found)


@pytest.mark.parametrize("path", ["/awp", "/ag-ui", "/cpk/agent/vault/connect"])
@pytest.mark.parametrize("id", ["named", ABSENT])
async def test_a_thread_that_is_not_there_is_shown_empty_whatever_its_id(
    place: Place, victim: dict[str, str], path: str, id: str
) -> None:
    who = place.people.person("user:mallory")
    shown = []
    for thread in (id, victim["thread"]):
        body = {"threadId": thread, "runId": "r1", "messages": [], "tools": []}
        answer = await place.http.post(path, json=body, headers=who)
        shown.append(
            (answer.status_code, re.sub(r'("timestamp"|"messageId"):[^,}]+', "", answer.text.replace(thread, "ID")))
        )
    assert shown[0][0] == 200, shown[0]
    assert shown[0] == shown[1]
