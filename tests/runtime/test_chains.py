"""The end of a run starts runs of other workflows, over a real database: once, whoever ended it and whoever dies."""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.runs import on_end_triggers
from hai_flow.errors import DefinitionError
from hai_flow.runtime.base import pulse
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.messaging import outbox, triggers
from tests.runtime.conftest import Make, is_now, nothing_on_its_way, state_of
from tests.support.waiting import until

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SOURCE = (
    "input: {type: object, properties: {order: {type: string, default: A1}, fails: {type: boolean, default: false}}}\n"
    "steps:\n  - {if: input.fails, fail: {message: No stock., code: stock}}\n  - {say: sold}\n"
    'output: {amount: 5, order: "${{ input.order }}"}\n'
)
AFTER = (
    "input: {type: object, properties: {said: {}}}\n"
    'triggers:\n  - run: {workflow: sale%s, input: {said: "${{ event.data }}"}}\nsteps:\n  - {say: done}\n'
)


async def publish(runtime: Runtime, name: str, body: str, version: int = 1) -> Any:
    source = f"hai: flow/v1\nname: {name}\nversion: {version}\n{body}"
    return (await runtime.catalog.publish(LOCAL_TENANT, source.encode()))[1]


async def begin(runtime: Runtime, plan: Any, input: Any = None, origin: e.Origin | None = None) -> UUID:
    run_id = uuid4()
    start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:ann", input=input or {}, origin=origin)
    await runtime.starts.start(LOCAL_TENANT, plan, start)
    return run_id


async def runs_of(eye: Connection, name: str) -> list[UUID]:
    return [row[0] for row in await eye.fetch("SELECT id FROM runs WHERE workflow_name = $1 ORDER BY place", name)]


async def test_the_end_of_a_run_starts_a_system_run_that_knows_the_outcome(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    plan = await publish(runtime, "sale", SOURCE)
    await publish(runtime, "after", AFTER % "")
    first = await begin(runtime, plan, {"order": "B2"})
    (run_id,) = await until(lambda: runs_of(eye, "after"))
    await until(lambda: is_now(runtime, run_id, "finished"))
    run = await state_of(runtime, run_id)
    assert (run.requester, run.trigger, run.thread_id) == ("system", "run", str(run_id))
    assert run.origin == e.Origin(str(first), depth=1)
    said = run.input["said"]
    assert (said["run_id"], said["workflow"], said["status"]) == (str(first), "sale", "finished")
    assert (said["output"], said["input"]["order"], said["error"]) == ({"amount": 5, "order": "B2"}, "B2", None)


@pytest.mark.parametrize(
    ("more", "fails", "starts"),
    [
        ("", True, False),
        (", on: [failed, stopped]", True, True),
        (", on: [failed, stopped]", False, False),
        (", match: event.data.output.amount > 9", False, False),
        (", match: event.data.output.amount == 5", False, True),
    ],
)
async def test_only_the_ends_that_a_trigger_wants_start_its_workflow(
    make: Make, eye: Connection, more: str, fails: bool, starts: bool
) -> None:
    runtime = await make(performs=True)
    plan = await publish(runtime, "sale", SOURCE)
    await publish(runtime, "after", AFTER % more)
    run_id = await begin(runtime, plan, {"fails": fails})
    await until(lambda: is_now(runtime, run_id, "finished", "failed"))
    await until(lambda: nothing_on_its_way(eye))
    assert len(await runs_of(eye, "after")) == starts


async def test_a_run_that_is_retried_ends_again(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    plan = await publish(runtime, "sale", SOURCE)
    await publish(runtime, "after", AFTER % ", on: [failed]")
    run_id = await begin(runtime, plan, {"fails": True})
    await until(lambda: runs_of(eye, "after"))
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Retry(by="user:op"))
    await until(lambda: is_now(runtime, run_id, "failed"))
    await until(lambda: nothing_on_its_way(eye))
    assert len(await runs_of(eye, "after")) == 2


async def test_who_dies_after_a_run_was_started_by_an_end_starts_no_second_one(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deaths = outbox.delete_message, []

    async def die(connection: Any, message: outbox.OutboxMessage) -> Any:
        if message.kind == on_end_triggers.ENDED and not deaths:
            deaths.append(message.kind)
            await connection.execute("UPDATE outbox SET due_at = now()")
            raise ConnectionError("the process died")
        return await real(connection, message)

    monkeypatch.setattr(outbox, "delete_message", die)
    runtime = await make(performs=True)
    plan = await publish(runtime, "sale", SOURCE)
    await publish(runtime, "after", AFTER % "")
    await begin(runtime, plan)
    await until(lambda: deaths)
    await until(lambda: nothing_on_its_way(eye))
    assert len(await runs_of(eye, "after")) == 1


async def test_who_does_not_know_which_ends_are_wanted_tells_of_all(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = await make()
    plan = await publish(publisher, "sale", SOURCE)
    await publish(publisher, "after", AFTER % "")

    async def away(*_: Any, **__: Any) -> Any:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(triggers, "workflows_with_end_triggers", away)
    monkeypatch.setattr(pulse, "due_work", away)
    other = await make(performs=True)
    await begin(other, plan)
    await until(lambda: runs_of(eye, "after"))


async def test_a_run_whose_end_nobody_wants_says_nothing_of_it(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    plan = await publish(runtime, "sale", SOURCE)
    sent: list[str] = []
    handle = runtime.delivery.handlers[on_end_triggers.ENDED]

    async def listen(message: outbox.OutboxMessage) -> None:
        sent.append(message.target)
        await handle(message)

    runtime.delivery.handlers[on_end_triggers.ENDED] = listen
    first = await begin(runtime, plan)
    await until(lambda: is_now(runtime, first, "finished"))
    await publish(runtime, "after", AFTER % "")
    second = await begin(runtime, plan)
    await until(lambda: runs_of(eye, "after"))
    assert sent == [str(second)]


async def test_a_chain_of_ends_comes_to_rest(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    plan = await publish(runtime, "sale", SOURCE)
    await publish(runtime, "after", AFTER % "")
    for depth in (on_end_triggers.CHAIN_MAX, on_end_triggers.CHAIN_MAX - 1):
        run_id = await begin(runtime, plan, origin=e.Origin(str(uuid4()), depth=depth))
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
    (started,) = await until(lambda: runs_of(eye, "after"))
    origin = (await state_of(runtime, started)).origin
    assert origin is not None
    assert (origin.run_id, origin.depth) == (str(run_id), on_end_triggers.CHAIN_MAX)
    await until(lambda: nothing_on_its_way(eye))
    assert len(await runs_of(eye, "after")) == 1


STARTED_BY = "triggers:\n  - run: {workflow: %s}\nsteps:\n  - {say: hi}\n"


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        ([("a", STARTED_BY % "a")], "never comes to rest"),
        (
            [("a", STARTED_BY % "b"), ("b", STARTED_BY % "c"), ("c", STARTED_BY % "a")],
            "the end of c starts b, the end of b starts a, the end of a starts c; take one of these out",
        ),
        (
            [("b", "steps:\n  - {say: hi}\n"), ("a", STARTED_BY % "b" + "  - {run: b}\n")],
            "a runs b, the end of b starts a; take one of these out",
        ),
        (
            [
                ("b", "steps:\n  - {say: hi}\n"),
                ("d", "steps:\n  - {run: b, detach: true}\n"),
                ("c", STARTED_BY % "b" + "  - {run: d}\n"),
            ],
            "c runs d, d runs b, the end of b starts c",
        ),
    ],
)
async def test_workflows_that_would_start_each_other_for_ever_are_not_published(
    make: Make, flows: list[tuple[str, str]], words: str
) -> None:
    runtime = await make()
    *before, last = flows
    for name, body in before:
        await publish(runtime, name, body)
    with pytest.raises(DefinitionError) as refused:
        await publish(runtime, *last)
    (finding,) = refused.value.findings
    assert finding.code == "trigger.circle"
    assert words in finding.message
