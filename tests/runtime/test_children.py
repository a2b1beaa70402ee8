"""Child runs over a real database: several runs, several processes, and what happens when one dies in between."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.ids import derive_child_run_id
from hai_flow.errors import DefinitionError
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.commit import commits
from hai_flow.store.messaging import outbox
from hai_flow.store.runs import run_lists
from tests.runtime.conftest import (
    TOOLS,
    Connection,
    Make,
    answer,
    is_now,
    is_there,
    nothing_on_its_way,
    open_pending,
    state_of,
)
from tests.support import effects
from tests.support.ledger import check_all, log_of
from tests.support.values import require
from tests.support.waiting import until
from tests.support.workers import Nursery

HEAD = "hai: flow/v1\nname: {name}\nversion: {version}\n"
ASK = "  - {{id: sure, ask: {{title: Sure?, from: anyone, form: {{properties: {{ok: {{type: boolean}}}}}}}}}}\n"
CHILDREN = {
    "echo": "input: {type: object, required: [value], properties: {value: {type: string}}}\n"
    + TOOLS
    + 'steps:\n  - {id: look, call: fx.echo, with: {value: "${{ input.value }}"}}\noutput: ${{ steps.look.output }}\n',
    "gated": TOOLS + "steps:\n  - {id: look, call: fx.gated}\noutput: ${{ steps.look.output }}\n",
    "hesitant": TOOLS + "steps:\n  - {id: look, call: fx.hesitant, stream: text}\n",
    "below_hesitant": "steps:\n  - {id: inner, run: hesitant}\n",
    "asking": "steps:\n" + ASK.replace("{{", "{").replace("}}", "}") + "output: ${{ steps.sure.output.ok }}\n",
    "failing": "steps:\n  - {fail: {message: No luck., code: luck}}\n",
}
PARENT = "steps:\n  - {{id: sub, run: {child}, with: {args}}}\noutput: ${{{{ steps.sub.output }}}}\n"


async def publish(runtime: Runtime, name: str, body: str, version: int = 1) -> Any:
    source = HEAD.format(name=name, version=version) + body
    return (await runtime.catalog.publish(LOCAL_TENANT, source.encode()))[1]


async def begin(runtime: Runtime, child: str, args: str = "{}", body: str | None = None) -> UUID:
    """Start a parent whose step `sub` runs the child; the parent's id."""
    for name in dict.fromkeys((child.partition("@")[0], "echo")):
        await publish(runtime, name, CHILDREN[name])
    plan = await publish(runtime, f"parent_{child.partition('@')[0]}", body or PARENT.format(child=child, args=args))
    run_id = uuid4()
    start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, start)
    return run_id


def child_of(parent: UUID, attempt: int = 1) -> UUID:
    return UUID(derive_child_run_id(str(parent), "sub", attempt))


async def ask(runtime: Runtime, run_id: UUID, command: c.Command) -> None:
    await runtime.committer.submit(run_id, LOCAL_TENANT, command)


async def test_a_parent_gets_its_childs_output_and_the_child_knows_its_parent(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "echo", "{value: hello}")
    await until(lambda: is_now(runtime, parent, "finished"))
    assert (await state_of(runtime, parent)).output == "hello"
    row = require(await run_lists.get_run(runtime.database.api, LOCAL_TENANT, child_of(parent)))
    assert (row.parent_id, row.parent_path, row.thread_id, row.slot) == (parent, "sub", str(parent), None)
    await until(lambda: nothing_on_its_way(eye))
    assert len(await check_all(eye)) == 2


async def test_a_parent_waits_with_its_child_and_nobody_holds_either(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "asking")
    await until(lambda: is_now(runtime, parent, "waiting"))
    child = child_of(parent)
    assert await eye.fetchval("SELECT count(*) FROM runs WHERE worker IS NOT NULL") == 0
    pending = await open_pending(runtime, child)
    await ask(runtime, child, answer(pending))
    await until(lambda: is_now(runtime, parent, "finished"))
    assert (await state_of(runtime, parent)).output is True


async def test_a_child_that_fails_is_the_cause_of_its_parents_failure(make: Make) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "failing")
    await until(lambda: is_now(runtime, parent, "failed"))
    error = require((await state_of(runtime, parent)).error)
    assert error.cause is not None
    assert (error.code, error.cause.code, error.cause.message) == ("run.failed", "luck", "No luck.")


async def test_an_input_that_the_child_does_not_take_fails_the_step(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "echo", "{value: '${{ dyn(1) }}'}")
    await until(lambda: is_now(runtime, parent, "failed"))
    error = require((await state_of(runtime, parent)).error)
    assert error.cause is not None
    assert (error.code, error.cause.code) == ("run.failed", "input.invalid")
    assert error.cause.data[0]["path"] == "/value"
    assert await runtime.fanout.state_at(LOCAL_TENANT, child_of(parent), 2**53) is None
    await until(lambda: nothing_on_its_way(eye))


async def test_a_child_that_is_stopped_fails_its_step(make: Make) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "asking")
    await until(lambda: is_there(runtime, child_of(parent), "waiting"))
    await ask(runtime, child_of(parent), c.Stop(by="user:op"))
    await until(lambda: is_now(runtime, parent, "failed"))
    assert require((await state_of(runtime, parent)).error).code == "run.stopped"


@pytest.mark.parametrize("command", [c.Stop(by="user:op"), c.Terminate(by="user:op")])
async def test_a_parent_that_is_stopped_stops_its_child(make: Make, command: c.Command) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "gated")
    await until(lambda: len(effects.begun) == 1)
    await ask(runtime, parent, command)
    for run_id in (child_of(parent), parent):
        await until(lambda run_id=run_id: is_now(runtime, run_id, "stopped"))


async def test_a_parent_that_is_paused_pauses_its_child_and_resumes_it(make: Make) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "gated")
    await until(lambda: len(effects.begun) == 1)
    await ask(runtime, parent, c.Pause(by="user:op"))
    await until(lambda: is_now(runtime, child_of(parent), "paused"))
    effects.gate.set()
    await until(lambda: step_is_done(runtime, child_of(parent)))
    assert (await state_of(runtime, child_of(parent))).status == "paused"
    await ask(runtime, parent, c.Resume(by="user:op"))
    await until(lambda: is_now(runtime, parent, "finished"))
    assert (await state_of(runtime, parent)).output == "through the gate"


async def step_is_done(runtime: Runtime, run_id: UUID) -> bool:
    return (await state_of(runtime, run_id)).steps["look"].status == "finished"


async def begin_talking(runtime: Runtime) -> UUID:
    """A run two generations above one that has begun to say something, and has not ended."""
    await publish(runtime, "hesitant", CHILDREN["hesitant"])
    return await begin(runtime, "below_hesitant", body="steps:\n  - {id: sub, run: below_hesitant}\n")


async def spoken(runtime: Runtime, run_id: UUID) -> list[tuple[str | None, Any, bool, bool]]:
    """What the log of a run says of the messages of the runs below it: (path, content, open, aborted)."""
    said = sorted((await state_of(runtime, run_id)).messages.values(), key=lambda each: each.n)
    return [(each.path, each.content, each.open, each.aborted) for each in said]


async def is_heard(runtime: Runtime, run_id: UUID, text: str) -> bool:
    return any(text in content for _, content, *_ in await spoken(runtime, run_id))


async def test_what_a_grandchild_streams_is_heard_above_before_it_is_over(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    root = await begin_talking(runtime)
    path = "sub/inner/look"
    await until(lambda: is_heard(runtime, root, "attempt 1 begins"))
    assert await spoken(runtime, root) == [(path, "attempt 1 begins ", True, False)]
    effects.gate.set()
    await until(lambda: is_now(runtime, root, "finished"))
    assert await spoken(runtime, root) == [(path, "attempt 1 begins and ends", False, False)]
    rows = await eye.fetchval("SELECT count(*) FROM messages WHERE thread_id = $1", str(root))
    assert rows == 1, "it is the thread's once, as a message of the run that says it"
    await check_all(eye)


async def test_a_growing_call_of_a_grandchild_shows_above_and_once_in_its_thread(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    page = "{frontend: {description: P, parameters: {type: object, properties: {doc: {type: string}}}, answer: none}}"
    body = TOOLS + f"  page: {page}\nsteps:\n  - {{id: look, call: fx.hesitant, stream: {{to: page, argument: doc}}}}\n"
    await publish(runtime, "hesitant", body)
    root = await begin(runtime, "below_hesitant", body="steps:\n  - {id: sub, run: below_hesitant}\n")

    async def shown(text: str) -> bool:
        calls = (await state_of(runtime, root)).tool_calls.values()
        return any(text in call.args for call in calls)

    await until(lambda: shown("attempt 1 begins"))
    effects.gate.set()
    await until(lambda: is_now(runtime, root, "finished"))
    (call,) = (await state_of(runtime, root)).tool_calls.values()
    assert (call.path, call.args) == ("sub/inner/look", '{"doc":"attempt 1 begins and ends"}')
    assert (call.open, call.result) == (False, "shown")
    assert await eye.fetchval("SELECT count(*) FROM messages WHERE thread_id = $1", str(root)) == 1


@pytest.mark.costly
async def test_a_grandchilds_stream_delivered_twice_is_heard_once(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever delivers dies behind each commit, once: all of it is delivered again."""
    real, deaths = outbox.delete_message, set()

    async def die(connection: Any, message: outbox.OutboxMessage) -> bool:
        if message.command_id in deaths:
            return await real(connection, message)
        deaths.add(message.command_id)
        await connection.execute("UPDATE outbox SET due_at = now()")
        raise ConnectionResetError("dead")

    monkeypatch.setattr(outbox, "delete_message", die)
    runtime = await make(performs=True)
    root = await begin_talking(runtime)
    await until(lambda: is_heard(runtime, root, "attempt 1 begins"))
    effects.gate.set()
    await until(lambda: is_now(runtime, root, "finished"))
    assert await spoken(runtime, root) == [("sub/inner/look", "attempt 1 begins and ends", False, False)]


@pytest.mark.costly
async def test_nothing_that_a_grandchild_streams_is_lost_or_repeated_by_a_kill(
    make: Make, eye: Connection, database_url: str
) -> None:
    serving = await make(performs=False)
    with Nursery(database_url) as nursery:
        victim = nursery.fork()
        root = await begin_talking(serving)
        await until(lambda: is_heard(serving, root, "attempt 1 begins"), 30)
        os.kill(victim, signal.SIGKILL)
        nursery.fork()
        await until(lambda: is_now(serving, root, "finished"), 30)
    first, second = await spoken(serving, root)
    assert first == ("sub/inner/look", "attempt 1 begins ", False, True)
    assert second == ("sub/inner/look", "attempt 2 begins and ends", False, False)
    await check_all(eye)


async def test_a_restart_in_the_middle_changes_nothing(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "asking")
    await until(lambda: is_now(runtime, parent, "waiting"))
    await runtime.stop()
    again = await make(performs=True)
    pending = await open_pending(again, child_of(parent))
    await ask(again, child_of(parent), answer(pending))
    await until(lambda: is_now(again, parent, "finished"))
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2


async def test_a_process_that_performs_nothing_delivers_its_own_commits(make: Make) -> None:
    serving = await make(performs=False, poll_seconds=60.0)  # longer than the test waits
    parent = await begin(serving, "asking")
    await until(lambda: is_there(serving, child_of(parent), "waiting"))


async def test_who_dies_after_the_child_was_started_starts_no_second_one(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deaths = outbox.delete_message, []

    async def die(connection: Any, message: outbox.OutboxMessage) -> bool:
        if message.kind in deaths:
            return await real(connection, message)
        deaths.append(message.kind)
        await connection.execute("UPDATE outbox SET due_at = now()")
        raise ConnectionError("the process died")

    monkeypatch.setattr(outbox, "delete_message", die)
    runtime = await make(performs=True)
    parent = await begin(runtime, "echo", "{value: hello}")
    await until(lambda: is_now(runtime, parent, "finished"))
    assert deaths == ["start_child", "child_told", "child_ended"]
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2
    ends = [event for event in await log_of(eye, parent) if isinstance(event, e.CollaborationEnded)]
    assert len(ends) == 1


async def test_what_a_dead_process_left_in_the_outbox_is_delivered_by_the_next(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = outbox.due_messages

    async def nothing(*arguments: Any) -> list[outbox.OutboxMessage]:
        return []

    monkeypatch.setattr(outbox, "due_messages", nothing)
    first = await make(performs=True)
    parent = await begin(first, "echo", "{value: hello}")
    await first.stop()
    monkeypatch.setattr(outbox, "due_messages", real)
    second = await make(performs=True)
    await until(lambda: is_now(second, parent, "finished"))


async def test_a_retry_of_the_step_starts_a_second_child(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    retried = "steps:\n  - {id: sub, run: failing, retry: {max: 1, errors: [run.failed], every: 1s, jitter: false}}\n"
    parent = await begin(runtime, "failing", body=retried)
    await until(lambda: is_now(runtime, parent, "failed"))
    assert await is_there(runtime, child_of(parent, 1), "failed")
    assert await is_there(runtime, child_of(parent, 2), "failed")


RESUMED = "steps:\n  - {id: sub, run: noted}\noutput: ${{ steps.sub.output }}\n"
NOTED = TOOLS + "steps:\n  - {id: first, call: fx.note, with: {n: 1}}\n  - {id: look, call: fx.gated}\n"


@pytest.mark.parametrize("dies", [False, True])
async def test_a_retry_goes_on_in_the_child_whoever_dies_meanwhile(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    real, deaths = outbox.delete_message, []

    async def die(connection: Any, message: outbox.OutboxMessage) -> bool:
        if not dies or message.kind in deaths:
            return await real(connection, message)
        deaths.append(message.kind)
        await connection.execute("UPDATE outbox SET due_at = now()")
        raise ConnectionError("the process died")

    runtime = await make(performs=True)
    await publish(runtime, "noted", NOTED)
    parent = await begin(runtime, "echo", body=RESUMED)
    child = child_of(parent)
    await until(lambda: len(effects.begun) == 1)
    await runtime.committer.submit(child, LOCAL_TENANT, c.Stop(by="user:op"))
    await until(lambda: is_now(runtime, parent, "failed"))
    assert await is_there(runtime, child, "stopped")
    monkeypatch.setattr(outbox, "delete_message", die)
    await runtime.committer.submit(parent, LOCAL_TENANT, c.Retry(by="user:op"))
    await until(lambda: len(effects.begun) == 2)
    effects.gate.set()
    await until(lambda: is_now(runtime, parent, "finished"))
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2, "no other child was started"
    assert [(run, attempt) for run, _, attempt in effects.begun] == [(str(child), 1), (str(child), 2)]
    assert await eye.fetchval("SELECT count(*) FROM effects") == 1


async def test_a_retry_starts_no_child_beside_those_that_failed_or_were_cut_off(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    await publish(runtime, "noted", NOTED)
    both = "steps:\n  - parallel: {one: [{id: sub, run: noted}], two: [{id: other, run: failing}]}\n"
    await publish(runtime, "failing", CHILDREN["failing"])
    parent = await begin(runtime, "echo", body=both)
    await until(lambda: is_now(runtime, parent, "failed"))
    await runtime.committer.submit(parent, LOCAL_TENANT, c.Retry(by="user:op"))
    await until(lambda: is_now(runtime, parent, "failed"))
    children = [row["status"] for row in await eye.fetch("SELECT status FROM runs WHERE parent_id = $1", parent)]
    assert len(children) == 2, "both goes on with the two that it had"


async def test_a_child_has_the_latest_version_of_its_parents_start(make: Make) -> None:
    runtime = await make(performs=True)
    asked_first = "steps:\n" + CHILDREN["asking"].partition("\n")[2].partition("output")[0]
    asked_first += "  - {id: sub, run: echo, with: {value: x}}\noutput: ${{ steps.sub.output }}\n"
    parent = await begin(runtime, "echo", body=asked_first)
    state = await state_of(runtime, parent)
    await publish(runtime, "echo", CHILDREN["failing"], version=2)
    await ask(runtime, parent, answer(await open_pending(runtime, parent)))
    await until(lambda: is_now(runtime, parent, "finished"))
    child = await state_of(runtime, child_of(parent))
    assert (child.version, child.sha256) == (1, state.pins["echo"].sha256)


async def test_grandchildren_are_pinned_when_the_outermost_run_starts(make: Make) -> None:
    runtime = await make(performs=True)
    await publish(runtime, "echo", CHILDREN["echo"])
    await publish(runtime, "middle", PARENT.format(child="echo@1", args="{value: deep}"))
    parent = await begin(runtime, "echo", body=PARENT.format(child="middle", args="{}"))
    await until(lambda: is_now(runtime, parent, "finished"))
    state = await state_of(runtime, parent)
    assert sorted(state.pins) == ["echo@1", "middle"]
    assert state.output == "deep"
    middle = await state_of(runtime, child_of(parent))
    assert middle.pins == state.pins
    grandchild = await state_of(runtime, child_of(child_of(parent)))
    assert grandchild.parent is not None
    assert grandchild.parent.depth == 2


async def test_publishing_names_an_unpublished_child_unless_it_is_itself(make: Make) -> None:
    runtime = await make()
    await publish(runtime, "echo", CHILDREN["echo"])
    with pytest.raises(DefinitionError) as refused:
        await publish(runtime, "parent", PARENT.format(child="ecko", args="{}"))
    (finding,) = refused.value.findings
    assert (finding.code, finding.severity) == ("run.unknown", "error")
    assert "did you mean `echo`" in finding.message
    with pytest.raises(DefinitionError, match="echo@2"):
        await publish(runtime, "parent", PARENT.format(child="echo@2", args="{}"))
    await publish(runtime, "again", PARENT.format(child="again", args="{}"))


async def test_a_run_that_runs_itself_for_ever_ends_at_the_eighth_generation(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    plan = await publish(runtime, "again", PARENT.format(child="again", args="{}"))
    run_id = uuid4()
    start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, start)
    await until(lambda: is_now(runtime, run_id, "failed"))
    assert await eye.fetchval("SELECT count(*) FROM runs") == 9


async def test_a_commit_of_unknown_outcome_starts_one_child(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, broken = commits.commit, asyncio.Event()

    async def commit(connection: Any, entries: Any, *rest: Any) -> Any:
        done = await real(connection, entries, *rest)
        if any(entry.outbox for entry in entries) and not broken.is_set():
            broken.set()
            raise ConnectionResetError("the answer was lost")
        return done

    monkeypatch.setattr(commits, "commit", commit)
    runtime = await make(performs=True)
    assert isinstance(runtime.committer, Committer)
    parent = await begin(runtime, "echo", "{value: hello}")
    await until(lambda: is_now(runtime, parent, "finished"))
    assert broken.is_set()
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2


async def test_publishing_checks_what_is_given_to_a_published_child(make: Make) -> None:
    runtime = await make(performs=True)
    await publish(
        runtime,
        "takes_text",
        "input: {type: object, required: [text], properties: {text: {type: string}}}\nsteps: [{say: hi}]\n",
    )
    with pytest.raises(DefinitionError, match="has no argument `txt`; did you mean `text`"):
        await publish(runtime, "gives_more", "steps: [{run: takes_text, with: {txt: a}}]\n")
    await publish(runtime, "gives_text", "steps: [{run: takes_text, with: {text: a}}]\n")


# --- runs that are left alone ---------------------------------------------------------------------------------------

DETACHING = (
    "steps:\n  - {id: sub, run: CHILD, detach: true, with: ARGS}\n  - {id: after, call: fx.gated}\n"
    "output: ${{ steps.sub.output.run_id }}\n"
)


def detaching(child: str, args: str = "{}") -> str:
    return TOOLS + DETACHING.replace("CHILD", child).replace("ARGS", args)


async def test_a_detached_run_outlives_the_run_that_started_it(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "asking", body=detaching("asking"))
    await until(lambda: len(effects.begun) == 1)  # the step behind it
    child = child_of(parent)
    row = require(await run_lists.get_run(runtime.database.api, LOCAL_TENANT, child))
    assert (row.parent_id, row.thread_id, row.started_by) == (None, str(child), "user:local")
    await ask(runtime, parent, c.Stop(by="user:op"))
    effects.gate.set()
    await until(lambda: is_now(runtime, parent, "stopped"))
    await until(lambda: is_now(runtime, child, "waiting"))
    await ask(runtime, child, answer(await open_pending(runtime, child)))
    await until(lambda: is_now(runtime, child, "finished"))
    await until(lambda: nothing_on_its_way(eye))
    assert len(await check_all(eye)) == 2


async def test_a_detached_run_whose_input_does_not_fit_fails_its_step(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    parent = await begin(runtime, "echo", body=detaching("echo", "{value: '${{ dyn(1) }}'}"))
    await until(lambda: is_now(runtime, parent, "failed"))
    error = require((await state_of(runtime, parent)).error)
    assert error.cause is not None
    assert (error.code, error.cause.code) == ("run.failed", "input.invalid")
    assert await eye.fetchval("SELECT count(*) FROM runs") == 1
    await until(lambda: nothing_on_its_way(eye))


async def test_who_dies_after_a_detached_run_was_started_starts_no_second_one(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deaths = Committer.submit, []

    async def die(self: Committer, run_id: UUID, tenant: UUID, command: c.Command, **more: Any) -> Any:
        if isinstance(command, c.ChildEnded) and not deaths:
            deaths.append(run_id)
            await eye.execute("UPDATE outbox SET due_at = now()")
            raise ConnectionError("the process died")
        return await real(self, run_id, tenant, command, **more)

    monkeypatch.setattr(Committer, "submit", die)
    runtime = await make(performs=True)
    effects.gate.set()
    parent = await begin(runtime, "asking", body=detaching("asking"))
    await until(lambda: is_now(runtime, parent, "finished"))
    assert deaths == [parent]
    assert await eye.fetchval("SELECT count(*) FROM runs") == 2
    assert (await state_of(runtime, parent)).output == str(child_of(parent))


async def test_no_run_ends_before_it_was_created(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    plan = await publish(runtime, "short", "steps:\n  - {say: hi}\n")
    run_id = uuid4()
    start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
    await runtime.starts.start(LOCAL_TENANT, plan, start)
    assert await is_now(runtime, run_id, "finished")
    assert await eye.fetchval("SELECT ended_at >= created_at FROM runs WHERE id = $1", run_id)
