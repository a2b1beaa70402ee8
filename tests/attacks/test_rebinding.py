"""A web page of a name that its owner lets point to this server (DNS rebinding) reaches nothing by it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.identities import KEYS
from tests.support.postgres import Server
from tests.support.server import ServerProcess, serving

REMOTE = {**KEYS, "HAI_FLOW_ALLOW_REMOTE": "1", "HAI_FLOW_ALLOWED_HOSTS": "flow.example.com"}


@pytest.fixture(scope="module")
def remote(postgres_server: Server) -> Iterator[ServerProcess]:
    """A server that is set up to be reached from other machines."""
    with postgres_server.database() as dsn, serving(dsn, environment=REMOTE) as process:
        yield process


def ask(server: ServerProcess, method: str, path: str, **headers: str) -> httpx2.Response:
    return httpx2.request(method, server.url + path, headers=headers, json={} if method == "POST" else None)


@pytest.mark.parametrize("name", ["evil.example", "evil.example:8000", "0.0.0.0", "flow.example.com.evil.example"])
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/runs"), ("POST", "/v1/runs"), ("POST", "/awp")])
def test_a_page_whose_name_was_made_to_point_here_is_refused(
    remote: ServerProcess, name: str, method: str, path: str
) -> None:
    response = ask(remote, method, path, Host=name, Origin=f"http://{name}")
    assert (response.status_code, response.json()["code"]) == (421, "host_unknown")


def test_nor_does_it_open_a_websocket(remote: ServerProcess) -> None:
    place = urlsplit(remote.url)
    request = (
        "GET /api/aui/ws/text HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
        connection.sendall(request.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("origin", ["http://localhost:1", "https://flow.example.com:444", "null", "http://[", "x"])
def test_a_page_of_another_port_or_of_nowhere_is_no_page_of_ours(remote: ServerProcess, origin: str) -> None:
    response = ask(remote, "POST", "/awp", Host="flow.example.com", Origin=origin)
    assert (response.status_code, response.json()["code"]) == (403, "origin_refused")


def test_a_page_of_ours_may_call(remote: ServerProcess) -> None:
    response = ask(remote, "GET", "/readyz", Host="flow.example.com", Origin="https://flow.example.com")
    assert response.status_code == 200
