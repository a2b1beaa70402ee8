"""Durable steps per second, from YAML to commit, against the same rows without an engine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.engine import CONCURRENCY, running
from bench.reference import Reference, shape_of
from bench.workflows import STEPS, chain


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure. `runs` are the engine's in a round, `commits` and `transactions` the steps of the others."""

    rounds: int
    runs: int
    commits: int
    transactions: int
    concurrency: int = CONCURRENCY


FULL = Size(rounds=7, runs=1024, commits=20_480, transactions=2_560)
QUICK = Size(rounds=3, runs=512, commits=10_240, transactions=1_024)


@dataclass(frozen=True, slots=True)
class Round:
    """`rate` is in steps per second; `cpu` is this process's, in microseconds per step."""

    rate: float
    cpu: float


async def measure(dsn: str, reference_dsn: str, size: Size) -> dict[str, Any]:
    """Interleaved rounds of the engine over `dsn` and both references over `reference_dsn`; medians and ratios."""
    async with running(dsn, chain()) as engine:
        await engine.finish_runs(size.runs, size.concurrency)  # the plans, the caches and the shape of the rows
        shape = await shape_of(dsn)
        reference = await Reference.open(reference_dsn, shape)
        try:
            await reference.group_commit(size.commits // 4)
            rounds: dict[str, list[Round]] = {"engine": [], "group_commit": [], "transaction_per_step": []}
            for _ in range(size.rounds):
                rounds["engine"].append(
                    await _timed(size.runs * STEPS, lambda steps: engine.finish_runs(steps // STEPS, size.concurrency))
                )
                rounds["group_commit"].append(await _timed(size.commits, reference.group_commit))
                rounds["transaction_per_step"].append(await _timed(size.transactions, reference.transaction_per_step))
        finally:
            await reference.close()
    rates = {name: statistics.median(each.rate for each in done) for name, done in rounds.items()}
    return {
        "steps_vs_group_commit": rates["engine"] / rates["group_commit"],
        "steps_vs_transaction_per_step": rates["engine"] / rates["transaction_per_step"],
        "steps_per_second": rates,
        "cpu_us_per_step": {name: statistics.median(each.cpu for each in done) for name, done in rounds.items()},
        "log_rows_per_step": shape.rows,
        "log_row_bytes": shape.bytes,
    }


async def _timed(steps: int, work: Callable[[int], Awaitable[None]]) -> Round:
    began, cpu = time.perf_counter(), time.process_time()
    await work(steps)
    used, took = time.process_time() - cpu, time.perf_counter() - began
    return Round(steps / took, used * 1e6 / steps)
