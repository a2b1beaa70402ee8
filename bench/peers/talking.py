"""A subject's line to the bench, and to the tools of the bench's world. Standard library only: every subject has it.

On stdin come commands, `{"number": 1, "do": "chain", ...}`, on stdout go replies, `{"number": 1, "value": ...}` or
`{"number": 1, "error": "..."}`, and news without a number, each in a line of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
Handler: TypeAlias = Callable[..., Awaitable[Json]]

STEPS: Final = 10  # of a chain
LOOK: Final = "look"  # the news that calls may have begun to wait for a person, or that a turn has ended


class Line:
    """Serves `handlers`, coroutine functions by the command that they perform; commands run side by side."""

    def __init__(self, handlers: Mapping[str, Handler], packages: Sequence[str] = ()) -> None:
        self._handlers = handlers
        self._packages = packages
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # lines that libraries print are no replies
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Return when the bench hangs up."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self._write({"news": "ready", "versions": {name: version(name) for name in self._packages}})
        while line := await reader.readline():
            task = asyncio.create_task(self._perform(**json.loads(line)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def tell(self, news: str) -> None:
        self._write({"news": news})

    async def _perform(self, number: int, do: str, **given: Json) -> None:
        try:
            self._write({"number": number, "value": await self._handlers[do](**given)})
        except Exception:
            self._write({"number": number, "error": traceback.format_exc()})

    def _write(self, message: Json) -> None:
        self._out.write(json.dumps(message) + "\n")


async def in_parallel(runs: int, concurrency: int, one: Callable[[], Awaitable[Json]]) -> float:
    """Seconds of `runs` runs, `concurrency` at a time."""
    numbers = iter(range(runs))

    async def some() -> None:
        for _ in numbers:
            await one()

    began = time.perf_counter()
    await asyncio.gather(*(some() for _ in range(min(runs, concurrency))))
    return time.perf_counter() - began


async def call_tool(name: str, n: int, key: str) -> int:
    """Let the world perform the tool `name`; `key` says which call it is, also where it is made again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["BENCH_WORLD"]))
    try:
        body = json.dumps({"n": n, "key": key}).encode()
        writer.write(b"POST /tools/%s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (name.encode(), len(body)) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        result: int = json.loads(await reader.readexactly(length))
        return result
    finally:
        writer.close()


def model_url() -> str:
    """Where the world's model is."""
    return f"http://127.0.0.1:{os.environ['BENCH_WORLD']}/v1"
