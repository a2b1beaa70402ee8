"""The gain of a second worker, and the gain that a second core could bring.

`two_workers_vs_one`: steps a second of two worker processes that share the runs of one database, to those of one. How
much that can be depends on the machine: `two_writers_vs_one` is the same for two processes that only write, in a group
commit, the rows that an engine would write, and `cores` says how many cores there are for them and for PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg

from bench.engine import running
from bench.reference import Reference, shape_of
from bench.tools import TOOLS
from bench.workflows import STEPS, chain
from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings

RUNS: Final = 2_048
_LOOK_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 300
_ROOT: Final = Path(__file__).resolve().parents[1]


async def measure(dsn: str, reference_dsn: str, rounds: int, *, runs: int = RUNS) -> dict[str, Any]:
    """In turns: one and two workers over the migrated database `dsn`, one and two writers over the other one."""
    async with running(dsn, chain()) as engine:
        await engine.finish_runs(64)  # rows whose shape the writers take
    workers: dict[int, list[float]] = {1: [], 2: []}
    writers: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for count in (1, 2):
            workers[count].append(await _worked(dsn, count, runs))
            writers[count].append(_written(dsn, reference_dsn, count, runs))
    medians = {
        name: {count: statistics.median(each) for count, each in rates.items()}
        for name, rates in (("workers", workers), ("writers", writers))
    }
    return {
        "two_workers_vs_one": medians["workers"][2] / medians["workers"][1],
        "two_writers_vs_one": medians["writers"][2] / medians["writers"][1],
        "cores": os.cpu_count() or 1,
        **{f"{name}_steps_per_second": {str(k): v for k, v in rates.items()} for name, rates in medians.items()},
    }


async def _worked(dsn: str, count: int, runs: int) -> float:
    """Steps a second, from the moment at which so many workers begin until all runs have finished."""
    await _start(dsn, runs)
    with _children(count, "--work", dsn) as children:
        began = time.perf_counter()
        for child in children:
            _tell(child, "begin")
        connection = await asyncpg.connect(dsn)
        try:
            while await connection.fetchval("SELECT EXISTS (SELECT FROM runs WHERE ended_at IS NULL)"):
                if time.perf_counter() - began > _PATIENCE_SECONDS:
                    raise TimeoutError(f"{runs} runs have not finished within {_PATIENCE_SECONDS} s")
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await connection.close()
        return runs * STEPS / (time.perf_counter() - began)


async def _start(dsn: str, runs: int) -> None:
    """Start runs that no worker performs yet."""
    runtime = Runtime(dsn, Settings(tools=TOOLS), performs=False)
    async with runtime.lifespan():
        _, plan = await runtime.catalog.publish(LOCAL_TENANT, chain())
        room = asyncio.Semaphore(64)

        async def start() -> None:
            async with room:
                id = runtime.starts.new_id()
                command = c.Start(run_id=id, thread_id=str(id), requester=c.LOCAL_PRINCIPAL.id, input={})
                await runtime.starts.start(LOCAL_TENANT, plan, command)

        await asyncio.gather(*(start() for _ in range(runs)))


def _written(dsn: str, reference_dsn: str, count: int, runs: int) -> float:
    """Steps a second of `count` writers, which write the rows of the same steps in equal parts."""
    with _children(count, "--write", dsn, reference_dsn, str(runs * STEPS // count)) as children:
        began = time.perf_counter()
        for child in children:
            _tell(child, "begin")
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        return runs * STEPS / (time.perf_counter() - began)


@contextlib.contextmanager
def _children(count: int, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ready to begin; they end with the block."""
    command = [sys.executable, "-m", "bench.workers", *arguments]
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(command, cwd=_ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(count)
        ]
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise RuntimeError(f"{' '.join(command)} has ended before it was ready")
        yield children
        for child in children:
            _tell(child, "end")


def _tell(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdin is not None
    print(word, file=child.stdin, flush=True)


# --- in a child -------------------------------------------------------------------------------------------------------


async def _work(dsn: str) -> None:
    await _told_to_begin()
    async with running(dsn, chain()):
        await _line()


async def _write(dsn: str, reference_dsn: str, steps: int) -> None:
    reference = await Reference.open(reference_dsn, await shape_of(dsn))
    try:
        await _told_to_begin()
        await reference.group_commit(steps)
        print("done", flush=True)
        await _line()
    finally:
        await reference.close()


async def _told_to_begin() -> None:
    print("ready", flush=True)
    await _line()


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.workers")
    parser.add_argument("--work", metavar="DSN")
    parser.add_argument("--write", nargs=3, metavar=("DSN", "REFERENCE_DSN", "STEPS"))
    arguments = parser.parse_args()
    if arguments.work:
        asyncio.run(_work(arguments.work))
    else:
        dsn, reference_dsn, steps = arguments.write
        asyncio.run(_write(dsn, reference_dsn, int(steps)))


if __name__ == "__main__":
    main()
