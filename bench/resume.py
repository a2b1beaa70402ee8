"""How long a person's answer takes to be seen, in raw durable commits of one run (its row, and one of its log).

From handing in the answer of a waiting run until a follower of its log has the next step's first event: decide, commit,
encode, wake up. `resume_in_commits` is that of a run which the process still remembers, `cold_resume_in_commits` that
of one which it has only read, as the request of an answer does first; the reading is not counted.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any
from uuid import UUID

from bench.engine import running
from bench.reference import Reference, shape_of
from bench.workflows import QUESTION
from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.log import LOG

# Before each of them: a follower reads the log to its end and waits there, and a quiet system has gone cold.
IDLE_SECONDS = 0.02


async def measure(dsn: str, reference_dsn: str, samples: int) -> dict[str, Any]:
    """Medians of `samples` interleaved commits, cold and hot answers over the migrated databases."""
    async with running(dsn, QUESTION) as engine:
        cold_runs = [await engine.start_run() for _ in range(samples + 1)]
        await answer_seconds(
            engine.runtime, await engine.start_run()
        )  # one that has ended, to take the rows' shape from
    reference = await Reference.open(reference_dsn, await shape_of(dsn))
    try:
        async with running(dsn, QUESTION) as engine:
            hot_runs = [await engine.start_run() for _ in range(samples + 1)]
            times = [
                (
                    await commit_seconds(reference),
                    await answer_seconds(engine.runtime, cold),
                    await answer_seconds(engine.runtime, hot),
                )
                for cold, hot in zip(cold_runs, hot_runs, strict=True)
            ]
    finally:
        await reference.close()
    commit, cold, hot = (statistics.median(column) for column in zip(*times[1:], strict=True))  # the first prepares
    return {
        "resume_in_commits": hot / commit,
        "cold_resume_in_commits": cold / commit,
        "milliseconds": {"commit": commit * 1e3, "cold": cold * 1e3, "hot": hot * 1e3},
    }


async def commit_seconds(reference: Reference) -> float:
    """Seconds that a raw commit of one run takes: its row, and one of its log."""
    await asyncio.sleep(IDLE_SECONDS)
    began = time.perf_counter()
    await reference.commit_one()
    return time.perf_counter() - began


async def answer_seconds(runtime: Runtime, run_id: UUID) -> float:
    """Seconds from the answer of the run's question to the next step's event at a follower."""
    state = await runtime.fanout.state_at(LOCAL_TENANT, run_id, 1_000_000)
    assert state is not None
    (pending,) = state.open_pendings.values()
    seen = asyncio.get_running_loop().create_future()

    async def follow() -> None:
        async for pieces in runtime.fanout.follow(run_id, LOG, Profile(dialect="log"), state):
            for piece in pieces:
                if not seen.done() and any(frame.name == "step_started" for frame in piece.frames):
                    seen.set_result(time.perf_counter())

    follower = asyncio.create_task(follow())
    await asyncio.sleep(IDLE_SECONDS)
    answer = c.Answer(answers=(c.PendingAnswer(id=pending, content="yes"),), by=c.LOCAL_PRINCIPAL)
    began = time.perf_counter()
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer)
    until = await seen
    await follower
    return until - began
