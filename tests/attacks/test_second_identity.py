"""One person with two identities, a key and a token of the company's issuer, has one vote and no second voice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, identity_file
from tests.support.postgres import Server
from tests.support.server import YAML, serving

DEAL: Final = """
hai: flow/v1
name: deal
version: 1
steps:
  - {id: go, approve: {title: Go?, from: [role:lead], quorum: 2}}
"""
ISSUER: Final = Issuer()
YES: Final = {"decision": "approve"}


class House:
    """A server that takes keys and tokens; Ann has one of each."""

    def __init__(self, url: str, people: People) -> None:
        self.api = httpx2.Client(base_url=url, timeout=30)
        self.by_key = people.person("user:ann", roles=["decider", "lead", "requester"])
        token = ISSUER.token(realm_access={"roles": ["decider", "lead", "requester"]})
        self.by_token = carried(token)
        self.boss = people.person("user:boss", roles=["decider", "lead"])
        self.other = people.person("user:req", roles=["requester"])
        publisher = people.person("user:pub", roles=["publisher"])
        answer = self.api.post("/v1/workflows", content=DEAL, headers={**YAML, **publisher})
        assert answer.status_code == 201, answer.text

    def ask(self, who: dict[str, str]) -> dict[str, Any]:
        """A question of a run that `who` has started."""
        body = {"workflow": "deal", "thread_id": unique("deal")}
        run = self.api.post("/v1/runs", json=body, headers=who).json()
        while True:
            items = self.api.get("/v1/inbox", params={"limit": 200}, headers=self.by_key).json()["items"]
            if found := [each for each in items if each["run_id"] == run["id"]]:
                return found[0]

    def decide(self, id: str, who: dict[str, str], **body: Any) -> tuple[int, str]:
        answer = self.api.post(f"/v1/pendings/{id}/decide", json={**YES, **body}, headers=who)
        return answer.status_code, answer.json().get("code") or answer.json()["status"]


@pytest.fixture(scope="module")
def house(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("identity")
    (folder / "keys.json").write_text(json.dumps(ISSUER.jwks))
    claims = {"id": "sub", "roles": "realm_access.roles"}
    corp = {"issuer": ISSUER.url, "audience": AUDIENCE, "jwks_file": "keys.json", "claims": claims, "prefix": "corp-"}
    file = identity_file(folder, {"corp": corp}, {"user:ann": ["user:corp-ann"]})
    with ExitStack() as stack:
        dsn = stack.enter_context(postgres_server.database())
        server = stack.enter_context(serving(dsn, environment={**KEYS, "HAI_FLOW_IDENTITY": str(file)}))
        made = House(server.url, People(dsn))
        stack.callback(made.api.close)
        yield made


@pytest.mark.parametrize("starts", ["by_key", "by_token"])
def test_who_started_a_run_as_one_does_not_approve_it_as_the_other(house: House, starts: str) -> None:
    item = house.ask(getattr(house, starts))
    for who in (house.by_key, house.by_token):
        assert house.decide(item["id"], who) == (403, "pending_forbidden")
        check = house.api.get(f"/v1/inbox/{item['id']}", headers=who).json()
        assert check["why_not"]["code"] == "excluded.requester"


@pytest.mark.parametrize("first", ["by_key", "by_token"])
def test_who_voted_as_one_does_not_vote_as_the_other(house: House, first: str) -> None:
    item = house.ask(house.other)
    second = {"by_key": house.by_token, "by_token": house.by_key}[first]
    assert house.decide(item["id"], getattr(house, first)) == (200, "open")
    assert house.decide(item["id"], second, reason="again") == (403, "vote_final")
    bulk = {"items": [{"id": item["id"], **YES, "reason": "in bulk"}]}
    (outcome,) = house.api.post("/v1/inbox/decide", json=bulk, headers=second).json()["items"]
    assert (outcome["status"], outcome["problem"]["code"]) == (403, "vote_final")


def test_a_delegation_to_my_other_self_gives_me_no_second_vote(house: House) -> None:
    item = house.ask(house.other)
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    own = house.api.post("/v1/inbox/delegations", json={"to": "user:ann", "until": until}, headers=house.by_token)
    assert own.status_code == 422
    house.api.post("/v1/inbox/delegations", json={"to": "user:corp-ann", "until": until}, headers=house.by_key)
    assert house.decide(item["id"], house.by_key) == (200, "open")
    for who in (house.by_key, house.by_token):
        assert house.decide(item["id"], who, on_behalf_of="user:ann", reason="twice") == (403, "delegation_missing")


def test_a_delegation_to_a_further_id_is_one_to_its_person(house: House) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    made = house.api.post("/v1/inbox/delegations", json={"to": "user:corp-ann", "until": until}, headers=house.boss)
    assert (made.status_code, made.json()["to"]) == (201, "user:ann")
    own = house.api.post("/v1/inbox/delegations", json={"to": "user:corp-ann", "until": until}, headers=house.by_key)
    assert (own.status_code, own.json()["code"]) == (422, "delegation.invalid")
    house.api.delete(f"/v1/inbox/delegations/{made.json()['id']}", headers=house.boss)
