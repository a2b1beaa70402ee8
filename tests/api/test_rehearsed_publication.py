"""Where a deployment demands rehearsals, a new version of a workflow that has runs is published only with one of
exactly that text against the latest version; an admin may pass over it with a reason, which the audit keeps."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx2
import pytest
from msgspec.structs import replace

from hai_flow.api.app import create_app
from hai_flow.api.rest import versions
from hai_flow.runtime.ops import backtest
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.settings import rehearsal_demand_of
from hai_flow.settings import Settings
from hai_flow.store.catalog import rehearsals
from tests.support.identities import People
from tests.support.postgres import connecting
from tests.support.server import YAML

FLOW = """\
hai: flow/v1
name: {name}
version: {version}
steps:
  - {{id: first, say: "{words}"}}
output: {output}
"""


def text(version: int, output: int = 1, name: str = "lending", words: str = "Hello.") -> bytes:
    return FLOW.format(name=name, version=version, output=output, words=words).encode()


@dataclass
class Office:
    http: httpx2.AsyncClient
    runtime: Runtime
    people: People

    def __post_init__(self) -> None:
        self.publisher = self.people.person("user:pat", roles=["publisher"])
        self.operator = self.people.person("user:olga", roles=["operator"])
        self.viewer = self.people.person("user:vera", roles=["viewer"])
        self.admin = self.people.person("user:ada", roles=["publisher", "admin"])

    async def publish(self, source: bytes, who: dict[str, str] | None = None, **query: Any) -> httpx2.Response:
        headers = {**YAML, **(who or self.publisher)}
        return await self.http.post("/v1/workflows", content=source, params=query, headers=headers)

    async def rehearse(
        self, source: bytes, who: dict[str, str] | None = None, name: str = "lending", **query: Any
    ) -> httpx2.Response:
        headers = {**YAML, **(who or self.operator)}
        return await self.http.post(
            f"/v1/workflows/{name}/backtest", content=source, params={"keep": True, **query}, headers=headers
        )

    async def run(self, name: str = "lending") -> None:
        response = await self.http.post("/v1/runs", json={"workflow": name}, headers=self.operator)
        assert response.status_code == 201, response.text

    async def fault(self, source: bytes) -> str:
        """Why the text is not published."""
        refused = await self.publish(source)
        assert (refused.status_code, refused.json()["code"]) == (409, "rehearsal_required"), refused.text
        assert "`hai-flow backtest FILE --since 30d --keep`" in refused.json()["detail"]
        return refused.json()["detail"]


@pytest.fixture
async def office(database_url: str) -> AsyncIterator[Office]:
    settings = Settings(identity="keys", publish=True, rehearsal_hours=24)
    runtime = Runtime(database_url, settings, performs=True)
    async with runtime.lifespan():
        transport = httpx2.ASGITransport(app=create_app(settings, runtime))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Office(http, runtime, People(database_url))


async def test_a_new_version_needs_a_rehearsal_of_its_text_equal_bytes_do_not(office: Office) -> None:
    assert (await office.publish(text(1))).status_code == 201, "the first version"
    assert (await office.publish(text(2))).status_code == 201, "a workflow without runs"
    await office.run()
    assert "exactly this text was not rehearsed" in await office.fault(text(3))
    assert (await office.publish(text(3), dev=True)).status_code == 201, "a dev copy"
    assert "exactly this text was not rehearsed" in await office.fault(text(3)), "its dev copy proves nothing"
    kept = await office.rehearse(text(3))
    assert (kept.status_code, kept.json()["verdicts"]["same"]) == (200, 1), kept.text
    assert "exactly this text" in await office.fault(text(3, words="Hello!")), "other words"
    assert (await office.publish(text(3))).status_code == 201
    assert (await office.publish(text(3))).status_code == 201, "the same bytes again"
    assert (await office.publish(text(1))).status_code == 201, "the bytes of an older version again"


async def test_runs_that_would_go_otherwise_are_counted_against_what_is_allowed(office: Office) -> None:
    await office.publish(text(1))
    await office.run()
    await office.run()
    await office.rehearse(text(2, output=7))
    assert "2 of the 2 runs of its rehearsal would go otherwise" in await office.fault(text(2, output=7))
    demand = office.runtime.catalog.demand
    assert demand is not None
    office.runtime.catalog.demand = replace(demand, differences=2)
    assert (await office.publish(text(2, output=7))).status_code == 201


async def test_the_text_of_a_dev_copy_with_runs_is_rehearsed_first(office: Office) -> None:
    assert (await office.publish(text(1), dev=True)).status_code == 201
    await office.run()
    assert "exactly this text was not rehearsed" in await office.fault(text(1))
    await office.rehearse(text(1))
    assert (await office.publish(text(1))).status_code == 201


async def test_where_others_may_hold_runs_a_database_without_any_demands_it(office: Office) -> None:
    cells = [rehearsal_demand_of(Settings(rehearsal_hours=24, cells=each)) for each in (None, Path("cells.yaml"))]
    assert [each and each.everywhere for each in cells] == [False, True]
    office.runtime.catalog.demand = cells[1]
    assert (await office.publish(text(1))).status_code == 201, "the first version has runs nowhere"
    assert "exactly this text was not rehearsed" in await office.fault(text(2))
    await office.rehearse(text(2))
    assert (await office.publish(text(2))).status_code == 201


@pytest.mark.parametrize("bound", ["runs", "time"])
async def test_a_rehearsal_that_one_request_can_not_finish_says_so(
    office: Office, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    await office.publish(text(1))
    await office.run()
    await office.run()
    if bound == "runs":
        monkeypatch.setattr(versions, "RUNS_MAX", 1)
    else:  # 20 s go by with each run
        monkeypatch.setattr(backtest, "time", SimpleNamespace(monotonic=itertools.count(0, 20).__next__))
    report = (await office.rehearse(text(2))).json()
    assert (report["complete"], report["runs"], report["verdicts"]["same"]) == (False, 1, 1)
    assert "its rehearsal took 1 runs, and there were more. Run `hai-flow backtest FILE" in await office.fault(text(2))


async def test_a_rehearsal_that_is_old_short_or_cut_short_does_not_count(office: Office, database_url: str) -> None:
    await office.publish(text(1))
    await office.run()
    await office.rehearse(text(2), since="1d")
    assert "took the runs of 24 hours, and those of 30 days are demanded" in await office.fault(text(2))
    await office.rehearse(text(2), since="5w")
    async with connecting(database_url) as eye:
        await eye.execute("UPDATE rehearsals SET complete = false")
        assert "took 1 runs, and there were more" in await office.fault(text(2))
        await eye.execute("UPDATE rehearsals SET complete = true, at = now() - interval '25 hours'")
        assert "is 25 hours old, and 24 are allowed" in await office.fault(text(2))
        await eye.execute("UPDATE rehearsals SET at = now() - interval '23 hours'")
    assert (await office.publish(text(2))).status_code == 201


async def test_of_two_publishers_with_one_base_the_second_rehearses_again(office: Office) -> None:
    await office.publish(text(1))
    await office.run()
    for version in (2, 3):
        assert (await office.rehearse(text(version))).status_code == 200
    both = await asyncio.gather(*(office.publish(text(version)) for version in (2, 3)))
    assert sorted(each.status_code for each in both) == [201, 409]
    refused, version = next((each, n) for each, n in zip(both, (2, 3), strict=True) if each.status_code == 409)
    assert "against another version than lending@" in refused.json()["detail"]
    await office.rehearse(text(version))
    assert (await office.publish(text(version))).status_code == 201


async def test_an_admin_publishes_unrehearsed_with_a_reason_in_the_audit(office: Office, database_url: str) -> None:
    await office.publish(text(1))
    await office.run()
    why = "the bank's holiday"
    refused = await office.publish(text(2), unrehearsed=why)
    assert (refused.status_code, refused.json()["code"]) == (403, "right_missing")
    assert (await office.publish(text(2), office.admin, unrehearsed=" ")).status_code == 422
    assert (await office.publish(text(2), office.admin)).status_code == 409
    assert (await office.publish(text(2), office.admin, unrehearsed=why)).status_code == 201
    auditor = office.people.person("user:ivy", roles=["auditor"])
    rows = (await office.http.get("/v1/audit", headers=auditor)).json()["items"]
    assert [each["details"]["unrehearsed"] for each in rows if "unrehearsed" in (each["details"] or {})] == [why]


async def test_a_rehearsal_is_stored_by_publishers_and_for_this_workflow_alone(
    office: Office, database_url: str
) -> None:
    await office.publish(text(1))
    refused = await office.rehearse(text(2), office.viewer)
    assert (refused.status_code, refused.json()["code"]) == (403, "right_missing")
    other = await office.rehearse(text(2, name="saving"))
    assert (other.status_code, other.json()["code"]) == (422, "request.invalid")
    async with connecting(database_url) as eye:
        assert await eye.fetchval("SELECT count(*) FROM rehearsals") == 0
        await office.rehearse(text(2))
        rows = await eye.fetch("SELECT name, runs, differences, kept_by FROM rehearsals")
        assert [tuple(row) for row in rows] == [("lending", 0, 0, "user:olga")]
        kept = rehearsals.KeptRehearsal("lending", b"", b"", timedelta(1), True, 1, 0, b"{}", "user:olga")
        for number in range(rehearsals.KEPT_MAX + 3):
            async with eye.transaction():
                await rehearsals.keep_rehearsal(eye, LOCAL_TENANT, replace(kept, sha256=bytes([number])))
        assert await eye.fetchval("SELECT count(*) FROM rehearsals") == rehearsals.KEPT_MAX
    found = await rehearsals.find_rehearsal(office.runtime.database.api, UUID(int=1), "lending", b"\1", b"")
    assert found is None, "another tenant's"
