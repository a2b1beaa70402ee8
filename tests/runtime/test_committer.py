"""Commands in, commits out: who wins, what a refusal is based on, and what the database may do meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state import snapshot
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.snapshot import encode_state
from hai_flow.errors import Rejected, StoreError
from hai_flow.runtime.commit import cached_run, decider, loader
from hai_flow.runtime.commit.submission import Chunk, Outcome
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import BatchResult, CommandRow, Entry
from hai_flow.store.messaging import concurrency_slots
from hai_flow.store.postgres.error_classes import CommitUnknown
from hai_flow.store.runs import leases, logs
from tests.runtime.conftest import (
    ASKING,
    ECHO,
    GATED,
    LISTENING,
    TEXT,
    Connection,
    Make,
    answer,
    impatient_callers,
    is_now,
    note,
    open_pending,
    start,
    state_of,
    status_of,
)
from tests.support import effects
from tests.support.ledger import check_all, log_of
from tests.support.values import require
from tests.support.waiting import until

STRANGER = UUID(int=7)


async def submit(runtime: Runtime, run_id: UUID, command: c.Command, **more: Any) -> Outcome:
    return await runtime.committer.submit(run_id, LOCAL_TENANT, command, **more)


async def outcome_of(runtime: Runtime, run_id: UUID, command: c.Command, **more: Any) -> Outcome | Rejected:
    try:
        return await submit(runtime, run_id, command, **more)
    except Rejected as rejected:
        return rejected


# --- one wins -----------------------------------------------------------------------------------------------------


async def test_of_two_processes_answering_at_once_one_wins_the_other_hears_it(make: Make, eye: Connection) -> None:
    a, b = await make(), await make()
    for _ in range(10):
        run_id = (await start(a, ASKING)).run_id
        pending = await open_pending(a, run_id)
        got = await asyncio.gather(
            outcome_of(a, run_id, answer(pending, True)), outcome_of(b, run_id, answer(pending, False))
        )
        won = [each for each in got if isinstance(each, Outcome)]
        lost = [each for each in got if isinstance(each, Rejected)]
        assert (len(won), len(lost)) == (1, 1)
        assert lost[0].status == 409
        events = await log_of(eye, run_id)
        assert sum(isinstance(event, e.PendingDecided) for event in events) == 1
    await check_all(eye)


async def test_one_answer_in_two_processes_at_once_is_accepted_once(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    pending = await open_pending(a, run_id)
    got = await asyncio.gather(*(submit(each, run_id, answer(pending)) for each in (a, b)))
    assert sorted(each.value["answers"][0]["status"] for each in got) == ["accepted", "already"]


async def test_commands_for_one_run_from_three_processes_make_one_gapless_log(make: Make, eye: Connection) -> None:
    processes = [await make() for _ in range(3)]
    run_id = (await start(processes[0], LISTENING)).run_id
    signals = [note(str(number), number) for number in range(60)]
    await asyncio.gather(*(submit(processes[n % 3], run_id, signal) for n, signal in enumerate(signals)))
    events = await log_of(eye, run_id)
    got = [event.id for event in events if isinstance(event, e.SignalReceived)]
    assert sorted(got, key=int) == [str(number) for number in range(60)]


async def test_who_lost_three_times_takes_the_run_alone_and_wins(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, LISTENING)).run_id
    real, robbed = commits.commit, 0

    async def late(connection: Any, entries: Any, worker_id: Any, at: Any) -> BatchResult:
        """B moves the run right before A's commit: as long as A does not lock it."""
        nonlocal robbed
        if robbed < 10 and not connection.is_in_transaction() and asyncio.current_task() in a.committer._tasks:
            robbed += 1
            await submit(b, run_id, note(f"b{robbed}"))
        return await real(connection, entries, worker_id, at)

    monkeypatch.setattr(commits, "commit", late)
    outcome = await submit(a, run_id, note("a"))
    assert robbed == 3
    events = await log_of(eye, run_id)
    assert [event.id for event in events if isinstance(event, e.SignalReceived)] == ["b1", "b2", "b3", "a"]
    assert outcome.seq == len(events)


# --- time ---------------------------------------------------------------------------------------------------------

STAGES = f"""
steps:
  - id: all
    for_each:
      items: {list(range(25))}
      max_parallel: 25
      steps:
        - id: gate
          approve:
            title: Go?
            from: anyone
            deadline: 1h
            on_deadline: [{"{escalate: {deadline: 1h}}, " * 4} {{escalate: {{deadline: 1d}}}}, {{reject: {{}}}}]
"""


@pytest.mark.costly
async def test_work_that_fell_due_unattended_is_committed_before_an_answer(make: Make, eye: Connection) -> None:
    a = await make()
    run_id = (await start(a, STAGES)).run_id
    (pending,) = [
        each.opened.id for each in (await state_of(a, run_id)).pendings.values() if each.opened.path == "all[7]/gate"
    ]
    now = time.monotonic()
    a.committer.clock.read(a.committer.now_ms() + 5 * 3_600_000 + 60_000, now, now)
    given = c.Answer(answers=(c.PendingAnswer(id=pending, decision="approve"),), by=c.Principal("user:ann"))
    outcome = await submit(a, run_id, given, command_id="once")
    assert outcome.value["answers"][0]["status"] == "accepted"
    assert (await submit(a, run_id, given, command_id="once")).already
    events = await log_of(eye, run_id)
    assert sum(isinstance(event, e.PendingEscalated) for event in events) == 25 * 5
    longest = await eye.fetchval("SELECT max(last_seq - first_seq + 1) FROM log WHERE run_id = $1", run_id)
    assert longest <= 256


# --- what a run may grow to ---------------------------------------------------------------------------------------


async def test_a_run_with_a_full_log_ends_and_the_database_gives_the_limit(make: Make, eye: Connection) -> None:
    a = await make(run_bytes_max=64 * 1024)
    run_id = (await start(a, LISTENING)).run_id
    b = await make(run_bytes_max=64 * 1024)  # it has to ask how long the log is
    for n in range(40):
        with contextlib.suppress(Rejected):  # it has ended
            await submit(b, run_id, note(f"n{n}", "x" * 3_000))
    state = await state_of(b, run_id)
    assert (state.status, state.error and state.error.code) == ("failed", "limit.log")
    assert await eye.fetchval("SELECT log_bytes FROM runs WHERE id = $1", run_id) in range(64 * 1024, 80 * 1024)
    assert [event.code for event in await log_of(eye, run_id) if isinstance(event, e.WarningRaised)] == ["limit.near"]


async def test_what_an_attempt_streams_without_end_ends_its_run(make: Make, eye: Connection) -> None:
    worker = await make(performs=True, run_events_max=100, chunk_flush_seconds=0.0)
    run_id = (await start(worker, TEXT.replace("words: 20", "words: 100000"))).run_id
    await until(lambda: is_now(worker, run_id, "failed"))
    state = await state_of(worker, run_id)
    assert state.error is not None
    assert state.error.code == "limit.log"
    await until(lambda: worker.worker is not None and not worker.worker.held)


# --- refusals -----------------------------------------------------------------------------------------------------


async def test_a_refusal_is_based_on_what_others_have_committed(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    pending = await open_pending(a, run_id)
    assert a.committer.peek(run_id) is not None, "A knows the run, waiting"
    await submit(b, run_id, answer(pending))
    assert await status_of(b, run_id) == "finished"
    with pytest.raises(Rejected) as refused:
        await submit(a, run_id, c.Pause(by="user:local"))
    assert refused.value.code == "run_ended"


async def test_a_question_that_another_process_opened_is_answerable_here(make: Make) -> None:
    a, b = await make(), await make(performs=True)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    await submit(b, run_id, c.Pause(by="user:local"))
    again = await submit(a, run_id, c.Pause(by="user:local"))
    assert again.already
    effects.gate.set()
    resumed = await submit(a, run_id, c.Resume(by="user:local"))
    assert not resumed.already
    await until(lambda: is_now(a, run_id, "finished"))


async def test_another_tenant_is_told_that_there_is_no_such_run(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, ASKING)).run_id
    for process in (a, b):
        with pytest.raises(Rejected) as refused:
            await process.committer.submit(run_id, STRANGER, c.Pause(by="user:stranger"))
        assert (refused.value.status, refused.value.code) == (404, "run_unknown")
    assert await status_of(a, run_id) == "waiting"
    assert (await submit(b, run_id, c.Pause(by="user:local"))).status == "paused"


async def test_a_run_that_does_not_exist_is_404_and_may_start_later(make: Make) -> None:
    runtime = await make()
    run_id = uuid4()
    refused, started = await asyncio.gather(
        outcome_of(runtime, run_id, c.Pause(by="user:local")), start(runtime, ASKING, run_id=run_id)
    )
    assert isinstance(refused, Rejected)
    assert refused.status == 404
    assert started.status == "waiting"
    assert runtime.committer.peek(uuid4()) is None


async def test_a_second_run_of_a_busy_thread_is_refused_and_so_is_a_retry(make: Make) -> None:
    runtime = await make()
    failing = "steps:\n  - fail: no\n"
    failed = await start(runtime, failing, thread="t")
    assert failed.status == "failed"
    active = await start(runtime, ASKING, thread="t")
    with pytest.raises(Rejected) as refused:
        await start(runtime, ASKING, thread="t")
    assert refused.value.code == "thread_busy"
    with pytest.raises(Rejected) as refused:
        await asyncio.wait_for(submit(runtime, failed.run_id, c.Retry(by="user:local")), 10)
    assert refused.value.code == "thread_busy"
    await submit(runtime, active.run_id, c.Terminate(by="user:local"))
    assert (await submit(runtime, failed.run_id, c.Retry(by="user:local"))).status == "failed"


# --- command ids --------------------------------------------------------------------------------------------------


async def test_a_command_id_has_one_outcome_everywhere_and_another_body_is_409(make: Make) -> None:
    a, b = await make(), await make()
    run_id = uuid4()
    first = await start(a, LISTENING, run_id=run_id, command_id="s", body_sha=b"1")
    again = await start(b, LISTENING, run_id=run_id, command_id="s", body_sha=b"1")
    assert (again.value, again.seq, again.already) == (first.value, first.seq, True)
    with pytest.raises(Rejected) as refused:
        await start(b, LISTENING, run_id=run_id, command_id="s", body_sha=b"2")
    assert refused.value.code == "command_id_reused"
    signal = note("x")
    got = await asyncio.gather(*(submit(each, run_id, signal, command_id="c", body_sha=b"b") for each in (a, b, a, b)))
    assert sum(not each.already for each in got) == 1
    assert len({each.seq for each in got}) == 1


async def test_one_start_in_four_processes_is_one_run(make: Make, eye: Connection) -> None:
    processes = [await make() for _ in range(4)]
    run_id = uuid4()
    got = await asyncio.gather(
        *(start(each, ASKING, run_id=run_id, command_id="s", body_sha=b"1") for each in processes)
    )
    assert sum(not each.already for each in got) == 1
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_command_id_that_comes_twice_in_one_entry_gets_the_first_outcome(make: Make, elsewhere: bool) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, LISTENING)).run_id
    asked = b if elsewhere else a
    terminate = c.Terminate(by="user:local")
    first, again, other = await asyncio.gather(
        *(outcome_of(asked, run_id, terminate, command_id="t", body_sha=body) for body in (b"1", b"1", b"2"))
    )
    assert isinstance(first, Outcome)
    assert isinstance(again, Outcome)
    assert (again.value, again.seq, again.status, again.already) == (first.value, first.seq, "stopped", True)
    assert isinstance(other, Rejected)
    assert other.code == "command_id_reused"


async def test_an_id_used_before_the_load_gets_its_first_outcome_in_any_entry(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, LISTENING)).run_id
    first = await submit(a, run_id, note("a"), command_id="n", body_sha=b"1")
    await submit(b, run_id, note("b"))  # now B knows the run as it is, and no id
    _, again, other = await asyncio.gather(
        submit(b, run_id, note("c")),
        submit(b, run_id, note("a"), command_id="n", body_sha=b"1"),
        outcome_of(b, run_id, note("a"), command_id="n", body_sha=b"2"),
    )
    assert (again.value, again.seq, again.already) == (first.value, first.seq, True)
    assert isinstance(other, Rejected)
    assert other.code == "command_id_reused"


async def test_an_id_used_by_an_entry_after_its_look_up_gets_that_outcome(make: Make) -> None:
    a, b = await make(), await make()
    run_id = (await start(a, LISTENING)).run_id
    b.committer._decider.limits = Bounds(events=1)  # one command an entry
    terminate = c.Terminate(by="user:local")
    asked = (outcome_of(b, run_id, terminate, command_id="t", body_sha=body) for body in (b"1", b"1", b"2"))
    first, again, other = await asyncio.gather(*asked)
    assert isinstance(first, Outcome)
    assert isinstance(again, Outcome)
    assert (again.seq, again.already) == (first.seq, True)
    assert isinstance(other, Rejected)
    assert other.code == "command_id_reused"


async def test_a_start_that_would_be_refused_gets_what_its_id_got_before(make: Make) -> None:
    a, b = await make(), await make()
    run_id = uuid4()
    fine = await start(a, ECHO, run_id=run_id, input={"value": "v"}, command_id="s", body_sha=b"1")
    again = await start(b, ECHO, run_id=run_id, input={"value": 1}, command_id="s", body_sha=b"1")
    assert (again.seq, again.already) == (fine.seq, True)
    with pytest.raises(Rejected) as refused:
        await start(b, ECHO, run_id=run_id, input={"value": 1}, command_id="s", body_sha=b"2")
    assert refused.value.code == "command_id_reused"
    with pytest.raises(Rejected) as refused:
        await start(b, ECHO, input={"value": 1}, command_id="s", body_sha=b"2")
    assert refused.value.status == 422


async def test_an_id_is_looked_up_only_where_a_refusal_needs_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING, command_id="s")).run_id
    real, looked_up = logs.load_runs, []

    async def counted(connection: Any, run_ids: Any, *given: Any) -> Any:
        looked_up.append((run_ids, given[-1]))
        return await real(connection, run_ids, *given)

    monkeypatch.setattr(logs, "load_runs", counted)
    await asyncio.gather(*(submit(runtime, run_id, note(f"n{n}"), command_id=f"c{n}") for n in range(20)))
    assert looked_up == []
    assert (await submit(runtime, run_id, c.Resume(by="user:local"), command_id="r")).already
    assert looked_up == [([run_id], {"r"})]


# --- what the database refuses ------------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, marker: str) -> None:
    """Entries whose events hold `marker` get a command row that no database takes: a NUL in a text."""
    real = commits.commit

    async def spoilt(connection: Any, entries: Any, worker_id: Any, at: Any) -> BatchResult:
        bad = CommandRow("nul\x00", b"", b"")
        entries = [
            Entry(**{n: getattr(x, n) for n in x.__struct_fields__} | {"commands": [bad]})
            if marker.encode() in x.events and b"step_finished" in x.events
            else x
            for x in entries
        ]
        return await real(connection, entries, worker_id, at)

    monkeypatch.setattr(commits, "commit", spoilt)


async def test_a_result_that_the_database_refuses_needs_attention_alone(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, "poison")
    runtime = await make(performs=True)
    values = ["poison" if number == 5 else f"fine {number}" for number in range(12)]
    outcomes = await asyncio.gather(*(start(runtime, ECHO, input={"value": value}) for value in values))
    for value, outcome in zip(values, outcomes, strict=True):
        expected = "needs_attention" if value == "poison" else "finished"
        await until(lambda run_id=outcome.run_id, status=expected: is_now(runtime, run_id, status))
    events = await log_of(eye, outcomes[5].run_id)
    reasons = [event.reason for event in events if isinstance(event, e.RunNeedsAttention)]
    assert reasons == ["what the run would store can't be stored"]
    monkeypatch.undo()
    await submit(runtime, outcomes[5].run_id, c.Retry(by="user:local"))
    await until(lambda: is_now(runtime, outcomes[5].run_id, "finished"))
    await check_all(eye)


async def test_a_run_that_the_database_refuses_is_alone_in_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make()
    bad, *others = [(await start(runtime, LISTENING)).run_id for _ in range(9)]
    real = commits.commit

    async def refused(connection: Any, entries: Any, *rest: Any) -> BatchResult:
        if any(entry.run_id == bad for entry in entries):
            raise asyncpg.DataError("a value that no column takes")
        return await real(connection, entries, *rest)

    monkeypatch.setattr(commits, "commit", refused)
    asked = (submit(runtime, run_id, note("s")) for run_id in (*others[:4], bad, *others[4:]))
    got = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(got.pop(4), StoreError)
    assert all(isinstance(each, Outcome) for each in got)


async def test_nothing_is_published_before_its_commit_has_returned(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    real, happened = commits.commit, []

    async def watched(*given: Any) -> BatchResult:
        done = await real(*given)
        await asyncio.sleep(0)
        happened.append("committed")
        return done

    monkeypatch.setattr(commits, "commit", watched)
    published = [lambda run, first, events: happened.append("published")]
    monkeypatch.setattr(runtime.committer.listeners, "committed", published)
    await submit(runtime, run_id, note("s"))
    assert happened == ["committed", "published"]


@pytest.mark.parametrize("ahead_ms", [0, 60_000])
async def test_chunks_that_others_wrote_in_between_are_folded_before_a_decision(
    make: Make, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    a, b = await make(performs=True), await make()
    clock = a.committer.clock.at
    monkeypatch.setattr(a.committer.clock, "at", lambda moment: clock(moment) + ahead_ms)
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    assert (await submit(b, run_id, c.Resume(by="user:local"))).already  # B knows the run as it is
    ours, theirs = a.committer.peek(run_id), b.committer.peek(run_id)
    assert ours is not None
    assert theirs is not None
    a.committer.stream(ours, [Chunk("msg_1", "wait", 1, 0, "said meanwhile")])
    await a.committer.wait_committed([ours])
    await submit(b, run_id, c.Pause(by="user:local"))
    await b.committer.wait_committed([theirs])
    assert "msg_1" in theirs.state.messages
    assert theirs.state == await state_of(a, run_id)


async def test_after_a_commit_of_unknown_outcome_the_fence_rises_before_the_load(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    real, happened = commits.commit, []

    async def cut_off(connection: Any, entries: Any, *rest: Any) -> BatchResult:
        if not happened:
            happened.append("cut off")
            raise CommitUnknown("the connection broke")
        return await real(connection, entries, *rest)

    monkeypatch.setattr(commits, "commit", cut_off)
    for module, name in ((leases, "refence_runs"), (logs, "load_runs")):
        statement = getattr(module, name)

        async def noted(*given: Any, name: str = name, statement: Any = statement) -> Any:
            happened.append(name)
            return await statement(*given)

        monkeypatch.setattr(module, name, noted)
    await submit(runtime, run_id, c.Pause(by="user:local"))
    assert happened[:3] == ["cut off", "refence_runs", "load_runs"]


async def test_a_late_decision_of_the_holder_behind_the_load_loses(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    real, load, late, landed = commits.commit, logs.load_runs, [], []

    async def cut_off(connection: Any, *given: Any) -> BatchResult:
        if not late:
            late.append(given)
            raise CommitUnknown("the connection broke")
        return await real(connection, *given)

    async def load_before_it_lands(*given: Any) -> Any:
        loaded = await load(*given)
        if not landed:
            async with runtime.database.lane() as other:
                landed.append((await real(other, *late[0])).won)
        return loaded

    monkeypatch.setattr(commits, "commit", cut_off)
    monkeypatch.setattr(logs, "load_runs", load_before_it_lands)
    await submit(runtime, run_id, c.Pause(by="user:local"))
    assert landed == [{}]


async def test_a_command_that_the_database_refuses_fails_for_its_sender_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    real = decider.Decider._row

    def refused(self: Any, entry: Any) -> Entry:
        if any(getattr(each.command, "id", "") == "bad" for each in entry.submissions):
            raise ValueError("no such thing can be stored")
        return real(self, entry)

    monkeypatch.setattr(decider.Decider, "_row", refused)
    got = await asyncio.gather(
        *(submit(runtime, run_id, note(name)) for name in ("one", "bad", "two")), return_exceptions=True
    )
    assert str(got[1]) == f"the command of run {run_id} could not be carried out: ValueError"
    assert isinstance(got[1], StoreError)
    assert isinstance(got[0], Outcome)
    assert isinstance(got[2], Outcome)


async def test_a_fault_in_one_decision_does_not_stop_the_lane(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    real = decider.decide

    def faulty(plan: Any, state: Any, command: c.Command, *rest: Any) -> Any:
        assert not isinstance(command, c.Pause), "a bug of ours"
        return real(plan, state, command, *rest)

    monkeypatch.setattr(decider, "decide", faulty)
    with pytest.raises(StoreError):
        await submit(runtime, run_id, c.Pause(by="user:local"))
    assert (await submit(runtime, run_id, note("s"))).seq
    monkeypatch.setattr(runtime.committer.listeners, "changed", [lambda run: 1 / 0])
    monkeypatch.setattr(runtime.committer.listeners, "committed", [lambda run, first, events: 1 / 0])
    assert (await submit(runtime, run_id, note("t"))).seq


async def test_a_run_whose_log_cannot_be_read_is_an_error_for_it_alone(make: Make, eye: Connection) -> None:
    a, b = await make(), await make()
    broken, sound = [(await start(a, LISTENING)).run_id for _ in range(2)]
    await eye.execute("UPDATE log SET events = '[1]' WHERE run_id = $1", broken)
    got = await asyncio.gather(*(submit(b, run_id, note("s")) for run_id in (broken, sound)), return_exceptions=True)
    assert isinstance(got[0], StoreError)
    assert isinstance(got[1], Outcome)


@pytest.mark.parametrize(
    "fault",
    [asyncpg.CharacterNotInRepertoireError, asyncpg.InternalServerError, asyncpg.LockNotAvailableError, ValueError],
)
@pytest.mark.costly
async def test_a_run_whose_load_fails_keeps_no_other_from_being_loaded(
    make: Make, monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    a, b = await make(), await make()
    bad, *others = [(await start(a, LISTENING)).run_id for _ in range(24)]
    real, broken, loads = logs.load_runs, True, 0

    async def load(connection: Any, run_ids: Any, *rest: Any) -> Any:
        nonlocal loads
        loads += 1
        if broken and bad in run_ids:
            raise fault("the load of the bad run")
        return await real(connection, run_ids, *rest)

    monkeypatch.setattr(logs, "load_runs", load)
    for number in range(3):
        asked = asyncio.create_task(outcome_of(b, bad, note(f"bad {number}")))
        async with asyncio.timeout(30):
            await asyncio.gather(*(submit(b, run_id, note(str(number))) for run_id in others))
        if fault in (asyncpg.CharacterNotInRepertoireError, ValueError):
            with pytest.raises(StoreError):
                await asked
        else:  # it may pass, so who asked for it waits
            assert not asked.done()
    assert loads < 100
    broken = False
    assert (await submit(b, bad, note("good"))).seq


async def test_ids_come_with_a_batch_of_loads_and_its_slots_by_one_statement(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    failed = [(await start(a, "steps:\n  - fail: no\n", thread=f"t{n}")).run_id for n in range(20)]
    busy = (await start(a, ASKING, thread="t0")).run_id
    statements: list[str] = []
    for module, name in ((concurrency_slots, "slot_holders"), (logs, "load_runs")):
        real = getattr(module, name)

        async def counted(*given: Any, name: str = name, real: Any = real) -> Any:
            statements.append(name)
            return await real(*given)

        monkeypatch.setattr(module, name, counted)
    retry = c.Retry(by="user:local")
    got = await asyncio.gather(*(outcome_of(b, run_id, retry, command_id="r") for run_id in failed))
    assert isinstance(got[0], Rejected)
    assert got[0].code == "thread_busy"
    assert all(isinstance(each, Outcome) for each in got[1:])
    assert sorted(statements) == ["load_runs", "slot_holders"]
    assert await status_of(a, busy) == "waiting"


@pytest.mark.parametrize("happened", [True, False])
async def test_after_a_commit_of_unknown_outcome_the_answer_is_the_first_outcome(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    real, cut = commits.commit, 0

    async def cut_off(connection: Any, entries: Any, worker_id: Any, at: Any) -> BatchResult:
        nonlocal cut
        cut += 1
        if cut > 1:
            return await real(connection, entries, worker_id, at)
        if happened:
            await real(connection, entries, worker_id, at)
        raise CommitUnknown("the connection broke")

    monkeypatch.setattr(commits, "commit", cut_off)
    outcome = await submit(runtime, run_id, note("s"), command_id="c", body_sha=b"b")
    assert outcome.already == happened
    events = await log_of(eye, run_id)
    assert sum(isinstance(event, e.SignalReceived) for event in events) == 1


async def test_a_birth_of_unknown_outcome_is_held_and_performed(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    real, cut = commits.commit, 0

    async def cut_off(connection: Any, entries: Any, worker_id: Any, at: Any) -> BatchResult:
        nonlocal cut
        cut += 1
        done = await real(connection, entries, worker_id, at)
        if cut == 1:
            raise CommitUnknown("the connection broke")
        return done

    monkeypatch.setattr(commits, "commit", cut_off)
    run_id = (await start(runtime, ECHO, input={"value": "v"})).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert not any(isinstance(event, e.StepRetried) for event in await log_of(eye, run_id))


# --- chunks, snapshots, the cache ---------------------------------------------------------------------------------


async def test_chunks_of_a_holder_that_was_fenced_off_are_dropped(make: Make, eye: Connection) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, GATED)).run_id
    await until(lambda: effects.begun)
    hot = require(a.committer.peek(run_id))
    await submit(b, run_id, c.Terminate(by="user:local"))
    hot._owned = True  # as in a process that was stopped and has not been told yet
    a.committer.stream(hot, [Chunk("msg_late", "wait", 1, 0, "late")])
    await a.committer.wait_committed([hot])
    assert not any(isinstance(event, e.MessageChunk) for event in await log_of(eye, run_id))


@pytest.mark.costly
async def test_snapshots_change_nothing_and_deleting_them_changes_nothing(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "SNAPSHOT_BYTES_MIN", 0)
    a = await make(performs=True)
    run_ids = [(await start(a, TEXT)).run_id for _ in range(3)]
    run_ids.append((await start(a, LISTENING)).run_id)
    for number in range(20):
        await submit(a, run_ids[-1], note(str(number), "x" * 500))
    for run_id in run_ids[:-1]:
        await until(lambda run_id=run_id: is_now(a, run_id, "finished"))
    await until(lambda: eye.fetchval("SELECT count(*) FROM snapshots"))
    seqs = [await eye.fetchval("SELECT seq FROM runs WHERE id = $1", run_id) for run_id in run_ids]
    with_them = [[await state_of(a, r, k) for k in range(seq + 1)] for r, seq in zip(run_ids, seqs, strict=True)]
    await eye.execute("DELETE FROM snapshots")
    without = [[await state_of(a, r, k) for k in range(seq + 1)] for r, seq in zip(run_ids, seqs, strict=True)]
    for run_id, ours, theirs in zip(run_ids, with_them, without, strict=True):
        folded = await check_prefixes(eye, run_id)
        assert ours == theirs == folded


async def check_prefixes(eye: Connection, run_id: UUID) -> list[Any]:
    """The fold of the first k events for every k."""
    from hai_flow.engine.evolve.evolve import evolve
    from hai_flow.engine.state.state import RunState

    states = [RunState(str(run_id))]
    for event in await log_of(eye, run_id):
        states.append(evolve(states[-1], event))
    return states


async def test_a_cold_load_equals_the_hot_state(make: Make) -> None:
    a, b = await make(performs=True), await make()
    run_id = (await start(a, LISTENING)).run_id
    await submit(a, run_id, note("1"))
    hot = a.committer.peek(run_id)
    b.committer.refresh(run_id)
    cold = b.committer.peek(run_id)
    assert hot is not None
    assert cold is not None
    await b.committer.wait_committed([cold])
    assert (cold.state, cold.version, cold.tenant) == (hot.state, hot.version, hot.tenant)


async def test_a_run_weighs_as_much_as_its_state_however_long_it_lives(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "SNAPSHOT_BYTES_MIN", 2_000)
    a, b = await make(), await make()
    run_id = (await start(a, LISTENING)).run_id
    weights = []
    for number in range(60):
        await submit((a, b)[number // 20 % 2], run_id, note(str(number), "x" * 500))
        for process in (a, b):
            hots = list(process.committer.cache)
            assert process.committer.cache.bytes == sum(hot.bytes for hot in hots)
            weights += [
                (hot.bytes, cached_run.STATE_OVERHEAD_BYTES + hot.snapshot_bytes + hot.log_bytes) for hot in hots
            ]
    assert all(counted == kept for counted, kept in weights)
    assert max(counted for counted, _ in weights) < 60 * 500


@pytest.mark.costly
async def test_the_cache_is_bounded_and_what_was_evicted_is_found_again(make: Make) -> None:
    runtime = await make(cache_bytes_max=64 * 1024)
    run_ids = [(await start(runtime, ASKING)).run_id for _ in range(40)]
    known = [run_id for run_id in run_ids if runtime.committer.peek(run_id) is not None]
    assert 0 < len(known) < 20
    assert runtime.committer.cache.bytes <= 64 * 1024
    outcome = await submit(runtime, run_ids[0], answer(await open_pending(runtime, run_ids[0])))
    assert outcome.status == "finished"
    for run_id in run_ids[1:]:
        await submit(runtime, run_id, c.Terminate(by="user:local"))
    assert runtime.committer.cache.bytes == sum(hot.bytes for hot in runtime.committer.cache) == 0


@pytest.mark.costly
async def test_the_cache_counts_the_size_of_a_state_and_not_of_its_log(make: Make) -> None:
    a, b, other = await make(), await make(cache_bytes_max=400 * 1024), await make()
    run_id = (await start(a, LISTENING)).run_id
    for number in range(60):
        await asyncio.gather(*(submit(b, run_id, note(f"{number}/{n}", "x" * 1000)) for n in range(10)))
    hot = require(b.committer.peek(run_id))
    assert sum([len(e.encode_events([event])) for event in (await log_of_run(a, run_id))]) > 600_000
    size = len(encode_state(hot.state))
    assert size < hot.bytes < 2 * size + 2 * loader.SNAPSHOT_BYTES_MIN
    others = [(await start(b, ASKING)).run_id for _ in range(5)]
    assert all(b.committer.peek(each) is not None for each in (run_id, *others)), "nobody was evicted for it"
    await until(lambda: a.database.api.fetchval("SELECT count(*) FROM snapshots WHERE run_id = $1", run_id))
    other.committer.refresh(run_id)
    cold = require(other.committer.peek(run_id))
    await other.committer.wait_committed([cold])
    assert size < cold.bytes < 2 * size + 2 * loader.SNAPSHOT_BYTES_MIN


async def log_of_run(runtime: Runtime, run_id: UUID) -> list[e.Event]:
    return await log_of(runtime.database.api, run_id)


async def test_a_long_log_is_loaded_in_pieces_by_itself_and_leaves_a_snapshot(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    long, short = [(await start(a, LISTENING)).run_id for _ in range(2)]
    for number in range(40):
        await submit(a, long, note(str(number), "x" * 2000))
    await until(lambda: eye.fetchval("SELECT count(*) FROM snapshots"))
    await eye.execute("UPDATE snapshots SET abi = 0")  # as if another release had written them
    monkeypatch.setattr(loader, "LOAD_ROWS_MAX", 7)
    monkeypatch.setattr(loader, "FOLDED_AT_ONCE", 10)
    real, read, answered = logs.read_log, [], asyncio.Event()

    async def counted(connection: Any, run_id: UUID, *rest: Any) -> Any:
        rows = await real(connection, run_id, *rest)
        read.append(len(rows))
        await answered.wait()  # would last for ever if the short one waited for the long one
        return rows

    monkeypatch.setattr(logs, "read_log", counted)
    first = asyncio.create_task(submit(b, long, note("s")))
    await submit(b, short, note("s"))
    answered.set()
    await first
    assert len(read) >= 5
    assert max(read) == 7
    a_hot, b_hot = a.committer.peek(long), b.committer.peek(long)
    assert a_hot is not None
    assert b_hot is not None
    a.committer.refresh(long)
    await a.committer.wait_committed([a_hot])
    assert a_hot.state == b_hot.state
    assert b_hot.state.seq == await eye.fetchval("SELECT seq FROM runs WHERE id = $1", long)
    await eye.execute("UPDATE snapshots SET abi = 0")
    other = await make()
    other.committer.refresh(long)
    await until(lambda: eye.fetchval("SELECT seq FROM snapshots WHERE abi = $1", snapshot.ABI))


def counting_waits(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The commits that waited for a row in vain, from now on."""
    real, waited = commits.commit, []

    async def noted(connection: Any, entries: Any, *rest: Any) -> Any:
        try:
            return await real(connection, entries, *rest)
        except asyncpg.LockNotAvailableError as error:
            waited.append(error)
            raise

    monkeypatch.setattr(commits, "commit", noted)
    return waited


async def test_a_run_whose_row_is_locked_makes_its_batch_wait_once(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    locked, *others = [(await start(runtime, LISTENING)).run_id for _ in range(16)]
    waited = counting_waits(monkeypatch)
    alone, lock_run = [], logs.lock_run

    def taken_alone(connection: Any, run_id: UUID, *rest: Any) -> Any:
        alone.append(run_id)
        return lock_run(connection, run_id, *rest)

    monkeypatch.setattr(logs, "lock_run", taken_alone)
    async with eye.transaction():
        await eye.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", locked)
        asked = asyncio.create_task(submit(runtime, locked, note("s")))
        await asyncio.gather(*(submit(runtime, run_id, note("s")) for run_id in others))
        assert len(waited) == 1
        await asyncio.gather(*(submit(runtime, run_id, note("t")) for run_id in others))
        await until(lambda: len(alone) == 2)
        assert len(waited) == 1, "who is known to be locked waits alone"
        assert not asked.done()
    assert (await asked).seq
    assert set(alone) == {locked}


async def test_who_asks_a_run_whose_row_stays_locked_is_told_so(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make()
    run_id = (await start(runtime, LISTENING)).run_id
    waited = counting_waits(monkeypatch)
    async with eye.transaction():
        await eye.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", run_id)
        with impatient_callers(), pytest.raises(StoreError, match="has not answered for a while"):
            await asyncio.wait_for(submit(runtime, run_id, note("s")), 40)
        await until(lambda: waited)
    assert len(waited) == 1, "its lane has others to serve"
    assert (await submit(runtime, run_id, note("t"))).seq


async def test_work_queued_behind_a_slow_commit_is_dropped_after_its_refusal(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(lanes=1)
    run_ids = [(await start(runtime, LISTENING)).run_id for _ in range(2)]
    real, answers = commits.commit, asyncio.Event()

    async def slow(*given: Any) -> Any:
        await answers.wait()
        return await real(*given)

    monkeypatch.setattr(commits, "commit", slow)
    sent = asyncio.create_task(submit(runtime, run_ids[0], note("under way")))
    await until(lambda: runtime.committer.queues.lanes[0].hand)
    for told in (sent, submit(runtime, run_ids[1], note("behind"))):
        with impatient_callers(), pytest.raises(StoreError, match="the outcome is unknown: send it again"):
            await asyncio.wait_for(told, 40)
    answers.set()
    for run_id in run_ids:
        await submit(runtime, run_id, note("again"))
    logs_of = [await log_of(eye, run_id) for run_id in run_ids]
    heard = [[each.id for each in log if isinstance(each, e.SignalReceived)] for log in logs_of]
    assert heard == [["under way", "again"], ["again"]]


@pytest.mark.costly
async def test_many_locked_rows_take_one_connection_of_those_that_others_need(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(lanes=1)
    locked = [(await start(runtime, LISTENING)).run_id for _ in range(12)]
    at_once, most, lock_run = 0, 0, logs.lock_run

    @contextlib.asynccontextmanager
    async def counted(*given: Any) -> AsyncIterator[Any]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            async with lock_run(*given) as loaded:
                yield loaded
        finally:
            at_once -= 1

    monkeypatch.setattr(logs, "lock_run", counted)
    async with eye.transaction():
        await eye.execute("SELECT FROM runs WHERE id = ANY ($1) FOR UPDATE", locked)
        asked = [asyncio.create_task(submit(runtime, run_id, note("s"))) for run_id in locked]
        await until(lambda: at_once)
        assert (await submit(runtime, (await start(runtime, LISTENING)).run_id, note("t"))).seq
        assert not any(each.done() for each in asked)
    await asyncio.gather(*asked)
    assert most == 1
