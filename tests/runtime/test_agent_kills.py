"""The process that performs an agent is killed at every point of it; another goes on, and nothing happens twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from hai_flow.runtime.runtime import Runtime
from tests.runtime.conftest import Connection, is_now, start, state_of
from tests.runtime.test_agents import answer
from tests.runtime.test_models import catalogue
from tests.support.examples import sample
from tests.support.ledger import check_log, log_of
from tests.support.models import STALL, Act, Answer, FakeModels, Hold, spoken
from tests.support.postgres import connecting
from tests.support.waiting import until
from tests.support.workers import Nursery, fast

pytestmark = pytest.mark.costly

AGENT = """\
models: {smart: {use: smart}}
tools:
  free: {python: "tests.support.effects:keyed", effect: write}
  edited: {python: "tests.support.effects:keyed", effect: write}
  denied: {python: "tests.support.effects:keyed", effect: write}
steps:
  - id: chat
    agent:
      model: smart
      prompt: Do it.
      tools: [free, edited, denied]
      approvals: {free: none, edited: {from: anyone, edit: [n]}, denied: {from: anyone}}
output: ${{ steps.chat.output }}
"""
CALLS = (("free", '{"n": 1}'), ("edited", '{"n": 2}'), ("denied", '{"n": 3}'))
FREE, EDITED, DENIED = (f"chat[0]/call[{name}-1]/{name}" for name, _ in CALLS)
FIRST, SECOND = spoken(Answer("I do.", calls=CALLS)), spoken(Answer("Done."))


WAITING = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'"


@dataclass
class Scene:
    """One run, the worker that performs it, and the means to catch that at a point."""

    dsn: str
    eye: Connection
    nursery: Nursery
    fake: FakeModels
    models: Path
    runtime: Runtime
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    worker: int = 0
    run_id: UUID = field(init=False)

    def new_worker(self) -> None:
        self.worker = self.nursery.fork(f"worker {self.models}")

    async def kill(self) -> None:
        os.kill(self.worker, signal.SIGKILL)
        self.hold.set()
        self.new_worker()

    async def asked(self, times: int) -> None:
        """The model is being asked for the n-th time."""
        await until(lambda: _is(len(self.fake.asked) >= times), 60)

    async def pending(self, *paths: str) -> None:
        """People are asked there, and nothing else is open."""

        async def so() -> bool:
            state = await state_of(self.runtime, self.run_id)
            return state.status == "waiting" and set(state.open_pendings) == set(paths)

        await until(so, 60)

    async def decide(self) -> None:
        """What people say, as far as they have not said it."""
        state = await state_of(self.runtime, self.run_id)
        if DENIED in state.open_pendings:
            await answer(self.runtime, self.run_id, DENIED, decision="reject", reason="not three")
        if EDITED in state.open_pendings:
            await answer(self.runtime, self.run_id, EDITED, decision="approve", edits={"n": 5})

    @asynccontextmanager
    async def no_effects(self) -> AsyncIterator[None]:
        """Inside, no tool gets on: its row finds the table locked."""
        async with self._other() as other:
            await other.execute("LOCK TABLE keyed IN ACCESS EXCLUSIVE MODE")
            yield

    @asynccontextmanager
    async def no_commits(self) -> AsyncIterator[None]:
        """Inside, nothing of the run is committed."""
        async with self._other() as other:
            await other.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", self.run_id)
            yield

    @asynccontextmanager
    async def _other(self) -> AsyncIterator[Connection]:
        async with connecting(self.dsn) as other, other.transaction():
            yield other

    async def held_up(self, table: str) -> None:
        """A statement of a worker waits for that table, or for a row of it."""
        await until(lambda: self.eye.fetchval(f"SELECT count(*) {WAITING}", table), 30)

    async def kill_with(self, table: str) -> None:
        """Kill the worker and the statement that waits: PostgreSQL would do it all the same once it may."""
        os.kill(self.worker, signal.SIGKILL)
        await self.eye.fetch(f"SELECT pg_terminate_backend(pid) {WAITING}", table)
        self.hold.set()
        self.new_worker()


async def _is(fact: bool) -> bool:
    return fact


async def first_asked(scene: Scene) -> None:
    await scene.asked(1)
    await scene.kill()


async def first_not_committed(scene: Scene) -> None:
    await scene.asked(1)
    async with scene.no_commits():
        scene.hold.set()
        await scene.held_up("runs")
        await scene.kill_with("runs")


async def free_begun(scene: Scene) -> None:
    async with scene.no_effects():
        scene.hold.set()
        await scene.held_up("keyed")
        await scene.kill_with("keyed")


async def free_not_committed(scene: Scene) -> None:
    async with scene.no_effects():
        scene.hold.set()
        await scene.held_up("keyed")
        lock = AsyncExitStack()
        await lock.enter_async_context(scene.no_commits())
    async with lock:
        await scene.held_up("runs")
        assert await scene.eye.fetchval("SELECT count(*) FROM keyed") == 1
        await scene.kill_with("runs")


async def nobody_has_decided(scene: Scene) -> None:
    scene.hold.set()
    await scene.pending(EDITED, DENIED)
    await scene.kill()


async def one_is_denied(scene: Scene) -> None:
    scene.hold.set()
    await scene.pending(EDITED, DENIED)
    await answer(scene.runtime, scene.run_id, DENIED, decision="reject", reason="not three")
    await scene.kill()


async def edited_begun(scene: Scene) -> None:
    scene.hold.set()
    await scene.pending(EDITED, DENIED)
    async with scene.no_effects():
        await scene.decide()
        await scene.held_up("keyed")
        await scene.kill_with("keyed")


async def second_asked(scene: Scene) -> None:
    await scene.pending(EDITED, DENIED)
    await scene.decide()
    await scene.asked(2)
    await scene.kill()


async def second_not_committed(scene: Scene) -> None:
    await scene.pending(EDITED, DENIED)
    await scene.decide()
    await scene.asked(2)
    async with scene.no_commits():
        scene.hold.set()
        await scene.held_up("runs")
        await scene.kill_with("runs")


def held_before(acts: list[Act], place: int) -> Callable[[Scene], list[Act]]:
    return lambda scene: [*acts[:place], Hold(scene.hold), *acts[place:]]


POINTS: dict[str, tuple[Callable[[Scene], Awaitable[None]], list[Any], int]] = {
    "the model is asked and has said nothing": (first_asked, [[*FIRST[:1], STALL], FIRST, SECOND], 3),
    "it has said a part of its text": (first_asked, [[*FIRST[:2], STALL], FIRST, SECOND], 3),
    "it has written a part of its calls": (first_asked, [[*FIRST[:6], STALL], FIRST, SECOND], 3),
    "its answer is whole and not committed": (first_not_committed, [held_before(FIRST, 2), FIRST, SECOND], 3),
    "the free call has begun": (free_begun, [held_before(FIRST, 2), SECOND], 2),
    "the free call has happened and is not committed": (free_not_committed, [held_before(FIRST, 2), SECOND], 2),
    "two wait for people": (nobody_has_decided, [FIRST, SECOND], 2),
    "one is denied": (one_is_denied, [FIRST, SECOND], 2),
    "the edited call has begun": (edited_begun, [FIRST, SECOND], 2),
    "the model is asked again": (second_asked, [FIRST, [*SECOND[:1], STALL], SECOND], 3),
    "its last answer is whole and not committed": (second_not_committed, [FIRST, held_before(SECOND, 2), SECOND], 3),
}


@pytest.mark.timeout(90)
@pytest.mark.parametrize("point", sample(POINTS, 4))
async def test_a_kill_repeats_no_finished_answer_and_no_effect(point: str, database_url: str, tmp_path: Path) -> None:
    reach, answers, asked = POINTS[point]
    eye = await asyncpg.connect(database_url)
    await eye.execute("CREATE TABLE keyed (key text PRIMARY KEY, path text, n int)")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(eye.close)
        fake = await stack.enter_async_context(FakeModels())
        models = catalogue(tmp_path, fake)
        runtime = Runtime(database_url, fast(models), performs=False)
        await stack.enter_async_context(runtime.lifespan())
        scene = Scene(database_url, eye, stack.enter_context(Nursery(database_url)), fake, models, runtime)
        fake.answers = [each(scene) if callable(each) else each for each in answers]
        scene.new_worker()
        scene.run_id = (await start(runtime, AGENT)).run_id
        await reach(scene)
        if len((await state_of(runtime, scene.run_id)).open_pendings) < 2:
            await until(lambda: _people_or_end(scene), 30)
        await scene.decide()
        await until(lambda: is_now(runtime, scene.run_id, "finished", "failed"), 30)
        state = check_log(scene.run_id, await log_of(eye, scene.run_id))
        assert (state.status, state.output) == ("finished", "Done.")
        rows = [tuple(row) for row in await eye.fetch("SELECT path, n FROM keyed ORDER BY path")]
        assert rows == sorted([(FREE, 1), (EDITED, 5)])
        assert len(fake.asked) == asked
        told = [message["content"] for message in fake.asked[-1].body["messages"][-3:]]
        assert told[0] == "1"
        assert '"result":5' in told[1]
        assert told[2] == '{"denied":true,"reason":"not three"}'


async def _people_or_end(scene: Scene) -> bool:
    state = await state_of(scene.runtime, scene.run_id)
    return state.status == "finished" or (state.status == "waiting" and bool(state.open_pendings))
