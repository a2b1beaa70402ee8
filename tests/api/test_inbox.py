"""Inboxes over REST: what asks me comes by its deadline, and what I may not decide says why."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.api.test_rest import Checked, code, http, wait_for_pendings
from tests.support.hai_client import unique
from tests.support.server import YAML

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
            page = self.http.get("/v1/inbox", params=params, headers={"HAI-Act-As": who})
            assert page.status_code == 200, page.text
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


def test_a_question_is_in_the_inbox_of_everybody_whom_it_asks_and_of_nobody_else(http: Checked) -> None:
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
