"""Runs that this release can't read: they are held by nobody who can't, and who can goes on with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Unreadable
from hai_flow.runtime.commit import decider
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import BatchResult
from hai_flow.store.runs import leases, run_lists
from tests.runtime.conftest import ECHO, GATED, LISTENING, Connection, Make, is_now, note, start, state_of
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.values import require
from tests.support.waiting import until

Break: TypeAlias = Callable[[Connection, UUID], Awaitable[None]]
STRANGE = b'[{"type":"run_strange","at":1}]'


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "GIVE_BACK_PAUSE", timedelta(milliseconds=50))


@dataclass(frozen=True)
class Row:
    worker: int | None
    given_back: int
    unreadable: str | None


async def row_of(eye: Connection, run_id: UUID) -> Row:
    (row,) = await eye.fetch("SELECT worker, given_back, unreadable FROM runs WHERE id = $1", run_id)
    return Row(*row)


KNOWN, UNKNOWN = '{"type":"run_started"', '{"type":"run_started","novelty":1'
REPLACE = "UPDATE log SET events = convert_to(replace(convert_from(events, 'UTF8'), $2, $3), 'UTF8') WHERE run_id = $1"


async def unknown_field(eye: Connection, run_id: UUID) -> None:
    await eye.execute(REPLACE, run_id, KNOWN, UNKNOWN)


async def known_again(eye: Connection, run_id: UUID) -> None:
    await eye.execute(REPLACE, run_id, UNKNOWN, KNOWN)


async def no_workflow(eye: Connection, run_id: UUID) -> None:
    await eye.execute("UPDATE workflows SET sha256 = sha256 || 'gone'::bytea")


async def workflow_again(eye: Connection, run_id: UUID) -> None:
    await eye.execute("UPDATE workflows SET sha256 = substring(sha256 FOR 32)")


async def wrong_workflow(eye: Connection, run_id: UUID) -> None:
    await eye.execute("UPDATE workflows SET source = 'hai: flow/v9 '::bytea || source")


async def right_workflow(eye: Connection, run_id: UUID) -> None:
    await eye.execute("UPDATE workflows SET source = substring(source FROM 14)")


@pytest.mark.parametrize(
    ("spoil", "mend"), [(unknown_field, known_again), (no_workflow, workflow_again), (wrong_workflow, right_workflow)]
)
async def test_an_unreadable_run_is_given_back_until_somebody_can_read_it(
    make: Make, eye: Connection, spoil: Break, mend: Break
) -> None:
    idle = await make()
    run_id = (await start(idle, ECHO, input={"value": "v"})).run_id
    await spoil(eye, run_id)
    worker = await make(performs=True)

    async def given_back() -> Row | None:
        row = await row_of(eye, run_id)
        return row if row.given_back >= 3 and row.unreadable else None

    row = require(await until(given_back))
    assert row.worker is None, "nothing of it was begun, so nobody need declare it lost"

    async def is_listed() -> bool:  # but for the moments in which the worker tries again
        listed = await run_lists.list_runs(eye, LOCAL_TENANT, limit=10, statuses=["needs_attention"])
        return [(each.id, each.unreadable) for each in listed] == [(run_id, row.unreadable)]

    await until(is_listed)
    other = (await start(worker, GATED)).run_id
    effects.gate.set()
    await mend(eye, run_id)
    await until(lambda: is_now(worker, run_id, "finished"))
    events = await log_of(eye, run_id)
    assert [event.attempt for event in events if isinstance(event, e.AttemptStarted | e.StepStarted)] == [1]
    assert await row_of(eye, run_id) == Row(None, 0, None)
    assert await run_lists.list_runs(eye, LOCAL_TENANT, limit=10, statuses=["needs_attention"]) == []
    await until(lambda: is_now(worker, other, "finished"))


EXPIRING = "steps:\n  - {id: sure, ask: {title: Sure?, from: anyone, deadline: 1s, form: {properties: {}}}}\n"


MARKED = "state: {iban: {type: string, pii: true, default: x}}\n"


@pytest.mark.parametrize(("body", "reason"), [(EXPIRING, "a deadline that no"), (MARKED + EXPIRING, "DataError")])
async def test_a_deadline_that_can_not_be_stored_is_tried_ever_more_seldom(
    body: str, reason: str, make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why stands in the run's row, unless it might quote a personal value."""
    real = commits.commit

    async def refused(connection: Any, entries: Any, *rest: Any) -> BatchResult:
        if any(b"timer_fired" in entry.events for entry in entries):
            raise asyncpg.DataError("a deadline that no column takes")
        return await real(connection, entries, *rest)

    monkeypatch.setattr(commits, "commit", refused)
    worker = await make(performs=True)
    run_id = (await start(worker, body)).run_id

    async def given_back() -> bool:
        row = await row_of(eye, run_id)
        return row.given_back >= 3 and (row.unreadable or "").startswith(reason)

    await until(given_back)
    assert await is_now(worker, run_id, "needs_attention")
    monkeypatch.setattr(commits, "commit", real)

    async def stored() -> bool:
        return await row_of(eye, run_id) == Row(None, 0, None)

    await until(stored)
    assert [event.kind for event in await log_of(eye, run_id) if isinstance(event, e.TimerFired)] == ["deadline"]


async def test_the_pause_doubles_with_each_time_and_is_bounded(make: Make, eye: Connection) -> None:
    idle = await make()
    run_id = (await start(idle, ECHO, input={"value": "v"})).run_id
    pauses = []
    async with idle.database.engine.acquire() as connection:
        worker = await leases.register_worker(connection, "w", timedelta(minutes=1))
        for _ in range(15):
            await eye.execute("UPDATE runs SET wake_at = now() WHERE id = $1", run_id)
            (claim,) = await leases.claim_runs(connection, worker, 10, ["default"])
            fence = claim.fence
            assert await leases.give_back(connection, worker, run_id, fence - 1, begun=False, reason="r") is None
            pauses.append(await leases.give_back(connection, worker, run_id, fence, begun=False, reason="r"))
    assert pauses[:4] == [timedelta(milliseconds=50 * 2**n) for n in range(4)]
    assert pauses[-1] == leases.GIVE_BACK_PAUSE_MAX


async def test_attempts_of_an_unreadable_run_are_declared_lost_by_a_reader(make: Make, eye: Connection) -> None:
    worker = await make(performs=True)
    run_id = (await start(worker, GATED)).run_id
    await until(lambda: effects.begun)
    ((version, seq),) = await eye.fetch("SELECT version, seq FROM runs WHERE id = $1", run_id)
    await eye.execute(
        "INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)"
        " SELECT id, seq + 1, seq + 1, tenant, version + 1, now(), $2 FROM runs WHERE id = $1",
        run_id,
        STRANGE,
    )
    await eye.execute("UPDATE runs SET seq = seq + 1, version = version + 1 WHERE id = $1", run_id)

    async def given_to_nobody() -> Row | None:
        row = await row_of(eye, run_id)
        return row if row.given_back and row.worker != worker.committer.worker_id else None

    row = require(await until(given_to_nobody))
    assert row.worker is not None
    await eye.execute("DELETE FROM log WHERE run_id = $1 AND last_seq = $2", run_id, seq + 1)
    await eye.execute("UPDATE runs SET seq = $2, version = $3 WHERE id = $1", run_id, seq, version)
    await until(lambda: len(effects.begun) > 1)
    assert effects.begun == [(str(run_id), "wait", 1), (str(run_id), "wait", 2)], "the first one was declared lost"


async def test_a_run_that_a_newer_release_wrote_is_passed_over_and_refused(make: Make, eye: Connection) -> None:
    idle = await make()
    run_id = (await start(idle, ECHO, input={"value": "v"})).run_id
    hot = idle.committer.peek(run_id)
    await eye.execute("UPDATE runs SET abi = $2 WHERE id = $1", run_id, e.ABI + 1)
    worker = await make(performs=True)
    other = (await start(worker, ECHO, input={"value": "v"})).run_id
    await until(lambda: is_now(worker, other, "finished"))
    async with idle.database.engine.acquire() as connection:
        assert await leases.claim_runs(connection, worker.committer.worker_id or 0, 10, ["default"]) == []
        assert await leases.next_wake(connection, ["default"]) is None
    with pytest.raises(Unreadable, match="newer release"):
        await worker.committer.submit(run_id, LOCAL_TENANT, note("n"))
    with pytest.raises(Unreadable, match="newer release"):
        await state_of(worker, run_id)
    assert await leases.mark_newer(eye, timedelta(minutes=1)) == 0, "its own workers may be on their way"
    assert await leases.mark_newer(eye, timedelta(0)) == 1
    assert await leases.mark_newer(eye, timedelta(0)) == 0
    assert "newer release" in ((await row_of(eye, run_id)).unreadable or "")
    assert hot is not None
    await eye.execute("UPDATE runs SET abi = $2 WHERE id = $1", run_id, e.ABI)
    await until(lambda: is_now(worker, run_id, "finished"))
    assert await row_of(eye, run_id) == Row(None, 0, None)


async def test_who_writes_under_a_newer_abi_leaves_it_in_the_row(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    assert await eye.fetchval("SELECT abi FROM runs WHERE id = $1", run_id) == e.ABI
    await eye.execute("UPDATE runs SET abi = 0 WHERE id = $1", run_id)  # as an older release wrote it
    await runtime.committer.submit(run_id, LOCAL_TENANT, note("n"))
    assert await eye.fetchval("SELECT abi FROM runs WHERE id = $1", run_id) == e.ABI


async def test_a_step_that_cannot_be_declared_lost_is_given_back_with_its_run(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await make(performs=True)
    run_id = (await start(worker, GATED)).run_id
    await until(lambda: effects.begun)
    real = decider.decide

    def faulty(plan: object, state: object, command: c.Command, *rest: object) -> object:
        assert not isinstance(command, c.StepLost | c.StepSucceeded | c.NeedAttention), "a bug of ours"
        return real(plan, state, command, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(decider, "decide", faulty)
    effects.gate.set()

    async def given_back() -> bool:
        return (await row_of(eye, run_id)).given_back > 0

    await until(given_back)
    monkeypatch.setattr(decider, "decide", real)
    await until(lambda: is_now(worker, run_id, "finished"))
    assert effects.begun == [(str(run_id), "wait", 1), (str(run_id), "wait", 2)], "the first one was declared lost"
