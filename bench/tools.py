"""The tools of the measured workflows: as trivial as a tool can be, so that the engine is measured and not they."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from hai_flow.steps.context import Context
from hai_flow.steps.tools import tool

TOOLS = ("bench.tools",)  # where the measured deployments take tools from


@tool
async def plus_one(n: int) -> int:
    """The next number."""
    return n + 1


@tool
async def spoken(count: int, seconds: float, silence: float) -> AsyncIterator[str]:
    """A first piece of text; then, with `silence` before and after, `count` more, one every `seconds`."""
    yield "It begins. "
    await asyncio.sleep(silence)
    for number in range(count):
        yield f"This is piece {number:03} of what a model might say. "
        await asyncio.sleep(seconds)
    await asyncio.sleep(silence)


@tool
async def book(n: int, context: Context) -> int:
    """A row, in the transaction that records the step."""
    async with context.transaction() as connection:
        await connection.execute("INSERT INTO bench_books (n) VALUES ($1)", n)
    return n


@tool
async def timed(count: int, seconds: float) -> AsyncIterator[str]:
    """`count` pieces of text, one every `seconds`: the time of each, in seconds of `time.perf_counter`."""
    begun = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(begun + number * seconds - time.perf_counter())
        yield f"{time.perf_counter():.6f} "


@tool
async def tick(seconds: float) -> int:
    """Later."""
    await asyncio.sleep(seconds)
    return 1


@tool
def next_number(n: int) -> int:
    """The same in a thread."""
    return n + 1
