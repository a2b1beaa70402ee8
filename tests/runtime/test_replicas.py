"""What a replica answers is what the database would say; where it can't, the database says it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.api.app import create_app
from hai_flow.engine.state.snapshot import ABI
from hai_flow.runtime.ops.doctor import examine
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.ops.replicas import History, Standby, _keep_if_gapless, probe
from hai_flow.store.runs import logs, run_lists
from hai_flow.store.runs.logs import LogRow
from tests.runtime import test_doctor
from tests.runtime.conftest import ECHO, Make, is_now, start
from tests.support.commands import run
from tests.support.postgres import connecting
from tests.support.replica import Pair
from tests.support.values import require
from tests.support.waiting import until


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


async def ended(runtime: Runtime) -> UUID:
    """A run that has finished just now."""
    run_id = (await start(runtime, ECHO, input={"value": "v"})).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    return run_id


async def history_of(runtime: Runtime, run_id: UUID, *, walled: bool = False, born: timedelta = timedelta()) -> History:
    row = require(await run_lists.get_run(runtime.database.api, LOCAL_TENANT, run_id))
    tenant = LOCAL_TENANT if walled else None
    return History(runtime.replica, runtime.database.api, tenant, row.id, row.created_at + born, row.seq)


async def is_read_whole(runtime: Runtime, run_id: UUID, **how: Any) -> int:
    """Read the run's log and its state, which have to be what the database has. Returns how often a replica has
    answered."""
    assert runtime.replica is not None
    api, before = runtime.database.api, runtime.replica.reads
    history = await history_of(runtime, run_id, **how)
    assert await history.read_log(0, 100) == await logs.read_log(api, run_id, 0, 100)
    assert await history.read_log(2, 1) == await logs.read_log(api, run_id, 2, 1)
    found, wanted = (
        await history.load_at(LOCAL_TENANT, 2**53, ABI),
        await logs.load_run_at(api, LOCAL_TENANT, run_id, 2**53, ABI),
    )
    assert found is not None
    assert wanted is not None
    assert (found.seq, found.state, found.rows) == (wanted.seq, wanted.state, wanted.rows)
    return runtime.replica.reads - before


@pytest.mark.costly
async def test_a_replica_answers_for_what_it_has_and_the_database_for_the_rest(pair: Pair, make: Make) -> None:
    runtime = await make(performs=True, dsn=pair.primary, database_url=pair.primary, database_replica_url=pair.replica)
    replica = require(runtime.replica)
    old = await ended(runtime)
    await until(lambda: replica.usable)
    assert replica.lag is not None

    async def answers(run_id: UUID, times: int, **how: Any) -> bool:
        return await is_read_whole(runtime, run_id, **how) == times

    await until(lambda: answers(old, 3))
    await until(lambda: answers(old, 3, walled=True))
    other = await history_of(runtime, old, born=timedelta(microseconds=1))
    before = replica.reads
    assert await other.read_log(0, 100) == await logs.read_log(runtime.database.api, old, 0, 100)
    assert (await other.load_at(LOCAL_TENANT, 2**53, ABI)) is not None
    assert replica.reads == before, "it has another run of this id"

    eye = await asyncpg.connect(pair.replica)
    await eye.execute("SELECT pg_wal_replay_pause()")
    await until(lambda: eye.fetchval("SELECT pg_get_wal_replay_pause_state() = 'paused'"))
    new = await ended(runtime)
    refused = replica.refused
    assert await is_read_whole(runtime, new) == 0, "whoever has written reads what they wrote"
    assert replica.refused > refused or not replica.usable
    await eye.execute("SELECT pg_wal_replay_resume()")
    await until(lambda: answers(new, 3))
    await eye.close()

    pair.stop_replica()
    assert await is_read_whole(runtime, new) == 0
    await until(lambda: not replica.usable)
    assert runtime.faults() == []
    pair.start_replica()
    await until(lambda: answers(new, 3), 40.0)

    async with connecting(pair.replica) as eye:
        await eye.fetchval("SELECT pg_promote()")
    await until(lambda: not replica.usable)
    assert await is_read_whole(runtime, new) == 0
    await runtime.stop()


@pytest.mark.costly
async def test_a_replica_that_is_too_late_is_not_asked(pair: Pair, make: Make) -> None:
    runtime = await make(
        performs=True,
        dsn=pair.primary,
        database_url=pair.primary,
        database_replica_url=pair.replica,
        replica_lag_seconds=0.5,
    )
    replica = require(runtime.replica)
    async with connecting(pair.replica) as eye:
        await eye.execute("SELECT pg_wal_replay_pause()")
        await until(lambda: eye.fetchval("SELECT pg_get_wal_replay_pause_state() = 'paused'"))
        run_id = await ended(runtime)
        await until(lambda: "0.5 s behind" in (replica.fault or ""))
        refused = replica.refused
        assert await is_read_whole(runtime, run_id) == 0
        assert replica.refused == refused, "nor is it waited for"
    await runtime.stop()


@pytest.mark.costly
async def test_lists_of_ended_runs_come_from_a_complete_replica_or_the_primary(pair: Pair, make: Make) -> None:
    where = {"dsn": pair.primary, "database_url": pair.primary, "database_replica_url": pair.replica}
    runtime = await make(performs=True, **where)
    replica = require(runtime.replica)
    transport = httpx2.ASGITransport(app=create_app(runtime.settings, runtime))
    async with (
        connecting(pair.replica) as eye,
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as http,
    ):

        async def listed(query: str) -> list[str]:
            response = await http.get(f"/v1/runs?{query}")
            assert response.status_code == 200, response.text
            return [each["id"] for each in response.json()["items"]]

        async def by_the_replica(run_id: UUID) -> bool:
            before = replica.reads
            assert str(run_id) in await listed("status=finished&status=failed")
            return replica.reads > before

        old = await ended(runtime)
        await until(lambda: replica.usable)
        await until(lambda: by_the_replica(old))
        for path in ("/v1/audit", "/v1/inbox/decided"):

            async def is_read_there(path: str = path) -> bool:
                before = replica.reads
                assert (await http.get(path)).status_code == 200
                return replica.reads > before

            await until(is_read_there)
        before = replica.reads
        assert str(old) in await listed("")
        assert str(old) in await listed("status=finished&status=running")
        assert replica.reads == before, "what has not ended is the database's to say"

        await eye.execute("SELECT pg_wal_replay_pause()")
        await until(lambda: eye.fetchval("SELECT pg_get_wal_replay_pause_state() = 'paused'"))
        new = await ended(runtime)
        before, refused = replica.reads, replica.refused
        assert str(new) in await listed("status=finished"), "whoever has written reads what they wrote"
        assert replica.reads == before
        assert replica.refused > refused or not replica.usable
        await eye.execute("SELECT pg_wal_replay_resume()")
        await until(lambda: by_the_replica(new), 60)
        pair.stop_replica()
        assert str(new) in await listed("status=finished")
    await runtime.stop()


@pytest.mark.costly
async def test_a_server_that_is_no_replica_of_the_database_is_not_asked(
    pair: Pair, make: Make, database_url: str
) -> None:
    runtime = await make(dsn=database_url, database_url=database_url, database_replica_url=pair.replica)
    replica = require(runtime.replica)
    await until(lambda: "another server" in (replica.fault or ""))
    assert not replica.usable
    await runtime.stop()


@pytest.mark.costly
async def test_the_doctor_tells_a_standby_from_late_promoted_and_foreign_servers(pair: Pair, database_url: str) -> None:
    primary, replica = await asyncpg.connect(pair.primary), await asyncpg.connect(pair.replica)

    async def seen(url: str, wait: float = 20.0) -> tuple[bool, bool, bool]:
        found = await probe(url, primary, wait)
        return found.follows, found.same, found.seconds is not None

    assert await seen(pair.replica) == (True, True, True)
    assert await seen(pair.primary) == (False, True, False)
    assert await seen(database_url) == (False, False, False)
    await replica.execute("SELECT pg_wal_replay_pause()")
    await until(lambda: replica.fetchval("SELECT pg_get_wal_replay_pause_state() = 'paused'"))
    await primary.execute("CREATE TABLE later ()")
    assert await seen(pair.replica, 0.1) == (True, True, False)
    told = run("doctor", "--json", HAI_FLOW_DATABASE_URL=pair.primary, HAI_FLOW_DATABASE_REPLICA_URL=database_url)
    checks = {each["name"]: each["verdict"] for each in json.loads(told.stdout)["checks"]}
    assert checks["replica"] == "bad"
    await primary.close()
    await replica.close()


@pytest.mark.parametrize(
    ("at", "verdict", "said"),
    [
        (Standby(True, True, 0.02), "good", "within 0.02 s"),
        (Standby(True, True, None), "doubtful", "did not get"),
        (Standby(False, True, None), "doubtful", "took over"),
        (Standby(False, False, None), "bad", "another server"),
        ("it does not answer: refused", "doubtful", "refused"),
    ],
)
def test_each_thing_that_a_replica_can_be_has_a_verdict(at: Standby | str, verdict: str, said: str) -> None:
    checks = examine(test_doctor.SETTINGS, test_doctor.GOOD, msgspec.structs.replace(test_doctor.PLACE, replica=at))
    (check,) = (check for check in checks if check.name == "replica")
    assert (check.verdict, said in check.found, bool(check.remedy)) == (verdict, True, verdict != "good")


@given(st.lists(st.integers(1, 3), max_size=8), st.integers(0, 20), st.integers(0, 24), st.data())
def test_what_is_taken_for_whole_lacks_nothing(sizes: list[int], after: int, seq: int, data: st.DataObject) -> None:
    """Any part of any log: it counts as whole if it has all that was asked for, without a gap, and only then."""
    log, first = list[LogRow](), 1
    for size in sizes:
        log.append(LogRow(first, first + size - 1, b"[]"))
        first += size
    limit = data.draw(st.integers(1, 10))
    kept = [row for row in log if row.last_seq > after and data.draw(st.booleans())][:limit]
    there = {n for row in kept for n in range(row.first_seq, row.last_seq + 1)}
    found = _keep_if_gapless(kept, after, seq, limit)
    last = kept[-1].last_seq if kept else 0
    end = last if len(kept) == limit else max(seq, last)  # a full page ends where it ends
    lacks_nothing = after >= seq or set(range(after + 1, end + 1)) <= there
    assert found == (kept if lacks_nothing else None)
