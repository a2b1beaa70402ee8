"""What a process knows of a run may be old: nothing is refused, forgotten or done twice because of that."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.snapshot import encode_state
from hai_flow.errors import Rejected
from hai_flow.runtime.commit import states
from hai_flow.runtime.commit.cached_run import STATE_OVERHEAD_BYTES
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import BatchResult
from hai_flow.store.identity import tenants
from hai_flow.store.ops import retention
from hai_flow.store.runs import logs
from tests.runtime.conftest import (
    ASKING,
    GATED,
    LISTENING,
    TOOLS,
    Connection,
    Make,
    answer,
    is_now,
    note,
    open_pending,
    start,
    state_of,
)  # fmt: skip
from tests.support.ledger import log_of
from tests.support.values import require
from tests.support.waiting import until


async def submit(runtime: Runtime, run_id: UUID, command: c.Command) -> Outcome:
    return await runtime.committer.submit(run_id, LOCAL_TENANT, command)


async def test_an_answer_to_what_another_process_has_just_asked_is_taken(make: Make) -> None:
    a, b = await make(), await make()
    twice = ASKING + ASKING.removeprefix("steps:\n").replace("id: sure", "id: really")
    run_id = (await start(a, twice)).run_id
    await submit(b, run_id, answer(await open_pending(a, run_id)))
    assert (await submit(a, run_id, answer(await open_pending(b, run_id)))).status == "finished"


async def test_what_another_process_has_undone_is_not_so_already(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    await submit(a, run_id, c.Pause(by="user:local"))
    await submit(b, run_id, c.Resume(by="user:local"))
    again = await submit(a, run_id, c.Pause(by="user:local"))
    assert (again.status, again.already) == ("paused", False)


@pytest.mark.parametrize("robberies", [1, 3])
async def test_commands_that_lost_come_again_in_their_order(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, robberies: int
) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, LISTENING)).run_id
    real, robbed = commits.commit, 0

    async def late(connection: Any, entries: Any, *more: Any) -> BatchResult:
        """B moves the run right before A's commit: as long as A does not lock it."""
        nonlocal robbed
        if robbed < robberies and not connection.is_in_transaction() and asyncio.current_task() in a.committer._tasks:
            robbed += 1
            await submit(b, run_id, note(f"b{robbed}"))
        return await real(connection, entries, *more)

    monkeypatch.setattr(commits, "commit", late)
    await asyncio.gather(*(submit(a, run_id, note(f"a{number}")) for number in range(3)))
    taken = [event.id for event in await log_of(eye, run_id) if isinstance(event, e.SignalReceived)]
    assert taken == [*(f"b{number + 1}" for number in range(robberies)), "a0", "a1", "a2"]


async def test_a_run_that_is_retried_has_its_thread_for_itself_again(make: Make) -> None:
    runtime = await make(performs=True)
    body = TOOLS + "steps:\n  - {id: wait, call: fx.gated, timeout: 1s, retry: {max: 0}}\n"
    run_id = (await start(runtime, body, thread="t")).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    assert runtime.worker is not None
    worker = runtime.worker
    await until(lambda: not worker._attempts)  # what took too long does not go on
    await submit(runtime, run_id, c.Retry(by="user:local"))
    with pytest.raises(Rejected) as refused:
        await start(runtime, ASKING, thread="t")
    assert refused.value.code == "thread_busy"


# --- a run that was read, and a command behind that -------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The runs that committers have loaded since."""
    loaded: list[UUID] = []
    real = logs.load_runs

    async def load(connection: Any, run_ids: Any, *more: Any) -> Any:
        loaded.extend(run_ids)
        return await real(connection, run_ids, *more)

    monkeypatch.setattr(logs, "load_runs", load)
    return loaded


async def test_a_run_that_was_read_for_a_command_is_not_loaded_for_it(make: Make, loads: list[UUID]) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    await b.catalog.plan(LOCAL_TENANT, bytes.fromhex((await state_of(b, run_id)).sha256))
    assert (await submit(b, run_id, answer(await open_pending(b, run_id)))).status == "finished"
    assert loads == []
    assert encode_state(await state_of(b, run_id)) == encode_state(await state_of(await make(), run_id))


@pytest.mark.parametrize("command", [c.Pause(by="user:local"), c.Resume(by="user:local")])
async def test_a_run_that_has_moved_since_it_was_read_is_decided_as_it_is(
    make: Make, loads: list[UUID], command: c.Command
) -> None:
    """By the reading, one would lose and the other be refused."""
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    await b.catalog.plan(LOCAL_TENANT, bytes.fromhex((await state_of(b, run_id)).sha256))
    await state_of(b, run_id)
    await submit(a, run_id, c.Pause(by="user:local"))
    outcome = await submit(b, run_id, command)
    assert (outcome.already, outcome.status) == (
        (True, "paused") if isinstance(command, c.Pause) else (False, "waiting")
    )
    assert loads == [run_id]


async def test_a_run_that_somebody_holds_is_loaded_whoever_has_read_it(make: Make, loads: list[UUID]) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, GATED)).run_id
    await b.catalog.plan(LOCAL_TENANT, bytes.fromhex((await state_of(b, run_id)).sha256))
    await state_of(b, run_id)
    assert (await submit(b, run_id, c.Pause(by="user:local"))).status == "paused"
    assert loads == [run_id]


async def test_a_state_of_the_past_is_no_reading_of_the_run(make: Make, loads: list[UUID]) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    now = await state_of(a, run_id)
    await b.catalog.plan(LOCAL_TENANT, bytes.fromhex(now.sha256))
    for seq in range(1, now.seq):
        assert (await state_of(b, run_id, seq)).seq == seq
        assert b.committer._reads.take(run_id) is None
    assert (await submit(b, run_id, answer(await open_pending(a, run_id)))).status == "finished"
    assert loads == [run_id]


async def test_a_run_of_another_tenant_is_unknown_though_it_was_read(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    await b.catalog.plan(LOCAL_TENANT, bytes.fromhex((await state_of(b, run_id)).sha256))
    await state_of(b, run_id)
    with pytest.raises(Rejected) as refused:
        await b.committer.submit(run_id, uuid4(), c.Pause(by="user:op"))
    assert refused.value.code == "run_unknown"


async def test_readings_are_kept_within_bounds(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = await make(), await make()
    ids = [(await start(a, ASKING)).run_id for _ in range(3)]
    await b.catalog.plan(LOCAL_TENANT, bytes.fromhex((await state_of(b, ids[0])).sha256))
    monkeypatch.setattr(states, "RECENT_BYTES_MAX", 3 * STATE_OVERHEAD_BYTES)  # two of them, with their short logs
    for each in ids:
        await state_of(b, each)
    reads = b.committer._reads
    assert [reads.take(each) is not None for each in ids] == [False, True, True]
    assert reads._bytes == 0
    await state_of(b, ids[0])
    monkeypatch.setattr(states, "RECENT_SECONDS", 0.0)
    assert reads.take(ids[0]) is None


async def test_a_reading_that_is_too_large_to_be_kept_drops_no_other(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    small, large = (await start(a, ASKING)).run_id, (await start(a, FORM, input={"value": "x" * 100_000})).run_id
    for each in (small, large):
        await b.catalog.plan(LOCAL_TENANT, bytes.fromhex((await state_of(b, each)).sha256))
    monkeypatch.setattr(states, "RECENT_BYTES_MAX", 50_000)
    for each in (small, large):
        await state_of(b, each)
    reads = b.committer._reads
    assert [reads.take(each) is not None for each in (small, large)] == [True, False]
    assert reads._bytes == 0


# --- a run that was removed, and another that began with its id -------------------------------------------------------

FORM = "input: {type: object, properties: {value: {type: string}}}\n" + ASKING


async def begin_anew(a: Runtime, b: Runtime, eye: Connection) -> UUID:
    """A run of which `b` knows one that ended elsewhere and was removed: as many events and decisions, other values."""
    run_id = uuid4()
    await start(b, FORM, run_id=run_id, input={"value": "removed"})
    await submit(a, run_id, c.Terminate(by="user:op"))
    assert await retention.remove(eye, await retention.list_unit(eye, LOCAL_TENANT, str(run_id)), None, "user:op")
    while await retention.clear(eye, [run_id], 1000):
        pass
    await start(a, FORM, run_id=run_id, input={"value": "anew"})
    known = require(b.committer.peek(run_id))
    assert (known.state.input, known.version) == ({"value": "removed"}, 1)
    return run_id


async def test_a_run_that_was_removed_is_not_read_in_one_of_its_id(make: Make, eye: Connection) -> None:
    a, b = await make(), await make()
    run_id = await begin_anew(a, b, eye)
    assert encode_state(await state_of(b, run_id)) == encode_state(await state_of(await make(), run_id))


@pytest.mark.parametrize("load", ["by a loss", "by a refresh", "under a lock"])
async def test_a_decision_is_on_the_run_that_is_there(make: Make, eye: Connection, load: str) -> None:
    a, b = await make(), await make()
    run_id = await begin_anew(a, b, eye)
    known = require(b.committer.peek(run_id))
    if load == "by a refresh":
        b.committer.refresh(run_id)
        await until(lambda: not known.queued)
    elif load == "under a lock":
        known.demand_lock()
    await submit(b, run_id, c.Pause(by="user:op"))
    assert known.state.input == {"value": "anew"}
    assert encode_state(known.state) == encode_state(await state_of(await make(), run_id))


async def test_what_the_database_has_lost_is_forgotten(make: Make, eye: Connection) -> None:
    """A standby that took over may lack the last commits."""
    runtime = await make()
    run_id = (await start(runtime, ASKING)).run_id
    end = (await state_of(runtime, run_id)).seq
    await submit(runtime, run_id, c.Pause(by="user:op"))
    await eye.execute("DELETE FROM log WHERE run_id = $1 AND last_seq > $2", run_id, end)
    await eye.execute("UPDATE runs SET seq = $2, version = version - 1, status = 'waiting' WHERE id = $1", run_id, end)
    await submit(runtime, run_id, c.Pause(by="user:op"))
    assert (await state_of(runtime, run_id)).seq == end + 1


async def test_a_run_of_the_id_of_one_of_another_tenant_is_found(make: Make, eye: Connection) -> None:
    """A refusal of what is only remembered would tell one tenant of the other, too."""
    a, b = await make(), await make()
    run_id, other = uuid4(), require(await tenants.create_tenant(eye, "globex")).id
    await start(b, ASKING, run_id=run_id)
    await submit(a, run_id, c.Terminate(by="user:op"))
    assert await retention.remove(eye, await retention.list_unit(eye, LOCAL_TENANT, str(run_id)), None, "user:op")
    while await retention.clear(eye, [run_id], 1000):
        pass
    _, plan = await a.catalog.publish(other, b"hai: flow/v1\nname: asks\nversion: 1\n" + ASKING.encode())
    await a.starts.start(other, plan, c.Start(run_id=run_id, thread_id="t", requester="user:op", input={}))
    assert (await b.committer.submit(run_id, other, c.Pause(by="user:op"))).status == "paused"
