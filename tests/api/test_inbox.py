"""Inboxes over REST: what asks me comes by its deadline, and what I may not decide says why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from tests.api.test_rest import Checked, code, http, wait_for_pendings
from tests.support.hai_client import unique
from tests.support.server import YAML, expect
from tests.support.waiting import wait_for

__all__ = ["http"]


ASKING = """
hai: flow/v1
name: NAME
version: 1
roles: {house: [user:hal, group:GROUP]}
steps:
  - {id: gate, approve: {title: Spend, from: [FROM], deadline: DEADLINE, on_deadline: LATE, quorum: QUORUM}}
"""


class Asking:
    """A workflow of its own that asks; what is in whose inbox of it."""

    def __init__(
        self, http: Checked, from_: str, *, deadline: str = "1h", quorum: int = 1, late: str = "reject"
    ) -> None:
        self.http = http
        self.name = unique("asks").replace("-", "_")
        source = ASKING.replace("NAME", self.name).replace("FROM", from_).replace("DEADLINE", deadline)
        source = source.replace("QUORUM", str(quorum)).replace("LATE", late).replace("GROUP", self.name)
        assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201

    def start(self, who: str = "user:req") -> str:
        """Start a run as `who`; the id of its question."""
        run = self.http.post("/v1/runs", json={"workflow": self.name}, headers={"HAI-Act-As": who}).json()
        (pending,) = wait_for_pendings(self.http, run["id"])
        return pending["id"]

    def inbox(self, who: str, **filters: Any) -> list[dict[str, Any]]:
        """The items of all pages."""
        found: list[dict[str, Any]] = []
        params = {"workflow": self.name, **filters}
        while True:
            page = expect(self.http.get("/v1/inbox", params=params, headers={"HAI-Act-As": who}), 200)
            found += page.json()["items"]
            if page.json()["next_cursor"] is None:
                return found
            params["cursor"] = page.json()["next_cursor"]

    def ids(self, who: str, **filters: Any) -> list[str]:
        return [each["id"] for each in self.inbox(who, **filters)]

    def why_not(self, who: str) -> str | None:
        """Why they may not decide the one question of theirs."""
        (item,) = self.inbox(who)
        assert item["may_decide"] == (item["why_not"] is None)
        return item["why_not"] and item["why_not"]["code"]

    def decide(self, id: str, who: str, **body: Any) -> httpx2.Response:
        given = {"decision": "approve", **body}
        return self.http.post(f"/v1/pendings/{id}/decide", json=given, headers={"HAI-Act-As": who})


def test_a_question_is_in_the_inbox_of_its_deciders_and_of_nobody_else(http: Checked) -> None:
    asking = Asking(http, "user:ann, role:boss, group:money, role:house")
    id = asking.start()
    for who in ("user:ann", "user:bob,role:boss", "user:eve,group:money", "user:hal", f"user:x,group:{asking.name}"):
        assert asking.ids(who) == [id], who
    for who in ("user:bob", "user:eve,role:money", "user:house,role:house", "user:req"):
        assert asking.ids(who) == [], who
    assert asking.decide(id, "user:ann").status_code == 200
    assert asking.ids("user:ann") == asking.ids("user:bob,role:boss") == []


def test_what_anyone_may_decide_is_in_every_inbox_once(http: Checked) -> None:
    asking = Asking(http, "anyone, role:boss, user:ann")
    id = asking.start()
    assert asking.ids("user:ann,role:boss") == asking.ids("user:nobody") == [id]


def test_a_question_to_the_requester_is_in_theirs(http: Checked) -> None:
    asking = Asking(http, "requester")
    mine, _ = asking.start("user:req1"), asking.start("user:req2")
    assert asking.ids("user:req1") == [mine]


def test_what_i_may_not_decide_says_why_and_does_not_vanish(http: Checked) -> None:
    asking = Asking(http, "role:boss", quorum=2)
    id = asking.start("user:req")
    assert asking.why_not("user:req,role:boss") == "excluded.requester"
    assert asking.why_not("user:ann,role:boss") is None
    refused = asking.decide(id, "user:req,role:boss")
    assert code(refused) == (403, "pending_forbidden")
    assert "user:req started this run; somebody else must decide" in refused.json()["detail"]
    assert asking.decide(id, "user:ann,role:boss").json()["status"] == "open"
    assert asking.why_not("user:ann,role:boss") == "voted"
    assert asking.why_not("user:bob,role:boss") is None


def test_the_nearest_deadline_comes_first_in_pages_of_any_size(http: Checked) -> None:
    late, soon = Asking(http, "role:PAGED", deadline="30d"), Asking(http, "role:PAGED", deadline="1d")
    never = [late.start() for _ in range(3)]
    ids = [soon.start() for _ in range(3)] + never
    for limit in (1, 2, 5, 50):
        found: list[str] = []
        params: dict[str, Any] = {"limit": limit}
        while True:
            page = http.get("/v1/inbox", params=params, headers={"HAI-Act-As": "user:p,role:PAGED"}).json()
            found += [each["id"] for each in page["items"] if each["workflow"] in (late.name, soon.name)]
            if page["next_cursor"] is None:
                break
            params["cursor"] = page["next_cursor"]
        assert sorted(found) == sorted(ids)
        assert set(found[:3]) == set(ids[:3]), "those with less time come first"
    counts = http.get("/v1/inbox/counts", headers={"HAI-Act-As": "user:p,role:PAGED"}).json()
    assert counts["complete"]
    assert (counts["workflows"][late.name], counts["workflows"][soon.name]) == (3, 3)


SEARCHED = """
hai: flow/v1
name: NAME
version: 1
title: A letter to a customer
tools:
  files: {python: hai_flow.examples, effect: write}
input:
  type: object
  properties: {folder: {type: string}, secret: {type: string, pii: true}}
steps:
  - id: delete
    call: files.delete_files
    with: {folder: "${{ input.folder }}", count: 4711}
    approval: {from: [user:ann]}
  - id: look
    approve: {from: [user:ann], title: Right?, evidence: {who: {name: "${{ input.secret }}"}, note: ['a "word"']}}
"""


def test_a_search_finds_arguments_and_evidence_but_no_personal_values(http: Checked) -> None:
    name = unique("searched").replace("-", "_")
    assert http.post("/v1/workflows", content=SEARCHED.replace("NAME", name), headers=YAML).status_code == 201
    given = {"folder": 'Müller\\"q', "secret": "Rumpelstilz"}
    run = http.post("/v1/runs", json={"workflow": name, "input": given}, headers={"HAI-Act-As": "user:req"}).json()
    (pending,) = wait_for_pendings(http, run["id"])

    def search_inbox(text: str) -> list[dict[str, Any]]:
        params = {"workflow": name, "text": text}
        items = http.get("/v1/inbox", params=params, headers={"HAI-Act-As": "user:ann"}).json()["items"]
        return list(items)

    assert [each["workflow_title"] for each in search_inbox("MÜLLER")] == ["A letter to a customer"]
    assert [len(search_inbox(text)) for text in ("müller\\", '"q', "4711", "delete_files", "folder", "4712")] == [
        1,
        1,
        1,
        1,
        0,
        0,
    ]
    http.post(f"/v1/pendings/{pending['id']}/decide", json={"decision": "approve"}, headers={"HAI-Act-As": "user:ann"})
    wait_for(lambda: [each["title"] for each in search_inbox("right?")] == ["Right?"])
    assert [len(search_inbox(text)) for text in ('a "word"', "rumpel", "personal")] == [1, 0, 0]
    listed = http.get("/v1/inbox", params={"workflow": name}, headers={"HAI-Act-As": "user:ann"}).json()["items"]
    assert listed[0]["evidence"]["who"]["name"] == "Rumpelstilz", "ann may read what is not searched"


def test_an_inbox_is_narrowed_down_by_kind_age_deadline_and_text(http: Checked) -> None:
    asking = Asking(http, "role:boss")
    id = asking.start()
    (item,) = asking.inbox("user:ann,role:boss")
    opened = item["opened_at"]
    there: list[dict[str, Any]] = [
        {"kind": "approve"}, {"text": "sPEnd"}, {"opened_before": "2200-01-01T00:00:00Z"}, {"opened_after": opened},
        {"deadline_before": "2200-01-01T00:00:00Z"},
    ]  # fmt: skip
    for filters in there:
        assert asking.ids("user:ann,role:boss", **filters) == [id], filters
    gone: list[dict[str, Any]] = [
        {"kind": "ask"}, {"text": "spent"}, {"opened_before": opened}, {"opened_after": "2200-01-01T00:00:00Z"},
        {"deadline_before": opened}, {"workflow": "another"},
    ]  # fmt: skip
    for filters in gone:
        assert asking.ids("user:ann,role:boss", **filters) == [], filters


@pytest.mark.parametrize(
    "params",
    [{"kind": "everything"}, {"opened_before": "yesterday"}, {"opened_before": "2026-01-01T00:00:00"}, {"limit": 0},
     {"text": "a\nb"}, {"tekst": "a"}],
    ids=str,
)  # fmt: skip
def test_filters_that_say_nothing_are_refused(http: Checked, params: dict[str, Any]) -> None:
    assert http.get("/v1/inbox", params=params).status_code == 422


@pytest.mark.parametrize("cursor", ["x", "MTAw", "LTEKY2FsbF8x", "MQpjYWxs"])
def test_a_cursor_that_no_page_returned_is_refused(http: Checked, cursor: str) -> None:
    assert code(http.get("/v1/inbox", params={"cursor": cursor})) == (400, "cursor.invalid")


def test_an_escalation_moves_a_question_to_the_inboxes_of_others(http: Checked) -> None:
    asking = Asking(http, "role:boss", deadline="1d", late="[{escalate: {from: role:chief, deadline: 1d}}, reject]")
    id = asking.start()
    run_id = asking.inbox("user:ann,role:boss")[0]["run_id"]
    assert http.post(f"/v1/runs/{run_id}/jump", json={"for": "25h"}).status_code == 200
    assert asking.ids("user:ann,role:boss") == []
    assert asking.ids("user:ann,role:chief") == [id]


def test_a_run_that_is_stopped_leaves_all_inboxes(http: Checked) -> None:
    asking = Asking(http, "role:boss")
    asking.start()
    run_id = asking.inbox("user:ann,role:boss")[0]["run_id"]
    assert http.post(f"/v1/runs/{run_id}/stop", json={}).status_code == 200
    assert asking.ids("user:ann,role:boss") == []


# --- deciding, claiming, delegating -----------------------------------------------------------------------------------


def as_(who: str) -> dict[str, str]:
    return {"HAI-Act-As": who}


def test_several_questions_are_answered_at_once_with_an_outcome_each(http: Checked) -> None:
    asking, mine = Asking(http, "role:boss"), Asking(http, "user:eve")
    first, second, foreign = asking.start(), asking.start(), mine.start()
    items = [
        {"id": first, "decision": "approve"},
        {"id": foreign, "decision": "approve"},
        {"id": second, "decision": "reject", "reason": "no"},
        {"id": "call_nothing", "decision": "approve"},
        {"id": first[:-1] + "x", "decision": "approve"},
    ]
    headers = {**as_("user:ann,role:boss"), "Idempotency-Key": unique("bulk")}
    for already in (False, True):
        found = http.post("/v1/inbox/decide", json={"items": items}, headers=headers).json()["items"]
        assert [(each["id"], each["status"]) for each in found] == [
            (item["id"], status) for item, status in zip(items, (200, 403, 200, 404, 404), strict=True)
        ]
        assert [each["pending"] and each["pending"]["status"] for each in found] == [
            "approve",
            None,
            "reject",
            None,
            None,
        ]
        assert [each["pending"]["already"] for each in found if each["pending"]] == [already, already]
        assert found[1]["problem"]["code"] == "pending_forbidden"
    assert mine.ids("user:eve") == [foreign]


@pytest.mark.parametrize(
    "items", [[], [{"decision": "approve"}], [{"id": "a"}, {"id": "a"}], [{"id": "a"}] * 101], ids=len
)
def test_a_bulk_that_is_none_is_refused(http: Checked, items: list[Any]) -> None:
    assert http.post("/v1/inbox/decide", json={"items": items}).status_code == 422


def test_what_i_decided_is_listed_newest_first(http: Checked) -> None:
    asking, me = Asking(http, "user:dec"), "user:dec"
    ids = [asking.start() for _ in range(3)]
    for n, id in enumerate(ids):
        assert asking.decide(id, me, decision="approve" if n else "reject", reason=f"r{n}").status_code == 200
    found, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = http.get("/v1/inbox/decided", params=params, headers=as_(me)).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [(each["id"], each["decision"], each["reason"], each["status"]) for each in found] == [
        (ids[2], "approve", "r2", "approve"), (ids[1], "approve", "r1", "approve"), (ids[0], "reject", "r0", "reject"),
    ]  # fmt: skip
    assert {each["title"] for each in found} == {"Spend"}
    assert http.get("/v1/inbox/decided", headers=as_("user:nobody")).json()["items"] == []


def test_a_claim_is_visible_blocks_no_decision_and_is_given_back(http: Checked) -> None:
    asking = Asking(http, "role:boss")
    id = asking.start()
    ann, bob = "user:ann,role:boss", "user:bob,role:boss"
    claimed = http.post(f"/v1/inbox/{id}/claim", json={"for": "1h"}, headers=as_(ann)).json()
    assert claimed["claimed_by"] == "user:ann"
    assert asking.inbox(bob)[0]["claimed_by"] == "user:ann"
    refused = http.post(f"/v1/inbox/{id}/claim", headers=as_(bob))
    assert code(refused) == (409, "pending_claimed")
    assert refused.json()["winner"] == {"by": "user:ann"}
    assert http.post(f"/v1/inbox/{id}/release", headers=as_(bob)).json()["claimed_by"] == "user:ann"
    assert http.post(f"/v1/inbox/{id}/claim", json={"for": "2h"}, headers=as_(ann)).status_code == 200
    assert http.post(f"/v1/inbox/{id}/release", headers=as_(ann)).json()["claimed_by"] is None
    assert http.post(f"/v1/inbox/{id}/claim", json={"for": "1s"}, headers=as_(ann)).status_code == 200
    assert asking.decide(id, bob).status_code == 200
    assert code(http.post(f"/v1/inbox/{id}/claim", headers=as_(ann))) == (404, "pending_unknown")


def test_a_claim_that_is_over_is_anybody_s(http: Checked) -> None:
    asking = Asking(http, "role:boss")
    id = asking.start()
    http.post(f"/v1/inbox/{id}/claim", json={"for": "1s"}, headers=as_("user:ann,role:boss"))
    wait_for(lambda: asking.inbox("user:bob,role:boss")[0]["claimed_by"] is None)
    assert http.post(f"/v1/inbox/{id}/claim", headers=as_("user:bob,role:boss")).json()["claimed_by"] == "user:bob"


@pytest.mark.parametrize("time", ["0s", "2d", "soon", "", "-1h"])
def test_a_claim_has_a_time_of_at_most_a_day(http: Checked, time: str) -> None:
    asking = Asking(http, "role:boss")
    expect(http.post(f"/v1/inbox/{asking.start()}/claim", json={"for": time}, headers=as_("user:ann,role:boss")), 422)


def test_who_may_not_decide_can_not_claim_and_is_told_why_and_who_else_may(http: Checked) -> None:
    asking = Asking(http, "role:boss, user:bob", quorum=2)
    id = asking.start("user:req")
    assert code(http.post(f"/v1/inbox/{id}/claim", headers=as_("user:req,role:boss"))) == (403, "pending_forbidden")
    check = http.get(f"/v1/inbox/{id}", headers=as_("user:req,role:boss")).json()
    assert (check["may_decide"], check["why_not"]["code"]) == (False, "excluded.requester")
    assert check["needed"]["from"] == ["role:boss", "user:bob"]
    assert check["needed"]["missing"]["people"] == 2


class Delegated:
    """`from_` has delegated to `to` for an hour."""

    def __init__(self, http: Checked, from_: str, to: str) -> None:
        body = {"to": to.partition(",")[0], "until": "2200-01-01T00:00:00Z"}
        refused = http.post("/v1/inbox/delegations", json=body, headers=as_(from_))
        assert code(refused) == (422, "delegation.invalid")
        soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        answer = expect(http.post("/v1/inbox/delegations", json={**body, "until": soon}, headers=as_(from_)), 201)
        self.id = answer.json()["id"]


def test_a_delegate_decides_on_behalf_of_who_is_away_and_both_are_recorded(http: Checked) -> None:
    asking = Asking(http, "role:away1")
    id = asking.start()
    ann, bob = "user:away1,role:away1", "user:stand1"
    assert asking.ids(bob) == []
    assert code(asking.decide(id, bob, on_behalf_of="user:away1")) == (403, "delegation_missing")
    made = Delegated(http, ann, bob)
    (item,) = asking.inbox(bob)
    assert (item["may_decide"], item["on_behalf_of"]) == (False, ["user:away1"])
    assert code(asking.decide(id, bob)) == (403, "pending_forbidden")
    decided = asking.decide(id, bob, on_behalf_of="user:away1").json()
    assert (decided["status"], decided["decided_by"]) == ("approve", "user:stand1")
    (vote,) = decided["needed"]["votes"]
    assert (vote["by"], vote["on_behalf_of"], vote["roles"]) == ("user:stand1", "user:away1", ["away1"])
    for who in (bob, ann):
        (listed,) = http.get("/v1/inbox/decided", headers=as_(who)).json()["items"]
        assert (listed["id"], listed["by"], listed["on_behalf_of"]) == (id, "user:stand1", "user:away1")
    for who in (ann, bob):
        items = http.get("/v1/inbox/delegations", headers=as_(who)).json()["items"]
        assert [(each["id"], each["from"], each["to"]) for each in items] == [(made.id, "user:away1", "user:stand1")]
    assert http.get("/v1/inbox/delegations", headers=as_("user:eve")).json()["items"] == []
    assert code(http.delete(f"/v1/inbox/delegations/{made.id}", headers=as_("user:eve"))) == (404, "delegation_unknown")
    assert http.delete(f"/v1/inbox/delegations/{made.id}", headers=as_(bob)).status_code == 204
    assert asking.ids(bob) == []


def test_an_answer_to_a_form_says_for_whom_it_was_given(http: Checked) -> None:
    asking = Asking(http, "user:away2")
    Delegated(http, "user:away2", "user:stand2")
    id = asking.start()
    decided = asking.decide(id, "user:stand2", on_behalf_of="user:away2").json()
    assert decided["needed"]["votes"][0]["via"] == "rest (act as) (for user:away2)"


def test_an_answered_form_names_both_people_and_is_in_both_histories(http: Checked) -> None:
    name = unique("forms").replace("-", "_")
    source = f"""
hai: flow/v1
name: {name}
version: 1
steps:
  - id: which
    ask: {{title: Which?, from: [user:away4], form: {{type: object, properties: {{size: {{type: string}}}}}}}}
"""
    assert http.post("/v1/workflows", content=source, headers=YAML).status_code == 201
    run = http.post("/v1/runs", json={"workflow": name}, headers=as_("user:req")).json()
    (pending,) = wait_for_pendings(http, run["id"])
    Delegated(http, "user:away4", "user:stand4")
    answer = {"values": {"size": "S"}, "on_behalf_of": "user:away4"}
    answered = expect(http.post(f"/v1/pendings/{pending['id']}/decide", json=answer, headers=as_("user:stand4")), 200)
    both = ("user:stand4", "user:away4")
    assert (answered.json()["decided_by"], answered.json()["on_behalf_of"]) == both
    events = http.get(f"/v1/runs/{run['id']}/events", headers=as_("user:req")).json()["items"]
    assert [(each["by"], each["on_behalf_of"]) for each in events if each["type"] == "pending_decided"] == [both]
    for who in both:
        (listed,) = http.get("/v1/inbox/decided", headers=as_(who)).json()["items"]
        assert (listed["id"], listed["by"], listed["on_behalf_of"]) == (pending["id"], *both)


def test_one_that_begins_later_does_not_hold_yet(http: Checked) -> None:
    asking = Asking(http, "user:away3")
    asking.start()
    later = [(datetime.now(UTC) + timedelta(hours=hours)).isoformat() for hours in (1, 2)]
    body = {"to": "user:stand3", "since": later[0], "until": later[1]}
    assert http.post("/v1/inbox/delegations", json=body, headers=as_("user:away3")).status_code == 201
    assert asking.ids("user:stand3") == []


@pytest.mark.parametrize(
    "body", [{"to": "user:me"}, {"to": "role:boss"}, {"to": "user:x", "until": "2020-01-01T00:00:00Z"}]
)
def test_a_delegation_to_nobody_else_or_that_is_over_is_refused(http: Checked, body: dict[str, str]) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    expect(http.post("/v1/inbox/delegations", json={"until": soon, **body}, headers=as_("user:me")), 422)


# --- live -------------------------------------------------------------------------------------------------------------


class Live:
    """An inbox that is followed; what its events say, one after the other."""

    def __init__(self, asking: Asking, who: str, last: str | None = None) -> None:
        self.headers = as_(who) | ({} if last is None else {"last-event-id": last})
        self.asking = asking
        self.last = last

    def __enter__(self) -> Live:
        client = self.asking.http
        self._stream = client.stream(
            "GET", "/v1/inbox/events", params={"workflow": self.asking.name}, headers=self.headers
        )
        self._lines = self._stream.__enter__().iter_lines()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stream.__exit__(*exception)

    def next(self) -> tuple[str, dict[str, Any]]:
        """The name and the content of the next event."""
        found: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if not line and "data" in found:
                self.last = found["id"]
                return found["event"], json.loads(found["data"])
            if line and name:
                found[name] = value
        raise AssertionError("the stream ended")


def test_an_inbox_is_followed_and_come_back_to(http: Checked) -> None:
    asking = Asking(http, "role:live")
    with Live(asking, "user:ann,role:live") as live:
        assert live.next() == ("inbox", {"items": []})
        id = asking.start()
        name, changed = live.next()
        assert (name, [each["id"] for each in changed["items"]], changed["gone"]) == ("changed", [id], [])
        assert http.post(f"/v1/inbox/{id}/claim", headers=as_("user:bob,role:live")).status_code == 200
        _, changed = live.next()
        assert [each["claimed_by"] for each in changed["items"]] == ["user:bob"]
        last = live.last
    with Live(asking, "user:ann,role:live", last) as again:
        assert asking.decide(id, "user:bob,role:live").status_code == 200
        name, content = again.next()
    assert (name, content) in [("changed", {"items": [], "gone": [id]}), ("inbox", {"items": []})]
    with Live(asking, "user:ann,role:live") as fresh:
        assert fresh.next() == ("inbox", {"items": []})


def test_nobody_follows_what_asks_others(http: Checked) -> None:
    asking = Asking(http, "role:quiet")
    asking.start()
    with Live(asking, "user:eve") as live:
        assert live.next() == ("inbox", {"items": []})
