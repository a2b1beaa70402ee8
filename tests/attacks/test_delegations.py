"""Delegations: who was let go lends nothing, and admins see and end what was lent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

import asyncpg
import httpx2
import pytest
from websockets.sync.client import connect

from hai_flow.api.auth.sessions import COOKIE, derive_csrf, sign_link_token
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity.erasure import forget
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, identity_file
from tests.support.postgres import Server
from tests.support.server import YAML, expect, serving
from tests.support.waiting import wait_for

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
        self.make_friend()

    def make_friend(self) -> None:
        """Let somebody new, to whom nobody has delegated, be the friend from now on."""
        self.friend_id = f"user:{unique('friend')}"
        self.friend = self.people.person(self.friend_id, roles=["requester", "decider"])

    def lend(self, who: dict[str, str], to: str | None = None, days: float = 1) -> dict[str, Any]:
        body = {"to": to or self.friend_id, "until": (datetime.now(UTC) + timedelta(days=days)).isoformat()}
        answer = expect(self.api.post("/v1/inbox/delegations", json=body, headers=who), 201)
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

    def sign_in(self, person: str, roles: Sequence[str] = tuple(BOSS)) -> str:
        """The text of a browser's session of the person, who has no key."""
        token = self.people.do(lambda connection: sign_link_token(connection, LOCAL_TENANT, person, roles, ["board"]))
        return session_in(self.api.post(f"/sign-in/link/{token}"))

    def page(self, session: str) -> dict[str, str]:
        """The headers of a request that a page of ours makes in the session."""
        own = {"Origin": str(self.api.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        return {"Cookie": f"{COOKIE}={session}", "HAI-CSRF": derive_csrf(session), **own}

    def change(self, statement: str, *arguments: Any) -> None:
        """Change the database behind the servers' backs, as another process does."""
        self.people.do(lambda connection: connection.execute(statement, *arguments))

    def inbox(self) -> list[str]:
        """The ids of the questions that ask the friend, for themselves or others."""
        items = self.api.get("/v1/inbox", params={"limit": 200}, headers=self.friend).json()["items"]
        return [each["id"] for each in items]

    def revoke(self, key: Any, way: str) -> None:
        if way == "REST":
            assert self.api.post(f"/v1/keys/{key.id}/revoke", headers=self.admin).status_code == 200
        else:
            self.people.revoke(key)


def session_in(answer: httpx2.Response) -> str:
    """The text of the session that the answer begins."""
    (header,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith(f"{COOKIE}=")]
    return header.partition(";")[0].partition("=")[2].strip('"')


ISSUER: Final = Issuer()


@pytest.fixture(scope="module")
def place(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("identity")
    (folder / "keys.json").write_text(json.dumps(ISSUER.jwks))
    issuer = {"issuer": ISSUER.url, "audience": AUDIENCE, "jwks_file": "keys.json", "claims": {"roles": "roles"}}
    known = {**KEYS, "HAI_FLOW_IDENTITY": str(identity_file(folder, {"corp": issuer}, TWINS))}
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=known) as server,
        httpx2.Client(base_url=server.url, timeout=30) as api,
    ):
        yield Place(api, People(dsn))


@pytest.fixture(autouse=True)
def friend(place: Place) -> None:
    place.make_friend()


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


@pytest.mark.parametrize("way", [*WAYS, "a session that is ended elsewhere"])
@pytest.mark.parametrize("path", ["/v1/inbox/events", "/v1/feed?topic=inbox"])
def test_what_was_lent_goes_from_an_open_list_within_ten_seconds(place: Place, path: str, way: str) -> None:
    giver = f"user:{unique('leaver')}"

    def begin() -> Callable[[], object]:
        """Lend; returns what ends it."""
        if way in WAYS:
            key, text = place.people.key(giver, roles=BOSS)
            place.lend(carried(text))
            return lambda: place.revoke(key, way)
        session = place.sign_in(giver)
        place.lend(place.page(session))
        return lambda: ENDINGS["it is ended by another process"](place, session)

    end, item = begin(), place.ask()
    with place.api.stream("GET", path, headers={**place.friend, "Accept": "text/event-stream"}) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if item["id"] in line)
        end()
        began = time.monotonic()
        next(line for line in lines if item["id"] in line and '"gone":["' in line.replace(" ", ""))
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("way", WAYS)
def test_a_delegation_by_another_key_stays(place: Place, way: str) -> None:
    person = f"user:{unique('boss')}"
    _, kept = place.people.key(person, roles=BOSS)
    other, _ = place.people.key(person, roles=BOSS)
    place.lend(carried(kept))
    place.revoke(other, way)
    assert place.decide(place.ask(), person)[0] == 200


@pytest.mark.parametrize("way", WAYS)
def test_a_delegation_of_unknown_origin_ends_with_the_last_key(place: Place, way: str) -> None:
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


def test_the_same_idempotency_key_is_the_same_delegation(place: Place) -> None:
    person = f"user:{unique('boss')}"
    end = datetime.now(UTC) + timedelta(days=3)
    who = place.people.person(person, roles=BOSS, expires_at=end) | {"Idempotency-Key": unique("k")}
    until, later = (datetime.now(UTC) + timedelta(days=days) for days in (1, 30))
    body = {"to": place.friend_id, "since": "2026-01-01T00:00:00Z", "until": until.isoformat()}

    def post(**change: Any) -> httpx2.Response:
        return place.api.post("/v1/inbox/delegations", json=body | change, headers=who)

    with place.people.hold_up("delegations", 2), ThreadPoolExecutor() as threads:
        first, again = threads.map(lambda _: post(), range(2))
    assert (first.status_code, again.json()) == (201, first.json())
    assert post().json() == first.json()
    since = (until - timedelta(hours=1)).isoformat()
    for change in ({"to": "user:other"}, {"until": later.isoformat()}, {"since": since}, {"note": "x"}):
        other = post(**change)
        assert (other.status_code, other.json()["code"]) == (409, "command_id_reused"), change
    id = first.json()["id"]
    query = f"SELECT count(*) FROM audit WHERE act = 'delegation.created' AND subject = 'delegation:{id}'"
    assert place.people.do(lambda connection: connection.fetchval(query)) == 1
    stranger = place.people.person(f"user:{unique('boss')}", roles=BOSS) | {"Idempotency-Key": who["Idempotency-Key"]}
    assert place.lend(stranger)["id"] != id
    assert place.api.delete(f"/v1/inbox/delegations/{id}", headers=who).status_code == 204
    assert place.api.delete(f"/v1/inbox/delegations/{id}", headers=who).status_code == 404
    for change in ({}, {"until": later.isoformat()}):
        over = post(**change)
        assert (over.status_code, over.json()["code"]) == (409, "delegation_over")
        assert id in over.json()["detail"]
    who["Idempotency-Key"] = unique("k")
    beyond = post(until=later.isoformat())
    assert (beyond.status_code, beyond.json()["until"] < later.isoformat()) == (201, True)
    assert post(until=later.isoformat()).json() == beyond.json()
    assert post().json()["code"] == "command_id_reused", "it is to end before the key does"


@pytest.mark.parametrize("ending", ["its time", "its key", "its key, elsewhere", "an admin", "before it begins"])
def test_a_repeated_request_revives_no_delegation_that_has_ended(place: Place, ending: str) -> None:
    person = f"user:{unique('boss')}"
    key, text = place.people.key(person, roles=BOSS)
    who = carried(text) | {"Idempotency-Key": unique("k")}
    since, until = (datetime.now(UTC) + timedelta(days=days) for days in (1, 2))
    body = {"to": place.friend_id, "until": until.isoformat()}
    if ending == "before it begins":
        body["since"] = since.isoformat()
    made = expect(place.api.post("/v1/inbox/delegations", json=body, headers=who), 201)
    if ending == "its time":
        place.change("UPDATE delegations SET since = now() - interval '1 h', until = now() WHERE from_id = $1", person)
    elif ending == "its key":
        place.people.revoke(key)
    elif ending == "its key, elsewhere":  # in another cell, which has not told this one
        place.change("UPDATE keys SET revoked_at = now() WHERE principal = $1", person)
    else:
        expect(place.api.delete(f"/v1/delegations/{made.json()['id']}", headers=place.admin), 204)
    after = place.people.person(person, roles=BOSS) | {"Idempotency-Key": who["Idempotency-Key"]}
    again = place.api.post("/v1/inbox/delegations", json=body, headers=after)
    assert (again.status_code, again.json()["code"]) == (409, "delegation_over")
    assert place.decide(place.ask(), person) == (403, "delegation_missing")
    for path, reader in (("/v1/inbox/delegations", after), ("/v1/delegations?limit=200", place.admin)):
        listed = place.api.get(path, headers=reader).json()["items"]
        assert made.json()["id"] not in [each["id"] for each in listed]


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


Ending = Callable[[Place, str], object]


def sign_out(place: Place, session: str) -> None:
    answer = place.api.delete("/v1/session", headers=place.page(session))
    assert answer.status_code < 400, answer.text


def of_session(statement: str) -> Ending:
    return lambda place, session: place.change(statement, sha256(session.encode()).digest())


def lose(*roles: str) -> Ending:
    """What the renewal of a session does, whose issuer tells fewer roles."""
    kept = json.dumps([each for each in BOSS if each not in roles])
    return of_session(
        "UPDATE sessions SET version = version + 1, "
        f"principal = jsonb_set(principal::jsonb, '{{who,roles}}', '{kept}')::text WHERE sha256 = $1"
    )


ENDINGS: Final[dict[str, Ending]] = {
    "it is signed out": sign_out,
    "it was not used for too long": of_session("UPDATE sessions SET expires_at = now() WHERE sha256 = $1"),
    "it is ended by another process": of_session("DELETE FROM sessions WHERE sha256 = $1"),
    "its issuer is silent for too long": of_session("UPDATE sessions SET good_until = now() WHERE sha256 = $1"),
    "it lets its person decide no more": lose("decider"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_delegation_ends_with_the_session_in_which_it_was_made(place: Place, ending: str) -> None:
    leaver = f"user:{unique('leaver')}"
    session = place.sign_in(leaver)
    made = place.lend(place.page(session))
    assert made["ends_with"] == "session"
    item, other = place.ask(), place.ask()
    assert place.decide(other, leaver)[0] == 200
    assert item["id"] in place.inbox()
    ENDINGS[ending](place, session)
    assert place.decide(item, leaver) == (403, "delegation_missing")
    assert item["id"] not in place.inbox()
    for path, who in (("/v1/inbox/delegations", place.friend), ("/v1/delegations?limit=200", place.admin)):
        assert made["id"] not in [each["id"] for each in place.api.get(path, headers=who).json()["items"]]


def test_a_role_that_the_giver_has_lost_is_not_lent_any_more(place: Place) -> None:
    person = f"user:{unique('boss')}"
    session = place.sign_in(person)
    place.lend(place.page(session))
    item = place.ask()
    assert item["id"] in place.inbox()
    lose("boss")(place, session)
    assert place.decide(item, person) == (404, "pending_unknown")
    assert item["id"] not in place.inbox()


def test_a_role_that_the_giver_gets_afterwards_is_not_lent(place: Place) -> None:
    person = f"user:{unique('clerk')}"
    session = place.sign_in(person, ["requester", "decider"])
    place.lend(place.page(session))
    lose()(place, session)  # from now on it has all roles of a boss
    assert place.decide(place.ask(), person) == (404, "pending_unknown")


def test_a_delegation_by_a_session_of_a_key_ends_with_either(place: Place) -> None:
    for ending in ("session", "key"):
        leaver = f"user:{unique('leaver')}"
        key, text = place.people.key(leaver, roles=BOSS)
        origin = {name: value for name, value in place.page("x").items() if name in ("Origin", "Sec-Fetch-Site")}
        session = session_in(place.api.post("/sign-in/key", json={"key": text}, headers=origin))
        place.lend(place.page(session))
        item = place.ask()
        if ending == "session":
            sign_out(place, session)
        else:  # not even by the command that ends the delegations of a key
            place.change("UPDATE keys SET revoked_at = now() WHERE id = $1", key.id)
        assert place.decide(item, leaver) == (403, "delegation_missing")


@pytest.mark.parametrize("what", ["revoked_at = now()", "expires_at = now()"])
def test_a_key_that_ends_in_whatever_way_takes_its_delegations_along(place: Place, what: str) -> None:
    leaver = f"user:{unique('leaver')}"
    key, text = place.people.key(leaver, roles=BOSS)
    place.lend(carried(text))
    item = place.ask()
    place.change(f"UPDATE keys SET {what} WHERE id = $1", key.id)
    assert place.decide(item, leaver) == (403, "delegation_missing")
    assert item["id"] not in place.inbox()


def test_a_role_that_is_taken_from_a_key_is_not_lent_any_more(place: Place) -> None:
    person = f"user:{unique('boss')}"
    key, text = place.people.key(person, roles=BOSS)
    place.lend(carried(text))
    place.change("UPDATE keys SET roles = '{requester,decider}' WHERE id = $1", key.id)
    assert place.decide(place.ask(), person) == (404, "pending_unknown")


def test_a_delegation_does_not_outlive_the_token_by_which_it_was_made(place: Place) -> None:
    name = unique("ann")
    token = ISSUER.token(sub=name, roles=BOSS)
    made = place.lend(carried(token))
    assert made["ends_with"] == "token"
    assert datetime.fromisoformat(made["until"]) <= datetime.now(UTC) + timedelta(hours=1)
    assert place.decide(place.ask(), f"user:{name}")[0] == 200


@pytest.mark.parametrize("proof", ["session", "token"])
def test_a_delegation_longer_than_its_proof_is_refused_with_the_remedy(place: Place, proof: str) -> None:
    token = carried(ISSUER.token(sub=unique("ann"), roles=BOSS))
    who = place.page(place.sign_in(f"user:{unique('boss')}")) if proof == "session" else token
    since = datetime.now(UTC) + timedelta(days=2)
    body = {"to": "user:friend", "since": since.isoformat(), "until": (since + timedelta(days=1)).isoformat()}
    answer = place.api.post("/v1/inbox/delegations", json=body, headers=who)
    assert (answer.status_code, answer.json()["code"]) == (422, "delegation.invalid")
    assert f"your {proof} ends" in answer.json()["detail"]
    assert "hai-flow delegate" in answer.json()["detail"]


@pytest.mark.parametrize("gone", ["giver", "friend"])
def test_a_delegation_ends_with_the_person_that_is_forgotten(place: Place, gone: str) -> None:
    leaver = f"user:{unique('leaver')}"
    friend = f"user:{unique('friend')}"
    place.lend(place.people.person(leaver, roles=BOSS), friend)
    one = leaver if gone == "giver" else friend
    place.people.do(lambda connection: forget(connection, LOCAL_TENANT, one, by="user:root"))
    after = place.people.person(friend, roles=["requester", "decider"])
    body = {"decision": "approve", "on_behalf_of": leaver}
    answer = place.api.post(f"/v1/pendings/{place.ask()['id']}/decide", json=body, headers=after)
    assert (answer.status_code, answer.json()["code"]) == (403, "delegation_missing")


def test_delegations_that_have_ended_make_room_for_new_ones_and_hide_none(place: Place) -> None:
    person, other = f"user:{unique('boss')}", f"user:{unique('boss')}"
    place.lend(place.people.person(other, roles=BOSS))
    for _ in range(2):
        session = place.sign_in(person)
        place.lend(place.page(session))
        sign_out(place, session)
    place.lend(place.people.person(person, roles=BOSS))
    query = "SELECT count(*) FROM delegations WHERE from_id = $1 AND until > now()"
    assert place.people.do(lambda connection: connection.fetchval(query, person)) == 1


Gain = Callable[[Place, str], object]


def another_key(place: Place, person: str, **holding: Any) -> None:
    place.people.key(person, roles=holding.get("roles", ["requester"]), groups=holding.get("groups", []))


GAINS: Final[dict[str, Gain]] = {
    "a role, by another key": lambda place, person: another_key(place, person, roles=["auditor"]),
    "a group, by another key": lambda place, person: another_key(place, person, groups=["audit"]),
    "a role, by the same key": lambda place, person: place.change(
        "UPDATE keys SET roles = roles || '{auditor}' WHERE principal = $1", person
    ),
}


def audited(place: Place) -> dict[str, Any]:
    """A question that no auditor may decide."""
    excluded = "[role:boss], exclude: [role:auditor, group:audit]"
    source = FLOW.replace("name: deal", "name: audited").replace("[role:boss]", excluded)
    publisher = place.people.person(f"user:{unique('pat')}", roles=["publisher"])
    assert place.api.post("/v1/workflows", content=source, headers={**YAML, **publisher}).status_code in (200, 201)
    run = place.api.post("/v1/runs", json={"workflow": "audited"}, headers=place.req).json()
    items = place.api.get("/v1/pendings", params={"limit": 200}, headers=place.operator).json()["items"]
    return next(each for each in items if each["run_id"] == run["id"])


@pytest.mark.parametrize(
    ("way", "who", "gain"),
    [
        *(("delegation", "giver", gain) for gain in GAINS),
        ("delegation", "delegate", "a role, by another key"),
        ("absence", "giver", "a role, by another key"),
        ("absence", "delegate", "a group, by another key"),
    ],
)
def test_a_role_that_either_gets_afterwards_excludes_the_vote(place: Place, way: str, who: str, gain: str) -> None:
    boss = f"user:{unique('boss')}"
    theirs = place.people.person(boss, roles=BOSS)
    if way == "delegation":
        place.lend(theirs)
    else:
        day = datetime.now(UTC).date()
        body = {"first_day": str(day), "last_day": str(day + timedelta(days=1)), "delegate": place.friend_id}
        assert place.api.post("/v1/absences", json=body, headers=theirs).status_code == 201
    item = audited(place)
    assert place.decide(audited(place), boss) == (200, "approve"), "until then they decide"
    GAINS[gain](place, boss if who == "giver" else place.friend_id)
    assert place.decide(item, boss) == (404, "pending_unknown")
    listed = place.api.get("/v1/inbox", params={"limit": 200}, headers=place.friend).json()["items"]
    assert [each["may_decide"] for each in listed if each["id"] == item["id"]] == [False]
    assert place.decide(place.ask(), boss) == (200, "approve"), "what excludes no auditor they still decide"


def test_a_role_that_a_givers_session_gains_later_excludes_the_vote(place: Place) -> None:
    boss = f"user:{unique('boss')}"
    session = place.sign_in(boss)
    place.lend(place.page(session))
    item = audited(place)
    roles = json.dumps([*BOSS, "auditor"])
    changed = f"principal = jsonb_set(principal::jsonb, '{{who,roles}}', '{roles}')::text"
    of_session(f"UPDATE sessions SET version = version + 1, {changed} WHERE sha256 = $1")(place, session)
    assert place.decide(item, boss) == (404, "pending_unknown")


def speak_by_token(place: Place, person: str) -> dict[str, str]:
    """The headers of a page that has a token for the person, by a key that may speak for them."""
    _, shop = place.people.key("service:shop", roles=["issuer", *BOSS], speaks_for=[person])
    body = {"principal": person, "roles": BOSS}
    return carried(place.api.post("/v1/tokens", json=body, headers=carried(shop)).json()["token"])


VOICES: Final[dict[str, Callable[[Place, str], dict[str, str]]]] = {
    "a key": lambda place, person: place.people.person(person, roles=BOSS),
    "a session": lambda place, person: place.page(place.sign_in(person)),
    "an issuer's token": lambda place, person: carried(ISSUER.token(sub=person.removeprefix("user:"), roles=BOSS)),
    "a frontend's token": speak_by_token,
}
TWINS: Final = {"user:twin": ["user:corp-twin"], "user:double": ["user:corp-double"]}
"""Each is one person, by the identity file."""


@pytest.mark.parametrize(
    ("voice", "gain"), [*((voice, {"roles": ["auditor"]}) for voice in VOICES), ("a key", {"groups": ["audit"]})]
)
def test_an_excluded_role_of_another_key_excludes_a_direct_vote(
    place: Place, voice: str, gain: dict[str, list[str]]
) -> None:
    boss = f"user:{unique('boss')}"
    exclude_by_another_key(place, VOICES[voice](place, boss), boss, gain)


@pytest.mark.parametrize(("mine", "other"), [("user:twin", "user:corp-twin"), ("user:corp-double", "user:double")])
def test_an_excluded_role_of_a_key_of_a_further_id_excludes_a_direct_vote(place: Place, mine: str, other: str) -> None:
    exclude_by_another_key(place, place.people.person(mine, roles=BOSS), other, {"roles": ["auditor"]})


def exclude_by_another_key(place: Place, theirs: dict[str, str], other: str, gain: dict[str, list[str]]) -> None:
    """Let somebody who decides get a key of the id `other` with what a question excludes: they decide it no more."""

    def decide(item: dict[str, Any]) -> tuple[int, str]:
        answer = place.api.post(f"/v1/pendings/{item['id']}/decide", json={"decision": "approve"}, headers=theirs)
        return answer.status_code, answer.json().get("code") or answer.json()["status"]

    def why_not(item: dict[str, Any]) -> str:
        listed = place.api.get("/v1/inbox", params={"limit": 200}, headers=theirs).json()["items"]
        return str(next(each for each in listed if each["id"] == item["id"])["why_not"] or "")

    item = audited(place)
    wait_for(lambda: not why_not(item))
    assert decide(audited(place)) == (200, "approve"), "until then they decide"
    another_key(place, other, **gain)
    assert "by another of their keys" in wait_for(lambda: why_not(item))
    assert decide(item) == (404, "pending_unknown"), "as it is for everybody who may not decide it, nor see the run"
    assert decide(place.ask()) == (200, "approve"), "what excludes no auditor they still decide"


def test_an_open_socket_ends_with_the_next_input_after_a_change_of_roles(place: Place) -> None:
    boss = f"user:{unique('boss')}"
    theirs, item = place.people.person(boss, roles=BOSS), audited(place)
    address = str(place.api.base_url).replace("http", "ws", 1).rstrip("/") + "/api/aui/ws/interactive"
    with connect(address, additional_headers=theirs, proxy=None) as socket:
        socket.send(json.dumps({"type": "params", "data": {"session_id": unique("t")}}))
        another_key(place, boss, roles=["auditor"])
        inbox = f"/v1/inbox/{item['id']}"
        wait_for(lambda: place.api.get(inbox, headers=theirs).json().get("why_not"))
        socket.send(json.dumps({"type": "input", "action": "approve", "interrupt_id": item["id"]}))
        wait_for(lambda: json.loads(socket.recv(timeout=20)).get("error_code") == "auth.expired")
    assert place.api.get(f"/v1/pendings/{item['id']}", headers=place.operator).json()["status"] == "open"
