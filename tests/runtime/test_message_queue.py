"""Messages that wait for the end of a run, where processes die in between."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine.steps.concurrency_slots import THREAD_FREED
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.messaging import message_queue
from tests.runtime.conftest import ASKING, Make, answer, is_now, open_pending, start, state_of
from tests.support.waiting import until

Connection = asyncpg.Connection
BODY = "on_message: enqueue\n" + ASKING


async def enqueue(runtime: Runtime, behind: UUID, run_id: UUID | None = None) -> UUID:
    state = await state_of(runtime, behind)
    run_id = run_id or uuid4()
    command = c.Start(run_id=run_id, thread_id=state.thread_id, requester="user:local", input={}, message="next")
    await runtime.messages.add(
        LOCAL_TENANT,
        bytes.fromhex(state.sha256),
        command,
        AuditActor(who=c.LOCAL_PRINCIPAL, way="local"),
        command_id=f"wire:{run_id}",
        body_sha=b"b" * 32,
    )
    return run_id


async def exists(eye: Connection, run_id: UUID) -> bool:
    return bool(await eye.fetchval("SELECT EXISTS (SELECT FROM runs WHERE id = $1)", run_id))


async def queued(eye: Connection) -> int:
    return int(await eye.fetchval("SELECT count(*) FROM queued_messages"))


async def test_the_sweep_starts_the_run_whose_turn_nobody_noticed(make: Make, eye: Connection) -> None:
    """As where the process died that had the end's message, and the message was given out for the last time."""
    runtime = await make()
    runtime.delivery.handlers[THREAD_FREED] = _forgets
    first = (await start(runtime, BODY)).run_id
    second = await enqueue(runtime, first)
    await runtime.committer.submit(first, LOCAL_TENANT, answer(await open_pending(runtime, first)))
    assert not await exists(eye, second)
    await runtime.messages.sweep()
    assert await is_now(runtime, second, "waiting")
    assert await queued(eye) == 0


async def _forgets(message: object) -> None:
    pass


async def test_the_sweep_leaves_alone_what_waits_for_a_run(make: Make, eye: Connection) -> None:
    runtime = await make()
    first = (await start(runtime, BODY)).run_id
    second = await enqueue(runtime, first)
    await runtime.messages.sweep()
    assert not await exists(eye, second)
    assert await queued(eye) == 1


async def test_a_message_that_comes_as_the_run_ends_starts_its_run_at_once(make: Make, eye: Connection) -> None:
    runtime = await make()
    first = (await start(runtime, BODY)).run_id
    await runtime.committer.submit(first, LOCAL_TENANT, answer(await open_pending(runtime, first)))
    second = await enqueue(runtime, first)
    assert await is_now(runtime, second, "waiting")
    assert await queued(eye) == 0


async def test_a_message_whose_row_outlived_its_start_starts_no_second_run(make: Make, eye: Connection) -> None:
    runtime = await make()
    first = (await start(runtime, BODY)).run_id
    await runtime.committer.submit(first, LOCAL_TENANT, answer(await open_pending(runtime, first)))
    second = await enqueue(runtime, first)
    await enqueue(runtime, first, second)
    assert await queued(eye) == 0
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2


async def test_two_processes_that_notice_the_end_start_one_run_of_each_message(make: Make, eye: Connection) -> None:
    runtime, other = await make(), await make()
    first = (await start(runtime, BODY)).run_id
    line = [await enqueue(runtime, first) for _ in range(3)]
    await runtime.committer.submit(first, LOCAL_TENANT, answer(await open_pending(runtime, first)))
    for number, run_id in enumerate(line):
        for each in (runtime, other):
            await each.messages.advance(LOCAL_TENANT, str(first))
        await until(lambda run_id=run_id: exists(eye, run_id))
        await until(lambda run_id=run_id: is_now(runtime, run_id, "waiting"))
        assert await eye.fetchval("SELECT count(*) FROM runs") == number + 2
        await runtime.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(runtime, run_id)))
    await until(lambda: is_empty(eye))


async def is_empty(eye: Connection) -> bool:
    return not await queued(eye)


async def test_messages_that_were_refused_long_ago_are_removed(make: Make, eye: Connection) -> None:
    runtime = await make()
    first = (await start(runtime, BODY)).run_id
    await enqueue(runtime, first)
    await eye.execute("UPDATE queued_messages SET refused = '{}', refused_at = now() - interval '25 hours'")
    await runtime.messages.sweep()
    assert await queued(eye) == 0


@pytest.mark.parametrize("status", [429, 503])
async def test_a_message_that_meets_a_limit_is_kept_until_there_is_room(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    runtime = await make()
    first = (await start(runtime, BODY)).run_id
    second = await enqueue(runtime, first)
    begin, full = runtime.messages._starts.start, True

    async def limited(*given: Any, **more: Any) -> Any:
        if full:
            raise Rejected(status, "tenant_runs", "too many")
        return await begin(*given, **more)

    monkeypatch.setattr(runtime.messages._starts, "start", limited)
    runtime.delivery.handlers[THREAD_FREED] = _forgets
    await runtime.committer.submit(first, LOCAL_TENANT, answer(await open_pending(runtime, first)))
    await runtime.messages.sweep()
    assert await eye.fetchval("SELECT refused IS NULL FROM queued_messages WHERE run_id = $1", second)
    full = False
    await eye.execute("UPDATE sweeps SET due_at = now()")
    await runtime.messages.sweep()
    assert await is_now(runtime, second, "waiting")


async def test_a_full_queue_keeps_what_it_has_and_refuses_what_is_new(make: Make, eye: Connection) -> None:
    runtime = await make()
    first = (await start(runtime, BODY)).run_id
    line = [await enqueue(runtime, first) for _ in range(message_queue.WAITING_MAX)]
    for known in (line[0], line[-1]):  # the same message again is no new one
        assert await enqueue(runtime, first, known) == known
    with pytest.raises(Rejected, match="wait for the end of its run"):
        await enqueue(runtime, first)
    assert await queued(eye) == message_queue.WAITING_MAX
