"""What a process knows of a run may be old: nothing is refused, forgotten or done twice because of that."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import BatchResult
from tests.runtime.conftest import (
    ASKING,
    LISTENING,
    TOOLS,
    Connection,
    Make,
    answer,
    is_now,
    note,
    open_pending,
    start,
)  # fmt: skip
from tests.support.ledger import log_of
from tests.support.waiting import until


async def submit(runtime: Runtime, run_id: UUID, command: c.Command) -> Outcome:
    return await runtime.committer.submit(run_id, LOCAL_TENANT, command)


async def test_an_answer_to_what_another_process_has_just_asked_is_taken(make: Make) -> None:
    a, b = await make(), await make()
    twice = ASKING + ASKING.removeprefix("steps:\n").replace("id: sure", "id: really")
    run_id = (await start(a, twice)).run_id
    await submit(b, run_id, answer(await open_pending(a, run_id)))
    assert (await submit(a, run_id, answer(await open_pending(b, run_id)))).status == "finished"


async def test_what_another_process_has_undone_is_not_so_already(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    await submit(a, run_id, c.Pause(by="user:local"))
    await submit(b, run_id, c.Resume(by="user:local"))
    again = await submit(a, run_id, c.Pause(by="user:local"))
    assert (again.status, again.already) == ("paused", False)


@pytest.mark.parametrize("robberies", [1, 3])
async def test_commands_that_lost_come_again_in_their_order(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, robberies: int
) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, LISTENING)).run_id
    real, robbed = commits.commit, 0

    async def late(connection: Any, entries: Any, *more: Any) -> BatchResult:
        """B moves the run right before A's commit: as long as A does not lock it."""
        nonlocal robbed
        if robbed < robberies and not connection.is_in_transaction() and asyncio.current_task() in a.committer._tasks:
            robbed += 1
            await submit(b, run_id, note(f"b{robbed}"))
        return await real(connection, entries, *more)

    monkeypatch.setattr(commits, "commit", late)
    await asyncio.gather(*(submit(a, run_id, note(f"a{number}")) for number in range(3)))
    taken = [event.id for event in await log_of(eye, run_id) if isinstance(event, e.SignalReceived)]
    assert taken == [*(f"b{number + 1}" for number in range(robberies)), "a0", "a1", "a2"]


async def test_a_run_that_is_retried_has_its_thread_for_itself_again(make: Make) -> None:
    runtime = await make(performs=True)
    body = TOOLS + "steps:\n  - {id: wait, call: fx.gated, timeout: 1s, retry: {max: 0}}\n"
    run_id = (await start(runtime, body, thread="t")).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    assert runtime.worker is not None
    worker = runtime.worker
    await until(lambda: not worker._attempts)  # what took too long does not go on
    await submit(runtime, run_id, c.Retry(by="user:local"))
    with pytest.raises(Rejected) as refused:
        await start(runtime, ASKING, thread="t")
    assert refused.value.code == "thread_busy"
