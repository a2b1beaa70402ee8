"""Whether a process that has seen many runs needs more than one that has seen few: it must not.

    python -m bench.soak [RUNS]        make soak

Short runs live and end in every way that leaves something to forget: with limits, timeouts and deadlines, in loops, by
events from outside, stopped, terminated with a call in flight, watched by followers that stay and that leave. After a
first part of them everything that the process keeps is counted, and counted again at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from bench.census import census, grown
from bench.engine import Engine, running
from bench.server import durable_server
from hai_flow.engine import commands as c
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.runtime.streams.fanout import Following
from hai_flow.steps.python.threads import IDLE_MAX
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LOG

RUNS: Final = 100_000
TOGETHER: Final = 16
REPORTS: Final = 10
QUIET_SECONDS: Final = 30.0
BOUNDS: Final = {
    "ToolThreads._idle": IDLE_MAX,
    "objects of hai_flow.steps.python.threads._Thread": IDLE_MAX,
    "objects of hai_flow.runtime.commit.cached_run.CachedRun": 4,  # the last of each lane, the loader, the worker
}
WORKFLOW: Final = b"""\
hai: flow/v1
name: bench_soak
version: 1
input: {type: object, properties: {waits: {type: boolean, default: false}}}
limits: {duration: 1h, tool_calls: 60}
tools:
  plus_one: {python: "bench.tools:plus_one", effect: read}
  next: {python: "bench.tools:next_number", effect: read}
  tick: {python: "bench.tools:tick", effect: read}
steps:
  - repeat: {max: 3, steps: [{id: again, call: plus_one, with: {n: 1}, timeout: 10m}]}
  - {id: blocking, call: next, with: {n: 1}}
  - id: race
    join: any
    parallel:
      heard: [{id: hear, wait_for: {event: go, deadline: 30m}}]
      late: [{id: late, wait: {for: 20m}}]
  - {id: long, if: input.waits, call: tick, with: {seconds: 600}, timeout: 15m}
output: {n: "${{ steps.blocking.output }}"}
"""


async def live(engine: Engine, count: int, together: int = TOGETHER) -> None:
    """So many runs of `WORKFLOW`, from start to end."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await LIVES[number % len(LIVES)](engine, engine.runtime.starts.new_id())

    await asyncio.gather(*(some() for _ in range(min(together, count))))


async def quiet(engine: Engine, since: Counter[str] | None = None) -> dict[str, str]:
    """Wait until no run is held and no count is above that of the census `since`, for `QUIET_SECONDS` at most. Returns
    the counts that are still above it, as "before -> after"; without a census, none."""
    until = time.monotonic() + QUIET_SECONDS
    while True:
        worker = engine.runtime.worker
        assert worker is not None
        more = {} if since is None else grown(since, census(engine.runtime), BOUNDS)
        if not (worker.held or more) or time.monotonic() > until:
            return more
        await asyncio.sleep(0.1)


def _follow(engine: Engine, run_id: UUID) -> Following:
    return engine.runtime.fanout.follow(run_id, LOG, Profile(dialect="log"), RunState(str(run_id)))


async def _until_the_end(engine: Engine, run_id: UUID) -> None:
    async for _ in _follow(engine, run_id):
        pass


async def _go(engine: Engine, run_id: UUID) -> None:
    await engine.runtime.delivery.send(LOCAL_TENANT, f"go-{run_id}", "go", None, run_id)


async def _heard(engine: Engine, run_id: UUID) -> None:
    """Start a run, end it by an event, and follow it to its end."""
    await engine.start_run(run_id=run_id)
    await _go(engine, run_id)
    await _until_the_end(engine, run_id)


async def _left(engine: Engine, run_id: UUID) -> None:
    """Followers come and leave in the middle: of the run, and of its thread."""
    await engine.start_run(run_id=run_id)
    leaving = [asyncio.create_task(_until_the_end(engine, run_id)) for _ in range(3)]
    leaving.append(asyncio.create_task(engine.runtime.threads.news(LOCAL_TENANT, f"nothing of {run_id}", None)))
    following = _follow(engine, run_id)
    await anext(following)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    del following  # like a client that vanishes, it is never closed
    await _heard_already(engine, run_id)


async def _heard_already(engine: Engine, run_id: UUID) -> None:
    await _go(engine, run_id)
    await _until_the_end(engine, run_id)


async def _stopped(engine: Engine, run_id: UUID) -> None:
    """A person stops the run, wherever it is, and repeats the command, which may be refused."""
    await engine.start_run(run_id=run_id)
    for _ in range(2):
        with contextlib.suppress(Rejected):
            await engine.runtime.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:local"))
    await _until_the_end(engine, run_id)


async def _terminated(engine: Engine, run_id: UUID) -> None:
    """The run ends while a call is in flight."""
    await engine.start_run(run_id=run_id, input={"waits": True})
    await _go(engine, run_id)
    async for pieces in _follow(engine, run_id):
        if any(b'"long"' in piece.data for piece in pieces):
            break
    await engine.runtime.committer.submit(run_id, LOCAL_TENANT, c.Terminate(by="user:local"))


async def _unknown(engine: Engine, run_id: UUID) -> None:
    """The run was never started: a stop is sent to it, and its state is read."""
    with contextlib.suppress(Rejected):
        await engine.runtime.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:local"))
    await engine.runtime.fanout.state_at(LOCAL_TENANT, run_id, 1)


LIVES: Final[tuple[Callable[[Engine, UUID], Awaitable[None]], ...]] = (_heard, _left, _stopped, _terminated, _unknown)


async def soak(dsn: str, runs: int) -> dict[str, str]:
    """Let `runs` runs live over the migrated database `dsn`. Returns the counts that are above those after the first
    tenth."""
    async with running(dsn, WORKFLOW) as engine:
        part = max(runs // REPORTS, len(LIVES))
        await live(engine, part)
        await quiet(engine)
        before = census(engine.runtime)
        _report(part)
        for number in range(2, REPORTS + 1):
            await live(engine, part)
            _report(part * number)
        return await quiet(engine, before)


def _report(runs: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(f"{runs:>9,} runs  {pages * os.sysconf('SC_PAGESIZE') / 2**20:7.1f} MiB", flush=True)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with durable_server() as database:
        more = asyncio.run(soak(database("soak"), int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
    for name, counts in more.items():
        print(f"kept: {name}  {counts}")
    sys.exit(1 if more else 0)


if __name__ == "__main__":
    main()
