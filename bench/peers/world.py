"""The world of a measured agent: a model by OpenAI's protocol and three tools, on one port, that count requests.

The model's turn is a script: three calls first, and when it sees their results, "Done.". The world holds a request at
the place where a subject is to be killed, before it is answered; nothing here waits for an amount of time.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, Final, TypeAlias
from uuid import uuid4

Json: TypeAlias = Any

FREE, EDITED, DENIED = TOOLS = ("free", "edited", "denied")
ASKED: Final = {FREE: 1, EDITED: 2, DENIED: 3}  # the `n` that the model calls each tool with
EDIT: Final = 5  # the `n` that a person puts in the place of EDITED's
LAST: Final = "Done."
FIRST_ANSWER, LAST_ANSWER = "first answer", "last answer"


class World:
    """Use as `async with`. `hold_at` names a place: an answer of the model, or a tool and `asked` or `made`."""

    def __init__(self) -> None:
        self.model: Counter[str] = Counter()  # requests by the answer that they were for
        self.made: list[tuple[str, int, str]] = []  # the performed calls: tool, n and key
        self.results = 0  # results of calls in the last request of the model
        self.hold_at: str | None = None
        self.reached = asyncio.Event()
        self._released: asyncio.Future[bool] | None = None

    async def __aenter__(self) -> World:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def forget(self, hold_at: str | None = None) -> None:
        """Begin a new turn, which is to be held at a place."""
        self.model, self.made, self.results = Counter(), [], 0
        self.hold_at, self.reached = hold_at, asyncio.Event()
        self._released = asyncio.get_running_loop().create_future()

    def release(self, *, answered: bool) -> None:
        """Let the held request go on, or drop it, because its sender is dead."""
        assert self._released is not None
        self._released.set_result(answered)

    async def _pass(self, place: str) -> None:
        """Get past a place. Raises ConnectionAbortedError for a request that was dropped there."""
        if place != self.hold_at or self.reached.is_set():
            return
        assert self._released is not None
        self.reached.set()
        if not await self._released:
            raise ConnectionAbortedError

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(":") for line in lines)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        path = first.split()[1]
        if path.startswith("/tools/"):
            kind, content = "application/json", await self._perform(path.removeprefix("/tools/"), **body)
        else:
            kind, content = await self._complete(body)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()

    async def _perform(self, name: str, n: int, key: str) -> bytes:
        await self._pass(f"{name} asked")
        self.made.append((name, n, key))
        await self._pass(f"{name} made")
        return json.dumps(n).encode()

    async def _complete(self, request: Json) -> tuple[str, bytes]:
        self.results = sum(message["role"] == "tool" for message in request["messages"])
        place = LAST_ANSWER if self.results else FIRST_ANSWER
        self.model[place] += 1
        await self._pass(place)
        message = {"role": "assistant", "content": LAST} if self.results else _calling()
        return _streamed(message) if request.get("stream") else _build_completion(message)


def _calling() -> Json:
    """The message with the calls. Their ids are new in each, as those of real models are."""
    calls = [
        {"id": f"call_{uuid4().hex}", "type": "function", "function": {"name": name, "arguments": json.dumps({"n": n})}}
        for name, n in ASKED.items()
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


_HEAD: Final = {"id": "c1", "created": 1, "model": "m"}
_USAGE: Final = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}


def _reason(message: Json) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _build_completion(message: Json) -> tuple[str, bytes]:
    choices = [{"index": 0, "message": message, "finish_reason": _reason(message)}]
    completion = {**_HEAD, "object": "chat.completion", "choices": choices, "usage": _USAGE}
    return "application/json", json.dumps(completion).encode()


def _streamed(message: Json) -> tuple[str, bytes]:
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": _reason(message)}]},
        {"choices": [], "usage": _USAGE},
    ]
    lines = [json.dumps({**_HEAD, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
