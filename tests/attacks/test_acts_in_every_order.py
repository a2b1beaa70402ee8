"""Two acts at two processes, in every order: one is held before each of its statements, the other one comes whole in
between. Whatever the order, both are answered, and what stands at the end is what one order of the two would leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import pytest

from hai_flow.api.app import create_app
from hai_flow.runtime.ops.verify import VerifiedRuns, Verifying, verify
from hai_flow.runtime.retention.archive import Archive, restore
from hai_flow.runtime.retention.policy import Retention
from hai_flow.runtime.retention.prune import Pruned, Pruning
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.postgres.database import SETTINGS, Deadlines, Session, connect
from tests.attacks.test_two_acts_at_once import all_at_rest, has_paid, is_now
from tests.runtime.conftest import Connection, Make
from tests.support.hai_client import unique
from tests.support.interleaving import Held, names_any, sessions_of
from tests.support.server import YAML
from tests.support.waiting import until

FLOW: Final = """\
hai: flow/v1
name: {name}
version: 1
on_message: {on_message}
concurrency: {{key: "${{{{ input.key }}}}", limit: 1}}
input: {{type: object, properties: {{key: {{type: string, default: k}}}}}}
tools:
  fx: {{python: tests.support.effects, effect: write}}
  look: {{python: tests.support.effects, effect: read}}
steps:
  - {{id: hold, call: fx.echo, with: {{value: held}}, undo: {{call: fx.echo, with: {{value: released}}}}}}
  - {{id: sure, approve: {{title: Pay?, from: anyone}}}}
  - {{id: pay, call: fx.echo, with: {{value: paid}}}}
"""
UNDO: Final = ", undo: {{call: fx.echo, with: {{value: released}}}}"
FAILS: Final = "  - {{id: late, call: look.breaks}}\n"
POINTS_MAX: Final = 60

Answer: TypeAlias = "httpx2.Response | Pruned"


class AtOnce(Retention, frozen=True, kw_only=True):
    """What has ended is removed."""

    def remove_after(self, tenant: str, workflow: str) -> timedelta:
        return timedelta(0)

    @property
    def shortest(self) -> timedelta:
        return timedelta(0)


@dataclass
class World:
    """Two processes over one database, and a run that waits at one of them for an approval."""

    http: tuple[httpx2.AsyncClient, httpx2.AsyncClient]
    runtimes: tuple[Runtime, Runtime]
    pruner: Session
    eye: Connection
    archive: Archive
    flow: str = FLOW
    on_message: str = "reject"
    name: str = ""
    thread: str = ""
    run: str = ""
    pending: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    async def publish(self) -> None:
        self.name = unique("orders").replace("-", "_").lower()
        text = self.flow.format(name=self.name, on_message=self.on_message)
        answer = await self.http[0].post("/v1/workflows", content=text, headers=YAML)
        assert answer.status_code == 201, answer.text

    async def begin(self, *, status: str = "waiting") -> None:
        self.thread = unique("thread")
        answer = await self.start(self.http[0])
        assert answer.status_code == 201, answer.text
        self.run = answer.json()["id"]
        await until(lambda: is_now(self.http[0], self.run, "waiting"))
        pendings = (await self.http[0].get("/v1/pendings", params={"run_id": self.run})).json()["items"]
        self.pending = pendings[0]["id"]
        if status != "waiting":
            await self.approve(self.http[0])
            await until(lambda: is_now(self.http[0], self.run, status))
            await self.demand_nothing_held()

    async def start(self, http: httpx2.AsyncClient) -> httpx2.Response:
        body = {"workflow": self.name, "thread_id": self.thread, "input": {"key": self.thread}}
        return await http.post("/v1/runs", json=body)

    async def approve(self, http: httpx2.AsyncClient) -> httpx2.Response:
        return await http.post(f"/v1/pendings/{self.pending}/decide", json={"decision": "approve"})

    async def act(self, http: httpx2.AsyncClient, act: str, body: Any = None) -> httpx2.Response:
        return await http.post(f"/v1/runs/{self.run}/{act}", json=body)

    async def say(self, http: httpx2.AsyncClient) -> httpx2.Response:
        """A message into the thread, over HAI."""
        said = [{"id": unique("m"), "role": "user", "content": "go"}]
        body = {"threadId": self.thread, "runId": unique("r"), "messages": said, "tools": []}
        return await http.post("/awp", json={**body, "forwardedProps": {"workflow": self.name}})

    async def prune(self, _: httpx2.AsyncClient | None = None) -> Pruned:
        pruning = Pruning(
            AtOnce(hai="retention/v1", pack="never"), {LOCAL_TENANT: "default"}, self.archive, "user:op", rest=0
        )
        return [each async for each in pruning.run(self.pruner)][-1]

    @property
    def ids(self) -> list[str]:
        return [each for each in (self.run, self.thread, self.name, self.pending) if each]

    def sessions(self, of_prune: bool) -> list[object]:
        if of_prune:
            return [self.pruner]
        database = self.runtimes[0].database
        return sessions_of(database.engine, database.api, database._walled)

    async def runs(self) -> list[dict[str, Any]]:
        items = (await self.http[0].get("/v1/runs", params={"thread_id": self.thread})).json()["items"]
        return list(items)

    async def at_rest(self) -> None:
        await until(lambda: all_at_rest(self.http[0], self.thread))

    async def verify(self) -> None:
        found = [VerifiedRuns(), *[each async for each in verify(self.pruner, Verifying())]][-1]
        assert found.violations == []

    async def demand_nothing_held(self) -> None:
        """Nothing holds a slot, waits for one, or is on its way, but the runs of the thread that have not ended."""
        active = [each["id"] for each in await self.runs() if each["status"] not in ("finished", "failed", "stopped")]

        async def settled() -> bool:
            rows = await self.eye.fetch("SELECT run_id FROM slots UNION SELECT run_id FROM slot_waiters")
            sent = await self.eye.fetchval("SELECT count(*) FROM outbox WHERE due_at < now() + interval '1 minute'")
            return {str(row[0]) for row in rows} <= set(active) and not sent

        await until(settled)


@pytest.fixture
async def world(make: Make, eye: Connection, database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    runtimes = await make(performs=True), await make(performs=True)
    clients = []
    for runtime in runtimes:
        transport = httpx2.ASGITransport(app=create_app(Settings(publish=True), runtime), client=("127.0.0.1", 1))
        clients.append(httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60))
    pruner = await connect(database_url, Deadlines(), SETTINGS)
    async with clients[0] as one, clients[1] as two:
        yield World((one, two), runtimes, pruner, eye, Archive(str(tmp_path)))
    await pruner.close()


Act: TypeAlias = Callable[[World, httpx2.AsyncClient], Awaitable[Any]]


async def in_every_order(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    first: Act,
    second: Act,
    check: Callable[[Any, Any], Awaitable[None]],
    *,
    begin: Callable[[], Awaitable[None]],
) -> int:
    """How many statements the first act has."""
    for at in range(1, POINTS_MAX):
        await begin()
        held = Held[Any, Any](
            lambda: world.sessions(first is prune),
            is_step_of_prune if first is prune else lambda query, values: names_any(world.ids, values),
            at,
        )
        one, two = await held.run(
            monkeypatch, lambda: first(world, world.http[0]), lambda: second(world, world.http[1])
        )
        for answer in (one, two):
            if isinstance(answer, httpx2.Response):
                assert answer.status_code < 500, (at, answer.text)
        try:
            await check(one, two)
        except AssertionError as error:
            error.add_note(f"statement {at}: {told(one)} | {told(two)}")
            raise
        if not held.reached:
            return at - 1
    raise AssertionError(f"the act has more than {POINTS_MAX} statements")


def told(answer: Any) -> str:
    return f"{answer.status_code} {answer.text[:300]}" if isinstance(answer, httpx2.Response) else str(answer)


# --- the acts ---------------------------------------------------------------------------------------------------------


async def approve(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await world.approve(http)


async def retry(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    """Until it has failed again."""
    answer = await world.act(http, "retry")
    await world.at_rest()
    await world.demand_nothing_held()
    return answer


async def skip(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    answer = await world.act(http, "skip", {"step": "late"})
    await world.at_rest()
    await world.demand_nothing_held()
    return answer


async def fork(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await world.act(http, "fork", {"step": "sure"})


async def fork_whole(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await world.act(http, "fork", {"step": "hold"})


async def give_feedback(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    path = f"/v1/threads/{world.thread}/feedback/pendings/{world.pending}"
    return await http.put(path, json={"rating": "down", "comment": unique("Wrong.")})


async def begin_anew(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await world.start(http)


async def say(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await world.say(http)


async def stop(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await world.act(http, "stop")


async def prune(world: World, http: httpx2.AsyncClient) -> Pruned:
    return await world.prune()


async def retire(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await http.post(f"/v1/workflows/{world.name}@1/retire")


async def freeze(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
    return await http.post("/v1/freezes", json={"scope": "workflow", "name": world.name, "reason": "a drill"})


STEPS_OF_PRUNE: Final = (
    "WITH RECURSIVE kin", "SELECT now()", "SELECT EXISTS (SELECT FROM outbox", "REPEATABLE READ", "COMMIT",
    "INSERT INTO retired_runs", "INSERT INTO slots", "FOR UPDATE", "DELETE FROM slots", "DELETE FROM runs",
)  # fmt: skip
"""What sees, or changes, something else than the statement before it."""


def is_step_of_prune(query: str, _: tuple[Any, ...]) -> bool:
    return any(step in query for step in STEPS_OF_PRUNE)


# --- archives ---------------------------------------------------------------------------------------------------------


def named(act: Act) -> str:
    return act.__name__


@pytest.mark.parametrize("act", [retry, fork_whole, give_feedback, begin_anew], ids=named)
async def test_what_is_answered_between_two_steps_of_an_archive_is_in_the_last_one(
    world: World, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    await archive_in_every_order(world, monkeypatch, prune, act)


@pytest.mark.parametrize("act", [approve, retry, skip, fork, fork_whole, give_feedback, begin_anew], ids=named)
async def test_a_thread_is_archived_and_removed_between_two_steps_of_who_acts_on_it(
    world: World, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    await archive_in_every_order(world, monkeypatch, act, prune)


async def archive_in_every_order(world: World, monkeypatch: pytest.MonkeyPatch, held: Act, other: Act) -> None:
    act = other if held is prune else held
    failing = act in (retry, skip, fork)
    if failing:
        world.flow = FLOW.replace(UNDO, "") + FAILS
    await world.publish()

    async def check(one: Any, two: Any) -> None:
        answer = one if isinstance(one, httpx2.Response) else two
        if not answer.is_success:
            assert answer.status_code in (404, 409), answer.text
        await stop_all(world)
        before = await logged(world)
        await until(lambda: is_removed(world))
        places = await world.eye.fetch("SELECT DISTINCT place FROM retired_runs WHERE thread_id = $1", world.thread)
        for (place,) in places:
            await restore(world.pruner, world.archive, place, "user:op")
        after = await logged(world)
        assert before.items() <= after.items()
        if answer.is_success:
            await demand_kept(world, act, answer)
        await world.verify()
        await world.prune()

    async def begin() -> None:
        status = "waiting" if act is approve else "failed" if failing else "finished"
        await world.begin(status=status)

    statements = await in_every_order(world, monkeypatch, held, other, check, begin=begin)
    assert statements >= (2 if held is act else 10)


async def stop_all(world: World) -> None:
    await world.at_rest()
    for each in await world.runs():
        if each["status"] == "waiting":
            await world.http[0].post(f"/v1/runs/{each['id']}/stop")
    await world.at_rest()


async def is_removed(world: World) -> bool:
    """All of it has ended, so it goes as soon as nothing refers to it any more."""
    await world.prune()
    return await runs_of(world) == {}


async def runs_of(world: World) -> dict[str, int]:
    rows = await world.eye.fetch("SELECT id, seq FROM runs WHERE thread_id = $1", world.thread)
    return {str(row["id"]): row["seq"] for row in rows}


async def logged(world: World) -> dict[str, tuple[int, bytes]]:
    rows = await world.eye.fetch("SELECT id, seq, head FROM runs WHERE thread_id = $1", world.thread)
    return {str(row["id"]): (row["seq"], row["head"]) for row in rows}


async def demand_kept(world: World, act: Act, answer: httpx2.Response) -> None:
    """What was answered with yes is in what came back."""
    body = answer.json()
    runs = {each["id"] for each in await world.runs()}
    if act in (fork, fork_whole, begin_anew):
        assert body["id"] in runs
    elif act is give_feedback:
        said = await world.eye.fetch("SELECT comment FROM feedback WHERE thread_id = $1", world.thread)
        assert [row[0] for row in said] == [body["comment"]]
    elif act is approve:
        assert await has_paid(world.http[0], world.run)
    else:
        events = (await world.http[0].get(f"/v1/runs/{world.run}/events", params={"limit": 500})).json()["items"]
        assert any(each["type"] in ("run_retried", "run_resumed", "step_skipped") for each in events), events
