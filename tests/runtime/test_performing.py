"""What a worker does for the runs that it holds: time, long stretches, faults, text, and what a stop leaves alone."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.errors import StepError
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.runtime.worker.attempt import AttemptContext, failure
from tests.runtime.conftest import ECHO, TEXT, TOOLS, Connection, Make, is_now, start, state_of
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.values import require
from tests.support.waiting import until

STOP = c.Stop(by="user:local")


async def test_a_stretch_of_decisions_longer_than_one_commit_is_continued(make: Make) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, "steps:\n  - repeat: {max: 500, steps: [{say: hi}]}\n")).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))


async def test_the_timers_of_a_run_fire_while_it_is_held(make: Make) -> None:
    runtime = await make(performs=True)
    body = TOOLS + (
        "steps:\n  - parallel:\n      held: [{id: held, call: fx.gated}]\n"
        "      timed: [{wait: {for: 1s}}, {id: behind, say: now}]\n"
    )
    run_id = (await start(runtime, body)).run_id

    async def said() -> bool:
        steps = (await state_of(runtime, run_id)).steps
        return any(path.endswith("/behind") and step.status == "finished" for path, step in steps.items())

    await until(said)
    assert not effects.gate.is_set()
    assert len(effects.begun) == 1, "what is being performed is not begun again with each commit"


async def test_an_attempt_that_is_closed_does_not_go_on(make: Make) -> None:
    runtime = await make(performs=True)
    body = TOOLS + (
        "steps:\n  - parallel:\n      held: [{id: held, call: fx.gated}]\n"
        "      late: [{id: late, call: fx.gated, timeout: 1s, retry: {max: 0}, catch: [{steps: [{say: late}]}]}]\n"
    )
    await start(runtime, body)
    worker = require(runtime.worker)
    await until(lambda: len(effects.begun) == 2)
    await until(lambda: len(worker._attempts) == 1)


async def test_a_fault_of_ours_fails_the_step_and_hangs_no_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make(performs=True)
    monkeypatch.setattr(type(runtime.registry), "runner_of", lambda self, step: 1 / 0)
    run_id = (await start(runtime, ECHO)).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    assert "ZeroDivisionError" in require((await state_of(runtime, run_id)).error).message


async def test_a_database_that_is_away_while_an_attempt_begins_fails_no_step(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await make()
    run_id = (await start(server, ECHO)).run_id
    look_up, cut = Tenants.name, []

    async def looked_up(self: Tenants, tenant: UUID) -> str:
        if len(cut) < 2:
            cut.append(tenant)
            async with self._database.api.acquire() as connection:
                connection.terminate()
                await connection.execute("SELECT")
        return await look_up(self, tenant)

    monkeypatch.setattr(Tenants, "name", looked_up)
    await make(performs=True)
    await until(lambda: is_now(server, run_id, "finished"))
    assert len(cut) == 2


async def test_a_tool_that_begins_with_a_timeout_has_a_task_of_its_own(make: Make) -> None:
    """A first segment that ran in the lane's task would cancel the lane, and the tool would wait for ever."""
    runtime = await make(performs=True)
    body = TOOLS + "steps:\n  - {id: wait, call: fx.impatient}\noutput: ${{ steps.wait.output }}\n"
    run_ids = [(await start(runtime, body)).run_id for _ in range(3)]
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
        assert (await state_of(runtime, run_id)).output == "gave up"
    assert runtime.faults() == []


async def test_the_pieces_of_a_text_are_counted_through(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, TEXT)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    events = await log_of(eye, run_id)
    pieces = [event for event in events if isinstance(event, e.MessageChunk)]
    assert [piece.n for piece in pieces] == list(range(len(pieces)))
    assert len(pieces) > 1


async def test_a_stop_tells_an_effect_once_and_lets_it_tidy_up(make: Make) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, TOOLS + "steps:\n  - {id: work, call: fx.tidying}\n")).run_id
    await until(lambda: effects.begun)
    await runtime.committer.submit(run_id, LOCAL_TENANT, STOP)
    await until(lambda: len(effects.begun) == 2)
    hot = require(runtime.committer.peek(run_id))
    runtime.committer.refresh(run_id)
    await runtime.committer.wait_committed([hot])
    effects.gate.set()
    await until(lambda: is_now(runtime, run_id, "stopped"))
    assert (await state_of(runtime, run_id)).steps["work"].output == "tidied up"


async def test_a_stop_leaves_alone_what_cleans_up(make: Make) -> None:
    runtime = await make(performs=True)
    body = TOOLS + ("steps:\n  - id: block\n    try: [{fail: no}]\n    finally: [{id: clean, call: fx.gated}]\n")
    run_id = (await start(runtime, body)).run_id
    await until(lambda: effects.begun)
    await runtime.committer.submit(run_id, LOCAL_TENANT, STOP)
    effects.gate.set()
    await until(lambda: is_now(runtime, run_id, "stopped"))
    assert (await state_of(runtime, run_id)).steps["block/~finally/clean"].output == "through the gate"


def test_a_tools_own_failure_is_reported_with_its_pause_in_milliseconds() -> None:
    told = failure("a", 2, StepError("Slow down.", code="llm.rate_limited", retriable=True, data=[1], retry_after=2.5))
    assert told == c.StepFailed(
        path="a", attempt=2, code="llm.rate_limited", message="Slow down.", retriable=True, data=[1], retry_after=2500
    )
    assert failure("a", 1, StepError("No.")).retry_after is None


async def test_followers_hear_a_tools_progress_at_most_once_a_second(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, TOOLS + "steps:\n  - {id: count, call: fx.counting}\n")).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    told = [event for event in await log_of(eye, run_id) if isinstance(event, e.CustomEmitted)]
    assert {(each.path, each.name) for each in told} == {("count", "hai.progress")}
    assert told[-1].value == {"message": "counting", "done": 100, "total": 100}
    assert len(told) <= 3


async def test_the_first_words_of_a_stream_wait_for_no_timer(make: Make) -> None:
    runtime = await make(performs=True)
    worker = require(runtime.worker)
    worker._stage.chunk_seconds = 3600.0
    run_id = (await start(runtime, TOOLS + "steps:\n  - {id: say, call: fx.hesitant, stream: text}\n")).run_id

    async def is_shown() -> bool:
        return any(message.content for message in (await state_of(runtime, run_id)).messages.values())

    await until(is_shown)
    assert worker._stage.streams == 1
    effects.gate.set()
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert worker._stage.streams == 0


def test_text_is_gathered_longer_for_more_streams_and_longer_logs() -> None:
    none = cast(Any, None)
    stage = AttemptContext(none, none, none, none, none, none, 0.04, 1.0)
    short, long = RunState("r", seq=10), RunState("r", seq=25_001)

    def pause(streams: int, state: RunState = short) -> float:
        stage.streams = streams
        return stage.chunk_pause(state)

    assert pause(1) < 0.004
    assert pause(1) < pause(5) < pause(15) < pause(21) == pause(500) == 0.04
    assert pause(1, long) == 0.04
    child = msgspec.structs.replace(short, parent=e.Parent("above", "step", 1, 1))
    assert pause(1, child) == pause(500, child) == 1.0
