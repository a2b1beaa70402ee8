"""Tickets: credentials that are good once, and only for a moment. The database has only their sha256."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Final
from uuid import UUID

from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.store.postgres.connections import Connection, Pool

TICKET: Final = "haik_"
LINK: Final = "hail_"  # of a link that signs a browser in
CLEARED_AT_ONCE: Final = 100

_CREATE: Final = """
WITH old AS (
  SELECT sha256 FROM tickets WHERE expires_at < now() - interval '1 minute'
  ORDER BY expires_at LIMIT $5 FOR UPDATE SKIP LOCKED
), cleared AS (DELETE FROM tickets t USING old WHERE t.sha256 = old.sha256)
INSERT INTO tickets (sha256, tenant, principal, expires_at) VALUES ($1, $2, $3, $4)
"""
_USE: Final = "DELETE FROM tickets WHERE sha256 = $1 RETURNING tenant, principal, expires_at > now()"


async def create_ticket(
    connection: Connection | Pool, tenant: UUID, principal: str, expires_at: datetime, prefix: str = TICKET
) -> str:
    """Make a ticket of the principal (as JSON). Returns its text, which is nowhere else. Clears away old ones."""
    text = prefix + secrets.token_urlsafe(32)
    await connection.execute(_CREATE, hash_secret(text), tenant, principal, expires_at, CLEARED_AT_ONCE)
    return text


async def take_ticket(connection: Connection | Pool, text: str) -> tuple[UUID, str] | None:
    """The tenant and the principal of a ticket that is good, and is not any more. None: it is none, was used, or its
    time is over."""
    row = await connection.fetchrow(_USE, hash_secret(text))
    return None if row is None or not row[2] else (row[0], row[1])
