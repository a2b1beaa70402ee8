"""The cost of telemetry for a step.

`telemetry_cost`: the time of a step with metrics, the census, and traces at their default rate, sent to a collector in
a process of its own, to that of the same step without any of it. One runtime does both, in turns: telemetry is attached
for one round and detached for the next. `every_run_traced` is the same with the trace of each run recorded.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from bench.engine import CONCURRENCY, median_ratio, running, time_runs
from bench.workflows import STEPS, chain
from hai_flow.runtime.base.trace_parent import forward_trace
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from hai_flow.telemetry.watching import Watching

EVERY: Final = 100_000.0  # runs a second


class _Watched:
    """Everything that watches, attached to a runtime that runs while the block does."""

    def __init__(self, runtime: Runtime, collector: str, per_second: float) -> None:
        self._runtime = runtime
        self._settings = Settings(metrics=":0", otlp=collector, traces_per_second=per_second)

    async def __aenter__(self) -> None:
        self._kept = [(watching, tuple(watching)) for watching in self._lists()]
        watching = Watching(self._settings)
        self._services = [each for observer in watching.observers for each in observer.attach(self._runtime)]
        for service in self._services:
            await service.start()

    async def __aexit__(self, *error: object) -> None:
        for service in self._services:
            await service.stop()
        for watching, before in self._kept:
            watching[:] = before
        self._runtime.starts.begin_trace = forward_trace

    def _lists(self) -> tuple[list[Any], ...]:
        """All lists that observers add themselves to; services of the runtime stand in some."""
        listeners = self._runtime.committer.listeners
        return *vars(listeners).values(), self._runtime.requests


async def measure(dsn: str, rounds: int, runs: int, concurrency: int = CONCURRENCY) -> dict[str, Any]:
    """`rounds`: so often each way has a turn of `runs` runs."""
    with _collector() as collector:
        async with running(dsn, chain()) as engine:
            await engine.finish_runs(runs, concurrency)
            taken: dict[str, list[tuple[float, float]]] = {"alone": [], "watched": [], "every_run_traced": []}
            for _ in range(rounds):
                taken["alone"].append(await time_runs(engine, runs, concurrency))
                async with _Watched(engine.runtime, collector, Settings().traces_per_second):
                    taken["watched"].append(await time_runs(engine, runs, concurrency))
                async with _Watched(engine.runtime, collector, EVERY):
                    taken["every_run_traced"].append(await time_runs(engine, runs, concurrency))
    steps = runs * STEPS
    return {
        "telemetry_cost": median_ratio(taken["watched"], taken["alone"], 0),
        "cpu_cost": median_ratio(taken["watched"], taken["alone"], 1),
        "every_run_traced": median_ratio(taken["every_run_traced"], taken["alone"], 0),
        "cpu_us_per_step": {
            name: statistics.median(cpu for _, cpu in each) * 1e6 / steps for name, each in taken.items()
        },
    }


@contextlib.contextmanager
def _collector() -> Iterator[str]:
    """The address of a process that takes telemetry and forgets it."""
    process = subprocess.Popen([sys.executable, "-m", "bench.telemetry"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _collect() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    _collect()
