"""A plain start passes by everything that its run does not need, and no other start does."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.catalog import catalog
from hai_flow.runtime.commit.submission import SUPERSEDED
from hai_flow.runtime.runs import starts
from hai_flow.runtime.runs.concurrency_slots import Slots
from hai_flow.runtime.runs.thread_state import ThreadState
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.catalog import workflows
from tests.runtime.conftest import ASKING, Connection, Make, start

KEEPS = "state: {n: {type: integer, default: 0, keep: thread}}\n" + ASKING
KEYED = "concurrency: {key: x}\n" + ASKING
RUNS = "steps:\n  - {id: below, run: child}\n"
CHILD = b"hai: flow/v1\nname: child\nversion: 1\n" + ASKING.encode()


@pytest.fixture
async def counted(make: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[Runtime, Counter[str]]:
    """A runtime, and how often a start came by each of the extras."""
    runtime, counts = await make(), Counter[str]()
    pins, seated, kept = runtime.starts._find_pins, Slots.reserve_slot, ThreadState.with_thread_state

    async def find(*given: Any) -> Any:
        counts["pins"] += 1
        return await pins(*given)

    def counted(name: str, passed: Any) -> Any:
        @contextlib.asynccontextmanager
        async def count(*given: Any) -> AsyncIterator[Any]:
            counts[name] += 1
            async with passed(*given) as found:
                yield found

        return count

    monkeypatch.setattr(runtime.starts, "_find_pins", find)
    monkeypatch.setattr(Slots, "reserve_slot", counted("seated", seated))
    monkeypatch.setattr(ThreadState, "with_thread_state", counted("kept", kept))
    return runtime, counts


async def test_a_plain_start_passes_by_the_extras_as_a_group(counted: tuple[Runtime, Counter[str]]) -> None:
    runtime, counts = counted
    outcome = await start(runtime, ASKING)
    assert (outcome.status, counts) == ("waiting", Counter())


@pytest.mark.parametrize("flow", [KEEPS, KEYED, RUNS], ids=["keeps", "keyed", "runs"])
async def test_a_start_that_needs_one_of_them_comes_by_all(counted: tuple[Runtime, Counter[str]], flow: str) -> None:
    runtime, counts = counted
    await runtime.catalog.publish(LOCAL_TENANT, CHILD)
    await start(runtime, flow)
    assert counts == {"pins": 1, "seated": 1, "kept": 1}


async def set_retired(runtime: Runtime, plan: Plan, *, retired: bool) -> None:
    async with runtime.database.api.acquire() as connection:
        assert await workflows.set_retired(connection, LOCAL_TENANT, plan.name, plan.version, retired=retired)


async def start_of(runtime: Runtime, plan: Plan, run_id: UUID, thread: str, *, latest: bool = False) -> Any:
    begin = c.Start(run_id=run_id, thread_id=thread, requester="user:local", input={})
    return await runtime.starts.start(LOCAL_TENANT, plan, begin, latest=latest)


async def test_a_plain_start_of_a_retired_version_is_refused_and_takes_no_slot(make: Make) -> None:
    runtime, thread, first = await make(), str(uuid4()), uuid4()
    _, plan = await runtime.catalog.publish(LOCAL_TENANT, CHILD)
    await start_of(runtime, plan, first, str(first))
    await set_retired(runtime, plan, retired=True)
    with pytest.raises(Rejected, match="child@1 was retired") as refusal:
        await start_of(runtime, plan, uuid4(), thread)
    assert (refusal.value.status, refusal.value.code) == (409, "workflow_retired")
    assert (await start_of(runtime, plan, first, str(first))).already  # the start that was made before is the same one
    await set_retired(runtime, plan, retired=False)
    assert (await start_of(runtime, plan, uuid4(), thread)).status == "waiting"


@pytest.mark.parametrize("code", ["workflow_retired", SUPERSEDED])
@pytest.mark.parametrize("lost", [False, True], ids=["there", "lost"])
async def test_of_many_starts_only_those_of_another_version_are_refused(
    make: Make, eye: Connection, code: str, lost: bool
) -> None:
    """Also those of a version that a process remembers, and the database has lost."""
    runtime = await make()
    _, gone = await runtime.catalog.publish(LOCAL_TENANT, CHILD)
    _, kept = await runtime.catalog.publish(LOCAL_TENANT, CHILD.replace(b"name: child", b"name: another"))
    if lost:
        await eye.execute("DELETE FROM workflows WHERE name = 'child'")
    elif code == SUPERSEDED:
        await runtime.catalog.publish(LOCAL_TENANT, CHILD.replace(b"version: 1", b"version: 2"))
    else:
        await set_retired(runtime, gone, retired=True)
    ids = [uuid4() for _ in range(24)]
    plans = [gone if number % 2 else kept for number in range(24)]
    latest = code == SUPERSEDED
    starting = (start_of(runtime, plan, id, str(id), latest=latest) for plan, id in zip(plans, ids, strict=True))
    answers = await asyncio.gather(*starting, return_exceptions=True)
    codes = [each.code if isinstance(each, Rejected) else None for each in answers]
    assert codes == [code if plan is gone else None for plan in plans]


async def test_a_plain_start_asks_for_its_version_in_its_commit_alone(make: Make) -> None:
    runtime = await make()
    with patch.object(workflows, "is_retired", side_effect=AssertionError("a trip of its own")):
        assert (await start(runtime, ASKING)).status == "waiting"


async def test_how_many_documents_are_remembered_as_plain_is_bounded(
    counted: tuple[Runtime, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, _ = counted
    monkeypatch.setattr(starts, "PLANS_MAX", 2)
    for number in range(5):
        await start(runtime, ASKING.replace("Sure?", f"Sure {number}?"))
    assert len(runtime.starts._plain) <= 2


async def test_the_plan_that_is_started_most_is_not_the_first_forgotten(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = (await make()).catalog
    monkeypatch.setattr(catalog, "PLANS_MAX", 3)
    await plans.publish(LOCAL_TENANT, CHILD)
    await plans.resolve_startable(LOCAL_TENANT, "child")
    for number in range(5):
        assert plans.recall_startable(LOCAL_TENANT, "child") is not None
        await plans.publish(LOCAL_TENANT, CHILD.replace(b"child", b"w%d" % number))
