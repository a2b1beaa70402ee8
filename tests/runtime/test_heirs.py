"""Stop, then begin: a run takes the place of the active one, which leaves it its slots and its work; or it does not
begin, and the one that was stopped takes both back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import AsksPerson, Rejected, StepError
from hai_flow.runtime.runs import moments
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.steps.a2a import peer
from hai_flow.steps.a2a.runner import A2ARunner
from hai_flow.store.commit.entries import Branch
from hai_flow.store.messaging import concurrency_slots
from hai_flow.store.runs import run_lists
from tests.runtime.conftest import TOOLS, Connection, Make, answer, is_now, open_pending, start, state_of
from tests.support.waiting import until

ONE = "concurrency: {key: '${{ input.customer }}', limit: 1}\n"
BODY = (
    "input: {type: object, properties: {customer: {type: string, default: c1}}}\n"
    + TOOLS
    + """
steps:
  - {id: a, call: fx.echo, with: {value: a}, undo: {call: fx.echo, with: {value: undone}}}
  - {id: b, call: fx.echo, with: {value: b}, undo: {call: fx.echo, with: {value: undone}}}
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""
)
NOBODY = c.Answer(answers=(), by=c.LOCAL_PRINCIPAL)


@dataclass
class Attempt:
    """A fork of the run `of` in front of one of its steps."""

    of: UUID
    fork: c.Fork
    plan: Plan
    stop: c.Stop
    branch: Branch


async def waiting(runtime: Runtime, body: str = BODY, **given: Any) -> UUID:
    run_id = (await start(runtime, body, **given)).run_id
    await until(lambda: is_now(runtime, run_id, "waiting"))
    return run_id


async def attempt(runtime: Runtime, run_id: UUID, step: str, fork_id: UUID | None = None) -> Attempt:
    marks = await runtime.moments.marks(LOCAL_TENANT, run_id, ())
    (seq,) = [mark.seq for mark in marks if mark.step == step]
    there, now = await state_of(runtime, run_id, seq), await state_of(runtime, run_id)
    fork, plan = await runtime.branches.fork(fork_id or uuid4(), LOCAL_TENANT, there, now, NOBODY)
    row = await run_lists.get_run(runtime.database.api, LOCAL_TENANT, run_id)
    assert row is not None
    stop = c.Stop(by="user:op", inherited=await runtime.branches.list_work_left(row, there))
    return Attempt(run_id, fork, plan, stop, Branch(run_id, None, seq))


async def succeed(runtime: Runtime, wanted: Attempt, leaving: UUID | None = None) -> Any:
    row = await run_lists.get_run(runtime.database.api, LOCAL_TENANT, leaving or wanted.of)
    assert row is not None
    ids = {"stop_id": f"stop:{wanted.fork.run_id}", "command_id": f"fork:{wanted.fork.run_id}", "body_sha": b"x" * 32}
    return await runtime.branches.succeed(row, wanted.stop, wanted.plan, wanted.fork, branch=wanted.branch, **ids)


async def stopped_for(runtime: Runtime, wanted: Attempt) -> None:
    """As by a process that is killed between the stop and the birth."""
    heir = e.Heir(str(wanted.fork.run_id), key=True)
    stop = c.Stop(by="user:op", inherited=wanted.stop.inherited, heir=heir)
    await runtime.committer.submit(wanted.of, LOCAL_TENANT, stop)
    await until(lambda: is_now(runtime, wanted.of, "stopped"))


async def held(eye: Connection) -> dict[str, tuple[UUID, bool]]:
    """The slots, each with its run, and whether it is only promised."""
    rows = await eye.fetch("SELECT slot, run_id, promised_until IS NOT NULL AS promised FROM slots")
    return {row["slot"]: (row["run_id"], row["promised"]) for row in rows}


async def steps_of(runtime: Runtime, run_id: UUID) -> dict[str, str]:
    state = await state_of(runtime, run_id)
    return {path: step.status for path, step in state.steps.items() if path in ("a", "b")}


async def overdue(eye: Connection) -> None:
    await eye.execute("UPDATE slots SET promised_until = now() - interval '1 s' WHERE promised_until IS NOT NULL")


async def test_the_run_that_ends_leaves_its_slots_to_the_fork_in_the_same_commit(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = await waiting(runtime, ONE + BODY)
    wanted = await attempt(runtime, run_id, "b")
    await stopped_for(runtime, wanted)
    assert {(run, promised) for run, promised in (await held(eye)).values()} == {(wanted.fork.run_id, True)}
    assert len(await held(eye)) == 2, "of the thread and of the concurrency key"
    with pytest.raises(Rejected) as busy:
        await start(runtime, ONE + BODY, thread=str(run_id))
    assert busy.value.code == "thread_busy"
    queued = await start(runtime, ONE + BODY)
    assert queued.status == "queued", "what is left to the fork is not free for those who wait"
    await runtime.starts.start(LOCAL_TENANT, wanted.plan, wanted.fork, branch=wanted.branch)
    await until(lambda: is_now(runtime, wanted.fork.run_id, "waiting"))
    theirs = [promised for run, promised in (await held(eye)).values() if run == wanted.fork.run_id]
    assert theirs == [False, False]
    assert await steps_of(runtime, run_id) == {"a": "finished", "b": "undone"}
    await runtime.committer.submit(
        wanted.fork.run_id, LOCAL_TENANT, answer(await open_pending(runtime, wanted.fork.run_id))
    )
    await until(lambda: is_now(runtime, queued.run_id, "waiting"))


async def test_a_run_whose_fork_is_never_born_undoes_what_it_had_left_to_it(make: Make, eye: Connection) -> None:
    """The process was killed behind the stop, and nobody sends the request again."""
    runtime = await make(performs=True)
    run_id = await waiting(runtime, ONE + BODY)
    wanted = await attempt(runtime, run_id, "sure")
    await stopped_for(runtime, wanted)
    assert await steps_of(runtime, run_id) == {"a": "finished", "b": "finished"}
    await runtime.slots.sweep()
    assert await steps_of(runtime, run_id) == {"a": "finished", "b": "finished"}, "the fork has a minute"
    queued = (await start(runtime, ONE + BODY)).run_id
    await overdue(eye)
    await runtime.slots.sweep()
    await until(lambda: is_now(runtime, run_id, "stopped"))
    assert await steps_of(runtime, run_id) == {"a": "undone", "b": "undone"}
    await until(lambda: is_now(runtime, queued, "waiting"))
    assert {run for run, _ in (await held(eye)).values()} == {queued}, "its slots are free"
    await runtime.committer.submit(queued, LOCAL_TENANT, answer(await open_pending(runtime, queued)))
    await until(lambda: is_now(runtime, queued, "finished"))
    with pytest.raises(Rejected) as late:
        await succeed(runtime, wanted)
    assert late.value.code == "fork_overtaken"
    assert await run_lists.get_run(runtime.database.api, LOCAL_TENANT, wanted.fork.run_id) is None


async def test_a_process_that_dies_while_a_run_takes_work_back_is_no_end_of_it(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = await waiting(runtime)
    wanted = await attempt(runtime, run_id, "sure")
    await stopped_for(runtime, wanted)
    assert await concurrency_slots.seize(runtime.database.api, LOCAL_TENANT, run_id)  # and then it dies
    with pytest.raises(Rejected):
        await runtime.starts.start(LOCAL_TENANT, wanted.plan, wanted.fork, branch=wanted.branch)
    assert await steps_of(runtime, run_id) == {"a": "finished", "b": "finished"}
    await overdue(eye)
    await runtime.slots.sweep()
    await until(lambda: is_now(runtime, run_id, "stopped"))
    assert await steps_of(runtime, run_id) == {"a": "undone", "b": "undone"}
    await until(lambda: _is_empty(eye))


async def _is_empty(eye: Connection) -> bool:
    return not await held(eye)


async def test_a_fork_refused_after_the_stop_leaves_everything_undone(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    run_id = await waiting(runtime)
    wanted = await attempt(runtime, run_id, "sure")

    async def refuse(*given: Any, **more: Any) -> None:
        raise Rejected(409, "too_late", "this was not so a moment ago.")

    monkeypatch.setattr(runtime.starts, "start", refuse)
    with pytest.raises(Rejected, match="not so a moment ago"):
        await succeed(runtime, wanted)
    await until(lambda: is_now(runtime, run_id, "stopped"))
    await until(lambda: _is_empty(eye))
    assert await steps_of(runtime, run_id) == {"a": "undone", "b": "undone"}


async def test_the_same_fork_again_goes_on_where_its_process_died(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = await waiting(runtime, ONE + BODY)
    wanted = await attempt(runtime, run_id, "sure")
    heir = e.Heir(str(wanted.fork.run_id), key=True)
    row = await run_lists.get_run(runtime.database.api, LOCAL_TENANT, run_id)
    assert row is not None
    stop = c.Stop(by="user:op", inherited=wanted.stop.inherited, heir=heir)
    await runtime.committer.submit(run_id, LOCAL_TENANT, stop)  # and then it dies
    await succeed(runtime, wanted)
    await until(lambda: is_now(runtime, wanted.fork.run_id, "waiting"))
    assert await steps_of(runtime, run_id) == {"a": "finished", "b": "finished"}


@pytest.mark.parametrize("again", range(4))
async def test_birth_and_taking_back_at_once_have_one_winner(make: Make, eye: Connection, again: int) -> None:
    runtime, other = await make(performs=True), await make()
    run_id = await waiting(runtime)
    wanted = await attempt(runtime, run_id, "sure")
    await stopped_for(runtime, wanted)

    async def born() -> bool:
        await asyncio.sleep(again * 0.002)
        try:
            await runtime.starts.start(LOCAL_TENANT, wanted.plan, wanted.fork, branch=wanted.branch)
        except Rejected:
            return False
        return True

    is_born, _ = await asyncio.gather(born(), other.slots.take_back(LOCAL_TENANT, run_id))
    await until(lambda: is_now(runtime, run_id, "stopped"))
    state = "finished" if is_born else "undone"
    await until(lambda: _steps_are(runtime, run_id, state))
    assert (await run_lists.get_run(runtime.database.api, LOCAL_TENANT, wanted.fork.run_id) is not None) == is_born


async def _steps_are(runtime: Runtime, run_id: UUID, status: str) -> bool:
    return set((await steps_of(runtime, run_id)).values()) == {status}


@pytest.mark.parametrize(("first", "second"), [("b", "sure"), ("sure", "b")])
async def test_of_two_forks_at_two_moments_one_wins_and_everything_has_an_owner(
    make: Make, first: str, second: str
) -> None:
    runtime, other = await make(performs=True), await make()
    run_id = await waiting(runtime)
    wanted = [await attempt(runtime, run_id, first), await attempt(other, run_id, second)]
    outcomes = await asyncio.gather(succeed(runtime, wanted[0]), succeed(other, wanted[1]), return_exceptions=True)
    (lost,) = [each for each in outcomes if isinstance(each, Rejected)]
    assert lost.code == "fork_overtaken"
    (won,) = [each for each, outcome in zip(wanted, outcomes, strict=True) if not isinstance(outcome, Rejected)]
    await until(lambda: is_now(runtime, won.fork.run_id, "waiting"))
    mine = "undone" if won.branch.copied < wanted[[first, second].index("sure")].branch.copied else "finished"
    assert await steps_of(runtime, run_id) == {"a": "finished", "b": mine}


async def test_a_second_fork_of_a_run_leaves_what_it_shares_with_the_first_one(make: Make) -> None:
    """The first fork has the work of the run; stopped for the second, it undoes only what that one does not have."""
    runtime = await make(performs=True)
    run_id = await waiting(runtime)
    first = await attempt(runtime, run_id, "sure")
    await succeed(runtime, first)
    await until(lambda: is_now(runtime, first.fork.run_id, "waiting"))
    marks = await runtime.moments.marks(LOCAL_TENANT, run_id, ())
    (seq,) = [mark.seq for mark in marks if mark.step == "b"]
    there, now = await state_of(runtime, run_id, seq), await state_of(runtime, run_id)
    fork, plan = await runtime.branches.fork(uuid4(), LOCAL_TENANT, there, now, NOBODY)
    row = await run_lists.get_run(runtime.database.api, LOCAL_TENANT, first.fork.run_id)
    assert row is not None
    inherited = await runtime.branches.list_work_left(row, there)
    second = Attempt(run_id, fork, plan, c.Stop(by="user:op", inherited=inherited), Branch(run_id, None, seq))
    await succeed(runtime, second, leaving=first.fork.run_id)
    await until(lambda: is_now(runtime, fork.run_id, "waiting"))
    assert await steps_of(runtime, first.fork.run_id) == {"a": "finished", "b": "undone"}
    assert await steps_of(runtime, fork.run_id) == {"a": "finished", "b": "finished"}


async def test_a_fork_takes_nothing_over_that_another_fork_of_the_run_has_undone(make: Make) -> None:
    runtime = await make(performs=True)
    run_id = await waiting(runtime)
    first = await attempt(runtime, run_id, "sure")
    await succeed(runtime, first)
    await until(lambda: is_now(runtime, first.fork.run_id, "waiting"))
    await runtime.committer.submit(first.fork.run_id, LOCAL_TENANT, c.Stop(by="user:op"))
    await until(lambda: is_now(runtime, first.fork.run_id, "stopped"))
    assert await steps_of(runtime, first.fork.run_id) == {"a": "undone", "b": "undone"}
    second = await attempt(runtime, run_id, "sure")
    with pytest.raises(Rejected) as refused:
        await runtime.starts.start(LOCAL_TENANT, second.plan, second.fork, branch=second.branch)
    assert refused.value.code == "fork_undone"


AGENT = """
tools: {painter: {a2a: "https://agent.example/painter"}}
steps:
  - {id: job, call: painter, with: {text: paint}}
"""
ASKS = AsksPerson("Which colour?", peer.ANSWER_FORM, state='{"task": "t1", "question": "q1", "pending": null}')


@pytest.mark.parametrize("forks", [True, False])
async def test_a_task_with_which_a_fork_goes_on_is_not_cancelled(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    is_back, left = asyncio.Event(), list[str | None]()

    async def perform(self: A2ARunner, attempt: object, stream: object) -> None:
        raise ASKS

    async def leave(self: A2ARunner, attempt: object, inquiry: str | None) -> None:
        if not is_back.is_set():
            raise StepError("the agent is away", code="http.connection")
        left.append(inquiry)

    monkeypatch.setattr(A2ARunner, "perform", perform)
    monkeypatch.setattr(A2ARunner, "leave", leave)
    runtime = await make(performs=True)
    run_id = await waiting(runtime, AGENT)
    marks = await runtime.moments.marks(LOCAL_TENANT, run_id, ())
    seq = next(mark.seq for mark in marks if mark.step is None)
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Stop(by="user:op"))
    await until(lambda: is_now(runtime, run_id, "stopped"))
    if forks:
        there, now = await state_of(runtime, run_id, seq), await state_of(runtime, run_id)
        fork, plan = await runtime.branches.fork(uuid4(), LOCAL_TENANT, there, now, NOBODY)
        await runtime.starts.start(LOCAL_TENANT, plan, fork, branch=Branch(run_id, None, seq))
        await until(lambda: is_now(runtime, fork.run_id, "waiting"))
    is_back.set()

    async def is_delivered() -> bool:
        await eye.execute("UPDATE outbox SET due_at = now()")
        return not await eye.fetchval("SELECT count(*) FROM outbox WHERE run_id = $1", run_id)

    await until(is_delivered)
    assert left == ([] if forks else [ASKS.state])


async def test_a_log_too_long_for_a_fork_says_up_to_where_it_can_be_forked(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    run_id = await waiting(runtime)
    whole = await runtime.moments.marks(LOCAL_TENANT, run_id, ())
    assert [mark.step for mark in whole] == ["a", "b", "sure", None]
    sizes = [len(e.encode_events(events)) async for _, events in runtime.moments.commits(run_id)]
    monkeypatch.setattr(moments, "BYTES_MAX", sum(sizes[:-1]) - 1)
    *marks, last = await runtime.moments.marks(LOCAL_TENANT, run_id, ())
    assert marks == whole[: len(marks)], "those within the bound are as they were"
    assert 0 < len(marks) < len(whole)
    assert last.step is None
    assert marks[-1].seq < last.seq <= whole[-1].seq
    assert last.obstacle is not None
    assert last.obstacle.code == "fork_too_long"
    with pytest.raises(Rejected, match="expected a log of at most"):
        await runtime.moments.moment(run_id, whole[-1].seq)
    assert await runtime.moments.end_of_step(run_id, "sure") == whole[2].seq + 1, "nobody copies what is only read"
