"""`hai-flow status` over a real database: what it shows, what it takes for wanting a person, and its exit code."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hai_flow
from hai_flow.cli import app
from hai_flow.runtime.ops.status_problems import write_bounded
from hai_flow.store.ops import health
from hai_flow.store.ops.metrics_queries import COUNTED_MAX
from hai_flow.store.postgres import migrations, revisions
from tests.runtime.conftest import ASKING, ECHO, Connection, Make, eye, is_now, make, start
from tests.support.commands import run, started
from tests.support.postgres import connecting
from tests.support.waiting import until

__all__ = ["eye", "make"]


def told(dsn: str, code: int, **settings: str) -> dict[str, Any]:
    done = run("status", "--json", HAI_FLOW_DATABASE_URL=dsn, **settings)
    assert done.returncode == code, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


async def test_servers_workers_and_what_waits_are_on_one_screen(make: Make, database_url: str) -> None:
    server, worker = await make(), await make(performs=True)
    asking = await start(server, ASKING)
    await until(lambda: is_now(server, asking.run_id, "waiting"))
    report: dict[str, Any] = {}

    async def seen() -> bool:  # beside the loop: a worker whose loop stands still loses its lease
        done = await asyncio.to_thread(run, "status", "--json", HAI_FLOW_DATABASE_URL=database_url)
        report.update(json.loads(done.stdout))
        return bool(report.get("servers"))

    await until(seen, 30)
    assert [each["release"] for each in report["servers"]] == [hai_flow.__version__]
    assert [each["id"] for each in report["workers"]] == [worker.worker and worker.worker.id]
    assert report["runs"]["waiting"] == 1
    assert (report["waiting"]["pendings"], report["waiting"]["due"]) == (1, 0)
    assert report["database"]["schema"] == revisions.head()
    await server.stop()
    await worker.stop()
    assert told(database_url, code=0)["servers"] == [], "who ends says so"
    screen = run("status", HAI_FLOW_DATABASE_URL=database_url)
    assert screen.returncode == 0
    for words in ("1 waiting", "questions", "Nothing needs an operator."):
        assert words in screen.stdout


async def test_runs_that_wait_without_a_worker_want_a_person(make: Make, eye: Connection, database_url: str) -> None:
    runtime = await make()
    await start(runtime, ECHO, input={"value": "x"})
    report = told(database_url, code=1)
    assert report["faults"] == ["runs wait, and no worker is alive: start hai-flow worker"]
    assert report["waiting"]["due"] == 1
    await eye.execute("UPDATE runs SET status = 'needs_attention', wake_at = now() - interval '1 minute'")
    faults = " ".join(told(database_url, code=1)["faults"])
    assert "1 runs need attention" in faults
    assert "overdue" in faults


async def test_a_queue_that_no_worker_serves_is_named(make: Make, eye: Connection, database_url: str) -> None:
    server, _ = await make(), await make(performs=True)
    await start(server, "queue: gpu\n" + ECHO, input={"value": "x"})
    await eye.execute("UPDATE runs SET wake_at = now() - interval '1 minute'")
    faults = told(database_url, code=1)["faults"]
    assert faults[0] == "runs wait in queues that no worker serves: gpu: start hai-flow worker --queue gpu"
    assert not any("add workers" in fault for fault in faults)
    await eye.execute("UPDATE runs SET queue = 'default', worker = NULL, abi = 999")  # no worker here takes it
    assert told(database_url, code=1)["faults"][0].endswith(" s: add workers")


def test_a_number_that_is_counted_up_to_a_bound_says_so() -> None:
    assert [write_bounded(count) for count in (0, 9_999, COUNTED_MAX)] == ["0", "9999", "10000+"]


async def test_a_missing_or_outdated_schema_is_reported_and_nothing_changes(empty_database_url: str) -> None:
    assert told(empty_database_url, code=1)["faults"] == ["the database is empty: run hai-flow migrate"]
    await migrations.upgrade(empty_database_url, "0030")
    (fault,) = told(empty_database_url, code=1)["faults"]
    assert "older than this release" in fault
    await migrations.upgrade(empty_database_url)
    assert told(empty_database_url, code=0)["faults"] == []
    async with connecting(empty_database_url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM eras") == 0, "to look begins nothing"


def test_a_held_database_and_a_cell_that_is_away_want_a_person(database_url: str, tmp_path: Path) -> None:
    with started(tmp_path / "worker", "worker", HAI_FLOW_DATABASE_URL=database_url) as worker:
        worker.wait_for("performs the runs")
        cells = tmp_path / "cells.yaml"
        cells.write_text("hai: cells/v1\ncells:\n  away: {number: 1, url: 'postgresql://nobody@127.0.0.1:1/none'}\n")
        report = told(database_url, code=1, HAI_FLOW_CELLS=str(cells))
        assert [fault.partition(":")[0] for fault in report["faults"]] == ["cell away"]
        worker.end(signal.SIGTERM)
    assert told(database_url, code=0)["cells"] == {}


def test_a_database_that_stores_nothing_wants_a_person(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(_: object) -> str:
        return "No space left on device"

    monkeypatch.setattr(health, "find_space_fault", find)
    done = CliRunner().invoke(app, ["status"], env={"HAI_FLOW_DATABASE_URL": database_url})
    assert done.exit_code == 1
    assert "nothing is stored: No space left on device; free disk space on the database's server, or " in done.output
    assert "Nothing needs an operator." not in done.output
