"""The port on which a process shows itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from hai_flow.errors import HaiFlowError
from hai_flow.primitives.hosts import host_and_port
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings, SettingsError
from hai_flow.store.postgres.database import Deadlines
from hai_flow.telemetry.watching import Watching
from tests.support.effects import MODULES
from tests.support.proxy import Proxy
from tests.support.scraping import Scrape
from tests.support.waiting import until

ANYWHERE = "127.0.0.1:0"


@asynccontextmanager
async def shown(
    url: str, *, performs: bool = True, deadlines: Deadlines | None = None, **settings: Any
) -> AsyncIterator[tuple[Runtime, httpx2.AsyncClient]]:
    """A runtime that is not started yet, and a client of its port."""
    wanted = Settings(
        tools=MODULES, metrics=ANYWHERE, poll_seconds=0.1, lease_seconds=3.0, heartbeat_seconds=0.3, **settings
    )
    watching = Watching(wanted)
    runtime = Runtime(url, wanted, performs=performs, deadlines=deadlines, observers=watching.observers)
    async with watching.serve(runtime) as place, httpx2.AsyncClient(base_url=place or "", timeout=60) as client:
        yield runtime, client


async def code_of(client: httpx2.AsyncClient) -> str:
    response = await client.get("/readyz")
    return "ready" if response.status_code == 200 else response.json()["code"]


async def test_a_worker_shows_its_metrics_and_whether_it_is_ready(database_url: str) -> None:
    async with shown(database_url) as (runtime, client):
        assert await code_of(client) == "starting"
        assert (await client.get("/healthz")).status_code == 200
        async with runtime.lifespan():
            assert await code_of(client) == "ready"
            response = await client.get("/metrics")
            assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert Scrape(response.text).value("runs_held") == 0
            await until(lambda: alive_by(client))
        assert await code_of(client) in ("starting", "closing")


async def alive_by(client: httpx2.AsyncClient) -> bool:
    return Scrape((await client.get("/metrics")).text).value("workers_alive") == 1


async def test_a_process_that_drains_says_so_until_it_has_ended(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining, go_on = asyncio.Event(), asyncio.Event()
    async with shown(database_url) as (runtime, client):
        await runtime.start()
        assert runtime.worker is not None
        stop = runtime.worker._stop

        async def slowly() -> None:
            draining.set()
            await go_on.wait()
            await stop()

        monkeypatch.setattr(runtime.worker, "_stop", slowly)
        ending = asyncio.create_task(runtime.stop())
        await draining.wait()
        assert await code_of(client) == "closing"
        assert (await client.get("/metrics")).status_code == 200
        go_on.set()
        await ending


async def test_a_worker_without_a_lease_is_not_ready(database_url: str) -> None:
    async with shown(database_url) as (runtime, client), runtime.lifespan():
        worker, runtime.committer.worker_id = runtime.committer.worker_id, None
        response = await client.get("/readyz")
        assert (response.status_code, response.json()["code"]) == (503, "impaired")
        assert "lease" in response.json()["detail"]
        runtime.committer.worker_id = worker


async def test_a_process_whose_database_is_silent_answers_all_the_same(database_url: str) -> None:
    quick = Deadlines(connect_seconds=1.0, acquire_seconds=1.0, statement_seconds=1.0, close_seconds=0.5)
    async with Proxy(database_url) as proxy, shown(proxy.dsn, deadlines=quick) as (runtime, client), runtime.lifespan():
        await until(lambda: is_code(client, "ready"))
        proxy.swallow()
        await until(lambda: is_code(client, "database_unavailable"))
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200
        proxy.silent = False
        for line in proxy.lines():
            line.cut()
        await until(lambda: is_code(client, "ready"))


async def is_code(client: httpx2.AsyncClient, code: str) -> bool:
    return await code_of(client) == code


async def test_metrics_ask_for_the_token_and_the_probes_do_not(database_url: str) -> None:
    async with shown(database_url, metrics_token="s3cret") as (runtime, client), runtime.lifespan():
        assert (await client.get("/readyz")).status_code == (await client.get("/healthz")).status_code == 200
        for credential in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
            refused = await client.get("/metrics", headers=credential)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert "hai_flow" not in refused.text
        assert (await client.get("/metrics", headers={"Authorization": "Bearer s3cret"})).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/v1/runs", 404), ("POST", "/metrics", 405), ("HEAD", "/metrics", 200)],
)
async def test_the_port_has_three_paths_and_nothing_else(
    database_url: str, method: str, path: str, status: int
) -> None:
    async with shown(database_url, performs=False) as (_, client):
        response = await client.request(method, path)
        assert response.status_code == status or path == "/metrics"
        assert not response.content or method != "HEAD"


async def test_a_port_that_is_taken_is_told(database_url: str) -> None:
    async with shown(database_url) as (_, client):
        taken = Watching(Settings(metrics=f"127.0.0.1:{client.base_url.port}"))
        with pytest.raises(HaiFlowError, match="for metrics"):
            async with taken.serve(Runtime(database_url, Settings(), performs=False)):
                pass


@pytest.mark.parametrize("text", ["9464", "host", ":", "a b:1", ":65536", ":-1", "[::1]", "http://x:1", ":١"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="HAI_FLOW_METRICS"):
        Settings(metrics=text)


@pytest.mark.parametrize(
    ("text", "place"),
    [(":9464", ("127.0.0.1", 9464)), ("localhost:0", ("localhost", 0)), ("[::1]:9464", ("::1", 9464))],
)
def test_a_place_is_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    assert host_and_port(text) == place


def test_beyond_loopback_a_token_is_needed() -> None:
    with pytest.raises(SettingsError, match="HAI_FLOW_METRICS_TOKEN"):
        Settings(metrics="0.0.0.0:9464")
    assert Settings(metrics="0.0.0.0:9464", metrics_token="s3cret").metrics is not None
