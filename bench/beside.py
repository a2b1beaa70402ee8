"""The effect of a million waiting runs on another one: the same work beside many waiting runs and beside few, in turns.

One process has a runtime over each of both databases and does everything in one of them and then in the other, so that
other load of the machine slows both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from bench.engine import Engine, running
from bench.resume import answer_seconds
from bench.workflows import QUESTION
from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.people.inbox import Filters
from hai_flow.store.runs import leases

ASKED: Final = c.Principal("user:local", ("boss", "clerk"), ("money",))
CLAIMED: Final = 50
PAGE: Final = 50


async def measure(many_dsn: str, few_dsn: str, samples: int) -> dict[str, Any]:
    """Measure on two databases that `scale.build` has filled. `samples`: how often everything is done in each."""
    cold: dict[str, list[Any]] = {}
    for dsn in (many_dsn, few_dsn):
        async with running(dsn, QUESTION) as engine:
            cold[dsn] = [await engine.start_run() for _ in range(samples + 1)]
    async with running(many_dsn, QUESTION) as many, running(few_dsn, QUESTION) as few:
        beside = ((many, cold[many_dsn]), (few, cold[few_dsn]))

        async def answered(engine: Engine, number: int) -> float:
            runs = next(runs for each, runs in beside if each is engine)
            return await answer_seconds(engine.runtime, runs[number])

        async def both(work: Callable[[Engine, int], Awaitable[float]]) -> tuple[float, float]:
            """Medians in seconds, beside many and beside few. The first round prepares statements, and is not
            counted."""
            took = [[await work(engine, number) for engine, _ in beside] for number in range(samples + 1)][1:]
            return statistics.median(each[0] for each in took), statistics.median(each[1] for each in took)

        seconds = {"resume": await both(answered), "inbox": await both(_inbox_seconds), "claim": await both(_claimed)}
    return {
        **{f"{name}_1m_vs_1k": beside_many / beside_few for name, (beside_many, beside_few) in seconds.items()},
        "milliseconds": {name: {"many": each[0] * 1e3, "few": each[1] * 1e3} for name, each in seconds.items()},
    }


async def _inbox_seconds(engine: Engine, number: int) -> float:
    """Seconds for a page of the inbox of a person that every pending asks."""
    began = time.perf_counter()
    items, _ = await engine.runtime.inbox.page(LOCAL_TENANT, ASKED, Filters(), limit=PAGE)
    took = time.perf_counter() - began
    assert len(items) == PAGE, f"a page of {PAGE}, found {len(items)}"
    return took


async def _claimed(engine: Engine, number: int) -> float:
    """A claim of runs that are due, undone again."""
    async with engine.runtime.database.engine.acquire() as connection:
        worker = await leases.register_worker(connection, "bench", timedelta(minutes=1))
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "UPDATE runs SET wake_at = now() WHERE id IN (SELECT id FROM runs WHERE worker IS NULL LIMIT $1)", CLAIMED
        )
        began = time.perf_counter()
        claimed = await leases.claim_runs(connection, worker, CLAIMED, ["default"])
        took = time.perf_counter() - began
        assert len(claimed) == CLAIMED, f"a claim of {CLAIMED}, found {len(claimed)}"
        await transaction.rollback()
        await leases.retire_worker(connection, worker)
    return took
