"""Holding runs and performing what is open in them, as long as the lease is surely ours."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.worker.heartbeat import HeartbeatLoop
from hai_flow.runtime.worker.worker import LATE, PAUSED
from hai_flow.store.commit import commits
from hai_flow.store.postgres.error_classes import CommitUnknown
from hai_flow.store.runs import leases
from hai_flow.store.runs.leases import Claimed
from tests.runtime.conftest import GATED, TOOLS, Connection, Make, hands, is_now, open_pending, start, state_of
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.values import require
from tests.support.waiting import until


async def test_a_tool_cancelled_by_its_dependency_fails_without_hanging_its_run(make: Make) -> None:
    runtime = await make(performs=True)
    body = TOOLS + "steps:\n  - {id: s, call: fx.cancels_itself, retry: {max: 0}}\n"
    run_id = (await start(runtime, body)).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))


async def test_items_begin_in_the_order_in_which_they_stand_in_their_list(make: Make) -> None:
    """The maps of a run's state have an order of chance, another one in each process."""
    runtime = await make(performs=True)
    keys = [f"k{number * 7 % 20}" for number in range(20)]
    loop = f"for_each: {{items: {keys}, key: '${{{{ item }}}}', max_parallel: 20, steps: [{{id: s, call: fx.gated}}]}}"
    await start(runtime, f"{TOOLS}steps: [{{id: l, {loop}}}]\n")
    await until(lambda: len(effects.begun) == 20)
    assert [path for _, path, _ in effects.begun] == [f"l[{key}]/s" for key in keys]


async def test_a_stop_cancels_what_is_in_flight(make: Make, eye: Connection) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    await b.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:local"))
    await until(lambda: is_now(a, run_id, "stopped"))
    await until(lambda: not hands(a).held)


async def some_turns(runtime: Runtime) -> None:
    """Long enough for anything that was to begin already."""
    for _ in range(5):
        await runtime.database.api.fetchval("SELECT 1")


async def test_attempts_held_by_a_doubtful_lease_begin_after_the_next_heartbeat(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    with monkeypatch.context() as patch:
        patch.setattr(HeartbeatLoop, "safe", False)
        run_id = (await start(runtime, GATED)).run_id
        assert require(runtime.committer.peek(run_id)).owned
        await some_turns(runtime)
        assert not effects.begun
    effects.gate.set()
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert [attempt for _, _, attempt in effects.begun] == [1]


BRIEF = TOOLS + "steps:\n  - {id: s, call: fx.gated, timeout: 1s, retry: {max: 0}}\n"


async def test_a_steps_time_does_not_pass_before_a_worker_takes_the_run(make: Make, eye: Connection) -> None:
    server = await make()
    waited = [(await start(server, BRIEF)).run_id for _ in range(2)]
    await asyncio.sleep(1.2)
    effects.gate.set()
    worker = await make(performs=True)
    for run_id in waited:
        await until(lambda run_id=run_id: is_now(worker, run_id, "finished"))
        retried = [each for each in await log_of(eye, run_id) if isinstance(each, e.StepRetried)]
        assert [(each.held, each.error.message) for each in retried] == [(True, LATE)]
    assert sorted(effects.begun) == sorted((str(run_id), "s", 2) for run_id in waited), "each was performed once"


async def test_a_steps_time_does_not_pass_while_it_waits_for_a_place(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True, concurrency=1)
    first = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    second = (await start(runtime, BRIEF)).run_id
    await asyncio.sleep(3.5)
    third = (await start(runtime, BRIEF)).run_id
    await asyncio.sleep(0.5)
    effects.gate.set()
    for run_id in (first, second, third):
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
    assert [run_id for run_id, _, _ in effects.begun] == [str(first), str(second), str(third)]
    for run_id in (second, third):
        retried = [each for each in await log_of(eye, run_id) if isinstance(each, e.StepRetried)]
        assert [(each.held, each.error.message) for each in retried] == [(True, LATE)], "once, when it has a place"


@pytest.mark.usefixtures("eye")
@pytest.mark.parametrize("items", ["[a, b]", "[a, b, c]"])
async def test_steps_of_one_run_that_wait_for_a_place_have_their_whole_time(make: Make, items: str) -> None:
    runtime = await make(performs=True, concurrency=1)
    first = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    steps = "steps: [{id: s, call: fx.note, with: {n: 1}, timeout: 1s, retry: {max: 0}}]"
    loop = f"for_each: {{items: {items}, key: '${{{{ item }}}}', max_parallel: 3, {steps}}}"
    second = (await start(runtime, f"{TOOLS}steps: [{{id: l, {loop}}}]\n")).run_id
    await asyncio.sleep(1.5)
    effects.gate.set()
    for run_id in (first, second):
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))


async def retries_of(eye: Connection, run_id: UUID) -> list[e.StepRetried]:
    return [each for each in await log_of(eye, run_id) if isinstance(each, e.StepRetried)]


async def test_the_end_of_an_attempt_gives_back_none_whose_time_is_not_over(make: Make, eye: Connection) -> None:
    runtime, count = await make(performs=True, concurrency=1), 40
    steps = "steps: [{id: s, call: fx.note, with: {n: 1}, timeout: 1s, retry: {max: 0}}]"
    loop = f"for_each: {{items: {list(range(count))}, key: '${{{{ item }}}}', max_parallel: {count}, {steps}}}"
    began = time.monotonic()
    run_id = (await start(runtime, f"{TOOLS}steps: [{{id: l, {loop}}}]\n")).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    seconds = time.monotonic() - began
    retried = Counter(each.path for each in await retries_of(eye, run_id))
    assert max(retried.values()) <= seconds + 1, "once for each time-out, and once for its place"


BESIDE = """steps:
  - id: both
    parallel:
      waits: [{id: s, call: fx.gated, timeout: 1s, retry: {max: 0}}]
      goes_on: [{id: t, wait: {for: 1500ms}}, {id: u, wait: {for: 1500ms}}]
"""


async def test_an_attempt_that_may_not_begin_does_not_fail_for_its_time(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    effects.gate.set()
    with monkeypatch.context() as patch:
        patch.setattr(HeartbeatLoop, "safe", False)
        run_id = (await start(runtime, TOOLS + BESIDE)).run_id
        await until(lambda: has_fired(eye, run_id, "both/goes_on/t"))
        assert not effects.begun
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert [path for _, path, _ in effects.begun] == ["both/waits/s"]
    assert {(each.held, each.error.message) for each in await retries_of(eye, run_id)} == {(True, LATE)}


async def has_fired(eye: Connection, run_id: UUID, path: str) -> bool:
    return any(isinstance(each, e.TimerFired) and each.path == path for each in await log_of(eye, run_id))


async def test_timers_of_a_run_are_on_time_while_an_attempt_of_it_waits(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("timers", "worker"):
        monkeypatch.setattr(f"hai_flow.runtime.worker.{module}.AGAIN_MS", 3_600_000)
    runtime = await make(performs=True, concurrency=1)
    await start(runtime, GATED)
    await until(lambda: effects.begun)
    run_id = (await start(runtime, TOOLS + BESIDE)).run_id
    await until(lambda: has_fired(eye, run_id, "both/goes_on/u"))


async def test_an_attempt_that_waits_for_a_place_does_not_begin_in_a_paused_run(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True, concurrency=1)
    first, second = [(await start(runtime, GATED)).run_id for _ in range(2)]
    await until(lambda: effects.begun)
    await runtime.committer.submit(second, LOCAL_TENANT, c.Pause(by="user:local"))
    effects.gate.set()
    await until(lambda: is_now(runtime, first, "finished"))
    third = (await start(runtime, GATED)).run_id
    await until(lambda: is_now(runtime, third, "finished"))
    assert [(each.held, each.error.message) for each in await retries_of(eye, second)] == [(True, PAUSED)]
    await runtime.committer.submit(second, LOCAL_TENANT, c.Resume(by="user:local"))
    await until(lambda: is_now(runtime, second, "finished"))
    assert effects.begun == [(str(first), "wait", 1), (str(third), "wait", 1), (str(second), "wait", 2)]


async def test_an_attempt_of_a_paused_run_does_not_begin_where_it_is_claimed(make: Make, eye: Connection) -> None:
    server = await make()
    run_id = (await start(server, GATED)).run_id
    await server.committer.submit(run_id, LOCAL_TENANT, c.Pause(by="user:local"))
    effects.gate.set()
    worker = await make(performs=True)
    await until(lambda: has_been_retried(eye, run_id))
    await some_turns(worker)
    assert not effects.begun
    await server.committer.submit(run_id, LOCAL_TENANT, c.Resume(by="user:local"))
    await until(lambda: is_now(server, run_id, "finished"))
    assert effects.begun == [(str(run_id), "wait", 2)]


async def has_been_retried(eye: Connection, run_id: UUID) -> bool:
    return bool(await retries_of(eye, run_id))


async def test_an_attempt_whose_time_is_shorter_than_a_commit_is_given_back_once(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.worker.worker.lacks_time", lambda *_: True)
    effects.gate.set()
    runtime = await make(performs=True)
    run_id = (await start(runtime, BRIEF)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    retried = [each for each in await log_of(eye, run_id) if isinstance(each, e.StepRetried)]
    assert len(retried) == 1


async def test_an_attempt_placed_under_a_doubtful_lease_does_not_begin(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True, concurrency=1)
    first, second = [(await start(runtime, GATED)).run_id for _ in range(2)]
    await until(lambda: effects.begun)
    with monkeypatch.context() as patch:
        patch.setattr(HeartbeatLoop, "safe", False)
        effects.gate.set()
        await until(lambda: is_now(runtime, first, "finished"))
        await some_turns(runtime)
        assert [run_id for run_id, _, _ in effects.begun] == [str(first)]
    await until(lambda: is_now(runtime, second, "finished"))
    assert effects.begun == [(str(first), "wait", 1), (str(second), "wait", 1)]


async def test_a_run_missing_from_a_heartbeat_is_dropped_with_its_attempts(make: Make) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    (task,) = hands(a)._attempts
    await b.committer.submit(run_id, LOCAL_TENANT, c.Terminate(by="user:local"))
    await until(lambda: not hands(a).held)
    await until(task.cancelled)
    assert hands(a)._wakes.first is None


async def stops_at_once(runtime: Runtime, run_id: UUID, path: str, eye: Connection) -> None:
    """A stop ends the run long before its grace period; the attempt at `path` has left no trace but that."""
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:local"))
    await until(lambda: is_now(runtime, run_id, "stopped"))
    events = await log_of(eye, run_id)
    assert not any(isinstance(event, e.TimerFired) for event in events)
    (stopped,) = [event for event in events if isinstance(event, e.StepStopped) and event.path == path]
    assert stopped.reason == "The run was stopped before the step had begun."
    assert str(run_id) not in {begun for begun, _, _ in effects.begun}


async def test_a_stop_of_an_attempt_that_waits_for_its_place_is_done_at_once(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True, concurrency=1, stop_grace_seconds=600.0)
    first = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    second = (await start(runtime, GATED)).run_id
    await some_turns(runtime)
    await stops_at_once(runtime, second, "wait", eye)
    effects.gate.set()
    await until(lambda: is_now(runtime, first, "finished"))
    third = (await start(runtime, GATED)).run_id
    await until(lambda: is_now(runtime, third, "finished"))  # the place that nobody took is there for others


async def test_a_stop_of_an_attempt_that_may_not_begin_is_done_at_once(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True, stop_grace_seconds=600.0)
    monkeypatch.setattr(HeartbeatLoop, "safe", False)
    run_id = (await start(runtime, GATED)).run_id
    await stops_at_once(runtime, run_id, "wait", eye)


async def test_a_run_that_is_claimed_while_it_is_being_stopped_begins_nothing(make: Make, eye: Connection) -> None:
    nobody = await make(stop_grace_seconds=600.0)
    run_id = (await start(nobody, GATED)).run_id
    await nobody.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:local"))
    worker = await make(performs=True)
    await until(lambda: is_now(worker, run_id, "stopped"))
    assert not effects.begun


async def test_attempts_waiting_for_a_place_are_handed_back_at_a_stop(make: Make, eye: Connection) -> None:
    a = await make(performs=True, concurrency=1, lease_seconds=600.0, heartbeat_seconds=5.0, shutdown_seconds=0.1)
    first = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    second = (await start(a, GATED)).run_id
    await some_turns(a)
    await a.stop()
    effects.gate.set()
    b = await make(performs=True)
    for run_id, lost in ((first, 1), (second, 0)):
        await until(lambda run_id=run_id: is_now(b, run_id, "finished"))
        events = await log_of(eye, run_id)
        assert sum(isinstance(event, e.StepRetried) and event.lost for event in events) == lost


async def test_a_process_that_failed_to_renew_takes_a_new_id_and_drops_old_work(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    first = hands(runtime).id
    await eye.execute("UPDATE workers SET alive_until = '-infinity'")
    await until(lambda: hands(runtime).id not in (None, first))
    await until(lambda: len(effects.begun) == 2)
    assert [attempt for _, _, attempt in effects.begun] == [1, 2]
    effects.gate.set()
    await until(lambda: is_now(runtime, run_id, "finished"))


async def test_a_dead_workers_run_claimed_by_a_lost_answer_is_declared_lost(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await make(performs=True, lease_seconds=600.0, heartbeat_seconds=100.0)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    real, lost = leases.claim_runs, asyncio.Event()

    async def lose_the_answer(*given: Any, **more: Any) -> list[Claimed]:
        claimed = await real(*given, **more)
        if claimed and not lost.is_set():
            lost.set()
            raise CommitUnknown("the connection broke")
        return claimed

    monkeypatch.setattr(leases, "claim_runs", lose_the_answer)
    await eye.execute("UPDATE workers SET alive_until = '-infinity'")  # a is alive, and thinks so for long
    b = await make(performs=True)
    await until(lambda: len(effects.begun) == 2)
    assert lost.is_set()
    assert [attempt for _, _, attempt in effects.begun] == [1, 2]
    effects.gate.set()
    await until(lambda: is_now(b, run_id, "finished"))
    events = await log_of(eye, run_id)
    assert sum(isinstance(event, e.StepRetried) and event.lost for event in events) == 1


BESIDE_GATED = f"""{TOOLS}steps:
  - parallel:
      gated: [{{id: wait, call: fx.gated}}]
      approved: [{{id: pay, call: fx.echo, with: {{value: 1}}, approval: {{from: anyone}}, delivery: at_most_once}}]
"""


@pytest.mark.parametrize("dies", [True, False])
async def test_a_call_approved_in_another_process_is_made_once_without_doubt(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    a = await make(performs=True, lease_seconds=600.0, heartbeat_seconds=100.0)
    run_id = (await start(a, BESIDE_GATED)).run_id
    await until(lambda: effects.begun)
    if dies:  # unnoticed: it hears of nothing, and its lease runs on
        monkeypatch.setattr(a.committer, "refresh", lambda run_id: None)
        monkeypatch.setattr(a.committer, "report", lambda *_: None)
    b = await make(performs=True)
    approve = c.PendingAnswer(id=await open_pending(b, run_id), decision="approve")
    await b.committer.submit(run_id, LOCAL_TENANT, c.Answer(answers=(approve,), by=c.Principal("user:eve")))
    effects.gate.set()
    if dies:
        await eye.execute("UPDATE workers SET alive_until = '-infinity' WHERE id = $1", hands(a).id)
    await until(lambda: is_now(b, run_id, "finished"))
    events = await log_of(eye, run_id)
    assert [each.kind for each in events if isinstance(each, e.PendingOpened)] == ["gate"]
    assert [each.attempt for each in events if isinstance(each, e.AttemptStarted) and each.path.endswith("pay")] == [1]


ONCE_GATED = (
    TOOLS + "steps:\n  - {id: pay, call: fx.note, with: {n: 1}, approval: {from: anyone}, delivery: at_most_once}\n"
)


async def test_a_claim_between_a_decision_and_its_commit_leaves_no_doubt(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claimant dies. Whoever comes behind it takes open attempts for begun."""
    a = await make(performs=True)
    run_id = (await start(a, ONCE_GATED)).run_id
    approve = c.PendingAnswer(id=await open_pending(a, run_id), decision="approve")
    committed = commits.commit

    async def claimed_before(connection: Any, entries: Sequence[Any], *more: Any) -> Any:
        if any(entry.run_id == run_id for entry in entries):
            monkeypatch.setattr(commits, "commit", committed)
            claim = """
            WITH dead AS (
              INSERT INTO workers (name, alive_until) VALUES ('dead', now() + interval '1 hour') RETURNING id
            )
            UPDATE runs SET worker = dead.id, wake_at = NULL, fence = fence + 1 FROM dead WHERE runs.id = $1
            """
            await eye.execute(claim, run_id)
        return await committed(connection, entries, *more)

    monkeypatch.setattr(commits, "commit", claimed_before)
    await a.committer.submit(run_id, LOCAL_TENANT, c.Answer(answers=(approve,), by=c.Principal("user:eve")))
    assert (await state_of(a, run_id)).ready == ("pay",), "it is left to the holder"
    await eye.execute("UPDATE workers SET alive_until = '-infinity' WHERE name = 'dead'")
    await until(lambda: is_now(a, run_id, "finished"))
    opened = [each.kind for each in await log_of(eye, run_id) if isinstance(each, e.PendingOpened)]
    assert opened == ["gate"], "nobody is asked whether it happened"


async def test_streaming_under_a_timer_does_not_pile_up_wakes(make: Make) -> None:
    runtime = await make(performs=True, chunk_flush_seconds=0.0)
    body = TOOLS + "steps:\n  - {id: s, call: fx.text, with: {words: 60}, stream: text, timeout: 1h}\n"
    run_id = (await start(runtime, body)).run_id
    most = 0
    while not await is_now(runtime, run_id, "finished"):
        most = max(most, len(hands(runtime)._wakes._heap))
    assert most <= 1


async def test_more_attempts_than_slots_wait_and_all_are_performed_once(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True, concurrency=2)
    run_ids = [(await start(runtime, GATED)).run_id for _ in range(8)]
    await until(lambda: len(effects.begun) == 2)
    effects.gate.set()
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
    assert set(Counter(effects.begun).values()) == {1}


async def test_text_in_one_piece_of_a_megabyte_becomes_chunks_of_bounded_size(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, TOOLS + "steps:\n  - {id: s, call: fx.flood, stream: text}\n")).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    pieces = [event.content for event in await log_of(eye, run_id) if isinstance(event, e.MessageChunk)]
    assert "".join(pieces) == "x" * 200_000
    assert max(map(len, pieces)) <= 16 * 1024


async def test_a_tools_yields_become_a_calls_argument_in_bounded_chunks(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    page = "{frontend: {description: P, parameters: {type: object, properties: {doc: {type: string}}}, answer: none}}"
    tools = TOOLS.rstrip("\n") + f"\n  page: {page}\n"
    body = tools + "steps:\n  - {id: s, call: fx.flood, stream: {to: page, argument: doc}}\n"
    run_id = (await start(runtime, body)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    events = await log_of(eye, run_id)
    pieces = [event.content for event in events if isinstance(event, e.ToolCallArgsChunk)]
    assert json.loads("".join(pieces)) == {"doc": "x" * 200_000}
    assert max(map(len, pieces)) <= 16 * 1024
    assert not any(isinstance(event, e.MessageStarted) for event in events)


async def test_where_a_tool_raised_is_in_the_log_and_in_the_runs_own(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    body = TOOLS + "steps:\n  - {id: s, call: fx.breaks, retry: {max: 0}}\n"
    with capture_logs() as logged:
        run_id = (await start(runtime, body)).run_id
        await until(lambda: is_now(runtime, run_id, "failed"))
    assert [(entry["event"], entry["log_level"]) for entry in logged if entry.get("path") == "s"] == [
        ("tool_raised", "warning")
    ]
    events = await log_of(eye, run_id)
    traces = [event for event in events if isinstance(event, e.WarningRaised)]
    assert [(event.code, event.path) for event in traces] == [("tool.trace", "s")]
    assert "effects.py" in traces[0].message
    assert 'raise ValueError("the till is locked")' in traces[0].message
    assert "hai_flow/runtime" not in traces[0].message


async def test_a_tool_with_a_personal_argument_logs_only_the_class_it_raised(make: Make) -> None:
    runtime = await make(performs=True)
    body = (
        "state: {who: {type: string, default: Erika, pii: true}}\n"
        + TOOLS
        + """steps:
  - {id: s, call: fx.breaks, retry: {max: 0}, idempotency_key: "${{ state.who }}"}
"""
    )
    with capture_logs() as logged:
        run_id = (await start(runtime, body)).run_id
        await until(lambda: is_now(runtime, run_id, "failed"))
    (entry,) = [entry for entry in logged if entry.get("path") == "s"]
    assert (entry["event"], entry["error"]) == ("tool_raised", "ValueError")
    assert "effects.py" in entry["at"][-1]
    assert "exc_info" not in entry
    assert "till" not in str(entry)
