"""Driving the whole engine: publish a workflow, start runs of it, wait for their ends."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from uuid import UUID

from bench.tools import TOOLS
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.ops.gc import relax_collector
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings

Json: TypeAlias = Any

CONCURRENCY = 256


class Engine:
    """A runtime that performs, and one workflow in it."""

    def __init__(self, runtime: Runtime, plan: Plan) -> None:
        self.runtime = runtime
        self.plan = plan
        self._ended: dict[UUID, asyncio.Future[None]] = {}
        runtime.committer.listeners.committed.append(self._committed)

    async def published(self, source: bytes) -> Plan:
        """Publish a further workflow; `finish_runs` takes its plan."""
        _, plan = await self.runtime.catalog.publish(LOCAL_TENANT, source)
        return plan

    async def start_run(self, plan: Plan | None = None, input: Json = None, run_id: UUID | None = None) -> UUID:
        """Start a run; return after the commit that holds its start."""
        starts = self.runtime.starts
        run_id = run_id or starts.new_id()
        start = c.Start(run_id=run_id, thread_id=str(run_id), requester=c.LOCAL_PRINCIPAL.id, input=input or {})
        await starts.start(LOCAL_TENANT, plan or self.plan, start)
        return run_id

    async def finish_runs(
        self, count: int, concurrency: int = CONCURRENCY, *, plan: Plan | None = None, input: Json = None
    ) -> None:
        """Start `count` runs, `concurrency` at a time; return when the last one has finished."""
        numbers = iter(range(count))

        async def run_some() -> None:
            for _ in numbers:
                run_id = self.runtime.starts.new_id()
                ended = self._ended[run_id] = asyncio.get_running_loop().create_future()
                await self.start_run(plan, input, run_id)  # a run that only calculates ends in this commit
                await ended

        await asyncio.gather(*(run_some() for _ in range(min(count, concurrency))))

    def _committed(self, run: CachedRun, first_seq: int, events: Sequence[e.Event]) -> None:
        """A run's end wakes the task that waits for it."""
        if isinstance(events[-1], e.TERMINAL) and (ended := self._ended.pop(run.id, None)) is not None:
            ended.set_result(None)


def median_ratio(those: list[tuple[float, float]], these: list[tuple[float, float]], which: int) -> float:
    """The median of the ratios of rounds that stood side by side: of seconds (`which` 0) or processor time (1)."""
    return statistics.median(one[which] / other[which] for one, other in zip(those, these, strict=True))


async def time_runs(engine: Engine, runs: int, concurrency: int) -> tuple[float, float]:
    """Seconds, and seconds of this process's processor, until so many runs have finished."""
    began, cpu = time.perf_counter(), time.process_time()
    await engine.finish_runs(runs, concurrency)
    return time.perf_counter() - began, time.process_time() - cpu


@contextlib.asynccontextmanager
async def running(
    dsn: str,
    source: bytes,
    settings: Settings | None = None,
    *,
    prepared: Callable[[Runtime], None] = lambda runtime: None,
) -> AsyncIterator[Engine]:
    """The runtime over the migrated database `dsn`, with the workflow `source` published. `prepared` is called with it
    before it starts."""
    relax_collector()  # as `hai-flow worker` does
    runtime = Runtime(dsn, replace(settings or Settings(), tools=TOOLS), performs=True)
    prepared(runtime)
    async with runtime.lifespan():
        _, plan = await runtime.catalog.publish(LOCAL_TENANT, source)
        yield Engine(runtime, plan)
