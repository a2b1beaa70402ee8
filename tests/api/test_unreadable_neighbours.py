"""One run of a newer release, whose workflow this one can't read: it is one row, and harms nobody beside it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.api.test_callbacks import ENVIRONMENT, Shop, ordered
from tests.api.test_rest import Checked, start
from tests.support.hai_client import unique
from tests.support.postgres import Server, connecting, execute, run_apart
from tests.support.server import YAML, expect, serving
from tests.support.waiting import until

ASK = """hai: flow/v1
name: {name}
version: 1
visibility: tenant
steps:
  - {{id: sure, ask: {{title: Sure?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
"""
LISTS = ("/v1/inbox", "/v1/inbox/counts", "/v1/inbox/decided", "/v1/pendings", "/v1/runs", "/v1/threads",
  "/v1/workflows", "/v1/schedules", "/v1/notifications", "/v1/oversight", "/v1/oversight/me", "/v1/rules",
  "/v1/canaries", "/v1/overview", "/v1/runs/counts", "/v1/inbox?text=Sure", "/v1/audit")  # fmt: skip
OF_RUN = ("/v1/runs/{id}", "/v1/threads/{thread}", "/v1/threads/{thread}/messages", "/v1/threads/{thread}/queue",
  "/v1/threads/{thread}/feedback")  # fmt: skip
STRANGE_BODY = (
    "UPDATE pendings SET body = convert_to(replace(convert_from(body, 'UTF8'), $2, $3), 'UTF8') WHERE run_id = $1"
)

STRANGE_LOG = (
    "UPDATE log SET events = convert_to(replace(convert_from(events, 'UTF8'), $2, $3), 'UTF8') WHERE run_id = $1"
)


async def _of_a_newer_release(dsn: str, run: dict[str, Any]) -> None:
    """The run is pinned to a document with a key that this release does not know."""
    async with connecting(dsn) as connection:
        source = (ASK.format(name=run["workflow"]) + "brand_new_key: 1\n").encode()
        sha = hashlib.sha256(source).digest()
        await connection.execute(
            "INSERT INTO workflows (tenant, sha256, name, version, dev, source) "
            "SELECT tenant, $1, name, 2, false, $2 FROM workflows WHERE name = $3",
            sha,
            source,
            run["workflow"],
        )
        await connection.execute("UPDATE runs SET workflow = $1 WHERE id = $2", sha, UUID(run["id"]))


async def _with_a_question_of_a_new_kind(dsn: str, run: dict[str, Any]) -> None:
    await execute(dsn, STRANGE_BODY, UUID(run["id"]), '"kind":"ask"', '"kind":"ballot"')


async def _with_rules_that_nobody_here_knows(dsn: str, run: dict[str, Any]) -> None:
    """As if a newer release had asked for an approval, under a policy with one more rule."""
    async with connecting(dsn) as connection:
        await connection.execute(STRANGE_BODY, UUID(run["id"]), '"kind":"ask"', '"kind":"approve"')
        await connection.execute(STRANGE_BODY, UUID(run["id"]), '"policy":{', '"policy":{"ballot":"secret",')


@dataclass
class Stage:
    url: str
    bad: dict[str, Any]
    good: dict[str, Any]


SPOILERS = {
    "workflow": _of_a_newer_release,
    "question": _with_a_question_of_a_new_kind,
    "policy": _with_rules_that_nobody_here_knows,
}


@pytest.fixture(params=SPOILERS.values(), ids=list(SPOILERS))
def stage(postgres_server: Server, request: pytest.FixtureRequest) -> Iterator[Stage]:
    with postgres_server.database() as dsn, serving(dsn) as process, httpx2.Client(base_url=process.url) as http:
        names = [unique("q").replace("-", "_") for _ in range(2)]
        for name in names:
            assert http.post("/v1/workflows", content=ASK.format(name=name), headers=YAML).status_code == 201
        bad, good = (start(http, name) for name in names)
        for run in (bad, good):
            asyncio.run(until(lambda run=run: http.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting"))
        run_apart(request.param(dsn, bad))
        yield Stage(process.url, bad, good)


def test_every_list_is_answered_with_the_row_that_can_be_read(stage: Stage) -> None:
    with httpx2.Client(base_url=stage.url, timeout=20) as http:
        for path in LISTS:
            answer = http.get(path)
            assert answer.status_code == 200, (path, answer.text)
        for path in OF_RUN:
            answer = http.get(path.format(id=stage.bad["id"], thread=stage.bad["thread_id"]))
            assert answer.status_code == 200, (path, answer.text)
        asked = {each["run_id"]: each for each in http.get("/v1/inbox").json()["items"]}
        assert asked[stage.good["id"]]["may_decide"] is True
        assert asked[stage.bad["id"]]["why_not"]["code"] == "unreadable"
        assert stage.good["id"] in {each["run_id"] for each in http.get("/v1/pendings").json()["items"]}


def test_decisions_are_listed_beside_one_that_can_not_be_read(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as process, httpx2.Client(base_url=process.url) as http:
        name = unique("q").replace("-", "_")
        http.post("/v1/workflows", content=ASK.format(name=name), headers=YAML)
        bad, good = start(http, name), start(http, name)
        for run in (bad, good):
            asyncio.run(until(lambda run=run: http.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting"))
        asked = {each["run_id"]: each["id"] for each in http.get("/v1/inbox").json()["items"]}
        items = [{"id": asked[run["id"]], "values": {}} for run in (bad, good)]
        assert http.post("/v1/inbox/decide", json={"items": items}).status_code == 200
        run_apart(_with_a_question_of_a_new_kind(dsn, bad))
        decided = expect(http.get("/v1/inbox/decided"), 200)
        titles = {each["run_id"]: each["title"] for each in decided.json()["items"]}
        assert titles == {good["id"]: "Sure?", bad["id"]: None}


def test_the_feed_of_the_console_has_every_topic_and_goes_on(stage: Stage) -> None:
    topics: set[str] = set()
    with httpx2.Client(base_url=stage.url, timeout=20) as http, http.stream("GET", "/v1/feed") as stream:
        for line in stream.iter_lines():
            if line.startswith("event: "):
                topics.add(line.removeprefix("event: "))
            if topics >= {"runs", "inbox", "workflows", "schedules"}:
                break
    assert topics >= {"runs", "inbox", "workflows", "schedules"}


def test_of_several_answers_the_ones_that_can_be_read_are_taken(stage: Stage) -> None:
    with httpx2.Client(base_url=stage.url, timeout=20) as http:
        asked = {each["run_id"]: each["id"] for each in http.get("/v1/inbox").json()["items"]}
        items = [{"id": asked[run["id"]], "values": {}} for run in (stage.bad, stage.good)]
        assert expect(http.post("/v1/inbox/decide", json={"items": items}), 200).json()["items"][1]["status"] == 200


def test_a_workflow_of_a_newer_release_keeps_no_other_from_being_published(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as process, httpx2.Client(base_url=process.url) as http:
        name = unique("q").replace("-", "_")
        http.post("/v1/workflows", content=ASK.format(name=name), headers=YAML)
        run_apart(_of_a_newer_release(dsn, start(http, name)))
        above = f"hai: flow/v1\nname: above_{name}\nversion: 1\nsteps:\n  - {{id: sub, run: {name}}}\n"
        assert http.post("/v1/workflows", content=above, headers=YAML).status_code == 201
        expect(http.post("/v1/workflows", content=ASK.format(name=name), headers=YAML), 200, 201)
        refused = http.post("/v1/runs", json={"workflow": name})
        assert (refused.status_code, refused.json()["code"]) == (503, "run_unreadable")


async def _spoil(dsn: str, workflow: str) -> None:
    async with connecting(dsn) as connection:
        added = "UPDATE workflows SET source = source || 'brand_new_key: 1\n'::bytea WHERE name = $1"
        await connection.execute(added, workflow)


def test_a_callback_for_an_unreadable_run_is_told_to_retry_and_no_more(postgres_server: Server) -> None:
    shop = Shop()
    with postgres_server.database() as dsn:
        with serving(dsn, environment=ENVIRONMENT) as first, Checked(first.url) as http:
            run, path = ordered(http, shop)
            asyncio.run(until(lambda: http.get(f"/v1/runs/{run}").json()["status"] == "waiting"))
            workflow = http.get(f"/v1/runs/{run}").json()["workflow"]
        run_apart(_spoil(dsn, workflow))
        with serving(dsn, environment=ENVIRONMENT) as old, httpx2.Client(base_url=old.url, timeout=20) as http:
            said = expect(http.post(path, json={"paid": 3}), 503)
            assert said.headers["retry-after"]
            assert "brand_new_key" not in said.text
            assert "workflow" not in said.text
    shop.close()


async def _with_a_log_of_a_newer_release(dsn: str, run: dict[str, Any]) -> None:
    async with connecting(dsn) as connection:
        await connection.execute(
            STRANGE_LOG, UUID(run["id"]), '{"type":"run_started"', '{"type":"run_started","novelty":1'
        )
        await connection.execute("DELETE FROM snapshots WHERE run_id = $1", UUID(run["id"]))


def test_an_answer_to_an_unreadable_run_is_refused_alone_among_several(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        with serving(dsn) as first, httpx2.Client(base_url=first.url, timeout=20) as http:
            name = unique("q").replace("-", "_")
            http.post("/v1/workflows", content=ASK.format(name=name), headers=YAML)
            bad, good = start(http, name), start(http, name)
            for run in (bad, good):
                asyncio.run(until(lambda run=run: http.get(f"/v1/runs/{run['id']}").json()["status"] == "waiting"))
            asked = {each["run_id"]: each["id"] for each in http.get("/v1/inbox").json()["items"]}
        run_apart(_with_a_log_of_a_newer_release(dsn, bad))
        with serving(dsn) as second, httpx2.Client(base_url=second.url, timeout=20) as http:
            items = [{"id": asked[run["id"]], "values": {}} for run in (bad, good)]
            said = expect(http.post("/v1/inbox/decide", json={"items": items}), 200)
            assert [each["status"] for each in said.json()["items"]] == [503, 200]
            assert said.json()["items"][0]["problem"]["code"] == "run_unreadable"
