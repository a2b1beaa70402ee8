"""How soon a model's words are seen, and how much it costs when many models speak at once.

`token_delay_in_commits`: one attempt streams 200 pieces a second; the median time from each piece to a follower of the
run that has it, in raw durable commits of one run. `chunk_rows_at_50_streams`: fifty attempts do so at once; how many
rows of the log are written for each piece.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any, Final

from bench.engine import Engine, running
from bench.reference import Reference, shape_of
from bench.resume import commit_seconds
from bench.workflows import SPEECH
from hai_flow.engine.state.state import RunState
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LOG

PIECES_PER_SECOND: Final = 200
STREAMS: Final = 50
COMMITS: Final = 100


async def measure(dsn: str, reference_dsn: str, seconds: float) -> dict[str, Any]:
    """`seconds`: for how long each of the streams lasts."""
    count = int(seconds * PIECES_PER_SECOND)
    async with running(dsn, SPEECH) as engine:
        await _alone(engine, 20)  # it has spoken once
        reference = await Reference.open(reference_dsn, await shape_of(dsn))
        try:
            await commit_seconds(reference)
            commits = [await commit_seconds(reference) for _ in range(COMMITS // 2)]
            delays = await _alone(engine, count)
            commits += [await commit_seconds(reference) for _ in range(COMMITS // 2)]
        finally:
            await reference.close()
        rows, took = await _together(engine, count)
    commit, delay = statistics.median(commits), statistics.median(delays)
    return {
        "token_delay_in_commits": delay / commit,
        "chunk_rows_at_50_streams": rows / (STREAMS * count),
        "milliseconds": {"commit": commit * 1e3, "delay": delay * 1e3, "worst": max(delays) * 1e3},
        "at_50_streams_per_second": {"pieces": STREAMS * count / took, "rows": rows / took},
    }


async def _alone(engine: Engine, count: int) -> list[float]:
    """Seconds from each piece of a single stream to the follower that has it."""
    delays: list[float] = []
    run_id = engine.runtime.starts.new_id()

    async def follow() -> None:
        profile, state = Profile(dialect="log"), RunState(str(run_id))
        async for pieces in engine.runtime.fanout.follow(run_id, LOG, profile, state):
            seen = time.perf_counter()
            for piece in pieces:
                for frame in piece.frames:
                    if frame.name == "message_chunk":
                        delays.extend(seen - float(said) for said in json.loads(frame.data)["content"].split())

    follower = asyncio.create_task(follow())
    await engine.start_run(input={"count": count, "seconds": 1 / PIECES_PER_SECOND}, run_id=run_id)
    await follower
    assert len(delays) == count, "every piece is seen once"
    return delays


async def _together(engine: Engine, count: int) -> tuple[int, float]:
    """The rows of the log that fifty streams at once have made, and the seconds that they took."""
    before, began = await _rows(engine), time.perf_counter()
    given = {"count": count, "seconds": 1 / PIECES_PER_SECOND}
    await engine.finish_runs(STREAMS, STREAMS, input=given)
    return await _rows(engine) - before, time.perf_counter() - began


async def _rows(engine: Engine) -> int:
    async with engine.runtime.database.api.acquire() as connection:
        found: int = await connection.fetchval("SELECT count(*) FROM log")
    return found
