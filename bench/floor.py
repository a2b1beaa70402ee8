"""The least that a start and an answer cost on this machine: bare Starlette on uvicorn, with our parser and event loop.

The bare routes read JSON and commit the same rows by one statement, without keys, rights, limits or a workflow.
Medians of interleaved requests over kept connections on loopback, in raw durable commits of one run. The clients run in
the same process, for both. The answer ends with its frame at a follower; ours is `resume_in_commits`, without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import uuid4

import asyncpg
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bench.engine import running
from bench.reference import Reference, Shape, shape_of
from bench.resume import IDLE_SECONDS, answer_seconds, commit_seconds
from bench.workflows import QUESTION
from hai_flow.api.app import create_app

_START: Final = b'{"workflow": "bench_question"}'
_ANSWER: Final = b'{"content": "yes"}'
_FRAME: Final = b'event: step_started\ndata: {"type": "step_started", "path": "next"}\n\n'


async def measure(dsn: str, reference_dsn: str, samples: int) -> dict[str, Any]:
    """Medians of `samples` rounds over the migrated databases, in raw commits and in milliseconds."""
    async with running(dsn, QUESTION) as engine, contextlib.AsyncExitStack() as stack:
        await answer_seconds(engine.runtime, await engine.start_run())  # one that has ended: the rows' shape
        shape = await shape_of(dsn)
        reference = await Reference.open(reference_dsn, shape)
        stack.push_async_callback(reference.close)
        pool = await stack.enter_async_context(asyncpg.create_pool(reference_dsn, min_size=2, max_size=2))
        bare_port = await stack.enter_async_context(_serving(_bare(pool, shape, reference)))
        our_app = create_app(engine.runtime.settings, engine.runtime)
        our_port = await stack.enter_async_context(_serving(our_app))
        bare, ours, follower = [
            await stack.enter_async_context(_connected(port)) for port in (bare_port, our_port, bare_port)
        ]
        await _ask(follower, b"GET /follow HTTP/1.1", b"")
        times = [
            (
                await commit_seconds(reference),
                await _seconds(bare, b"POST /start HTTP/1.1", _START),
                await _seconds(ours, b"POST /v1/runs HTTP/1.1", _START),
                await _seconds(bare, b"POST /answer HTTP/1.1", _ANSWER, follower),
            )
            for _ in range(samples + 1)
        ]
        follower[1].close()
    commit, *rest = (statistics.median(column) for column in zip(*times[1:], strict=True))  # the first prepares
    named = dict(zip(("start_floor", "start_ours", "answer_floor"), rest, strict=True))
    return {
        **{f"{name}_in_commits": seconds / commit for name, seconds in named.items()},
        "milliseconds": {name: seconds * 1e3 for name, seconds in {"commit": commit, **named}.items()},
    }


def _bare(pool: Any, shape: Shape, reference: Reference) -> Starlette:
    """The least that a server does: a run's row and its log in one statement; an answer's rows, and a frame."""
    columns = list(shape.run)
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    statement = f"""WITH run AS (INSERT INTO runs ({", ".join(columns)}) VALUES ({places}) RETURNING id, tenant)
    INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)
    SELECT id, {shape.events}, 1, tenant, 1, clock_timestamp(), ${len(columns) + 1} FROM run"""
    frames: asyncio.Queue[bytes] = asyncio.Queue()

    async def start(request: Request) -> Response:
        msgspec.json.decode(await request.body())
        run_id = uuid4()
        run = {**shape.run, "id": run_id, "thread_id": str(run_id)}
        await pool.execute(statement, *run.values(), shape.row(1))
        return Response(msgspec.json.encode({"id": run_id}), 201, media_type="application/json")

    async def answer(request: Request) -> Response:
        msgspec.json.decode(await request.body())
        await reference.commit_one()
        frames.put_nowait(_FRAME)
        return Response(b"{}", media_type="application/json")

    async def follow(request: Request) -> Response:
        async def send() -> AsyncIterator[bytes]:
            yield b": begun\n\n"
            while True:
                yield await frames.get()

        return StreamingResponse(send(), media_type="text/event-stream")

    return Starlette(routes=[
        Route("/start", start, methods=["POST"]), Route("/answer", answer, methods=["POST"]), Route("/follow", follow),
    ])  # fmt: skip


@contextlib.asynccontextmanager
async def _serving(app: Any) -> AsyncIterator[int]:
    """The port on which uvicorn serves the app, in this loop."""
    opened = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http="httptools", lifespan="off", log_level="warning", access_log=False,
                            timeout_graceful_shutdown=1)  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([opened]))  # without uvicorn's signal handlers
    try:
        yield int(opened.getsockname()[1])
    finally:
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def _connected(port: int) -> AsyncIterator[Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _ask(connection: Any, line: bytes, body: bytes) -> None:
    reader, writer = connection
    length = str(len(body)).encode()
    writer.write(line + b"\r\nhost: 127.0.0.1:8000\r\ncontent-type: application/json\r\ncontent-length: " + length)
    writer.write(b"\r\n\r\n" + body)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.split(b" ", 2)[1][:1] == b"2", head
    sizes = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    await (reader.readexactly(int(sizes[0])) if sizes else reader.readuntil(b": begun\n\n"))


async def _seconds(connection: Any, line: bytes, body: bytes, follower: Any = None) -> float:
    """Seconds from the request to its answer, or to the frame that a follower gets for it."""
    await asyncio.sleep(IDLE_SECONDS)
    began = time.perf_counter()
    asking = asyncio.create_task(_ask(connection, line, body))
    await (asking if follower is None else follower[0].readuntil(b"}\n\n"))
    until = time.perf_counter()
    await asking
    return until - began
