"""A server of the Model Context Protocol, made with the official SDK: a program (`python -m tests.support.mcp_server`),
or over HTTP (`http_server`). Its functions are made for tests. It records its actions in the file `LEDGER`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import uvicorn
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent, ToolAnnotations
from pydantic import BaseModel

from tests.support.forking import nurse_relayed, relayed

KEY = "k" * 32
COMMAND = relayed("tests.support.mcp_server")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Lets this server start at once as a program. A module of tests that has its COMMAND imports it."""
    nurse_relayed()


class Sure(BaseModel):
    amount: int = 1


async def surely(order: str) -> Elicit[Sure]:
    return Elicit(f"How much for {order}?", Sure)


def note(word: str) -> None:
    """Write a line to the file `LEDGER`, which stays if the process is killed."""
    if ledger := os.environ.get("LEDGER"):
        with open(ledger, "a") as file:
            file.write(f"{word}\n")


def server(described: str = "Adds two numbers.", title: str | None = None) -> MCPServer:
    """A new server. `described`: the description of `add`; `title`: its title."""
    made = MCPServer("tests", request_state_security=RequestStateSecurity(keys=[KEY], ttl=7 * 86_400))

    @made.tool(description=described, annotations=ToolAnnotations(read_only_hint=True, title=title))
    def add(a: int, b: int) -> dict[str, int]:
        note(f"add {a} {b}")
        return {"sum": a + b}

    @made.tool(structured_output=False)
    def text(lines: list[str]) -> list[TextContent]:
        return [TextContent(type="text", text=line) for line in lines]

    @made.tool(structured_output=False)
    def parts() -> CallToolResult:
        link = ResourceLink(
            type="resource_link", name="report.pdf", uri="file:///report.pdf", mime_type="application/pdf"
        )
        image = ImageContent(type="image", data="aGk=", mime_type="image/png")
        return CallToolResult(content=[TextContent(type="text", text="See"), link, image])

    @made.resource("notes://text", mime_type="text/markdown")
    def note_text() -> str:
        return "# A note"

    @made.resource("notes://image", mime_type="image/png")
    def note_image() -> bytes:
        return b"hi"

    @made.resource("notes://large")
    def note_large() -> str:
        return "x" * 60_000

    @made.tool(structured_output=False)
    def linked(uris: list[str]) -> CallToolResult:
        content: list[Any] = [ResourceLink(type="resource_link", name=f"n{n}", uri=uri) for n, uri in enumerate(uris)]
        return CallToolResult(content=[TextContent(type="text", text="See"), *content])

    @made.tool(structured_output=False)
    def fails(why: str) -> str:
        note("fails")
        raise ValueError(why)

    @made.tool(structured_output=False)
    def large(characters: int) -> str:
        return "x" * characters

    @made.tool(structured_output=False)
    def env() -> str:
        return " ".join(f"{name}={value}" for name, value in sorted(os.environ.items()))

    @made.tool(structured_output=False)
    async def steps(ctx: Context[Any, Any], count: int) -> str:
        for number in range(count):
            await ctx.report_progress(number + 1, count, f"part {number + 1}")
        return "done"

    @made.tool(structured_output=False)
    async def waits(ctx: Context[Any, Any]) -> str:
        note("waits")
        try:
            await asyncio.sleep(600)
        except BaseException:
            note("cancelled")
            raise
        return "late"

    @made.tool(structured_output=False)
    def asks(order: str, sure: Annotated[ElicitationResult[Sure], Resolve(surely)]) -> str:
        if not isinstance(sure, AcceptedElicitation):
            return f"{order}: {sure.action}"
        note(f"asked {order} {sure.data.amount}")
        return f"{order}: {sure.data.amount}"

    @made.tool(structured_output=False)
    def dies() -> str:
        note("dies")
        os._exit(3)

    return made


class HttpServer:
    """One over streamable HTTP, in this process. Use as `async with`; `received` has the headers of every request."""

    def __init__(
        self, made: MCPServer | None = None, *, stateless: bool = True, port: int = 0, token: str = ""
    ) -> None:
        self._token = token
        self._made = made or server()
        self._stateless = stateless
        self._port = port
        self.received: list[dict[str, str]] = []

    async def __aenter__(self) -> HttpServer:
        inner = self._made.streamable_http_app(stateless_http=self._stateless)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                if self._token and headers.get("authorization") != f"Bearer {self._token}":
                    await self._refuse(scope["path"], send)
                    return
                self.received.append(headers)
            await inner(scope, receive, send)

        config = uvicorn.Config(app, port=self._port, log_level="critical", lifespan="on")
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            if self._serving.done():
                await self._serving
            await asyncio.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    async def _refuse(self, path: str, send: Any) -> None:
        """Answer a request without the token: by a refusal, or by the documents with which a client gets a token by
        client credentials."""
        origin = f"http://127.0.0.1:{self.port}"
        known: dict[str, Any] = {
            "/.well-known/oauth-protected-resource/mcp": {"resource": self.url, "authorization_servers": [origin]},
            "/.well-known/oauth-authorization-server": {
                "issuer": origin,
                "authorization_endpoint": f"{origin}/authorize",
                "token_endpoint": f"{origin}/token",
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            },
            "/token": {"access_token": self._token, "token_type": "Bearer", "expires_in": 3600},
        }
        status = 200 if path in known else 401 if path == "/mcp" else 404
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": kind})
        await send({"type": "http.response.body", "body": json.dumps(known.get(path)).encode()})

    async def __aexit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        await self._serving

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@contextlib.asynccontextmanager
async def http_server(made: MCPServer | None = None, **more: Any) -> AsyncIterator[HttpServer]:
    async with HttpServer(made, **more) as running:
        yield running


if __name__ == "__main__":
    server(os.environ.get("DESCRIBED", "Adds two numbers.")).run()
