"""`mcp`: the MCP server of a deployment over standard input and output, for clients that start their servers.

Each line of standard input is a message, which is sent to `/mcp`; what the server answers are the lines of standard
output. Nothing is kept here but the requests under way: the process may be ended at any time, and another one goes on.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hai_flow.cli.options import ActAsOption, ServerOption
from hai_flow.cli.run_until_signal import live
from hai_flow.cli.terminal import note, program

if TYPE_CHECKING:
    import httpx2
    from hai_flow_client.link import Link

PATH: Final = "/mcp"
VERSION: Final = "io.modelcontextprotocol/protocolVersion"
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one message. The server has a limit of its own, which is lower."""
PATIENCE_SECONDS: Final = 60.0
"""How long a request is tried again while no server answers."""
SILENCE_SECONDS: Final = 120.0
"""How long an answer may be silent: longer than any call waits for its run."""
_PAUSE_FIRST, _PAUSE_MAX = 0.25, 5.0
_PARSE_ERROR, _INVALID, _INTERNAL = -32700, -32600, -32603
_SESSION: Final = "Mcp-Session-Id"
_BASE64: Final = "=?base64?"
_NAMES: Final = ("name", "uri", "taskId")  # the parameters that `Mcp-Name` repeats


def mcp(
    server: ServerOption = None,
    act_as: ActAsOption = None,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to retry while no server answers.")
    ] = PATIENCE_SECONDS,
) -> None:
    """The MCP server over standard input and output, for clients that start one (docs/protocols/mcp.md).

    It is the server's own /mcp, reached with HAI_FLOW_KEY, or without a key where `dev` runs."""
    from hai_flow_client.link import Link

    from hai_flow.cli.client.rest import refuse_link, server_url

    try:
        link = Link.to(server_url(server), act_as=act_as, headers=None, patience=None)
    except ValueError as error:
        raise refuse_link(error) from None
    note(f"MCP over standard input and output, for {link.url}.")

    async def serve() -> None:
        await Bridge(link, patience).serve()

    raise typer.Exit(live(serve))


class Bridge:
    """Sends the lines of standard input to the server, and writes what it answers to standard output.

    A request that finds no server is sent again for `patience` seconds: every call of a tool has an idempotency key, so
    that it starts one run. A cancelled request is given up; the run that it started goes on."""

    def __init__(self, link: Link, patience: float) -> None:
        self._link = link
        self._patience = patience
        self._negotiated: str | None = None  # by `initialize`, which clients of older revisions send
        self._session: str | None = None
        self._requests: dict[str | int, asyncio.Task[None]] = {}
        self._streams: set[asyncio.Task[None]] = set()  # those that end with the client alone
        self._http: httpx2.AsyncClient | None = None

    async def serve(self) -> None:
        """Until standard input ends, and what was asked is answered."""
        import httpx2

        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=5.0)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8)
        async with (
            httpx2.AsyncClient(
                timeout=timeout, limits=limits, trust_env=self._link.trusts_environment, follow_redirects=False
            ) as self._http,
            asyncio.TaskGroup() as group,
        ):
            async for line in _lines():
                self._take(line, group)
            for stream in self._streams:
                stream.cancel()

    def _take(self, line: bytes, group: asyncio.TaskGroup) -> None:
        from hai_flow import values

        line = line.removeprefix(codecs.BOM_UTF8)
        try:
            message = values.loads(line)
        except ValueError as error:
            _write(_error(_id_in(line), _PARSE_ERROR, f"expected one JSON-RPC message on each line: {error}."))
            return
        if not isinstance(message, dict):
            _write(_error(None, _INVALID, "expected a JSON-RPC message, an object."))
            return
        method, id = message.get("method"), message.get("id")
        if method == "notifications/cancelled":
            self._cancel(message)
        elif method is None or not isinstance(id, str | int) or isinstance(id, bool):  # or an answer to the server
            group.create_task(self._send(line, self._headers(message), None))
        else:
            task = group.create_task(self._send(line, self._headers(message), id))
            self._requests[id] = task
            if method == "subscriptions/listen":
                self._streams.add(task)
            task.add_done_callback(lambda ended: self._forget(id, ended))

    def _cancel(self, message: Mapping[str, Any]) -> None:
        params = message.get("params")
        task = self._requests.get(params.get("requestId", "")) if isinstance(params, dict) else None
        if task is not None:
            task.cancel()

    def _forget(self, id: str | int, task: asyncio.Task[None]) -> None:
        if self._requests.get(id) is task:
            del self._requests[id]
        self._streams.discard(task)

    async def _send(self, body: bytes, headers: Mapping[str, str], id: str | int | None) -> None:
        """Send it until the server has answered, at most as long as the patience lasts."""
        import httpx2

        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self._patience, _PAUSE_FIRST
        while True:
            try:
                await self._exchange(body, headers, id)
                return
            except (httpx2.RequestError, _CutOff) as error:
                if loop.time() + pause > until:
                    _refuse(id, self._unreachable(str(error) or type(error).__name__))
                    return
            except (httpx2.InvalidURL, ValueError) as error:  # a credential that is none
                _refuse(id, f"{error}.")
                return
            await asyncio.sleep(pause)
            pause = min(_PAUSE_MAX, 2 * pause)

    async def _exchange(self, body: bytes, headers: Mapping[str, str], id: str | int | None) -> None:
        """One request, and its answer. Raises _CutOff if it ends before the answer, and as httpx2 does."""
        assert self._http is not None
        headers = {**self._link.headers, **headers}
        async with self._http.stream("POST", self._link.url + PATH, content=body, headers=headers) as response:
            self._session = response.headers.get(_SESSION, self._session)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                answered = False
                async for data in _events(response):
                    answered = self._pass_on(data, id) or answered
                if id is not None and not answered:
                    raise _CutOff("its answer was cut off")
                return
            content = await response.aread()
        if id is None:
            return
        if response.status_code in (502, 504):  # of a proxy: the server is being started
            raise _CutOff(f"HTTP {response.status_code}")
        if not self._pass_on(content, id):
            _refuse(id, _format_sentence(response.status_code, content, response.headers.get("retry-after")))

    def _headers(self, message: Mapping[str, Any]) -> dict[str, str]:
        """The headers that repeat what the message says (revision 2026-07-28), and the key of a call, with which it can
        be sent again."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(VERSION) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            version = self._negotiated
        if version is not None and version.isascii() and version.isprintable():
            headers["MCP-Protocol-Version"] = version
        if self._session is not None and message.get("method") != "initialize":
            headers[_SESSION] = self._session
        if isinstance(method := message.get("method"), str):
            headers["Mcp-Method"] = encode_header(method)
        name = next((params[each] for each in _NAMES if isinstance(params.get(each), str)), None)
        if name is not None:
            headers["Mcp-Name"] = encode_header(name)
        if method == "tools/call":
            headers["Idempotency-Key"] = str(uuid.uuid4())
        return headers

    def _pass_on(self, data: bytes, id: str | int | None) -> bool:
        """Write a message of the server. Returns whether it is the answer to the request."""
        from hai_flow import values

        try:
            message = values.loads(data)
        except ValueError:
            return False
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return False
        is_answer = "result" in message or "error" in message
        if is_answer and message.get("id") is None:
            data = values.dumps({**message, "id": id})  # an error for which the server has read no id
        result = message.get("result")
        if isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._negotiated = result["protocolVersion"]
        _write(data if b"\n" not in data else values.dumps(message))
        return is_answer

    def _unreachable(self, fault: str) -> str:
        return (
            f"No server answers at {self._link.url} ({fault}). Start one with `{program()} dev`, or say where it is in "
            "HAI_FLOW_URL."
        )


def encode_header(value: str) -> str:
    """The value as a header of MCP has it: as it is, or in base64 where it would not arrive as it is. It is the SDK's
    `encode_header_value`, whose import takes longer than all else that this command does."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith(_BASE64) and value[len(_BASE64) :].endswith("?=")):
        return value
    return f"{_BASE64}{base64.b64encode(value.encode()).decode()}?="


class _CutOff(Exception):
    """The connection ended before the answer."""


def _format_sentence(status: int, content: bytes, retry_after: str | None) -> str:
    """A refusal that is no message of MCP: one of the server's own, or of a proxy before it."""
    from hai_flow import values

    try:
        problem = values.loads(content)
    except ValueError:
        problem = None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    sentence = detail if isinstance(detail, str) else f"the server answered with HTTP {status}."
    if status == 401:
        sentence += " The command takes its key from HAI_FLOW_KEY."
    return f"{sentence} Try again in {retry_after} seconds." if retry_after else sentence


def _refuse(id: str | int | None, sentence: str) -> None:
    if id is not None:
        _write(_error(id, _INTERNAL, sentence))


def _id_in(line: bytes) -> str | int | None:
    """The id of a request that no run could hold, so that its client does not wait; None where there is none."""
    from hai_flow import foreign

    try:
        message = json.loads(line, object_pairs_hook=foreign.demand_one_value_each)
    except (ValueError, RecursionError):
        return None
    id = message.get("id") if isinstance(message, dict) else None
    if isinstance(id, str):
        return id if id.isprintable() else None
    return id if isinstance(id, int) and not isinstance(id, bool) and abs(id) < 2**53 else None


def _error(id: str | int | None, code: int, sentence: str) -> bytes:
    from hai_flow import values

    return values.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": sentence}})


def _write(message: bytes) -> None:
    sys.stdout.buffer.write(message + b"\n")
    sys.stdout.buffer.flush()


async def _events(response: httpx2.Response) -> AsyncIterator[bytes]:
    from hai_flow_client.sse import Parser

    parser = Parser()
    async for chunk in response.aiter_bytes():
        for frame in parser.feed(chunk):
            yield frame.data


async def _lines() -> AsyncIterator[bytes]:
    """The lines of standard input, until it ends. A thread reads them: a file can't be waited for."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        while line := sys.stdin.buffer.readline(LINE_BYTES_MAX):
            if line.strip():
                loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line
