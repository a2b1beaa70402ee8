"""A 2xx whose body is odd: the request was performed, so the step finishes, with what can be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hai_flow import values
from tests.steps.test_http import failure, perform
from tests.support.service import Reply, Service

WIDE = ("utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")  # but `utf-32`, without a byte order mark
BIG = b'{"id": 1234567890123456789}'


@pytest.mark.parametrize(
    ("body", "type", "value"),
    [
        (BIG, "application/json", {"id": "1234567890123456789"}),
        (b'\xef\xbb\xbf{"ok": true}', "application/json", {"ok": True}),
        ('{"ok": true}'.encode("utf-16"), "application/json", {"ok": True}),
        *(('{"a": "你"}'.encode(charset), "application/json; charset=utf-8", {"a": "你"}) for charset in WIDE),
        (b'{"n": [NaN, 1e400]}', "application/problem+json", {"n": ["NaN", "1e400"]}),
        (b'{"t": "\\u0000\\ud800"}', "application/json", {"t": "\ufffd\ufffd"}),
        (b'{"t": "\xff"}', "application/json; charset=nobody-knows", {"t": "\ufffd"}),
        (b"<html>Sign in</html>", "application/json", None),
        (b'{"a": ', "application/json", None),
        (b"[" * 100_000, "application/json", None),
        (b"a\x00\xff", "text/plain", None),
    ],
)
async def test_a_post_that_was_answered_finishes_whatever_its_body_is(body: bytes, type: str, value: Any) -> None:
    async with Service(lambda _: Reply(201, body, type=type)) as service:
        output = await perform({"post": service.url("/pay"), "body": {}})
    assert (output["status"], output["json"]) == (201, value)
    assert output["text"] == "" or "\x00" not in output["text"]
    assert not output["text"].startswith("\ufeff")


async def test_a_server_of_http_1_0_without_a_length_is_read() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.0 201 Created\r\nContent-Type: application/json\r\n\r\n{"id": 1234567890123456789}')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        output = await perform({"post": f"http://127.0.0.1:{port}/", "body": {}})
    assert (output["status"], output["json"]) == (201, {"id": "1234567890123456789"})


@asynccontextmanager
async def saying(said: bytes) -> AsyncIterator[str]:
    """The address of a server that says this behind each head, and hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\npaid"])
async def test_a_server_that_goes_away_in_the_middle_may_be_asked_again(said: bytes) -> None:
    async with saying(said) as url:
        fault = await failure({"post": url, "body": {}})
    assert (fault.code, fault.retriable) == ("http.connection", True)
    assert fault.data == ({**fault.data, "status": 201, "text": "paid"} if said else None)


HEADS = [  # what comes of an answer, and its status where it says one
    (b"HTTP/1.1 201 Created\r\nContent-Type: text/pl", 201),
    (b"HTTP/1.1 201 Cre", 201),
    (b"HTTP/1.1 201 Created\r\nno header\r\n\r\npaid", 201),
    (b"HTTP/1.1 abc\r\n\r\npaid", None),
    (b"<html>paid</html>", None),
    (b"paid 7\r\n", None),
    (b"\x16\x03\x01\x02\x00", None),
]


@pytest.mark.parametrize(("said", "status"), HEADS)
async def test_an_answer_without_a_head_is_kept_for_whoever_finds_out(said: bytes, status: int | None) -> None:
    async with saying(said) as url:
        fault = await failure({"post": url, "body": {}})
    assert fault.code in ("http.connection", "http.invalid_response")
    text = values.storable(said.decode())
    assert fault.data == {"url": url, "text": text} | ({} if status is None else {"status": status})


@pytest.mark.parametrize("behind", [b"", b"HTTP/1.1 201 Created\r\n"])
async def test_what_a_proxy_says_of_a_tunnel_is_not_the_answer(behind: bytes) -> None:
    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await reader.read(1)  # TLS begins
        writer.write(behind)
        writer.close()

    async with await asyncio.start_server(tunnel, "127.0.0.1", 0) as server:
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        fault = await failure({"post": "https://127.0.0.1/pay", "body": {}}, proxy=proxy)
    assert (fault.code, fault.data) == ("http.connection", None)


async def test_a_body_that_was_changed_has_notes_and_the_text_as_it_was() -> None:
    async with Service(lambda _: Reply(200, BIG)) as service:
        output = await perform({"get": service.url()})
    assert output["notes"] == ["/id: an integer beyond 2^53 is kept as text"]
    assert output["text"] == BIG.decode()
    async with Service(lambda _: Reply(200, b"<html>")) as service:
        assert "`json` is null" in (await perform({"get": service.url()}))["notes"][0]
    async with Service(lambda _: Reply(200, b"{}")) as service:
        assert "notes" not in await perform({"get": service.url()})


async def test_an_author_may_refuse_big_integers_and_sees_what_came() -> None:
    async with Service(lambda _: Reply(200, BIG)) as service:
        fault = await failure({"post": service.url("/pay"), "body": {}, "big_integers": "refuse"})
    assert (fault.code, fault.retriable) == ("http.invalid_response", False)
    assert (fault.data["status"], fault.data["text"]) == (200, BIG.decode())


async def test_the_received_part_of_a_broken_body_is_in_the_errors_data() -> None:
    async with Service(lambda _: Reply(201, b"x" * 5000, type="text/plain")) as service:
        fault = await failure({"post": service.url("/pay"), "body": {}}, bytes_max=1024)
    assert fault.code == "http.too_large"
    assert fault.data["status"] == 201
    assert fault.data["text"].startswith("xxx")
    broken = (("Content-Encoding", "gzip"),)
    async with Service(lambda _: Reply(201, b"\x1f\x8bpaid, and no gzip", headers=broken)) as service:
        fault = await failure({"post": service.url("/pay"), "body": {}})
    assert (fault.code, fault.data["status"]) == ("http.invalid_response", 201)
