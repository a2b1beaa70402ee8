"""The watch over the loop: what holds it up is seen, for as long as it is news."""

from __future__ import annotations

import asyncio
import time

import pytest

from hai_flow.telemetry import loop_watch
from hai_flow.telemetry.exposition import render_families
from hai_flow.telemetry.loop_watch import LoopWatch
from hai_flow.telemetry.metrics import Metrics
from tests.support.stalls import stalls_measured
from tests.support.waiting import until


def work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_a_standstill_of_the_loop_is_measured_and_shown() -> None:
    metrics = Metrics()
    watch = LoopWatch(metrics)
    await watch.start()
    await asyncio.sleep(0)
    work(0.3)
    await until(lambda: watch.longest >= 0.2)
    await watch.stop()
    shown = render_families(metrics.collect()).decode()
    (line,) = (each for each in shown.splitlines() if each.startswith("hai_flow_loop_stall_seconds "))
    assert float(line.split()[1]) >= 0.2


def test_a_standstill_is_forgotten_after_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(loop_watch.time, "monotonic", lambda: now)
    watch = LoopWatch()
    watch.note(0.5)
    now = 61.0
    assert watch.longest == 0.5
    watch.note(0.1)
    now = 122.0
    assert watch.longest == 0.1


async def test_the_processor_time_of_one_callback_is_measured() -> None:
    with stalls_measured() as stalls:
        asyncio.get_running_loop().call_soon(work, 0.1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stalls.longest >= 0.1
        assert "work" in stalls.what
        stalls.forget()
        await asyncio.to_thread(work, 0.2)
        assert stalls.longest < 0.1
