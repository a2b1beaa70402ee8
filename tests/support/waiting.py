"""Waiting for facts. Nothing sleeps for as long as something probably takes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Fact = TypeVar("Fact")


async def until(fact: Callable[[], Fact | Awaitable[Fact]], seconds: float = 20.0, *, every: float = 0.02) -> Fact:
    """What `fact()` gives as soon as it is true. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = fact()
        value: Fact = await found if inspect.isawaitable(found) else found  # type: ignore[assignment]
        if value:
            return value
        assert time.monotonic() < deadline, f"still not so after {seconds} s: {inspect.getsource(fact).strip()}"
        await asyncio.sleep(every)
