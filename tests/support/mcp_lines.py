r"""Servers of the Model Context Protocol that send messages that no SDK would send: their answers are given as text.

`catalogue` declares one, either a program (`python -m tests.support.mcp_lines FILE`) or over HTTP (`over_http`), which
answers with one JSON text or with a stream of events. A stream may stay `open` behind the answers to a call, or give
its last answer where it is `resumed`. In an answer `ID` stands for the id of the call, `TOKEN` for the
token of its progress, `TRACEPARENT` for its place in a trace. `\udcff` is a byte that is no text (0xff), as
`surrogateescape` has it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    import asyncio

Way = Literal["stdio", "events", "json", "open", "resumed"]
MODERN = "2026-07-28"
ROOT = Path(__file__).resolve().parents[2]


class Script(msgspec.Struct):
    """The functions and answers of a server. `modern`: calls may be made again with a person's answer. `questions`:
    questions that it asks within a call, as older protocols have it; the result of the call is the list of answers. Of
    a call that is cancelled there is no result."""

    names: tuple[str, ...] = ("add",)
    answers: tuple[str, ...] = ()
    modern: bool = False
    questions: tuple[str, ...] = ()
    goes_on: bool = False  # with a call that is cancelled
    charset: str = "utf-8"
    amount: dict[str, Any] = {}  # the schema of the questions' only field
    given: list[Any] = []
    call: Any = None

    def _told(self, answered: dict[str, Any]) -> str:
        """The message behind the client's answer to a question: the next question, or the result of the call."""
        told = answered.get("result") or {"refused": answered["error"]["message"]}
        self.given.append(told.get("content", told))
        if told.get("action") == "accept" and len(self.given) < len(self.questions):
            return self._question()
        return result({"content": [{"type": "text", "text": json.dumps(self.given)}]}, self.call)

    def _question(self) -> str:
        schema = {"type": "object", "properties": {"amount": self.amount or {"type": "integer"}}}
        params = {"message": self.questions[len(self.given)], "requestedSchema": schema}
        return json.dumps({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": params})

    def said(self, asked: dict[str, Any]) -> Sequence[str]:
        """The messages that answer a message."""
        if asked.get("method") == "notifications/cancelled" and not self.goes_on:
            self.call = None
        if asked.get("id") == "ask":
            return () if self.call is None else (self._told(asked),)
        if "id" not in asked or "method" not in asked:
            return ()
        params = asked.get("params") or {}
        match asked["method"]:
            case "initialize":
                known = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "s", "version": "1"}}
                return (result({**known, "capabilities": {"tools": {}}}, asked["id"]),)
            case "server/discover" if self.modern:
                known = {"supportedVersions": [MODERN], "ttlMs": 0, "cacheScope": "private"}
                return (result({**known, "capabilities": {"tools": {}}, "resultType": "complete"}, asked["id"]),)
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.names]
                known = {"tools": tools, "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
                return (result(known, asked["id"]),)
            case "tools/call" if self.questions:
                self.call, self.given = asked["id"], []
                return (self._question(),)
            case "tools/call":
                meta = params.get("_meta", {})
                told = {"ID": asked["id"], "TOKEN": meta.get("progressToken"), "TRACEPARENT": meta.get("traceparent")}
                answers = self.answers
                for name, value in told.items():
                    answers = tuple(each.replace(name, json.dumps(value)) for each in answers)
                return answers
        error = {"code": -32601, "message": "no"}
        return (json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}),)


def result(value: Any, id: Any = None) -> str:
    """The message that has `value` (or this JSON text) as its result."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f'{{"jsonrpc": "2.0", "id": {"ID" if id is None else json.dumps(id)}, "result": {text}}}'


def command(folder: Path, script: Script) -> list[str]:
    """The command of a program that follows the script."""
    file = folder / "script.json"
    file.write_text(json.dumps(msgspec.structs.asdict(script)))
    return [sys.executable, "-m", "tests.support.mcp_lines", str(file)]


@contextlib.asynccontextmanager
async def over_http(script: Script, way: Way) -> AsyncIterator[str]:
    """The address of a server that follows the script."""
    import asyncio  # takes the program, which needs none, half of its start

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal rest
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((line.split(":")[1] for line in head.splitlines() if line.startswith("content-le")), "0")
                body = await reader.readexactly(int(length))
                said = script.said(json.loads(body)) if body else rest if "last-event-id" in head else ()
                is_call = b'"tools/call"' in body
                if is_call and way == "resumed":
                    said, rest = said[:-1], said[-1:]
                writer.write(_response(said, script.charset, "events" if way == "open" and not is_call else way))
                await writer.drain()
                while is_call and way == "open":
                    writer.write(b": ping\r\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.01)

    rest: Sequence[str] = ()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


def _response(said: Sequence[str], charset: str, way: Way) -> bytes:
    if not said:
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
    kind = "application/json" if way == "json" else "text/event-stream"
    id = "id: 1\r\nretry: 1\r\n" if way == "resumed" else ""
    text = said[-1] if way == "json" else "".join(f"{id}event: message\r\ndata: {each}\r\n\r\n" for each in said)
    body = _encode(text, charset)
    length = "" if way == "open" else f"content-length: {len(body)}\r\n"
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{length}\r\n".encode() + body


def _encode(text: str, charset: str) -> bytes:
    return text.encode(charset, "surrogateescape" if charset == "utf-8" else "strict")


@contextlib.asynccontextmanager
async def catalogue(folder: Path, script: Script, way: Way = "stdio") -> AsyncIterator[Path]:
    """A catalogue with the server `files`, which follows the script."""
    file = folder / "mcp.yaml"
    if way == "stdio":
        declared = {"command": command(folder, script), "env": {"PYTHONPATH": str(ROOT)}}
        file.write_text(f"hai: mcp/v1\nservers: {{files: {json.dumps(declared)}}}\n")
        yield file
        return
    async with over_http(script, way) as url:
        file.write_text(f"hai: mcp/v1\nservers: {{files: {{url: '{url}'}}}}\n")
        yield file


def main() -> None:
    script = Script(**json.loads(Path(sys.argv[1]).read_text()))
    charset = script.charset
    for line in sys.stdin:
        for each in script.said(json.loads(line)):
            sys.stdout.buffer.write(_encode(f"{each}\n", charset))
            charset = {"utf-16": "utf-16-le", "utf-8-sig": "utf-8"}.get(charset, charset)  # one mark, at the beginning
            sys.stdout.flush()


if __name__ == "__main__":
    main()
