"""Bodies in chunks that are cut wrongly, and headers behind them: nobody reads two requests where one was sent."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Final

import httpx2
import pytest

from tests.attacks.test_connections import HURRY, connect, to_the_end
from tests.support.hai_client import unique
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

FLOW: Final = "hai: flow/v1\nname: chunked\nversion: 1\nsteps: [{say: hi}]\n"
HEAD: Final = (
    "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\n%s\r\n"
)
SMUGGLED: Final = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[ServerProcess]:
    """One that waits for nothing for long."""
    with postgres_server.database() as dsn, serving(dsn, environment=HURRY) as process:
        assert httpx2.post(f"{process.url}/v1/workflows", content=FLOW, headers=YAML).status_code in (200, 201)
        yield process


@pytest.fixture(scope="module")
def patient(postgres_server: Server) -> Iterator[ServerProcess]:
    with postgres_server.database() as dsn, serving(dsn) as process:
        yield process


def body_for(thread: str) -> str:
    return json.dumps({"workflow": "chunked", "thread_id": thread})


def statuses(received: bytes) -> list[int]:
    return [int(part.split()[0]) for part in received.split(b"HTTP/1.1 ")[1:]]


def runs_of(server: ServerProcess, thread: str) -> int:
    return len(httpx2.get(f"{server.url}/v1/runs", params={"thread_id": thread}).json()["items"])


def sent(server: ServerProcess, request: str) -> list[int]:
    """The statuses of all that the server answers until it hangs up."""
    with connect(server.url, request.encode("latin-1")) as connection:
        received = to_the_end(connection)
    return statuses(received)


SIZES: Final = {
    "no number": "zz",
    "no digits at all": "",
    "a sign before it": "+{size}",
    "a negative one": "-1",
    "in the way of programs": "0x{size}",
    "digits with a joint": "{size_}",
    "more than any memory": "F" * 17,
    "one too many": "{more}",
    "one too few": "{less}",
    "a space before it": " {size}",
    "a character of no line": "{size}\x0b",
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_a_chunk_of_a_wrong_size_is_no_request(server: ServerProcess, size: str) -> None:
    thread = unique("chunk")
    body = body_for(thread)
    n = len(body)
    given = size.format(size=f"{n:x}", size_="_".join(f"{n:x}"), more=f"{n + 1:x}", less=f"{n - 1:x}")
    answered = sent(server, HEAD % "" + f"{given}\r\n{body}\r\n0\r\n\r\n" + SMUGGLED)
    assert [each for each in answered if each < 400] == []
    assert len(answered) <= 1, "what stands behind a wrong chunk is no request of its own"
    assert runs_of(server, thread) == 0


LENGTHS: Final = {
    "a length beside it": "Content-Length: 5\r\n",
    "an encoding behind it": "Transfer-Encoding: identity\r\n",
    "an encoding that nobody has": "Transfer-Encoding: xchunked\r\n",
}


@pytest.mark.parametrize("header", LENGTHS.values(), ids=LENGTHS.keys())
def test_a_body_that_ends_in_two_ways_is_no_request(server: ServerProcess, header: str) -> None:
    thread = unique("chunk")
    body = body_for(thread)
    answered = sent(server, HEAD % header + f"{len(body):x}\r\n{body}\r\n0\r\n\r\n" + SMUGGLED)
    assert [each for each in answered if each < 400] == []
    assert len(answered) <= 1
    assert runs_of(server, thread) == 0


def test_a_chunked_request_is_one_request_whatever_its_extensions(server: ServerProcess) -> None:
    thread = unique("chunk")
    body = body_for(thread)
    chunks = "".join(f"1;name=value\r\n{character}\r\n" for character in body)
    answered = sent(server, HEAD % "Connection: close\r\n" + chunks + "0\r\n\r\n")
    assert answered == [201]
    assert runs_of(server, thread) == 1


def test_what_stands_behind_a_body_counts_as_no_header(server: ServerProcess) -> None:
    thread = unique("chunk")
    body = body_for(thread)
    trailers = "HAI-Act-As: user:eve\r\nIdempotency-Key: theirs\r\nContent-Type: text/plain\r\nHost: evil.example\r\n"
    said = "Trailer: HAI-Act-As\r\nConnection: close\r\n"
    answered = sent(server, HEAD % said + f"{len(body):x}\r\n{body}\r\n0\r\n{trailers}\r\n")
    assert answered == [201]
    (run,) = httpx2.get(f"{server.url}/v1/runs", params={"thread_id": thread}).json()["items"]
    events = httpx2.get(f"{server.url}/v1/runs/{run['id']}/events").json()["items"]
    assert events[0]["requester"] == "user:local"


@pytest.mark.parametrize("line", ["X-{n}: {x}\r\n", "{x}"], ids=["many headers", "one header"])
def test_headers_behind_a_body_that_do_not_end_are_not_kept(patient: ServerProcess, line: str) -> None:
    """The connection is closed for what was sent, not for the time that it took."""
    body = body_for(unique("chunk"))
    with connect(patient.url, (HEAD % "" + f"{len(body):x}\r\n{body}\r\n0\r\nX-Long: ").encode()) as connection:
        endless = "".join(line.format(n=n, x="x" * 1000) for n in range(1000))
        with contextlib.suppress(OSError):
            connection.sendall(endless.encode())
        assert statuses(to_the_end(connection)) == []
    assert httpx2.get(f"{patient.url}/healthz").status_code == 200
