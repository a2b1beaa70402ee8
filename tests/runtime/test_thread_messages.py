"""The messages before a run are read once, and again where they may have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.worker.thread_messages import ENTRY_BYTES, ThreadMessages
from hai_flow.store.runs import threads
from tests.runtime.conftest import Make, is_now, start, state_of
from tests.runtime.test_agents import REMEMBERING, answer
from tests.runtime.test_models import ended, runtime_of
from tests.support.models import Answer, FakeModels, Status, spoken
from tests.support.waiting import until

DELIBERATE = """\
models: {smart: {use: smart}}
tools:
  asked: {python: "tests.support.effects:note", effect: write}
steps:
  - id: chat
    agent: {model: smart, prompt: Do it., tools: [asked], approvals: {asked: {from: anyone}}}
output: ${{ steps.chat.output }}
"""
BROKEN = Status(400, {"error": {"message": "no"}})
LAST_TRY = REMEMBERING.partition("  - id: again")[0] + "    retry: {max: 1}\noutput: ${{ steps.chat.output }}\n"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The runs for which the messages before them were read, in order."""
    reads: list[UUID] = []
    transcript = threads.transcript

    async def noted(*given: Any, before: UUID, **more: Any) -> Any:
        reads.append(before)
        return await transcript(*given, before=before, **more)

    monkeypatch.setattr(threads, "transcript", noted)
    return reads


async def _finish_run(runtime: Runtime, ask: str, *, thread: str = "t", status: str = "finished") -> UUID:
    """A run of the thread that has ended like this."""
    posted = (e.UserMessage(f"m-{ask}", "user", ask),)
    run_id = (await start(runtime, LAST_TRY, thread=thread, input={"ask": ask}, messages=posted)).run_id
    assert (await ended(runtime, run_id)).status == status
    return run_id


def _contents(fake: FakeModels, number: int) -> list[str]:
    return [each["content"] for each in fake.asked[number].body["messages"]]


async def test_an_agent_waiting_between_two_questions_reads_its_thread_once(
    make: Make, tmp_path: Path, reads: list[UUID]
) -> None:
    calls = (("asked", '{"n": 2}'),)
    answers = (Answer("Tea."), Answer(calls=calls), Answer("Done."))
    async with FakeModels(*map(spoken, answers)) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        await _finish_run(runtime, "What?")
        reads.clear()
        run_id = (await start(runtime, DELIBERATE, thread="t")).run_id
        await until(lambda: is_now(runtime, run_id, "waiting"))
        (path,) = (await state_of(runtime, run_id)).open_pendings
        await answer(runtime, run_id, path, decision="approve")
        assert (await ended(runtime, run_id)).status == "finished"
    assert reads == [run_id]
    first, second = _contents(fake, 1), _contents(fake, 2)
    assert "Tea." in first
    assert second[: len(first)] == first


async def test_a_run_whose_thread_begins_with_it_reads_nothing(make: Make, tmp_path: Path, reads: list[UUID]) -> None:
    async with FakeModels(spoken(Answer("Done."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        source = f"hai: flow/v1\nname: alone\nversion: 1\n{DELIBERATE}".encode()
        _, plan = await runtime.catalog.publish(LOCAL_TENANT, source)
        run_id = runtime.starts.new_id()
        begin = c.Start(run_id=run_id, thread_id=str(run_id), requester=c.LOCAL_PRINCIPAL.id, input={})
        await runtime.starts.start(LOCAL_TENANT, plan, begin)
        assert (await ended(runtime, run_id)).output == "Done."
    assert reads == []


async def test_a_retried_run_reads_messages_of_earlier_runs_in_other_processes(
    make: Make, tmp_path: Path, reads: list[UUID]
) -> None:
    async with FakeModels([BROKEN], [BROKEN], spoken(Answer("Rain.")), spoken(Answer("Out."))) as fake:
        here = await runtime_of(make, tmp_path, fake)
        earlier = await _finish_run(here, "Weather?", status="failed")
        later = await _finish_run(here, "Out?", status="failed")
        assert "Rain." not in _contents(fake, 1)
        there = await make()
        await _retried(there, earlier)
        assert (await ended(here, earlier)).output == "Rain."
        await _retried(there, later)
        assert (await ended(here, later)).output == "Out."
    assert "Rain." in _contents(fake, 3)
    assert reads == [earlier, later, earlier, later]


async def _retried(runtime: Runtime, run_id: UUID) -> None:
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Retry(by="user:local"))


async def test_a_stopping_run_reads_anew_as_its_thread_may_have_a_successor(
    make: Make, tmp_path: Path, reads: list[UUID]
) -> None:
    runtime = await make()
    messages = ThreadMessages(runtime.database)
    run = _run(1, "stopping")
    assert [await messages.before(run) for _ in range(2)] == [[], []]
    assert reads == [run.id, run.id]


async def test_messages_of_the_last_asking_runs_are_cached_within_the_bound(make: Make, reads: list[UUID]) -> None:
    runtime = await make()
    messages = ThreadMessages(runtime.database, bytes_max=2 * ENTRY_BYTES)
    first, second, third = (_run(number) for number in range(3))
    for run in (first, second, first, third, first, third, second):
        await messages.before(run)
    assert reads == [each.id for each in (first, second, third, second)]


def _run(number: int, status: Any = "running") -> CachedRun:
    id = UUID(int=number)
    return CachedRun(id, LOCAL_TENANT, RunState(str(id), status=status, thread_id="t"))
