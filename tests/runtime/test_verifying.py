"""`verify` says nothing of runs that are right, and of each rule there is a run, changed by hand, that it refuses."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import pytest
from immutables import Map

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS
from hai_flow.engine.state.snapshot import ABI, encode_state
from hai_flow.engine.state.state import RunState, Timer
from hai_flow.runtime.ops.run_checks import RULES, RunCheck, Violation
from hai_flow.runtime.ops.verify import Plans, VerifiedRuns, Verifying, fold_and_check, verify
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.runs import run_bundle as evidence
from hai_flow.store.runs.run_bundle import Evidence, Kin
from tests.runtime.conftest import (
    ASKING,
    Connection,
    Make,
    answer,
    is_now,
    nothing_on_its_way,
    open_pending,
    start,
    state_of,
)
from tests.support.postgres import connecting
from tests.support.waiting import until

STRANGER = UUID(int=2)
ANN, BOB = c.Principal("user:ann"), c.Principal("user:bob")

# A run that has of everything: a text that streams, a gate with two votes, a time, a question, a file that is gone.
FULL = """\
tools:
  fx: {python: tests.support.effects, effect: write}
  pick: {frontend: {description: Pick one., parameters: {type: object}}}
steps:
  - {id: tell, call: fx.streamed, stream: text, with: {n: 1}}
  - {id: pay, call: fx.note, with: {n: 2}, approval: {from: anyone, quorum: 2}}
  - {id: nap, wait: {for: 1s}}
  - {id: chosen, call: pick}
  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}
"""


# --- runs that are right ----------------------------------------------------------------------------------------------


async def through_the_gate(runtime: Runtime) -> UUID:
    """A run of FULL that waits for its last question."""
    run_id = (await start(runtime, FULL)).run_id
    for by in (ANN, BOB):
        await until(lambda: is_now(runtime, run_id, "waiting"))
        vote = c.PendingAnswer(id=await open_pending(runtime, run_id), decision="approve")
        await runtime.committer.submit(run_id, LOCAL_TENANT, c.Answer(answers=(vote,), by=by))
    await until(lambda: asks(runtime, run_id, "chosen"))
    picked = c.PendingAnswer(id=await open_pending(runtime, run_id), result={"n": 1})
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Answer(answers=(picked,), by=c.LOCAL_PRINCIPAL))
    await until(lambda: asks(runtime, run_id, "sure"))
    return run_id


async def asks(runtime: Runtime, run_id: UUID, path: str) -> bool:
    state = await state_of(runtime, run_id)
    return path in state.open_pendings and state.status == "waiting"


async def family(runtime: Runtime, eye: Connection) -> tuple[UUID, UUID]:
    """A run that waits for its child, which asks somebody."""
    await runtime.catalog.publish(LOCAL_TENANT, ("hai: flow/v1\nname: below\nversion: 1\n" + ASKING).encode())
    above = (await start(runtime, "steps:\n  - {id: child, run: below}\n")).run_id
    query = "SELECT id FROM runs WHERE parent_id = $1"

    async def below() -> UUID | None:
        child = await eye.fetchval(query, above)
        return child if child is not None and await is_now(runtime, child, "waiting") else None

    child = await until(below)
    await until(lambda: is_now(runtime, above, "waiting"))
    assert child is not None
    return above, child


async def everything(database_url: str, **asked: Any) -> VerifiedRuns:
    async with connecting(database_url) as connection:
        return [VerifiedRuns(), *[each async for each in verify(connection, Verifying(**asked))]][-1]


@pytest.mark.costly
async def test_runs_that_wait_end_and_have_others_below_them_break_no_rule(
    make: Make, eye: Connection, database_url: str
) -> None:
    runtime = await make(performs=True)
    waiting = await through_the_gate(runtime)
    ended = await through_the_gate(runtime)
    await runtime.committer.submit(ended, LOCAL_TENANT, answer(await open_pending(runtime, ended)))
    await until(lambda: is_now(runtime, ended, "finished"))
    above, child = await family(runtime, eye)
    paused = (await start(runtime, ASKING)).run_id
    await runtime.committer.submit(paused, LOCAL_TENANT, c.Pause(by="user:op"))
    stopped = (await start(runtime, ASKING)).run_id
    await runtime.committer.submit(stopped, LOCAL_TENANT, c.Terminate(by="user:op"))
    before = await rows_of_all(eye)
    found = await everything(database_url)
    assert found.violations == []
    assert found.runs == 6
    unreached = RULES - {rule for rule, times in found.reached.items() if times}
    assert unreached <= {"log_audited", "snapshots_are_folds", "files_are_there", "calls_in_order"}, unreached
    assert await rows_of_all(eye) == before, "it changes nothing"
    one = await everything(database_url, run_id=child)
    assert (one.runs, one.violations) == (1, [])
    assert (await everything(database_url, tenant=STRANGER)).runs == 0
    assert {waiting, above} <= {each["id"] for each in await eye.fetch("SELECT id FROM runs")}


@pytest.mark.costly
async def test_runs_that_go_on_meanwhile_are_right_at_every_moment(
    make: Make, eye: Connection, database_url: str
) -> None:
    runtime = await make(performs=True)
    going = [asyncio.create_task(through_the_gate(runtime)) for _ in range(8)]
    rounds = 0
    while not all(each.done() for each in going) or not rounds:
        assert (await everything(database_url)).violations == []
        rounds += 1
    await asyncio.gather(*going)


async def rows_of_all(eye: Connection) -> str:
    tables = ("runs", "log", *evidence.TABLES)
    sums = [f"(SELECT coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM {name} t)" for name in tables]
    text: str = await eye.fetchval(f"SELECT concat_ws(' ', {', '.join(sums)})")
    return text


# --- runs that are wrong ----------------------------------------------------------------------------------------------


@dataclass
class Exhibit:
    """One run as it was read: change it, then `judge`."""

    evidence: Evidence
    log: list[dict[str, Any]]
    plan: Plan | None
    late: timedelta | None = None
    lost: frozenset[bytes] = frozenset()
    folded: Callable[[RunState], RunState] = lambda state: state

    @property
    def run(self) -> Any:
        return self.evidence.run

    def copied(self) -> Exhibit:
        return dataclasses.replace(self, evidence=copy.deepcopy(self.evidence), log=copy.deepcopy(self.log))

    def rows(self, table: str) -> list[Any]:
        return self.evidence.rows[table]  # type: ignore[return-value]

    def judge(self) -> list[Violation]:
        check = RunCheck(self.evidence, self.late, DEFAULT_BOUNDS)
        for row in self.log:
            commit = check.decode(row)
            if commit is None:
                break
            check.plan = self.plan
            if self.plan is None:
                check.report_missing_workflow(self.run["workflow"], "it is not in the database")
            check.feed(commit)
            if check.broken:
                break
        check.report_missing_files(set(self.lost))
        check.state = self.folded(check.state)
        return check.end()

    def edit(self, change: Callable[[list[Any]], Iterable[Any]]) -> None:
        """Change the events of the run, commit by commit, and make the row agree with its log again: a wrong chain
        is not the point."""
        head, seq = b"", 0
        for row in self.log:
            events = list(change(json.loads(row["events"])))
            row["events"] = json.dumps(events, separators=(",", ":")).encode()
            row["first_seq"], row["last_seq"] = seq + 1, seq + len(events)
            head, seq = sha256(head + row["events"]).digest(), seq + len(events)
        self.run.update(head=head, seq=seq, log_bytes=sum(len(row["events"]) for row in self.log))
        self.rows("commands").clear()

    def set(self, type: str, **fields: Any) -> None:
        """Change the fields of every event of the type."""
        self.edit(lambda events: [each | fields if each["type"] == type else each for each in events])

    def without(self, type: str, **having: Any) -> None:
        self.edit(lambda events: [each for each in events if not is_one(each, type, having)])

    def twice(self, type: str, **having: Any) -> None:
        def doubled(events: list[Any]) -> Iterable[Any]:
            for each in events:
                yield each
                if is_one(each, type, having):
                    yield each

        self.edit(doubled)

    def behind(self, type: str, event: dict[str, Any], **having: Any) -> None:
        """Another event behind each of the type."""

        def more(events: list[Any]) -> Iterable[Any]:
            for each in events:
                yield each
                if is_one(each, type, having):
                    yield {"at": each["at"], "turn": each.get("turn", 0)} | event

        self.edit(more)


def is_one(event: Any, type: str, having: dict[str, Any]) -> bool:
    return event["type"] == type and having.items() <= event.items()


async def exhibits(runtime: Runtime, eye: Connection) -> dict[str, Exhibit]:
    """Runs that break no rule, by names that say where they stand."""
    ended = await through_the_gate(runtime)
    await runtime.committer.submit(ended, LOCAL_TENANT, answer(await open_pending(runtime, ended)))
    await until(lambda: is_now(runtime, ended, "finished"))
    above, child = await family(runtime, eye)
    await until(lambda: nothing_on_its_way(eye))
    named = {"asking": await through_the_gate(runtime), "ended": ended, "above": above, "child": child}
    return {name: await exhibit(eye, run_id) for name, run_id in named.items()}


async def exhibit(eye: Connection, run_id: UUID) -> Exhibit:
    (found,) = await evidence.evidence_of(eye, [run_id])
    log = [dict(row) async for row in evidence.log_rows(eye, run_id)]
    plan = await Plans(eye).find(LOCAL_TENANT, found.run["workflow"])
    assert isinstance(plan, Plan)
    assert (await fold_and_check(eye, found, Plans(eye))).end() == []
    return Exhibit(found, log, plan)


def set_evidence(**fields: Any) -> Callable[[Exhibit], None]:
    def violate(one: Exhibit) -> None:
        one.evidence = msgspec.structs.replace(one.evidence, **fields)

    return violate


def of_row(**fields: Any) -> Callable[[Exhibit], None]:
    return lambda one: one.run.update(fields)


def snapshot(seq: int | None = None, state: bytes | None = None) -> Callable[[Exhibit], None]:
    def violate(one: Exhibit) -> None:
        check = RunCheck(one.evidence)
        for row in one.log:
            commit = check.decode(row)
            assert commit is not None
            check.feed(commit)
        wrong = encode_state(check.state).replace(b'"waiting"', b'"paused"', 1) if state is None else state
        row = {"seq": seq or check.state.seq, "abi": ABI, "state": wrong, "tenant": one.run["tenant"]}
        one.rows("snapshots").append(row)

    return violate


def told_of_end(one: Exhibit) -> None:
    """The child has ended, and nobody has told its parent."""
    (child,) = one.evidence.below
    below = {child: Kin(child, one.run["tenant"], "finished", ())}
    one.evidence = msgspec.structs.replace(one.evidence, below=below)


def late_row(**fields: Any) -> Callable[[Exhibit], None]:
    def violate(one: Exhibit) -> None:
        one.late = timedelta(seconds=60)
        one.run.update(fields)

    return violate


def older_before_last(one: Exhibit) -> None:
    """An earlier release wrote all commits but the last."""
    one.run.update(older_seq=one.log[-1]["first_seq"] - 1)


def found_by_anyone(one: Exhibit) -> None:
    one.rows("inbox").append({"pending_id": "p", "selector": "anyone", "tenant": LOCAL_TENANT})


def forgets(index: str, instead: Any = Map()) -> Callable[[Exhibit], None]:  # noqa: B008
    """A fold that has lost an index of the state."""

    def violate(one: Exhibit) -> None:
        one.folded = lambda state: msgspec.structs.replace(state, **{index: instead})

    return violate


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
VIOLATORS: list[tuple[str, str, Callable[[Exhibit], object]]] = [
    ("decisions_follow", "ended", lambda one: one.set("run_finished", output=7)),
    ("decisions_follow", "ended", lambda one: (one.set("run_finished", output=7), older_before_last(one))),
    ("decisions_follow", "asking", lambda one: one.set("timer_set", due=4_000_000_000_000)),
    ("decisions_follow", "asking", lambda one: one.set("step_started", title="Another title")),
    ("log_gap_free", "ended", lambda one: one.log.pop(2)),
    ("log_gap_free", "ended", lambda one: one.log.append(one.log[-1])),
    ("log_gap_free", "ended", lambda one: one.log[2].update(events=one.log[1]["events"])),
    ("log_readable", "ended", lambda one: one.log[2].update(events=b'[{"type":"of_next_year"}]')),
    ("log_folds", "ended", lambda one: one.without("run_started")),
    (
        "log_folds",
        "asking",
        lambda one: one.behind("run_started", {"type": "run_resumed", "by": "x", "status": "running"}),
    ),
    ("log_chained", "ended", lambda one: one.run.update(head=b"0" * 32)),
    ("log_chained", "ended", lambda one: one.log[-1].update(events=one.log[-1]["events"].replace(b"]", b" ]"))),
    ("log_audited", "ended", set_evidence(heads={3: b"0" * 32, 1000: b"0" * 32})),
    ("log_audited", "ended", lambda one: one.evidence.heads.update({one.log[0]["last_seq"]: b"0" * 32})),  # type: ignore[attr-defined]
    ("versions_rise", "ended", lambda one: one.log[-1].update(version=1)),
    ("versions_rise", "ended", lambda one: one.log[2].update(version=9)),
    ("chunks_are_chunks", "asking", lambda one: one.log[-1].update(version=one.log[-2]["version"])),
    ("row_ends_with_its_log", "ended", of_row(seq=1)),
    ("row_ends_with_its_log", "ended", of_row(version=1)),
    ("row_ends_with_its_log", "ended", of_row(log_bytes=1)),
    ("row_is_made", "ended", of_row(status="failed")),
    ("row_is_made", "ended", of_row(ended_at=None)),
    ("row_is_made", "asking", of_row(ended_at=LONG_AGO)),
    ("row_is_made", "ended", of_row(result=b'{"output":7}')),
    ("row_is_made", "asking", of_row(input=b'{"n":7}')),
    ("row_is_made", "child", of_row(parent_id=STRANGER)),
    ("version_is_pinned", "asking", of_row(workflow=b"0" * 32)),
    ("workflow_is_there", "asking", lambda one: setattr(one, "plan", None)),
    ("files_are_there", "asking", lambda one: setattr(one, "lost", frozenset({b"0" * 32}))),
    ("wakes_in_time", "ended", of_row(wake_at=LONG_AGO)),
    ("wakes_in_time", "ended", of_row(worker=1)),
    ("wakes_in_time", "asking", of_row(wake_at=None)),
    ("wakes_in_time", "asking", of_row(wake_at=datetime(2099, 1, 1, tzinfo=UTC))),
    ("nobody_is_late", "asking", late_row(wake_at=LONG_AGO)),
    ("nobody_is_late", "asking", lambda one: (late_row(worker=1)(one), set_evidence(holder=LONG_AGO)(one))),
    ("holder_is_known", "asking", of_row(worker=1)),
    ("holds_its_slot", "asking", set_evidence(slot_holder=None)),
    ("holds_its_slot", "asking", set_evidence(slot_holder=STRANGER)),
    ("holds_its_slot", "ended", lambda one: one.rows("slots").append({"slot": "thread:1", "tenant": LOCAL_TENANT})),
    ("tenants_are_apart", "ended", lambda one: one.log[1].update(tenant=STRANGER)),
    ("tenants_are_apart", "ended", lambda one: one.rows("votes")[0].update(tenant=STRANGER)),
    ("tenants_are_apart", "child", set_evidence(above=Kin(STRANGER, STRANGER, "waiting", ()))),
    ("rows_came_with_commits", "asking", lambda one: one.rows("votes")[0].update(last_seq=2)),
    ("snapshots_are_folds", "asking", snapshot()),
    ("snapshots_are_folds", "asking", snapshot(state=b"{}")),
    ("snapshots_are_folds", "asking", snapshot(seq=1000)),
    ("kin_is_heard", "above", told_of_end),
    ("kin_is_heard", "above", set_evidence(below={})),
    ("kin_is_heard", "child", set_evidence(above=None)),
    ("pendings_are_made", "asking", lambda one: one.rows("pendings").pop()),
    ("pendings_are_made", "asking", lambda one: one.rows("pendings")[0].update(status="voided")),
    ("pendings_are_made", "asking", lambda one: one.rows("pendings")[0].update(digest=b"0" * 32)),
    ("pendings_are_made", "asking", lambda one: one.rows("pendings")[0].update(opened_seq=1)),
    ("pendings_are_made", "asking", lambda one: one.rows("pendings")[0].update(body=one.rows("pendings")[1]["body"])),
    ("inbox_is_made", "asking", lambda one: one.rows("inbox").clear()),
    ("inbox_is_made", "ended", found_by_anyone),
    ("votes_are_made", "asking", lambda one: one.rows("votes").pop()),
    ("votes_are_made", "asking", lambda one: one.rows("votes")[0].update(body=b'{"decision":"reject"}')),
    ("turns_are_made", "ended", lambda one: one.rows("turns").pop()),
    ("turns_are_made", "ended", lambda one: one.rows("turns")[0].update(last_seq=2)),
    ("messages_are_made", "ended", lambda one: one.rows("messages").pop()),
    ("messages_are_made", "ended", lambda one: one.rows("messages")[0].update(role="user")),
    (
        "messages_are_made",
        "ended",
        lambda one: one.rows("messages")[0].update(body=one.rows("messages")[0]["body"].replace(b"piece", b"peace")),
    ),
    (
        "end_is_last",
        "ended",
        lambda one: one.behind("run_finished", {"type": "warning_raised", "code": "x", "message": "y"}),
    ),
    ("turns_in_order", "ended", lambda one: one.set("turn_started", turn=1)),
    ("turns_in_order", "ended", lambda one: one.without("message_ended")),
    (
        "begins_while_running",
        "asking",
        lambda one: one.behind("turn_started", {"type": "run_paused", "by": "user:op"}, turn=1),
    ),
    ("begins_while_running", "asking", lambda one: one.set("run_started", ready=["nap"])),
    ("attempt_once", "asking", lambda one: one.set("attempt_started", attempt=3)),
    ("attempt_once", "asking", lambda one: one.twice("step_started", path="tell")),
    ("outcome_once", "asking", lambda one: one.twice("step_finished", path="tell")),
    ("approved_is_performed", "asking", lambda one: one.set("pending_decided", value={"decision": "reject"})),
    ("approved_is_performed", "asking", lambda one: one.edit(other_arguments)),
    ("digest_binds", "asking", lambda one: one.set("pending_opened", title="Another question")),
    ("digest_binds", "asking", lambda one: one.set("pending_opened", digest="0" * 64)),
    ("vote_is_free", "asking", lambda one: one.set("vote_cast", by="user:ann")),
    ("vote_is_free", "asking", lambda one: one.set("vote_cast", id="call_unknown")),
    ("votes_decide", "asking", lambda one: one.without("vote_cast", by="user:ann")),
    ("votes_decide", "asking", lambda one: one.twice("pending_decided")),
    ("timer_in_time", "asking", lambda one: one.set("timer_set", due=4_000_000_000_000)),
    ("timer_in_time", "asking", lambda one: one.twice("timer_fired")),
    ("chunks_in_order", "asking", lambda one: one.set("message_chunk", n=7)),
    ("chunks_in_order", "asking", lambda one: one.twice("message_chunk", n=1)),
    ("calls_in_order", "asking", lambda one: one.without("tool_call_ended")),
    ("calls_in_order", "asking", lambda one: one.twice("tool_call_ended")),
    ("waits_for_something", "asking", lambda one: one.edit(asks_nothing)),
    ("nothing_outlives", "ended", forgets("timers", (Timer(7, "", "limit"),))),
    ("indexes_agree", "asking", forgets("open_pendings")),
    ("indexes_agree", "asking", forgets("attempts", Map({"tell": 7}))),
]


def other_arguments(events: list[Any]) -> Iterable[Any]:
    """What is performed is not what was approved."""
    for each in events:
        if each["type"] == "attempt_started" and each["path"] == "pay":
            yield each | {"type": "step_started", "verb": "call", "args": '{"n":200}'}
        else:
            yield each


def asks_nothing(events: list[Any]) -> Iterable[Any]:
    """The last question was never asked, and its turn ended all the same."""
    gone = ("pending_opened", "timer_set")
    return [each for each in events if each["type"] not in gone or each.get("path") != "sure"]


@pytest.mark.costly
async def test_every_rule_refuses_what_breaks_it(make: Make, eye: Connection) -> None:
    right = await exhibits(await make(performs=True), eye)
    missed = []
    for number, (rule, name, violate) in enumerate(VIOLATORS):
        one = right[name].copied()
        assert one.judge() == []
        violate(one)
        found = one.judge()
        if rule not in {each.rule for each in found}:
            missed.append((number, rule, found))
        assert {each.run_id for each in found} <= {one.run["id"]}
    assert [(n, rule, [each.rule for each in found]) for n, rule, found in missed] == []


@pytest.mark.costly
async def test_a_question_opened_during_a_text_may_have_an_earlier_time(make: Make, eye: Connection) -> None:
    one = (await exhibits(await make(performs=True), eye))["asking"].copied()
    for row in one.rows("pendings"):
        opened = msgspec.json.decode(row["body"])
        row.update(body=msgspec.json.encode(opened | {"at": opened["at"] - 5}))
    assert one.judge() == []


def test_every_rule_has_a_violator() -> None:
    assert {rule for rule, _, _ in VIOLATORS} == RULES
