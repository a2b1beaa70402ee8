"""One's own request, approved by oneself: as a delegate, by a delegate, in a fork, by a child run, twice, too late.

Each try gets the refusal that says why, and leaves no event."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx2
import pytest

from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import unique, user
from tests.support.server import YAML, ServerProcess

DEAL: Final = """
hai: flow/v1
name: deal
version: 1
steps:
  - id: go
    approve: {title: Go?, from: [role:lead], quorum: 2, deadline: 1d, evidence: {amount: 7}}
"""
OUTER: Final = """
hai: flow/v1
name: outer_deal
version: 1
steps:
  - {id: sub, run: deal}
"""
YES: Final = {"decision": "approve"}


def as_(who: str) -> dict[str, str]:
    return {"HAI-Act-As": who}


@pytest.fixture(scope="module", autouse=True)
def published(server: ServerProcess) -> None:
    for source in (DEAL, OUTER):
        assert httpx2.post(f"{server.url}/v1/workflows", content=source, headers=YAML).status_code in (200, 201)


@pytest.fixture
def api(server: ServerProcess) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        yield client


class Deal:
    """A run that `who` started, and its question."""

    def __init__(self, api: httpx2.Client, who: str, workflow: str = "deal") -> None:
        self.api = api
        body = {"workflow": workflow, "thread_id": unique("deal")}
        self.run = api.post("/v1/runs", json=body, headers=as_(who)).json()
        self.pending: dict[str, Any] = {}
        while not self.pending:
            items = api.get("/v1/pendings", params={"limit": 200}).json()["items"]
            found = (
                [each for each in items if each["run_id"] == self.run["id"]]
                if workflow == "deal"
                else [each for each in items if each["workflow"] == "deal" and self._is_below(each["run_id"])]
            )
            self.pending = found[0] if found else {}
        self.id: str = self.pending["id"]

    def _is_below(self, run_id: str) -> bool:
        return self.api.get(f"/v1/runs/{run_id}").json()["thread_id"] == self.run["thread_id"]

    def decide(self, who: str, **body: Any) -> httpx2.Response:
        return self.api.post(f"/v1/pendings/{self.id}/decide", json={**YES, **body}, headers=as_(who))

    def votes(self) -> list[str]:
        events = self.api.get(f"/v1/runs/{self.pending['run_id']}/events", params={"limit": 200}).json()["items"]
        return [each["by"] for each in events if each["type"] == "vote_cast"]


def delegate(api: httpx2.Client, from_: str, to: str) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = {"to": to, "until": until}
    assert api.post("/v1/inbox/delegations", json=body, headers=as_(from_)).status_code == 201


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def person() -> str:
    """Nobody else is called so."""
    return "user:" + unique("p")


def test_directly(api: httpx2.Client) -> None:
    me = person()
    deal = Deal(api, me)
    assert code(deal.decide(f"{me},role:lead")) == (403, "pending_forbidden")
    assert deal.votes() == []


def test_by_a_delegate_of_mine(api: httpx2.Client) -> None:
    me, friend = person(), person()
    deal = Deal(api, me)
    delegate(api, f"{me},role:lead", friend)
    for who in (friend, f"{friend},role:lead"):
        assert code(deal.decide(who, on_behalf_of=me)) == (403, "pending_forbidden")
    assert deal.votes() == []


def test_as_the_delegate_of_somebody_who_may(api: httpx2.Client) -> None:
    me, lead = person(), person()
    deal = Deal(api, me)
    delegate(api, f"{lead},role:lead", me)
    for who in (me, f"{me},role:lead"):
        assert code(deal.decide(who, on_behalf_of=lead)) == (403, "pending_forbidden")
    assert deal.votes() == []
    assert deal.decide(f"{lead},role:lead").status_code == 200


def test_a_delegation_is_not_passed_on(api: httpx2.Client) -> None:
    lead, second, third = person(), person(), person()
    deal = Deal(api, person())
    delegate(api, f"{lead},role:lead", second)
    delegate(api, second, third)
    assert code(deal.decide(third, on_behalf_of=lead)) == (403, "delegation_missing")
    assert code(deal.decide(third, on_behalf_of=second)) == (403, "pending_forbidden")
    passing = {"to": third, "until": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    answer = api.post("/v1/inbox/delegations", json=passing, headers=as_(f"{second},for={lead},role:lead"))
    assert code(answer) == (403, "delegation_forbidden")
    assert deal.votes() == []


def test_two_who_delegate_to_each_other_have_two_votes_and_no_more(api: httpx2.Client) -> None:
    ann, bob = person(), person()
    deal = Deal(api, person())
    delegate(api, f"{ann},role:lead", bob)
    delegate(api, f"{bob},role:lead", ann)
    assert deal.decide(f"{bob},role:lead", on_behalf_of=ann).json()["status"] == "open"
    for who, body in ((bob, {}), (ann, {}), (ann, {"on_behalf_of": bob}), (bob, {"on_behalf_of": ann, "reason": "2"})):
        assert code(deal.decide(f"{who},role:lead", **body)) == (403, "vote_final"), (who, body)
    assert deal.votes() == [bob]


def test_one_who_stands_in_for_two_votes_once(api: httpx2.Client) -> None:
    ann, bob, carl = person(), person(), person()
    deal = Deal(api, person())
    for each in (ann, bob):
        delegate(api, f"{each},role:lead", carl)
    assert deal.decide(carl, on_behalf_of=ann).status_code == 200
    assert code(deal.decide(carl, on_behalf_of=bob)) == (403, "vote_final")
    assert deal.votes() == [carl]


@pytest.mark.parametrize("who", ["user:ANN", "role:lead", "user:", "user:a b", "", "user:x\n"])
def test_on_behalf_of_nobody(api: httpx2.Client, who: str) -> None:
    deal = Deal(api, person())
    assert deal.decide(person(), on_behalf_of=who).status_code in (403, 422)
    assert deal.votes() == []


def test_after_the_delegation_was_taken_back(api: httpx2.Client) -> None:
    ann, bob = person(), person()
    deal = Deal(api, person())
    delegate(api, f"{ann},role:lead", bob)
    (made,) = api.get("/v1/inbox/delegations", headers=as_(ann)).json()["items"]
    assert api.delete(f"/v1/inbox/delegations/{made['id']}", headers=as_(ann)).status_code == 204
    assert code(deal.decide(bob, on_behalf_of=ann)) == (403, "delegation_missing")
    assert deal.votes() == []


def test_in_a_child_of_my_run(api: httpx2.Client) -> None:
    me = person()
    deal = Deal(api, me, "outer_deal")
    assert deal.pending["run_id"] != deal.run["id"]
    assert code(deal.decide(f"{me},role:lead")) == (403, "pending_forbidden")
    assert deal.votes() == []


def test_in_a_fork_of_my_run(api: httpx2.Client, server: ServerProcess) -> None:
    me, lead = person(), person()
    mine = AguiClient(server.url, workflow="deal", headers=as_(f"{me},role:lead"))
    assert mine.post(user(), run_id="t1").interrupts() == [], "it is not theirs to answer"
    (asked,) = _asked_by(api, mine.thread_id)
    voted = api.post(f"/v1/pendings/{asked['id']}/decide", json=YES, headers=as_(f"{lead},role:lead"))
    assert voted.json()["status"] == "open"
    for more in ({}, {"parentRunId": "t1"}):  # in the run itself; in a run that begins where it asked
        stream = mine.post(run_id=unique("t"), resume=[resolved(asked, YES)], **more)
        assert stream.status == 403, stream.body
    (run,) = api.get("/v1/runs", params={"thread_id": mine.thread_id}).json()["items"]
    events = api.get(f"/v1/runs/{run['id']}/events", params={"limit": 200}).json()["items"]
    assert {each["by"] for each in events if each["type"] == "vote_cast"} == {lead}
    assert "pending_decided" not in {each["type"] for each in events}


def _asked_by(api: httpx2.Client, thread_id: str) -> list[dict[str, Any]]:
    while True:
        runs = {run["id"] for run in api.get("/v1/runs", params={"thread_id": thread_id}).json()["items"]}
        items = api.get("/v1/pendings", params={"limit": 200}).json()["items"]
        if found := [each for each in items if each["run_id"] in runs]:
            return found


def test_in_several_at_once(api: httpx2.Client) -> None:
    me = person()
    mine, other = Deal(api, me), Deal(api, person())
    items = [{"id": deal.id, **YES} for deal in (mine, other)]
    found = api.post("/v1/inbox/decide", json={"items": items}, headers=as_(f"{me},role:lead")).json()["items"]
    assert [each["status"] for each in found] == [403, 200]
    assert (mine.votes(), other.votes()) == ([], [me])


@pytest.mark.parametrize("claimed", [True, False])
def test_a_claim_gives_nobody_a_vote_and_takes_nobody_s(api: httpx2.Client, claimed: bool) -> None:
    me, lead = person(), person()
    deal = Deal(api, me)
    assert code(api.post(f"/v1/inbox/{deal.id}/claim", headers=as_(f"{me},role:lead"))) == (403, "pending_forbidden")
    if claimed:
        assert api.post(f"/v1/inbox/{deal.id}/claim", headers=as_(f"{lead},role:lead")).status_code == 200
    assert code(deal.decide(f"{me},role:lead")) == (403, "pending_forbidden")
    assert deal.decide(f"{person()},role:lead").status_code == 200


def test_of_a_question_that_was_shown_otherwise(api: httpx2.Client) -> None:
    first, second = Deal(api, person()), Deal(api, person())
    answer = second.decide(f"{person()},role:lead", digest=first.pending["digest"])
    assert code(answer) == (422, "answer.digest")
    assert second.votes() == []


def test_too_late(api: httpx2.Client) -> None:
    deal = Deal(api, person())
    assert api.post(f"/v1/runs/{deal.run['id']}/jump", json={"for": "25h"}).status_code == 200
    assert code(deal.decide(f"{person()},role:lead")) == (410, "pending_expired")
    assert deal.votes() == []


def test_a_stranger_learns_nothing_from_the_inbox(api: httpx2.Client, server: ServerProcess) -> None:
    deal = Deal(api, person())
    for path in (f"/v1/inbox/{deal.id}/claim", f"/v1/inbox/{deal.id}/release"):
        known = api.post(path, headers=as_(f"{person()},role:lead"))
        assert known.status_code == 200
    absent = api.get("/v1/inbox/call_" + "a" * 26 + "_" + "b" * 26, headers=as_(person()))
    assert code(absent) == (404, "pending_unknown")
