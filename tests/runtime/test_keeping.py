"""`keep: thread` over a real database: each run goes on with what the one before it has left, whoever starts when."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.runs import threads
from hai_flow.store.runs.run_lists import RunSummary
from tests.runtime.conftest import Make, state_of

Connection = asyncpg.Connection
COUNTING = b"""
hai: flow/v1
name: counting
version: 1
input: {type: object, properties: {by: {type: integer, default: 1}}}
state: {count: {type: integer, default: 0, keep: thread}}
steps: [{set: {count: "${{ state.count + input.by }}"}}]
"""


async def published(runtime: Runtime) -> Plan:
    return (await runtime.catalog.publish(LOCAL_TENANT, COUNTING))[1]


async def count(runtime: Runtime, plan: Plan, *, run_id: UUID | None = None, by: Any = 1) -> int:
    """Start a run in the thread "t", which ends at once; what it has counted."""
    run_id = run_id or uuid4()
    start = c.Start(run_id=run_id, thread_id="t", requester="user:local", input={"by": by})
    await runtime.starts.start(LOCAL_TENANT, plan, start, command_id=f"start:{run_id}")
    state = await state_of(runtime, run_id)
    assert state.status == "finished"
    return int(state.state["count"])


async def test_a_reader_of_kept_state_begins_before_anybody_else_in_the_thread(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has read how the last run ended, and has not begun yet; another wants to begin and end in between."""
    one, other = await make(), await make()
    plan = await published(one)
    assert await count(one, plan) == 1
    real, has_read, go_on = threads.last_run, asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> RunSummary | None:
        last = await real(*given)
        if not has_read.is_set():
            has_read.set()
            await go_on.wait()
        return last

    monkeypatch.setattr(threads, "last_run", slow)
    counting = asyncio.create_task(count(one, plan))
    await has_read.wait()
    with pytest.raises(Rejected, match="another run is active in thread t"):
        await count(other, plan)
    go_on.set()
    assert await counting == 2
    assert await count(other, plan) == 3


async def test_of_many_who_start_at_once_each_that_is_not_refused_counts(make: Make) -> None:
    runtimes = [await make(), await make()]
    plan = await published(runtimes[0])
    found = await asyncio.gather(*(count(runtimes[n % 2], plan) for n in range(20)), return_exceptions=True)
    counted = sorted(each for each in found if isinstance(each, int))
    assert counted == list(range(1, len(counted) + 1))
    assert {each.code for each in found if isinstance(each, Rejected)} <= {"thread_busy"}
    assert len(counted) + sum(isinstance(each, Rejected) for each in found) == len(found)


async def test_a_start_that_is_refused_leaves_the_thread_free(make: Make, eye: Connection) -> None:
    runtime = await make()
    plan = await published(runtime)
    with pytest.raises(Rejected) as refused:
        await count(runtime, plan, by="one")
    assert refused.value.status == 422
    assert await eye.fetchval("SELECT count(*) FROM slots") == 0
    assert await count(runtime, plan) == 1
    assert await eye.fetchval("SELECT count(*) FROM slots") == 0


async def test_a_start_repeated_after_others_is_the_same_run(make: Make, eye: Connection) -> None:
    runtime, run_id = await make(), uuid4()
    plan = await published(runtime)
    assert await count(runtime, plan, run_id=run_id) == 1
    assert await count(runtime, plan) == 2
    assert await count(runtime, plan, run_id=run_id) == 1
    assert await eye.fetchval("SELECT count(*) FROM slots") == 0
    await eye.execute("INSERT INTO slots (tenant, slot, run_id) VALUES ($1, 'thread:t', $2)", LOCAL_TENANT, uuid4())
    assert await count(runtime, plan, run_id=run_id) == 1, "a thread that is busy does not change what was started"


async def test_what_a_process_that_died_has_promised_is_taken_back(make: Make, eye: Connection) -> None:
    runtime = await make()
    plan = await published(runtime)
    await eye.execute(
        "INSERT INTO slots (tenant, slot, run_id, promised_until) VALUES ($1, 'thread:t', $2, now())",
        LOCAL_TENANT,
        uuid4(),
    )
    with pytest.raises(Rejected, match="another run is active in thread t"):
        await count(runtime, plan)
    await runtime.slots.sweep()
    assert await count(runtime, plan) == 1
