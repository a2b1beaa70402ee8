"""The parts of open questions that people were given. Of each part and person the first time counts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

Part: TypeAlias = Literal["question", "attachment", "link"]
"""`question`: all that it shows, with its evidence; `attachment`: a file of it; `link`: an address in it."""


class OpeningRow(msgspec.Struct, frozen=True):
    principal: str
    part: str
    at: datetime


async def note_opening(
    connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str, principal: str, part: Part
) -> None:
    """Keep that the person has this part now. A repetition writes nothing."""
    query = """
    INSERT INTO openings (tenant, run_id, pending_id, principal, part) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING
    """
    await connection.execute(query, tenant, run_id, pending_id, principal, part)


async def list_openings(
    connection: Connection | Pool, tenant: UUID, run_id: UUID, pending_id: str, person: str | None
) -> list[OpeningRow]:
    """Who had what of the question, and since when; of one person, or of all (None)."""
    query = """
    SELECT principal, part, at FROM openings
    WHERE tenant = $1 AND run_id = $2 AND pending_id = $3 AND ($4::text IS NULL OR principal = $4)
    ORDER BY at, principal, part
    """
    return [OpeningRow(*row) for row in await connection.fetch(query, tenant, run_id, pending_id, person)]
