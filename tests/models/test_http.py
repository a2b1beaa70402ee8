"""Answers of models' servers as bytes of HTTP: what is one, how often a connection is used, and what is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hai_flow.errors import StepError
from hai_flow.models.chat import ChatReader
from hai_flow.models.connections import Connections
from hai_flow.models.event_stream import StreamReader
from hai_flow.models.http import HEAD_BYTES_MAX
from hai_flow.models.vocabulary import Alive, Finish, Text

BODY = (
    b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: %d\r\n\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n%x ;a=b\r\n%s\r\n0\r\n\r\n" % (30, BODY[:30], len(BODY) - 30, BODY[30:])
CLOSES = True


@asynccontextmanager
async def serving(answer: bytes, *, closes: bool, bitwise: bool = False) -> AsyncIterator[tuple[str, list[Any]]]:
    """A server that answers each request with these bytes; its address, and an entry for each connection."""
    opened: list[asyncio.Task[Any] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                for each in [bytes([each]) for each in answer] if bitwise else [answer]:
                    writer.write(each)
                    await writer.drain()
                if closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", opened
    await asyncio.gather(*filter(None, opened))


async def asked(connections: Connections, url: str, key: str = "k") -> list[Any]:
    headers, reader = {"authorization": f"Bearer {key}"}, StreamReader(ChatReader())
    pieces = connections.ask(url, "/chat", headers, {"messages": []}, reader)
    return [each async for each in pieces if not isinstance(each, Alive)]


@pytest.mark.parametrize(
    ("answer", "closes", "opened"),
    [
        (OK + LENGTH + BODY, not CLOSES, 1),
        (OK + CHUNKED + b"\r\n" + CHUNKS, not CLOSES, 1),
        (OK + CHUNKED + b"content-length: 3\r\n\r\n" + CHUNKS, not CLOSES, 1),
        (b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK + b"x: a\r\n b\r\n" + LENGTH + BODY, not CLOSES, 1),
        ((OK + LENGTH).replace(b"\r\n", b"\n") + BODY, not CLOSES, 1),
        (OK + LENGTH + BODY + OK + LENGTH + BODY, not CLOSES, 2),
        (OK + LENGTH + BODY + b"junk", not CLOSES, 2),
        (OK + b"connection: close\r\n" + LENGTH + BODY, not CLOSES, 2),
        (OK + LENGTH + BODY, CLOSES, 2),
        (OK + b"\r\n" + BODY, CLOSES, 2),
        (b"HTTP/1.0 200\r\n\r\n" + BODY, CLOSES, 2),
    ],
)
@pytest.mark.parametrize("bitwise", [False, True])
async def test_an_answer_is_read_and_its_connection_is_kept(
    answer: bytes, closes: bool, opened: int, bitwise: bool
) -> None:
    connections = Connections()
    async with serving(answer, closes=closes, bitwise=bitwise) as (url, times):
        for _ in range(2):
            assert await asked(connections, url) == [Text("Hi"), Finish("stop")]
        await connections.close()
    assert len(times) == opened


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (b"", "llm.unavailable", "has closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n", "llm.unavailable", "is not HTTP"),
        (b"HTTP/1.1 101 x\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "llm.unavailable", "is not HTTP"),
        (OK + b"x: " + b"y" * HEAD_BYTES_MAX, "llm.unavailable", "is longer than 100 KiB"),
        (OK + LENGTH + BODY[:60], "llm.truncated", "broke off"),
        (OK + CHUNKED + b"\r\n" + CHUNKS[:60], "llm.truncated", "broke off"),
        (OK + CHUNKED + b"\r\nzz\r\n", "llm.truncated", "broke off"),
    ],
)
async def test_what_is_no_answer_is_a_fault(answer: bytes, code: str, words: str) -> None:
    async with serving(answer, closes=CLOSES) as (url, _):
        with pytest.raises(StepError, match=words) as raised:
            await asked(connections := Connections(), url)
        await connections.close()
    assert raised.value.code == code


@pytest.mark.parametrize("key", ["sk-1\n", "sk-1\r\nx: y", "sk-ä"])
async def test_a_key_that_no_header_can_carry_is_refused_unshown(key: str) -> None:
    with pytest.raises(StepError, match="the header `authorization` can't be sent") as raised:
        await asked(Connections(), "http://127.0.0.1:9/v1", key)
    assert (raised.value.code, "sk-" in raised.value.message) == ("llm.not_configured", False)


async def test_behind_a_proxy_the_request_goes_to_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(OK + LENGTH + BODY, closes=CLOSES) as (url, times):
        monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        connections = Connections()
        assert await asked(connections, "http://nowhere.example/v1") == [Text("Hi"), Finish("stop")]
        await connections.close()
    assert len(times) == 1
