"""What a committer owes to those who asked it, and what it writes for those who come after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import StoreError
from hai_flow.runtime.commit import committer
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import BatchResult
from tests.runtime.conftest import GATED, LISTENING, Connection, Make, note, start
from tests.support import effects
from tests.support.waiting import until


class Slow:
    """Commits that wait until somebody lets them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()
        self._real = commits.commit
        monkeypatch.setattr(commits, "commit", self._commit)

    async def _commit(self, *given: Any) -> BatchResult:
        self.entered.set()
        await self.go_on.wait()
        return await self._real(*given)


async def test_what_was_asked_before_a_stop_is_committed_and_answered(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    slow = Slow(monkeypatch)
    asked = asyncio.create_task(runtime.committer.submit(run_id, LOCAL_TENANT, note("a")))
    await slow.entered.wait()
    stopping = asyncio.create_task(runtime.committer.stop())
    await asyncio.sleep(0)
    slow.go_on.set()
    assert isinstance(await asked, Outcome)
    await stopping


async def test_who_can_not_be_answered_before_a_stop_ends_is_told_so(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "STOP_SECONDS", 0.05)
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    slow = Slow(monkeypatch)
    asked = asyncio.create_task(runtime.committer.submit(run_id, LOCAL_TENANT, note("a")))
    await slow.entered.wait()
    await runtime.committer.stop()
    with pytest.raises(StoreError, match="before the outcome was known"):
        async with asyncio.timeout(20):
            await asked
    slow.go_on.set()


async def test_who_looks_on_stops_nobody_who_writes(make: Make) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id

    def fail(run: CachedRun, first: int, events: Sequence[e.Event]) -> None:
        raise RuntimeError("an onlooker's fault")

    runtime.committer.listeners.committed.append(fail)
    outcome = await runtime.committer.submit(run_id, LOCAL_TENANT, note("a"))
    assert isinstance(outcome, Outcome)


async def test_a_decision_that_cuts_an_attempt_off_raises_the_fence(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    before = await eye.fetchval("SELECT fence FROM runs")
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.StepLost(path="wait", attempt=1))
    assert await eye.fetchval("SELECT fence FROM runs") == before + 1


async def test_a_run_that_waits_for_time_is_due_then(make: Make, eye: Connection) -> None:
    runtime = await make()
    await start(runtime, "steps:\n  - wait: {for: 1d}\n")
    assert await eye.fetchval("SELECT wake_at > now() + interval '23 hours' FROM runs")
