"""Tenants in cells of their own, schemas of one database and databases; one that is away is away for its runs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.cells import HOME, cell_of
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.runtime.cells import Cells
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from hai_flow.store.cells.cells import Cell
from hai_flow.store.identity import keys
from hai_flow.store.postgres.database import Deadlines
from tests.support import cells as support
from tests.support import effects
from tests.support.postgres import Server, connecting, fetch
from tests.support.proxy import Proxy
from tests.support.waiting import until

SOURCE = """
hai: flow/v1
name: paying
version: 1
input: {type: object, properties: {value: {type: integer}}}
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - {id: pay, call: fx.echo, with: {value: "${{ input.value }}"}}
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
  - {id: below, run: paid}
output: ${{ steps.pay.output }}
"""
BELOW = """
hai: flow/v1
name: paid
version: 1
steps:
  - {id: sure, ask: {title: Really?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""
YAML = {"Content-Type": "application/yaml"}
QUICK = Deadlines(connect_seconds=5.0, acquire_seconds=5.0, statement_seconds=5.0, close_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A process with cells, and a client of it."""

    home: str
    cells: Cells
    http: httpx2.AsyncClient

    async def tenant(self, name: str, *cells: Cell) -> dict[str, str]:
        """The headers of an admin of the tenant `name`, which lives in these cells and has the workflows."""
        id = await support.settle(self.home, name, cells) if cells else await self._at_home(name)
        async with connecting(self.home) as connection:
            _, text = await keys.create_key(
                connection, id, f"user:{name}", name=name, groups=[], created_by="user:test",
                roles=["admin", "publisher", "operator", "decider", "auditor"],
            )  # fmt: skip
        headers = {"Authorization": f"Bearer {text}"}
        for source in (BELOW, SOURCE):
            published = await self.http.post("/v1/workflows", content=source, headers={**headers, **YAML})
            assert published.status_code in (200, 201), published.text
        return headers

    async def _at_home(self, name: str) -> UUID:
        return await support.settle(self.home, name, [support.home(self.home)])

    async def started(self, who: dict[str, str], **body: Any) -> dict[str, Any]:
        begun = await self.http.post(
            "/v1/runs", json={"workflow": "paying", "input": {"value": 7}, **body}, headers=who
        )
        assert begun.status_code == 201, begun.text
        return dict(begun.json())

    async def asked(self, who: dict[str, str], run: str) -> str:
        """The id of the question that waits in the run."""

        async def found() -> str:
            items = (await self.http.get("/v1/pendings", headers=who)).json()["items"]
            return next((item["id"] for item in items if item["run_id"] == run), "")

        return await until(found, 60)

    async def decided(self, who: dict[str, str], pending: str) -> None:
        body = {"decision": "submit", "values": {"ok": True}}
        said = await self.http.post(f"/v1/pendings/{pending}/decide", json=body, headers=who)
        assert said.status_code == 200, said.text

    async def status(self, who: dict[str, str], run: str) -> int:
        return (await self.http.get(f"/v1/runs/{run}", headers=who)).status_code


@asynccontextmanager
async def deployed(
    home: str, *cells: Cell, deadlines: Deadlines | None = None, **more: Any
) -> AsyncIterator[Deployment]:
    settings = Settings(
        identity="keys", publish=True, tools=effects.MODULES, lease_seconds=3.0, heartbeat_seconds=0.3,
        poll_seconds=0.1, shutdown_seconds=1.0, **more,
    )  # fmt: skip
    runtime = Runtime(home, settings, performs=True, deadlines=deadlines)
    found = Cells(runtime, cells)
    transport = httpx2.ASGITransport(app=create_app(settings, runtime, cells=found), raise_app_exceptions=False)
    client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60)
    async with found.lifespan(), client as http:
        await until(lambda: not found.away, 60)
        yield Deployment(home, found, http)


async def _finishes(there: Deployment, who: dict[str, str]) -> str:
    """Start a run, answer its question and that of its child; its id, when it has finished."""
    run = (await there.started(who))["id"]
    await there.decided(who, await there.asked(who, run))

    async def child() -> str:
        items = (await there.http.get("/v1/runs", headers=who)).json()["items"]
        return next((item["id"] for item in items if item["workflow"] == "paid" and item["status"] == "waiting"), "")

    below = await until(child, 60)
    assert cell_of(UUID(below)) == cell_of(UUID(run))
    await there.decided(who, await there.asked(who, below))

    async def finished() -> bool:
        return (await there.http.get(f"/v1/runs/{run}", headers=who)).json()["status"] == "finished"

    await until(finished, 60)
    return run


async def _runs_in(dsn: str) -> set[UUID]:
    return {row[0] for row in await fetch(dsn, "SELECT id FROM runs")}


async def test_the_runs_of_each_tenant_live_whole_in_its_cell(database_url: str) -> None:
    async with support.schemas(database_url, 1, 2) as (one, two), deployed(database_url, one, two) as there:
        for name, place, number in (("acme", one, 1), ("beta", two, 2), ("gone", None, HOME)):
            who = await there.tenant(name, *([place] if place is not None else []))
            run = await _finishes(there, who)
            assert cell_of(UUID(run)) == number
            assert UUID(run) in await _runs_in(database_url if place is None else place.dsn)
        found = [await _runs_in(dsn) for dsn in (database_url, one.dsn, two.dsn)]
        assert [{cell_of(id) for id in ids} for ids in found] == [{HOME}, {1}, {2}]
        assert [len(ids) for ids in found] == [2, 2, 2]


@pytest.mark.costly
async def test_a_rehearsal_decides_the_runs_of_every_cell_and_is_demanded_of_all(database_url: str) -> None:
    demanding = {"rehearsal_hours": 24, "cells": Path("cells.yaml")}
    async with (
        support.schemas(database_url, 1, 2) as (one, two),
        deployed(database_url, one, two, **demanding) as there,
    ):
        who = await there.tenant("acme", one, two)
        runs = {(await there.started(who))["id"] for _ in range(8)}
        for run in runs:
            await there.asked(who, run)
        assert {cell_of(UUID(run)) for run in runs} == {1, 2}
        headers = {**who, **YAML}
        for version, text in ((2, SOURCE), (3, SOURCE.replace("Sure?", "Really sure?"))):
            text = text.replace("version: 1", f"version: {version}")
            refused = await there.http.post("/v1/workflows", content=text, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (409, "rehearsal_required"), refused.text
            path = "/v1/workflows/paying/backtest?keep=true"
            report = (await there.http.post(path, content=text, headers=headers)).json()
            assert (report["runs"], report["complete"]) == (len(runs), True)
            published = await there.http.post("/v1/workflows", content=text, headers=headers)
            assert published.status_code == (201 if version == 2 else 409), published.text
        assert f"{len(runs)} of the {len(runs)} runs of its rehearsal" in published.json()["detail"]


async def test_a_tenant_finds_nothing_in_a_cell_that_is_not_its_own(database_url: str) -> None:
    async with support.schemas(database_url, 1, 2) as (one, two), deployed(database_url, one, two) as there:
        acme, beta = await there.tenant("acme", one), await there.tenant("beta", two)
        run = (await there.started(acme))["id"]
        pending = await there.asked(acme, run)
        assert await there.status(beta, run) == 404
        assert (await there.http.get(f"/v1/pendings/{pending}", headers=beta)).status_code == 404
        assert (await there.http.get("/v1/runs", headers=beta)).json()["items"] == []
        assert run_of_pending(pending) == UUID(run)


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
@pytest.mark.costly
async def test_a_cell_that_is_away_is_away_for_its_runs_alone(
    postgres_server: Server, database_url: str, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.cells.LOOK_SECONDS", 0.05)
    with postgres_server.database() as other:
        async with Proxy(other) as proxy:
            far, near = support.cell(1, proxy.dsn), support.cell(2, database_url, "cell_2")
            async with support.schemas(database_url, 2), deployed(database_url, far, near, deadlines=QUICK) as there:
                theirs, ours, at_home = (
                    await there.tenant("far", far), await there.tenant("near", near), await there.tenant("gone")
                )  # fmt: skip
                run = (await there.started(theirs))["id"]
                pending = await there.asked(theirs, run)
                await proxy.away(silent=silent)
                await until(lambda: "cell1" in there.cells.away, 60)
                await _is_away(there, theirs, run, pending)
                for who in (ours, at_home):
                    await asyncio.wait_for(_finishes(there, who), 90)
                await _is_away(there, theirs, run, pending)
                await proxy.back()
                await until(lambda: not there.cells.away, 60)
                await there.decided(theirs, pending)
                assert await there.status(theirs, run) == 200


async def _is_away(there: Deployment, who: dict[str, str], run: str, pending: str) -> None:
    """Every request for it is refused at once, by a sentence; the tenant's keys are home's, and go on."""
    body = {"decision": "submit", "values": {"ok": True}}
    async with asyncio.timeout(60):
        for response in (
            await there.http.get(f"/v1/runs/{run}", headers=who),
            await there.http.get("/v1/runs", headers=who),
            await there.http.post("/v1/runs", json={"workflow": "paying"}, headers=who),
            await there.http.post(f"/v1/pendings/{pending}/decide", json=body, headers=who),
            await there.http.post("/v1/events", json={"type": "x", "data": 1}, headers=who),
        ):
            problem = response.json()
            assert (response.status_code, problem["code"]) == (503, "cell_away"), problem
            assert "cell1" in problem["detail"]
            assert response.headers["Retry-After"]
        assert (await there.http.get("/v1/keys", headers=who)).status_code == 200
        assert (await there.http.get("/readyz", headers=who)).status_code == 200


async def test_a_cell_away_at_the_start_is_used_as_soon_as_it_is_back(
    postgres_server: Server, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.cells.LOOK_SECONDS", 0.05)
    with postgres_server.database() as other:
        async with Proxy(other) as proxy:
            await proxy.away(silent=False)
            settings = Settings(poll_seconds=0.1)
            cells = Cells(Runtime(database_url, settings, performs=True, deadlines=QUICK), [support.cell(1, proxy.dsn)])
            async with cells.lifespan():
                assert list(cells.away) == ["cell1"]
                await proxy.back()
                await until(lambda: not cells.away, 60)
                assert cells.at(1).worker is not None
