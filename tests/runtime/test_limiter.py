"""A limiter: so many at once, in the order of those that wait, and none is lost by a cancellation."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from hai_flow.runtime.worker.concurrency import Limiter

COUNT: Final = 3


def test_as_many_places_as_there_are_are_taken_without_waiting() -> None:
    limiter = Limiter(COUNT)
    assert [limiter.take() for _ in range(COUNT + 1)] == [True, True, True, False]
    limiter.leave()
    assert limiter.take()


async def test_waiters_get_their_places_in_order_and_before_newcomers() -> None:
    limiter, order = Limiter(1), []
    assert limiter.take()

    async def have(name: str) -> None:
        await limiter.wait()
        order.append(name)

    waiting = [asyncio.create_task(have(name)) for name in "abc"]
    await asyncio.sleep(0)
    limiter.leave()
    assert not limiter.take(), "it is a's"
    for task in waiting:
        await task
        limiter.leave()
    assert order == ["a", "b", "c"]
    assert limiter.take()


@pytest.mark.parametrize("given", [False, True])
async def test_a_place_whose_taker_was_cancelled_is_the_next_one_s(given: bool) -> None:
    limiter = Limiter(1)
    assert limiter.take()
    first, second = asyncio.create_task(limiter.wait()), asyncio.create_task(limiter.wait())
    await asyncio.sleep(0)
    if given:
        limiter.leave()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    if not given:
        limiter.leave()
    await asyncio.wait_for(second, 20)
    limiter.leave()
    assert limiter.take()


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_cancelled_there_are_as_many_places_as_at_first(seed: int) -> None:
    limiter, chance, inside = Limiter(COUNT), random.Random(seed), 0

    async def stay(turns: int) -> None:
        nonlocal inside
        if not limiter.take():
            await limiter.wait()
        try:
            inside += 1
            assert inside <= COUNT
            for _ in range(turns):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            limiter.leave()

    tasks: list[asyncio.Task[None]] = []
    for _ in range(200):
        if tasks and chance.random() < 0.4:
            chance.choice(tasks).cancel()
        else:
            tasks.append(asyncio.create_task(stay(chance.randrange(4))))
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.wait(tasks)
    assert not [task for task in tasks if not task.cancelled() and task.exception()]
    assert [limiter.take() for _ in range(COUNT + 1)] == [True, True, True, False]
