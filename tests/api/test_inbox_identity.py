"""Inboxes where everybody proves who they are: roles, other tenants, delegates, and the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving

VAULT = """
hai: flow/v1
name: vault
version: 1
roles: {keepers: [user:kay, group:gold]}
steps:
  - {id: go, approve: {title: Open?, from: [role:boss, role:keepers], evidence: {amount: 7}, quorum: 2}}
"""


class Bank:
    """A server that asks for keys, and people who have some."""

    def __init__(self, url: str, people: People) -> None:
        self.api = httpx2.Client(base_url=url, timeout=30)
        self.people = people
        self._known: dict[str, dict[str, str]] = {}

    def who(self, id: str, *roles: str, groups: tuple[str, ...] = (), tenant: str = "default") -> dict[str, str]:
        key = f"{id} {roles} {groups} {tenant}"
        if key not in self._known:
            self._known[key] = self.people.person(f"user:{id}", roles=roles, groups=groups, tenant=tenant)
        return self._known[key]

    def ask(self, who: dict[str, str], boss: dict[str, str]) -> dict[str, Any]:
        """A question of a new run, as it is in the inbox of `boss`."""
        body = {"workflow": "vault", "thread_id": unique("vault")}
        run = expect(self.api.post("/v1/runs", json=body, headers=who), 201)
        while True:
            items = self.api.get("/v1/inbox", params={"limit": 200}, headers=boss).json()["items"]
            if found := [each for each in items if each["run_id"] == run.json()["id"]]:
                return found[0]

    def ids(self, who: dict[str, str]) -> list[str]:
        page = expect(self.api.get("/v1/inbox", params={"limit": 200}, headers=who), 200)
        return [each["id"] for each in page.json()["items"]]

    def decide(self, id: str, who: dict[str, str], **body: Any) -> tuple[int, str]:
        answer = self.api.post(f"/v1/pendings/{id}/decide", json={"decision": "approve", **body}, headers=who)
        return answer.status_code, answer.json().get("code") or answer.json()["status"]


@pytest.fixture(scope="module")
def bank(postgres_server: Server) -> Iterator[Bank]:
    with ExitStack() as stack:
        dsn = stack.enter_context(postgres_server.database())
        server = stack.enter_context(serving(dsn, environment=KEYS))
        made = Bank(server.url, People(dsn))
        stack.enter_context(made.api)
        for tenant in ("default", "acme"):
            publisher = made.who("pub", "publisher", tenant=tenant)
            expect(made.api.post("/v1/workflows", content=VAULT, headers={**YAML, **publisher}), 201)
        yield made


def test_an_inbox_is_for_deciders_and_shows_what_asks_them_in_their_tenant(bank: Bank) -> None:
    boss, req = bank.who("ann", "decider", "boss"), bank.who("req")
    item = bank.ask(req, boss)
    assert (item["may_decide"], item["evidence"]) == (True, {"amount": 7})
    for who in (
        bank.who("kay", "decider"), bank.who("gil", "decider", groups=("gold",)), bank.who("bob", "decider", "boss"),
    ):  # fmt: skip
        assert item["id"] in bank.ids(who)
    strangers = [bank.who("eve", "decider"), bank.who("fay", "decider", "keepers")]
    strangers.append(bank.who("ann", "decider", "boss", tenant="acme"))
    for who in strangers:
        assert item["id"] not in bank.ids(who)
        for path, method in ((f"/v1/inbox/{item['id']}", "GET"), (f"/v1/inbox/{item['id']}/claim", "POST")):
            assert bank.api.request(method, path, headers=who).status_code == 404
        assert bank.decide(item["id"], who)[0] in (403, 404)
    for who in (req, bank.who("vic", "viewer"), bank.who("ada", "admin")):
        assert bank.api.get("/v1/inbox", headers=who).status_code == 403


def test_who_started_it_is_told_so_and_shown_no_evidence(bank: Bank) -> None:
    mine = bank.who("self", "decider", "boss", "requester")
    item = bank.ask(mine, mine)
    assert (item["may_decide"], item["why_not"]["code"]) == (False, "excluded.requester")
    assert item["evidence"] is None
    assert bank.decide(item["id"], mine) == (403, "pending_forbidden")


def test_a_delegate_decides_anothers_questions_and_no_more_of_theirs(bank: Bank) -> None:
    away, stands = bank.who("away", "decider", "boss", "requester"), bank.who("stands", "decider")
    item = bank.ask(bank.who("req"), away)
    assert bank.decide(item["id"], stands, on_behalf_of="user:away") == (403, "delegation_missing")
    own = bank.api.post("/v1/runs", json={"workflow": "vault", "thread_id": unique("own")}, headers=away).json()
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    expect(bank.api.post("/v1/inbox/delegations", json={"to": "user:stands", "until": until}, headers=away), 201)
    assert item["id"] in bank.ids(stands)
    assert bank.api.get(f"/v1/runs/{own['id']}", headers=stands).status_code == 404
    claimed = bank.api.post(f"/v1/inbox/{item['id']}/claim", headers=stands)
    assert (claimed.status_code, claimed.json()["evidence"]) == (200, {"amount": 7})
    assert bank.decide(item["id"], stands, on_behalf_of="user:away") == (200, "open")
    assert bank.decide(item["id"], away) == (403, "vote_final")
    assert bank.decide(item["id"], bank.who("kay", "decider")) == (200, "approve")
    other = bank.who("stands", "decider", tenant="acme")
    assert bank.api.get("/v1/inbox/delegations", headers=other).json()["items"] == []


def test_a_delegate_of_another_tenant_is_none(bank: Bank) -> None:
    away = bank.who("far", "decider", "boss", tenant="acme")
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = {"to": "user:near", "until": until}
    assert bank.api.post("/v1/inbox/delegations", json=body, headers=away).status_code == 201
    item = bank.ask(bank.who("req"), bank.who("ann", "decider", "boss"))
    near = bank.who("near", "decider")
    assert item["id"] not in bank.ids(near)
    assert bank.decide(item["id"], near, on_behalf_of="user:far") == (403, "delegation_missing")
