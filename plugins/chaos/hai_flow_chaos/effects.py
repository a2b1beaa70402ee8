"""The world that workflows act on: a server that keeps a record of each effect under its idempotency key, and a model.

It is never broken: the campaign is judged by its record. In a process of its own (`services`) it is the model and the
server of MCP, which are. A request with `fail: n` is refused n times; one with `hang`
is never answered, and some are answered late. A second request under the same key is performed, and recorded, a second
time.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import Counter
from typing import Any, Final, Self

from hai_flow_chaos.history import Effect, History
from hai_flow_chaos.mcp_answers import answer

WORDS: Final = ("what", "was", "committed", "stays", "and", "what", "was", "seen", "was", "committed")
ANSWER_SECONDS: Final = 0.1
"""Seconds between an effect and its answer, in which the client may be killed, cut off or stopped."""
SLOW_SHARE: Final = 5  # of so many keys one is slow: at each moment some effects are known to the world alone
SLOW_SECONDS: Final = 1.5

_REASONS: Final = {200: "OK", 202: "Accepted", 404: "Not Found", 503: "Service Unavailable"}


class World:
    """Listens on a port of this machine as long as the context is open."""

    def __init__(self, history: History, port: int = 0) -> None:
        self._history = history
        self._wanted_port = port
        self._refused: Counter[str] = Counter()
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._wanted_port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError, OSError):
            pass  # the client was killed, or has hung up, or the campaign is over
        finally:
            self._serving.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"null")
        path = head[0].split(" ")[1]
        if path.endswith("/chat/completions"):
            await self._speak(writer, body)
        elif path == "/mcp" and head[0].startswith("POST"):
            await asyncio.sleep(ANSWER_SECONDS)
            message = answer(body)
            _respond(writer, 202 if message is None else 200, message)
        elif path.startswith("/do/"):
            key = headers.get("idempotency-key", "")
            status, done = self._do(path.removeprefix("/do/"), key, body or {})
            if body and body.get("hang"):
                await asyncio.Event().wait()
            await asyncio.sleep(SLOW_SECONDS if zlib.crc32(key.encode()) % SLOW_SHARE == 0 else ANSWER_SECONDS)
            _respond(writer, status, done)
        else:
            _respond(writer, 404, {"error": "there is nothing here"})
        await writer.drain()
        return headers.get("connection", "").lower() != "close"

    def _do(self, what: str, key: str, body: dict[str, Any]) -> tuple[int, Any]:
        refused = self._refused[key] < int(body.get("fail", 0))
        self._refused[key] += refused
        attempt, detail = int(body.get("attempt", 0)), str(body.get("detail", ""))
        self._history.acted(Effect(self._history.now(), key, what, attempt, refused, detail))
        return (503, {"error": "not now"}) if refused else (200, {"done": what, "detail": detail})

    async def _speak(self, writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        """Chat Completions: an answer in words; with tools, one call of the first of them before that."""
        self._history.tallies["answers_of_the_model"] += 1
        told = any(message["role"] == "tool" for message in asked["messages"])
        tools = [] if told else asked.get("tools", [])
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for delta in _called(tools[0]) if tools else [{"content": f"{word} "} for word in WORDS]:
            _say(writer, [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}])
            await writer.drain()
            await asyncio.sleep(0.01)
        _say(writer, [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if tools else "stop"}])
        _say(writer, [], usage={"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19})
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()


def _called(tool: dict[str, Any]) -> list[dict[str, Any]]:
    function = tool["function"]
    needed = function.get("parameters", {}).get("required", [])
    arguments = json.dumps(dict.fromkeys(needed, "of the model"))
    begun = {"index": 0, "id": "call_0", "type": "function", "function": {"name": function["name"], "arguments": ""}}
    return [{"tool_calls": [begun]}, {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}]


def _say(writer: asyncio.StreamWriter, choices: list[Any], **more: Any) -> None:
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")


def _respond(writer: asyncio.StreamWriter, status: int, answer: Any) -> None:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + b"\r\n" + body)
