"""Answers that many ask for at once are looked up for all of them, and never before they were asked for."""

from __future__ import annotations

import asyncio

import pytest

from hai_flow.runtime.base.single_flight import Together
from tests.support.waiting import until


class Looks:
    """Looks that end when they are told to; each answers with its number."""

    def __init__(self) -> None:
        self.under_way: list[asyncio.Future[None]] = []

    async def find(self, key: str) -> int:
        number = len(self.under_way)
        self.under_way.append(asyncio.get_running_loop().create_future())
        await self.under_way[number]
        return number


async def test_callers_that_come_while_a_look_runs_share_the_next_one() -> None:
    looks = Looks()
    together = Together(looks.find)
    first = asyncio.create_task(together.get("a"))
    await until(lambda: len(looks.under_way) == 1)
    later = [asyncio.create_task(together.get("a")) for _ in range(100)]
    other = asyncio.create_task(together.get("b"))
    await until(lambda: len(looks.under_way) == 2)  # that of another key waits for nobody
    looks.under_way[0].set_result(None)
    assert await first == 0
    await until(lambda: len(looks.under_way) == 3)
    latest = asyncio.create_task(together.get("a"))
    looks.under_way[2].set_result(None)
    assert await asyncio.gather(*later) == [2] * 100, "one look, which began behind all of them"
    await until(lambda: len(looks.under_way) == 4)
    for number in (1, 3):
        looks.under_way[number].set_result(None)
    assert (await other, await latest) == (1, 3)


async def test_an_error_and_a_caller_that_goes_away_are_nobody_else_s() -> None:
    looks = Looks()
    together = Together(looks.find)
    first, second, third = (asyncio.create_task(together.get("a")) for _ in range(3))
    await until(lambda: len(looks.under_way) == 1)
    second.cancel()
    first.cancel()
    await until(lambda: len(looks.under_way) == 2)
    looks.under_way[1].set_exception(OSError("away"))
    with pytest.raises(OSError, match="away"):
        await third
    assert first.cancelled()
    assert second.cancelled()
    fourth = asyncio.create_task(together.get("a"))
    await until(lambda: len(looks.under_way) == 3)
    looks.under_way[2].set_result(None)
    assert await fourth == 2
