"""As `test_loop_time`, where personal values are kept from readers, and where callers are known by keys: what others
see of a large value is made of it anew for each look."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.runtime.people.receipts import make_key
from hai_flow.settings import Settings
from tests.attacks.test_loop_time import JSON, stalls
from tests.attacks.work import HEAD
from tests.runtime.conftest import Make
from tests.support.examples import sample
from tests.support.identities import KEYS, People
from tests.support.server import YAML
from tests.support.stalls import STALL_SECONDS, Stalls
from tests.support.waiting import until

__all__ = ["stalls"]

FLOW: Final = HEAD + (
    "visibility: tenant\n"
    "input: {type: object, required: [x], properties: {x: {type: array, items: {type: object, "
    "properties: {iban: {type: string, pii: true}}}}}}\n"
    "tools: {e: {python: tests.support.effects, effect: write}}\n"
    "steps:\n"
    "  - {id: a, approve: {title: Hm, evidence: {x: '${{ input.x }}'}, from: role:boss}}\n"
)
CALL: Final = FLOW.replace("name: work", "name: calls").replace(
    "{id: a, approve: {title: Hm, evidence: {x: '${{ input.x }}'}, from: role:boss}}",
    "{id: a, call: e.echo, with: {value: '${{ input.x }}'}, approval: {from: role:boss, edit: true}}",
)
ROWS: Final = [{"iban": "x"}] * 18_000
READERS: Final = ("viewer", "boss")


class Place(NamedTuple):
    api: httpx2.AsyncClient
    stalls: Stalls
    who: dict[str, dict[str, str]]

    async def ask(self, workflow: str) -> dict[str, str]:
        """The ids of a run of Ann's that asks its boss, of its thread and of its question."""
        content = json.dumps({"workflow": workflow, "input": {"x": ROWS}}).encode()
        answer = await self.api.post("/v1/runs", content=content, headers={**JSON, **self.who["ann"]})
        assert answer.status_code == 201, answer.text[:300]
        run = answer.json()

        async def asked() -> list[Any]:
            seen = (await self.api.get(f"/v1/runs/{run['id']}", headers=self.who["operator"])).json()
            assert seen["status"] != "failed", seen["error"]
            query, by = {"run_id": run["id"]}, self.who["operator"]
            return list((await self.api.get("/v1/pendings", params=query, headers=by)).json()["items"])

        (pending,) = await until(asked)
        return {"run": run["id"], "thread": run["thread_id"], "pending": pending["id"]}


@pytest.fixture
async def place(make: Make, database_url: str, stalls: Stalls, tmp_path: Path) -> AsyncIterator[Place]:
    make_key(keys := tmp_path / "keys.json")
    runtime = await make(performs=True, identity="keys", publish=True, receipt_keys=keys)
    people = People(database_url)
    who = {
        "ann": people.person("user:ann"),
        "viewer": people.person("user:vic", roles=["viewer"]),
        "operator": people.person("user:op", roles=["operator"]),
        "boss": people.person("user:boss", roles=["decider", "boss"]),
    }
    transport = httpx2.ASGITransport(
        app=create_app(Settings(publish=True, identity=KEYS["HAI_FLOW_IDENTITY"]), runtime)
    )
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        publisher = people.person("user:pat", roles=["publisher"])
        for text in (FLOW, CALL):
            answer = await client.post("/v1/workflows", content=text.encode(), headers={**YAML, **publisher})
            assert answer.status_code == 201, answer.text
        yield Place(client, stalls, who)


async def read_all(place: Place) -> None:
    """All that REST shows of a run, to everybody who sees any of it."""
    ids = [await place.ask(workflow) for workflow in ("work", "calls")]
    place.stalls.forget()
    for name in sample(READERS, 1):
        for each in ids:
            for path in sample(PATHS, 8, name):
                answer = await place.api.get(
                    path.format(**each), headers={**place.who[name], "Accept": "application/json"}
                )
                assert answer.status_code < 500, (path, answer.text[:300])
                await asyncio.sleep(0)
                assert place.stalls.longest < STALL_SECONDS, (name, path, place.stalls.longest)
                place.stalls.forget()


PATHS: Final = (
    "/v1/runs?limit=5", "/v1/runs/{run}", "/v1/runs/{run}/steps", "/v1/runs/{run}/snapshot",
    "/v1/runs/{run}/diff?from=1", "/v1/runs/{run}/events?limit=50", "/v1/runs/{run}/marks", "/v1/pendings",
    "/v1/pendings/{pending}", "/v1/inbox", "/v1/inbox?text=iban", "/v1/inbox/{pending}", "/v1/threads/{thread}",
    "/v1/threads/{thread}/messages", "/v1/oversight", "/v1/inbox/decided",
)  # fmt: skip


async def edit_and_approve(place: Place) -> None:
    """Thousands of edits of a large call, and of one that is none: each is a pointer into the arguments."""
    many, ids = {f"/value/{number}/iban": "y" for number in range(18_000)}, await place.ask("calls")
    for edits in ({"/value/" + "9" * 5_000: 1}, {"/value/\u00b2": 1}, many):
        content = json.dumps({"decision": "approve", "edits": edits}).encode()
        await asyncio.sleep(0)
        place.stalls.forget()
        path = f"/v1/pendings/{ids['pending']}/decide"
        answer = await place.api.post(path, content=content, headers={**JSON, **place.who["boss"]})
        assert answer.status_code == (200 if edits is many else 422), answer.text[:300]
        await asyncio.sleep(0)
        assert place.stalls.longest < STALL_SECONDS, place.stalls.longest

    async def proven() -> bool:
        path = f"/v1/pendings/{ids['pending']}/receipt"
        return (await place.api.get(path, headers=place.who["boss"])).status_code == 200

    await until(proven)
    await asyncio.sleep(0)
    assert place.stalls.longest < STALL_SECONDS, place.stalls.longest


@pytest.mark.costly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("act", [read_all, edit_and_approve], ids=lambda act: act.__name__)
async def test_what_is_kept_from_readers_takes_long_on_no_loop(
    place: Place, act: Callable[[Place], Awaitable[None]]
) -> None:
    await act(place)
