"""How long a run takes to be started, in raw durable commits of one run (its row, and one of its log).

`start_in_commits`: from handing in the start of a plain run until it is committed. `post_in_commits`: the same of `POST
/v1/runs`, from its request to its answer, without a network.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any, Final

from bench.engine import Engine, running
from bench.reference import Reference, shape_of
from bench.resume import IDLE_SECONDS, answer_seconds, commit_seconds
from bench.workflows import QUESTION
from hai_flow.api.app import create_app

_BODY: Final = b'{"workflow": "bench_question"}'


async def measure(dsn: str, reference_dsn: str, samples: int) -> dict[str, Any]:
    """Medians of `samples` interleaved commits, starts and requests over the migrated databases."""
    async with running(dsn, QUESTION) as engine:
        await answer_seconds(engine.runtime, await engine.start_run())  # one that has ended: the rows' shape
        reference = await Reference.open(reference_dsn, await shape_of(dsn))
        app = create_app(engine.runtime.settings, engine.runtime)
        try:
            times = [
                (await commit_seconds(reference), await start_seconds(engine), await post_seconds(app))
                for _ in range(samples + 1)
            ]
        finally:
            await reference.close()
    commit, start, post = (statistics.median(column) for column in zip(*times[1:], strict=True))  # the first prepares
    return {
        "start_in_commits": start / commit,
        "post_in_commits": post / commit,
        "milliseconds": {"commit": commit * 1e3, "start": start * 1e3, "post": post * 1e3},
    }


async def start_seconds(engine: Engine) -> float:
    """Seconds that a start takes, until it is committed."""
    await asyncio.sleep(IDLE_SECONDS)
    began = time.perf_counter()
    await engine.start_run()
    return time.perf_counter() - began


async def post_seconds(app: Any) -> float:
    """Seconds that a request of a start takes, until it is answered."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/runs", "raw_path": b"/v1/runs", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json"),
                    (b"content-length", str(len(_BODY)).encode())],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {},
    }  # fmt: skip
    bodies = iter((_BODY,))
    answered = asyncio.get_running_loop().create_future()

    async def receive() -> dict[str, Any]:
        for body in bodies:
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 201, message
        elif not message.get("more_body"):
            answered.set_result(time.perf_counter())

    await asyncio.sleep(IDLE_SECONDS)
    began = time.perf_counter()
    await app(scope, receive, send)
    return float(await answered) - began
