"""What would refuse a fork, or the run of a message that interrupts, is asked before anything is stopped for it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from tests.api.test_rest import Checked, http, start
from tests.support.hai_client import HaiClient, unique, user
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import until

__all__ = ["http"]

BODY = """
hai: flow/v1
name: {name}
version: {version}
{head}
visibility: tenant
input: {{type: object, properties: {{customer: {{type: string, default: c1}}}}}}
tools: {{e: {{python: tests.support.effects, effect: write}}}}
steps:
  - {{id: reserve, call: e.echo, with: {{value: 1}}, undo: {{call: e.echo, with: {{value: undone}}}}}}
  - {{id: later, call: e.echo, with: {{value: 2}}}}
  - {{id: sure, ask: {{title: Sure?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
"""
ONE = 'concurrency: {key: "${{ input.customer }}", limit: 1}'


def published(http: httpx2.Client, head: str = "", name: str | None = None, version: int = 1) -> str:
    name = name or unique("heirs").replace("-", "_")
    expect(http.post("/v1/workflows", content=BODY.format(name=name, head=head, version=version), headers=YAML), 201)
    return name


async def is_now(http: httpx2.Client, run_id: str, status: str) -> None:
    await until(lambda: http.get(f"/v1/runs/{run_id}").json()["status"] == status)


def fork(http: httpx2.Client, run_id: str, **body: Any) -> httpx2.Response:
    return http.post(f"/v1/runs/{run_id}/fork", json={"step": "later", **body})


def steps(http: httpx2.Client, run_id: str) -> dict[str, str]:
    found = http.get(f"/v1/runs/{run_id}/snapshot").json()["steps"]
    return {path: step["status"] for path, step in found.items()}


async def test_a_fork_gets_its_origins_slot_before_runs_that_wait_for_it(http: Checked) -> None:
    name = published(http, ONE)
    first = start(http, name)["id"]
    await is_now(http, first, "waiting")
    second = start(http, name)["id"]
    forked = expect(fork(http, first, input={"customer": "c1"}), 201)
    await is_now(http, forked.json()["id"], "waiting")
    assert http.get(f"/v1/runs/{second}").json()["status"] == "queued"
    assert steps(http, first)["reserve"] == "finished", "it is the fork's now"
    http.post(f"/v1/runs/{forked.json()['id']}/terminate", json={})
    await is_now(http, second, "waiting")


async def test_a_fork_comes_before_a_message_that_waits_in_the_thread(server: ServerProcess, http: Checked) -> None:
    name = published(http, "on_message: enqueue")
    client = HaiClient(server.url, workflow=name)
    client.post(user("go"))
    (first,) = http.get("/v1/runs", params={"thread_id": client.thread_id}).json()["items"]
    await is_now(http, first["id"], "waiting")
    with client.open(user("second")):
        forked = expect(fork(http, first["id"]), 201)
        await is_now(http, forked.json()["id"], "waiting")
        assert len(http.get(f"/v1/threads/{client.thread_id}/queue").json()["items"]) == 1
        http.post(f"/v1/runs/{forked.json()['id']}/terminate", json={})
        await until(lambda: not http.get(f"/v1/threads/{client.thread_id}/queue").json()["items"])


async def test_a_fork_counts_under_the_key_of_the_input_that_it_begins_with(http: Checked) -> None:
    name = published(http, ONE)
    one, two = (start(http, name, input={"customer": who})["id"] for who in ("c1", "c2"))
    await is_now(http, one, "waiting")
    await is_now(http, two, "waiting")
    busy = fork(http, one, input={"customer": "c2"})
    assert (busy.status_code, busy.json()["code"]) == (409, "concurrency_busy")
    assert busy.json()["winner"]["run_id"] == two
    assert http.get(f"/v1/runs/{one}").json()["status"] == "waiting", "nothing was stopped"
    free = expect(fork(http, one, input={"customer": "c3"}), 201)
    await is_now(http, free.json()["id"], "waiting")
    third, fourth = (start(http, name, input={"customer": who})["id"] for who in ("c1", "c3"))
    await is_now(http, third, "waiting")
    assert http.get(f"/v1/runs/{fourth}").json()["status"] == "queued", "its key is the fork's now"


async def test_a_fork_counts_by_the_version_that_it_goes_into(http: Checked) -> None:
    name = published(http)
    run = start(http, name)["id"]
    await is_now(http, run, "waiting")
    published(http, ONE, name, 2)
    forked = fork(http, run, version="2").json()["id"]
    await is_now(http, forked, "waiting")
    assert start(http, name)["status"] == "queued"
    expect(fork(http, forked, version="1"), 201)
    await until(
        lambda: (
            "waiting" in [each["status"] for each in http.get("/v1/runs", params={"workflow": name}).json()["items"]]
        )
    )
    free = start(http, name, input={"customer": "other"})["id"]
    await is_now(http, free, "waiting")


async def test_a_tenant_at_its_limit_of_open_runs_can_still_fork_one(postgres_server: Server) -> None:
    environment = {"HAI_FLOW_TENANT_OPEN_RUNS_MAX": "1"}
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment=environment) as server,
        httpx2.Client(base_url=server.url, timeout=20) as http,
    ):
        run = start(http, published(http))["id"]
        await is_now(http, run, "waiting")
        assert fork(http, run).status_code == 201


async def test_of_two_forks_of_one_run_at_once_one_is_refused_with_the_winner(
    server: ServerProcess, http: Checked
) -> None:
    run = start(http, published(http))["id"]
    await is_now(http, run, "waiting")
    async with httpx2.AsyncClient(base_url=server.url, timeout=40) as both:
        path = f"/v1/runs/{run}/fork"
        answers = await asyncio.gather(*(both.post(path, json={"step": step}) for step in ("later", "sure")))
    lost, won = sorted(answers, key=lambda answer: answer.status_code == 201)
    assert (won.status_code, lost.status_code, lost.json()["code"]) == (201, 409, "fork_overtaken")
    assert lost.json()["winner"]["run_id"] == won.json()["id"]


async def test_a_run_that_is_moved_into_a_version_that_counts_is_counted(http: Checked) -> None:
    name = published(http)
    runs = [start(http, name)["id"] for _ in range(2)]
    for run in runs:
        await is_now(http, run, "waiting")
    published(http, ONE, name, 2)
    moved = http.post(f"/v1/workflows/{name}/migrate", json={"from": "1", "to": "2", "runs": runs}).json()["runs"]
    assert sorted(each["moved"] for each in moved) == [False, True]
    (stays,) = [each for each in moved if not each["moved"]]
    assert [each["code"] for each in stays["obstacles"]] == ["concurrency_busy"]
    third = start(http, name)
    assert third["status"] == "queued"
    (holder,) = [each["id"] for each in moved if each["moved"]]
    http.post(f"/v1/runs/{holder}/terminate", json={})
    await is_now(http, third["id"], "waiting")
