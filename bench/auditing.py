"""The cost of the audit for a request: the record of its caller.

`audit_cost`: the time of a request that starts a run, with the record of its caller in the same commit, to that of the
same request whose caller is not recorded. Both go to one application in turns, in this process.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx2

from bench.engine import running
from hai_flow.api.app import create_app
from hai_flow.runtime.runtime import Runtime

WORKFLOW: Final = b"hai: flow/v1\nname: bench_said\nversion: 1\nsteps:\n  - say: Hello\n"
WARM: Final = 20
ROUND: Final = 5  # requests of one kind before the other's turn


async def measure(dsn: str, rounds: int) -> dict[str, Any]:
    """`rounds`: so often each kind has a turn."""
    async with running(dsn, WORKFLOW) as engine:
        transport = httpx2.ASGITransport(create_app(engine.runtime.settings, engine.runtime), client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            await _started(client, WARM)
            recorded: list[float] = []
            bare: list[float] = []
            for _ in range(rounds):
                recorded += await _started(client, ROUND)
                with _unrecorded(engine.runtime):
                    bare += await _started(client, ROUND)
        of = "SELECT count(*) FROM audit WHERE act = 'run.started'"
        records = await engine.runtime.database.api.fetchval(of)
        assert records == WARM + rounds * ROUND, "the others are not recorded"
    return {
        "audit_cost": statistics.median(recorded) / statistics.median(bare),
        "start_milliseconds": {
            "recorded": statistics.median(recorded) * 1e3,
            "not_recorded": statistics.median(bare) * 1e3,
        },
    }


@contextlib.contextmanager
def _unrecorded(runtime: Runtime) -> Iterator[None]:
    """Starts are nobody's, as those of the runtime itself."""
    starts = runtime.starts
    start: Any = starts.start

    @functools.wraps(start)
    async def nobody(*given: Any, **named: Any) -> Any:
        return await start(*given, **{**named, "asked": None})

    setattr(starts, "start", nobody)  # noqa: B010
    try:
        yield
    finally:
        del starts.start


async def _started(client: httpx2.AsyncClient, times: int) -> list[float]:
    """The seconds that each start takes."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        answer = await client.post("/v1/runs", json={"workflow": "bench_said"})
        found.append(time.perf_counter() - began)
        assert answer.status_code == 201, answer.text
    return found
