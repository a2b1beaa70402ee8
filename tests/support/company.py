"""The services of a company, on real sockets: MCP servers for its web, its books and its notes, and the health of its
machines. They record their actions in the file `LEDGER`. The notes are a program: `python -m tests.support.company`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from mcp.server.mcpserver import MCPServer

from tests.support.mcp_server import note

SOURCES = ["https://example.com/tea/1", "https://example.com/tea/2"]


def web() -> MCPServer:
    made = MCPServer("web")

    @made.tool()
    def search(query: str) -> list[str]:
        """Search the web."""
        return SOURCES

    @made.tool()
    def fetch(url: str) -> str:
        """What is written at an address."""
        return f"What is written at {url}"

    @made.tool()
    def erase(url: str) -> str:
        """Delete what is written at an address."""
        note(f"erase {url}")
        return "gone"

    return made


def erp() -> MCPServer:
    made = MCPServer("erp")

    @made.tool()
    def book_expense(employee: str, amount: float, cost_center: str) -> dict[str, str]:
        note(f"book {employee} {amount:g} {cost_center}")
        return {"booking_id": "B-1"}

    return made


def notes() -> MCPServer:
    made = MCPServer("notes")

    @made.tool()
    def keep(text: str) -> str:
        """Keep a note."""
        note(f"keep {text}")
        return "kept"

    return made


@contextlib.asynccontextmanager
async def health(rates: dict[str, float]) -> AsyncIterator[str]:
    """Tells the error rate of each service at its path. The address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            asked = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            body = json.dumps({"error_rate": rates[asked.removeprefix("/")]})
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{head}connection: close\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


if __name__ == "__main__":
    notes().run()
