"""The application below another one, as a framework mounts it: each path is where it was, behind the prefix."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from hai_flow.api.app import create_app
from hai_flow.settings import Settings
from tests.runtime.conftest import Make, start
from tests.runtime.conftest import make as make

BELOW = "/flows"
SAID = {"threadId": "t1", "runId": "r1", "messages": [], "state": {}, "tools": [], "context": [], "forwardedProps": {}}
MCP = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def mount(kind: str, app: Any) -> Any:
    if kind == "Starlette":
        return Starlette(routes=[Mount(BELOW, app)])
    above = FastAPI(redirect_slashes=True)
    above.mount(BELOW, app)
    return above


@pytest.mark.parametrize("kind", ["Starlette", "FastAPI", "FastAPI behind a proxy"])
async def test_every_route_is_reachable_below_another_application(make: Make, kind: str) -> None:
    runtime = await make(performs=True)
    run = await start(runtime, "steps:\n  - say: hi\n")
    prefix = "/public" if kind == "FastAPI behind a proxy" else ""
    app = mount(kind, create_app(Settings(), runtime, act_as=True))
    transport = httpx2.ASGITransport(app=app, root_path=prefix)
    async with httpx2.AsyncClient(
        transport=transport, base_url=f"http://127.0.0.1{prefix}{BELOW}", timeout=20
    ) as client:
        shown = (await client.get(f"/v1/runs/{run.run_id}")).json()
        assert shown["id"] == str(run.run_id)
        said = await client.post(f"/workflows/{shown['workflow']}/ag-ui", json=SAID)
        assert (said.status_code, "RUN_FINISHED" in said.text) == (200, True)
        asked = await client.post("/mcp", json=MCP, headers={"accept": "application/json, text/event-stream"})
        assert asked.status_code < 500
        assert asked.status_code != 404
        hook = (await client.post("/v1/hooks/nobody", json={})).json()
        assert hook["detail"] != (await client.post("/nowhere", json={})).json()["detail"]
        console = await client.get("/console/")
        assert console.status_code in (200, 503)
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/nowhere")).json()["code"] == "not_found"
