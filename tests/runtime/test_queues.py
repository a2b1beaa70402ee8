"""Workers perform the runs of their queues, take no more than they have places for, and hand on what is not theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.definition.plan import Plan, Step
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.runtime.base.queue_selection import QueueSelection, parse_queues
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.worker.concurrency import ConcurrencyPlaces
from hai_flow.settings import Settings, SettingsError
from hai_flow.steps.runner import Attempt, Stream
from hai_flow.store.messaging import hints
from hai_flow.store.runs import leases
from tests.runtime.conftest import ASKING, ECHO, GATED, TOOLS, Connection, Make, answer, is_now, open_pending, start
from tests.runtime.test_worker import hands, some_turns
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.waiting import until

GPU = "queue: gpu\n"
LONG = {"poll_seconds": 30.0}  # only a hint makes somebody look


@pytest.mark.parametrize(
    ("given", "names", "every", "places"),
    [
        (["default"], ("default",), False, {}),
        (["gpu=2", "default"], ("gpu", "default"), False, {"gpu": 2}),
        (["*"], (), True, {}),
        (["*", "gpu=1"], ("gpu",), True, {"gpu": 1}),
    ],
)
def test_what_is_served(given: list[str], names: Sequence[str], every: bool, places: dict[str, int]) -> None:
    assert parse_queues(given) == QueueSelection(tuple(names), every, places)


@pytest.mark.parametrize("wrong", ["", "Gpu", "gpu=0", "gpu=", "gpu=x", "*=3", "a b", "gpu=10001", "x" * 64])
def test_what_can_t_be_served_is_a_sentence(wrong: str) -> None:
    with pytest.raises(ValueError, match="expected the name of a queue"):
        parse_queues([wrong])


def test_too_many_queues_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1,000 queues, found 2,000; serve every queue"):
        parse_queues([f"q{number}" for number in range(2000)])


def test_the_settings_say_where_the_mistake_is() -> None:
    with pytest.raises(SettingsError, match="HAI_FLOW_QUEUES: expected the name of a queue"):
        Runtime("postgresql://nowhere/x", Settings(queues=("GPU",)), performs=True)


async def held_by(eye: Connection, run_id: UUID) -> int | None:
    return await eye.fetchval("SELECT worker FROM runs WHERE id = $1", run_id)


async def test_a_run_waits_for_a_worker_of_its_queue(make: Make, eye: Connection) -> None:
    plain = await make(performs=True)
    serving = await make()
    run_id = (await start(serving, GPU + ECHO, input={"value": "x"})).run_id
    other = (await start(serving, ECHO, input={"value": "y"})).run_id
    await until(lambda: is_now(plain, other, "finished"))
    assert await held_by(eye, run_id) is None
    assert (await leases.attendance(eye)).unserved == ["gpu"]
    gpu = await make(performs=True, queues=("gpu",))
    await until(lambda: is_now(gpu, run_id, "finished"))
    assert (await leases.attendance(eye)).unserved == []


async def test_a_process_starting_a_run_of_an_unserved_queue_leaves_it(make: Make, eye: Connection) -> None:
    gpu = await make(performs=True, queues=("gpu",), **LONG)
    plain = await make(performs=True)
    run_id = (await start(plain, GPU + ECHO, input={"value": "x"})).run_id
    await until(lambda: is_now(plain, run_id, "finished"))
    workers = await eye.fetch("SELECT id, queues FROM workers ORDER BY id")
    assert [list(row["queues"]) for row in workers] == [["gpu"], ["default"]]
    assert hands(gpu).id == workers[0]["id"]


async def test_a_hint_names_the_queue_and_wakes_none_but_its_workers(make: Make, eye: Connection) -> None:
    heard: list[str] = []
    gpu = await make(performs=True, queues=("gpu",), **LONG)
    await gpu.database.listen(hints.HINT_CHANNEL, heard.append)
    serving = await make()
    run_id = (await start(serving, GPU + ECHO, input={"value": "x"})).run_id
    await until(lambda: is_now(serving, run_id, "finished"))
    assert "due:gpu" in heard
    other = (await start(serving, ECHO, input={"value": "x"})).run_id
    await until(lambda: "due" in heard)
    await some_turns(gpu)
    assert await held_by(eye, other) is None


CHILD = "hai: flow/v1\nname: small\nversion: 1\nqueue: gpu\n" + TOOLS + "steps:\n  - {id: wait, call: fx.gated}\n"


async def test_a_child_run_waits_in_the_queue_of_its_own_workflow(make: Make, eye: Connection) -> None:
    plain = await make(performs=True)
    await plain.catalog.publish(LOCAL_TENANT, CHILD.encode())
    effects.gate.set()
    run_id = (await start(plain, "steps:\n  - {id: kid, run: small}\n")).run_id
    await until(lambda: eye.fetchval("SELECT count(*) FROM runs WHERE parent_id = $1 AND wake_at IS NOT NULL", run_id))
    queues = {row["queue"]: row["worker"] for row in await eye.fetch("SELECT queue, worker FROM runs")}
    assert queues["gpu"] is None
    gpu = await make(performs=True, queues=("gpu",))
    await until(lambda: is_now(gpu, run_id, "finished"))


MOVES = (
    "hai: flow/v1\nname: moves\nversion: VERSION\nqueue: QUEUE\n" + TOOLS + ASKING + "  - {id: wait, call: fx.gated}\n"
)


async def publish(runtime: Runtime, version: int, queue: str) -> Plan:
    text = MOVES.replace("VERSION", str(version)).replace("QUEUE", queue)
    return (await runtime.catalog.publish(LOCAL_TENANT, text.encode()))[1]


async def test_a_run_waiting_while_its_queue_is_renamed_moves_to_the_new_one(make: Make, eye: Connection) -> None:
    old = await make(performs=True)
    command = c.Start(run_id=uuid4(), thread_id="t", requester="user:ann", input={})
    run_id = (await old.starts.start(LOCAL_TENANT, await publish(old, 1, "default"), command)).run_id
    move = c.Migrate(to=await publish(old, 2, "renamed"), by="user:op")
    await old.committer.submit(run_id, LOCAL_TENANT, move)
    await old.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(old, run_id)))
    row = await eye.fetchrow("SELECT queue, worker, wake_at <= now() AS due FROM runs WHERE id = $1", run_id)
    assert dict(row or {}) == {"queue": "renamed", "worker": None, "due": True}
    effects.gate.set()
    await make(performs=True, queues=("renamed",))
    await until(lambda: is_now(old, run_id, "finished"))


async def test_a_worker_claims_as_many_runs_as_it_has_places_for(make: Make, eye: Connection) -> None:
    serving = await make()
    run_ids = [(await start(serving, GATED)).run_id for _ in range(5)]
    first = await make(performs=True, concurrency=2)
    await until(lambda: len(effects.begun) == 2)
    await some_turns(first)
    assert (hands(first).held, hands(first).attempts_waiting) == (2, 0)
    second = await make(performs=True, concurrency=3)
    await until(lambda: len(effects.begun) == 5)
    assert (hands(first).held, hands(second).held) == (2, 3)
    effects.gate.set()
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(serving, run_id, "finished"))


async def test_a_freed_place_goes_to_the_next_run_without_a_poll(make: Make) -> None:
    serving = await make()
    run_ids = [(await start(serving, ECHO, input={"value": "x"})).run_id for _ in range(6)]
    worker = await make(performs=True, concurrency=1, **LONG)
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(worker, run_id, "finished"))


async def test_no_more_is_claimed_before_half_of_the_last_claim_is_here(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = await make()
    run_ids = [(await start(serving, ECHO, input={"value": "x"})).run_id for _ in range(60)]
    claimed: set[UUID] = set()
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "refresh", lambda self, run_id: claimed.add(run_id))
        worker = await make(performs=True, **LONG)
        await until(lambda: len(claimed) == 50)
        await some_turns(worker)
        assert (hands(worker).coming, len(claimed)) == (50, 50)
    for run_id in claimed:
        worker.committer.refresh(run_id)
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(worker, run_id, "finished"))


async def test_attempts_of_one_queue_are_bounded_and_others_go_on(make: Make, eye: Connection) -> None:
    serving = await make()
    for _ in range(4):
        await start(serving, GPU + GATED)
    worker = await make(performs=True, queues=("gpu=2", "default"))
    await until(lambda: len(effects.begun) == 2)
    other = (await start(serving, ECHO, input={"value": "x"})).run_id
    await until(lambda: is_now(worker, other, "finished"))
    await some_turns(worker)
    assert len(effects.begun) == 2
    assert hands(worker).held == 2
    effects.gate.set()
    await until(lambda: len(effects.begun) == 4)


async def test_a_worker_of_every_queue_serves_one_it_has_never_heard_of(make: Make) -> None:
    worker = await make(performs=True, queues=("*", "slow=1"))
    serving = await make()
    bodies = [f"queue: q{number}\n{ECHO}" for number in range(3)] + [f"queue: slow\n{ECHO}", ECHO]
    run_ids = [(await start(serving, body, input={"value": "x"})).run_id for body in bodies]
    for run_id in run_ids:
        await until(lambda run_id=run_id: is_now(worker, run_id, "finished"))


async def test_a_full_queue_keeps_no_other_one_waiting(make: Make, eye: Connection) -> None:
    effects.gate.set()
    serving = await make()
    for _ in range(5):
        await start(serving, "queue: full\n" + GATED)
    few = (await start(serving, GPU + GATED)).run_id
    await make(performs=True, queues=("full", "gpu"), concurrency=1)
    await until(lambda: len(effects.begun) == 6)
    assert [run_id for run_id, _, _ in effects.begun].index(str(few)) == 1, "each has its turn"


async def test_idle_runs_are_handed_on_at_once_when_a_worker_drains(make: Make, eye: Connection) -> None:
    """One attempt runs on for as long as the grace is; the runs that wait here for a place wait for nothing."""
    far: dict[str, Any] = {"lease_seconds": 600.0, "heartbeat_seconds": 100.0, "shutdown_seconds": 60.0}
    first = await make(performs=True, concurrency=1, **far)
    busy = (await start(first, GATED)).run_id
    await until(lambda: effects.begun)
    waits = [(await start(first, ECHO, input={"value": "x"})).run_id for _ in range(3)]
    assert [await held_by(eye, run_id) for run_id in waits] == [hands(first).id] * 3
    second = await make(performs=True, **far, **LONG)
    ended = asyncio.create_task(first.stop())
    for run_id in waits:
        await until(lambda run_id=run_id: is_now(second, run_id, "finished"))
    assert not ended.done()
    assert await eye.fetchval("SELECT draining_since IS NOT NULL FROM workers ORDER BY id LIMIT 1")
    assert await held_by(eye, busy) is not None
    effects.gate.set()
    await ended
    await until(lambda: is_now(second, busy, "finished"))
    for run_id in [busy, *waits]:
        assert not any(isinstance(event, e.StepRetried) for event in await log_of(eye, run_id)), "nothing was lost"


async def test_a_run_whose_attempt_ends_in_a_drain_is_handed_on_with_its_next(make: Make, eye: Connection) -> None:
    far: dict[str, Any] = {"lease_seconds": 600.0, "heartbeat_seconds": 100.0, "shutdown_seconds": 60.0}
    first = await make(performs=True, **far)
    second_step = TOOLS + "steps:\n  - {id: a, call: fx.gated}\n  - {id: b, call: fx.gated}\n"
    run_id = (await start(first, second_step)).run_id
    await until(lambda: effects.begun)
    second = await make(performs=True, **far, **LONG)
    ended = asyncio.create_task(first.stop())
    await until(lambda: eye.fetchval("SELECT draining_since IS NOT NULL FROM workers ORDER BY id LIMIT 1"))
    assert not ended.done()
    effects.gate.set()
    await until(lambda: is_now(second, run_id, "finished"))
    await ended
    assert [path for _, path, _ in effects.begun] == ["a", "b"]
    assert not any(isinstance(event, e.StepRetried) for event in await log_of(eye, run_id))


class Resting:
    """Rests until it may end. `begun`: how many attempts have."""

    def __init__(self) -> None:
        self.begun, self.ends = 0, False

    async def perform(self, attempt: Attempt, stream: Stream) -> str:
        self.begun += 1
        while not self.ends:
            await attempt.rest(0.01)
        return "rested"

    def fault(self, step: Step, *, from_disk: bool = False) -> None:
        return None

    doubt = fault

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("queues", [("gpu=1",), ("gpu",)])
async def test_an_attempt_that_rests_leaves_its_place_to_others(make: Make, queues: Sequence[str]) -> None:
    runtime = await make(performs=True, queues=queues)
    hands(runtime)._places = ConcurrencyPlaces(1, runtime.served.places)
    resting = runtime.registry._runners["a2a"] = Resting()
    agent = f"{GPU}tools: {{far: {{a2a: 'https://far.example'}}}}\nsteps: [{{id: job, call: far, with: {{text: x}}}}]\n"
    runs = [(await start(runtime, agent)).run_id for _ in range(2)]
    await until(lambda: resting.begun == 2)
    echo = (await start(runtime, GPU + ECHO, input={"value": "x"})).run_id
    await until(lambda: is_now(runtime, echo, "finished"))
    await runtime.committer.submit(runs.pop(), LOCAL_TENANT, c.Stop(by="user:op"))
    await until(lambda: hands(runtime).attempts == 1)
    resting.ends = True
    for run_id in runs:
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
    assert hands(runtime)._places.take("gpu")
    assert not hands(runtime)._places.take("gpu")
    assert hands(runtime).load.attempts == 0
