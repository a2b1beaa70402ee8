"""A real service in another framework, whose answers are odd: each request was performed, so its step finishes."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from tests.steps.test_http import failure, perform

JSON: Final = "application/json"
BODIES: Final[dict[str, tuple[bytes, str, dict[str, str], Any]]] = {
    "a page": (b"<html>Sign in</html>", JSON, {}, None),
    "a mark": (b'\xef\xbb\xbf{"ok": true}', JSON, {}, {"ok": True}),
    "no number": (b'{"n": NaN}', JSON, {}, {"n": "NaN"}),
    "an id": (b'{"id": 1234567890123456789}', JSON, {}, {"id": "1234567890123456789"}),
    "packed": (gzip.compress(b'{"ok": true}'), JSON, {"content-encoding": "gzip"}, {"ok": True}),
    "a charset": ('{"t": "ä"}'.encode("latin-1"), f"{JSON}; charset=iso-8859-1", {}, {"t": "ä"}),
    "half of it": (b'{"a": ', JSON, {}, None),
    "nothing": (b"", JSON, {}, None),
    "many levels": (b'{"a":' * 65 + b"1" + b"}" * 65, JSON, {}, ...),
    "half of a character": (b'{"t": "\\ud83d"}', JSON, {}, {"t": "\ufffd"}),
    "a name twice": (b'{"t": 1, "t": 2}', JSON, {}, {"t": 2}),
    "a type in capitals": (b'{"ok": true}', "Application/JSON;Charset=UTF-8", {}, {"ok": True}),
    "no type": (b'{"ok": true}', "", {}, None),
}


@asynccontextmanager
async def serving(answer: Callable[[], Response]) -> AsyncIterator[str]:
    """The address of a real FastAPI application that answers each POST so."""
    app = FastAPI()
    app.post("/pay", response_class=Response)(answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/pay"
        finally:
            server.should_exit = True
            await task


@pytest.mark.parametrize("kind", BODIES)
async def test_a_post_to_a_real_framework_finishes_whatever_it_answers(kind: str) -> None:
    body, media_type, headers, value = BODIES[kind]
    async with serving(lambda: Response(body, 201, {**headers, "content-type": media_type})) as url:
        output = await perform({"post": url, "body": {}})
    assert output["status"] == 201
    assert value is ... or output["json"] == value
    assert value is not ... or "levels" in output["notes"][0]


async def test_a_post_that_is_answered_by_nothing_finishes() -> None:
    async with serving(lambda: Response(status_code=204)) as url:
        output = await perform({"post": url, "body": {}})
    assert (output["status"], output["json"], output["text"]) == (204, None, "")


@pytest.mark.parametrize("status", [404, 406, 409, 415, 422, 500])
@pytest.mark.parametrize("body", [b'{"detail": "order 1234567890123456789"}', b"<h1>no</h1>", b'{"a": ', b""])
async def test_a_refusal_of_a_real_framework_is_in_the_error_as_it_came(status: int, body: bytes) -> None:
    async with serving(lambda: Response(body, status, {"content-type": JSON})) as url:
        fault = await failure({"post": url, "body": {}})
    assert (fault.data["status"], fault.data["text"]) == (status, body.decode())


async def test_a_body_that_stops_in_the_middle_is_an_error_with_what_came() -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b'{"paid": '
        raise RuntimeError("its worker died")

    async with serving(lambda: StreamingResponse(half(), 201, {"content-length": "100"}, JSON)) as url:
        fault = await failure({"post": url, "body": {}})
    assert fault.code == "http.connection"
    assert fault.data["status"] == 201
