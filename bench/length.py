"""The cost of a step of a long run, compared to one of a short run: it must not grow with the run's length.

Both runs go round in a `repeat`, alone, one step after the other, so this is also the pace of one run by itself.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

from bench.engine import Engine, running
from bench.workflows import going_round

LONG: Final = 10_000
SHORT: Final = 10


async def measure(dsn: str, rounds: int, *, long: int = LONG, short: int = SHORT) -> dict[str, Any]:
    """Microseconds a step, in turns: in runs of `short` steps, as many as make a twentieth of `long`, and in one run
    of `long` steps."""
    async with running(dsn, going_round(long)) as engine:
        await _seconds_a_step(engine, short)
        took: dict[int, list[float]] = {short: [], long: []}
        for _ in range(rounds):
            several = max(1, long // short // 20)
            took[short].append(statistics.median([await _seconds_a_step(engine, short) for _ in range(several)]))
            took[long].append(await _seconds_a_step(engine, long))
    cost = {count: statistics.median(each) * 1e6 for count, each in took.items()}
    return {
        "step_cost_run_10000_vs_10": cost[long] / cost[short],
        "us_per_step": {str(count): each for count, each in cost.items()},
    }


async def _seconds_a_step(engine: Engine, count: int) -> float:
    began = time.perf_counter()
    await engine.finish_runs(1, input={"n": count})
    return (time.perf_counter() - began) / count
