"""Places: so many at once, in the order of those that wait, and none is lost by a cancellation."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

from hai_flow.runtime.places import Places

COUNT: Final = 3


def test_as_many_places_as_there_are_are_taken_without_waiting() -> None:
    places = Places(COUNT)
    assert [places.take() for _ in range(COUNT + 1)] == [True, True, True, False]
    places.leave()
    assert places.take()


async def test_those_that_wait_get_their_places_in_their_order_and_before_those_that_come() -> None:
    places, order = Places(1), []
    assert places.take()

    async def have(name: str) -> None:
        await places.wait()
        order.append(name)

    waiting = [asyncio.create_task(have(name)) for name in "abc"]
    await asyncio.sleep(0)
    places.leave()
    assert not places.take(), "it is a's"
    for task in waiting:
        await task
        places.leave()
    assert order == ["a", "b", "c"]
    assert places.take()


@pytest.mark.parametrize("given", [False, True])
async def test_a_place_whose_taker_was_cancelled_is_the_next_one_s(given: bool) -> None:
    places = Places(1)
    assert places.take()
    first, second = asyncio.create_task(places.wait()), asyncio.create_task(places.wait())
    await asyncio.sleep(0)
    if given:
        places.leave()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    if not given:
        places.leave()
    await asyncio.wait_for(second, 5)
    places.leave()
    assert places.take()


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_is_cancelled_there_are_as_many_places_as_at_first(seed: int) -> None:
    places, chance, inside = Places(COUNT), random.Random(seed), 0

    async def stay(turns: int) -> None:
        nonlocal inside
        if not places.take():
            await places.wait()
        try:
            inside += 1
            assert inside <= COUNT
            for _ in range(turns):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            places.leave()

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
    assert [places.take() for _ in range(COUNT + 1)] == [True, True, True, False]
