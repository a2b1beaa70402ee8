"""Further ids of one person: whatever is written with one of them means the person, tenant by tenant, also what was
stored before the ids were one person's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.support import commands
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, identity_file
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

ISSUER: Final = Issuer()
ROLES: Final = ["requester", "decider", "lead"]
PEOPLE: Final[dict[str, Any]] = {
    "default": {"user:ann": ["user:corp-ann", "user:corp-annie"], "user:zed": ["user:corp-zed"]}
}
FLOW: Final = """
hai: flow/v1
name: {name}
version: 1
triggers: [{{api: {{}}}}, {{event: {{type: {name}_wished}}}}]
roles:
  pair: [user:corp-ann, user:bob]
  lone: [user:corp-ann]
steps:
  - {{id: go, approve: {{title: Go?, {policy}}}}}
"""
COMPOSED: Final = "jos\u00e9"
DECOMPOSED: Final = "jose\u0301"  # the same name, as Unicode has it
POLICIES: Final = {
    "plain": "from: [role:lead], quorum: 2",
    "three": "from: [role:lead], quorum: 3",
    "excluded": "from: [role:lead], exclude: [user:corp-ann]",
    "excluded_too": 'from: [role:lead], exclude: ["user:corp-annie", requester]',
    "excluded_role": "from: [role:lead], exclude: [role:lone]",
    "excluded_pair": "from: [role:lead], exclude: [role:pair]",
    "asked": "from: [user:corp-ann], exclude: []",
    "asked_role": "from: [role:pair], exclude: []",
    "both": "from: [user:ann, user:corp-ann], quorum: 2, exclude: []",
    "seats": 'from: [role:lead], quorum: {"user:ann": 1, "user:corp-ann": 1}, exclude: []',
    "spelled": f"from: [role:lead], exclude: [requester, user:corp-{DECOMPOSED}]",
    "spelled_from": f"from: [user:corp-{DECOMPOSED}], exclude: []",
    "spelled_role": f"from: [role:lead], exclude: [requester, role:l{DECOMPOSED}]",
    "everybody": "from: [user:corp-ann, user:bob], quorum: all, exclude: []",
}


class Place:
    """A server over a database, and the people of its two tenants."""

    def __init__(self, url: str, people: People, api: httpx2.Client) -> None:
        self.api, self.people = api, people
        for tenant in ("default", "globex"):
            publisher = people.person("user:pat", roles=["publisher"], tenant=tenant)
            for name, policy in POLICIES.items():
                text = FLOW.format(name=name, policy=policy)
                expect(api.post("/v1/workflows", content=text, headers={**YAML, **publisher}), 200, 201)
        self.operator = people.person("user:op", roles=["operator"])
        self.req = people.person("user:req")
        self.stranger = people.person("user:mallory")
        self.bob = self.key("user:bob")
        self.ann = self.key("user:ann")
        self.ann_by_old_key = self.key("user:corp-annie")
        self.ann_by_token = self.token("ann")
        self.sending = {
            "ann": people.person("user:ann", roles=[*ROLES, "operator"]),
            "ann_by_old_key": people.person("user:corp-annie", roles=[*ROLES, "operator"]),
            "ann_by_token": carried(ISSUER.token(sub="ann", roles=[*ROLES, "operator"], org="default")),
        }
        self.zed = self.key("user:zed")
        self.zed_by_token = self.token("zed")

    def key(self, id: str, tenant: str = "default") -> dict[str, str]:
        return self.people.person(id, roles=ROLES, tenant=tenant)

    def token(self, sub: str, tenant: str = "default") -> dict[str, str]:
        return carried(ISSUER.token(sub=sub, roles=ROLES, org=tenant))

    def ask(self, workflow: str, who: dict[str, str]) -> dict[str, Any]:
        """A question of a run that `who` starts."""
        run = expect(self.api.post("/v1/runs", json={"workflow": workflow, "thread_id": unique("t")}, headers=who), 201)
        return self.question(run.json()["id"])

    def question(self, run_id: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            items = self.api.get("/v1/pendings", params={"limit": 200}, headers=self.operator).json()["items"]
            return [each for each in items if each["run_id"] == run_id]

        return wait_for(found)[0]

    def decide(self, item: dict[str, Any], who: dict[str, str], **more: Any) -> tuple[int, str]:
        body = {"decision": "approve", "reason": unique("because"), **more}
        answer = self.api.post(f"/v1/pendings/{item['id']}/decide", json=body, headers=who)
        return answer.status_code, answer.json().get("code") or answer.json()["status"]

    def status(self, item: dict[str, Any]) -> str:
        return str(self.api.get(f"/v1/runs/{item['run_id']}", headers=self.operator).json()["status"])


@contextmanager
def place_of(dsn: str, folder: Path, people: dict[str, Any] | None) -> Iterator[Place]:
    (folder / "keys.json").write_text(json.dumps(ISSUER.jwks))
    claims = {"id": "sub", "roles": "roles", "tenant": "org"}
    corp = {"issuer": ISSUER.url, "audience": AUDIENCE, "jwks_file": "keys.json", "claims": claims, "prefix": "corp-"}
    file = identity_file(folder, {"corp": corp}, people)
    environment = {**KEYS, "HAI_FLOW_IDENTITY": str(file)}
    with serving(dsn, environment=environment) as server, httpx2.Client(base_url=server.url, timeout=30) as api:
        yield Place(server.url, People(dsn), api)


@pytest.fixture(scope="module")
def database(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def before(database: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What was stored while each id was a person of their own."""
    with place_of(database, tmp_path_factory.mktemp("before"), None) as place:
        found = {
            "own": place.ask("plain", place.zed_by_token),
            "voted": place.ask("plain", place.req),
            "voted_of_three": place.ask("three", place.req),
        }
        for name in ("voted", "voted_of_three"):
            assert place.decide(found[name], place.zed_by_token) == (200, "open")
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        made = place.api.post(
            "/v1/inbox/delegations", json={"to": "user:bob", "until": until}, headers=place.zed_by_token
        )
        assert made.status_code == 201, made.text
        return found


@pytest.fixture(scope="module")
def place(database: str, before: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_of(database, tmp_path_factory.mktemp("after"), PEOPLE) as place:
        yield place


WAYS: Final = ("ann", "ann_by_old_key", "ann_by_token")


@pytest.mark.costly
@pytest.mark.parametrize("who", WAYS)
@pytest.mark.parametrize("workflow", ["excluded", "excluded_too", "excluded_role", "excluded_pair"])
def test_who_is_excluded_by_a_further_id_does_not_vote_by_any(place: Place, workflow: str, who: str) -> None:
    item = place.ask(workflow, place.req)
    assert place.decide(item, getattr(place, who)) == (404, "pending_unknown")
    assert place.status(item) == "waiting"


@pytest.mark.parametrize("who", WAYS)
@pytest.mark.parametrize("workflow", ["asked", "asked_role"])
def test_who_is_asked_by_a_further_id_may_decide_by_each(place: Place, workflow: str, who: str) -> None:
    item = place.ask(workflow, place.req)
    inbox = place.api.get("/v1/inbox", params={"limit": 200}, headers=getattr(place, who)).json()["items"]
    assert item["id"] in [each["id"] for each in inbox]
    assert place.decide(item, getattr(place, who))[0] == 200
    wait_for(lambda: place.status(item) == "finished")


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_who_started_a_run_by_one_id_does_not_approve_it_by_another(place: Place, first: str, second: str) -> None:
    item = place.ask("plain", getattr(place, first))
    assert place.decide(item, getattr(place, second)) == (403, "pending_forbidden")


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_who_voted_by_one_id_has_no_second_vote(place: Place, first: str, second: str) -> None:
    item = place.ask("plain", place.req)
    assert place.decide(item, getattr(place, first)) == (200, "open")
    assert place.decide(item, getattr(place, second)) == (403, "vote_final")
    assert place.status(item) == "waiting"


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_the_sender_of_an_event_does_not_approve_under_another_id(place: Place, first: str, second: str) -> None:
    sent = expect(place.api.post("/v1/events", json={"type": "plain_wished"}, headers=place.sending[first]), 200, 201)
    (run,) = sent.json()["runs"]
    item = place.question(run["run_id"])
    assert place.decide(item, getattr(place, second)) == (403, "pending_forbidden")
    assert place.decide(item, place.bob) == (200, "open")


def test_a_person_who_votes_by_all_ids_at_the_same_moment_has_one_vote(place: Place) -> None:
    item = place.ask("plain", place.req)
    with ThreadPoolExecutor(len(WAYS)) as pool:
        answers = list(pool.map(lambda who: place.decide(item, getattr(place, who)), WAYS))
    assert sorted(answers) == [(200, "open"), (403, "vote_final"), (403, "vote_final")]
    assert place.status(item) == "waiting"


@pytest.mark.parametrize("who", ["zed", "zed_by_token"])
def test_a_run_from_before_the_merge_of_ids_is_not_approved_by_its_starter(
    place: Place, before: dict[str, dict[str, Any]], who: str
) -> None:
    assert place.decide(before["own"], getattr(place, who)) == (403, "pending_forbidden")
    assert place.status(before["own"]) == "waiting"


@pytest.mark.parametrize("name", ["voted", "voted_of_three"])
@pytest.mark.parametrize("who", ["zed", "zed_by_token"])
def test_a_vote_from_before_the_ids_were_joined_is_the_only_one(
    place: Place, before: dict[str, dict[str, Any]], who: str, name: str
) -> None:
    assert place.decide(before[name], getattr(place, who)) == (403, "vote_final")
    assert place.status(before[name]) == "waiting"


@pytest.mark.parametrize("other", ["user:zed", "user:corp-zed"])
def test_an_older_delegation_gives_no_second_vote_for_the_other_id(
    place: Place, before: dict[str, dict[str, Any]], other: str
) -> None:
    assert place.decide(before["voted_of_three"], place.bob, on_behalf_of=other) == (403, "vote_final")


@pytest.mark.parametrize("who", ["zed", "zed_by_token"])
def test_a_person_sees_the_runs_that_they_started_by_an_earlier_id(
    place: Place, before: dict[str, dict[str, Any]], who: str
) -> None:
    path = f"/v1/runs/{before['own']['run_id']}"
    assert place.api.get(path, headers=getattr(place, who)).status_code == 200
    assert place.api.get(path, headers=place.stranger).status_code == 404


@pytest.mark.parametrize("workflow", ["both", "seats"])
@pytest.mark.parametrize("who", WAYS)
def test_one_person_with_two_ids_fills_one_place(place: Place, workflow: str, who: str) -> None:
    item = place.ask(workflow, place.req)
    place.decide(item, getattr(place, who))
    other = next(each for each in WAYS if each != who)
    place.decide(item, getattr(place, other))
    wait_for(lambda: place.status(item) in ("waiting", "failed"))
    assert place.status(item) != "finished"


def test_all_of_them_is_all_people_and_not_all_ids(place: Place) -> None:
    item = place.ask("everybody", place.req)
    assert place.decide(item, place.ann) == (200, "open")
    assert place.decide(item, place.bob)[0] == 200
    wait_for(lambda: place.status(item) == "finished")


# --- other tenants --------------------------------------------------------------------------------------------------


def test_the_ids_of_one_tenant_join_nobody_of_another(place: Place) -> None:
    human, other = place.people.person("user:ann", tenant="globex"), carried(ISSUER.token(org="globex"))
    run = place.api.post("/v1/runs", json={"workflow": "plain"}, headers=human).json()
    assert place.api.get(f"/v1/runs/{run['id']}", headers=human).status_code == 200
    assert place.api.get(f"/v1/runs/{run['id']}", headers=other).status_code == 404
    assert place.api.get("/v1/session", headers=other).json()["principal"] == "user:corp-ann"


def test_a_list_without_tenant_is_for_default_where_tokens_name_theirs(postgres_server: Server, tmp_path: Path) -> None:
    with postgres_server.database() as dsn, place_of(dsn, tmp_path, PEOPLE["default"]) as place:
        shown = [
            place.api.get("/v1/session", headers=place.token("ann", tenant)).json()["principal"]
            for tenant in ("default", "globex")
        ]
        assert shown == ["user:ann", "user:corp-ann"]


def test_every_vote_by_a_further_id_agrees_with_the_log_that_it_left(place: Place, database: str) -> None:
    item = place.ask("asked_role", place.req)
    assert place.decide(item, place.ann_by_token)[0] == 200
    wait_for(lambda: place.status(item) == "finished")
    verified = commands.run("verify", HAI_FLOW_DATABASE_URL=database)
    assert verified.returncode == 0, verified.stdout


# --- one id in two spellings ------------------------------------------------------------------------------------------


def spell(place: Place, way: str, spelling: str) -> dict[str, str]:
    """The headers of a person whose id is spelled so by the issuer, or in the row of an old key."""
    if way == "token":
        return carried(ISSUER.token(sub=spelling, roles=ROLES, org="default"))
    return place.people.person(f"user:corp-{spelling}", roles=ROLES)


SPELLINGS: Final = [
    (("token", COMPOSED), ("token", DECOMPOSED)),
    (("token", DECOMPOSED), ("key", COMPOSED)),
    (("key", DECOMPOSED), ("token", COMPOSED)),
]


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_a_person_in_two_spellings_approves_no_own_run_and_votes_once(
    place: Place, one: tuple[str, str], other: tuple[str, str]
) -> None:
    first, second = spell(place, *one), spell(place, *other)
    assert place.decide(place.ask("plain", first), second) == (403, "pending_forbidden")
    item = place.ask("plain", place.req)
    assert place.decide(item, first) == (200, "open")
    assert place.decide(item, second) == (403, "vote_final")


@pytest.mark.parametrize(("way", "spelling"), [each for pair in SPELLINGS[:2] for each in pair])
def test_a_selector_in_one_spelling_means_the_person_in_both(place: Place, way: str, spelling: str) -> None:
    who = spell(place, way, spelling)
    assert place.decide(place.ask("spelled", place.req), who)[0] in (403, 404)
    assert place.decide(place.ask("spelled_from", place.req), who) == (200, "approve")


@pytest.mark.parametrize("spelling", [COMPOSED, DECOMPOSED])
def test_an_excluded_role_in_one_spelling_excludes_it_in_both(place: Place, spelling: str) -> None:
    who = place.people.person(f"user:{unique('lea')}", roles=[*ROLES, f"l{spelling}"])
    assert place.decide(place.ask("spelled_role", place.req), who)[0] in (403, 404)


def test_a_delegation_to_one_spelling_is_the_person_s_in_both(place: Place) -> None:
    boss = f"user:{unique('boss')}"
    body = {"to": f"user:corp-{DECOMPOSED}", "until": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    lending = place.api.post("/v1/inbox/delegations", json=body, headers=place.key(boss))
    assert (lending.status_code, lending.json()["to"]) == (201, f"user:corp-{COMPOSED}")
    item = place.ask("plain", place.req)
    assert place.decide(item, spell(place, "token", COMPOSED), on_behalf_of=boss) == (200, "open")
