"""The contract of everything that lives: one stress test for all, and what a stop leaves behind: nothing."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, TypeAlias
from uuid import UUID

import pytest

from hai_flow.errors import StoreError
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.messaging.outbox import Delivery
from hai_flow.runtime.runs.concurrency_slots import Slots
from hai_flow.runtime.runs.starts import Starts
from hai_flow.runtime.runs.thread_state import ThreadState
from hai_flow.runtime.runtime import Runtime
from hai_flow.runtime.streams.fanout import Fanout
from hai_flow.runtime.streams.thread_feed import Threads
from hai_flow.runtime.tenancy.quotas import Quotas
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.runtime.worker.sweeper import Sweeper
from hai_flow.runtime.worker.worker import Worker, WorkerConfig
from hai_flow.settings import Settings
from hai_flow.steps.runner import Registry
from hai_flow.store.commit import commits
from hai_flow.store.identity.tenants import Limits
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import leases, logs
from tests.runtime.conftest import ECHO, GATED, TOOLS, Connection, Make, is_now, start
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.waiting import until

Build: TypeAlias = Callable[[Database], Service]
TWO_AT_ONCE = (
    TOOLS
    + """
steps:
  - parallel:
      a: [{id: left, call: fx.gated}]
      b: [{id: right, call: fx.gated}]
"""
)


async def no_plan(tenant: object, digest: bytes) -> NoReturn:
    raise AssertionError("nobody starts a run here")


def committer(database: Database) -> Committer:
    return Committer(database, find_plan=no_plan)


def worker(database: Database) -> Worker:
    return Worker(database, committer(database), Registry({}), WorkerConfig(lease_seconds=3, heartbeat_seconds=0.05))


def sweeper(database: Database) -> Sweeper:
    return Sweeper(database, committer(database), worker(database))


def fanout(database: Database) -> Fanout:
    return Fanout(database, committer(database))


def threads(database: Database) -> Threads:
    return Threads(database, 0.05)


def delivery(database: Database) -> Delivery:
    commits, catalog = committer(database), Catalog(database, Registry({}))
    return Delivery(
        database,
        commits,
        catalog,
        Starts(
            commits,
            Slots(database, commits),
            ThreadState(database),
            catalog.pins,
            catalog.retirement,
            Quotas(database, Tenants(database, Limits(0, 0, 0, 0))),
            Tenants(database),
        ),
    )


def runtime(database: Database) -> Runtime:
    return Runtime(
        database.dsn, Settings(tools=effects.MODULES, lease_seconds=3.0, heartbeat_seconds=0.3), performs=True
    )


services = pytest.mark.parametrize("build", [committer, worker, sweeper, fanout, threads, delivery, runtime])


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url)
    yield opened
    await opened.close()


async def nothing_runs(tasks: set[asyncio.Task[object]], threads: set[threading.Thread]) -> None:
    left = asyncio.all_tasks() - tasks
    await until(lambda: all(task.done() for task in left))
    assert {thread.name for thread in set(threading.enumerate()) - threads if thread.name == "heartbeat"} == set()


@services
async def test_it_may_be_started_and_stopped_by_anybody_any_number_of_times(database: Database, build: Build) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    service = build(database)
    await service.stop()
    chance = random.Random(3)

    async def meddle() -> None:
        for _ in range(5):
            await (service.start() if chance.random() < 0.5 else service.stop())

    await asyncio.wait_for(asyncio.gather(*(meddle() for _ in range(6))), 30)
    starting = asyncio.create_task(service.start())
    await asyncio.sleep(0)
    await service.stop()
    await starting
    assert not service.running
    await nothing_runs(tasks, threads)
    await service.start()
    assert service.running
    await service.stop()
    await nothing_runs(tasks, threads)


@services
async def test_a_start_that_fails_or_is_cancelled_leaves_nothing(
    database: Database, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    service = build(database)
    if isinstance(service, Runtime | Worker):

        async def refuse(*given: object, **more: object) -> int:
            raise StoreError("no worker is wanted")

        with monkeypatch.context() as patch:
            patch.setattr(leases, "register_worker", refuse)
            with pytest.raises(StoreError):
                await service.start()
        assert not service.running
        await nothing_runs(tasks, threads)
    for turns in range(0, 30, 3):
        starting = asyncio.create_task(service.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await service.stop()
        await nothing_runs(tasks, threads)
    await service.start()
    await service.stop()


async def test_a_stopped_runtime_has_no_connection(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await start(runtime, ECHO, input={"value": "v"})
    await runtime.stop()
    count = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'hai-flow%' AND datname = current_database()"
    )
    await until(lambda: none(eye, count))


async def none(eye: Connection, count: str) -> bool:
    return not await eye.fetchval(count)


async def test_a_graceful_stop_declares_attempts_lost_and_another_goes_on(make: Make, eye: Connection) -> None:
    a = await make(performs=True, lease_seconds=600.0, heartbeat_seconds=5.0, shutdown_seconds=0.1)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    b = await make(performs=True, lease_seconds=600.0, heartbeat_seconds=5.0)
    await a.stop()
    await until(lambda: len(effects.begun) == 2)
    assert [attempt for _, _, attempt in effects.begun] == [1, 2]
    effects.gate.set()
    await until(lambda: is_now(b, run_id, "finished"))
    await log_of(eye, run_id)


async def until_both_have_begun_elsewhere() -> None:
    """The attempt that had begun was lost, and the one that waited for a place begins as the first."""
    await until(lambda: len(effects.begun) == 3)
    ((_, begun, _), *_) = effects.begun
    waited = next(path for _, path, _ in effects.begun if path != begun)
    assert sorted((path, attempt) for _, path, attempt in effects.begun) == sorted(
        [(begun, 1), (begun, 2), (waited, 1)]
    )


async def test_what_has_not_begun_at_a_stop_begins_elsewhere_as_the_first(make: Make) -> None:
    a = await make(performs=True, concurrency=1, lease_seconds=600.0, heartbeat_seconds=5.0, shutdown_seconds=0.1)
    await start(a, TWO_AT_ONCE)
    await until(lambda: effects.begun)
    await make(performs=True, lease_seconds=600.0, heartbeat_seconds=5.0)
    await a.stop()
    await until_both_have_begun_elsewhere()


async def test_what_a_stop_could_not_hand_on_it_hands_back_at_its_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await make(performs=True, concurrency=1, lease_seconds=600.0, heartbeat_seconds=5.0, shutdown_seconds=0.1)
    await start(a, TWO_AT_ONCE)
    await until(lambda: effects.begun)
    await make(performs=True, lease_seconds=600.0, heartbeat_seconds=5.0)
    release = leases.release_runs

    async def release_at_the_end(*given: Any) -> list[UUID]:
        if a.worker is not None and a.worker.id is not None:
            raise ConnectionResetError("the line was cut")
        return await release(*given)

    monkeypatch.setattr(leases, "release_runs", release_at_the_end)
    await a.stop()
    await until_both_have_begun_elsewhere()


async def test_a_result_that_comes_during_the_stop_is_recorded(make: Make, eye: Connection) -> None:
    a = await make(performs=True, lease_seconds=600.0, heartbeat_seconds=5.0, shutdown_seconds=10.0)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    stopping = asyncio.create_task(a.stop())
    await until(lambda: a.worker is not None and a.worker._stage.closing)
    effects.gate.set()
    await stopping
    assert await eye.fetchval("SELECT status FROM runs WHERE id = $1", run_id) == "finished"
    assert len(effects.begun) == 1


async def test_a_stop_without_a_database_ends(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make(performs=True)
    await start(runtime, GATED)
    await until(lambda: effects.begun)

    async def away(*given: object) -> None:
        raise ConnectionRefusedError("the database is away")

    for module, statement in ((commits, "commit"), (leases, "release_runs"), (logs, "load_runs")):
        monkeypatch.setattr(module, statement, away)
    monkeypatch.setattr("hai_flow.runtime.commit.committer.STOP_SECONDS", 0.5)
    monkeypatch.setattr("hai_flow.runtime.worker.worker.HAND_BACK_SECONDS", 0.5)
    await asyncio.wait_for(runtime.stop(), 15)
