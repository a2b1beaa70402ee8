"""Databases as earlier releases have left them: migrated, their runs go on to the end, and every rule of them holds."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hai_flow.embedded import find_binaries
from hai_flow.store import revisions
from tests.support.commands import SECONDS_MAX, environment, run, started
from tests.support.postgres import Server, run_apart
from tests.support.waiting import until

RECORDED = sorted(Path(__file__).parent.glob("schema-*.sql.gz"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_a_database_of_an_earlier_release_is_migrated_and_its_waiting_runs_go_on(
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
        assert run_apart(revisions.current(dsn)) == revisions.head()
        with (
            started(tmp_path / "serve", "serve", "--port", "0", **there) as serve,
            started(tmp_path / "worker", "worker", **there),
        ):
            url = serve.wait_for(r"Serving (http://\S+)")[1]
            waiting = listed(f"{url}/v1/runs?status=waiting&workflow=refund")
            assert len(waiting) == 2
            assert len(listed(f"{url}/v1/runs?status=finished")) == 1
            for pending in listed(f"{url}/v1/pendings?workflow=refund"):
                here = f"{url}/v1/pendings/{pending['id']}/decide"
                httpx2.post(here, json={"decision": "approve"}).raise_for_status()
            for each in waiting:
                run_apart(until(lambda each=each: status(url, each["id"]) == "finished", SECONDS_MAX))
            assert len(listed(f"{url}/v1/runs?status=waiting")) == 2, "the others still wait"
        verified = run("verify", "--json", **there)
        assert verified.returncode == 0, verified.stdout
        assert json.loads(verified.stdout)["runs"] >= 5


def listed(url: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = httpx2.get(url).raise_for_status().json()["items"]
    return items


def status(url: str, id: str) -> str:
    return str(httpx2.get(f"{url}/v1/runs/{id}").json()["status"])
