"""`backtest` reads the runs of a workflow, decides them again under another text, and writes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.definition.compiler import compile_workflow
from hai_flow.engine import commands as c
from hai_flow.engine.runs.rehearsal import Asking
from hai_flow.runtime.ops.backtest import Backtest, Backtesting, backtest
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from tests.runtime.conftest import Connection, Make, is_now, open_pending
from tests.runtime.conftest import start as start_body
from tests.runtime.test_agents import AGENT, ASKED, CALLS, DENIED, PICK, answer
from tests.runtime.test_models import runtime_of
from tests.runtime.test_verifying import family
from tests.support.models import Answer, FakeModels, spoken
from tests.support.postgres import connecting
from tests.support.waiting import until

PAYING = """\
hai: flow/v1
name: paying
version: 1
input: {type: object, properties: {amount: {type: integer}}}
tools: {fx: {python: tests.support.effects, effect: write}}
steps:
  - id: pay
    call: fx.note
    with: {n: "${{ input.amount }}"}
    approval: {title: "Pay ${{ input.amount }}?", from: ["user:bob"], when: "args.n > 100"}
  - {id: nap, wait: {for: 1s}}
  - {id: fails, try: [{id: broken, call: fx.breaks, retry: {max: 0}}], catch: [{steps: [{say: Well.}]}]}
"""
BOB = c.Principal("user:bob")


async def start(runtime: Runtime, source: str, amount: int) -> UUID:
    _, plan = await runtime.catalog.publish(LOCAL_TENANT, source.encode())
    run_id = uuid4()
    command = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:ann", input={"amount": amount})
    await runtime.starts.start(LOCAL_TENANT, plan, command)
    return run_id


async def approve(runtime: Runtime, run_id: UUID) -> None:
    await until(lambda: is_now(runtime, run_id, "waiting"))
    vote = c.PendingAnswer(id=await open_pending(runtime, run_id), decision="approve")
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Answer(answers=(vote,), by=BOB))


async def decided(database_url: str, text: str, name: str = "paying", **fields: Any) -> Backtest:
    async with connecting(database_url) as connection:
        plan = compile_workflow(text.encode(), "paying")
        fields = {"age": timedelta(days=30), **fields}
        request = Backtesting(tenant=LOCAL_TENANT, name=name, plan=plan, **fields)
        return [Backtest(), *[each async for each in backtest(connection, request)]][-1]


async def rows_of_all(eye: Connection) -> str:
    tables = await eye.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
    assert len(tables) > 20
    sums = [
        f"(SELECT coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM {row[0]} t)"
        for row in tables
        if row[0] not in ("workers", "api_processes")
    ]
    text: str = await eye.fetchval(f"SELECT concat_ws(' ', {', '.join(sums)})")
    return text


async def test_an_unchanged_text_changes_no_run_and_a_threshold_those_between(
    make: Make, eye: Connection, database_url: str
) -> None:
    runtime = await make(performs=True)
    runs = {amount: await start(runtime, PAYING, amount) for amount in (1, 50, 51, 99, 100, 101, 300)}
    await asyncio.gather(*(approve(runtime, runs[amount]) for amount in (101, 300)))
    for run_id in runs.values():
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished", "failed"))
    waiting = await start(runtime, PAYING, 500)
    await until(lambda: is_now(runtime, waiting, "waiting"))
    await runtime.stop()
    before = await rows_of_all(eye)

    same = await decided(database_url, PAYING)
    assert (same.runs, same.verdicts, same.unreadable, same.examples) == (8, {"same": 8}, {}, [])
    assert (same.waiting, same.stuck, same.differs) == (1, {}, False)

    moved = await decided(database_url, PAYING.replace("> 100", "> 50"))
    assert moved.verdicts == {"same": 5, "people": 3}
    assert {each.run_id for each in moved.examples} == {runs[amount] for amount in (51, 99, 100)}
    assert (moved.more, moved.fewer) == ({Asking("pay", ("user:bob",)): 3}, {})
    assert moved.differs

    worded = await decided(database_url, PAYING.replace('"Pay $', '"Give $'))
    assert worded.stuck == {"pending.content": 1}
    assert [each.run_id for each in worded.stuck_examples] == [waiting]

    assert (await decided(database_url, PAYING, age=timedelta(0))).runs == 0
    assert (await decided(database_url, PAYING, name="other")).runs == 0
    assert len((await decided(database_url, PAYING.replace("> 100", "> 50"), examples=2)).examples) == 2
    assert await rows_of_all(eye) == before


async def test_runs_that_can_not_be_read_are_counted_by_reason(make: Make, eye: Connection, database_url: str) -> None:
    runtime = await make(performs=True)
    runs = [await start(runtime, PAYING, 500) for _ in range(4)]
    for run_id in runs:
        await until(lambda run_id=run_id: is_now(runtime, run_id, "waiting"))
    await runtime.stop()
    await eye.execute("UPDATE runs SET abi = abi + 1 WHERE id = $1", runs[0])
    await eye.execute("UPDATE runs SET workflow = $2 WHERE id = $1", runs[1], b"\1" * 32)
    await eye.execute('UPDATE log SET events = \'[{"type": "later"}]\' WHERE run_id = $1', runs[2])
    result = await decided(database_url, PAYING)
    assert (result.runs, result.verdicts) == (4, {"same": 1})
    assert result.unreadable == {"release": 2, "plan": 1}
    details = {each.run_id: each.detail for each in result.unread_examples}
    assert "this release reads up to" in details[runs[0]]
    assert "it is not in the database" in details[runs[1]]
    assert not result.differs


@pytest.mark.costly
async def test_runs_with_agents_and_children_go_the_same_way_new_prompts_unknown(
    make: Make, eye: Connection, database_url: str, tmp_path: Path
) -> None:
    async with FakeModels(spoken(Answer("I do.", calls=CALLS)), spoken(Answer("Done."))) as fake:
        runtime = await runtime_of(make, tmp_path, fake)
        run_id = (await start_body(runtime, AGENT)).run_id
        await until(lambda: is_now(runtime, run_id, "waiting"))
        await answer(runtime, run_id, DENIED, decision="reject", reason="not three")
        await answer(runtime, run_id, ASKED, decision="approve", edits={"n": 5})
        await answer(runtime, run_id, PICK, result={"picked": "tea"})
        await until(lambda: is_now(runtime, run_id, "finished"))
        above, child = await family(runtime, eye)
        below = c.PendingAnswer(id=await open_pending(runtime, child), values={"ok": True})
        await runtime.committer.submit(child, LOCAL_TENANT, c.Answer(answers=(below,), by=BOB))
        await until(lambda: is_now(runtime, above, "finished"))
        await runtime.stop()
    rows = await eye.fetch("SELECT r.id, w.name, w.source FROM runs r JOIN workflows w ON w.sha256 = r.workflow")
    sources = {row["id"]: (row["name"], row["source"].decode()) for row in rows}
    for name, source in sources.values():
        result = await decided(database_url, source, name=name)
        assert (result.runs, result.verdicts, result.unreadable) == (1, {"same": 1}, {}), (name, result)
    name, source = sources[run_id]
    other = await decided(database_url, source.replace("Be brief.", "Be long."), name=name)
    assert other.verdicts == {"unknown": 1}
    name, source = sources[above]
    other = await decided(database_url, source.replace("run: below", "run: beneath"), name=name)
    assert (other.verdicts, other.examples[0].verdict.step) == ({"unknown": 1}, "child")
