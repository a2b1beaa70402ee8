"""Sessions of browsers: the cookie's text is in the browser alone, the database has its sha256. `expires_at` moves with
use, `ends_at` does not. `sealed` is the token for the renewal at the issuer, readable with the cookie's text alone.
`renew_at`: the process that moves it renews. `version` counts the changes of its principal."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.store.identity.proofs import WHOLE
from hai_flow.store.postgres.connections import Connection, Pool

CLEARED_AT_ONCE: Final = 100
PRINCIPAL: Final = r"replace(principal, '\u0000', '\u0001')::jsonb"  # a claim may hold U+0000, and no jsonb can
PERSONS_LINK: Final = "link of a person"  # the credential of a session begun by a link to these roles; WHOLE: to all

_CREATE: Final = """
WITH old AS (
  SELECT sha256 FROM sessions WHERE expires_at < now() - interval '1 minute'
  ORDER BY expires_at LIMIT $9 FOR UPDATE SKIP LOCKED
), cleared AS (DELETE FROM sessions s USING old WHERE s.sha256 = old.sha256)
INSERT INTO sessions (sha256, tenant, principal, ends_at, expires_at, sealed, renew_at, good_until)
VALUES ($1, $2, $3, $4, least($4, now() + $5), $6, now() + $7, now() + $8)
"""
_FIND: Final = """
SELECT tenant, principal, version, coalesce(ends_at, expires_at) AS ends_at, renew_at, good_until
FROM sessions WHERE sha256 = $1 AND expires_at > now()
"""
_USE: Final = """
UPDATE sessions SET expires_at = least(ends_at, now() + $2)
WHERE sha256 = $1 AND ends_at IS NOT NULL AND expires_at > now()
"""
_CLAIM: Final = """
UPDATE sessions SET renew_at = now() + $2
WHERE sha256 = $1 AND renew_at <= now() AND expires_at > now() AND sealed IS NOT NULL
RETURNING sealed, renew_at
"""
_RENEW: Final = """
UPDATE sessions SET tenant = $3, principal = $4, version = version + (principal <> $4 OR tenant <> $3)::int,
  sealed = $5, renew_at = now() + $6, good_until = now() + $7
WHERE sha256 = $1 AND renew_at = $2
"""
_PUT_OFF: Final = "UPDATE sessions SET sealed = $3, renew_at = now() + $4 WHERE sha256 = $1 AND renew_at = $2"
_FORGO: Final = """
UPDATE sessions SET sealed = NULL, renew_at = NULL, good_until = NULL, ends_at = least(ends_at, $3),
  expires_at = least(expires_at, $3)
WHERE sha256 = $1 AND renew_at = $2
"""
_GIVE_UP: Final = "DELETE FROM sessions WHERE sha256 = $1 AND renew_at = $2"


class Session(NamedTuple):
    """A session that has not ended. `principal` is JSON. `renew_at` None: its principal stays as they are; otherwise it
    is not used after `good_until` without a renewal."""

    tenant: UUID
    principal: str
    version: int
    ends_at: datetime
    renew_at: datetime | None
    good_until: datetime | None


class Renewal(NamedTuple):
    """The sealed token for a session's renewal, after how long it is due, and for how long the session is good
    without."""

    sealed: bytes
    after: timedelta
    good_for: timedelta


class Claim(NamedTuple):
    """The right to renew a session, until `renew_at`; no other process gets it before then."""

    sealed: bytes
    renew_at: datetime


def new_text() -> str:
    return secrets.token_urlsafe(32)


async def create_session(
    connection: Connection | Pool,
    text: str,
    tenant: UUID,
    principal: str,
    *,
    ends_at: datetime,
    idle: timedelta,
    renewal: Renewal | None = None,
) -> None:
    """Begin a session of the principal (as JSON), which ends if it is not used for `idle`. Clears away old ones."""
    renewal_fields = (None, None, None) if renewal is None else renewal
    await connection.execute(
        _CREATE, hash_secret(text), tenant, principal, ends_at, idle, *renewal_fields, CLEARED_AT_ONCE
    )


async def find_session(connection: Connection | Pool, digest: bytes) -> Session | None:
    """The session, unless it has ended."""
    row = await connection.fetchrow(_FIND, digest)
    return None if row is None else Session(*row)


async def note_use(connection: Connection | Pool, digest: bytes, idle: timedelta) -> None:
    """The session is used: it does not end within `idle`, unless it ends in any case."""
    await connection.execute(_USE, digest, idle)


async def claim_renewal(connection: Connection | Pool, digest: bytes, lasts: timedelta) -> Claim | None:
    """The right to renew the session, for so long. None: it is not due, another process has it, or the session is no
    more."""
    row = await connection.fetchrow(_CLAIM, digest, lasts)
    return None if row is None else Claim(*row)


async def renew(
    connection: Connection | Pool, digest: bytes, claim: Claim, tenant: UUID, principal: str, renewal: Renewal
) -> bool:
    """The session is renewed, and its principal (as JSON) is this one from now on. False: the claim is lost, or the
    session was ended."""
    done = await connection.execute(_RENEW, digest, claim.renew_at, tenant, principal, *renewal)
    return bool(done == "UPDATE 1")


async def put_off(connection: Connection | Pool, digest: bytes, claim: Claim, sealed: bytes, again: timedelta) -> None:
    """It could not be renewed: try again after a while, with the token that is `sealed`."""
    await connection.execute(_PUT_OFF, digest, claim.renew_at, sealed, again)


async def forgo(connection: Connection | Pool, digest: bytes, claim: Claim, ends_at: datetime) -> None:
    """It can't be renewed at all: it ends at `ends_at` at the latest."""
    await connection.execute(_FORGO, digest, claim.renew_at, ends_at)


async def give_up(connection: Connection | Pool, digest: bytes, claim: Claim) -> bool:
    """Its renewal was refused: end it. False: the claim is lost, or it was ended."""
    return bool(await connection.execute(_GIVE_UP, digest, claim.renew_at) == "DELETE 1")


async def end_session(connection: Connection | Pool, digest: bytes) -> None:
    """End the session. Twice is harmless."""
    await connection.execute("DELETE FROM sessions WHERE sha256 = $1", digest)


async def end_links(connection: Connection | Pool, tenant: UUID, person: Sequence[str]) -> None:
    """End the sessions of the person of these ids that were begun by a link, and their links that nobody has used."""
    for table in ("tickets", "sessions"):
        await connection.execute(
            f"DELETE FROM {table} WHERE tenant = $1 AND {PRINCIPAL} #>> '{{who,id}}' = ANY ($2) "
            f"AND {PRINCIPAL} ->> 'credential' = ANY ($3)", tenant, list(person), [WHOLE, PERSONS_LINK],
        )  # fmt: skip
