"""A fault of the server itself: an answer like every other, which tells no detail."""

from __future__ import annotations

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings

PAGE = "https://app.example.com"


async def test_a_page_learns_that_the_server_failed_and_nothing_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is hunter2")

    settings = Settings(allowed_origins=(PAGE,))
    runtime = Runtime(database_url, settings, performs=False)
    transport = httpx2.ASGITransport(app=create_app(settings, runtime))
    async with (
        runtime.lifespan(),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers={"Origin": PAGE}) as client,
    ):
        sound = await client.get("/v1/workflows/nothing")
        monkeypatch.setattr(Catalog, "resolve", broken)
        response = await client.get("/v1/workflows/nothing")
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert "hunter2" not in response.text
    assert response.headers["access-control-allow-origin"] == PAGE
    assert dict(response.headers).keys() >= dict(sound.headers).keys() - {"cache-control"}
