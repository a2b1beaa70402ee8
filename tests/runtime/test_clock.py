"""The database's clock as a process knows it: never ahead, unless that clock was wrong, and then not for long."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine import events as e
from hai_flow.primitives import instants
from hai_flow.runtime.commit import committer
from hai_flow.runtime.commit.context import Clock
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.commit import commits
from hai_flow.store.postgres import database
from tests.runtime.conftest import ASKING, GATED, TEXT, Connection, Make, answer, is_now, open_pending, start
from tests.support import effects
from tests.support.ledger import check_log, log_of
from tests.support.postgres import connecting
from tests.support.skewed import SkewedServer
from tests.support.waiting import until

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
EPOCH = 1_772_452_800_000

milliseconds = st.integers(0, 10_000)
readings = st.lists(st.tuples(milliseconds, milliseconds, milliseconds), min_size=1, max_size=30)
steps = st.integers(-10 * HOUR_MS, 10 * HOUR_MS)


class World:
    """A database whose clock may be set, and one process that reads it. All in milliseconds."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.mono = 5_000
        self.offset = EPOCH

    @property
    def true(self) -> int:
        return self.mono + self.offset

    @property
    def known(self) -> int:
        return self.clock.at(self.mono / 1000)

    def read(self, there: int, back: int) -> None:
        """Ask the database: the question takes `there`, the answer `back`."""
        sent = self.mono
        self.mono += there
        shown = self.true
        self.mono += back
        self.clock.read(shown, sent / 1000, self.mono / 1000)


@given(readings)
def test_beside_a_right_database_clock_ours_is_never_ahead_or_going_back(readings: list[tuple[int, int, int]]) -> None:
    world = World()
    world.read(0, 5)
    for pause, there, back in readings:
        world.mono += pause
        at = world.mono / 1000
        before = world.clock.at(at)
        world.read(there, back)
        assert world.clock.at(at) >= before - 1, "an answer that is merely late proves nothing"
        assert world.true - back - 1 <= world.known <= world.true


@given(readings, st.lists(steps, min_size=1, max_size=5), milliseconds, milliseconds)
def test_a_reading_after_the_clock_was_set_is_as_good_as_its_round_trip(
    readings: list[tuple[int, int, int]], set_by: list[int], there: int, back: int
) -> None:
    world = World()
    for number, (pause, on_the_way, home) in enumerate(readings):
        world.mono += pause
        world.read(on_the_way, home)
        world.offset += set_by[number % len(set_by)]
    world.read(there, back)
    assert -back - 1 <= world.known - world.true <= there + 2


def test_a_second_with_the_database_clock_an_hour_ahead_is_over_with_it() -> None:
    world = World()
    world.read(1, 1)
    world.offset += HOUR_MS
    world.mono += 500
    world.read(1, 1)
    assert world.known == world.true - 1, "the database's clock is right, whatever it says"
    world.offset -= HOUR_MS
    world.mono += 500
    world.read(1, 1)
    assert world.known == world.true - 1


def test_time_passes_between_two_readings() -> None:
    clock = Clock()
    clock.read(EPOCH, 1.0, 2.0)
    assert [clock.at(2.0), clock.at(2.25), clock.at(5.0)] == [EPOCH, EPOCH + 250, EPOCH + 3000]


def test_nothing_is_known_before_the_first_reading() -> None:
    assert Clock().at(time.monotonic()) == 0


# --- in a runtime -------------------------------------------------------------------------------------------------


def put_ahead(runtime: Runtime) -> int:
    """As after a reading while the database's clock was an hour ahead. Returns what time it is by that."""
    ahead, now = runtime.committer.now_ms() + HOUR_MS, time.monotonic()
    runtime.committer.clock.read(ahead, now, now)
    assert runtime.committer.now_ms() >= ahead
    return ahead


async def is_right_again(runtime: Runtime, eye: Connection) -> bool:
    known = runtime.committer.now_ms()
    return 0 <= instants.milliseconds(await eye.fetchval("SELECT clock_timestamp()")) - known < HOUR_MS // 2


async def test_a_process_that_does_nothing_is_right_again_soon(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "CLOCK_SECONDS", 0.1)
    runtime = await make()
    put_ahead(runtime)
    await until(lambda: is_right_again(runtime, eye))


async def test_the_pulse_of_a_process_that_does_nothing_reads_the_clock_for_it(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    put_ahead(runtime)
    runtime.committer.clock.heard_at -= committer.CLOCK_SECONDS / 2
    monkeypatch.setattr(database, "read_clock", pytest.fail)
    await until(lambda: is_right_again(runtime, eye))


async def test_what_is_asked_after_a_commit_has_a_right_deadline(make: Make, eye: Connection) -> None:
    runtime = await make()
    put_ahead(runtime)
    await start(runtime, ASKING)
    run_id = (await start(runtime, ASKING)).run_id
    (opened,) = [event for event in await log_of(eye, run_id) if isinstance(event, e.PendingOpened)]
    assert opened.deadline is not None
    assert opened.deadline <= instants.milliseconds(await eye.fetchval("SELECT clock_timestamp()")) + WEEK_MS


async def test_time_within_a_run_never_goes_back_and_it_ends_despite_its_clock(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    ahead = put_ahead(runtime)
    run_id = (await start(runtime, TEXT)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    events = await log_of(eye, run_id)
    times = [event.at for event in events]
    assert times == sorted(times)
    assert times[0] >= ahead
    assert any(isinstance(event, e.MessageChunk) for event in events)
    assert await is_right_again(runtime, eye)


@pytest.mark.parametrize("statement", ["commit", "read_clock"])
async def test_an_answer_that_comes_late_does_not_put_the_clock_back(
    make: Make, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(committer, "CLOCK_SECONDS", 0.1)
    runtime = await make()
    module = {"commit": commits, "read_clock": database}[statement]
    real, late = getattr(module, statement), asyncio.Event()

    async def delayed(*given: Any) -> Any:
        done = await real(*given)
        await asyncio.sleep(0.3)
        late.set()
        return done

    moment = time.monotonic()
    before = runtime.committer.clock.at(moment)
    monkeypatch.setattr(module, statement, delayed)
    if statement == "commit":
        await start(runtime, ASKING)
    await asyncio.wait_for(late.wait(), 20)
    await until(lambda: runtime.committer.clock.heard_at >= moment + 0.3)
    assert runtime.committer.clock.at(moment) >= before - 1


@pytest.mark.costly
async def test_an_hour_of_a_wrong_database_clock_leaves_no_trace_afterwards(
    skewed: SkewedServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "CLOCK_SECONDS", 0.1)
    async with connecting(skewed.dsn) as eye:
        effects.write_to(skewed.dsn)
        runtime = await make(performs=True, dsn=skewed.dsn)
        for wrong in (3600, -3600):
            skewed.skew(wrong)
            away = (await start(runtime, ASKING)).run_id
            skewed.skew(0)
            await until(lambda: is_right_again(runtime, eye))
            run_id = (await start(runtime, GATED)).run_id
            effects.gate.set()
            await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
            at = (await log_of(eye, run_id))[0].at
            assert abs(at - instants.milliseconds(await eye.fetchval("SELECT clock_timestamp()"))) < 60_000
            await runtime.committer.submit(away, LOCAL_TENANT, answer(await open_pending(runtime, away)))
            await until(lambda away=away: is_now(runtime, away, "finished"))
            check_log(away, await log_of(eye, away))
