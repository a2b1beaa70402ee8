"""Receivers of notifications on real sockets: a mail server, and a server of webhooks with given answers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any

from aiosmtpd.smtp import SMTP


@dataclass
class Mailbox:
    """The mails that came. `refusals`: so many are refused first; `refused`: an address that is always."""

    mails: list[Message] = field(default_factory=list)
    refusals: int = 0
    refused: str = ""
    port: int = 0

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address == self.refused:
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.refusals:
            self.refusals -= 1
            return "451 not now"
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"


@contextlib.contextmanager
def mail_server() -> Iterator[Mailbox]:
    box, loop = Mailbox(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def serve() -> asyncio.Server:
        return await loop.create_server(lambda: SMTP(box, hostname="localhost", loop=loop), "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    try:
        box.port = server.sockets[0].getsockname()[1]
        yield box
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _stop(server: asyncio.Server) -> None:
    """Close the server, and cancel the tasks of its connections."""
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes


@dataclass
class Hooks:
    """The requests that came to `url`. `answers`: the answers to the next requests, each a status, `hang` or `drop`;
    then 204. A 429 says to come back in an hour."""

    url: str
    answers: list[int | str] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)


@contextlib.asynccontextmanager
async def hook_server() -> AsyncIterator[Hooks]:
    """A server that takes webhooks, well or badly."""
    hooks = Hooks("")
    hanging = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
            hooks.received.append(Received(headers, await reader.readexactly(int(headers["content-length"]))))
            how = hooks.answers.pop(0) if hooks.answers else 204
            if how == "hang":
                await hanging.wait()
            elif how != "drop":
                to = f"location: {hooks.url}/elsewhere\r\n" if how in (301, 302, 307) else ""
                to = "retry-after: 3600\r\n" if how == 429 else to
                writer.write(f"HTTP/1.1 {how} So\r\n{to}content-length: 0\r\nconnection: close\r\n\r\n".encode())
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        hooks.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        yield hooks
        hanging.set()
