"""Two acts on one run at the same moment: both are answered, one approval pays once, and nothing is left half done."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx2
import pytest

from tests.support.hai_client import unique
from tests.support.server import YAML, ServerProcess
from tests.support.waiting import until

FLOW: Final = """\
hai: flow/v1
name: {name}
version: 1
concurrency: {{key: "${{{{ input.key }}}}", limit: 1}}
input: {{type: object, properties: {{key: {{type: string}}}}}}
tools: {{fx: {{python: tests.support.effects, effect: write}}}}
steps:
  - {{id: hold, call: fx.echo, with: {{value: held}}, undo: {{call: fx.echo, with: {{value: released}}}}}}
  - {{id: sure, approve: {{title: Pay?, from: anyone}}}}
  - {{id: pay, call: fx.echo, with: {{value: paid}}}}
"""
ENDED: Final = ("finished", "failed", "stopped")
ACTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "approve": ("decide", {"decision": "approve"}),
    "reject": ("decide", {"decision": "reject"}),
    "skip": ("skip", {"step": "sure"}),
    "stop": ("stop", {}),
    "terminate": ("terminate", {}),
    "pause": ("pause", {}),
    "fork": ("fork", {"step": "sure"}),
    "fork from the beginning": ("fork", {"step": "hold"}),
}
PAIRS: Final = [
    (first, second)
    for first in ACTS
    for second in ACTS
    if first < second or (first == second and ACTS[first][0] in ("fork", "decide", "skip"))
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_of_two_acts_at_once_both_are_answered_and_nothing_is_half_done(
    server: ServerProcess, first: str, second: str
) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
        name, thread = unique("twice").replace("-", "_"), unique("thread")
        assert (await http.post("/v1/workflows", content=FLOW.format(name=name), headers=YAML)).status_code == 201
        body = {"workflow": name, "thread_id": thread, "input": {"key": thread}}
        run = (await http.post("/v1/runs", json=body)).json()["id"]
        await until(lambda: is_now(http, run, "waiting"))
        pending = next(
            each["id"]
            for each in (await http.get("/v1/pendings", params={"run_id": run})).json()["items"]
            if each["run_id"] == run
        )

        async def do(what: str) -> httpx2.Response:
            act, content = ACTS[what]
            path = f"/v1/pendings/{pending}/decide" if act == "decide" else f"/v1/runs/{run}/{act}"
            return await http.post(path, json=content, headers={"Idempotency-Key": unique("act")})

        answers = await asyncio.gather(do(first), do(second))
        for answer in answers:
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
        await until(lambda: all_at_rest(http, thread))
        runs = (await http.get("/v1/runs", params={"thread_id": thread})).json()["items"]
        forks = [each for each in runs if each["id"] != run]
        begun = [answer for what, answer in zip((first, second), answers, strict=True) if what.startswith("fork")]
        assert len(forks) == sum(answer.status_code == 201 for answer in begun)
        assert [each["status"] for each in runs].count("waiting") <= 1, "one key, one active run"
        paid = [each["id"] for each in runs if await has_paid(http, each["id"])]
        assert len(paid) <= 1, f"one approval pays once: {[answer.text for answer in answers]}"
        if {first, second} <= {"approve", "skip"}:
            assert paid == [run]
        elif paid:
            assert {"approve", "skip"} & {first, second}
        if not forks and "terminate" not in (first, second) and await is_now(http, run, "stopped"):
            events = (await http.get(f"/v1/runs/{run}/events")).json()["items"]
            assert any("undo" in event["type"] for event in events), "what was held is given back, or left to a fork"


async def is_now(http: httpx2.AsyncClient, run: str, status: str) -> bool:
    return (await http.get(f"/v1/runs/{run}")).json()["status"] == status


async def all_at_rest(http: httpx2.AsyncClient, thread: str) -> bool:
    runs = (await http.get("/v1/runs", params={"thread_id": thread})).json()["items"]
    return all(each["status"] in (*ENDED, "waiting", "paused", "needs_attention") for each in runs)


async def has_paid(http: httpx2.AsyncClient, run: str) -> bool:
    steps = (await http.get(f"/v1/runs/{run}/steps")).json()["items"]
    return any(each["path"] == "pay" and each["status"] == "finished" for each in steps)
