"""What becomes of a streamed piece of text: it is written once, while its attempt is open and its run is held."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.ids import derive_display_call_id
from hai_flow.errors import Rejected
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.submission import Chunk, Outcome, Written
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.runs import logs
from hai_flow.store.runs.logs import Loaded
from tests.runtime.conftest import ASKING, GATED, TOOLS, Connection, Make, start
from tests.support import effects
from tests.support.ledger import log_of
from tests.support.waiting import until


async def held(runtime: Runtime, body: str = GATED) -> CachedRun:
    """A run that the process holds, with the attempt 1 of its step `wait` begun."""
    run_id = (await start(runtime, body)).run_id
    await until(lambda: effects.begun)
    hot = runtime.committer.peek(run_id)
    assert hot is not None
    assert hot.owned
    return hot


async def is_over(runtime: Runtime, run_id: UUID) -> bool:
    hot = runtime.committer.peek(run_id)
    return hot is None or hot.state.status == "finished"


async def pieces(eye: Connection, run_id: UUID) -> list[tuple[int, str]]:
    return [(event.n, event.content) for event in await log_of(eye, run_id) if isinstance(event, e.MessageChunk)]


async def streamed(runtime: Runtime, hot: CachedRun, *chunks: Chunk) -> None:
    """Say that, and wait until nothing of it is on its way."""
    runtime.committer.stream(hot, chunks)
    await runtime.committer.wait_committed([hot])


async def test_a_piece_is_written_once_however_often_it_is_sent(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    hot = await held(runtime)
    a, b, again = (Chunk("m", "wait", 1, n, text) for n, text in ((0, "a"), (1, "b"), (0, "A")))
    await streamed(runtime, hot, a)
    await streamed(runtime, hot, again, a, b)
    assert await pieces(eye, hot.id) == [(0, "a"), (1, "b")]
    events = await log_of(eye, hot.id)
    assert sum(isinstance(event, e.MessageStarted) for event in events) == 1
    assert [event.at for event in events] == sorted(event.at for event in events)


async def test_a_piece_of_a_call_is_written_once_at_its_place(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    page = "{frontend: {description: P, parameters: {type: object, properties: {doc: {type: string}}}, answer: none}}"
    steps = "steps:\n  - {id: wait, call: fx.gated, stream: {to: page, argument: doc}}\n"
    hot = await held(runtime, TOOLS.rstrip("\n") + f"\n  page: {page}\n" + steps)
    id, begin = derive_display_call_id(str(hot.id), "wait", 1), len('{"doc":"')
    a, b = (Chunk(id, "wait", 1, begin + n, text, is_call=True) for n, text in ((0, "abc"), (3, "d")))
    await streamed(runtime, hot, a)
    await streamed(runtime, hot, a, b, b)
    effects.gate.set()
    await until(lambda: is_over(runtime, hot.id))
    await streamed(runtime, hot, Chunk(id, "wait", 1, begin + 4, "late", is_call=True))
    events = await log_of(eye, hot.id)
    written = [event.content for event in events if isinstance(event, e.ToolCallArgsChunk)]
    assert written == ['{"doc":"', "abc", "d", '"}']


async def test_a_models_call_begins_with_its_first_piece_and_only_then(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    hot = await held(runtime)
    begun = Written("other", "pick", "frontend", predicted=[{"state_key": "a"}])
    a, b, empty = (
        Chunk("c", "wait", 1, n, text, is_call=True, written=begun) for n, text in ((0, '{"a'), (3, '": 1}'), (0, ""))
    )
    await streamed(runtime, hot, b)
    await streamed(runtime, hot, empty, empty, a)
    await streamed(runtime, hot, empty, a, b, b)
    events = await log_of(eye, hot.id)
    written = [event.content for event in events if isinstance(event, e.ToolCallArgsChunk)]
    assert written == ['{"a', '": 1}']
    assert [type(event) for event in events if isinstance(event, e.CustomEmitted | e.ToolCallStarted)] == [
        e.CustomEmitted, e.ToolCallStarted,
    ]  # fmt: skip


async def test_pieces_that_lost_by_an_old_fence_are_sent_again_under_the_new_one(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    hot = await held(runtime)
    hot._fence -= 1  # as if it had been raised, and the load that tells so were still on its way
    await streamed(runtime, hot, Chunk("m", "wait", 1, 0, "a"))
    assert await pieces(eye, hot.id) == [(0, "a")]


async def test_pieces_of_an_attempt_that_is_not_open_are_dropped(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    hot = await held(runtime)
    await streamed(runtime, hot, Chunk("m", "wait", 2, 0, "early"), Chunk("m", "elsewhere", 1, 0, "strange"))
    assert await pieces(eye, hot.id) == []


async def test_pieces_of_a_run_that_was_lost_meanwhile_are_dropped(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    hot = await held(runtime)
    hot.stream([Chunk("m", "wait", 1, 0, "late")])
    hot.disown()  # as a heartbeat says that comes before its lane
    await runtime.committer.submit(hot.id, LOCAL_TENANT, c.Pause(by="user:local"))
    assert await pieces(eye, hot.id) == []


async def test_a_run_is_unknown_only_to_what_was_asked_before_it_was_looked_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await make(), await make()
    run_id, real = uuid4(), logs.load_runs
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> dict[UUID, Loaded]:
        found = await real(*given)
        if run_id in given[1] and not looked.is_set():
            looked.set()
            await go_on.wait()
        return found

    async def paused() -> Outcome | int:
        try:
            return await a.committer.submit(run_id, LOCAL_TENANT, c.Pause(by="user:local"))
        except Rejected as rejected:
            return rejected.status

    monkeypatch.setattr(logs, "load_runs", slow)
    before = asyncio.create_task(paused())
    await looked.wait()
    await start(b, ASKING, run_id=run_id)
    behind = asyncio.create_task(paused())
    await asyncio.sleep(0)
    go_on.set()
    await before
    found = await behind
    assert isinstance(found, Outcome)
    assert found.status == "paused"
