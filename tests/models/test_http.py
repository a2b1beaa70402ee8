"""Answers of models' servers as bytes of HTTP: what is one, how often a connection is used, and what is none."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpcore2
import pytest

from hai_flow.errors import StepError
from hai_flow.models import http
from hai_flow.models.chat import ChatReader
from hai_flow.models.connections import Connections
from hai_flow.models.event_stream import StreamReader
from hai_flow.models.http import HEAD_BYTES_MAX
from hai_flow.models.vocabulary import Alive, Finish, Text
from tests.support.certificates import make_identity
from tests.support.waiting import until

BODY = (
    b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: %d\r\n\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n%x ;a=b\r\n%s\r\n0\r\n\r\n" % (30, BODY[:30], len(BODY) - 30, BODY[30:])
PACKED = gzip.compress(BODY)
GZIP = b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(PACKED), PACKED)
ENDLESS = b"y" * 10 * HEAD_BYTES_MAX  # more than is read at once
PIECE = b"%x\r\n%s\r\n" % (BODY.index(b"\n\n") + 2, BODY[: BODY.index(b"\n\n") + 2])
PACKER = zlib.compressobj(wbits=31)
FLUSHED = PACKER.compress(BODY) + PACKER.flush(zlib.Z_SYNC_FLUSH)
UNENDED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(FLUSHED), FLUSHED)  # gzip that its server does not end
CLOSES = True


class Served(NamedTuple):
    """The address of a server, an entry for each connection to it, and the head of each request."""

    url: str
    opened: list[asyncio.Task[Any] | None]
    heads: list[bytes]

    async def wait_for_end(self) -> None:
        """Returns when the first connection has ended."""
        task = self.opened[0]
        assert task is not None
        await asyncio.wait_for(task, 10)


@asynccontextmanager
async def serving(
    answer: bytes, *, closes: bool, bitwise: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Served]:
    """A server that answers each request with these bytes."""
    opened, heads = list[asyncio.Task[Any] | None](), list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(asyncio.current_task())
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(int(heads[-1].lower().partition(b"content-length: ")[2].split()[0]))
                for each in [bytes([each]) for each in answer] if bitwise else [answer]:
                    writer.write(each)
                    await writer.drain()
                if closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        scheme = "http" if tls is None else "https"
        yield Served(f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", opened, heads)
    await asyncio.gather(*filter(None, opened))


async def ask(connections: Connections, url: str, key: str = "k") -> list[Any]:
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
        (OK + b"content-encoding: gzip\r\n" + CHUNKED + b"\r\n" + UNENDED, not CLOSES, 1),
        (OK + LENGTH + BODY + OK + LENGTH + BODY, not CLOSES, 2),
        (OK + LENGTH + BODY + b"junk", not CLOSES, 2),
        ((OK + GZIP) * 2, not CLOSES, 2),
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
    async with serving(answer, closes=closes, bitwise=bitwise) as (url, opened_by_client, _):
        for _ in range(2):
            assert await ask(connections, url) == [Text("Hi"), Finish("stop")]
        await connections.close()
    assert len(opened_by_client) == opened


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
        (OK + CHUNKED.title() + b"\r\nff\r\n" + BODY[:30], "llm.truncated", "broke off"),
        (b"HTTP/1.1 500 x\r\n" + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nx: " + ENDLESS, "llm.unavailable", "answered 500"),
        (b"HTTP/1.1 000 x\r\n" + LENGTH + BODY, "llm.unavailable", "no status 0"),
        (b"HTTP/1.1 301 x\r\nlocation: /x\r\n\r\n", "llm.not_configured", r"to http://127[^@]*/x\. Write"),
        (b"HTTP/1.1 304 x\r\n\r\n", "llm.not_configured", r"answered 304: it redirects, and gives no address\."),
        (b"HTTP/1.1 307 x\r\nlocation: http://[::1\r\n\r\n", "llm.not_configured", r"to http://\[::1\. Write"),
    ],
)
async def test_what_is_no_answer_is_a_fault(answer: bytes, code: str, words: str) -> None:
    async with serving(answer, closes=not answer.endswith(ENDLESS)) as (url, _, _), asyncio.timeout(10):
        with pytest.raises(StepError, match=words) as raised:
            await ask(connections := Connections(), url.replace("//", "//user:secret@"))
        await connections.close()
    assert raised.value.code == code


async def test_an_error_whose_body_does_not_come_is_that_of_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hai_flow.models.connections.FAULT_SECONDS", 0.01)
    async with serving(b"HTTP/1.1 429 x\r\ncontent-length: 9\r\n\r\n{", closes=not CLOSES) as (url, _, _):
        with pytest.raises(StepError, match="429"):
            await ask(Connections(), url)


async def test_of_a_large_error_the_beginning_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hai_flow.models.connections.FAULT_BYTES_MAX", 100)
    monkeypatch.setattr("hai_flow.models.connections.FAULT_SECONDS", 60)
    answer = b"HTTP/1.1 500 x\r\ncontent-length: 999\r\n\r\nno room " + 100 * b"y"
    async with serving(answer, closes=not CLOSES) as (url, _, _), asyncio.timeout(20):
        with pytest.raises(StepError, match="answered 500: no room y"):
            await ask(Connections(), url)


@pytest.mark.parametrize(("begun", "times"), [(b"", 2), (OK[:9], 1)], ids=["before an answer", "within it"])
async def test_a_request_on_a_kept_connection_that_ends_unanswered_is_repeated(begun: bytes, times: int) -> None:
    opened: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        for answer in [OK + LENGTH + BODY, begun] if len(opened) == 1 else [b""]:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.write(answer)
        writer.close()

    connections = Connections()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        assert await ask(connections, url) == [Text("Hi"), Finish("stop")]
        with pytest.raises(StepError, match="has closed the connection"):
            await ask(connections, url)
        await connections.close()
    assert len(opened) == times


async def test_what_a_server_says_on_an_idle_connection_answers_no_request() -> None:
    """As the 408 of a proxy that has waited for too long: it is there, and nobody has read it yet."""
    idle: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        idle.append(writer)
        await reader.readuntil(b"}")
        writer.write(OK + LENGTH + BODY)

    connections = Connections()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        assert await ask(connections, url) == [Text("Hi"), Finish("stop")]
        os.write(idle[0].get_extra_info("socket").fileno(), b"HTTP/1.1 408 x\r\ncontent-length: 0\r\n\r\n")
        assert await ask(connections, url) == [Text("Hi"), Finish("stop")]
        await connections.close()
        for writer in idle:
            writer.close()
    assert len(idle) == 2


async def test_of_many_connections_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEPT_MAX", 2)
    connections = Connections()
    async with serving(OK + LENGTH + BODY, closes=not CLOSES) as served:
        await asyncio.gather(*(ask(connections, served.url) for _ in range(4)))
        assert len(served.opened) == 4
        await asyncio.gather(*(ask(connections, served.url) for _ in range(4)))
        assert len(served.opened) == 6
        await connections.close()


@asynccontextmanager
async def open_exchange(url: str) -> AsyncIterator[tuple[Any, http.HttpAnswer]]:
    """A request by the pool itself: its connection and its answer."""
    parts, pool = urlsplit(url), http.HttpPool(ssl.create_default_context)
    origin = http.ServerOrigin(str(parts.hostname), parts.port or 80, secure=False)
    connection, answer = await pool.ask(origin, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    yield connection, answer
    pool.give_back(connection)
    pool.close()


async def test_a_header_that_stands_twice_has_both_values() -> None:
    async with (
        serving(OK + b"X-A: 1\r\nx-a: 2\r\n" + LENGTH + BODY, closes=not CLOSES) as served,
        open_exchange(served.url) as (_, answer),
    ):
        assert answer.headers["x-a"] == "1, 2"
        assert b"".join([each async for each in answer.chunks]) == BODY


async def test_a_body_that_nobody_reads_yet_is_not_taken_in() -> None:
    large = b"y" * 8 * 1024**2
    answer = OK + b"content-length: %d\r\n\r\n" % len(large) + large
    async with serving(answer, closes=not CLOSES) as served, open_exchange(served.url) as (connection, response):
        await until(lambda: connection._is_paused)
        assert connection._buffered < len(large) / 4
        assert b"".join([each async for each in response.chunks]) == large


@pytest.mark.parametrize(
    ("written", "path"),
    [("/v1", b"/v1/chat"), ("/v1/", b"/v1/chat"), ("", b"/chat"), ("/a%2Fb?v=1", b"/a%2Fb/chat?v=1")],
)
async def test_a_request_goes_below_the_path_of_its_server(written: str, path: bytes) -> None:
    async with serving(OK + LENGTH + BODY, closes=CLOSES) as served:
        await ask(connections := Connections(), served.url.removesuffix("/v1") + written)
        await connections.close()
    assert served.heads[0].split()[1] == path


async def test_a_name_and_a_password_in_the_address_are_sent_as_such() -> None:
    async with serving(OK + LENGTH + BODY, closes=CLOSES) as served:
        await ask(connections := Connections(), served.url.replace("//", "//user:secret@"))
        await connections.close()
    assert b"authorization: Basic dXNlcjpzZWNyZXQ=\r\n" in served.heads[0]
    assert b"Bearer" not in served.heads[0]


@pytest.mark.parametrize(
    ("name", "value"), [("all_proxy", "socks5://h:1"), ("http_proxy", "foo://h"), ("https_proxy", "http://[::1")]
)
async def test_a_proxy_that_is_none_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StepError, match=name) as raised:
        await ask(Connections(), "http://127.0.0.1:9/v1")
    assert raised.value.code == "llm.not_configured"


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def behind_proxy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the environment names a proxy: port 9, until a test names another."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    if request.param:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    return bool(request.param)


@pytest.mark.usefixtures("behind_proxy")
@pytest.mark.parametrize("key", ["sk-1\n", "sk-1\r\nx: y", "sk-ä"])
async def test_a_key_that_no_header_can_carry_is_refused_unshown(key: str) -> None:
    with pytest.raises(StepError, match="the header `authorization` can't be sent") as raised:
        await ask(Connections(), "http://127.0.0.1:9/v1", key)
    assert (raised.value.code, "sk-" in raised.value.message) == ("llm.not_configured", False)


async def test_cookies_are_not_sent_with_later_calls(behind_proxy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections()
    async with serving(OK + b"set-cookie: sid=abc\r\n" + LENGTH + BODY, closes=CLOSES) as served:
        if behind_proxy:
            monkeypatch.setenv("http_proxy", served.url.removesuffix("/v1"))
        for _ in range(2):
            url = "http://nowhere.example/v1" if behind_proxy else served.url
            assert await ask(connections, url) == [Text("Hi"), Finish("stop")]
        await connections.close()
    assert [b"cookie" in head.lower() for head in served.heads] == [False, False]


def read_authorities_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests share a context (tests/conftest.py)."""
    monkeypatch.setattr(httpcore2, "default_ssl_context", vars(httpcore2)["default_ssl_context"].__wrapped__)


@pytest.mark.parametrize(("host", "words"), [("127.0.0.1", None), ("localhost", "certificate verify failed")])
async def test_a_server_shows_a_certificate_for_its_name(
    host: str, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, tls = make_identity(tmp_path), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(identity.certificate, identity.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(identity.authority))
    read_authorities_anew(monkeypatch)
    connections = Connections()
    async with serving(OK + LENGTH + BODY, closes=not CLOSES, tls=tls) as served:
        url = served.url.replace("127.0.0.1", host)
        if words is None:
            assert [await ask(connections, url) for _ in range(2)] == [[Text("Hi"), Finish("stop")]] * 2
        else:
            with pytest.raises(StepError, match=words):
                await ask(connections, url)
        await connections.close()
    assert len(served.opened) == (words is None)


async def test_certificates_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    read_authorities_anew(monkeypatch)
    with pytest.raises(StepError, match="SSL_CERT_FILE") as raised:
        await ask(Connections(), "https://127.0.0.1:9/v1")
    assert raised.value.code == "llm.not_configured"


@pytest.mark.parametrize("is_closed", [False, True], ids=["abandoned", "closed in use"])
async def test_a_connection_whose_answer_is_not_whole_ends_with_its_call(is_closed: bool) -> None:
    connections, reader = Connections(), StreamReader(ChatReader())
    async with serving(OK + CHUNKED + b"\r\n" + PIECE, closes=not CLOSES) as served:
        async with aclosing(connections.ask(served.url, "/chat", {}, {"messages": []}, reader)) as pieces:
            assert await anext(pieces) == Text("Hi")
            if is_closed:
                await connections.close()
        await served.wait_for_end()


async def test_a_closed_pool_keeps_no_connection() -> None:
    connections, reader = Connections(), StreamReader(ChatReader())
    async with serving(OK + LENGTH + BODY, closes=not CLOSES) as served:
        async with aclosing(connections.ask(served.url, "/chat", {}, {"messages": []}, reader)) as pieces:
            await anext(pieces)
            await connections.close()
            assert [each async for each in pieces][-1] == Finish("stop")
        await served.wait_for_end()


async def test_a_cancelled_connect_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race of two addresses is cancelled in the moment in which one has won."""
    opened = list[socket.socket]()

    async def open_one(*address: Any) -> socket.socket:
        opened.append(socket.socket())
        task.cancel()
        return opened[-1]

    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))
    addresses = asyncio.get_running_loop().create_future()
    addresses.set_result([address, address])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lambda *_, **__: addresses)
    monkeypatch.setattr(http, "_open_one", open_one)
    task = asyncio.create_task(http._open_socket(http.ServerOrigin("two.example", 9, False)))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each.fileno() for each in opened] == [-1]


async def test_behind_a_proxy_the_request_goes_to_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(OK + LENGTH + BODY, closes=CLOSES) as (url, opened, _):
        monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        connections = Connections()
        assert await ask(connections, "http://nowhere.example/v1") == [Text("Hi"), Finish("stop")]
        await connections.close()
    assert len(opened) == 1
