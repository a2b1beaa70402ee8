"""A freeze reaches every process within a pulse, and what it held goes on when it is over, whoever was killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.steps.held_steps import Mode, Scope
from hai_flow.errors import Rejected
from hai_flow.runtime.commit import committer
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.worker import thaws
from hai_flow.store.ops import freezes as store
from hai_flow.store.ops.freezes import FreezeRow
from hai_flow.store.people import rules
from tests.runtime.conftest import ECHO, GATED, TOOLS, Connection, Make, is_now, start, state_of
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.waiting import until

TWO = TOOLS + "steps:\n  - {id: first, call: fx.gated}\n  - {id: second, call: fx.echo, with: {value: done}}\n"


async def freeze(
    connection: Connection, scope: Scope = "all", name: str = "", mode: Mode = "frozen", tenant: UUID | None = None
) -> FreezeRow:
    async with connection.transaction():
        row, _ = await store.freeze(connection, uuid4(), tenant, None, mode, scope, name, "a drill", "user:op")
    return row


async def thaw(connection: Connection, row: FreezeRow) -> None:
    async with connection.transaction():
        assert await store.thaw(connection, row.id, "user:op") is not None


async def has_finished(runtime: Runtime, run_id: UUID, path: str) -> bool:
    return (await state_of(runtime, run_id)).steps[path].outcome == "finished"


async def is_held(runtime: Runtime, run_id: UUID) -> bool:
    return bool((await state_of(runtime, run_id)).held)


@pytest.mark.parametrize("known", [True, False])
async def test_nothing_begins_anywhere_after_a_freeze_and_all_goes_on_thawed(
    make: Make, eye: Connection, known: bool
) -> None:
    a, b = await make(performs=True), await make(performs=True)
    runs = [(await start(each, TWO)).run_id for each in (a, b) for _ in range(5)]
    await until(lambda: len(effects.begun) == 10)
    row = await freeze(eye)
    if known:
        await until(lambda: all(each.freezes.of(LOCAL_TENANT) for each in (a, b)))
    effects.gate.set()
    for run_id in runs:
        await until(lambda run_id=run_id: has_finished(a, run_id, "first"))  # type: ignore[misc]
    assert {path for _, path, _ in effects.begun} == {"first"}
    if known:  # else some are held by their process alone
        assert await eye.fetchval("SELECT count(*) FROM runs WHERE held <> ''") == 10
        assert await eye.fetchval("SELECT count(*) FROM runs WHERE worker IS NOT NULL OR wake_at IS NOT NULL") == 0
    await thaw(eye, row)
    for run_id in runs:
        await until(lambda run_id=run_id: is_now(a, run_id, "finished"))  # type: ignore[misc]
    begun = Counter((run, path) for run, path, _ in effects.begun)
    assert set(begun.values()) == {1}
    assert await eye.fetchval("SELECT count(*) FROM runs WHERE held <> ''") == 0


async def test_a_process_learns_of_a_new_freeze_by_its_next_commit(make: Make, eye: Connection) -> None:
    """It asks by itself once in a minute only, so the commit has told it."""
    runtime = await make(performs=True, poll_seconds=60.0)
    await freeze(eye)
    await start(runtime, GATED)  # decided before the process knows, as a rule: then its attempt waits in the process
    second = (await start(runtime, GATED)).run_id
    await until(lambda: is_held(runtime, second))
    assert not effects.begun


async def test_a_process_that_knows_of_newer_freezes_reads_them_before_it_begins(make: Make) -> None:
    runtime = await make(performs=True)
    run = runtime.committer.peek((await start(runtime, GATED)).run_id)
    assert run is not None
    await until(lambda: effects.begun)
    (path,) = run.state.attempts
    assert not runtime.freezes.holds(run, path)
    runtime.freezes.note_version(1_000_000)
    assert runtime.freezes.holds(run, path)
    assert not runtime.freezes.certainly_holds(run, path), "what has begun is not broken off for it"


@pytest.mark.parametrize("known", [True, False])
async def test_attempts_that_wait_for_a_place_do_not_begin_under_a_freeze(
    make: Make, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    runtime = await make(performs=True, concurrency=1)
    other, may_read, list_tools = await asyncpg.connect(runtime.dsn), asyncio.Event(), rules.list_tools
    one, two = (await start(runtime, GATED)).run_id, (await start(runtime, GATED)).run_id
    await until(lambda: len(effects.begun) == 1)

    async def list_when_allowed(connection: Any) -> Any:
        await may_read.wait()
        return await list_tools(connection)

    monkeypatch.setattr(rules, "list_tools", list_when_allowed)
    if known:
        may_read.set()
    row = await freeze(other)
    if known:
        await until(lambda: bool(runtime.freezes.of(LOCAL_TENANT)))
        await until(lambda: is_now(runtime, two, "waiting"))  # the log holds it, and no process's memory
    else:
        await until(lambda: runtime.freezes.is_stale)  # a commit has told of the freeze, which is not read yet
    effects.gate.set()
    await until(lambda: is_now(runtime, one, "finished"))
    assert len(effects.begun) == 1
    may_read.set()
    await until(lambda: is_held(runtime, two))
    state = await state_of(runtime, two)
    assert (dict(state.attempts), list(state.held.values())) == ({}, [str(row.id)])
    await thaw(other, row)
    await until(lambda: is_now(runtime, two, "finished"))
    await other.close()


async def test_frozen_work_goes_on_in_a_process_that_starts_after_the_thaw(make: Make, eye: Connection) -> None:
    first = await make(performs=True)
    row = await freeze(eye)
    await until(lambda: bool(first.freezes.of(LOCAL_TENANT)))
    run_id = (await start(first, ECHO, input={"value": "1"})).run_id
    assert await is_held(first, run_id)
    await first.stop()
    await thaw(eye, row)
    second = await make(performs=True)
    await until(lambda: is_now(second, run_id, "finished"))


async def test_freezes_that_could_not_be_read_are_read_again(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that knows of others than it has read begins nothing, and would never go on."""
    runtime, list_tools, failures = await make(performs=True), rules.list_tools, [OSError("no way")]

    async def list_sometimes(connection: Any) -> Any:
        if failures:
            raise failures.pop()
        return await list_tools(connection)

    monkeypatch.setattr(rules, "list_tools", list_sometimes)
    await freeze(eye, "tool", "another")
    await until(lambda: not failures)
    run_id = (await start(runtime, ECHO, input={"value": "1"})).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert [each.name for each in runtime.freezes.of(LOCAL_TENANT)] == ["another"]


async def test_what_can_not_be_read_back_lets_nothing_begin_until_it_is(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()

    async def refuse(connection: Any) -> Any:
        raise OSError("no way")

    with monkeypatch.context() as broken:
        broken.setattr(rules, "list_tools", refuse)
        await runtime.freezes.obey()
        assert runtime.freezes.is_stale

    async def is_known() -> bool:
        return not runtime.freezes.is_stale

    await until(is_known)


async def test_a_slow_read_of_freezes_does_not_undo_a_newer_one(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had waited for the thaw would wait until somebody changed the freezes once more."""
    runtime = await make(performs=True, poll_seconds=60.0)
    row, list_tools = await freeze(eye), rules.list_tools
    began, may_end = asyncio.Event(), asyncio.Event()

    async def list_slowly(connection: Any) -> Any:
        if asyncio.current_task() is slow:  # and not the read that the first pulse asks for
            began.set()
            await may_end.wait()
        return await list_tools(connection)

    monkeypatch.setattr(rules, "list_tools", list_slowly)
    slow = asyncio.create_task(runtime.freezes.read())
    await began.wait()
    await thaw(eye, row)
    newer = asyncio.create_task(runtime.freezes.read())
    await until(lambda: newer.done() or bool(runtime.freezes._reading._waiters))
    may_end.set()
    await asyncio.gather(slow, newer)
    assert (runtime.freezes.is_stale, runtime.freezes.of(LOCAL_TENANT)) == (False, ())


async def test_the_freezes_of_a_restored_database_are_noticed(make: Make, eye: Connection) -> None:
    """Their version is one that the process has known already."""
    runtime = await make(performs=True)
    for _ in range(2):
        await thaw(eye, await freeze(eye))
    await until(lambda: runtime.freezes._version == 4)
    await eye.execute("UPDATE freeze_switch SET version = 2")
    await runtime.freezes.read()  # as after each loss of the database
    assert not runtime.freezes.is_stale
    await freeze(eye)
    await until(lambda: bool(runtime.freezes.of(LOCAL_TENANT)))


async def test_a_locked_run_that_is_to_go_on_keeps_no_other_waiting(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "ANSWER_SECONDS", 1000.0)
    monkeypatch.setattr(thaws, "RELEASED_AT_ONCE", 2)
    runtime = await make(performs=True)
    row = await freeze(eye)
    await until(lambda: bool(runtime.freezes.of(LOCAL_TENANT)))
    locked, *others = sorted([(await start(runtime, ECHO, input={"value": "1"})).run_id for _ in range(7)])
    other = await asyncpg.connect(runtime.dsn)
    async with eye.transaction():
        await eye.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", locked)
        await thaw(other, row)
        for run_id in others:
            await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))  # type: ignore[misc]
    await other.close()
    await until(lambda: is_now(runtime, locked, "finished"))


async def test_a_held_run_that_was_refused_once_goes_on_later(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    row = await freeze(eye)
    await until(lambda: bool(runtime.freezes.of(LOCAL_TENANT)))
    run_id = (await start(runtime, ECHO, input={"value": "1"})).run_id
    await until(lambda: is_held(runtime, run_id))
    refused, submit = list[UUID](), runtime.committer.submit

    async def refuse_once(run: UUID, tenant: UUID, command: Any, **more: Any) -> Any:
        if isinstance(command, c.Continue) and not refused:
            refused.append(run)
            raise Rejected(503, "overloaded", "later.")
        return await submit(run, tenant, command, **more)

    monkeypatch.setattr(runtime.committer, "submit", refuse_once)
    await thaw(eye, row)
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert refused == [run_id]


async def test_a_process_that_starts_under_a_freeze_obeys_it(make: Make, eye: Connection) -> None:
    await freeze(eye)
    runtime = await make(performs=True)
    run_id = (await start(runtime, ECHO, input={"value": "1"})).run_id
    assert await is_held(runtime, run_id)


@pytest.mark.parametrize(("tenant", "held"), [(LOCAL_TENANT, True), (uuid4(), False)])
async def test_a_freeze_of_a_tenant_holds_the_runs_of_that_tenant_alone(
    make: Make, eye: Connection, tenant: UUID, held: bool
) -> None:
    await freeze(eye, "tenant", tenant=tenant)
    runtime = await make(performs=True)
    run_id = (await start(runtime, ECHO, input={"value": "1"})).run_id
    assert await is_held(runtime, run_id) is held


async def test_the_log_says_which_freeze_held_what_and_why(make: Make, eye: Connection) -> None:
    row = await freeze(eye, "tool", "fx")
    runtime = await make(performs=True)
    run_id = (await start(runtime, ECHO, input={"value": "1"})).run_id
    (event,) = [each for each in await log_of(eye, run_id) if isinstance(each, e.StepsHeld)]
    assert (event.held, event.reason) == ({"echo": str(row.id)}, "a drill")
