"""Databases as earlier releases have left them: migrated, their runs go on to the end, and every rule of them holds."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from hai_flow.embedded import find_binaries
from hai_flow.store.postgres import revisions
from tests.support.commands import SECONDS_MAX, environment, run, started
from tests.support.postgres import Server, run_apart
from tests.support.waiting import until

ENDED = ("finished", "failed", "stopped")
RECORDED = sorted(Path(__file__).parent.glob("schema-*.sql.gz"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_an_earlier_releases_database_is_migrated_and_its_runs_go_on(
    recorded: Path, postgres_server: Server, tmp_path: Path
) -> None:
    with postgres_server.database(), postgres_server.database(migrated=False) as dsn:  # the first makes the roles
        sql = gzip.decompress(recorded.read_bytes())
        psql = [find_binaries().path("psql"), dsn, "-qv", "ON_ERROR_STOP=1"]
        filled = subprocess.run(psql, input=sql, env=environment(), capture_output=True)
        assert filled.returncode == 0, filled.stderr
        there = {"HAI_FLOW_DATABASE_URL": dsn}
        assert "does not have the schema of this release" in run("serve", **there).stderr, (
            "an older schema is not served"
        )
        assert run("migrate", **there).returncode == 0
        told = run("verify", "--json", **there)
        assert told.returncode == 0, told.stdout
        assert json.loads(told.stdout)["violations"] == []
        assert run_apart(revisions.current(dsn)) == revisions.head()
        with (
            started(tmp_path / "serve", "serve", "--port", "0", **there) as serve,
            started(tmp_path / "worker", "worker", **there),
        ):
            url = serve.wait_for(r"Serving (http://\S+)")[1]
            refunds = listed(f"{url}/v1/runs?workflow=refund")
            assert len(refunds) == 2
            for pending in listed(f"{url}/v1/pendings?workflow=refund"):  # none once their deadline is over, in days
                here = f"{url}/v1/pendings/{pending['id']}/decide"
                httpx2.post(here, json={"decision": "approve"}).raise_for_status()
            for each in refunds:
                run_apart(until(lambda each=each: status(url, each["id"]) in ENDED, SECONDS_MAX))
            others = [each for each in listed(f"{url}/v1/runs") if each["workflow"] in ("cleanup", "release")]
            assert len(others) == 2
        verified = run("verify", "--json", **there)
        assert verified.returncode == 0, verified.stdout
        runs = json.loads(verified.stdout)["runs"]
        assert runs >= 5
        _pruned_and_restored(dsn, tmp_path, there, runs)


def _pruned_and_restored(dsn: str, tmp_path: Path, there: dict[str, str], runs: int) -> None:
    """What has ended goes into archives and comes back, and every rule of it holds."""
    run_apart(_grown_old(dsn))
    retention = tmp_path / "retention.yaml"
    retention.write_text("hai: retention/v1\nremove: 30d\n")
    archive = tmp_path / "archive"
    pruned = run("prune", "--retention", str(retention), "--archive", str(archive), **there)
    assert pruned.returncode == 0, pruned.stderr
    left = json.loads(run("verify", "--json", **there).stdout)
    assert left["violations"] == []
    assert left["runs"] < runs
    for place in sorted(str(file.relative_to(archive)) for file in archive.rglob("*.jsonl.gz")):
        back = run("restore", place, "--archive", str(archive), **there)
        assert back.returncode == 0, back.stderr
    whole = json.loads(run("verify", "--json", **there).stdout)
    assert (whole["violations"], whole["runs"]) == ([], runs)


async def _grown_old(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("UPDATE runs SET ended_at = ended_at - interval '100 days' WHERE ended_at IS NOT NULL")
    finally:
        await connection.close()


def listed(url: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = httpx2.get(url).raise_for_status().json()["items"]
    return items


def status(url: str, id: str) -> str:
    return str(httpx2.get(f"{url}/v1/runs/{id}").json()["status"])
