"""A body that is too large is refused so that any client can read why, also one that writes all of it first."""

from __future__ import annotations

import json
import socket
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.support.server import ServerProcess

DOORS: Final = (
    ("/v1/runs", "application/json"),
    ("/v1/workflows", "application/yaml"),
    ("/v1/events", "application/json"),
    ("/awp", "application/json"),
    ("/ag-ui", "application/json"),
    ("/process", "application/json"),
    ("/api/aui/input", "application/json"),
    ("/cpk/agent/chat/run", "application/json"),
)
SIZE: Final = 6 * 1024 * 1024


def sent_whole(url: str, path: str, kind: str, size: int, *, chunked: bool) -> tuple[int, dict[str, object]]:
    """What a client reads that writes its whole body first, and only then looks for an answer."""
    address = urlsplit(url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 80), timeout=30) as connection:
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: {kind}\r\n{length}\r\n\r\n".encode()
        )
        piece = b"x" * 65536
        for _ in range(size // len(piece)):
            connection.sendall(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
        if chunked:
            connection.sendall(b"0\r\n\r\n")
        answer = b""
        while b"}" not in answer and (part := connection.recv(65536)):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])


@pytest.mark.parametrize("chunked", [False, True], ids=["of a known length", "in chunks"])
@pytest.mark.parametrize(("path", "kind"), DOORS, ids=[path for path, _ in DOORS])
def test_who_writes_a_whole_body_that_is_too_large_reads_413(
    server: ServerProcess, path: str, kind: str, chunked: bool
) -> None:
    status, problem = sent_whole(server.url, path, kind, SIZE, chunked=chunked)
    assert (status, problem["code"]) == (413, "body.too_large"), problem


def test_who_writes_a_whole_file_that_is_too_large_reads_413(server: ServerProcess) -> None:
    status, problem = sent_whole(server.url, "/v1/files", "text/plain", 72 * 1024 * 1024, chunked=False)
    assert (status, problem["code"]) == (413, "file.too_large")
