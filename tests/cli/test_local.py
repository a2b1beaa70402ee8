"""The client of a server on this machine, against answers in every form that HTTP/1.1 has, and in none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hai_flow_client import HaiFlowError, Patience
from hai_flow_client.link import Link

from hai_flow.cli.client.loopback_http import LocalClient, is_local

ONCE = Patience(repeats=0, reconnects=0)


@asynccontextmanager
async def answering(
    *pieces: bytes, silent: bool = False, patience: Patience = ONCE
) -> AsyncIterator[tuple[LocalClient, list[bytes]]]:
    """A client of a server that answers each request with these pieces; `silent`: and then says nothing more."""
    requests: list[bytes] = []
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0)
        requests.append(head + await reader.readexactly(length))
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if silent:
            await left.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with LocalClient(f"http://127.0.0.1:{port}/base", act_as="user:ann", patience=patience) as client:
            yield client, requests
    finally:
        left.set()
        server.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (OK + b'Content-Length: 9\r\n\r\n{"a": 12}',),
        (OK[:20], OK[20:] + b"content-length:9\r\n", b'\r\n{"a":', b" 12}"),
        (OK + b'Transfer-Encoding: chunked\r\n\r\n4;x=y\r\n{"a"\r\n', b"5\r\n: 12}\r\n", b"0\r\n\r\n"),
        (OK + b'\r\n{"a": 12}',),
    ],
)
async def test_a_body_is_read_in_each_of_its_forms(pieces: tuple[bytes, ...]) -> None:
    async with answering(*pieces) as (client, requests):
        answer = await client.request("POST", "/v1/runs", json={"x": "ü"}, query={"status": ["a b", "c"]})
        assert answer.read() == {"a": 12}
        (request,) = requests
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /base/v1/runs?status=a+b&status=c HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nHAI-Act-As: user:ann" in head
        assert body == '{"x":"ü"}'.encode()


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ((b"SSH-2.0-OpenSSH\r\n\r\n",), "no HAI Flow server"),
        ((b"HTTP/1.1 banana\r\n\r\n",), "no HAI Flow server"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",), "no HAI Flow server"),
        ((OK + b"Content-Length: 9\r\n\r\n{",), "the connection was closed"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",), "the connection was closed"),
        ((OK,), "the connection was closed"),
        ((), "the connection was closed"),
    ],
)
async def test_no_whole_answer_is_a_sentence(pieces: tuple[bytes, ...], reason: str) -> None:
    async with answering(*pieces) as (client, _):
        with pytest.raises(HaiFlowError, match=reason) as failed:
            await client.request("GET", "/v1/runs")
        assert failed.value.code == "unreachable"


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with answering(OK, silent=True, patience=replace(ONCE, answer=0.05)) as (client, _):
        with pytest.raises(HaiFlowError, match="it takes too long"):
            await client.request("GET", "/v1/runs")


def test_only_a_server_on_this_machine_without_tls_is_asked_so() -> None:
    def local(url: str) -> bool:
        return is_local(Link.to(url, act_as=None, headers=None, patience=None))

    assert local("http://127.0.0.1:8000")
    assert local("http://localhost")
    assert local("http://[::1]:8000")
    assert not local("https://127.0.0.1:8000")
    assert not local("http://flow.example")
