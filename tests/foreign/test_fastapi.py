"""A real service in another framework, whose answers are odd: each request was performed, so its step finishes."""

from __future__ import annotations

import asyncio
import gzip
import socket
from typing import Any, Final

import pytest
import uvicorn
from fastapi import FastAPI, Response

from tests.steps.test_http import perform

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
}


@pytest.mark.parametrize("kind", BODIES)
async def test_a_post_to_a_real_framework_finishes_whatever_it_answers(kind: str) -> None:
    body, media_type, headers, value = BODIES[kind]
    app = FastAPI()

    @app.post("/pay", response_class=Response)
    def pay() -> Response:
        return Response(body, 201, {**headers, "content-type": media_type})

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            port = listening.getsockname()[1]
            output = await perform({"post": f"http://127.0.0.1:{port}/pay", "body": {}})
        finally:
            server.should_exit = True
            await serving
    assert (output["status"], output["json"]) == (201, value)
