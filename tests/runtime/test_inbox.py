"""The index of inboxes beside real runs: it moves with their versions, and a sweep writes what others have not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from hai_flow.api.rest.runs import live_lists
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.messaging import hints
from hai_flow.store.people.inbox import Filters
from hai_flow.store.postgres.database import EVERYTHING
from tests.runtime.conftest import Connection, Make
from tests.support.waiting import until

FLOW = """hai: flow/v1
name: housework
version: {version}
roles: {{house: [{members}]}}
steps:
  - {{id: sure, approve: {{title: Sure?, from: role:house, deadline: 1d}}}}
"""


async def publish(runtime: Runtime, version: int, *members: str) -> Plan:
    source = FLOW.format(version=version, members=", ".join(members)).encode()
    return (await runtime.catalog.publish(LOCAL_TENANT, source))[1]


async def start(runtime: Runtime, plan: Plan) -> UUID:
    run_id = uuid4()
    command = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:req", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, command)
    return run_id


async def asked(runtime: Runtime, who: str) -> list[UUID]:
    """The runs that ask `who`, who has no roles."""
    items, _ = await runtime.inbox.page(LOCAL_TENANT, c.Principal(who), Filters(), limit=50)
    assert all(each.obstacle is None for each in items)
    return [each.asked.run_id for each in items]


async def test_another_version_asks_the_members_of_its_own_roles(make: Make) -> None:
    runtime = await make()
    old, new = await publish(runtime, 1, "user:ann"), await publish(runtime, 2, "user:bob")
    run_id = await start(runtime, old)
    assert await asked(runtime, "user:ann") == [run_id]
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Migrate(to=new, by="user:op"))
    assert await asked(runtime, "user:ann") == []
    assert await asked(runtime, "user:bob") == [run_id]


async def test_what_a_release_without_inboxes_has_left_is_made_good(make: Make, eye: Connection) -> None:
    runtime = await make()
    plan = await publish(runtime, 1, "user:ann", "user:bob")
    lost, wrong, late = [await start(runtime, plan) for _ in range(3)]
    closed = await start(runtime, plan)
    before = [tuple(row) for row in await eye.fetch("SELECT * FROM inbox WHERE run_id <> $1 ORDER BY 1, 2, 3", closed)]
    assert len(before) == 6
    await eye.execute("DELETE FROM inbox WHERE run_id = $1", lost)
    await eye.execute("UPDATE pendings SET kind = NULL, words = NULL WHERE run_id = $1", lost)
    await eye.execute("UPDATE inbox SET selector = 'user:eve' WHERE run_id = $1 AND selector = 'user:ann'", wrong)
    await eye.execute("UPDATE inbox SET due = now() WHERE run_id = $1", late)
    await eye.execute("UPDATE pendings SET status = 'approve' WHERE run_id = $1", closed)
    for _ in range(2):
        await runtime.inbox.tidy(timedelta(0))
        after = [tuple(row) for row in await eye.fetch("SELECT * FROM inbox ORDER BY 1, 2, 3")]
        assert after == before
    assert {tuple(row) for row in await eye.fetch("SELECT kind, words FROM pendings")} == {("approve", "sure?")}


async def test_a_run_that_somebody_commits_just_now_is_left_to_the_next_time(make: Make, eye: Connection) -> None:
    runtime = await make()
    run_id = await start(runtime, await publish(runtime, 1, "user:ann"))
    await eye.execute("DELETE FROM inbox")
    async with eye.transaction():
        await eye.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", run_id)
        await runtime.inbox.tidy(timedelta(0))
    assert await asked(runtime, "user:ann") == []
    await runtime.inbox.tidy(timedelta(0))
    assert await asked(runtime, "user:ann") == [run_id]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["its own process", "another process"])
async def test_a_watcher_of_a_tenants_lists_hears_of_its_commits_alone(make: Make, elsewhere: bool) -> None:
    runtime = await make()
    committing = await make() if elsewhere else runtime
    ours, another, theirs = asyncio.Event(), asyncio.Event(), asyncio.Event()
    watch, elsewhere_id = runtime.inbox.watch, uuid4()
    with watch(LOCAL_TENANT, ours), watch(LOCAL_TENANT, another), watch(elsewhere_id, theirs):
        await until(lambda: not runtime.carrier.fault)
        runtime.inbox.hint(EVERYTHING)
        assert ours.is_set()
        assert theirs.is_set(), "where hints were missed, everybody looks"
        for each in (ours, another, theirs):
            each.clear()
        before, of_theirs = runtime.inbox.last_hint(LOCAL_TENANT), runtime.inbox.last_hint(elsewhere_id)
        await start(committing, await publish(committing, 1, "user:ann"))
        await until(lambda: ours.is_set() and another.is_set())
        assert runtime.inbox.last_hint(LOCAL_TENANT) > before, "a list that was read before it is read again"
        assert runtime.inbox.last_hint(elsewhere_id) == of_theirs
        runtime.inbox.hint(str(uuid4()))  # as a release before says it, of some run
        assert not theirs.is_set()
    assert runtime.inbox.watchers == 0


def test_the_payloads_of_tenants_say_all_of_them_and_no_other_payload_does() -> None:
    tenants = {uuid4() for _ in range(500)}
    payloads = hints.build_tenant_payloads(tenants)
    assert max(map(len, payloads)) < 8000, "NOTIFY takes no more"
    assert set().union(*(hints.parse_tenants(each) or () for each in payloads)) == tenants
    assert [hints.parse_tenants(each) for each in ("*", "due", "due:q", str(uuid4()), "tenants:", "tenants:x")] == [
        None
    ] * 6


def test_lists_are_read_more_seldom_where_there_are_many_streams() -> None:
    assert [live_lists.settle_seconds(each) for each in (0, 1, 50, 100, 500, 100_000)] == [0.5, 0.5, 0.5, 1.0, 5.0, 5.0]
