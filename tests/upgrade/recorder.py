"""Records a database as this release leaves it, for the tests of later ones: `python -m tests.upgrade.recorder`.

Once per release, before its schema changes again. Recorded databases are never made anew.

`dev --demo` with a run of each example: one that has ended, and those that wait for people."""

from __future__ import annotations

import gzip
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import httpx2

from hai_flow.embedded import EmbeddedPostgres, find_binaries
from hai_flow.store.postgres import revisions
from tests.support.commands import command, environment
from tests.support.waiting import wait_for

HERE: Final = Path(__file__).resolve().parent
RUNS: Final = {"weather": "finished", "cleanup": "waiting", "release": "waiting", "refund": "waiting"}
SECONDS_MAX: Final = 120.0


def record(data: Path) -> bytes:
    log = data / "log"
    with log.open("wb") as out:
        words = command("dev", "--demo", "--port", "0", "--data-dir", str(data / "pg"))
        process = subprocess.Popen(words, env=environment(), stdout=out, stderr=out)
    try:
        url = wait_for(lambda: (re.search(r"Serving (http://[\w.:]+)", log.read_text()) or [None, None])[1])
        ids = {name: httpx2.post(f"{url}/v1/runs", json={"workflow": name}).json()["id"] for name in RUNS}
        wait_for(lambda: all(_status(url, ids[name]) == status for name, status in RUNS.items()))
        dsn = EmbeddedPostgres(data / "pg").dsn()
        options = ("--no-owner", "--no-acl", "--enable-row-security", dsn)
        dumped = subprocess.run([find_binaries().path("pg_dump"), *options], capture_output=True, check=True)
        # Newer programs guard a dump by words that older ones do not know.
        return b"\n".join(line for line in dumped.stdout.splitlines() if not re.match(rb"\\(un)?restrict", line))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS_MAX)


def _status(url: str, id: str) -> str:
    return str(httpx2.get(f"{url}/v1/runs/{id}").json()["status"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        (HERE / f"schema-{revisions.head()}.sql.gz").write_bytes(gzip.compress(record(Path(folder)), mtime=0))
