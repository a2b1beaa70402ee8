"""One control for many runs: found by a filter, expected in number, each with what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.test_rest import Checked, http, start, wait_for_end
from tests.api.test_travel import BREAKS, TRIP, published, waiting

__all__ = ["http"]


def bulk(http: Checked, **body: Any) -> Any:
    key = body.pop("key", None)
    return http.post("/v1/runs/bulk", json=body, headers={} if key is None else {"Idempotency-Key": key})


def statuses(http: Checked, ids: list[str]) -> list[str]:
    return [http.get(f"/v1/runs/{id}").json()["status"] for id in ids]


async def test_filtered_runs_are_stopped_if_their_number_is_as_expected(http: Checked) -> None:
    name = published(http, TRIP)
    ids = [(await waiting(http, start(http, name)["id"]))["id"] for _ in range(3)]
    other = (await waiting(http, start(http, published(http, TRIP))["id"]))["id"]
    where = {"workflow": name, "status": ["waiting"]}
    listed = bulk(http, action="stop", where=where, dry_run=True).json()
    assert sorted(item["id"] for item in listed["items"]) == sorted(ids)
    for wrong in (2, 4):
        refused = bulk(http, action="stop", where=where, expect=wrong)
        assert (refused.status_code, refused.json()["code"]) == (409, "bulk.unexpected")
        assert refused.json()["winner"] == {"found": 3}
    assert bulk(http, action="stop", where=where).status_code == 422
    assert statuses(http, ids) == ["waiting"] * 3
    report = bulk(http, action="stop", where=where, expect=3, reason="all of them").json()
    assert (report["found"], report["done"], report["refused"]) == (3, 3, 0)
    for id in ids:
        wait_for_end(http, id)
    assert statuses(http, [*ids, other]) == ["stopped", "stopped", "stopped", "waiting"]


async def test_each_run_that_is_refused_says_why_and_keeps_no_other_back(http: Checked) -> None:
    waits = (await waiting(http, start(http, published(http, TRIP))["id"]))["id"]
    ended = wait_for_end(http, start(http, published(http, BREAKS))["id"])["id"]
    report = bulk(http, action="pause", runs=[ended, waits], expect=2).json()
    assert [item["outcome"] for item in report["items"]] == ["refused", "done"]
    assert report["items"][0]["problem"]["code"] == "run_ended"
    assert statuses(http, [waits]) == ["paused"]
    assert bulk(http, action="resume", runs=[waits]).json()["done"] == 1
    unknown = "00000000-0000-7000-8000-000000000000"
    assert bulk(http, action="pause", runs=[waits, unknown]).status_code == 404
    assert statuses(http, [waits]) == ["waiting"], "one that is not there is refused before anything is done"


async def test_the_same_request_again_goes_on_and_does_nothing_twice(http: Checked) -> None:
    name = published(http, BREAKS)
    ids = [wait_for_end(http, start(http, name)["id"])["id"] for _ in range(2)]
    first = bulk(http, action="retry", runs=ids[:1], key="night").json()
    assert first["done"] == 1
    wait_for_end(http, ids[0])
    before = http.get(f"/v1/runs/{ids[0]}").json()["seq"]
    again = bulk(http, action="retry", runs=ids, key="night").json()
    assert [item["outcome"] for item in again["items"]] == ["already", "done"]
    assert http.get(f"/v1/runs/{ids[0]}").json()["seq"] == before


async def test_runs_are_found_by_error_version_starter_and_time(http: Checked) -> None:
    name = published(http, BREAKS)
    failed = wait_for_end(http, start(http, name)["id"])
    code = failed["error"]["code"]

    def found(**given: Any) -> list[str]:
        return [run["id"] for run in http.get("/v1/runs", params={"workflow": name, **given}).json()["items"]]

    assert found(error=code) == found(version=1) == found(started_by=failed["started_by"]) == [failed["id"]]
    assert found(error=code[:-1]) == found(version=2) == found(started_by="user:nobody") == []
    assert found(error=code, status="finished") == []
    at = failed["created_at"]
    assert (found(created_after=at), found(created_before=at)) == ([failed["id"]], [])
    for wrong in ({"created_after": "yesterday"}, {"version": 0}, {"error": 'x"'}):
        assert http.get("/v1/runs", params=wrong).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"action": "stop"},
        {"action": "stop", "where": {}, "runs": ["x"]},
        {"action": "forget", "where": {}},
        {"action": "stop", "where": {"colour": "red"}, "expect": 1},
        {"action": "stop", "runs": []},
    ],
)
def test_a_bulk_that_is_none_is_refused(http: Checked, body: dict[str, Any]) -> None:
    assert bulk(http, **body).status_code == 422
