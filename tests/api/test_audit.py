"""The audit over REST: what people did through the API is there, for auditors and nobody else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

import httpx2
import pytest
from hai_flow_client import Client

from hai_flow.store.audit.audit_chain import Verifier, read_line
from hai_flow.values import dumps
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import wait_for

T = TypeVar("T")

ASK = """
hai: flow/v1
name: ask
version: 1
steps:
  - {id: sure, approve: {title: Sure?, from: [role:boss]}}
"""


@pytest.fixture(scope="module")
def guarded(postgres_server: Server) -> Iterator[tuple[ServerProcess, People]]:
    with postgres_server.database() as dsn, serving(dsn, environment=KEYS) as process:
        yield process, People(dsn)


class House:
    """A tenant of its own with its people, on a server that asks everybody for a key."""

    def __init__(self, guarded: tuple[ServerProcess, People]) -> None:
        self.server, self.people = guarded
        self.tenant = f"t{uuid4().hex[:8]}"
        self._open = contextlib.ExitStack()

    def as_(self, id: str, *roles: str) -> httpx2.Client:
        who = self.people.person(id, roles=roles, tenant=self.tenant)
        return self._open.enter_context(httpx2.Client(base_url=self.server.url, headers=who))

    def __enter__(self) -> House:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


@pytest.fixture
def house(guarded: tuple[ServerProcess, People]) -> Iterator[House]:
    with House(guarded) as made:
        yield made


def opened(house: House) -> tuple[str, dict[str, Any]]:
    """A run that Ann started, and its question."""
    assert house.as_("user:pat", "publisher").post("/v1/workflows", content=ASK, headers=YAML).status_code == 201
    operator = house.as_("user:ann", "operator")
    run = operator.post("/v1/runs", json={"workflow": "ask"}).json()["id"]
    (pending,) = wait_for(
        lambda: [each for each in operator.get("/v1/pendings").json()["items"] if each["run_id"] == run]
    )
    return run, pending


def decided(house: House) -> tuple[str, dict[str, Any]]:
    """A run that Ann started, Bob has approved and Olga has stopped."""
    run, pending = opened(house)
    answer = {"decision": "approve", "reason": "as agreed"}
    boss = house.as_("user:bob", "boss", "decider", "operator")
    assert boss.post(f"/v1/pendings/{pending['id']}/decide", json=answer).status_code == 200
    return run, pending


def test_who_did_what_is_there_newest_first_with_how_they_were_proven(house: House) -> None:
    run, pending = decided(house)
    auditor = house.as_("user:eve", "auditor")
    items = auditor.get("/v1/audit", params={"run_id": run}).json()["items"]
    assert [(each["act"], each["by"]) for each in items] == [
        ("pending.answered", "user:bob"),
        ("run.started", "user:ann"),
    ]
    answered = items[0]
    assert (answered["subject"], answered["digest"]) == (f"pending:{pending['id']}", pending["digest"])
    details = answered["details"]
    assert (details["decision"], details["reason"], details["outcome"]) == ("approve", "as agreed", "approve")
    assert (details["way"], details["via"], details["address"]) == ("key", "rest", "127.0.0.1")
    assert details["credential"]


def test_lists_are_filtered_and_paged(house: House) -> None:
    run, pending = decided(house)
    auditor = house.as_("user:eve", "auditor")

    def acts(**filters: Any) -> list[str]:
        return [each["act"] for each in auditor.get("/v1/audit", params=filters).json()["items"]]

    assert acts(principal="user:bob") == ["pending.answered"]
    assert acts(act="run.started") == ["run.started"]
    assert acts(subject=f"pending:{pending['id']}") == ["pending.answered"]
    now = datetime.now(UTC)
    assert acts(run_id=run, since=(now + timedelta(minutes=5)).isoformat()) == []
    assert acts(run_id=run, until=(now - timedelta(minutes=5)).isoformat()) == []
    assert len(acts(run_id=run, since=(now - timedelta(minutes=5)).isoformat())) == 2
    first = auditor.get("/v1/audit", params={"run_id": run, "limit": 1}).json()
    second = auditor.get("/v1/audit", params={"run_id": run, "limit": 1, "cursor": first["next_cursor"]}).json()
    assert [each["act"] for each in first["items"] + second["items"]] == ["pending.answered", "run.started"]
    assert second["next_cursor"] is None
    assert auditor.get("/v1/audit", params={"run_id": "x"}).status_code == 422
    assert auditor.get("/v1/audit", params={"cursor": "x"}).status_code == 400


def test_reading_the_audit_is_recorded_and_other_tenants_have_their_own(house: House, guarded: Any) -> None:
    run, _ = decided(house)
    house.as_("user:eve", "auditor").get("/v1/audit", params={"run_id": run})
    (read,) = house.as_("user:fay", "auditor").get("/v1/audit", params={"principal": "user:eve"}).json()["items"]
    assert (read["act"], read["details"]["filters"]) == ("audit.read", {"run_id": run})
    with House(guarded) as other:
        strangers = other.as_("user:eve", "auditor").get("/v1/audit").json()["items"]
    assert [each["act"] for each in strangers] == ["audit.read"]


@pytest.mark.parametrize("role", ["viewer", "operator", "decider", "admin", "publisher"])
def test_nobody_but_auditors_reads_it(house: House, role: str) -> None:
    client = house.as_("user:ann", role)
    assert [client.get(f"/v1/audit{path}").status_code for path in ("", "/chain", "/anchor")] == [403] * 3


def test_the_chain_that_a_client_gets_verifies_against_the_anchor(house: House) -> None:
    decided(house)
    key = house.people.key("user:eve", roles=["auditor"], tenant=house.tenant)[1]
    with Client(house.server.url, headers={"Authorization": f"Bearer {key}"}) as flow:
        wait_for(lambda: flow.audit.anchor().n >= 2)
        anchor = flow.audit.anchor()
        links = [read_line(dumps(link)) for link in flow.audit.chain(limit=anchor.n)]
        assert {record.by for record in flow.audit.list()} >= {"user:ann", "user:bob"}
    verifier = Verifier(links[0][0], {})
    assert [fault for _, link in links for fault in verifier.check(link)] == []
    assert (verifier.n, verifier.hash.hex()) == (anchor.n, anchor.hash)


def test_publishing_keys_and_schedules_are_acts_too(house: House) -> None:
    clock = ASK.replace("name: ask", "name: clock\ntriggers:\n  - schedule: {cron: 0 0 1 1 *, timezone: Europe/Berlin}")
    publisher, operator, admin = (house.as_(f"user:{role}", role) for role in ("publisher", "operator", "admin"))
    for _ in range(2):
        assert publisher.post("/v1/workflows", content=clock, headers=YAML).status_code == 201
    other = clock.replace("Sure?", "Really?")
    assert publisher.post("/v1/workflows", content=other, headers=YAML).status_code == 409
    (schedule,) = operator.get("/v1/schedules").json()["items"]
    for act in ("pause", "resume"):
        assert operator.post(f"/v1/schedules/{schedule['id']}/{act}").status_code == 200
    assert operator.post(f"/v1/schedules/{schedule['id']}/run").status_code == 201
    key = admin.post("/v1/keys", json={"principal": "user:new", "roles": ["viewer"]}).json()
    assert admin.post(f"/v1/keys/{key['id']}/revoke").status_code == 200
    assert admin.post(f"/v1/keys/{'0' * 12}/revoke").status_code == 404
    found = house.as_("user:eve", "auditor").get("/v1/audit").json()["items"]
    acts = [(each["act"], each["by"], each["subject"]) for each in reversed(found) if each["act"] != "audit.read"]
    assert acts == [
        ("workflow.published", "user:publisher", "workflow:clock@1"),
        ("workflow.published", "user:publisher", "workflow:clock@1"),
        ("schedule.paused", "user:operator", f"schedule:{schedule['id']}"),
        ("schedule.resumed", "user:operator", f"schedule:{schedule['id']}"),
        ("run.started", "user:operator", "workflow:clock@1"),
        ("key.created", "user:admin", f"key:{key['id']}"),
        ("key.revoked", "user:admin", f"key:{key['id']}"),
    ]
    assert key["key"] not in str(found)


def test_a_token_for_a_page_is_recorded_with_what_it_is_for_and_not_itself(house: House) -> None:
    issuer = house.as_("service:backend", "issuer", "requester")
    wanted = {"principal": "user:guest", "threads": ["t1"], "expires_in": 60}
    made = issuer.post("/v1/tokens", json=wanted)
    assert made.status_code == 201, made.text
    (found,) = house.as_("user:eve", "auditor").get("/v1/audit", params={"act": "token.issued"}).json()["items"]
    details = found["details"]
    assert (found["by"], details["principal"], details["threads"]) == ("service:backend", "user:guest", ["t1"])
    assert details["roles"] == ["issuer", "requester"]
    assert made.json()["token"] not in str(found)


def test_claims_releases_and_delegations_are_acts_of_who_makes_them(house: House) -> None:
    _, pending = opened(house)
    subject, boss = f"pending:{pending['id']}", house.as_("user:bob", "boss", "decider")
    place = f"/v1/inbox/{pending['id']}"
    other = house.as_("user:ulf", "boss", "decider")
    assert boss.post(f"{place}/release").status_code == 200  # of nothing: no act
    assert boss.post(f"{place}/claim", json={"for": "1h"}).status_code == 200
    assert other.post(f"{place}/claim").status_code == 409
    assert other.post(f"{place}/release").status_code == 200
    assert boss.post(f"{place}/release").status_code == 200
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = {"to": "user:stand", "until": until, "note": "on holiday"}
    delegation = boss.post("/v1/inbox/delegations", json=body).json()
    assert other.delete(f"/v1/inbox/delegations/{delegation['id']}").status_code == 404
    assert house.as_("user:stand", "decider").delete(f"/v1/inbox/delegations/{delegation['id']}").status_code == 204
    found = [
        each
        for each in reversed(house.as_("user:eve", "auditor").get("/v1/audit").json()["items"])
        if each["act"].startswith(("pending.", "delegation."))
    ]
    assert [(each["act"], each["by"], each["subject"]) for each in found] == [
        ("pending.claimed", "user:bob", subject),
        ("pending.released", "user:bob", subject),
        ("delegation.created", "user:bob", f"delegation:{delegation['id']}"),
        ("delegation.ended", "user:stand", f"delegation:{delegation['id']}"),
    ]
    assert [each["run_id"] for each in found[:2]] == [pending["run_id"]] * 2
    assert found[0]["details"]["ms"] == 3_600_000
    assert found[2]["details"]["to"] == "user:stand"
    assert "on holiday" not in str(found)
