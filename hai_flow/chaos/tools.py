"""The tools of a campaign's workflows, which its workers load: they act on the world (`effects`), or write a row."""

from __future__ import annotations

import asyncio
import json
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
_PAY: Final = "INSERT INTO chaos.payments (run_id, path, attempt) VALUES ($1::text::uuid, $2, $3)"


@tool
async def act(context: Context, to: str, what: str = "act", detail: str = "") -> str:
    """Act on the world, which writes down which attempt did so under which key."""
    place = urlsplit(to)
    body = json.dumps({"attempt": context.attempt, "detail": detail}).encode()
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
        raise StepError(f"the world said no: {answer[:80]!r}", code="world.refused")
    return context.idempotency_key


@tool
async def note(context: Context, text: str, to: str = "") -> str:
    """What a model asks for: it is noted."""
    return f"noted {text} as {context.path}"


@tool
async def pay(context: Context) -> int:
    """A row in the transaction that commits the step's result: there is one for a finished step, or none."""
    async with context.transaction() as connection:
        await connection.execute(_PAY, context.run_id, context.path, context.attempt)
    return context.attempt


@tool
async def words(count: int) -> AsyncIterator[str]:
    """Some text, piece by piece."""
    for number in range(count):
        yield f"word {number} "
        await asyncio.sleep(0.01)
