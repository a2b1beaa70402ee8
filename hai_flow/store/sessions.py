"""Sessions of browsers: the cookie's text is nowhere but in the browser, the database has its sha256."""

from __future__ import annotations

import secrets
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool

CLEARED_AT_ONCE: Final = 100

_CREATE: Final = """
WITH old AS (
  SELECT sha256 FROM sessions WHERE expires_at < now() - interval '1 minute'
  ORDER BY expires_at LIMIT $5 FOR UPDATE SKIP LOCKED
), cleared AS (DELETE FROM sessions s USING old WHERE s.sha256 = old.sha256)
INSERT INTO sessions (sha256, tenant, principal, expires_at) VALUES ($1, $2, $3, $4)
"""


async def create_session(connection: Connection | Pool, tenant: UUID, principal: str, expires_at: datetime) -> str:
    """Begin a session of the principal (as JSON). Returns its text. Clears away old ones."""
    text = secrets.token_urlsafe(32)
    await connection.execute(_CREATE, digest(text), tenant, principal, expires_at, CLEARED_AT_ONCE)
    return text


async def find_session(connection: Connection | Pool, digest: bytes) -> tuple[UUID, str] | None:
    """The tenant and the principal of the session, unless it has ended."""
    query = "SELECT tenant, principal FROM sessions WHERE sha256 = $1 AND expires_at > now()"
    row = await connection.fetchrow(query, digest)
    return None if row is None else (row[0], row[1])


async def end_session(connection: Connection | Pool, digest: bytes) -> None:
    """End the session. Twice is harmless."""
    await connection.execute("DELETE FROM sessions WHERE sha256 = $1", digest)


def digest(text: str) -> bytes:
    """What a session is found by."""
    return sha256(text.encode()).digest()
