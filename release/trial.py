"""Tries the wheel where nothing else is: for each Python that is there, in an environment and a folder of its own.

`dev --demo` with its run decided to the end, and the upgrade of a database that the release before has made.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from release.bill import pinned
from release.parts import run
from release.versions import ROOT, ReleaseError

SUPPORTED: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
SECONDS_MAX: Final = 180.0


def pythons() -> dict[tuple[int, int], str]:
    """The interpreters of this machine that are supported, one of each version."""
    found: dict[tuple[int, int], str] = {}
    beside = sorted(glob.glob(str(Path.home() / ".pyenv" / "versions" / "3.*" / "bin" / "python3")))
    for command in (sys.executable, *(f"python{major}.{minor}" for major, minor in SUPPORTED), *beside):
        path = shutil.which(command)
        if path is None:
            continue
        asked = [path, "-c", "import sys; print(*sys.version_info[:2])"]
        said = subprocess.run(asked, capture_output=True, text=True)
        if said.returncode == 0:
            major, minor = map(int, said.stdout.split())
            if (major, minor) in SUPPORTED:
                found.setdefault((major, minor), path)
    return dict(sorted(found.items()))


def tried(python: str, wheel: Path, work: Path) -> Path:
    """Install and try the wheel. Returns the folder of the installed environment. Raises ReleaseError."""
    environment = work / "environment"
    run(python, "-m", "venv", environment)
    versions = work / "constraints.txt"
    versions.write_text("".join(f"{name}=={version}\n" for name, version in pinned()))
    run(environment / "bin" / "pip", "install", "-q", "-c", versions, f"{wheel}[otel,files]")
    program = environment / "bin" / "hai-flow"
    said = run(program, "version", folder=work)
    if wheel.name.split("-")[1] not in said:
        raise ReleaseError(f"{wheel.name} says that it is {said.strip()}.")
    _demo(program, work / "demo")
    _upgrade(program, work / "upgrade", environment)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    return packages


@contextmanager
def _started(program: Path, folder: Path, *arguments: str) -> Iterator[str]:
    """A process that serves, as the URL; Ctrl-C ends it."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("HAI_FLOW_", "PYTHON"))}
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, *arguments], cwd=folder, env=kept, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield _until(lambda: _url(log), process, log)
        process.send_signal(signal.SIGINT)
        if process.wait(SECONDS_MAX) != 0:
            raise ReleaseError(f"{' '.join(arguments)} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _url(log: Path) -> str | None:
    found = re.search(r"Serving (http://[\w.:]+)", log.read_text())
    return None if found is None else found[1]


def _until(look: Any, process: subprocess.Popen[bytes] | None = None, log: Path | None = None) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := look()):
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            words = "" if log is None else log.read_text()[-2000:]
            raise ReleaseError(f"What was waited for in a trial did not come.\n{words}")
        time.sleep(0.1)
    return found


def _asked(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _finish(url: str, run_id: str) -> None:
    """Approve every question of the run, until it has finished."""

    def done() -> bool:
        status = _asked(f"{url}/v1/runs/{run_id}")["status"]
        if status in ("failed", "stopped", "needs_attention"):
            raise ReleaseError(f"The run of a trial is {status}.")
        if status == "waiting":
            for pending in _asked(f"{url}/v1/pendings?run_id={run_id}")["items"]:
                _asked(f"{url}/v1/pendings/{pending['id']}/decide", {"decision": "approve"})
        return bool(status == "finished")

    _until(done)


def _demo(program: Path, folder: Path) -> None:
    with _started(program, folder, "dev", "--demo", "--port", "0") as url:
        (pending,) = _until(lambda: _asked(f"{url}/v1/pendings")["items"])
        _finish(url, pending["run_id"])
        if not urllib.request.urlopen(f"{url}/console/", timeout=30).read():
            raise ReleaseError("The console has no page.")


def _upgrade(program: Path, folder: Path, environment: Path) -> None:
    """A database as the release before has left it: migrated, its waiting runs go on to their end."""
    folder.mkdir(parents=True)
    (recorded,) = sorted((ROOT / "tests" / "upgrade").glob("schema-*.sql.gz"))[-1:]
    (folder / "old.sql").write_bytes(gzip.decompress(recorded.read_bytes()))
    fill = (
        "import pathlib, subprocess; from hai_flow.embedded import EmbeddedPostgres, find_binaries\n"
        "postgres = EmbeddedPostgres(pathlib.Path('.hai-flow')); postgres.start(); postgres.ensure_database()\n"
        "psql = find_binaries().path('psql')\n"
        "for query in ('CREATE ROLE hai_engine', 'CREATE ROLE hai_api'):\n"
        "    subprocess.run([psql, postgres.dsn(), '-qc', query], check=True)\n"
        "subprocess.run([psql, postgres.dsn(), '-qv', 'ON_ERROR_STOP=1', '-f', 'old.sql'], check=True)\n"
        "postgres.stop()\n"
    )
    run(environment / "bin" / "python", "-c", fill, folder=folder)
    run(program, "migrate", folder=folder)
    with _started(program, folder, "dev", "--port", "0") as url:
        waiting = _asked(f"{url}/v1/runs?status=waiting&workflow=refund")["items"]
        if not waiting:
            raise ReleaseError(f"{recorded.name} has no run of refund that waits.")
        for each in waiting:
            _finish(url, each["id"])
    run(program, "verify", folder=folder)
