"""What a process does whose database does not answer: over one line, over all of them, or only with refusals.

Real sockets and the real PostgreSQL, with a proxy between that loses what is sent. Leases and deadlines are short; how
long something takes fails no test, unless it never ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.state import RunState
from hai_flow.errors import StoreError
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.worker.heartbeat import HeartbeatLoop
from hai_flow.store.postgres.database import Deadlines
from tests.runtime.conftest import (
    ASKING,
    GATED,
    LISTENING,
    TOOLS,
    Connection,
    Make,
    hands,
    impatient_callers,
    is_now,
    note,
    start,
    state_of,
)
from tests.runtime.test_fanout import seqs_from
from tests.support import effects
from tests.support.ledger import check_all, log_of
from tests.support.postgres import connecting
from tests.support.proxy import Proxy
from tests.support.values import require
from tests.support.waiting import until

QUICK = Deadlines(connect_seconds=3.0, acquire_seconds=1.5, statement_seconds=1.5, probe_seconds=0.3, close_seconds=1.0)
ECHOING = TOOLS + "steps:\n  - {id: one, call: fx.echo, with: {value: 1}}\n"  # writes nothing anywhere itself
NOTING = TOOLS + "steps:\n  - {id: one, call: fx.note, with: {n: 1}}\n  - {id: two, call: fx.note, with: {n: 2}}\n"


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    async with Proxy(database_url) as proxy:
        yield proxy


def heart_of(runtime: Runtime) -> HeartbeatLoop:
    return require(hands(runtime)._heart)


async def published(runtime: Runtime, body: str) -> Plan:
    _, plan = await runtime.catalog.publish(LOCAL_TENANT, f"hai: flow/v1\nname: silence\nversion: 1\n{body}".encode())
    return plan


async def begin(runtime: Runtime, plan: Plan) -> UUID:
    """Start a run of a version that is in use, and ask the database nothing else."""
    run_id = uuid4()
    command = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, command, command_id="start", resolved=True)
    return run_id


async def all_finished(eye: Connection, count: int) -> bool:
    """What the database says, whatever the processes know."""
    return await eye.fetchval("SELECT count(*) FROM runs WHERE status = 'finished'") == count


def silence(proxy: Proxy, *directions: Any) -> None:
    """Every line that a process has now, but its heartbeat's."""
    for line in proxy.lines("hai-flow"):
        line.swallow(*directions)


# --- one line ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [("to server",), ("to client",)], ids=" ".join)
async def test_commits_continue_on_a_new_connection_without_loss_or_repeat(
    proxy: Proxy, make: Make, eye: Connection, lost: tuple[str]
) -> None:
    runtime = await make(performs=True, dsn=proxy.dsn, deadlines=QUICK, lease_seconds=30.0, heartbeat_seconds=1.0)
    first = hands(runtime).id
    plan = await published(runtime, NOTING)
    await begin(runtime, plan)
    for _ in range(4):
        await start(runtime, GATED)
    await until(lambda: len(effects.begun) == 4)
    silence(proxy, *lost)
    effects.gate.set()
    await asyncio.wait_for(asyncio.gather(*(begin(runtime, plan) for _ in range(20))), 60)
    await until(lambda: all_finished(eye, 25), 60)
    assert set(Counter(effects.begun).values()) == {1}
    await check_all(eye)
    assert hands(runtime).id == first, "the lease went on, for the process worked again well before its end"


async def test_who_asks_over_a_line_that_goes_silent_is_told_before_it_is_cut(
    proxy: Proxy, make: Make, eye: Connection
) -> None:
    runtime = await make(dsn=proxy.dsn, deadlines=Deadlines(statement_seconds=600.0))
    run_id = (await start(runtime, LISTENING)).run_id
    silence(proxy, "to client")
    with impatient_callers(), pytest.raises(StoreError, match="the outcome is unknown: send it again"):
        await asyncio.wait_for(runtime.committer.submit(run_id, LOCAL_TENANT, note("late"), command_id="late"), 60)
    for line in proxy.lines("hai-flow"):
        line.cut(reset=True)
    outcome = await runtime.committer.submit(run_id, LOCAL_TENANT, note("late"), command_id="late")
    assert outcome.run_id == run_id
    heard = [each for each in await log_of(eye, run_id) if isinstance(each, e.SignalReceived)]
    assert len(heard) == 1
    await check_all(eye)


async def test_what_is_committed_while_the_answer_is_lost_happens_once(
    proxy: Proxy, make: Make, eye: Connection
) -> None:
    runtime = await make(performs=True, dsn=proxy.dsn, deadlines=QUICK)
    plan = await published(runtime, NOTING)
    await begin(runtime, plan)
    for line in proxy.lines("hai-flow"):
        line.cut_at("to client")
    await asyncio.gather(*(begin(runtime, plan) for _ in range(10)))
    await until(lambda: all_finished(eye, 11), 60)
    assert await eye.fetchval("SELECT count(*) = count(DISTINCT (run_id, path, attempt)) FROM effects")
    await check_all(eye)


async def test_a_result_committed_after_a_lost_lease_has_its_whole_text(
    proxy: Proxy, make: Make, eye: Connection
) -> None:
    a = await make(performs=True, dsn=proxy.dsn, deadlines=QUICK)
    first = hands(a).id
    hesitating = TOOLS + "steps:\n  - {id: say, call: fx.hesitant, stream: text}\noutput: ${{ steps.say.output }}\n"
    run_id = (await start(a, hesitating)).run_id
    await until(lambda: effects.begun)
    proxy.silent = True
    cut_lines(proxy)
    effects.gate.set()
    await until(lambda: hands(a).id is None)
    assert not require(a.committer.peek(run_id)).owned
    proxy.silent = False
    await proxy_heals(proxy)
    await until(lambda: all_finished(eye, 1), 60)
    await until(lambda: hands(a).id not in (None, first))
    state = fold(RunState(str(run_id)), events := await log_of(eye, run_id))
    (finished,) = [each for each in events if isinstance(each, e.StepFinished)]
    assert [each.content for each in state.messages.values() if not each.aborted] == [finished.output]
    assert [attempt for _, _, attempt in effects.begun] == [1]
    await check_all(eye)


async def test_a_process_unable_to_commit_loses_its_lease_despite_heartbeats(
    proxy: Proxy, make: Make, eye: Connection
) -> None:
    a = await make(performs=True, dsn=proxy.dsn, deadlines=QUICK)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    await until(lambda: proxy.lines("hai-flow heartbeat"))  # this one stays as it is
    first = hands(a).id
    proxy.silent = True
    silence(proxy)
    a.committer.refresh(run_id)  # something to do, which it can't
    b = await make(performs=True)
    await until(lambda: len(effects.begun) == 2)
    assert [attempt for _, _, attempt in effects.begun] == [1, 2]
    effects.gate.set()
    await until(lambda: is_now(b, run_id, "finished"))
    proxy.silent = False
    await until(lambda: hands(a).id not in (None, first))
    assert len(effects.begun) == 2
    await check_all(eye)


async def test_who_can_load_but_not_commit_loses_its_lease_and_claims_nothing(
    proxy: Proxy, make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.commit.committer.ANSWER_SECONDS", 600.0)
    a = await make(performs=True, dsn=proxy.dsn, deadlines=QUICK)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    proxy.fatal = b"INSERT INTO log"
    cut_lines(proxy)
    pausing = asyncio.create_task(a.committer.submit(run_id, LOCAL_TENANT, c.Pause(by="user:local")))
    b = await make(performs=True)
    await until(lambda: len(effects.begun) == 2)
    assert [attempt for _, _, attempt in effects.begun] == [1, 2]
    await until(lambda: hands(a).id is None)
    assert not hands(a)._works
    proxy.fatal = None
    await proxy_heals(proxy)
    await asyncio.wait_for(pausing, 30)
    await until(lambda: hands(a).id)
    await b.committer.submit(run_id, LOCAL_TENANT, c.Resume(by="user:local"))
    effects.gate.set()
    await until(lambda: is_now(b, run_id, "finished"))
    await check_all(eye)


async def test_who_asks_for_what_can_never_be_committed_is_told_so(proxy: Proxy, make: Make) -> None:
    runtime = await make(dsn=proxy.dsn, deadlines=QUICK)
    run_id = (await start(runtime, LISTENING)).run_id
    proxy.fatal = b"INSERT INTO log"
    cut_lines(proxy)
    with impatient_callers(), pytest.raises(StoreError, match="has not answered for a while"):
        await asyncio.wait_for(runtime.committer.submit(run_id, LOCAL_TENANT, note("lost")), 30)
    await until(lambda: not runtime.committer.queues.queued)
    assert not any(lane.busy for lane in runtime.committer.queues.lanes), "nothing waits, so nothing is stuck"
    proxy.fatal = None
    await proxy_heals(proxy)


def cut_lines(proxy: Proxy) -> None:
    """New lines for everybody but the heart, which prepare their statements anew."""
    for line in proxy.lines("hai-flow"):
        line.cut()


async def test_a_process_whose_commits_get_no_answer_claims_nothing_more(proxy: Proxy, make: Make) -> None:
    slow = Deadlines(statement_seconds=3600.0)
    runtime = await make(performs=True, dsn=proxy.dsn, deadlines=slow, lease_seconds=600.0, heartbeat_seconds=0.5)
    asking = (await start(runtime, ASKING)).run_id
    proxy.silent = True
    silence(proxy)
    runtime.committer.refresh(asking)
    await until(lambda: not hands(runtime)._works)
    assert await asyncio.wait_for(hands(runtime).claim(10, ["default"]), 20) == []
    assert runtime.faults() == []  # not for so short a while
    await proxy_heals(proxy)


async def proxy_heals(proxy: Proxy) -> None:
    """What was swallowed is cut, so that everybody may go on."""
    proxy.silent = False
    for line in proxy.lines():
        line.cut()


# --- all of them ------------------------------------------------------------------------------------------------------


async def test_another_process_takes_over_from_a_silent_one_without_repeats(
    proxy: Proxy, make: Make, eye: Connection
) -> None:
    a = await make(performs=True, dsn=proxy.dsn, deadlines=QUICK)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    first = hands(a).id
    proxy.swallow()
    b = await make(performs=True)
    await until(lambda: len(effects.begun) == 2)
    await until(lambda: hands(a).id is None)
    proxy.silent = False
    await until(lambda: hands(a).id not in (None, first))
    effects.gate.set()
    await until(lambda: is_now(b, run_id, "finished"))
    await until(lambda: is_now(a, run_id, "finished"))
    assert [attempt for _, _, attempt in effects.begun] == [1, 2]
    await check_all(eye)


async def test_a_stop_ends_though_nobody_answers(proxy: Proxy, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hai_flow.runtime.commit.committer.STOP_SECONDS", 0.5)
    monkeypatch.setattr("hai_flow.runtime.worker.worker.HAND_BACK_SECONDS", 0.5)
    patient = Deadlines(statement_seconds=3600.0, close_seconds=1.0)  # nothing ends by its deadline here
    runtime = await make(performs=True, dsn=proxy.dsn, deadlines=patient)
    run_id = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    proxy.swallow()
    asking = asyncio.create_task(runtime.committer.submit(run_id, LOCAL_TENANT, c.Pause(by="user:local")))
    reading = asyncio.create_task(state_of(runtime, run_id))
    await asyncio.sleep(0)
    await asyncio.wait_for(runtime.stop(), 30)
    for outcome in await asyncio.wait_for(asyncio.gather(asking, reading, return_exceptions=True), 10):
        assert isinstance(outcome, Exception)
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}


async def test_who_asks_a_database_that_is_away_is_told_so(proxy: Proxy, make: Make, eye: Connection) -> None:
    runtime = await make(dsn=proxy.dsn, deadlines=QUICK)
    run_id = (await start(runtime, LISTENING)).run_id
    proxy.swallow()
    with impatient_callers(), pytest.raises(StoreError, match="has not answered for a while"):
        await asyncio.wait_for(runtime.committer.submit(run_id, LOCAL_TENANT, note("lost")), 30)
    with pytest.raises((StoreError, OSError)):
        await asyncio.wait_for(state_of(runtime, run_id), 30)
    await proxy_heals(proxy)
    outcome = await runtime.committer.submit(run_id, LOCAL_TENANT, note("heard"))
    assert outcome.value is not None
    await log_of(eye, run_id)


# --- hints ------------------------------------------------------------------------------------------------------------


async def test_followers_get_events_while_the_listener_is_deaf_and_recovering(proxy: Proxy, make: Make) -> None:
    a, b = await make(performs=True), await make(dsn=proxy.dsn, deadlines=QUICK)
    (line,) = await until(lambda: proxy.lines("hai-flow listen"))
    line.swallow()
    run_id = (await start(a, GATED)).run_id
    follower = asyncio.create_task(seqs_from(b, run_id))
    effects.gate.set()
    await until(lambda: is_now(a, run_id, "finished"))
    last = (await state_of(a, run_id)).seq
    assert await asyncio.wait_for(follower, 20) == list(range(1, last + 1))
    await until(lambda: [each for each in proxy.lines("hai-flow listen") if each is not line])


# --- a session that refuses to write ----------------------------------------------------------------------------------


async def test_a_database_that_was_read_only_for_a_while_is_written_to_again(
    proxy: Proxy, make: Make, eye: Connection
) -> None:
    runtime = await make(performs=True, dsn=proxy.dsn, deadlines=QUICK, lease_seconds=30.0, heartbeat_seconds=0.5)
    plan = await published(runtime, ECHOING)
    await begin(runtime, plan)
    name = await eye.fetchval("SELECT quote_ident(current_database())")
    await eye.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    before = proxy.accepted
    for each in proxy.lines():
        each.cut()
    starting = asyncio.create_task(begin(runtime, plan))
    await until(lambda: proxy.accepted > before + 12)  # they came back, found themselves read-only, and gave up
    await eye.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await asyncio.wait_for(starting, 20)
    await until(lambda: all_finished(eye, 2))
    await check_all(eye)


# --- loops that end, or are stuck -------------------------------------------------------------------------------------


async def test_a_lane_that_fails_is_restarted_with_its_work_in_hand(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hai_flow.runtime.base.service.MENDED_SECONDS", 600.0)
    runtime = await make(performs=True, lanes=1, lease_seconds=30.0, heartbeat_seconds=1.0)
    run_id = (await start(runtime, LISTENING)).run_id
    real, failed = runtime.committer.clock.read, threading.Event()

    def fail_once(*given: Any) -> None:  # behind the commit, where nobody expects an error
        if not failed.is_set():
            failed.set()
            raise ZeroDivisionError("a fault of ours")
        real(*given)

    monkeypatch.setattr(runtime.committer.clock, "read", fail_once)
    notes = [runtime.committer.submit(run_id, LOCAL_TENANT, note(f"n{n}"), command_id=f"n{n}") for n in range(5)]
    await asyncio.wait_for(asyncio.gather(*notes), 20)
    assert failed.is_set()
    assert runtime.faults() == ["lane 0"], "and readiness says so for a while"
    heard = [event.signal_id for event in await log_of(eye, run_id) if hasattr(event, "signal_id")]
    assert len(heard) == len(set(heard))


async def test_every_loop_of_a_process_is_begun_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make(performs=True)
    kept = {task.get_name() for service in runtime._services for task in service._tasks}
    assert {
        "lane 0", "lane 1", "loads", "hints", "followed runs", "waited-for threads", "messages between runs", "signals",
        "clock", "timers of held runs", "claims", "tidying", "ticks of schedules", "ticks of slots", "ticks of tidy",
    } <= kept  # fmt: skip

    async def end() -> None:
        ended.append(True)
        if len(ended) < 3:
            raise ZeroDivisionError
        await asyncio.Event().wait()

    ended: list[bool] = []
    runtime.threads._keep(end, "a loop")
    await until(lambda: len(ended) == 3)
    assert runtime.faults() == ["a loop"]


async def test_a_loop_that_is_stuck_loses_its_lease(make: Make, database_url: str) -> None:
    runtime = await make(performs=True)
    await start(runtime, GATED)
    await until(lambda: effects.begun)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        over = thread.submit(asyncio.run, lease_is_over(database_url)).result()  # here the loop is stuck
    assert over, "the heart must not beat for a loop that does nothing"
    await until(lambda: len(effects.begun) == 2)
    assert [attempt for _, _, attempt in effects.begun] == [1, 2]


async def lease_is_over(dsn: str) -> bool:
    async with connecting(dsn) as connection:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if await connection.fetchval("SELECT alive_until < now() FROM workers"):
                return True
            await asyncio.sleep(0.05)
        return False


async def test_nothing_is_begun_in_the_last_heartbeat_of_a_lease(make: Make) -> None:
    runtime = await make(performs=True, lease_seconds=600.0, heartbeat_seconds=200.0)
    heart = heart_of(runtime)
    assert heart.safe
    heart._lease_until = time.monotonic() + 199  # it was not renewed: a heartbeat is missing
    run_id = (await start(runtime, GATED)).run_id
    assert require(runtime.committer.peek(run_id)).owned
    assert not heart.safe
    assert runtime.worker is not None
    assert not runtime.worker._held[run_id].attempts
    assert not effects.begun
