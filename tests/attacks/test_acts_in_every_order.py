"""Two acts at two processes, in every order: one is held before each of its statements, the other one comes whole in
between. Whatever the order, both are answered, and what stands at the end is what one order of the two would leave.

All tests have the same two processes over the same database, each a workflow and threads of its own in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import asyncpg
import httpx2
import pytest
import pytest_asyncio

from hai_flow.api.app import create_app
from hai_flow.api.requests.access import Access
from hai_flow.runtime.ops.verify import VerifiedRuns, Verifying, verify
from hai_flow.runtime.retention.archive import Archive, restore
from hai_flow.runtime.retention.policy import Retention
from hai_flow.runtime.retention.prune import Pruned, Pruning
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.people import rules
from hai_flow.store.postgres.database import SETTINGS, Deadlines, Session, connect
from tests.attacks.test_two_acts_at_once import all_at_rest, has_paid, is_now
from tests.runtime.conftest import Connection, runtimes_over
from tests.support import effects
from tests.support.examples import sample
from tests.support.hai_client import unique
from tests.support.interleaving import Held, names_any, sessions_of
from tests.support.mcp_caller import FORMS, Caller, accept
from tests.support.postgres import Server
from tests.support.server import YAML, expect
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
OTHERS: Final = "SELECT id FROM runs WHERE thread_id <> $1"
HOLDING: Final = f"""\
SELECT run_id FROM (SELECT run_id FROM slots UNION SELECT run_id FROM slot_waiters) AS holding
WHERE run_id NOT IN ({OTHERS})"""
ON_ITS_WAY: Final = f"""\
SELECT count(*) FROM outbox WHERE due_at < now() + interval '1 minute' AND run_id NOT IN ({OTHERS})"""
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
        expect(await self.http[0].post("/v1/workflows", content=text, headers=YAML), 201)

    async def begin(self, *, status: str = "waiting") -> None:
        self.thread = unique("thread")
        self.run = expect(await self.start(self.http[0]), 201).json()["id"]
        self.pending = await until(self.find_pending)  # a process that has not heard of a thaw yet holds it before
        if status != "waiting":
            await self.approve(self.http[0])
            await until(lambda: is_now(self.http[0], self.run, status))
            await self.demand_nothing_held()

    async def find_pending(self) -> str:
        items = (await self.http[0].get("/v1/pendings", params={"run_id": self.run})).json()["items"]
        return str(items[0]["id"]) if items else ""

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
        for each in await self.runs():
            verifying = Verifying(run_id=UUID(each["id"]))
            found = [VerifiedRuns(), *[each async for each in verify(self.pruner, verifying)]][-1]
            assert found.violations == []

    async def demand_nothing_held(self) -> None:
        """Nothing holds a slot, waits for one, or is on its way, but the runs of the thread that have not ended."""
        active = [each["id"] for each in await self.runs() if each["status"] not in ("finished", "failed", "stopped")]

        async def settled() -> bool:
            rows = await self.eye.fetch(HOLDING, self.thread)
            return {str(row[0]) for row in rows} <= set(active) and not await self.eye.fetchval(ON_ITS_WAY, self.thread)

        await until(settled)


@dataclass(frozen=True)
class Processes:
    """What all worlds share."""

    http: tuple[httpx2.AsyncClient, httpx2.AsyncClient]
    runtimes: tuple[Runtime, Runtime]
    pruner: Session
    eye: Connection


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(postgres_server: Server) -> AsyncIterator[Processes]:
    with postgres_server.database() as dsn:
        async with AsyncExitStack() as stack:
            eye = await asyncpg.connect(dsn)
            stack.push_async_callback(eye.close)
            await eye.execute(effects.LEDGER)
            pruner = await connect(dsn, Deadlines(), SETTINGS)
            stack.push_async_callback(pruner.close)
            make = await stack.enter_async_context(runtimes_over(dsn))
            runtimes = await make(performs=True), await make(performs=True)
            clients = []
            for runtime in runtimes:
                app = create_app(Settings(publish=True), runtime)
                transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
                client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60)
                clients.append(await stack.enter_async_context(client))
            yield Processes((clients[0], clients[1]), runtimes, pruner, eye)


@pytest.fixture
def world(processes: Processes, tmp_path: Path) -> World:
    return World(processes.http, processes.runtimes, processes.pruner, processes.eye, Archive(str(tmp_path)))


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
    """How many statements the first act has: each that differs in its text from those before."""
    places: set[str] = set()
    while len(places) < POINTS_MAX:
        await begin()
        held = Held[Any, Any](
            lambda: world.sessions(first is prune),
            is_step_of_prune if first is prune else lambda query, values: names_any(world.ids, values),
            places,
        )
        one, two = await held.run(
            monkeypatch, lambda: first(world, world.http[0]), lambda: second(world, world.http[1])
        )
        for answer in (one, two):
            if isinstance(answer, httpx2.Response):
                assert answer.status_code < 500, (len(places), answer.text)
        try:
            await check(one, two)
        except AssertionError as error:
            error.add_note(f"statement {len(places)}: {describe_answer(one)} | {describe_answer(two)}")
            raise
        if not held.reached:
            return len(places)
    raise AssertionError(f"the act has more than {POINTS_MAX} statements")


def describe_answer(answer: Any) -> str:
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


@pytest.mark.costly
@pytest.mark.parametrize("act", sample([retry, fork_whole, give_feedback, begin_anew], 2), ids=named)
async def test_an_answer_between_two_steps_of_an_archive_is_in_the_last_one(
    world: World, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    await archive_in_every_order(world, monkeypatch, prune, act)


@pytest.mark.costly
@pytest.mark.parametrize("act", [approve, retry, skip, fork, fork_whole, give_feedback, begin_anew], ids=named)
async def test_a_thread_is_archived_and_removed_between_two_steps_of_an_act(
    world: World, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    await archive_in_every_order(world, monkeypatch, act, prune)


async def archive_in_every_order(world: World, monkeypatch: pytest.MonkeyPatch, held: Act, other: Act) -> None:
    act = other if held is prune else held
    failing = act in (retry, skip, fork)
    if failing:
        world.flow = FLOW.replace(UNDO, "") + FAILS
    await world.publish()
    await world.prune()  # what other tests have left is none of the act's statements

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


# --- one run, one thread ----------------------------------------------------------------------------------------------


async def paid_runs(world: World) -> list[str]:
    return [each["id"] for each in await world.runs() if await has_paid(world.http[0], each["id"])]


@pytest.mark.costly
@pytest.mark.parametrize(("held", "other"), [(fork, approve), (approve, fork), (fork_whole, approve)], ids=named)
async def test_a_fork_and_an_answer_pay_once_whatever_comes_first(
    world: World, monkeypatch: pytest.MonkeyPatch, held: Act, other: Act
) -> None:
    await world.publish()

    async def check(one: httpx2.Response, two: httpx2.Response) -> None:
        answers = {held: one, other: two}
        forked, answered = answers[other if held is approve else held], answers[approve]
        await world.at_rest()
        assert {one.status_code, two.status_code} <= {200, 201, 404, 409}, (describe_answer(one), describe_answer(two))
        runs = await world.runs()
        assert len(runs) == 1 + (forked.status_code == 201)
        paid = await paid_runs(world)
        assert paid in ([], [world.run])
        if not forked.is_success:
            assert answered.is_success, "one of them comes through"
            assert paid == [world.run]
        await world.demand_nothing_held()
        await world.verify()

    assert await in_every_order(world, monkeypatch, held, other, check, begin=world.begin) >= 2


@pytest.mark.parametrize(
    ("held", "other", "on_message"),
    [
        *[(stop, begin_anew, way) for way in ("reject", "enqueue")],
        *[(begin_anew, stop, way) for way in ("reject", "enqueue")],
        *[(stop, say, way) for way in ("reject", "interrupt", "enqueue")],
        *[(say, stop, way) for way in ("reject", "interrupt")],
    ],
)
async def test_a_stop_and_a_beginning_leave_one_run_and_hold_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, held: Act, other: Act, on_message: str
) -> None:
    world.on_message = on_message
    await world.publish()

    async def check(one: httpx2.Response, two: httpx2.Response) -> None:
        stopped, begun = (one, two) if held is stop else (two, one)
        assert stopped.is_success or stopped.status_code == 409, describe_answer(stopped)
        await world.at_rest()
        runs = {each["id"]: each["status"] for each in await world.runs()}
        assert runs[world.run] == "stopped"
        assert await is_undone(world)
        active = [id for id, status in runs.items() if status == "waiting"]
        if begun.status_code in (200, 201):
            assert len(active) == 1, "what was taken begins"
            assert active != [world.run]
        else:
            assert begun.status_code in (409, 429), describe_answer(begun)
            assert active == []
        queued = (await world.http[0].get(f"/v1/threads/{world.thread}/queue")).json()
        assert queued.get("items", []) == []
        await world.demand_nothing_held()
        await world.verify()
        await stop_all(world)  # the run of a message has the same key in each thread

    assert await in_every_order(world, monkeypatch, held, other, check, begin=world.begin) >= 2


async def is_undone(world: World) -> bool:
    events = (await world.http[0].get(f"/v1/runs/{world.run}/events", params={"limit": 500})).json()["items"]
    return any("undo" in event["type"] for event in events)


@pytest.mark.parametrize(("held", "other"), [(freeze, approve), (approve, freeze)], ids=named)
async def test_an_answer_under_a_freeze_is_paid_once_and_after_the_thaw(
    world: World, monkeypatch: pytest.MonkeyPatch, held: Act, other: Act
) -> None:
    await world.publish()

    async def check(one: httpx2.Response, two: httpx2.Response) -> None:
        frozen, answered = (one, two) if held is freeze else (two, one)
        assert (frozen.status_code, answered.status_code) == (201, 200), (
            describe_answer(frozen),
            describe_answer(answered),
        )

        expect(await world.http[1].post(f"/v1/freezes/{frozen.json()['id']}/thaw"), 200)
        await until(lambda: is_now(world.http[0], world.run, "finished"))
        events = (await world.http[0].get(f"/v1/runs/{world.run}/events", params={"limit": 500})).json()["items"]
        began = [each for each in events if each["type"] in ("step_started", "step_finished") and each["path"] == "pay"]
        assert [each["type"] for each in began] == ["step_started", "step_finished"]
        await world.demand_nothing_held()
        await world.verify()

    assert await in_every_order(world, monkeypatch, held, other, check, begin=world.begin) >= 2


async def test_a_freeze_that_its_process_can_not_read_back_is_in_force_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed: who is told to send it again has frozen twice, and one thaw is not enough."""
    await world.publish()
    await world.begin()
    list_tools, failures = rules.list_tools, [OSError("no way")]

    async def list_sometimes(connection: Any) -> Any:
        if failures:
            raise failures.pop()
        return await list_tools(connection)

    monkeypatch.setattr(rules, "list_tools", list_sometimes)
    frozen = await freeze(world, world.http[0])
    assert (frozen.status_code, failures) == (201, [])
    assert (await world.approve(world.http[0])).status_code == 200
    assert not await has_paid(world.http[0], world.run)
    assert (await world.http[0].post(f"/v1/freezes/{frozen.json()['id']}/thaw")).status_code == 200
    await until(lambda: is_now(world.http[0], world.run, "finished"))


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("held", "other"), [(retire, begin_anew), (begin_anew, retire)], ids=named)
async def test_a_start_and_the_retirement_of_its_version_come_in_an_order(
    world: World, monkeypatch: pytest.MonkeyPatch, held: Act, other: Act
) -> None:
    async def begin() -> None:
        await world.publish()
        world.thread, world.run, world.pending = unique("thread"), "", ""

    async def check(one: httpx2.Response, two: httpx2.Response) -> None:
        retired, begun = (one, two) if held is retire else (two, one)
        assert retired.status_code == 200, describe_answer(retired)
        assert begun.status_code in (201, 409), describe_answer(begun)
        await until(lambda: all_at_rest(world.http[0], world.thread))
        runs = await world.runs()
        assert [each["status"] for each in runs] == (["waiting"] if begun.status_code == 201 else [])
        if begun.status_code == 409:
            assert begun.json()["code"] == "workflow_retired"
            assert await world.eye.fetch(HOLDING, world.thread) == []
        for http in world.http:
            assert (await world.start(http)).json()["code"] == "workflow_retired", "from then on, at both processes"
        await world.verify()

    assert await in_every_order(world, monkeypatch, held, other, check, begin=begin) >= 2


TRIGGERED: Final = """\
hai: flow/v1
name: {name}
version: {version}
triggers:
  - event: {{type: {name}_{version}}}
steps:
  - {{id: say, say: Hello}}
"""


@pytest.mark.parametrize("which", ["the retirement is held", "the publication is held"])
async def test_triggers_are_those_of_the_highest_version_in_use_in_any_order(
    world: World, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    async def publish_version(version: int, http: httpx2.AsyncClient) -> httpx2.Response:
        text = TRIGGERED.format(name=world.name, version=version)
        return await http.post("/v1/workflows", content=text, headers=YAML)

    async def publish_third(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
        return await publish_version(3, http)

    async def retire_second(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
        return await http.post(f"/v1/workflows/{world.name}@2/retire")

    async def begin() -> None:
        world.name = unique("triggered").replace("-", "_").lower()
        for version in (1, 2):
            assert (await publish_version(version, world.http[0])).status_code == 201

    async def check(one: httpx2.Response, two: httpx2.Response) -> None:
        assert {one.status_code, two.status_code} <= {200, 201}, (describe_answer(one), describe_answer(two))
        rows = await world.eye.fetch("SELECT type FROM event_triggers WHERE workflow_name = $1", world.name)
        assert [row[0] for row in rows] == [f"{world.name}_3"]

    acts = (retire_second, publish_third) if which == "the retirement is held" else (publish_third, retire_second)
    assert await in_every_order(world, monkeypatch, *acts, check, begin=begin) >= 2


# --- an elicitation of MCP --------------------------------------------------------------------------------------------

ASKING: Final = """\
hai: flow/v1
name: {name}
version: 1
input: {{type: object, properties: {{}}}}
steps:
  - id: sure
    ask: {{title: Sure?, from: anyone, form: {{type: object, required: [ok], properties: {{ok: {{type: boolean}}}}}}}}
output: "ok: ${{{{ steps.sure.output.ok }}}}"
"""


@pytest.mark.parametrize("which", ["the client's answer is held", "the other person's answer is held"])
async def test_an_elicitation_that_two_people_answer_at_once_has_one_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Both say something else; the client is told what counts, and no error of the server."""
    world.flow = ASKING
    await world.publish()
    caller = Caller(httpx2.Client(), FORMS)
    call: dict[str, Any] = {"name": world.name, "arguments": {}}

    async def send(http: httpx2.AsyncClient, **more: Any) -> httpx2.Response:
        return await http.post("/mcp", **caller.request("tools/call", {**call, **more}))

    def result(answer: httpx2.Response) -> dict[str, Any]:
        caller.answered = answer
        message = caller.message()
        assert "result" in message, message
        return dict(message["result"])

    async def elicit(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
        answers = {"sure": accept(ok=True)}
        return await send(http, requestState=world.more["state"], inputResponses=answers)

    async def decide(world: World, http: httpx2.AsyncClient) -> httpx2.Response:
        return await http.post(f"/v1/pendings/{world.pending}/decide", json={"values": {"ok": False}})

    async def begin() -> None:
        asked = result(await send(world.http[0]))
        assert asked["resultType"] == "input_required", asked
        pendings = (await world.http[0].get("/v1/pendings", params={"workflow": world.name})).json()["items"]
        newest = max(pendings, key=lambda each: each["run_id"])
        world.run, world.pending, world.more["state"] = newest["run_id"], newest["id"], asked["requestState"]
        world.thread = (await world.http[0].get(f"/v1/runs/{world.run}")).json()["thread_id"]

    async def check(one: httpx2.Response, two: httpx2.Response) -> None:
        elicited, decided = (one, two) if which.startswith("the client") else (two, one)
        await until(lambda: is_now(world.http[0], world.run, "finished"))
        output = (await world.http[0].get(f"/v1/runs/{world.run}")).json()["output"]
        assert output == ("ok: false" if decided.is_success else "ok: true")
        assert decided.status_code in (200, 409), describe_answer(decided)
        told_client = result(elicited)
        assert output in json.dumps(told_client) or "pending_decided" in json.dumps(told_client), told_client
        await world.verify()

    acts = (elicit, decide) if which.startswith("the client") else (decide, elicit)
    assert await in_every_order(world, monkeypatch, *acts, check, begin=begin) >= 2


async def test_a_call_over_mcp_whose_wait_the_database_ends_names_its_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is stored: who is told that nothing is known, and has no key for it, starts another one."""
    await world.publish()
    caller = Caller(httpx2.Client(), {})

    async def lose_connection(*_: object) -> None:
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    monkeypatch.setattr(Access, "state", lose_connection)
    body = caller.request("tools/call", {"name": world.name, "arguments": {}})
    caller.answered = await world.http[0].post("/mcp", **body)
    run = caller.message()["result"]["structuredContent"]["run_id"]
    await until(lambda: is_now(world.http[0], run, "waiting"))
