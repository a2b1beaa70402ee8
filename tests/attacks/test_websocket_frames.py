"""Frames that are hardly a WebSocket's: the connection is closed, the server goes on, and its log has no traceback."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.server import ServerProcess

HANDSHAKE = (
    "GET /api/aui/ws/text HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def frame(opcode: int, body: bytes = b"", *, flags: int = 0x80, mask: bool = True, length: int | None = None) -> bytes:
    """One frame of RFC 6455, section 5.2, as wrong as the arguments say."""
    size = len(body) if length is None else length
    bit = 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", flags | opcode, bit | size)
    elif size < 2**16:
        head = struct.pack("!BBH", flags | opcode, bit | 126, size)
    else:
        head = struct.pack("!BBQ", flags | opcode, bit | 127, size)
    return head + (b"\0\0\0\0" if mask else b"") + body


MALFORMED = {
    "not masked": frame(1, b"{}", mask=False),
    "a reserved bit": frame(1, b"{}", flags=0xC0),
    "a reserved opcode": frame(3, b"x"),
    "a reserved control opcode": frame(11, b"x"),
    "a control frame in pieces": frame(9, b"x", flags=0),
    "a control frame that is too long": frame(9, b"x" * 126),
    "a continuation of nothing": frame(0, b"x"),
    "a message inside another": frame(1, b"{", flags=0) + frame(1, b"}"),
    "text that is no UTF-8": frame(1, b"\xff\xfe"),
    "a close code of one byte": frame(8, b"\x03"),
    "a close code that nobody may send": frame(8, struct.pack("!H", 1005)),
    "a close reason that is no UTF-8": frame(8, struct.pack("!H", 1000) + b"\xff"),
    "a length that cannot be": frame(1, b"x", length=2**63),
    "a message that is too large": frame(1, b"x" * 64, length=2**40),
    "no frame at all": b"GET / HTTP/1.1\r\n\r\n",
    "chance": os.urandom(200),
}


@contextmanager
def connected(server: ServerProcess) -> Iterator[socket.socket]:
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        connection.sendall(HANDSHAKE.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1)
        assert answer.startswith(b"HTTP/1.1 101"), answer
        yield connection


def to_the_end(connection: socket.socket) -> None:
    """Read until the other side has closed, by whatever way."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_frame_ends_its_connection_and_nothing_else(
    server: ServerProcess, http: httpx2.Client, sent: bytes
) -> None:
    with connected(server) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        to_the_end(connection)
    assert http.get("/healthz").status_code == 200
    assert not server.faults


def test_a_connection_reset_inside_a_frame_leaves_nothing(server: ServerProcess, http: httpx2.Client) -> None:
    with connected(server) as connection:
        connection.sendall(frame(1, b'{"action": "ru', length=100))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert http.get("/healthz").status_code == 200
    assert not server.faults
