"""A tenant that lives in several cells: each thread in one, found by its name; lists, events and limits over all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hai_flow.cells import cell_of, draw_cell
from hai_flow.store.cells.cells import Cell
from hai_flow.store.identity import keys
from tests.api.test_cells import QUICK, YAML, Deployment, deployed
from tests.support import cells as support
from tests.support.postgres import Server, connecting, execute, fetch
from tests.support.proxy import Proxy
from tests.support.waiting import until

ASKING = """
hai: flow/v1
name: asking
version: 1
input: {type: object, properties: {file: {type: string}, other: {type: integer}}}
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""
LISTENING = """
hai: flow/v1
name: listening
version: 1
steps:
  - {id: first, wait_for: {event: tick}}
  - {id: second, wait_for: {event: tick}}
"""
COUNTED = """
hai: flow/v1
name: counted
version: 1
concurrency: {key: all, on_conflict: reject}
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""
ABOVE = """
hai: flow/v1
name: above
version: 1
steps:
  - {id: below, run: counted}
"""
STARTED = """
hai: flow/v1
name: started
version: 1
triggers:
  - event: {type: tock}
steps:
  - {say: Hello.}
"""
BEHIND = """
hai: flow/v1
name: behind
version: 1
triggers:
  - run: {workflow: asking}
concurrency: {key: all}
steps:
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""
PAYING = """
hai: flow/v1
name: paying2
version: 1
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - {id: pay, call: fx.echo, with: {value: 7}, approval: {from: role:decider}}
"""


@dataclass(frozen=True, slots=True)
class Large:
    """A process, with a tenant in the cells `one` and `two`, which began in the first alone or in both."""

    there: Deployment
    who: dict[str, str]
    one: Cell
    two: Cell

    async def publish(self, *sources: str) -> None:
        for source in sources:
            said = await self.there.http.post("/v1/workflows", content=source, headers={**self.who, **YAML})
            assert said.status_code in (200, 201), said.text

    async def start(self, workflow: str = "asking", *, key: str | None = None, code: int = 201, **body: Any) -> Any:
        headers = self.who if key is None else {**self.who, "Idempotency-Key": key}
        said = await self.there.http.post("/v1/runs", json={"workflow": workflow, **body}, headers=headers)
        assert said.status_code == code, said.text
        return said.json()

    async def get(self, path: str, code: int = 200, **params: Any) -> Any:
        said = await self.there.http.get(path, params=params, headers=self.who)
        assert said.status_code == code, said.text
        return said.json()

    async def all_of(self, path: str, **params: Any) -> list[Any]:
        """The items of all pages."""
        items, cursor = list[Any](), None
        while True:
            page = await self.get(path, **params, **({} if cursor is None else {"cursor": cursor}))
            assert page["missing"] == []
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items

    async def is_now(self, run: str, status: str) -> None:
        async def found() -> bool:
            return bool((await self.get(f"/v1/runs/{run}"))["status"] == status)

        await until(found, 60)

    async def in_both(self, workflow: str = "asking", threads: str = "") -> tuple[str, str]:
        """A run in each of the cells, in threads of such names."""
        found: dict[int, str] = {}
        number = 0
        while len(found) < 2:
            number += 1
            run = await self.start(workflow, thread_id=f"{threads or workflow}-{number}")
            found.setdefault(cell_of(UUID(run["id"])), run["id"])
        return found[1], found[2]


async def fetched(cell: Cell, query: str, *given: object) -> list[Any]:
    return [tuple(row) for row in await fetch(cell.dsn, query, *given)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a cell is slow, and not away."""
    monkeypatch.setattr("hai_flow.runtime.cells.ANSWER_SECONDS", 60.0)


@pytest.fixture
def places(postgres_server: Server) -> Iterator[tuple[Cell, Cell]]:
    """Databases, which are at hand; cells that are schemas have their tests in `test_cells`."""
    with postgres_server.database() as one, postgres_server.database() as two:
        yield support.cell(1, one), support.cell(2, two)


@pytest.fixture
async def large(database_url: str, places: tuple[Cell, Cell]) -> AsyncIterator[Large]:
    """In both from the beginning."""
    async with deployed(database_url, *places) as there:
        found = Large(there, await there.tenant("acme", *places), *places)
        await found.publish(ASKING)
        yield found


@pytest.fixture
async def grown(database_url: str, places: tuple[Cell, Cell]) -> AsyncIterator[Large]:
    """In the first alone."""
    async with deployed(database_url, *places) as there:
        found = Large(there, await there.tenant("acme", places[0]), *places)
        await found.publish(ASKING)
        yield found


async def grow(large: Large, *, known: bool = True) -> None:
    """Give it the second cell; `known`: to this process, too."""
    await support.spread(large.there.home, "acme", [large.one, large.two])
    if known:
        ((id,),) = await fetched(support.home(large.there.home), "SELECT id FROM tenants WHERE name = 'acme'")
        large.there.cells.home.tenants.forget(id)


async def _threads_in(cell: Cell) -> list[str]:
    return [row[0] for row in await fetched(cell, "SELECT thread_id FROM runs WHERE parent_id IS NULL")]


# --- threads ---------------------------------------------------------------------------------------------------------


async def test_threads_spread_and_each_is_found_by_its_name(large: Large) -> None:
    runs = {f"thread {n}": (await large.start(thread_id=f"thread {n}"))["id"] for n in range(12)}
    assert {cell_of(UUID(run)) for run in runs.values()} == {1, 2}
    for thread, run in runs.items():
        assert (await large.get(f"/v1/threads/{thread}"))["runs"][0]["id"] == run
        assert (await large.get(f"/v1/runs/{run}"))["thread_id"] == thread
        await large.start(thread_id=thread, code=409)
    assert sorted([*await _threads_in(large.one), *await _threads_in(large.two)]) == sorted(runs)
    assert await fetched(large.one, "SELECT count(*) FROM slots WHERE slot LIKE 'thread:%'") == [
        (len(await _threads_in(large.one)),)
    ], "a thread whose anchor is its cell costs no row"


async def test_a_thread_stays_when_a_cell_is_added_and_new_ones_begin_in_both(grown: Large) -> None:
    old = {f"old {n}": (await grown.start(thread_id=f"old {n}"))["id"] for n in range(4)}
    assert {cell_of(UUID(run)) for run in old.values()} == {1}
    await grow(grown)
    new = {f"new {n}": (await grown.start(thread_id=f"new {n}"))["id"] for n in range(8)}
    assert {cell_of(UUID(run)) for run in new.values()} == {1, 2}
    for thread, run in (old | new).items():
        assert (await grown.get(f"/v1/threads/{thread}"))["runs"][0]["id"] == run
        await grown.there.decided(grown.who, await grown.there.asked(grown.who, run))
        await grown.is_now(run, "finished")
        again = (await grown.start(thread_id=thread))["id"]
        assert cell_of(UUID(again)) == cell_of(UUID(run))


async def test_two_processes_that_begin_a_thread_beside_a_new_cell_begin_it_once(
    grown: Large, database_url: str, places: tuple[Cell, Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them knows nothing of the second cell: its list of the tenant's cells is as old as it can be, and
    older."""
    monkeypatch.setattr("hai_flow.runtime.tenancy.tenants.SECONDS", 3600.0)
    async with deployed(database_url, *places) as other:
        later = Large(other, grown.who, *places)
        grown.there.cells.home.tenants._known.clear()  # what it knew was to be known for some seconds
        await grown.start()
        await later.start()  # both know the tenant now
        await grow(later)
        threads = [f"both {n}" for n in range(12)]

        async def begun(process: Large, thread: str) -> tuple[int, str]:
            body = {"workflow": "asking", "thread_id": thread}
            said = await process.there.http.post("/v1/runs", json=body, headers=process.who)
            return said.status_code, said.json().get("id", said.json().get("code"))

        for thread in threads:
            outcomes = await asyncio.gather(begun(grown, thread), begun(later, thread))
            won = [said for code, said in outcomes if code == 201]
            lost = [said for code, said in outcomes if code == 409]
            assert (len(won), lost) == (1, ["thread_busy"]), outcomes
            assert (await later.get(f"/v1/threads/{thread}"))["runs"][0]["id"] == won[0]
        for n, (first, second) in enumerate([(later, grown), (grown, later)] * 4):
            run = (await first.start(thread_id=f"after {n}"))["id"]
            refused = await second.start(thread_id=f"after {n}", code=409)
            assert refused["code"] == "thread_busy"
            assert cell_of(UUID(run)) == (draw_cell(f"after {n}", [1, 2]) if first is later else 1)
        await grow(grown)  # it hears of it now
        for thread in [*threads, *(f"after {n}" for n in range(8))]:
            assert len((await grown.get(f"/v1/threads/{thread}"))["runs"]) == 1
        found = [*await _threads_in(grown.one), *await _threads_in(grown.two)]
        assert len([each for each in found if each.startswith(("both", "after"))]) == len(threads) + 8
        assert any(each.startswith("after") for each in await _threads_in(grown.two))


async def test_a_run_in_a_new_cell_is_found_by_a_process_not_yet_told_of_it(
    grown: Large, database_url: str, places: tuple[Cell, Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.tenancy.tenants.SECONDS", 3600.0)
    async with deployed(database_url, *places) as other:
        later = Large(other, grown.who, *places)
        await later.start()
        await grow(grown)
        _, there = await grown.in_both()
        assert (await later.get(f"/v1/runs/{there}"))["id"] == there
        assert (await later.get("/v1/runs"))["missing"] == []


async def test_a_new_cell_begins_nothing_before_every_process_knows_it(grown: Large) -> None:
    await support.spread(grown.there.home, "acme", [grown.one, grown.two], after=timedelta(hours=1))
    ((id,),) = await fetched(support.home(grown.there.home), "SELECT id FROM tenants WHERE name = 'acme'")
    grown.there.cells.home.tenants.forget(id)
    assert {cell_of(UUID((await grown.start(thread_id=f"early {n}"))["id"])) for n in range(12)} == {1}
    await grow(grown)
    assert {cell_of(UUID((await grown.start(thread_id=f"late {n}"))["id"])) for n in range(12)} == {1, 2}


async def test_what_is_refused_in_any_case_leaves_nothing_behind(grown: Large) -> None:
    await grow(grown)
    for n in range(12):
        await grown.start(thread_id=f"wrong {n}", input={"file": 1}, code=422)
        await grown.start(key=f"wrong-{n}", input={"file": 1}, code=422)
    assert await fetched(grown.one, "SELECT count(*) FROM slots") == [(0,)]


async def test_a_conversation_begins_where_its_workflow_counts_and_goes_on_there(large: Large) -> None:
    await large.publish(COUNTED)
    for n in range(8):
        body = {
            "threadId": f"talk {n}", "runId": f"turn {n}", "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{"id": f"m{n}", "role": "user", "content": "Hi"}],
        }  # fmt: skip
        path = f"/workflows/{'counted' if n == 0 else 'asking'}/ag-ui"
        said = await large.there.http.post(path, json=body, headers=large.who)
        assert said.status_code == 200, said.text
        again = await large.there.http.post(path, json=body, headers=large.who)
        assert again.status_code == 200, again.text
    found = {run["thread_id"]: cell_of(UUID(run["id"])) for run in await large.all_of("/v1/runs")}
    assert len(found) == 8, "the same POST again starts nothing"
    assert found["talk 0"] == 1
    assert set(found.values()) == {1, 2}
    for thread in found:
        assert len((await large.get(f"/v1/threads/{thread}"))["runs"]) == 1


async def test_a_closed_cell_keeps_its_threads_and_begins_none(large: Large) -> None:
    here, there = await large.in_both()
    await support.spread(large.there.home, "acme", [large.two])
    ((id,),) = await fetched(support.home(large.there.home), "SELECT id FROM tenants WHERE name = 'acme'")
    large.there.cells.home.tenants.forget(id)
    for run in (here, there):
        assert (await large.get(f"/v1/runs/{run}"))["status"] == "waiting"
    for n in range(12):
        assert cell_of(UUID((await large.start(thread_id=f"later {n}"))["id"])) == 2
        assert cell_of(UUID((await large.start())["id"])) == 2


# --- starts under a key -----------------------------------------------------------------------------------------------


async def test_a_start_under_a_key_finds_its_first_run_after_a_cell_was_added(grown: Large) -> None:
    before = {f"before-{n}": (await grown.start(key=f"before-{n}"))["id"] for n in range(8)}
    await grow(grown)
    after = {f"after-{n}": (await grown.start(key=f"after-{n}"))["id"] for n in range(24)}
    assert {cell_of(UUID(run)) for run in after.values()} == {1, 2}
    for key, run in (before | after).items():
        assert (await grown.start(key=key, code=200))["id"] == run
        assert (await grown.start(key=key, input={"other": 1}, code=409))["code"] == "command_id_reused"
    assert len(await grown.all_of("/v1/runs", limit=7)) == len(before | after)


async def test_two_processes_that_start_under_a_key_beside_a_new_cell_start_once(
    grown: Large, database_url: str, places: tuple[Cell, Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.tenancy.tenants.SECONDS", 3600.0)
    async with deployed(database_url, *places) as other:
        later = Large(other, grown.who, *places)
        grown.there.cells.home.tenants._known.clear()  # what it knew was to be known for some seconds
        await grown.start()
        await later.start()
        await grow(later)

        async def started(process: Large, key: str) -> tuple[int, str]:
            headers = {**process.who, "Idempotency-Key": key}
            said = await process.there.http.post("/v1/runs", json={"workflow": "asking"}, headers=headers)
            return said.status_code, said.json().get("id", said.json().get("code"))

        keys = [f"key-{n}" for n in range(12)]
        for key in keys:
            outcomes = await asyncio.gather(started(grown, key), started(later, key))
            ids = {said for code, said in outcomes if code in (200, 201)}
            assert len(ids) == 1, outcomes
            assert (await later.start(key=key, code=200))["id"] in ids
        await grow(grown)
        assert len(await grown.all_of("/v1/runs")) == len(keys) + 2


async def test_a_key_used_in_one_cell_is_refused_for_a_thread_of_another(large: Large) -> None:
    here, there = await large.in_both()
    threads = [(await large.get(f"/v1/runs/{run}"))["thread_id"] for run in (here, there)]
    for run in (here, there):
        await large.there.decided(large.who, await large.there.asked(large.who, run))
        await large.is_now(run, "finished")
    await large.start(key="once", thread_id=threads[0])
    refused = await large.start(key="once", thread_id=threads[1], code=409)
    assert refused["code"] == "command_id_reused"


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_lists_page_through_all_cells_and_show_everything_once(large: Large) -> None:
    ids = [(await large.start(thread_id=f"thread {n}"))["id"] for n in range(15)]
    for limit in (2, 4, 50):
        runs = await large.all_of("/v1/runs", limit=limit)
        assert [run["id"] for run in runs] == sorted(ids, key=lambda id: _born(runs, id), reverse=True)
        pendings = await large.all_of("/v1/pendings", limit=limit)
        assert sorted(each["run_id"] for each in pendings) == sorted(ids)
        inbox = await large.all_of("/v1/inbox", limit=limit)
        assert sorted(each["run_id"] for each in inbox) == sorted(ids)
        threads = await large.all_of("/v1/threads", limit=limit)
        assert sorted(each["id"] for each in threads) == sorted(f"thread {n}" for n in range(15))
    assert (await large.get("/v1/runs/counts"))["counts"]["waiting"] == 15
    counts = await large.get("/v1/inbox/counts")
    assert (counts["workflows"], counts["complete"]) == ({"asking": 15}, True)
    for run in ids[:6]:
        await large.there.decided(large.who, await large.there.asked(large.who, run))
    decided = await large.all_of("/v1/inbox/decided", limit=2)
    assert sorted(each["run_id"] for each in decided) == sorted(ids[:6])
    acts = await large.all_of("/v1/audit", limit=3, act="run.started")
    assert sorted(each["run_id"] for each in acts) == sorted(ids)


def _born(runs: list[Any], id: str) -> tuple[str, str]:
    return next((run["created_at"], run["id"]) for run in runs if run["id"] == id)


async def test_several_are_answered_and_controlled_at_once_wherever_they_are(large: Large) -> None:
    runs = await large.in_both()
    asked = [await large.there.asked(large.who, run) for run in runs]
    items = [{"id": id, "decision": "submit", "values": {"ok": True}} for id in asked]
    said = await large.there.http.post("/v1/inbox/decide", json={"items": items}, headers=large.who)
    assert [each["status"] for each in said.json()["items"]] == [200, 200], said.text
    for run in runs:
        await large.is_now(run, "finished")
    more = [(await large.start(thread_id=f"more {n}"))["id"] for n in range(12)]
    body = {"action": "stop", "where": {"status": ["waiting"]}, "expect": len(large_waiting := await _waiting(large))}
    report = (await large.there.http.post("/v1/runs/bulk", json=body, headers=large.who)).json()
    assert (report["found"], report["done"]) == (len(large_waiting), len(large_waiting))
    assert set(more) <= {each["id"] for each in report["items"]}


async def _waiting(large: Large) -> list[str]:
    return [run["id"] for run in await large.all_of("/v1/runs", status="waiting")]


async def test_another_tenant_finds_nothing_of_it(large: Large) -> None:
    here, there = await large.in_both()
    other = Large(large.there, await large.there.tenant("beta", large.two, large.one), large.one, large.two)
    for path in ("/v1/runs", "/v1/threads", "/v1/pendings", "/v1/inbox"):
        assert await other.all_of(path) == []
    for run in (here, there):
        await other.get(f"/v1/runs/{run}", 404)
        thread = (await large.get(f"/v1/runs/{run}"))["thread_id"]
        await other.get(f"/v1/threads/{thread}", 404)
        await other.publish(ASKING)
        await other.start(thread_id=thread)
        assert len((await other.get(f"/v1/threads/{thread}"))["runs"]) == 1


# --- what there is once -----------------------------------------------------------------------------------------------


async def test_an_event_to_all_reaches_the_runs_of_each_cell_once(large: Large) -> None:
    await large.publish(LISTENING)
    runs = await large.in_both("listening")
    for time in (1, 2):
        body = {"type": "tick", "id": f"tick-{time}", "data": time}
        for path, code in (("/v1/events", 201), ("/v1/signals", 200), ("/v1/events", 200)):
            said = await large.there.http.post(path, json=body, headers=large.who)
            assert said.status_code == code, said.text
        wrong = await large.there.http.post("/v1/signals", json={**body, "data": "other"}, headers=large.who)
        assert (wrong.status_code, wrong.json()["code"]) == (409, "signal_exists")

        async def heard(time: int = time) -> bool:
            return [await _heard(large, run) for run in runs] == [list(range(1, time + 1))] * 2

        await until(heard, 60)
    for run in runs:
        await large.is_now(run, "finished")
    for cell in (large.one, large.two):
        assert await fetched(cell, "SELECT id FROM signals ORDER BY id") == [("tick-1",), ("tick-2",)]
        assert await fetched(cell, "SELECT id FROM relays") == []
    audited = await large.all_of("/v1/audit", act="event.sent")
    assert len(audited) == 2


async def _heard(large: Large, run: str) -> list[Any]:
    snapshot = await large.get(f"/v1/runs/{run}/events")
    return [each["data"] for each in snapshot["items"] if each["type"] == "signal_received"]


async def test_an_event_starts_one_run_and_not_one_in_each_cell(large: Large) -> None:
    await large.publish(STARTED)
    body = {"type": "tock", "id": "tock-1", "data": {}}
    said = await large.there.http.post("/v1/events", json=body, headers=large.who)
    assert [each["workflow"] for each in said.json()["runs"]] == ["started"], said.text

    async def arrived() -> bool:
        return await fetched(large.two, "SELECT id FROM signals WHERE due_at IS NULL") == [("tock-1",)]

    await until(arrived, 60)
    assert len(await large.all_of("/v1/runs", workflow="started")) == 1


async def test_workflows_and_delegations_are_in_every_cell_once_they_are_made(large: Large) -> None:
    await large.publish(LISTENING, ASKING.replace("version: 1", "version: 2"))
    names = await fetched(large.one, "SELECT name, version FROM workflows ORDER BY 1, 2")
    assert names == await fetched(large.two, "SELECT name, version FROM workflows ORDER BY 1, 2")
    body = {"to": "user:ben", "until": "2027-01-01T00:00:00Z"}
    made = await large.there.http.post("/v1/inbox/delegations", json=body, headers=large.who)
    assert made.status_code == 201, made.text
    assert await fetched(large.two, "SELECT to_id FROM delegations") == [("user:ben",)]
    ended = await large.there.http.delete(f"/v1/inbox/delegations/{made.json()['id']}", headers=large.who)
    assert ended.status_code == 204
    assert await fetched(large.two, "SELECT to_id FROM delegations WHERE until > now()") == []


async def test_runs_that_share_a_concurrency_key_are_all_in_the_first_cell(large: Large) -> None:
    await large.publish(COUNTED, ABOVE)
    started = await large.start("counted", thread_id="any name")
    assert cell_of(UUID(started["id"])) == 1
    for n in range(6):
        refused = await large.start("counted", thread_id=f"busy {n}", code=409)
        assert refused["code"] == "concurrency_busy"
        above = await large.start("above", thread_id=f"above {n}")
        assert cell_of(UUID(above["id"])) == 1, "what runs below it is counted"
        assert (await large.get(f"/v1/threads/above {n}"))["runs"]
    _, there = await large.in_both()
    thread = (await large.get(f"/v1/runs/{there}"))["thread_id"]
    await large.there.decided(large.who, await large.there.asked(large.who, there))
    await large.is_now(there, "finished")
    for workflow in ("counted", "above"):
        assert (await large.start(workflow, thread_id=thread, code=422))["code"] == "concurrency_elsewhere"


async def test_what_begins_behind_the_end_of_a_run_counts_in_the_first_cell_too(large: Large) -> None:
    await large.publish(BEHIND)
    for run in await large.in_both():
        await large.there.decided(large.who, await large.there.asked(large.who, run))

    async def behind() -> list[Any]:
        found = await large.all_of("/v1/runs", workflow="behind")
        return found if len(found) == 2 else []

    found = await until(behind, 60)
    assert {cell_of(UUID(run["id"])) for run in found} == {1}
    assert sorted(run["status"] for run in found) == ["queued", "waiting"]


async def test_limits_hold_for_all_cells_together(large: Large) -> None:
    await execute(large.there.home, "UPDATE tenants SET open_runs = 6 WHERE name = 'acme'")
    ((id,),) = await fetched(support.home(large.there.home), "SELECT id FROM tenants WHERE name = 'acme'")
    large.there.cells.home.tenants.forget(id)
    codes = [
        (await large.there.http.post("/v1/runs", json={"workflow": "asking"}, headers=large.who)).status_code
        for _ in range(9)
    ]
    assert codes == [201] * 6 + [429] * 3


async def test_a_file_is_for_runs_of_every_cell(large: Large) -> None:
    sent = await large.there.http.post(
        "/v1/files", content=b"words", headers={**large.who, "Content-Type": "text/plain"}
    )
    assert sent.status_code == 201, sent.text
    id = sent.json()["id"]
    cells = {cell_of(UUID((await large.start(thread_id=f"file {n}", input={"file": id}))["id"])) for n in range(12)}
    assert cells == {1, 2}
    assert (await large.there.http.get(f"/v1/files/{id}", headers=large.who)).content == b"words"


async def test_an_admin_of_the_deployment_sets_the_cells_of_new_threads_by_rest(large: Large) -> None:
    who = await large.there.tenant("default")

    async def said(code: int, *cells: str) -> Any:
        answer = await large.there.http.patch("/v1/tenants/acme", json={"cells": list(cells)}, headers=who)
        assert answer.status_code == code, answer.text
        return answer.json()

    await large.start()
    assert (await said(200, "cell2", "home"))["cells"] == [
        {"name": "cell1", "begins": False, "first": True},
        {"name": "cell2", "begins": True, "first": False},
        {"name": "home", "begins": False, "first": False},  # in some seconds, when all processes know
    ]
    assert (await said(422, "cell9"))["code"] == "cell_unknown"
    assert await fetched(support.home(large.there.home), "SELECT count(*) FROM workflows WHERE name = 'asking'") == [
        (1,)
    ]
    async with connecting(large.there.home) as connection:
        await connection.execute("INSERT INTO servers (id, name, release) VALUES (gen_random_uuid(), 'old', '0.0.1')")
    refused = await said(409, "cell1", "cell2")
    assert refused["code"] == "releases_mixed"
    assert "0.0.1" in refused["detail"]


# --- a cell that is away ----------------------------------------------------------------------------------------------


@pytest.mark.costly
async def test_a_cell_that_is_away_is_missing_in_lists_and_only_its_runs_are_503(
    postgres_server: Server, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.cells.LOOK_SECONDS", 0.05)
    async with AsyncExitStack() as stack:
        other = stack.enter_context(postgres_server.database())
        proxy = await stack.enter_async_context(Proxy(other))
        (one,) = await stack.enter_async_context(support.schemas(database_url, 1))
        two = support.cell(2, proxy.dsn)
        there = await stack.enter_async_context(deployed(database_url, one, two, deadlines=QUICK))
        large = Large(there, await there.tenant("acme", one, two), one, support.cell(2, other))
        await large.publish(ASKING, LISTENING)
        here, gone = await large.in_both()
        listens = await large.in_both("listening")
        thread = (await large.get(f"/v1/runs/{gone}"))["thread_id"]
        question = await there.asked(large.who, gone)
        await proxy.away(silent=False)
        await until(lambda: "cell2" in there.cells.away, 60)

        for path in (f"/v1/runs/{gone}", f"/v1/threads/{thread}", f"/v1/pendings/{question}"):
            assert (await large.get(path, 503))["code"] == "cell_away"
        for path in ("/v1/runs", "/v1/threads", "/v1/pendings", "/v1/inbox", "/v1/notifications", "/v1/runs/counts"):
            page = await large.get(path)
            assert page["missing"] == ["cell2"], path
        assert here in [run["id"] for run in (await large.get("/v1/runs"))["items"]]
        assert not (await large.get("/v1/inbox/counts"))["complete"]
        await there.decided(large.who, await there.asked(large.who, here))
        await large.is_now(here, "finished")
        for _ in range(6):
            assert cell_of(UUID((await large.start())["id"])) == 1, "a thread that nobody has named begins elsewhere"
        codes = set()
        for n in range(12):
            body = {"workflow": "asking", "thread_id": f"while {n}"}
            codes.add((await there.http.post("/v1/runs", json=body, headers=large.who)).status_code)
        assert codes == {201, 503}
        await large.publish(ASKING.replace("version: 1", "version: 2"))
        sent = await there.http.post("/v1/events", json={"type": "tick", "id": "late", "data": 1}, headers=large.who)
        assert sent.status_code == 201, sent.text
        assert await fetched(one, "SELECT id, cells FROM relays") == [("late", [2])]

        await proxy.back()
        await until(lambda: not there.cells.away, 60)
        assert (await large.get("/v1/runs"))["missing"] == []

        async def heard() -> bool:
            return [await _heard(large, run) for run in listens] == [[1], [1]]

        await until(heard, 60)
        assert await fetched(one, "SELECT id FROM relays") == []

        async def repeated() -> bool:
            return await fetched(large.two, "SELECT 1 FROM workflows WHERE name = 'asking' AND version = 2") == [(1,)]

        await until(repeated, 60)
        await there.decided(large.who, question)
        await large.is_now(gone, "finished")


# --- standing rules --------------------------------------------------------------------------------------------------


async def _person(large: Large, id: str, *roles: str) -> dict[str, str]:
    async with connecting(large.there.home) as connection:
        tenant = await connection.fetchval("SELECT id FROM tenants WHERE name = 'acme'")
        _, text = await keys.create_key(connection, tenant, id, name=id, groups=[], created_by="user:test", roles=roles)
    return {"Authorization": f"Bearer {text}"}


async def test_a_rule_votes_in_every_cell_and_in_none_once_it_is_revoked(large: Large) -> None:
    await large.publish(PAYING)
    ann, bob = await _person(large, "user:ann", "decider"), await _person(large, "user:bob", "decider")
    http = large.there.http

    async def approve(run: str, who: dict[str, str]) -> str:
        pending = await large.there.asked(large.who, run)
        answer = await http.post(f"/v1/pendings/{pending}/decide", json={"decision": "approve"}, headers=who)
        assert answer.status_code == 200, answer.text
        return pending

    async def votes(run: str) -> list[str]:
        page = await large.get(f"/v1/runs/{run}/events")
        return [each["via"] for each in page["items"] if each["type"] == "vote_cast"]

    first, second = await large.in_both("paying2")
    await approve(first, bob)
    until_then = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    body = {"until": until_then, "reason": "small", "arguments": {"value": {"max": 9}}}
    pending = await approve(second, bob)  # in the other cell than the rule
    refused = await http.post("/v1/rules", json={"pending_id": pending, "uses": 3, **body}, headers=ann)
    assert (refused.status_code, refused.json()["code"]) == (422, "rule_invalid")
    proposed = await http.post("/v1/rules", json={"pending_id": pending, **body}, headers=ann)
    assert proposed.status_code == 201, proposed.text
    rule = proposed.json()
    assert cell_of(UUID(rule["run_id"])) == 1
    await approve(rule["run_id"], bob)

    async def is_known() -> bool:
        await large.there.cells.at(2).freezes.read()
        query = "SELECT count(*) FROM rules WHERE approved_at IS NOT NULL"
        return await fetched(large.one, query) == await fetched(large.two, query) == [(1,)]

    await until(is_known, 60)
    ruled = await large.in_both("paying2", "ruled")
    for run in ruled:
        await large.is_now(run, "finished")
        assert await votes(run) == ["rule"]
    listed = await large.get(f"/v1/rules/{rule['id']}")
    assert (listed["uses"], {each["run_id"] for each in listed["last_uses"]} >= set(ruled)) == (
        len(listed["last_uses"]),
        True,
    )
    (item,) = (await large.get("/v1/rules"))["items"]
    assert (item["status"], item["uses"]) == ("active", listed["uses"])
    revoked = await http.post(f"/v1/rules/{rule['id']}/revoke", json={}, headers=large.who)
    assert (revoked.status_code, revoked.json()["status"]) == (200, "revoked"), revoked.text
    for run in await large.in_both("paying2", "asked"):
        await large.there.asked(large.who, run)
        assert await votes(run) == []
    again = await http.post(f"/v1/rules/{rule['id']}/revoke", json={}, headers=large.who)
    assert again.status_code == 409


async def test_a_freeze_that_is_over_reaches_no_cell_by_its_key_again(large: Large) -> None:
    body, who = {"scope": "tenant", "reason": "a drill"}, {**large.who, "Idempotency-Key": "drill"}
    first = (await large.there.http.post("/v1/freezes", json=body, headers=who)).json()
    thawed = await large.there.http.post(f"/v1/freezes/{first['id']}/thaw", headers=large.who)
    await fetched(large.two, "DELETE FROM freezes")
    again = await large.there.http.post("/v1/freezes", json=body, headers=who)
    assert (again.status_code, again.json()) == (201, thawed.json())
    assert await fetched(large.two, "SELECT count(*) FROM freezes") == [(0,)]
