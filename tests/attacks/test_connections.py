"""Connections that say nothing, little, slowly or too much are closed, and so many of them harm nobody else."""

from __future__ import annotations

import errno
import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI

from hai_flow.api.http import problems
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving
from tests.support.waiting import until

HURRY = {"HAI_FLOW_HEAD_SECONDS": "0.3", "HAI_FLOW_BODY_SECONDS": "1.5", "HAI_FLOW_BODY_STALL_SECONDS": "0.5"}
GET = b"GET /api/aui/ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /api/aui/ws/interactive HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
POST = (
    b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n"
)
RUN = b'{"workflow": "cleanup"}'


def connect(url: str, sent: bytes = b"", *, source: str = "127.0.0.1") -> socket.socket:
    """A connection from one of this machine's addresses, over which `sent` is sent."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=30, source_address=(source, 0))
    connection.sendall(sent)
    return connection


def to_the_end(connection: socket.socket) -> bytes:
    """What comes until the server hangs up."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def refusal(received: bytes) -> tuple[int, str]:
    """The status and the code of the problem that is all of the last response."""
    head, _, body = received[received.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["code"]


class Dripping:
    """Sends a piece again and again until the connection breaks."""

    def __init__(self, connection: socket.socket, piece: bytes) -> None:
        self._connection = connection
        self._piece = piece
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._drip, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _drip(self) -> None:
        try:
            while not self._over.wait(0.05):
                self._connection.sendall(self._piece)
        except OSError:
            pass


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hurried(postgres_server: Server) -> Iterator[ServerProcess]:
    with postgres_server.database() as dsn, serving(dsn, environment=HURRY) as process:
        yield process


def test_who_says_nothing_is_hung_up_on(hurried: ServerProcess) -> None:
    with connect(hurried.url) as silent:
        assert to_the_end(silent) == b""


@pytest.mark.parametrize("half", [b"G", GET[:-2], UPGRADE[:-2]])
def test_who_does_not_finish_a_head_is_told_so(hurried: ServerProcess, half: bytes) -> None:
    with connect(hurried.url, half) as slow:
        assert refusal(to_the_end(slow)) == (408, "head.slow")


@pytest.mark.parametrize("before", [b"", GET])
def test_a_head_that_drips_is_no_faster(hurried: ServerProcess, before: bytes) -> None:
    """On a connection that has borne a request as well."""
    with connect(hurried.url, before + GET[:-2]) as slow, Dripping(slow, b"x-a: b\r\n"):
        assert refusal(to_the_end(slow)) == (408, "head.slow")


@pytest.mark.parametrize("before", [b"", GET])
def test_empty_lines_keep_no_connection_open(hurried: ServerProcess, before: bytes) -> None:
    with connect(hurried.url, before) as idle, Dripping(idle, b"\r\n"):
        assert to_the_end(idle).count(b"HTTP/1.1 200") == len(before) // len(GET)


def test_what_is_left_of_a_refused_body_keeps_no_connection_open(hurried: ServerProcess) -> None:
    with connect(hurried.url, POST.replace(b"close", b"keep-alive") % 10**9) as refused, Dripping(refused, b" "):
        assert refusal(to_the_end(refused)) == (413, "body.too_large")


def test_a_head_without_an_end_is_not_kept(postgres_server: Server) -> None:
    with (
        postgres_server.database() as dsn,
        serving(dsn) as server,
        connect(server.url, GET[:-2]) as endless,
        Dripping(endless, b"x-a: " + b"b" * 50_000),
    ):
        assert refusal(to_the_end(endless)) == (431, "head.too_large")


@pytest.mark.parametrize("body", [b"", RUN[:-1]])
def test_a_body_of_which_nothing_more_comes_is_given_up(hurried: ServerProcess, body: bytes) -> None:
    with connect(hurried.url, POST % len(RUN) + body) as stalled:
        assert refusal(to_the_end(stalled)) == (408, "body.slow")


def test_a_body_that_drips_is_given_up_in_the_end(hurried: ServerProcess) -> None:
    with connect(hurried.url, POST % 1_000_000) as slow, Dripping(slow, b" "):
        assert refusal(to_the_end(slow)) == (408, "body.slow")


# --- number -------------------------------------------------------------------------------------------------------

PATIENT = {"HAI_FLOW_HEAD_SECONDS": "600", "HAI_FLOW_BODY_SECONDS": "600", "HAI_FLOW_BODY_STALL_SECONDS": "600"}
FEW = {**PATIENT, "HAI_FLOW_CONNECTIONS_MAX": "40", "HAI_FLOW_CONNECTIONS_PEER_MAX": "10"}


@pytest.fixture
def few(postgres_server: Server) -> Iterator[ServerProcess]:
    with postgres_server.database() as dsn, serving(dsn, environment=FEW) as process:
        yield process


def status_of(url: str, source: str) -> Any:
    """What a new connection is answered: a status, and the code of a problem."""
    with connect(url, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), source=source) as connection:
        received = to_the_end(connection)
        return 200 if received.startswith(b"HTTP/1.1 200") else refusal(received) if received else None


async def test_one_address_does_not_take_the_connections_of_others(few: ServerProcess) -> None:
    with ExitStack() as stack:
        for number in range(10):
            stack.enter_context(connect(few.url, UPGRADE if number % 2 else b""))
        assert status_of(few.url, "127.0.0.1") == (503, "connections_busy")
        assert status_of(few.url, "127.0.0.2") == 200
    await until(lambda: status_of(few.url, "127.0.0.1") == 200)


async def test_beyond_all_connections_everybody_is_told_so(few: ServerProcess) -> None:
    with ExitStack() as stack:
        for number in range(40):
            stack.enter_context(connect(few.url, UPGRADE if number % 2 else b"", source=f"127.0.0.{1 + number % 4}"))
        assert status_of(few.url, "127.0.0.5") == (503, "connections_busy")
        for _ in range(100):
            stack.enter_context(connect(few.url, source="127.0.0.5"))
    await until(lambda: status_of(few.url, "127.0.0.5") == 200)


async def test_the_database_and_files_keep_their_descriptors(postgres_server: Server) -> None:
    """More connections than the process may open files: those who were there are served, others are refused."""
    with postgres_server.database() as dsn, serving(dsn, environment=PATIENT, descriptors=128) as server:
        with ExitStack() as stack:
            begun = [stack.enter_context(connect(server.url, POST % len(RUN))) for _ in range(12)]
            for number in range(400):
                stack.enter_context(connect(server.url, source=f"127.0.0.{2 + number % 4}"))
            assert status_of(server.url, "127.0.0.9") in ((503, "connections_busy"), None)
            for each in begun:
                each.sendall(RUN)
            assert [to_the_end(each)[:12] for each in begun] == [b"HTTP/1.1 201"] * 12
        await until(lambda: status_of(server.url, "127.0.0.9") == 200)
        assert httpx2.get(f"{server.url}/readyz").status_code == 200
        assert "Too many open files" not in server.log


# --- bytes --------------------------------------------------------------------------------------------------------


async def test_bodies_that_do_not_end_have_a_bounded_room(postgres_server: Server) -> None:
    """Small ones from elsewhere go through meanwhile, and all of it is given back."""
    environment = {**PATIENT, "HAI_FLOW_BODIES_BYTES_MAX": "1000000"}
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as server:
        with ExitStack() as stack:
            large = [stack.enter_context(connect(server.url, POST % 200_000 + b" " * 190_000)) for _ in range(8)]
            await until(lambda: len(answered(large)) == 6)  # two, of 190,000 bytes each, fit into half the room
            assert {refusal(to_the_end(each)) for each in answered(large)} == {(429, "bodies_busy")}
            with connect(server.url, POST % len(RUN) + RUN, source="127.0.0.2") as small:
                assert to_the_end(small).startswith(b"HTTP/1.1 201")
        await until(lambda: httpx2.post(f"{server.url}/v1/runs", json={"workflow": "cleanup", "input": {}}).is_success)


def answered(connections: list[socket.socket]) -> list[socket.socket]:
    return select.select(connections, [], [], 0)[0]


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "Too many open files in system"),
        OSError("Multiple exceptions: [Errno 24] Too many open files, [Errno 24] Too many open files"),
    ],
)
async def test_too_many_open_files_are_no_fault_of_the_database(error: OSError) -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    def fail() -> None:
        raise error

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as http:
        response = await http.get("/")
    assert (response.status_code, response.json()["code"]) == (503, "too_many_open_files")
