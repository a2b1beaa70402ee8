"""What a process asks of the database while there is nothing to do.

`idle_statements_per_second`: the statements that a process which performs sends to PostgreSQL, those that keep its
connections included. Beside it stand the milliseconds of a processor that it takes in a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.engine import running
from bench.workflows import chain
from hai_flow.store.postgres.database import Session

SETTLED_SECONDS: Final = 3.0  # since the last run: what it left behind has been looked at
_STATEMENTS: Final = ("execute", "executemany", "fetch", "fetchmany", "fetchrow", "fetchval")


async def measure(dsn: str, seconds: float) -> dict[str, Any]:
    """Over `seconds` of a process that has performed some runs."""
    async with running(dsn, chain()) as engine:
        await engine.finish_runs(4, 4)
        await asyncio.sleep(SETTLED_SECONDS)
        with _statements() as count:
            began, worked = time.perf_counter(), time.process_time()
            await asyncio.sleep(seconds)
            took, worked = time.perf_counter() - began, time.process_time() - worked
    return {
        "idle_statements_per_second": count[0] / took,
        "idle_processor_milliseconds_per_second": worked / took * 1e3,
    }


@contextmanager
def _statements() -> Iterator[list[int]]:
    """Counts the statements of all connections of this process."""
    count, originals = [0], {name: getattr(Session, name) for name in _STATEMENTS}

    def counted(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def send(self: Session, *given: Any, **options: Any) -> Awaitable[Any]:
            count[0] += 1
            return original(self, *given, **options)

        return send

    for name, original in originals.items():
        setattr(Session, name, counted(original))
    try:
        yield count
    finally:
        for name, original in originals.items():
            setattr(Session, name, original)
