"""Whether the credentials that open streams rest on are still good: key, session and its roles, person and tenant. A
person that was forgotten may hold a token that no row of ours can end, so a digest of them is kept with the time for a
while, and tokens made before are refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.store.postgres.connections import Connection, Pool

FORGOTTEN_FOR: Final = "25 hours"  # a token lasts a day at most
SKEW: Final = timedelta(seconds=5)  # by which clocks may differ

_ENDED: Final = f"""
SELECT n FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::bytea[], $5::int[], $6::timestamptz[])
  WITH ORDINALITY AS given(tenant, person, key, session, version, since, n)
WHERE NOT EXISTS (SELECT FROM tenants t WHERE t.id = given.tenant)
  OR (key IS NOT NULL AND NOT EXISTS (SELECT FROM keys k WHERE k.id = key AND k.revoked_at IS NULL))
  OR (session IS NOT NULL AND NOT EXISTS (
    SELECT FROM sessions s WHERE s.sha256 = session AND s.version = given.version AND s.expires_at > now()
      AND (s.good_until IS NULL OR s.good_until > now())))
  OR EXISTS (SELECT FROM forgotten f
    WHERE f.sha256 = person AND f.at >= since AND f.at > now() - interval '{FORGOTTEN_FOR}')
"""


class Proof(NamedTuple):
    """The credential with which `person` calls: an API key, by its id; or a browser's session, by its digest, as it was
    in this version of it; or neither, where it is a token of an issuer."""

    tenant: UUID
    person: str
    key: str | None = None
    session: bytes | None = None
    session_version: int = 0


async def find_ended(pool: Pool, proofs: Sequence[tuple[Proof, datetime]]) -> list[Proof]:
    """Those of the proofs that are not good any more. Each is given with the time since when it is in use."""
    columns = zip(
        *(
            (each.tenant, hash_person(each.tenant, each.person), each.key, each.session, each.session_version, at)
            for each, at in proofs
        ),
        strict=True,
    )
    rows = await pool.fetch(_ENDED, *map(list, columns)) if proofs else []
    return [proofs[n - 1][0] for (n,) in rows]


async def forget_person(connection: Connection, tenant: UUID, person: str) -> None:
    """Remember that the person was forgotten now."""
    await connection.execute(
        "INSERT INTO forgotten (sha256) VALUES ($1) ON CONFLICT (sha256) DO UPDATE SET at = now()",
        hash_person(tenant, person),
    )


async def list_recently_erased(pool: Pool) -> dict[bytes, datetime]:
    """The people that were forgotten a short while ago, by their digests, and when."""
    query = f"SELECT sha256, at FROM forgotten WHERE at > now() - interval '{FORGOTTEN_FOR}'"
    return {row[0]: row[1] for row in await pool.fetch(query)}


async def clear(pool: Pool) -> None:
    """Remove rows that are not needed any more, for even a digest says a little of the person."""
    await pool.execute(f"DELETE FROM forgotten WHERE at < now() - interval '{FORGOTTEN_FOR}'")


def hash_person(tenant: UUID, person: str) -> bytes:
    """The digest by which a forgotten person is found."""
    return sha256(tenant.bytes + person.encode()).digest()
