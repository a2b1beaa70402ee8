"""The cost of the switch that freezes, for a step.

`freeze_cost`: the time of a step whose commits return the version of the freezes, to that of a step whose commits do
not, in turns over one runtime. `beside_freezes`: the same to itself with 20 freezes in force that hold none of its
steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final
from unittest.mock import patch
from uuid import uuid4

from bench.engine import CONCURRENCY, median_ratio, running, time_runs
from bench.workflows import chain
from hai_flow.store.commit import commits
from hai_flow.store.commit.commit_sql import FREEZE_VERSION, commit_statement
from hai_flow.store.ops import freezes

FREEZES: Final = 20


async def measure(dsn: str, rounds: int, runs: int, concurrency: int = CONCURRENCY) -> dict[str, Any]:
    """`rounds`: so often each way has a turn of `runs` runs."""
    async with running(dsn, chain()) as engine:
        times: dict[str, list[tuple[float, float]]] = {"without": [], "with": [], "beside": []}
        await engine.finish_runs(runs, concurrency)
        for number in range(rounds):
            # Each way goes first in every other round: tables grow, and who comes later pays for it.
            for way in ("without", "with") if number % 2 else ("with", "without"):
                with _without_switch() if way == "without" else contextlib.nullcontext():
                    times[way].append(await time_runs(engine, runs, concurrency))
        async with engine.runtime.database.api.acquire() as connection, connection.transaction():
            for number in range(FREEZES):
                name = f"another-{number}"
                await freezes.freeze(connection, uuid4(), None, None, "frozen", "tool", name, "a bench", "user:bench")
        await engine.runtime.freezes.read()
        for _ in range(rounds):
            times["beside"].append(await time_runs(engine, runs, concurrency))
    return {
        "freeze_cost": median_ratio(times["with"], times["without"], 0),
        "cpu_cost": median_ratio(times["with"], times["without"], 1),
        "beside_freezes": median_ratio(times["beside"], times["with"], 0),
    }


@contextlib.contextmanager
def _without_switch() -> Iterator[None]:
    """Commits return a constant in place of the version."""

    def statement(parts: frozenset[str]) -> str:
        return commit_statement(parts).replace(FREEZE_VERSION, "0::bigint")

    with patch.object(commits, "commit_statement", statement):
        yield
