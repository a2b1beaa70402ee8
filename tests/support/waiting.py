"""Waiting for facts. Nothing sleeps for as long as something probably takes."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

Fact = TypeVar("Fact")

PATIENCE: Final = float(os.environ.get("TEST_PATIENCE", "28"))
"""Seconds that a fact may take, on a machine that does much else: less than the thirty behind which the database ends a
statement by itself."""


async def until(fact: Callable[[], Fact | Awaitable[Fact]], seconds: float = PATIENCE, *, every: float = 0.02) -> Fact:
    """The value of `fact()` as soon as it is true. Fails after `seconds`; a larger bound is for the few facts that take
    longer. It is looked for ever more rarely, down to a fifth: a look at a server takes much of what it waits for."""
    deadline, rarely = time.monotonic() + seconds, 5 * every
    while True:
        found = fact()
        value: Fact = await found if inspect.isawaitable(found) else found  # type: ignore[assignment]
        if value:
            return value
        assert time.monotonic() < deadline, f"still not so after {seconds} s: {inspect.getsource(fact).strip()}"
        await asyncio.sleep(every)
        every = min(1.3 * every, rarely)


def wait_for(fact: Callable[[], Fact | None], seconds: float = 60) -> Fact:
    """The value of `fact()` as soon as it is true, for tests without a loop of their own. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := fact()):
        assert time.monotonic() < deadline, f"still not so after {seconds} s: {inspect.getsource(fact).strip()}"
        time.sleep(0.02)
    return value
