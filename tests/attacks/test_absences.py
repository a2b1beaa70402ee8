"""Absences: their delegate decides what the absent person may decide, and whom a rule keeps out comes in by none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity.erasure import forget
from tests.attacks.test_delegations import BOSS, FLOW, ISSUER, Place, place
from tests.support.hai_client import unique
from tests.support.identities import carried
from tests.support.server import YAML

__all__ = ["place"]

DECIDER = ["requester", "decider"]


@pytest.fixture(autouse=True)
def friend(place: Place) -> None:
    place.make_friend()


def day(ahead: int = 0) -> str:
    return (datetime.now(UTC) + timedelta(days=ahead)).date().isoformat()


def person_of(place: Place, roles: Sequence[str] = tuple(BOSS)) -> tuple[str, dict[str, str]]:
    """Somebody new: their id, and the headers of their requests."""
    id = f"user:{unique('boss')}"
    return id, place.people.person(id, roles=list(roles))


def enter(place: Place, who: dict[str, str], **body: Any) -> dict[str, Any]:
    """What comes of entering an absence of a day from today on, with the code of a refusal."""
    body = {"first_day": day(), "last_day": day(1), "delegate": place.friend_id, **body}
    answer = place.api.post("/v1/absences", json=body, headers=who)
    return {"status": answer.status_code, **answer.json()}


def refusal(answer: dict[str, Any]) -> tuple[int, str]:
    return answer["status"], answer["code"]


# --- what a delegate may ----------------------------------------------------------------------------------------------


def test_an_absent_persons_delegate_decides_and_both_are_recorded(place: Place) -> None:
    boss, who = person_of(place)
    item = place.ask()
    assert place.decide(item, boss) == (403, "delegation_missing")
    absence = enter(place, who)
    assert (absence["status"], absence["decides_now"]) == (201, place.friend_id)
    assert item["id"] in place.inbox()
    assert place.decide(item, boss) == (200, "approve")
    votes = place.api.get(f"/v1/pendings/{item['id']}", headers=place.operator).json()["needed"]["votes"]
    assert [(each["by"], each["on_behalf_of"]) for each in votes] == [(place.friend_id, boss)]


def test_an_absence_holds_from_its_first_day_on_and_not_after_it_was_ended(place: Place) -> None:
    boss, who = person_of(place)
    item = place.ask()
    absence = enter(place, who, first_day=day(2), last_day=day(3))
    assert place.decide(item, boss) == (403, "delegation_missing")
    place.change("UPDATE absences SET since = now() WHERE id = $1::uuid", absence["id"])
    assert item["id"] in place.inbox()
    assert place.api.delete(f"/v1/absences/{absence['id']}", headers=who).status_code == 204
    assert place.decide(item, boss) == (403, "delegation_missing")
    assert item["id"] not in place.inbox()


def test_a_delegate_of_more_than_one_has_one_vote(place: Place) -> None:
    (one, first), (two, second) = person_of(place), person_of(place)
    enter(place, first)
    enter(place, second)
    source = FLOW.replace("name: deal", "name: pair").replace("[role:boss]", "[role:boss], quorum: 2")
    publisher = place.people.person("user:pat2", roles=["publisher"])
    assert place.api.post("/v1/workflows", content=source, headers={**YAML, **publisher}).status_code == 201
    run = place.api.post("/v1/runs", json={"workflow": "pair"}, headers=place.operator).json()
    pendings = place.api.get("/v1/pendings", params={"limit": 200}, headers=place.operator).json()["items"]
    (item,) = [each for each in pendings if each["run_id"] == run["id"]]
    assert place.decide(item, one) == (200, "open")
    assert place.decide(item, two) == (403, "vote_final")


def test_the_seat_of_an_absent_delegate_goes_to_their_delegate(place: Place) -> None:
    boss, who = person_of(place)
    between, theirs = person_of(place, DECIDER)
    enter(place, who, delegate=between)
    enter(place, theirs)
    item = place.ask()
    body = {"decision": "approve", "on_behalf_of": boss}
    refused = place.api.post(f"/v1/pendings/{item['id']}/decide", json=body, headers=theirs)
    assert (refused.status_code, refused.json()["code"]) == (403, "delegation_missing")
    assert place.decide(item, boss) == (200, "approve")


def test_an_absence_without_a_delegate_leaves_its_seat_empty_and_says_so(place: Place) -> None:
    boss, who = person_of(place)
    absence = enter(place, who, delegate=None)
    assert (absence["decides_now"], absence["why_nobody"]) == (
        None, f"{boss} is away until {day(1)} and has not named a delegate",
    )  # fmt: skip
    body = {"decision": "approve", "on_behalf_of": boss}
    answer = place.api.post(f"/v1/pendings/{place.ask()['id']}/decide", json=body, headers=place.friend)
    assert f"{boss} is away until {day(1)} and has not named a delegate" in answer.json()["detail"]


# --- whom a rule keeps out --------------------------------------------------------------------------------------------


def requester_of(place: Place, *roles: str) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Somebody who has started a run, and its question."""
    id, who = person_of(place, [*DECIDER, *roles])
    run = place.api.post("/v1/runs", json={"workflow": "deal"}, headers=who).json()
    items = place.api.get("/v1/pendings", params={"limit": 200}, headers=place.operator).json()["items"]
    return id, who, next(each for each in items if each["run_id"] == run["id"])


def test_the_requester_may_not_decide_as_somebodys_delegate(place: Place) -> None:
    boss, who = person_of(place)
    requester, theirs, item = requester_of(place)
    enter(place, who, delegate=requester)
    answer = place.api.post(
        f"/v1/pendings/{item['id']}/decide", json={"decision": "approve", "on_behalf_of": boss}, headers=theirs
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "pending_forbidden")
    assert f"{requester} started this run" in answer.json()["detail"]


def test_the_delegate_of_a_requester_who_is_a_delegate_may_not_either(place: Place) -> None:
    """The boss named the requester, who is away and names a friend: that is the requester's choice."""
    boss, who = person_of(place)
    requester, theirs, item = requester_of(place)
    enter(place, who, delegate=requester)
    enter(place, theirs)
    assert place.decide(item, boss) == (403, "pending_forbidden")
    (listed,) = [
        each
        for each in place.api.get("/v1/inbox", params={"limit": 200}, headers=place.friend).json()["items"]
        if each["id"] == item["id"]
    ]
    assert (listed["may_decide"], listed["why_not"]["code"]) == (False, "excluded.requester")
    assert place.decide(place.ask(), boss) == (200, "approve"), "of others' runs they decide"


def test_an_admin_who_is_requester_enters_no_absence_that_lets_others_vote(place: Place) -> None:
    boss, _ = person_of(place)
    _, theirs, item = requester_of(place, "admin")
    assert enter(place, theirs, person=boss)["status"] == 201
    assert place.decide(item, boss) == (403, "pending_forbidden")
    assert place.decide(place.ask(), boss) == (200, "approve")


def test_an_excluded_role_covers_those_away_between_and_who_entered_it(place: Place) -> None:
    source = FLOW.replace("name: deal", "name: walled").replace("[role:boss]", "[role:boss], exclude: [role:trader]")
    publisher = place.people.person("user:pat3", roles=["publisher"])
    assert place.api.post("/v1/workflows", content=source, headers={**YAML, **publisher}).status_code == 201
    place.friend_id, place.friend = person_of(place, [*DECIDER, "operator"])
    (first, who), (second, _), (third, their) = (person_of(place) for _ in range(3))
    (trader, away), (_, admin) = person_of(place, [*DECIDER, "trader"]), person_of(place, ["admin", "trader"])
    enter(place, who, delegate=trader)
    enter(place, away)
    assert enter(place, admin, person=second)["status"] == 201
    enter(place, their)
    run = place.api.post("/v1/runs", json={"workflow": "walled"}, headers=place.req).json()
    pendings = place.api.get("/v1/pendings", params={"limit": 200}, headers=place.operator).json()["items"]
    (item,) = [each for each in pendings if each["run_id"] == run["id"]]
    for person in (first, second):
        body = {"decision": "approve", "on_behalf_of": person}
        answer = place.api.post(f"/v1/pendings/{item['id']}/decide", json=body, headers=place.friend).json()
        assert answer["code"] == "pending_forbidden"
        assert f"somebody by whom the vote came to {place.friend_id}, is excluded" in answer["detail"]
    assert place.decide(item, third) == (200, "approve")


def test_an_admin_enters_an_absence_which_lends_what_the_persons_keys_have(place: Place) -> None:
    boss, _ = person_of(place)
    clerk, _ = person_of(place, DECIDER)
    assert enter(place, place.admin, person=boss)["status"] == 201
    assert enter(place, place.admin, person=clerk)["status"] == 201
    assert place.decide(place.ask(), clerk) == (404, "pending_unknown")
    assert place.decide(place.ask(), boss) == (200, "approve")


@pytest.mark.parametrize("what", ["revoked_at = now()", "expires_at = now()", "roles = '{requester}'"])
def test_who_may_decide_no_more_lends_nothing(place: Place, what: str) -> None:
    boss, who = person_of(place)
    enter(place, who)
    item = place.ask()
    place.change(f"UPDATE keys SET {what} WHERE principal = $1", boss)
    assert place.decide(item, boss) == (403, "delegation_missing")
    assert item["id"] not in place.inbox()


def test_an_absence_of_a_former_decider_passes_no_seat_on(place: Place) -> None:
    boss, who = person_of(place)
    between, theirs = person_of(place, DECIDER)
    enter(place, who, delegate=between)
    enter(place, theirs)
    place.change("UPDATE keys SET revoked_at = now() WHERE principal = $1", between)
    assert place.decide(place.ask(), boss) == (403, "delegation_missing")


def test_who_is_forgotten_is_in_no_absence(place: Place) -> None:
    boss, who = person_of(place)
    absence = enter(place, who)
    place.people.do(lambda connection: forget(connection, LOCAL_TENANT, boss, by="user:root"))
    listed = place.api.get("/v1/absences", params={"everybody": True}, headers=place.admin).json()["items"]
    assert absence["id"] not in [each["id"] for each in listed]


# --- entering ---------------------------------------------------------------------------------------------------------


def test_absences_that_go_round_in_a_circle_are_refused_however_long(place: Place) -> None:
    people = [person_of(place) for _ in range(4)]
    for (_, who), (other, _) in pairwise(people):
        assert enter(place, who, delegate=other)["status"] == 201
    assert refusal(enter(place, people[-1][1], delegate=people[0][0])) == (409, "absence_circle")
    late = {"first_day": day(2), "last_day": day(3)}
    assert enter(place, people[-1][1], delegate=people[0][0], **late)["status"] == 201, "then nobody else is away"


def test_a_chain_of_more_than_five_is_refused_at_either_end(place: Place) -> None:
    people = [person_of(place) for _ in range(7)]
    for (_, who), (other, _) in pairwise(people[1:]):
        assert enter(place, who, delegate=other)["status"] == 201
    assert refusal(enter(place, people[0][1], delegate=people[1][0])) == (409, "absence_circle")
    assert refusal(enter(place, people[6][1])) == (409, "absence_circle")


def test_a_circle_that_stands_in_the_database_gives_nobody_a_seat(place: Place) -> None:
    (one, first), (two, second) = person_of(place), person_of(place)
    made = enter(place, first)
    place.change("UPDATE absences SET delegate = $2 WHERE id = $1::uuid", made["id"], two)
    enter(place, second)
    place.change("UPDATE absences SET delegate = $2 WHERE person = $1", two, one)
    item = place.ask()
    for who, other in ((first, two), (second, one)):
        body = {"decision": "approve", "on_behalf_of": other}
        answer = place.api.post(f"/v1/pendings/{item['id']}/decide", json=body, headers=who)
        assert (answer.status_code, answer.json()["code"]) == (403, "delegation_missing")
        assert "go round in a circle" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {"first_day": "2020-01-01"},
        {"first_day": "2020-01-01", "last_day": "2020-01-02"},
        {"first_day": day(1), "last_day": day()},
        {"last_day": day(92)},
        {"first_day": day(400), "last_day": day(401)},
        {"zone": "Mars/Olympus"},
        {"zone": "localtime"},
        {"first_day": "soon"},
        {"first_day": "9999-12-31", "last_day": "9999-12-31"},
        {"delegate": "role:boss"},
    ],
)
def test_an_absence_past_endless_or_nowhere_is_refused_at_its_field(place: Place, body: dict[str, str]) -> None:
    _, who = person_of(place)
    answer = enter(place, who, **body)
    assert answer["status"] == 422
    assert answer["findings"][0]["path"].rpartition("/")[2] in body


def test_nobody_is_their_own_delegate_nor_away_twice(place: Place) -> None:
    boss, who = person_of(place)
    assert refusal(enter(place, who, delegate=boss)) == (422, "absence.invalid")
    assert enter(place, who)["status"] == 201
    again = enter(place, who, first_day=day(1), last_day=day(5))
    assert refusal(again) == (409, "absences_overlap")
    assert again["findings"][0]["path"] == "/first_day"


def test_who_is_no_admin_enters_and_ends_absences_of_nobody_else(place: Place) -> None:
    boss, who = person_of(place)
    _, other = person_of(place)
    assert refusal(enter(place, other, person=boss)) == (403, "right_missing")
    absence = enter(place, who)
    assert place.api.delete(f"/v1/absences/{absence['id']}", headers=other).status_code == 404
    assert place.api.get("/v1/absences", params={"everybody": True}, headers=other).status_code == 403
    assert place.api.get("/v1/absences", headers=other).json()["items"] == []


def test_another_tenant_sees_and_ends_nothing(place: Place) -> None:
    boss, who = person_of(place)
    absence = enter(place, who)
    for headers in (place.other_admin, place.people.person(place.friend_id, roles=DECIDER, tenant="globex")):
        assert place.api.delete(f"/v1/absences/{absence['id']}", headers=headers).status_code == 404
        listed = place.api.get("/v1/absences", headers=headers).json()
        assert listed["items"] == []
    body = {"decision": "approve", "on_behalf_of": boss}
    stranger = place.people.person(place.friend_id, roles=DECIDER, tenant="globex")
    answer = place.api.post(f"/v1/pendings/{place.ask()['id']}/decide", json=body, headers=stranger)
    assert (answer.status_code, answer.json()["code"]) == (403, "delegation_missing")


def test_a_token_for_some_threads_enters_none(place: Place) -> None:
    boss, who = person_of(place, [*BOSS, "issuer"])
    token = place.api.post("/v1/tokens", json={"threads": ["t1"], "roles": BOSS}, headers=who)
    if token.status_code != 201:
        token = place.api.post("/v1/tokens", json={"principal": boss, "threads": ["t1"]}, headers=who)
    assert token.status_code == 201, token.text
    assert enter(place, carried(token.json()["token"]))["status"] == 403


def test_an_absence_entered_with_a_token_outlives_it_and_an_admin_ends_it(place: Place) -> None:
    name = unique("ann")
    absence = enter(place, carried(ISSUER.token(sub=name, roles=BOSS)), last_day=day(20))
    assert absence["status"] == 201
    item = place.ask()
    assert place.decide(item, f"user:{name}") == (200, "approve")
    assert place.api.delete(f"/v1/absences/{absence['id']}", headers=place.admin).status_code == 204
    assert place.decide(place.ask(), f"user:{name}") == (403, "delegation_missing")


def test_who_entered_and_ended_an_absence_stands_in_the_audit(place: Place) -> None:
    boss, who = person_of(place)
    absence = enter(place, place.admin, person=boss)
    place.api.delete(f"/v1/absences/{absence['id']}", headers=who)
    auditor = place.people.person("user:aud", roles=["auditor"])
    records = place.api.get("/v1/audit", params={"limit": 200}, headers=auditor).json()["items"]
    acts = [(each["act"], each["by"]) for each in records if each["subject"] == f"absence:{absence['id']}"]
    assert sorted(acts) == [("absence.ended", boss), ("absence.entered", "user:root")]
