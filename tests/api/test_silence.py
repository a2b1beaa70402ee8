"""A request to a server whose database does not answer gets a sentence, not silence."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.errors import Rejected
from hai_flow.runtime.base.single_flight import SingleFlightCache
from hai_flow.runtime.ops.readiness import NOT_STORED, Readiness, Refusals
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.postgres import revisions
from hai_flow.store.postgres.database import Deadlines
from tests.support.proxy import Proxy
from tests.support.server import expect
from tests.support.waiting import until

ASKING = b"""
hai: flow/v1
name: asking
version: 1
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""


async def test_every_request_ends_with_a_sentence_and_the_server_is_not_ready(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.commit.committer.ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("hai_flow.runtime.runtime.STUCK_SECONDS", 0.5)
    quick = Deadlines(connect_seconds=1.5, acquire_seconds=1.5, statement_seconds=1.5, close_seconds=1.0)
    settings = Settings(lease_seconds=3.0, heartbeat_seconds=0.3, poll_seconds=0.1, shutdown_seconds=1.0)
    async with Proxy(database_url) as proxy:
        runtime = Runtime(proxy.dsn, settings, performs=True, deadlines=quick)
        transport = httpx2.ASGITransport(app=create_app(settings, runtime), raise_app_exceptions=False)
        async with (
            runtime.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as client,
        ):
            await runtime.catalog.publish(LOCAL_TENANT, ASKING)
            assert (await client.get("/readyz")).status_code == 200
            run = expect(await client.post("/v1/runs", json={"workflow": "asking"}), 200, 201, 202).json()["id"]
            proxy.swallow()
            for response in (
                await client.get("/v1/runs"),
                await client.get(f"/v1/runs/{run}"),
                await client.post(f"/v1/runs/{run}/pause", headers={"Idempotency-Key": "once"}),
                await client.post("/v1/events", json={"type": "x", "data": 1}),
                await client.get("/readyz"),
            ):
                problem = response.json()
                assert response.status_code == 503, problem
                assert problem["code"] in ("store_unavailable", "database_unavailable")
                assert "database" in problem["detail"]
                is_read = response.request.method == "GET" and problem["code"] == "store_unavailable"
                assert ("nothing was changed; try again" in problem["detail"]) == is_read
            assert (await client.get("/healthz")).status_code == 200
            proxy.silent = False
            for line in proxy.lines():
                line.cut()

            async def ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await until(ready)


async def test_however_many_ask_whether_it_is_ready_one_connection_is_opened(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks, go_on = revisions.is_behind, 0, asyncio.Event()

    async def counted(*given: Any) -> bool:
        nonlocal looks
        looks += 1
        await go_on.wait()
        return await real(*given)

    monkeypatch.setattr(revisions, "is_behind", counted)
    monkeypatch.setattr("hai_flow.runtime.ops.readiness.SCHEMA_SECONDS", 3600.0)
    settings = Settings()
    runtime = Runtime(database_url, settings, performs=False)
    transport = httpx2.ASGITransport(app=create_app(settings, runtime))
    async with runtime.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        impatient = asyncio.create_task(client.get("/readyz"))
        await until(lambda: looks)
        impatient.cancel()
        asking = [asyncio.create_task(client.get("/readyz")) for _ in range(20)]
        go_on.set()
        assert {response.status_code for response in await asyncio.gather(*asking)} == {200}
        assert (await client.get("/readyz")).status_code == 200
        assert looks == 1


_READ_ONLY = """
SET default_transaction_read_only = off;
DO $$ BEGIN
  EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {}', current_database());
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
END $$
"""


@pytest.mark.parametrize("performs", [False, True], ids=["serve", "worker"])
async def test_a_process_whose_database_stores_nothing_is_not_ready(
    database_url: str, monkeypatch: pytest.MonkeyPatch, performs: bool
) -> None:
    monkeypatch.setattr("hai_flow.runtime.ops.readiness.SPACE_SECONDS", -1.0)
    monkeypatch.setattr("hai_flow.runtime.worker.registry.SAY_SECONDS", 0.2)
    settings = Settings(heartbeat_seconds=0.5, lease_seconds=2.0, poll_seconds=0.2)
    runtime = Runtime(database_url, settings, performs=performs)
    eye = await asyncpg.connect(database_url)
    try:
        async with runtime.lifespan():
            readiness = Readiness(runtime)
            await readiness.demand_hands()
            await eye.execute(_READ_ONLY.format("on"))

            async def refuses() -> str | None:
                try:
                    await readiness.demand_hands()
                except Rejected as rejected:
                    return rejected.detail
                return None

            async def says_why() -> bool:
                return await refuses() == NOT_STORED

            async def is_ready() -> bool:
                return await refuses() is None

            await until(says_why)
            await eye.execute(_READ_ONLY.format("off"))
            await until(is_ready)
    finally:
        await eye.close()


@pytest.mark.parametrize(
    ("error", "is_noted"),
    [
        (asyncpg.DiskFullError("could not extend file"), True),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE"), True),
        (asyncpg.PostgresIOError("could not write"), True),
        (asyncpg.TooManyConnectionsError("sorry"), False),
        (asyncpg.UniqueViolationError("twice"), False),
        (OSError("it broke off"), False),
    ],
)
def test_what_no_space_or_no_right_to_write_refuses_is_noted(error: Exception, is_noted: bool) -> None:
    refusals = Refusals()
    refusals.note(error)
    assert (refusals.at is not None, refusals.is_recent()) == (is_noted, is_noted)


async def test_an_old_answer_is_looked_up_again_and_a_failure_reaches_all() -> None:
    found = iter([1, ZeroDivisionError(), 3])

    async def find() -> int:
        answer = next(found)
        if isinstance(answer, Exception):
            raise answer
        return answer

    recent = SingleFlightCache(find, seconds=-1.0)
    assert await recent.get() == 1
    told = await asyncio.gather(recent.get(), recent.get(), return_exceptions=True)
    assert [type(each) for each in told] == [ZeroDivisionError] * 2
    assert await recent.get() == 3


async def test_a_process_whose_loops_do_not_run_is_not_ready(database_url: str) -> None:
    settings = Settings()
    runtime = Runtime(database_url, settings, performs=False)
    transport = httpx2.ASGITransport(app=create_app(settings, runtime))
    async with runtime.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        assert (await client.get("/readyz")).status_code == 200

        async def end() -> None:
            raise ZeroDivisionError

        runtime.committer._keep(end, "lane 7")
        await until(lambda: runtime.faults())
        response = expect(await client.get("/readyz"), 503)
        assert response.json()["code"] == "impaired"
        assert "lane 7" in response.json()["detail"]
