"""What a process keeps does not depend on how many runs it has seen (`make soak` is the same at length)."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.census import census, grown
from bench.engine import running
from bench.soak import BOUNDS, LIVES, WORKFLOW, live, quiet
from hai_flow.runtime.worker.timers import REPLACED_MAX, TimerHeap
from hai_flow.settings import Settings
from tests.runtime.conftest import Make

SETTINGS = Settings(lease_seconds=3.0, heartbeat_seconds=0.3, poll_seconds=0.1, shutdown_seconds=1.0)
FEW = 8 * len(LIVES)


@pytest.mark.costly
@pytest.mark.timeout(180)
async def test_a_process_keeps_as_much_after_many_runs_as_after_few(database_url: str) -> None:
    async with running(database_url, WORKFLOW, SETTINGS) as engine:
        await live(engine, FEW)
        await quiet(engine)
        before = census(engine.runtime)
        await live(engine, 4 * FEW)
        assert await quiet(engine, before) == {}


@pytest.mark.costly
async def test_the_census_names_what_was_kept(make: Make) -> None:
    runtime = await make(performs=True)
    worker = runtime.worker
    assert worker is not None
    before = census(runtime)
    for _ in range(5):
        worker._waiting[uuid4()] = 0.0
    runtime.fanout._hinted.add(uuid4())
    kept = [asyncio.get_running_loop().create_future() for _ in range(200)]
    more = grown(before, census(runtime), BOUNDS)
    assert more["Worker._waiting"] == "0 -> 5"
    assert more["Fanout._hinted"] == "0 -> 1"
    assert any(name.endswith("Future") for name in more)
    del kept


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 1000)), max_size=400), st.integers(0, 1000))
@example([(0, 0), (1, 0), (0, None), (0, 0)], 0)
@example([(0, 0), *((1, due) for due in (0, None) * 100)], 0)
def test_a_run_is_woken_at_its_last_time_and_only_timed_runs_are_stored(
    changes: list[tuple[int, int | None]], now: int
) -> None:
    wakes, runs = TimerHeap(), [uuid4() for _ in range(10)]
    times: dict[int, int] = {}
    for run, due in changes:
        first = wakes.first
        news = wakes.set(runs[run], due)
        times = {each: time for each, time in times.items() if each != run} | ({} if due is None else {run: due})
        assert news or due is None or (first is not None and first <= due), "who sleeps must be told of an earlier time"
        assert len(wakes._heap) <= 2 * len(times) + REPLACED_MAX
    assert (wakes.first is None) == (not times)
    assert wakes.first is None or wakes.first <= min(times.values())
    assert sorted(wakes.take(now)) == sorted(runs[run] for run, time in times.items() if time <= now)


def test_a_due_run_is_given_out_again_until_it_has_another_time_or_none() -> None:
    wakes, run = TimerHeap(), uuid4()
    assert wakes.set(run, 5_000)
    assert wakes.take(4_999) == []
    assert wakes.take(5_000) == [run]
    assert wakes.take(5_500) == []
    assert not wakes.set(run, 5_000), "the same time is no news"
    assert wakes.take(6_000) == [run]
    wakes.set(run, 90_000)
    assert wakes.take(60_000) == []
    wakes.set(run, None)
    assert wakes.take(10**9) == []
    assert wakes.first is None
