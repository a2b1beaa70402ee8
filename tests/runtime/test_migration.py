"""A run that moves to another version: every process goes on with the new plan, from the very next command."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.people import pendings
from hai_flow.store.runs import run_lists
from tests.runtime.conftest import Connection, Make, answer, is_now, open_pending, state_of
from tests.runtime.test_signals import send, subscribed
from tests.support.ledger import check_all
from tests.support.values import require
from tests.support.waiting import until

FLOW = """
hai: flow/v1
name: moving
version: {version}
steps:
  - {{id: sure, ask: {{title: Sure?, from: anyone, form: {{properties: {{ok: {{type: boolean}}}}}}}}}}
output: from version {version}
"""


async def publish(runtime: Runtime, version: int) -> Plan:
    _, plan = await runtime.catalog.publish(LOCAL_TENANT, FLOW.format(version=version).encode())
    return plan


async def submit(runtime: Runtime, run_id: UUID, command: c.Command, **more: Any) -> Outcome:
    return await runtime.committer.submit(run_id, LOCAL_TENANT, command, **more)


async def start(runtime: Runtime, plan: Plan) -> UUID:
    run_id = UUID(int=7)
    command = c.Start(run_id=run_id, thread_id="t", requester="user:ann", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, command)
    return run_id


async def test_a_process_that_knows_a_run_follows_its_migration_by_another(make: Make, eye: Connection) -> None:
    a, b = await make(), await make()
    old, new = await publish(a, 1), await publish(a, 2)
    run_id = await start(a, old)
    pending = await open_pending(a, run_id)
    await submit(b, run_id, c.Pause(by="user:op"))
    await submit(b, run_id, c.Resume(by="user:op"))
    hot = require(b.committer.peek(run_id))
    assert hot.plan is not None
    assert hot.plan.sha256 == old.sha256
    await submit(a, run_id, c.Migrate(to=new, by="user:op"))
    await submit(b, run_id, answer(pending))
    assert (await state_of(b, run_id)).output == "from version 2"
    await check_all(eye)


async def test_a_question_behind_a_migration_in_one_commit_is_of_the_new_version(make: Make) -> None:
    a = await make()
    old, new = await publish(a, 1), await publish(a, 2)
    run_id = await start(a, old)
    pending = await open_pending(a, run_id)
    await asyncio.gather(submit(a, run_id, c.Migrate(to=new, by="user:op")), submit(a, run_id, answer(pending)))
    assert (await state_of(a, run_id)).output == "from version 2"


async def test_a_run_that_has_moved_hears_the_event_that_the_new_version_names(make: Make, eye: Connection) -> None:
    a = await make(performs=True)
    old = await publish(a, 1)
    asks = FLOW.format(version=2).replace("from: anyone", "from: anyone, withdraw_when: {event: payment}")
    _, new = await a.catalog.publish(LOCAL_TENANT, asks.encode())
    run_id = await start(a, old)
    await open_pending(a, run_id)
    await submit(a, run_id, c.Migrate(to=new, by="user:op"))
    await until(lambda: subscribed(eye, run_id))
    await send(a, "s1")
    await until(lambda: is_now(a, run_id, "failed"))
    assert require((await state_of(a, run_id)).error).code == "ask.withdrawn"
    await check_all(eye)


async def test_rows_say_the_version_and_the_digest_that_hold_now(make: Make) -> None:
    a = await make()
    old, new = await publish(a, 1), await publish(a, 2)
    run_id = await start(a, old)
    before = await state_of(a, run_id)
    await submit(a, run_id, c.Migrate(to=new, by="user:op", dev=True))
    row = require(await run_lists.get_run(a.database.api, LOCAL_TENANT, run_id))
    assert (row.workflow, row.workflow_version, row.dev) == (new.sha256, 2, True)
    after = await state_of(a, run_id)
    (pending,) = (await pendings.open_pendings(a.database.api, LOCAL_TENANT, limit=2)).rows
    now = after.pendings[pending.id].opened.digest
    assert pending.digest.hex() == now
    assert before.pendings[pending.id].opened.digest != now


async def test_a_run_that_can_not_move_goes_on_as_it_was(make: Make) -> None:
    a = await make()
    old = await publish(a, 1)
    source = FLOW.format(version=2).replace("Sure?", "Really?").encode()
    _, new = await a.catalog.publish(LOCAL_TENANT, source)
    run_id = await start(a, old)
    with pytest.raises(Rejected, match="would show people something else"):
        await submit(a, run_id, c.Migrate(to=new, by="user:op"))
    await submit(a, run_id, answer(await open_pending(a, run_id)))
    assert (await state_of(a, run_id)).output == "from version 1"
