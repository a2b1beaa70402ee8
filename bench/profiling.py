"""Where the engine's time goes: its functions by their own time, and its CPU per step beside the reference's."""

from __future__ import annotations

import cProfile
import pstats

from bench.engine import running
from bench.throughput import QUICK, measure
from bench.workflows import STEPS, chain

FUNCTIONS = 40


async def profile(dsn: str, reference_dsn: str) -> None:
    """Measure the CPU per step first (a profiler doubles it), then print the profile."""
    cpu = (await measure(dsn, reference_dsn, QUICK))["cpu_us_per_step"]
    async with running(dsn, chain()) as engine:
        await engine.finish_runs(QUICK.runs)
        profiler = cProfile.Profile()
        profiler.enable()
        await engine.finish_runs(QUICK.runs)
        profiler.disable()
    print(f"{QUICK.runs * STEPS:,} steps")
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(FUNCTIONS)
    print("CPU of this process per step, in microseconds (without the profiler):")
    for name, microseconds in cpu.items():
        print(f"  {name:<22}{microseconds:8.1f}")
