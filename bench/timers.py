"""The effect on new runs of very many timers that are due at once.

`timers_100k_drain_steps_ratio`: the steps a second of new runs while 100,000 timers that are due at one instant go
off, each of which wakes a run that has a step to do and ends, to those of new runs just before.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bench.engine import CONCURRENCY, Engine, running
from bench.workflows import STEPS, TIMER, chain

TIMERS: Final = 100_000
RUNS: Final = 256  # new ones, in a round
ROUNDS_BEFORE: Final = 7
_TRIED: Final = 200  # timers that show how long the others take to be set
_SLACK: Final = 1.6


async def measure(dsn: str, timers: int = TIMERS, *, runs: int = RUNS) -> dict[str, Any]:
    """`runs` new ones are started and finished again and again, until the last of `timers` has gone off."""
    async with running(dsn, TIMER) as engine:
        due = await _set_timers(engine, timers)
    async with running(dsn, TIMER) as engine:
        fresh = await engine.published(chain())
        await engine.finish_runs(runs, plan=fresh)
        before = [await _rate(engine, fresh, runs) for _ in range(ROUNDS_BEFORE)]
        assert datetime.now(UTC) < due, "the timers have gone off before they could be waited for"
        await asyncio.sleep((due - datetime.now(UTC)).total_seconds())
        began, beside = time.perf_counter(), []
        while not beside or not await _all_gone_off(engine):
            beside.append(await _rate(engine, fresh, runs))
        took = time.perf_counter() - began
    return {
        "timers_100k_drain_steps_ratio": statistics.median(beside) / statistics.median(before),
        "new_steps_per_second": {"before": statistics.median(before), "beside": statistics.median(beside)},
        "timers_per_second": timers / took,
    }


async def _set_timers(engine: Engine, count: int) -> datetime:
    """Start so many runs that wait for the instant that is returned."""
    began = time.perf_counter()
    await _start(engine, _TRIED, datetime.now(UTC) + timedelta(days=1))
    each = (time.perf_counter() - began) / _TRIED
    due = datetime.now(UTC) + timedelta(seconds=10 + each * count * _SLACK)
    await _start(engine, count, due)
    return due


async def _start(engine: Engine, count: int, until: datetime) -> None:
    numbers = iter(range(count))

    async def some() -> None:
        for _ in numbers:
            await engine.start_run(input={"until": until.isoformat()})

    await asyncio.gather(*(some() for _ in range(CONCURRENCY)))


async def _rate(engine: Engine, plan: Any, runs: int) -> float:
    began = time.perf_counter()
    await engine.finish_runs(runs, plan=plan)
    return runs * STEPS / (time.perf_counter() - began)


async def _all_gone_off(engine: Engine) -> bool:
    """Whether every run has ended, but for those that only showed how long it takes."""
    query = "SELECT count(*) <= $1 FROM (SELECT FROM runs WHERE ended_at IS NULL LIMIT $1 + 1) r"
    gone: bool = await engine.runtime.database.api.fetchval(query, _TRIED)
    return gone
