"""The tools of a campaign's workflows, which its workers load: they act on the world (`effects`), or write a row."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

from hai_flow.errors import StepError
from hai_flow.steps.tools import Context, tool

PAYMENTS: Final = (
    "CREATE SCHEMA chaos",
    "CREATE TABLE chaos.payments (run_id uuid NOT NULL, path text NOT NULL, attempt int NOT NULL)",
)
PAID: Final = "SELECT run_id::text, path FROM chaos.payments"
STUBBORN_SECONDS: Final = 4.0
"""How long an effect that does not react to being cancelled goes on after that: longer than a stop waits for it."""
_PAY: Final = "INSERT INTO chaos.payments (run_id, path, attempt) VALUES ($1::text::uuid, $2, $3)"


@tool
async def act(
    context: Context, to: str, what: str = "act", detail: str = "", fail: int = 0, hang: bool = False
) -> dict[str, int | str]:
    """Act on the world, which writes down which attempt did so under which key. `fail`: so often the world says no at
    first. `hang`: it never says anything. The result says which attempt it is of."""
    await _told(context, to, what, {"attempt": context.attempt, "detail": detail, "fail": fail, "hang": hang})
    return {"key": context.idempotency_key, "attempt": context.attempt}


async def _told(context: Context, to: str, what: str, said: dict[str, object]) -> None:
    place = urlsplit(to)
    body = json.dumps(said).encode()
    head = (
        f"POST /do/{what} HTTP/1.1\r\nhost: {place.netloc}\r\nconnection: close\r\n"
        f"idempotency-key: {context.idempotency_key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError as error:
        raise StepError(f"the world does not answer: {error}", code="world.away", retriable=True) from error
    try:
        writer.write(head.encode() + body)
        answer = await reader.read(4096)
    finally:
        writer.close()
    if b" 200 " not in answer[:20]:
        raise StepError(f"the world said no: {answer[:80]!r}", code="world.refused", retriable=True)


@tool
async def deaf(context: Context, to: str, forever: bool) -> str:
    """Act on the world, and then ignore the cancellation: `forever`, or for some seconds."""
    await _told(context, to, "deaf", {"attempt": context.attempt})
    end = None
    while forever or end is None or time.monotonic() < end:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            end = end or time.monotonic() + STUBBORN_SECONDS
    return "it was done all the same"


@tool
async def note(context: Context, text: str, to: str = "") -> str:
    """A note, for calls by a model: the text and the path of the step."""
    return f"noted {text} as {context.path}"


@tool
async def pay(context: Context) -> int:
    """A row in the transaction that commits the step's result: there is one for a finished step, or none."""
    async with context.transaction() as connection:
        await connection.execute(_PAY, context.run_id, context.path, context.attempt)
    return context.attempt


@tool
async def words(count: int, every: float = 0.01) -> AsyncIterator[str]:
    """Some text, piece by piece, one `every` so many seconds."""
    for number in range(count):
        yield f"word {number} "
        await asyncio.sleep(every)
