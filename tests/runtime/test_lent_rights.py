"""An approval lends no rights: what was approved is done with those of the run, whatever the approver may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from hai_flow.api.app import create_app
from hai_flow.settings import Settings
from tests.runtime.conftest import Make
from tests.support.identities import People
from tests.support.server import YAML
from tests.support.service import Received, Reply, Service
from tests.support.waiting import until

SECRETS = "hai: secrets/v1\nsecrets: {TILL: {hosts: [127.0.0.1], workflows: [till]}}\n"
BELOW = "hai: flow/v1\nname: below\nversion: 1\nsteps: [{say: hi}]\n"
FLOW = """
hai: flow/v1
name: NAME
version: 1
steps:
  - {id: below, run: below, approval: {from: ["user:boss"]}}
  - {id: plain, http: {post: "URLplain", body: {}}, approval: {from: ["user:boss"]}}
  - id: paid
    http: {post: "URLpaid", body: {}, headers: {X-Key: "${{ secrets.TILL }}"}}
    approval: {from: ["user:boss"]}
"""


async def test_a_call_runs_under_the_rights_of_its_run_whoever_approves(
    make: Make, database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_text(SECRETS)
    people = People(database_url)
    everything = ["publisher", "operator", "decider", "admin", "auditor"]
    boss, ann = people.person("user:boss", roles=everything), people.person("user:ann", roles=["operator"])
    more: dict[str, Any] = {"secrets": {"TILL": "a-key-of-the-till"}, "secrets_file": file}
    async with Service(lambda received: Reply(200, b"{}")) as service:
        runtime = await make(performs=True, identity="keys", publish=True, http_hosts=("127.0.0.1",), **more)
        transport = httpx2.ASGITransport(app=create_app(Settings(identity="keys", publish=True), runtime))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def end(name: str) -> list[Received]:
                """What the service gets of a run that ann starts and the boss approves."""
                before = len(service.received)
                text = FLOW.replace("NAME", name).replace("URL", service.url())
                for source in (BELOW, text):
                    (await http.post("/v1/workflows", content=source, headers=YAML | boss)).raise_for_status()
                id = (await http.post("/v1/runs", json={"workflow": name}, headers=ann)).raise_for_status().json()["id"]

                async def approve_all() -> bool:
                    for each in (await http.get("/v1/pendings", headers=boss)).json()["items"]:
                        await http.post(f"/v1/pendings/{each['id']}/decide", json={"decision": "approve"}, headers=boss)
                    run = (await http.get(f"/v1/runs/{id}", headers=boss)).json()
                    codes.append((run["error"] or {}).get("code"))
                    return run["status"] in ("finished", "failed", "needs_attention")

                await until(approve_all)
                return service.received[before:]

            codes: list[str | None] = []
            assert [each.target for each in await end("till")] == ["/plain", "/paid"]
            received = await end("other")
            assert ([each.target for each in received], codes[-1]) == (["/plain"], "secret.refused")
            keys = [each["Authorization"].removeprefix("Bearer ") for each in (boss, ann)]
            assert not [each for each in (*keys, "user:boss") if each in repr(received)]
            runs = (await http.get("/v1/runs", params={"workflow": "below"}, headers=boss)).json()["items"]
            assert [each["started_by"] for each in runs] == ["user:ann", "user:ann"]
