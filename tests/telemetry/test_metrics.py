"""A runtime is watched while runs go on, and what it tells is what happened."""

from __future__ import annotations

from collections.abc import Sequence

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.state import Map, PendingState, RunState
from hai_flow.runtime.commit.batches import CommitEntry
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.telemetry.metrics import Metrics
from tests.runtime.conftest import ASKING, ECHO, GATED, TOOLS, Make, answer, is_now, open_pending, start
from tests.support import effects
from tests.support.scraping import Scrape, scraped
from tests.support.values import require
from tests.support.waiting import until


def seen(metrics: Metrics) -> Scrape:
    return scraped(metrics.collect())


async def finished(runtime: Runtime, body: str, *, ends: str = "finished", **options: object) -> str:
    """The workflow of a run that has ended."""
    run_id = (await start(runtime, body, **options)).run_id  # type: ignore[arg-type]
    await until(lambda: is_now(runtime, run_id, ends))
    return require(await runtime.fanout.state_at(LOCAL_TENANT, run_id, 2**53)).workflow


async def test_a_run_is_counted_from_its_start_to_its_end(make: Make) -> None:
    metrics = Metrics()
    runtime = await make(performs=True, observers=[metrics])
    name = await finished(runtime, ECHO, input={"value": "x"})
    read = seen(metrics)
    assert read.value("runs_started_total", workflow=name) == 1
    assert read.value("runs_ended_total", workflow=name, status="finished") == 1
    assert read.value("step_seconds_count", workflow=name, verb="call", outcome="finished") == 1
    assert read.value("attempt_seconds_count", kind="python", outcome="succeeded") == 1
    assert read.value("attempt_lag_seconds_count") == 1
    assert read.value("command_seconds_count", command="start") == 1
    assert read.value("command_seconds_count", command="step_succeeded") is None  # nobody waits for it
    commits = require(read.value("commit_seconds_count"))
    assert commits >= 2
    assert read.value("commit_entries_count") == commits
    assert read.value("resume_seconds_count") == 0


async def test_a_failed_step_counts_as_failed(make: Make) -> None:
    metrics = Metrics()
    runtime = await make(performs=True, observers=[metrics])
    body = TOOLS + "steps:\n  - {id: s, call: fx.cancels_itself, retry: {max: 0}}\n"
    name = await finished(runtime, body, ends="failed")
    read = seen(metrics)
    assert read.value("runs_ended_total", workflow=name, status="failed") == 1
    assert read.value("step_seconds_count", workflow=name, verb="call", outcome="failed") == 1
    assert read.value("attempt_seconds_count", kind="python", outcome="failed") == 1


async def test_only_the_first_attempt_behind_an_answer_counts_as_resumption(make: Make) -> None:
    metrics = Metrics()
    runtime = await make(performs=True, observers=[metrics])
    calls = "".join(f"  - {{id: c{n}, call: fx.echo, with: {{value: x}}}}\n" for n in range(3))
    body = TOOLS + ASKING + calls
    run_id = (await start(runtime, body)).run_id
    await until(lambda: is_now(runtime, run_id, "waiting"))
    assert seen(metrics).value("resume_seconds_count") == 0
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(runtime, run_id)))
    await until(lambda: is_now(runtime, run_id, "finished"))
    read = seen(metrics)
    assert read.value("resume_seconds_count") == 1
    assert read.value("attempt_lag_seconds_count") == 3
    assert not metrics._turns


async def test_a_question_is_counted_by_its_end_and_by_whoever_ended_it(make: Make) -> None:
    metrics = Metrics()
    runtime = await make(observers=[metrics])
    approve = "approve: {title: Sure?, from: anyone, options: [approve, reject, later]}"
    body = f"steps:\n  - {{id: sure, {approve}, on_decision: {{later: [{{return: 1}}]}}}}\n"
    for decision in ("approve", "reject", "later", ""):
        run_id = (await start(runtime, body)).run_id
        await until(lambda run_id=run_id: is_now(runtime, run_id, "waiting"))
        id = await open_pending(runtime, run_id)
        by = c.Principal("user:ann")
        answers = (c.PendingAnswer(id=id, decision=decision),)
        command = c.Answer(answers=answers, by=by) if decision else c.Stop(by=by.id)
        await runtime.committer.submit(run_id, LOCAL_TENANT, command)
    asking = (await start(runtime, ASKING)).run_id
    await until(lambda: is_now(runtime, asking, "waiting"))
    await runtime.committer.submit(asking, LOCAL_TENANT, answer(await open_pending(runtime, asking)))
    read = seen(metrics)
    counts = {labels: n for (name, labels), n in read.samples.items() if name == "hai_flow_decision_seconds_count"}
    assert sorted((dict(each)["outcome"], dict(each)["by"], n) for each, n in counts.items()) == [
        ("approved", "people", 1),
        ("other", "people", 1),
        ("refused", "people", 1),
        ("withdrawn", "nobody", 1),
    ]


def test_a_decision_by_a_standing_rule_is_not_peoples() -> None:
    metrics = Metrics()
    opened = e.PendingOpened(at=0, id="p", path="s", kind="gate", digest="")
    vote = e.VoteCast(at=5, id="p", by="user:ann", decision="approve", rule=e.RuleUse("r", "d"))
    state = RunState(
        "r", workflow="pay", pendings=Map().set("p", PendingState(opened, status="approve", votes=(vote,)))
    )
    metrics._question_ended(CommitEntry(None, state), e.PendingDecided(at=9000, id="p", outcome="approve"))  # type: ignore[arg-type]
    read = seen(metrics)
    labels = {"workflow": "pay", "outcome": "approved", "by": "rule"}
    assert read.value("decision_seconds_count", **labels) == 1
    assert read.value("decision_seconds_sum", **labels) == 9


async def test_only_what_a_process_has_written_itself_is_counted_there(make: Make) -> None:
    here, there = Metrics(), Metrics()
    server, worker = await make(observers=[here]), await make(performs=True, observers=[there])
    name = await finished(server, ECHO, input={"value": "x"})
    first, second = seen(here), seen(there)
    assert first.value("runs_started_total", workflow=name) == 1
    assert second.value("runs_started_total", workflow=name) is None
    assert first.value("runs_ended_total", workflow=name, status="finished") is None
    assert second.value("runs_ended_total", workflow=name, status="finished") == 1
    assert second.value("runs_claimed_total", lost="false") == second.value("claim_lag_seconds_count") == 1
    assert worker.worker is not None


async def test_what_stands_is_read_when_somebody_looks(make: Make) -> None:
    metrics = Metrics()
    runtime = await make(performs=True, observers=[metrics])
    run_id = (await start(runtime, GATED)).run_id
    await until(lambda: effects.begun)
    read = seen(metrics)
    assert read.value("runs_held") == read.value("attempts") == read.value("cache_runs") == 1
    assert read.value("attempts_waiting") == read.value("tool_threads_left_behind") == 0
    assert require(read.value("database_connections", pool="engine", state="used")) >= 1
    effects.gate.set()
    await until(lambda: is_now(runtime, run_id, "finished"))
    await until(lambda: seen(metrics).value("attempts") == 0)
    assert seen(metrics).value("runs_held") == 0


async def test_a_lost_entry_is_counted(make: Make) -> None:
    metrics = Metrics()
    a, b = await make(observers=[metrics]), await make()
    run_id = (await start(a, ASKING)).run_id
    await b.committer.submit(run_id, LOCAL_TENANT, c.Pause(by="user:local"))
    question = await open_pending(a, run_id)
    await a.committer.submit(run_id, LOCAL_TENANT, answer(question))  # on top of a state that is old
    assert seen(metrics).value("commit_losses_total") == 1


async def test_who_watches_and_fails_harms_nobody(make: Make) -> None:
    class Broken(Metrics):
        def _written(self, entries: Sequence[CommitEntry]) -> None:
            raise ZeroDivisionError

        def _sent(self, entries: Sequence[CommitEntry], won: int, began: float, ended: float) -> None:
            raise ZeroDivisionError

    runtime = await make(performs=True, observers=[Broken()])
    await finished(runtime, ECHO, input={"value": "x"})
