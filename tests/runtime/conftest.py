"""Runtimes over one database, and the least that a test needs to start a run in one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.runtime.commit.submission import Outcome
from hai_flow.runtime.runtime import LOCAL_TENANT, Observer, Runtime
from hai_flow.runtime.worker.worker import Worker
from hai_flow.settings import Settings
from hai_flow.store.postgres.database import Deadlines
from tests.support import effects
from tests.support.values import require
from tests.support.waiting import until

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Make: TypeAlias = Callable[..., Awaitable[Runtime]]

# One publication at a time: these tests are about runs.
_publishing: defaultdict[asyncio.AbstractEventLoop, asyncio.Lock] = defaultdict(asyncio.Lock)

HEAD = "hai: flow/v1\nname: {name}\nversion: 1\n"
TOOLS = "tools:\n  fx: {python: tests.support.effects, effect: write}\n"
ASKING = "steps:\n  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}\n"
LISTENING = "steps:\n  - repeat: {max: 10000, steps: [{id: hear, wait_for: {event: note, deadline: 1d}}]}\n"
GATED = TOOLS + "steps:\n  - {id: wait, call: fx.gated}\noutput: ${{ steps.wait.output }}\n"
ECHO = (
    "input: {type: object, properties: {value: {type: string}}}\n"
    + TOOLS
    + 'steps:\n  - {id: echo, call: fx.echo, with: {value: "${{ input.value }}"}}\noutput: ${{ steps.echo.output }}\n'
)
TEXT = TOOLS + "steps:\n  - {id: tell, call: fx.text, with: {words: 20}, stream: text}\n"


@pytest.fixture
async def eye(database_url: str) -> AsyncIterator[Connection]:
    """A connection that only looks."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(effects.LEDGER)
    yield connection
    await connection.close()


@pytest.fixture
async def make(database_url: str) -> AsyncIterator[Make]:
    """`await make(performs=True, ...)` is a started Runtime; `...` are settings. All are stopped at the end."""
    async with runtimes_over(database_url) as make_one:
        yield make_one


@asynccontextmanager
async def runtimes_over(database_url: str) -> AsyncIterator[Make]:
    """What the fixture `make` gives, over a database of the caller's."""
    made: list[Runtime] = []
    effects.write_to(database_url)

    async def make_one(
        *,
        performs: bool = False,
        dsn: str = database_url,
        deadlines: Deadlines | None = None,
        observers: Sequence[Observer] = (),
        **settings: Any,
    ) -> Runtime:
        quick: dict[str, Any] = {"tools": effects.MODULES, "lease_seconds": 3.0, "heartbeat_seconds": 0.3}
        quick |= {"poll_seconds": 0.1, "shutdown_seconds": 1.0}
        wanted = Settings(**(quick | settings))
        runtime = Runtime(dsn, wanted, performs=performs, deadlines=deadlines, observers=observers)
        await runtime.start()
        made.append(runtime)
        return runtime

    try:
        yield make_one
    finally:
        effects.gate.set()
        for runtime in made:
            await runtime.stop()
        await effects.close()


async def start(
    runtime: Runtime,
    body: str,
    *,
    run_id: UUID | None = None,
    thread: str | None = None,
    input: Any = None,
    command_id: str | None = None,
    body_sha: bytes = b"",
    messages: tuple[e.UserMessage, ...] = (),
) -> Outcome:
    """Start a run of the workflow with this body."""
    name = "w" + sha256(body.encode()).hexdigest()[:8]
    async with _publishing[asyncio.get_running_loop()]:
        _, plan = await runtime.catalog.publish(LOCAL_TENANT, (HEAD.format(name=name) + body).encode())
    run_id = run_id or uuid4()
    thread = thread or str(run_id)
    command = c.Start(run_id=run_id, thread_id=thread, requester="user:local", input=input or {}, messages=messages)
    return await runtime.starts.start(LOCAL_TENANT, plan, command, command_id=command_id, body_sha=body_sha)


async def state_of(runtime: Runtime, run_id: UUID, seq: int = 2**53) -> RunState:
    """The run as its log says."""
    return require(await runtime.fanout.state_at(LOCAL_TENANT, run_id, seq))


async def status_of(runtime: Runtime, run_id: UUID) -> str:
    return (await state_of(runtime, run_id)).status


async def is_now(runtime: Runtime, run_id: UUID, *statuses: str) -> bool:
    return await status_of(runtime, run_id) in statuses


@contextmanager
def impatient_callers() -> Iterator[None]:
    """Whoever waits for a commit meanwhile is soon told that the database does not answer. What comes before and behind
    may take as long as it does on a slow machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hai_flow.runtime.commit.committer.ANSWER_SECONDS", 0.5)
        yield


def note(id: str, data: Any = None) -> c.Signal:
    """A command that lengthens the log of a run which is LISTENING, however many came before."""
    return c.Signal(id=id, name="note", data=data, sent_at=4_000_000_000_000)


def answer(pending: str, ok: bool = True, by: c.Principal = c.LOCAL_PRINCIPAL) -> c.Answer:
    return c.Answer(answers=(c.PendingAnswer(id=pending, values={"ok": ok}),), by=by)


async def open_pending(runtime: Runtime, run_id: UUID) -> str:
    """The id of the one pending that the run waits for."""
    state = await state_of(runtime, run_id)
    (pending,) = [each.opened.id for each in state.pendings.values() if each.status == "open"]
    return pending


async def is_there(runtime: Runtime, run_id: UUID, *statuses: str) -> bool:
    """Whether the run has begun, and has one of these statuses."""
    state = await runtime.fanout.state_at(LOCAL_TENANT, run_id, 2**53)
    return state is not None and state.status in statuses


async def ended(runtime: Runtime, run_id: UUID) -> Any:
    """The state of the run, as soon as it has finished or failed."""
    await until(lambda: is_now(runtime, run_id, "finished", "failed"))
    return await state_of(runtime, run_id)


async def nothing_on_its_way(eye: Connection) -> bool:
    """Whether no message is: one is deleted behind the commit that it has led to."""
    return not await eye.fetchval("SELECT count(*) FROM outbox")


def hands(runtime: Runtime) -> Worker:
    return require(runtime.worker)
