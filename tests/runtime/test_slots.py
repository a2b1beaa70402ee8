"""`concurrency` over a real database: who gets a slot, who waits, who is refused, who is stopped."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine.state.ids import derive_child_run_id
from hai_flow.engine.steps.concurrency_slots import AWAIT, FREED
from hai_flow.errors import Rejected
from hai_flow.runtime.runs.concurrency_slots import CANCELLED
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import BatchResult
from hai_flow.store.messaging import concurrency_slots
from tests.runtime.conftest import ASKING, Make, answer, is_now, is_there, open_pending, start, state_of, status_of
from tests.support.ledger import check_all
from tests.support.waiting import until

Connection = asyncpg.Connection
CUSTOMER = "input: {type: object, properties: {customer: {type: string}}}\n"


def keyed(conflict: str = "queue", limit: int = 1) -> str:
    return (
        f'concurrency: {{key: "${{{{ input.customer }}}}", limit: {limit}, on_conflict: {conflict}}}\n'
        + CUSTOMER
        + ASKING
    )


async def begin(runtime: Runtime, body: str, customer: str = "c1", **more: Any) -> UUID:
    return (await start(runtime, body, input={"customer": customer}, **more)).run_id


async def settle(runtime: Runtime, run_id: UUID) -> None:
    """Answer what the run waits for; it ends."""
    pending = await open_pending(runtime, run_id)
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(pending, by=c.LOCAL_PRINCIPAL))


async def waiters(eye: Connection) -> int:
    return int(await eye.fetchval("SELECT count(*) FROM slot_waiters"))


async def test_a_second_run_of_the_key_waits_until_the_first_has_ended(make: Make, eye: Connection) -> None:
    runtime = await make()
    first, second = await begin(runtime, keyed()), await begin(runtime, keyed())
    other = await begin(runtime, keyed(), "c2")
    assert [await status_of(runtime, run) for run in (first, second, other)] == ["waiting", "queued", "waiting"]
    names = [row[0] for row in await eye.fetch("SELECT slot FROM slots WHERE slot NOT LIKE 'thread:%' ORDER BY 1")]
    workflow = (await state_of(runtime, first)).workflow
    assert names == [f"{workflow}:c1#1", f"{workflow}:c2#1"]
    await settle(runtime, first)
    await until(lambda: is_now(runtime, second, "waiting"))
    await until(lambda: waiters_gone(eye))
    await settle(runtime, second)


async def waiters_gone(eye: Connection) -> bool:
    return not await waiters(eye)


async def test_queued_runs_begin_in_the_order_in_which_they_came(make: Make) -> None:
    runtime = await make()
    line = [await begin(runtime, keyed()) for _ in range(4)]
    for number, run in enumerate(line):
        await until(lambda run=run: is_now(runtime, run, "waiting"))
        assert [await status_of(runtime, later) for later in line[number + 1 :]] == ["queued"] * (3 - number)
        await settle(runtime, run)


async def test_as_many_run_at_once_as_the_limit_says_however_many_start_at_once(make: Make, eye: Connection) -> None:
    runtimes = [await make(), await make()]
    body = keyed(limit=3)
    starts = [begin(runtimes[number % 2], body) for number in range(12)]
    started = await asyncio.gather(*starts)
    statuses = [await status_of(runtimes[0], run) for run in started]
    assert sorted(statuses) == ["queued"] * 9 + ["waiting"] * 3
    assert await eye.fetchval("SELECT count(*) FROM slots WHERE slot NOT LIKE 'thread:%'") == 3


async def test_a_second_run_is_refused_with_the_firsts_name_where_none_queues(make: Make) -> None:
    runtime = await make()
    first = await begin(runtime, keyed("reject"))
    with pytest.raises(Rejected, match="at most one run of the concurrency key 'c1' at once") as refused:
        await begin(runtime, keyed("reject"))
    assert (refused.value.status, refused.value.code) == (409, "concurrency_busy")
    assert refused.value.winner == {"run_id": str(first), "status": "waiting"}
    await settle(runtime, first)
    assert await status_of(runtime, await begin(runtime, keyed("reject"))) == "waiting"


async def test_a_newer_run_stops_the_oldest_and_takes_its_place(make: Make) -> None:
    runtime = await make()
    first = await begin(runtime, keyed("cancel_running"))
    second = await begin(runtime, keyed("cancel_running"))
    await until(lambda: is_now(runtime, first, "stopped"))
    assert (await state_of(runtime, first)).stop_reason == CANCELLED
    await until(lambda: is_now(runtime, second, "waiting"))


async def test_a_paused_run_holds_its_key_and_one_paused_in_the_queue_is_skipped(make: Make) -> None:
    runtime = await make()
    first, second, third = [await begin(runtime, keyed()) for _ in range(3)]
    await runtime.committer.submit(first, LOCAL_TENANT, c.Pause(by="user:op"))
    await runtime.committer.submit(second, LOCAL_TENANT, c.Pause(by="user:op"))
    await runtime.slots.sweep()
    assert await status_of(runtime, third) == "queued"
    await runtime.committer.submit(first, LOCAL_TENANT, c.Stop(by="user:op"))
    await until(lambda: is_now(runtime, third, "waiting"))
    await runtime.committer.submit(second, LOCAL_TENANT, c.Resume(by="user:op"))
    assert await status_of(runtime, second) == "queued"
    await settle(runtime, third)
    await until(lambda: is_now(runtime, second, "waiting"))


async def test_a_queued_run_that_is_stopped_leaves_the_queue(make: Make, eye: Connection) -> None:
    runtime = await make()
    await begin(runtime, keyed())
    second = await begin(runtime, keyed())
    await until(lambda: waiters(eye))
    await runtime.committer.submit(second, LOCAL_TENANT, c.Stop(by="user:op"))
    await until(lambda: waiters_gone(eye))


async def test_the_same_start_again_finds_its_run_and_takes_no_second_slot(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = uuid4()
    for conflict in ("queue", "reject"):
        body, run_id = keyed(conflict, limit=2), uuid4()
        outcomes = await asyncio.gather(
            *(start(runtime, body, run_id=run_id, input={"customer": "c1"}, command_id="s") for _ in range(3))
        )
        assert sorted(outcome.already for outcome in outcomes) == [False, True, True]
        assert await eye.fetchval("SELECT count(*) FROM slots WHERE run_id = $1", run_id) == 2, "its thread, its key"


async def test_a_start_repeated_after_its_run_ended_is_not_refused_for_the_key(make: Make) -> None:
    runtime, run_id = await make(), uuid4()

    async def begin_first() -> bool:
        begun = await start(
            runtime, keyed("reject"), run_id=run_id, input={"customer": "c1"}, command_id="s", body_sha=b"s"
        )
        return begun.already

    assert not await begin_first()
    await settle(runtime, run_id)
    assert await begin_first()
    assert await status_of(runtime, await begin(runtime, keyed("reject"))) == "waiting"
    assert await begin_first()


async def test_a_run_whose_wait_is_known_when_the_slot_is_free_begins_at_once(make: Make, eye: Connection) -> None:
    runtime = await make()
    first = await begin(runtime, keyed())
    await runtime.delivery.stop()
    second = await begin(runtime, keyed())
    assert await status_of(runtime, second) == "queued"
    await settle(runtime, first)
    assert {row[0] for row in await eye.fetch("SELECT kind FROM outbox")} == {AWAIT, FREED}
    await eye.execute("UPDATE outbox SET due_at = now() + interval '1 day' WHERE kind = $1", AWAIT)
    await runtime.delivery.start()
    await until(lambda: eye.fetchval("SELECT NOT EXISTS (SELECT FROM outbox WHERE kind = $1)", FREED))
    assert await status_of(runtime, second) == "queued"
    await eye.execute("UPDATE outbox SET due_at = now()")
    await until(lambda: is_now(runtime, second, "waiting"))


async def test_a_run_paused_during_admission_passes_the_slot_and_keeps_its_place(make: Make, eye: Connection) -> None:
    runtime = await make()
    first, second, third = [await begin(runtime, keyed()) for _ in range(3)]
    await until(lambda: two_wait(eye))
    key = f"{(await state_of(runtime, first)).workflow}:c1"
    await runtime.delivery.stop()
    await settle(runtime, first)
    seated = await concurrency_slots.seat_waiters(runtime.database.api, LOCAL_TENANT, key)
    assert [seat.run_id for seat in seated] == [second]
    await runtime.committer.submit(second, LOCAL_TENANT, c.Pause(by="user:op"))
    await runtime.slots.admit(LOCAL_TENANT, key)
    assert [await status_of(runtime, run) for run in (second, third)] == ["paused", "waiting"]
    assert [row[0] for row in await eye.fetch("SELECT run_id FROM slot_waiters")] == [second]
    await runtime.committer.submit(second, LOCAL_TENANT, c.Resume(by="user:op"))
    await settle(runtime, third)
    fourth = await begin(runtime, keyed())
    assert [await status_of(runtime, run) for run in (second, fourth)] == ["queued", "queued"]
    await runtime.delivery.start()
    await until(lambda: is_now(runtime, second, "waiting"))
    assert await status_of(runtime, fourth) == "queued"


async def test_a_start_that_is_refused_leaves_no_slot_behind(make: Make, eye: Connection) -> None:
    runtime = await make()
    await begin(runtime, keyed(), "c1", thread="t")
    with pytest.raises(Rejected, match="another run is active"):
        await begin(runtime, keyed(), "c2", thread="t")
    assert await eye.fetchval("SELECT count(*) FROM slots WHERE slot LIKE '%:c2#%'") == 0


async def end_promises(eye: Connection) -> None:
    await eye.execute("UPDATE slots SET promised_until = now() WHERE promised_until IS NOT NULL")


async def test_the_sweep_admits_a_dead_process_seated_run_and_frees_empty_seats(make: Make, eye: Connection) -> None:
    runtime = await make()
    first, second = await begin(runtime, keyed()), await begin(runtime, keyed())
    await until(lambda: waiters(eye))
    workflow = (await state_of(runtime, first)).workflow
    await runtime.delivery.stop()  # who would admit the next one has died
    await settle(runtime, first)
    seated = await concurrency_slots.seat_waiters(runtime.database.api, LOCAL_TENANT, f"{workflow}:c1")
    assert [(seat.run_id, seat.status) for seat in seated] == [(second, "queued")]
    await end_promises(eye)
    await runtime.slots.sweep()
    assert await status_of(runtime, second) == "waiting"
    await concurrency_slots.take_slot(runtime.database.api, LOCAL_TENANT, "other:k", 1, uuid4())
    await end_promises(eye)
    await runtime.slots.sweep()
    assert await eye.fetchval("SELECT count(*) FROM slots WHERE slot LIKE 'other%'") == 0
    assert await eye.fetchval("SELECT count(*) FROM slots WHERE run_id = $1", second) == 2


async def test_a_queued_run_keeps_its_thread_after_an_upgrade_from_promises(make: Make, eye: Connection) -> None:
    runtime = await make()
    first, second = await begin(runtime, keyed()), await begin(runtime, keyed(), thread="t")
    await eye.execute("UPDATE slots SET promised_until = now() WHERE slot = 'thread:t'")  # by the column's default
    await runtime.slots.sweep()
    with pytest.raises(Rejected, match="another run is active in thread t"):
        await begin(runtime, keyed(), "c2", thread="t")
    await settle(runtime, first)
    await until(lambda: is_now(runtime, second, "waiting"))
    assert await eye.fetchval("SELECT promised_until IS NULL FROM slots WHERE slot = 'thread:t'")


class Delay:
    """Holds back every commit of a process until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> None:
        self._open = asyncio.Event()
        self.held = 0
        commit = commits.commit
        worker_id = -7  # no process's: the commits of this one are known by it
        runtime.committer.worker_id = worker_id

        async def delayed(connection: Any, entries: Any, worker: int | None, at: Any) -> BatchResult:
            if worker == worker_id:
                self.held += 1
                await self._open.wait()
            return await commit(connection, entries, worker, at)

        monkeypatch.setattr(commits, "commit", delayed)

    def end(self) -> None:
        self._open.set()


@pytest.mark.parametrize("conflict", ["queue", "reject"])
async def test_a_start_delayed_until_its_slot_was_anothers_is_decided_again(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, conflict: str
) -> None:
    slow, quick = await make(), await make()
    delay = Delay(monkeypatch, slow)
    starting = asyncio.create_task(begin(slow, keyed(conflict)))
    await until(lambda: delay.held)
    await end_promises(eye)
    await quick.slots.sweep()
    second = await begin(quick, keyed(conflict))
    assert await status_of(quick, second) == "waiting"
    delay.end()
    if conflict == "reject":
        with pytest.raises(Rejected, match="at most one run") as refused:
            await starting
        assert refused.value.winner == {"run_id": str(second), "status": "waiting"}
        return
    first = await starting
    assert await status_of(quick, first) == "queued"
    await settle(quick, second)
    await until(lambda: is_now(quick, first, "waiting"))


async def test_an_admission_delayed_until_the_slot_was_anothers_waits_on(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = await make()
    first, second, third = [await begin(quick, keyed()) for _ in range(3)]
    await until(lambda: two_wait(eye))
    workflow = (await state_of(quick, first)).workflow
    slow = await make()
    delay = Delay(monkeypatch, slow)
    await quick.delivery.stop()
    await slow.delivery.stop()
    await settle(quick, first)
    admitting = asyncio.create_task(slow.slots.admit(LOCAL_TENANT, f"{workflow}:c1"))
    await until(lambda: delay.held)
    await quick.committer.submit(second, LOCAL_TENANT, c.Pause(by="user:op"))
    await end_promises(eye)
    await quick.slots.sweep()
    assert [await status_of(quick, run) for run in (second, third)] == ["paused", "waiting"]
    await quick.committer.submit(second, LOCAL_TENANT, c.Resume(by="user:op"))
    delay.end()
    await admitting
    assert [await status_of(quick, run) for run in (second, third)] == ["queued", "waiting"]


async def two_wait(eye: Connection) -> bool:
    return await waiters(eye) == 2


async def test_a_refused_start_gives_its_slot_to_the_next_in_the_queue(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = await make(), await make()
    await begin(quick, keyed(), "c1", thread="t")
    delay = Delay(monkeypatch, slow)
    refused = asyncio.create_task(begin(slow, keyed(), "c2", thread="t"))
    await until(lambda: delay.held)
    second = await begin(quick, keyed(), "c2")
    assert await status_of(quick, second) == "queued"
    await until(lambda: waiters(eye))
    delay.end()
    with pytest.raises(Rejected, match="another run is active"):
        await refused
    await until(lambda: is_now(quick, second, "waiting"))


async def test_a_start_whose_input_does_not_fit_takes_no_slot(make: Make, eye: Connection) -> None:
    runtime = await make()
    with pytest.raises(Rejected, match="does not fit"):
        await start(runtime, keyed(), input={"customer": 7})
    assert await eye.fetchval("SELECT count(*) FROM slots") == 0


async def test_active_runs_stay_within_the_limit_while_others_end_and_begin(make: Make, eye: Connection) -> None:
    runtimes = [await make(performs=True), await make(performs=True)]
    started = await asyncio.gather(*(begin(runtimes[n % 2], keyed(limit=3)) for n in range(12)))
    ended: set[UUID] = set()
    while len(ended) < len(started):
        active = await eye.fetch("SELECT id, status FROM runs WHERE status IN ('running', 'waiting', 'stopping')")
        assert len(active) <= 3
        for run_id, status in active:
            if status == "waiting":
                await settle(runtimes[1], run_id)
                ended.add(run_id)
    await until(lambda: waiters_gone(eye))
    assert await eye.fetchval("SELECT count(*) FROM slots") == 0
    assert len(await check_all(eye)) == 12


async def test_of_several_the_oldest_are_stopped_so_that_the_newest_have_slots(make: Make) -> None:
    runtime = await make()
    line = [await begin(runtime, keyed("cancel_running", limit=2)) for _ in range(4)]
    for run in line[2:]:
        await until(lambda run=run: is_now(runtime, run, "waiting"))
    assert [await status_of(runtime, run) for run in line] == ["stopped", "stopped", "waiting", "waiting"]


FAILING = keyed() + '  - {id: luck, if: "!steps.sure.output.ok", fail: {message: No luck., code: luck}}\n'


async def test_a_failed_run_that_is_retried_needs_a_slot_again_and_waits_for_it(make: Make, eye: Connection) -> None:
    runtime = await make()
    first = await begin(runtime, FAILING)
    pending = await open_pending(runtime, first)
    await runtime.committer.submit(first, LOCAL_TENANT, answer(pending, False, by=c.LOCAL_PRINCIPAL))
    assert await status_of(runtime, first) == "failed"
    second = await begin(runtime, FAILING)
    assert await status_of(runtime, second) == "waiting", "the end of the first has freed its slot"
    await runtime.committer.submit(first, LOCAL_TENANT, c.Retry(by="user:op"))
    assert await status_of(runtime, first) == "queued"
    third = await begin(runtime, FAILING)
    await settle(runtime, second)
    await until(lambda: is_now(runtime, first, "failed"))  # it has done again what failed, with a slot
    await until(lambda: is_now(runtime, third, "waiting"))
    await settle(runtime, third)
    await until(lambda: no_keys(eye))


async def no_keys(eye: Connection) -> bool:
    return not await eye.fetchval("SELECT count(*) FROM slots") and not await waiters(eye)


# --- children -------------------------------------------------------------------------------------------------------

INNER = "hai: flow/v1\nname: inner\nversion: 1\nconcurrency: {key: one, on_conflict: %s}\n" + ASKING
OUTER = "steps:\n  - {id: sub, run: inner}\n"
TREE = """
hai: flow/v1
name: tree
version: 1
input: {type: object, properties: {depth: {type: integer, default: 2}}}
concurrency: {key: one}
steps:
  - {id: sub, if: input.depth > 0, run: tree, with: {depth: "${{ input.depth - 1 }}"}}
output: done
"""


async def begin_published(runtime: Runtime, document: str) -> UUID:
    _, plan = await runtime.catalog.publish(LOCAL_TENANT, document.encode())
    run_id = uuid4()
    command = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, command)
    return run_id


async def test_a_child_waits_for_its_key_like_any_run(make: Make) -> None:
    runtime = await make()
    first = await begin_published(runtime, INNER % "queue")
    parent = (await start(runtime, OUTER)).run_id
    child = UUID(derive_child_run_id(str(parent), "sub", 1))
    await until(lambda: is_there(runtime, child, "queued"))
    await settle(runtime, first)
    await until(lambda: is_there(runtime, child, "waiting"))
    await settle(runtime, child)
    await until(lambda: is_now(runtime, parent, "finished"))


async def test_a_child_that_is_refused_its_key_fails_the_step_of_its_parent(make: Make, eye: Connection) -> None:
    runtime = await make()
    await begin_published(runtime, INNER % "reject")
    parent = (await start(runtime, OUTER)).run_id
    await until(lambda: is_now(runtime, parent, "failed"))
    error = (await state_of(runtime, parent)).error
    assert error is not None
    assert "at most one run of the concurrency key 'one'" in str(error)
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2


async def test_a_stopped_parent_takes_its_queued_child_out_of_the_queue(make: Make, eye: Connection) -> None:
    runtime = await make()
    await begin_published(runtime, INNER % "queue")
    parent = (await start(runtime, OUTER)).run_id
    child = UUID(derive_child_run_id(str(parent), "sub", 1))
    await until(lambda: is_there(runtime, child, "queued"))
    await runtime.committer.submit(parent, LOCAL_TENANT, c.Stop(by="user:op"))
    await until(lambda: is_now(runtime, parent, "stopped"))
    await until(lambda: is_now(runtime, child, "stopped"))
    await until(lambda: waiters_gone(eye))


async def test_children_share_the_slot_of_the_run_above_them(make: Make, eye: Connection) -> None:
    runtime = await make()
    await runtime.catalog.publish(LOCAL_TENANT, TREE.encode())
    parent = await begin_published(runtime, TREE)
    await until(lambda: is_now(runtime, parent, "finished"))
    assert await eye.fetchval("SELECT count(*) FROM runs WHERE status = 'finished'") == 3
    await until(lambda: no_keys(eye))
