"""Delegations: who was let go lends nothing, and admins see and end what was lent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import asyncpg
import httpx2
import pytest

from tests.attacks.house import wait_for
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.postgres import Server
from tests.support.server import YAML, serving

FLOW: Final = """
hai: flow/v1
name: deal
version: 1
steps:
  - {id: go, approve: {title: Go?, from: [role:boss]}}
"""
BOSS: Final = ["requester", "decider", "boss"]
WAYS: Final = ("REST", "behind the servers' backs")


class Place:
    def __init__(self, api: httpx2.Client, people: People) -> None:
        self.api, self.people = api, people
        publisher = people.person("user:pat", roles=["publisher"])
        assert api.post("/v1/workflows", content=FLOW, headers={**YAML, **publisher}).status_code == 201
        self.admin = people.person("user:root", roles=["admin"])
        self.other_admin = people.person("user:root", roles=["admin"], tenant="globex")
        self.operator = people.person("user:op", roles=["operator"])
        self.req = people.person("user:req")
        self.friend = people.person("user:friend", roles=["requester", "decider"])

    def lend(self, who: dict[str, str], to: str = "user:friend", days: float = 1) -> dict[str, Any]:
        until = (datetime.now(UTC) + timedelta(days=days)).isoformat()
        answer = self.api.post("/v1/inbox/delegations", json={"to": to, "until": until}, headers=who)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def ask(self) -> dict[str, Any]:
        run = self.api.post("/v1/runs", json={"workflow": "deal"}, headers=self.req).json()

        def found() -> list[dict[str, Any]]:
            items = self.api.get("/v1/pendings", params={"limit": 200}, headers=self.operator).json()["items"]
            return [each for each in items if each["run_id"] == run["id"]]

        return wait_for(found)[0]

    def decide(self, item: dict[str, Any], other: str, **more: Any) -> tuple[int, str]:
        body = {"decision": "approve", "on_behalf_of": other, **more}
        answer = self.api.post(f"/v1/pendings/{item['id']}/decide", json=body, headers=self.friend)
        return answer.status_code, answer.json().get("code") or answer.json()["status"]

    def revoke(self, key: Any, way: str) -> None:
        if way == "REST":
            assert self.api.post(f"/v1/keys/{key.id}/revoke", headers=self.admin).status_code == 200
        else:
            self.people.revoke(key)


@pytest.fixture(scope="module")
def place(postgres_server: Server) -> Iterator[Place]:
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=KEYS) as server,
        httpx2.Client(base_url=server.url, timeout=30) as api,
    ):
        yield Place(api, People(dsn))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("has_another", [False, True])
def test_a_delegation_ends_with_the_key_by_which_it_was_made(place: Place, way: str, has_another: bool) -> None:
    leaver = f"user:{unique('leaver')}"
    key, text = place.people.key(leaver, roles=BOSS)
    if has_another:
        place.people.key(leaver, roles=["requester"])
    place.lend(carried(text))
    item = place.ask()
    place.revoke(key, way)
    assert place.decide(item, leaver) == (403, "delegation_missing")
    inbox = place.api.get("/v1/inbox", params={"limit": 200}, headers=place.friend).json()["items"]
    assert item["id"] not in [each["id"] for each in inbox]


@pytest.mark.parametrize("way", WAYS)
def test_a_delegation_by_another_key_stays(place: Place, way: str) -> None:
    person = f"user:{unique('boss')}"
    _, kept = place.people.key(person, roles=BOSS)
    other, _ = place.people.key(person, roles=BOSS)
    place.lend(carried(kept))
    place.revoke(other, way)
    assert place.decide(place.ask(), person)[0] == 200


@pytest.mark.parametrize("way", WAYS)
def test_one_of_which_it_is_not_known_how_it_was_made_ends_with_the_last_key(place: Place, way: str) -> None:
    leaver = f"user:{unique('leaver')}"
    key, text = place.people.key(leaver, roles=BOSS)
    made = place.lend(carried(text))

    async def forget_how(connection: asyncpg.Connection) -> None:
        await connection.execute("UPDATE delegations SET key = NULL WHERE id = $1::uuid", made["id"])

    place.people.do(forget_how)
    place.revoke(key, way)
    assert place.decide(place.ask(), leaver) == (403, "delegation_missing")


def test_it_does_not_outlive_a_key_that_expires(place: Place) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    who = place.people.person(f"user:{unique('temp')}", roles=BOSS, expires_at=end)
    assert datetime.fromisoformat(place.lend(who)["until"]) <= end


@pytest.mark.parametrize("days", [93, 366, 3650])
def test_it_lasts_no_longer_than_a_quarter(place: Place, days: int) -> None:
    who = place.people.person(f"user:{unique('boss')}", roles=BOSS)
    body = {"to": "user:friend", "until": (datetime.now(UTC) + timedelta(days=days)).isoformat()}
    answer = place.api.post("/v1/inbox/delegations", json=body, headers=who)
    assert (answer.status_code, answer.json()["code"]) == (422, "delegation.invalid")


def test_an_admin_lists_and_ends_what_others_have_lent(place: Place) -> None:
    person = f"user:{unique('boss')}"
    made = place.lend(place.people.person(person, roles=BOSS))
    shown: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not shown or page["next_cursor"]:
        query = {"limit": 2, **({"cursor": page["next_cursor"]} if page["next_cursor"] else {})}
        page = place.api.get("/v1/delegations", params=query, headers=place.admin).json()
        shown += [each["id"] for each in page["items"]]
    assert made["id"] in shown
    assert len(set(shown)) == len(shown)
    item = place.ask()
    assert place.api.delete(f"/v1/delegations/{made['id']}", headers=place.admin).status_code == 204
    assert place.decide(item, person) == (403, "delegation_missing")


@pytest.mark.parametrize("who", ["operator", "req", "friend"])
@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("DELETE", "/018f3c1e-0000-7000-8000-000000000000")])
def test_nobody_but_an_admin_does(place: Place, who: str, method: str, path: str) -> None:
    answer = place.api.request(method, f"/v1/delegations{path}", headers=getattr(place, who))
    assert (answer.status_code, answer.json()["code"]) == (403, "right_missing")


def test_an_admin_of_another_tenant_finds_nothing(place: Place) -> None:
    made = place.lend(place.people.person(f"user:{unique('boss')}", roles=BOSS))
    assert place.api.get("/v1/delegations", headers=place.other_admin).json()["items"] == []
    assert place.api.delete(f"/v1/delegations/{made['id']}", headers=place.other_admin).status_code == 404


def test_the_refusal_names_the_route_by_which_people_delegate(place: Place) -> None:
    body = {"decision": "approve", "on_behalf_of": "user:nobody"}
    answer = place.api.post(f"/v1/pendings/{place.ask()['id']}/decide", json=body, headers=place.friend)
    assert "POST /v1/inbox/delegations" in answer.json()["detail"]
