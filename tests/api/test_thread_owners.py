"""A thread belongs to who began it, also where two people begin it in the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from hai_flow.store.messaging.concurrency_slots import derive_thread_slot
from tests.support.hai_client import unique, user
from tests.support.identities import KEYS, People
from tests.support.server import YAML, ServerProcess, serving
from tests.support.waiting import until

# It is over with the commit that begins it, so no active run keeps anybody out of the thread.
QUICK: Final = "hai: flow/v1\nname: quick\nversion: 1\nsteps:\n  - say: Hello.\n"
WAITS: Final = "hai: flow/v1\nname: waits\nversion: 1\nsteps:\n  - approve: {title: Go?, from: [role:boss]}\n"
WAITING: Final = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
WAYS: Final = ("rest", "awp", "ag-ui")


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    with serving(dsn, environment=KEYS) as process:
        publisher = People(dsn).person("user:pat", roles=["publisher"])
        for source in (QUICK, WAITS):
            answer = httpx2.post(f"{process.url}/v1/workflows", content=source, headers={**YAML, **publisher})
            assert answer.status_code == 201, answer.text
        yield process


def begin(client: httpx2.Client, workflow: str, way: str, thread_id: str, run_id: str) -> tuple[int, str]:
    """Begin a run of the thread, which is named in the answer no more."""
    if way == "rest":
        answer = client.post("/v1/runs", json={"workflow": workflow, "thread_id": thread_id})
    else:
        body: dict[str, Any] = {"threadId": thread_id, "runId": run_id, "messages": [user("hello")], "tools": []}
        answer = client.post(f"/workflows/{workflow}/{way}", json=body)
    return answer.status_code, answer.text.replace(thread_id, "THREAD")


async def race(dsn: str, thread_id: str, ann: Any, eve: Any) -> list[Any]:
    """What both get who begin the thread, neither of whom goes on before both have seen that it is nobody's."""
    connection, eye = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    tenant = await connection.fetchval("SELECT id FROM tenants WHERE name = 'default'")
    transaction = connection.transaction()
    await transaction.start()
    insert = "INSERT INTO slots (tenant, slot, run_id) VALUES ($1, $2, $3)"
    await connection.execute(insert, tenant, derive_thread_slot(thread_id), uuid4())
    with ThreadPoolExecutor(2) as pool:
        posted = [pool.submit(each) for each in (ann, eve)]

        async def both_wait() -> bool:
            return await eye.fetchval(WAITING) == 2 or any(each.done() for each in posted)

        await until(both_wait)
        await transaction.rollback()
        answers = [each.result() for each in posted]
    await connection.close()
    await eye.close()
    return answers


@pytest.mark.parametrize("run_ids", ["of their own", "the same"])
@pytest.mark.parametrize("workflow", ["quick", "waits"])
@pytest.mark.parametrize("way", WAYS)
def test_two_callers_who_begin_a_thread_at_once_get_one_owner(
    strict: ServerProcess, dsn: str, way: str, workflow: str, run_ids: str
) -> None:
    people = People(dsn)
    ids = [unique("r"), unique("r")] if run_ids == "of their own" else [unique("r")] * 2
    with (
        httpx2.Client(base_url=strict.url, headers=people.person("user:ann"), timeout=30) as ann,
        httpx2.Client(base_url=strict.url, headers=people.person("user:eve"), timeout=30) as eve,
    ):
        owned = unique("thread")
        assert begin(ann, workflow, way, owned, unique("r"))[0] in (200, 201)
        foreign = begin(eve, workflow, way, owned, unique("r"))
        assert foreign[0] == 404
        while True:
            thread_id = unique("thread")
            posts = [partial(begin, *each, thread_id) for each in ((ann, workflow, way), (eve, workflow, way))]
            posts = [partial(post, id) for post, id in zip(posts, ids, strict=True)]
            answers = asyncio.run(race(dsn, thread_id, *posts))
            if 503 not in (answers[0][0], answers[1][0]):  # this machine was too slow, and the lock was given up
                break
        (won, lost), (winner, loser) = zip(*sorted(zip(answers, (ann, eve), strict=True), key=_status), strict=True)
        assert won[0] in (200, 201)
        assert lost == foreign
        of_thread = {"thread_id": thread_id}
        assert len(winner.get("/v1/runs", params=of_thread).json()["items"]) == 1
        assert loser.get("/v1/runs", params=of_thread).json()["items"] == []
        assert loser.get(f"/v1/threads/{thread_id}").status_code == 404


def _status(pair: Any) -> int:
    return pair[0][0]


def test_one_person_beginning_a_thread_twice_at_once_hears_it_is_busy(strict: ServerProcess, dsn: str) -> None:
    ann = People(dsn).person("user:ann")
    with httpx2.Client(base_url=strict.url, headers=ann, timeout=30) as client:
        thread_id = unique("thread")
        posts = [lambda: begin(client, "waits", "rest", thread_id, "")] * 2
        answers = asyncio.run(race(dsn, thread_id, *posts))
        assert sorted(status for status, _ in answers) == [201, 409]
        assert "thread_busy" in max(answers)[1]
