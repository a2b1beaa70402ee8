"""Commands that look at the databases themselves go through all cells, and name one that is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner, Result

from hai_flow.cells import place_id
from hai_flow.cli import app
from hai_flow.engine import commands as c
from hai_flow.runtime.cells import settings_of
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.cells.cells import Cell
from hai_flow.store.postgres import migrations, revisions
from tests.support.cells import cell, settle
from tests.support.postgres import fetch_value

pytestmark = pytest.mark.costly

HELLO = b"hai: flow/v1\nname: hello\nversion: 1\nsteps:\n  - say: Hello\n"
FILE = "hai: cells/v1\ncells:\n  north: {number: 1, schema: cell_1}\n"
AWAY = "  away: {number: 2, url: 'postgresql://nobody@127.0.0.1:1/none'}\n"


@dataclass(frozen=True)
class Deployment:
    """Home with the tenant `default`, and the cell `north` with the tenant `far`, each with a run that has ended."""

    home: str
    north: Cell
    file: Path
    near: UUID
    far: UUID


async def ended(runtime: Runtime, tenant: UUID) -> UUID:
    """A run that ended long ago."""
    async with runtime.lifespan():
        _, plan = await runtime.catalog.publish(tenant, HELLO)
        run_id = place_id(uuid4(), runtime.cell)
        start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
        await runtime.starts.start(tenant, plan, start)
    await fetch_value(runtime.dsn, "UPDATE runs SET ended_at = now() - interval '100 days' WHERE id = $1", run_id)
    return run_id


async def made(dsn: str, file: Path) -> Deployment:
    north = cell(1, dsn, "cell_1")
    await fetch_value(dsn, "CREATE SCHEMA cell_1")
    await migrations.upgrade(north.dsn)
    tenant = await settle(dsn, "far", [north])
    settings = Settings()
    near = await ended(Runtime(dsn, settings, performs=False), LOCAL_TENANT)
    there = Runtime(north.dsn, settings_of(north, settings, 1), performs=False, cell=1)
    return Deployment(dsn, north, file, near, await ended(there, tenant))


@pytest.fixture
def here(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    file, policy = tmp_path / "cells.yaml", tmp_path / "retention.yaml"
    file.write_text(FILE)
    policy.write_text(f"hai: retention/v1\narchive: {tmp_path / 'archive'}\nremove: 30d\n")
    monkeypatch.setenv("HAI_FLOW_DATABASE_URL", database_url)
    monkeypatch.setenv("HAI_FLOW_CELLS", str(file))
    monkeypatch.setenv("HAI_FLOW_RETENTION", str(policy))
    try:
        yield asyncio.run(made(database_url, file))
    finally:
        asyncio.run(fetch_value(database_url, "DROP SCHEMA IF EXISTS cell_1 CASCADE"))


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def told(*arguments: str, code: int = 0) -> Any:
    done = called(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_verify_finds_what_is_broken_in_a_further_cell(here: Deployment) -> None:
    assert told("verify")["runs"] == 2
    asyncio.run(fetch_value(here.north.dsn, "UPDATE runs SET status = 'running' WHERE id = $1", here.far))
    report = told("verify", code=1)
    assert (report["cells"]["home"]["broken"], report["cells"]["north"]["broken"], report["broken"]) == (0, 1, 1)
    shown = called("verify").output
    assert f"run {here.far}, event " in shown
    assert "cell home: 1 run with" in shown
    assert "cell north: 1 run with" in shown
    assert told("verify", "--cell", "home")["runs"] == 1
    assert told("verify", str(here.near))["runs"] == 1
    assert told("verify", str(here.far), code=1)["runs"] == 1
    assert told("verify", "--tenant", "far", code=1)["cells"]["home"]["runs"] == 0, "home knows all tenants"
    assert "expected one of home, north" in called("verify", "--cell", "south").output
    assert "there is no run" in called("verify", str(place_id(UUID(int=7), 1))).output


def test_a_cell_that_is_away_is_named_and_the_others_are_looked_at(here: Deployment) -> None:
    here.file.write_text(FILE + AWAY)
    for command in ("verify", "prune", "archive"):
        report = told(command, *(["--dry-run"] if command != "verify" else []), code=1)
        assert "away (127.0.0.1:1/none) does not answer" in report["cells"]["away"]["fault"]
        assert report["runs"] == (0 if command == "archive" else 2)
    assert "cell away: The cell away" in called("verify").output
    assert [each["verdict"] for each in told("doctor", code=1)["checks"] if each["cell"] == "away"] == ["bad"]
    assert any(fault.startswith("cell away: ") for fault in told("status", code=1)["faults"])
    assert "fault" in told("recover", code=1)["cells"]["away"]
    assert called("verify", "--cell", "north").exit_code == 0


def test_a_home_that_is_away_keeps_no_cell_waiting(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    here.file.write_text(f"hai: cells/v1\ncells:\n  north: {{number: 1, url: '{here.home}', schema: cell_1}}\n")
    monkeypatch.setenv("HAI_FLOW_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    report = told("verify", code=1)
    assert ("fault" in report["cells"]["home"], report["cells"]["north"]["runs"]) == (True, 1)
    standing = told("status", code=1)
    assert "does not answer" in standing["faults"][0]
    assert standing["cells"]["north"]["database"]["schema"] == revisions.head()
    assert "does not answer" in called("status").output


def test_threads_of_all_cells_go_to_the_archive_and_return_to_their_own(here: Deployment) -> None:
    done = told("prune", "--rest", "0")
    assert (done["removed"], done["cells"]["home"]["removed"], done["cells"]["north"]["removed"]) == (2, 1, 1)
    archives = told("restore")["archives"]
    (near,) = (each for each in archives if str(here.near) in each)
    (far,) = (each for each in archives if str(here.far) in each)
    left_out = called("restore", far, "--cell", "home")
    assert (left_out.exit_code, "live in the cell 1, which --cell leaves out" in left_out.output) == (1, True)
    here.file.write_text("hai: cells/v1\n")
    unknown = called("restore", far)
    assert (unknown.exit_code, "HAI_FLOW_CELLS does not name" in unknown.output) == (1, True)
    here.file.write_text(FILE)
    mixed = told("restore", far, "absent.jsonl.gz", near, code=1)["restored"]
    assert [each["archive"] for each in mixed] == [far, "absent.jsonl.gz", near]
    assert ["refused" in each for each in mixed] == [False, True, False]
    query = "SELECT count(*) FROM runs WHERE id = $1"
    assert (
        asyncio.run(fetch_value(here.north.dsn, query, here.far))
        == asyncio.run(fetch_value(here.home, query, here.near))
        == 1
    )
    assert told("verify")["runs"] == 2


def test_doctor_and_status_say_of_which_cell(here: Deployment) -> None:
    checks = told("doctor", code=1)["checks"]  # the role of the tests is a superuser
    assert {each["cell"] for each in checks} == {"home", "north"}
    schemas = {each["cell"]: each["verdict"] for each in checks if each["name"] == "schema"}
    assert schemas == {"home": "good", "north": "good"}
    assert {each["cell"] for each in checks if each["name"] == "identity"} == {"home"}
    assert "north: database.role" in called("doctor").output
    assert {each["cell"] for each in told("doctor", "--cell", "north", code=1)["checks"]} == {"north"}
    assert set(told("status")["cells"]) == {"north"}
    assert told("status", "--cell", "north")["cells"] == {}


def test_a_further_cell_that_went_back_in_time_is_told_and_confirmed(here: Deployment) -> None:
    asyncio.run(fetch_value(here.north.dsn, "UPDATE eras SET held_at = now(), held_why = 'restored from a dump'"))
    seen = told("recover", code=1)
    assert (seen["held"], seen["cells"]["north"]["held"]) == (None, "restored from a dump")
    output = called("recover").output
    assert "recover --confirm --cell north" in output
    assert "is valid again: API keys" in output
    assert "expected --cell as well" in called("recover", "--nothing-lost").output
    done = told("recover", "--confirm")
    assert "paused" not in done, "home was not held"
    assert (done["cells"]["north"]["held"], done["cells"]["north"]["paused"]) == (None, [])
    assert told("recover")["cells"]["north"]["era"] == seen["cells"]["north"]["era"] + 1
