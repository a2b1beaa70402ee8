"""Who waits for a thread's next run is told of it, whoever starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.streams.thread_feed import Threads
from hai_flow.store.runs import threads as rows
from hai_flow.store.runs.threads import Position
from tests.runtime.conftest import ASKING, Connection, Make, answer, open_pending, start, state_of
from tests.support.waiting import until

PLAIN = "steps:\n  - {say: hello}\n"


async def place_of(runtime: Runtime, thread: str) -> Position:
    (place,) = (await rows.newest_positions(runtime.database.api, [(LOCAL_TENANT, thread)])).values()
    return place


def waiting(runtime: Runtime, thread: str, known: Position | None = None) -> asyncio.Task[None]:
    return asyncio.create_task(runtime.threads.news(LOCAL_TENANT, thread, known))


async def test_the_first_run_of_a_thread_is_news_wherever_it_starts(make: Make) -> None:
    here, there = await make(), await make()
    first, second, other = waiting(here, "t"), waiting(here, "t"), waiting(here, "another")
    await start(there, PLAIN, thread="t")
    await asyncio.wait_for(asyncio.gather(first, second), 20)
    assert not other.done()
    other.cancel()


async def test_what_is_known_is_no_news_until_the_run_gets_further(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, ASKING, thread="t")).run_id
    known = await place_of(runtime, "t")
    assert known == (run_id, (await state_of(runtime, run_id)).seq)
    await asyncio.wait_for(waiting(runtime, "t"), 20)
    task = waiting(runtime, "t", known)
    pending = await open_pending(runtime, known.run_id)
    await runtime.committer.submit(known.run_id, LOCAL_TENANT, answer(pending), command_id=None, body_sha=b"")
    await asyncio.wait_for(task, 20)
    assert (await place_of(runtime, "t")).seq > known.seq


async def test_who_stops_waiting_leaves_nothing_behind(make: Make) -> None:
    runtime = await make()
    task = waiting(runtime, "t")
    await until(lambda: _is(runtime.threads, 1))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await _is(runtime.threads, 0)


async def test_a_database_that_fails_once_is_asked_again(make: Make, eye: Connection) -> None:
    runtime = await make()
    look: Callable[[], Coroutine[Any, Any, None]] = runtime.threads._look
    asked = 0

    async def failing() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError("the connection is gone")
        await look()

    runtime.threads._look = failing  # type: ignore[method-assign]
    task = waiting(runtime, "t")
    await start(runtime, PLAIN, thread="t", run_id=uuid4())
    await asyncio.wait_for(task, 20)
    assert asked > 1


async def _is(threads: Threads, number: int) -> bool:
    return len(threads._waiting) == number


async def test_another_run_is_news_even_behind_the_position_of_the_last(make: Make) -> None:
    runtime = await make()
    first = (await start(runtime, PLAIN, thread="t")).run_id
    known = Position(first, 1_000_000)
    task = waiting(runtime, "t", known)
    await asyncio.wait_for(task, 20)
    far = waiting(runtime, "t", await place_of(runtime, "t"))
    second = (await start(runtime, PLAIN, thread="t")).run_id
    await asyncio.wait_for(far, 20)
    assert (await place_of(runtime, "t")).run_id == second
