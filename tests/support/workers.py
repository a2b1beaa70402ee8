"""Worker processes that tests kill: a *nursery* imports everything once and forks a worker for each line it reads.

    python -m tests.support.workers DSN

On stdin: "worker" (behind it the file of its models, if it has some), "deaf worker" (hears no hints), "hasty worker"
(gives up soon on a silent database), "start SECONDS COUNT" or "pay SECONDS COUNT" (whose tools write in transactions);
on stdout: the pid of the new process.
No web framework belongs into a worker, so it asserts that none was imported. When stdin closes, everyone dies.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Final

from hai_flow.engine import commands as c
from hai_flow.primitives.uuids import derive_uuid
from hai_flow.runtime.commit import hints
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.postgres.database import Deadlines
from hai_flow.store.postgres.error_classes import FAILURES
from tests.support import effects, forking

LEASE_SECONDS = 2.0


def fast(models: Path | None = None) -> Settings:
    """The settings of a deployment in a hurry: short leases, quick polls."""
    return Settings(
        tools=effects.MODULES,
        models=models,
        secrets={"K": "sk-1"},
        lease_seconds=LEASE_SECONDS,
        heartbeat_seconds=0.3,
        poll_seconds=0.2,
        shutdown_seconds=2.0,
    )


HASTY: Final = Deadlines(
    connect_seconds=2.0,
    acquire_seconds=1.0,
    statement_seconds=1.0,
    line_seconds=1.0,
    probe_seconds=0.5,
    close_seconds=0.5,
)


async def perform(dsn: str, deadlines: Deadlines | None = None, models: Path | None = None) -> None:
    assert not {"fastapi", "starlette", "uvicorn"} & sys.modules.keys(), "a worker has no web framework"
    effects.write_to(dsn)
    async with Runtime(dsn, fast(models), performs=True, deadlines=deadlines).lifespan():
        await asyncio.Event().wait()


async def start_runs(dsn: str, seconds: float, count: int, flow: bytes) -> None:
    """Start `count` runs of the flow spread over `seconds`."""
    async with Starter(dsn, flow) as starter:
        for number in range(count):
            await starter.start(number)
            await asyncio.sleep(seconds / count * random.uniform(0.5, 1.5))


class Starter:
    """Starts runs as a process that performs nothing."""

    def __init__(self, dsn: str, flow: bytes = effects.FLOW) -> None:
        self._flow = flow
        self.runtime = Runtime(dsn, fast(), performs=False)

    async def __aenter__(self) -> Starter:
        await self.runtime.start()
        _, self.plan = await self.runtime.catalog.publish(LOCAL_TENANT, self._flow)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.runtime.stop()

    async def start(self, number: int) -> None:
        """Start a run as a client does that repeats its request while the database is away."""
        while True:
            try:
                return await self._start(number)
            except FAILURES:
                await asyncio.sleep(0.05)

    async def _start(self, number: int) -> None:
        run_id = derive_uuid("effects", str(number))
        start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={"n": number})
        await self.runtime.starts.start(LOCAL_TENANT, self.plan, start, command_id="start")


class Nursery:
    """The nursery as a test sees it."""

    def __init__(self, dsn: str) -> None:
        err = None if os.environ.get("HAI_FLOW_TEST_LOUD") else os.devnull
        with open(err or 2, "wb", closefd=err is not None) as stderr:
            self._process = forking.piped(
                "tests.support.workers", dsn, stderr=stderr.fileno(), preloaded=forking.RUNTIME
            )

    def fork(self, what: str = "worker") -> int:
        """A new process; returns its pid."""
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process as process:
            process.stdin.close()
            process.wait(30)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def nurse(dsn: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the dead
    children: list[int] = []
    for line in sys.stdin:
        words = line.split()
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if words[0] == "deaf":
                vars(hints)["HINT_CHANNEL"] = "a_channel_on_which_nobody_speaks"
            starts = words[0] in ("start", "pay")
            flow = effects.PAYING if words[0] == "pay" else effects.FLOW
            deadlines = HASTY if words[0] == "hasty" else None
            models = Path(words[1]) if words[0] == "worker" and words[1:] else None
            work = start_runs(dsn, float(words[1]), int(words[2]), flow) if starts else perform(dsn, deadlines, models)
            asyncio.run(work)
            os._exit(0)
        children.append(pid)
        print(pid, flush=True)
    for pid in children:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    nurse(sys.argv[1])
