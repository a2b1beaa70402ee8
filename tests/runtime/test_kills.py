"""Workers die, stall and lose their connections at any moment; the runs go on, and nothing happens twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import TypeAlias

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from tests.runtime.conftest import Make
from tests.support import effects
from tests.support.examples import SEED, by_night
from tests.support.ledger import check_all, check_effects
from tests.support.postgres import connecting
from tests.support.proxy import Direction, Line, Proxy
from tests.support.skewed import SkewedServer
from tests.support.waiting import until
from tests.support.workers import LEASE_SECONDS, Nursery, alive

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SWALLOWED: tuple[tuple[Direction, ...], ...] = ((), ("to server",), ("to client",))


@pytest.fixture
async def eye(database_url: str) -> AsyncIterator[Connection]:
    """A connection that only looks (and terminates)."""
    async with connecting(database_url) as connection:
        await connection.execute(effects.LEDGER)
        yield connection


async def finished(eye: Connection) -> int:
    return int(await eye.fetchval("SELECT count(*) FROM runs WHERE status = 'finished'"))


async def so_many_finish(eye: Connection, runs: int, seconds: float) -> None:
    try:
        await until(lambda: _all(eye, runs), seconds, every=0.1)
    except AssertionError:
        left = await eye.fetch(
            "SELECT id, status, seq, version, fence, worker, wake_at FROM runs WHERE status <> 'finished'"
        )
        raise AssertionError(f"{await finished(eye)} of {runs} finished; left {len(left)}: {left[:5]}") from None


async def all_finish(eye: Connection, runs: int, seconds: float) -> None:
    await so_many_finish(eye, runs, seconds)
    states = await check_all(eye)
    assert len(states) == runs
    assert {state.status for state in states} == {"finished"}
    noted = {row[0] for row in await eye.fetch("SELECT DISTINCT path FROM effects")}
    assert noted == effects.PATHS - {"last"}


@contextlib.asynccontextmanager
async def in_the_midst_of_an_attempt(eye: Connection, workers: list[int]) -> AsyncIterator[int]:
    """One of the processes, whose attempt has begun and does not get on before the block ends: so a fault surely meets
    an attempt in flight."""

    async def waiting() -> int | None:
        await eye.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees the same activity else
        names = await eye.fetch(
            "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE l.relation = 'effects'::regclass AND NOT l.granted"
        )
        held_up = {row[0] for row in names}
        return next((pid for pid in workers if effects.ledger_name(pid) in held_up), None)

    async with eye.transaction():
        await eye.execute("LOCK TABLE effects IN ACCESS EXCLUSIVE MODE")
        pid = await until(waiting, 30)
        assert pid is not None
        yield pid


async def _all(eye: Connection, runs: int) -> bool:
    return await finished(eye) >= runs


async def all_go_on(operator: Runtime, eye: Connection, runs: int) -> bool:
    """Whether all have finished. Says Retry to those whose attempts were lost five times in a row, as on a slow machine
    may happen to some."""
    for row in await eye.fetch("SELECT id FROM runs WHERE status = 'needs_attention'"):
        with contextlib.suppress(Rejected):  # it goes on already
            await operator.committer.submit(row[0], LOCAL_TENANT, c.Retry(by="user:local"))
    return await _all(eye, runs)


@pytest.mark.timeout(300)
async def test_kills_during_many_runs_lose_nothing_and_repeat_nothing(
    database_url: str, eye: Connection, make: Make
) -> None:
    operator = await make()
    print(f"seed {SEED}")
    chance, kills = random.Random(SEED), by_night(50, 10)
    began = time.monotonic()
    with Nursery(database_url) as nursery:
        workers = [nursery.fork() for _ in range(3)]
        nursery.fork(f"start {kills // 3} {4 * kills}")
        async with in_the_midst_of_an_attempt(eye, workers) as victim:  # the first, so that runs are surely open
            os.kill(victim, signal.SIGKILL)
        workers[workers.index(victim)] = nursery.fork()
        for number in range(kills):
            await so_many_finish(eye, number * 3 + 1, 60)  # else a slow machine loses a step thrice for want of time
            await asyncio.sleep(chance.uniform(0.05, 0.6))  # the fault's own moment, not a wait for a fact
            victim = chance.choice(workers)
            assert alive(victim), f"seed {SEED}: a worker died by itself"
            os.kill(victim, signal.SIGKILL)
            workers[workers.index(victim)] = nursery.fork()
        await until(lambda: all_go_on(operator, eye, 4 * kills), 90, every=0.1)
        await all_finish(eye, 4 * kills, 30)
    performed = await check_effects(eye)
    retried = await eye.fetchval("SELECT count(*) FROM effects WHERE attempt > 1")
    dead = await eye.fetchval("SELECT count(*) FROM workers")
    print(
        f"seed {SEED}: {performed} effects, {retried} of them again, {dead} workers, {time.monotonic() - began:.0f} s"
    )
    assert retried, "no kill met an attempt in flight: the test tests nothing"


async def test_a_worker_that_slept_through_its_lease_performs_nothing_reassigned(
    database_url: str, eye: Connection
) -> None:
    with Nursery(database_url) as nursery:
        stalled = nursery.fork()
        nursery.fork("start 3 60")
        await until(lambda: finished(eye), 30)
        os.kill(stalled, signal.SIGSTOP)
        nursery.fork()
        await until(lambda: lost_to_others(eye), 30)
        os.kill(stalled, signal.SIGCONT)
        await all_finish(eye, 60, 30)
        await until(lambda: registered_again(eye), LEASE_SECONDS * 4)


async def lost_to_others(eye: Connection) -> bool:
    """Whether the stalled worker (the first) is dead and holds nothing any more."""
    return bool(
        await eye.fetchval(
            "SELECT alive_until < now() - interval '1.2 s' AND NOT EXISTS (SELECT FROM runs WHERE worker = w.id) "
            "FROM workers w ORDER BY id LIMIT 1"
        )
    )


async def registered_again(eye: Connection) -> bool:
    return await eye.fetchval("SELECT count(*) FROM workers") >= 3


SKEW_SECONDS = 3 * LEASE_SECONDS  # a clock that is wrong by so much ends every lease, or makes it three times as long


async def test_workers_dying_under_a_jumping_clock_lose_and_repeat_nothing(skewed: SkewedServer) -> None:
    print(f"seed {SEED}")
    chance, count = random.Random(SEED), by_night(24, 6)
    async with connecting(skewed.dsn) as eye:
        await eye.execute(effects.LEDGER)
        with Nursery(skewed.dsn) as nursery:
            workers = [nursery.fork() for _ in range(3)]
            nursery.fork(f"start {count // 2} {4 * count}")
            async with in_the_midst_of_an_attempt(eye, workers) as victim:  # the first, so that runs are surely open
                os.kill(victim, signal.SIGKILL)
            workers[workers.index(victim)] = nursery.fork()
            stopped: deque[tuple[float, int]] = deque()
            await until(lambda: finished(eye), 30)
            for number in range(count):
                await asyncio.sleep(chance.uniform(0.2, 0.6))  # the fault's own moment, not a wait for a fact
                while stopped and (stopped[0][0] < time.monotonic() or len(stopped) == len(workers)):
                    os.kill(stopped.popleft()[1], signal.SIGCONT)
                fault = ("skew", "stop", "kill")[number % 3]
                running = [worker for worker in workers if worker not in {pid for _, pid in stopped}]
                victim = chance.choice(running)
                assert alive(victim), f"seed {SEED}: a worker died by itself"
                if fault == "skew":
                    skewed.skew(chance.uniform(-SKEW_SECONDS, SKEW_SECONDS))
                elif fault == "stop":
                    os.kill(victim, signal.SIGSTOP)
                    stopped.append((time.monotonic() + 1.5 * LEASE_SECONDS, victim))
                else:
                    os.kill(victim, signal.SIGKILL)
                    workers[workers.index(victim)] = nursery.fork()
            for _, pid in stopped:
                os.kill(pid, signal.SIGCONT)
            skewed.skew(0)
            await all_finish(eye, 4 * count, 60)
        retried = await eye.fetchval("SELECT count(*) FROM effects WHERE attempt > 1")
        print(f"seed {SEED}: {await check_effects(eye)} effects, {retried} of them again")
        assert retried, "no fault met an attempt in flight: the test tests nothing"


def lines_of_pools(proxy: Proxy) -> list[Line]:
    return [line for line in proxy.lines() if line.name.startswith("hai-flow")]


@pytest.mark.timeout(240)
async def test_silent_and_read_only_connections_lose_and_repeat_nothing(database_url: str, eye: Connection) -> None:
    """The lines of workers, one by one or all of one at once; two workers have none that ever fails."""
    print(f"seed {SEED}")
    chance, count = random.Random(SEED), by_night(16, 8)
    database = await eye.fetchval("SELECT current_database()")
    async with Proxy(database_url) as proxy:
        with Nursery(proxy.dsn) as unlucky, Nursery(database_url) as healthy:  # their processes do not share a line
            victims = [unlucky.fork("hasty worker") for _ in range(2)]
            healthy.fork("hasty worker")
            healthy.fork(f"start {count // 2} {4 * count}")
            async with in_the_midst_of_an_attempt(eye, victims):  # the first, so that runs are surely open
                for line in lines_of_pools(proxy):
                    line.swallow()
            await until(lambda: finished(eye), 30)
            for number in range(count):
                await asyncio.sleep(chance.uniform(0.1, 0.5))  # the fault's own moment, not a wait for a fact
                lines = lines_of_pools(proxy)
                fault = ("one silent", "all silent", "cut", "read-only")[number % 4]
                if fault == "read-only":
                    await eye.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
                chosen = lines if fault == "all silent" else chance.sample(lines, min(2, len(lines)))
                for line in chosen:
                    if "silent" in fault:
                        line.swallow(*chance.choice(SWALLOWED))
                    else:
                        line.cut(reset=chance.random() < 0.5)
                if fault == "read-only":  # those who come back meanwhile are, and stay so
                    await until(
                        lambda known=lines: any(line.begun.is_set() for line in proxy.lines() if line not in known), 10
                    )
                    await eye.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
            assert all(alive(victim) for victim in victims), f"seed {SEED}: a worker died by itself"
            await all_finish(eye, 4 * count, 90)
    retried = await eye.fetchval("SELECT count(*) FROM effects WHERE attempt > 1")
    print(f"seed {SEED}: {await check_effects(eye)} effects, {retried} of them again")


async def test_backends_terminated_in_mid_commit_leave_no_run_behind(database_url: str, eye: Connection) -> None:
    chance, count = random.Random(7), by_night(60, 15)
    with Nursery(database_url) as nursery:
        nursery.fork(f"start {count // 10} {2 * count}")
        for _ in range(2):
            nursery.fork()
        await until(lambda: finished(eye), 30)
        for _ in range(count):
            await asyncio.sleep(chance.uniform(0.02, 0.15))
            await eye.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'hai-flow' AND state = 'active' LIMIT 2"
            )
        await all_finish(eye, 2 * count, 30)


async def test_without_any_hint_the_polls_find_everything(database_url: str, eye: Connection) -> None:
    with Nursery(database_url) as nursery:
        nursery.fork("deaf worker")
        nursery.fork("start 1 20")
        await all_finish(eye, 20, 30)
