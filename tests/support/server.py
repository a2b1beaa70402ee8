"""A server in a process of its own, on a free port: tests talk to it over real sockets, stop it and kill it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support import effects, forking

ROOT = Path(__file__).resolve().parents[2]
YAML = {"Content-Type": "application/yaml"}

# Quick where production is patient: the runs that a killed process held are free again soon.
QUICK = {"HAI_FLOW_LEASE_SECONDS": "2", "HAI_FLOW_HEARTBEAT_SECONDS": "0.5", "HAI_FLOW_POLL_SECONDS": "0.5"}
LOG_LEVEL = "HAI_FLOW_TESTS_LOG"  # the server's log level, in the `environment` of `serving`
PATH = "HAI_FLOW_TESTS_PATH"  # further places of modules, in the `environment` of `serving`
TOOLS = {"HAI_FLOW_TOOLS": ",".join(effects.MODULES)}


class ServerProcess:
    """One process that serves and performs. `url` once it is up; `log` is all that it wrote to standard error."""

    def __init__(self, process: forking.Process, url: str, log_path: Path) -> None:
        self.process = process
        self.url = url
        self._log_path = log_path

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    @property
    def faults(self) -> list[str]:
        """The lines of its log that are faults of the server: an error with its exception, or an uncaught traceback."""
        return [line for line in self.log.splitlines() if _is_fault(line)]

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Wait for its end."""
        return self.process.wait(30)


def expect(answer: httpx2.Response, *statuses: int) -> httpx2.Response:
    """The answer, which has one of these statuses."""
    assert answer.status_code in statuses, answer.text
    return answer


def _is_fault(line: str) -> bool:
    try:
        logged = json.loads(line)
    except ValueError:
        return "Traceback" in line
    return isinstance(logged, dict) and logged.get("level") in ("error", "critical") and "exception" in logged


@contextmanager
def serving(
    dsn: str,
    *,
    admission: dict[str, int] | None = None,
    environment: dict[str, str] | None = None,
    descriptors: int | None = None,
    may_fail: bool = False,
) -> Iterator[ServerProcess]:
    """A server over the database `dsn` with the workflows of the repository, which has had no fault at its end, but for
    one that `may_fail`. `descriptors`: how many files it may open."""
    with (
        tempfile.NamedTemporaryFile(prefix="hai-flow-server-", suffix=".log") as log,
        forking.piped(
            "tests.support.server",
            dsn,
            json.dumps(admission or {}),
            stderr=log.fileno(),
            environment={**os.environ, "HAI_FLOW_PORT": "0", **QUICK, **TOOLS, **(environment or {})},
            descriptors=descriptors,
        ) as process,
    ):
        lines = (line.decode().strip() for line in process.stdout)  # lines that were logged before are there as well
        url = next((line for line in lines if line.startswith("http://")), "")
        assert url, f"the server did not start: {Path(log.name).read_text()}"
        server = ServerProcess(process, url, Path(log.name))
        yield server
        assert may_fail or not server.faults


async def _main(dsn: str, admission: dict[str, Any]) -> None:
    from hai_flow.api.app import create_app
    from hai_flow.api.http.load_shedding import Admission
    from hai_flow.api.http.server import serve
    from hai_flow.cli.serve.logs import configure_logs
    from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
    from hai_flow.settings import Settings
    from hai_flow.store.catalog.workflows import publish_workflow
    from tests.support.warmed import PLANS

    sys.path += filter(None, os.environ.get(PATH, "").split(os.pathsep))
    configure_logs(
        os.environ.get(LOG_LEVEL, "WARNING")
    )  # on standard error: standard output is not read, and a process that writes there would block
    settings = Settings.from_environment(dev=True)
    runtime = Runtime(dsn, settings, performs=True)
    effects.write_to(dsn)
    async with runtime.lifespan():
        for plan in PLANS.values():
            await publish_workflow(  # without the checks, which ask the database ten times as much
                runtime.database.api,
                LOCAL_TENANT,
                name=plan.name,
                version=plan.version,
                source=plan.source,
                title=plan.title or None,
                visibility=plan.visibility,
            )
            runtime.catalog._keep(LOCAL_TENANT, plan)
        app = create_app(settings, runtime, act_as=True)
        if admission:
            app.state.admission = Admission(**admission)
        await serve(app, runtime, settings, started=lambda url: print(url, flush=True))


def _end_with_parent() -> None:
    """End this process when the test's process is gone, which holds the other end of standard input."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(_main(sys.argv[1], json.loads(sys.argv[2])))
