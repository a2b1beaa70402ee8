"""API keys: an id, and a secret that is shown once. The database has only the secret's sha256, which is no use to a
reader of the database; a secret of 256 random bits needs no slow hash."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import UUID

from hai_flow.errors import Rejected
from hai_flow.primitives.invisible_characters import compose, has_invisible
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.store.identity import sessions
from hai_flow.store.identity.proofs import IS_GOOD
from hai_flow.store.people import delegations
from hai_flow.store.postgres.connections import Connection, Pool

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


PREFIX: Final = "hai_"
ID: Final = re.compile(r"[0-9a-z]{12}", re.ASCII)
NAMED: Final = r"^[^\s\x00-\x1f\x7f-\x9f]+$"  # a role or a group
PATTERN: Final = re.compile(r"^(user|service|agent):[^\s*\x00-\x1f\x7f-\x9f]{0,200}\*?$")  # of principals
PRINCIPAL: Final = re.compile(r"^(user|service|agent):[^\s\x00-\x1f\x7f-\x9f]{1,200}$")
_KEY: Final = re.compile(r"hai_([0-9a-z]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_DOMAIN: Final = b"hai-flow frontend token v1\n"
_ID: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def is_principal(id: str) -> bool:
    """Whether somebody may be called so: `user:ann`, `service:ci`, `agent:buyer`, of characters that can be seen."""
    return PRINCIPAL.fullmatch(id) is not None and not has_invisible(id)


class KeyParts(NamedTuple):
    """A key as it is sent, taken apart."""

    id: str
    secret: str


def split_key(text: str) -> KeyParts | None:
    """The id and the secret of a key; None: `text` has not its form."""
    match = _KEY.fullmatch(text)
    return None if match is None else KeyParts(match[1], match[2])


@dataclass(frozen=True, slots=True)
class Key:
    """A key: `principal` calls with it, in `tenant`, with these roles and groups. `name` is for people."""

    id: str
    tenant: UUID
    sha256: bytes
    name: str
    principal: str
    roles: list[str]
    groups: list[str]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    verifies: bytes | None  # the public key of the tokens that it signs; None: it was made before there were any
    speaks_for: list[str] | None = None  # for whom its tokens may decide, like user:shop-*; None: nobody but its own

    def can_vouch_for(self, principal: str) -> bool:
        """Whether tokens of the key may decide as the principal."""
        own = compose(principal) == compose(self.principal)
        return own or any(is_pattern_of(pattern, principal) for pattern in self.speaks_for or ())

    def proves(self, parts: KeyParts) -> bool:
        """Whether the secret is this key's; takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(self.sha256, hash_secret(parts.secret))

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Whether the key has signed the data (`sign`)."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if self.verifies is None:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.verifies).verify(signature, _DOMAIN + data)
        except InvalidSignature:
            return False
        return True


_COLUMNS: Final = (
    "id, tenant, sha256, name, principal, roles, groups, created_by, created_at, expires_at, revoked_at, used_at, "
    "verifies, speaks_for"
)
_CREATE: Final = f"""
INSERT INTO keys (id, tenant, sha256, name, principal, roles, groups, created_by, expires_at, verifies,
  speaks_for)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING RETURNING {_COLUMNS}
"""
_LOCK: Final = "SELECT FROM keys WHERE tenant = $1 AND principal = ANY ($2) ORDER BY id FOR UPDATE"
_REVOKE: Final = f"""
UPDATE keys SET revoked_at = coalesce(revoked_at, now()) WHERE tenant = $1 AND id = $2
RETURNING {_COLUMNS}, revoked_at = now()
"""
AllIds: TypeAlias = Callable[[str], Sequence[str]]  # all ids of the person with this one


def _own(id: str) -> Sequence[str]:
    return (id,)


async def create_key(
    connection: Connection | Pool,
    tenant: UUID,
    principal: str,
    *,
    name: str,
    roles: Sequence[str] = (),
    groups: Sequence[str] = (),
    created_by: str,
    expires_at: datetime | None = None,
    speaks_for: Sequence[str] | None = None,
    id: str | None = None,
) -> tuple[Key, str]:
    """Make a key, with this id or a random one; returns it, and the text that is sent as credential. The text is stored
    nowhere. Raises Rejected 409 where there is a key with the id."""
    parts = KeyParts(id or derive_key_id(secrets.token_hex(32)), secrets.token_urlsafe(32))
    row = await connection.fetchrow(
        _CREATE,
        parts.id,
        tenant,
        hash_secret(parts.secret),
        name,
        principal,
        list(roles),
        list(groups),
        created_by,
        expires_at,
        _signing(parts).public_key().public_bytes_raw(),
        list(speaks_for) if speaks_for else None,
    )
    if row is None:
        message = f"this Idempotency-Key has made the key {parts.id}, whose secret was in that answer alone: if you "
        message += "did not get it, revoke that key, and make another with a new Idempotency-Key."
        raise Rejected(409, "key_exists", message)
    return Key(*row), f"{PREFIX}{parts.id}_{parts.secret}"


def derive_key_id(*parts: str) -> str:
    """The id of a key, made from these parts."""
    number = int.from_bytes(hash_secret("\x00".join(parts)))
    return "".join(_ID[number // len(_ID) ** place % len(_ID)] for place in range(12))


def is_pattern_of(pattern: str, principal: str) -> bool:
    """Whether the pattern means the principal: `user:ann`, or `user:shop-*` for all that begin so."""
    pattern, principal = compose(pattern), compose(principal)
    if pattern.endswith("*"):
        return principal.startswith(pattern[:-1])
    return principal == pattern


async def find_key(connection: Connection | Pool, id: str) -> Key | None:
    """The key of this id, of whichever tenant: the key tells the tenant of its caller."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM keys WHERE id = $1", id)
    return None if row is None else Key(*row)


async def note_use(connection: Connection | Pool, id: str) -> None:
    """Remember that the key is used now."""
    await connection.execute("UPDATE keys SET used_at = now() WHERE id = $1", id)


async def list_keys(
    connection: Connection | Pool, tenant: UUID, *, limit: int | None = None, before: tuple[datetime, str] | None = None
) -> list[Key]:
    """The tenant's keys, newest first; also those that were revoked. `limit` None: all. `before` is the
    (created_at, id) of the last one of the page before."""
    arguments: list[object] = [tenant, limit]
    earlier = ""
    if before is not None:
        arguments.extend(before)
        earlier = "AND (created_at, id) < ($3, $4)"
    query = f"SELECT {_COLUMNS} FROM keys WHERE tenant = $1 {earlier} ORDER BY created_at DESC, id DESC LIMIT $2"
    return [Key(*row) for row in await connection.fetch(query, *arguments)]


async def list_roles(connection: Connection | Pool, tenant: UUID) -> list[str]:
    """The roles of the tenant's keys that are good."""
    query = f"SELECT DISTINCT unnest(roles) FROM keys WHERE tenant = $1 AND {IS_GOOD}"
    return [row[0] for row in await connection.fetch(query, tenant)]


async def list_speaks_for(
    connection: Connection | Pool, tenant: UUID, principals: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """Whom the good keys of these principals speak for: the principal of each key, and its names and patterns."""
    query = f"""
    SELECT principal, speaks_for FROM keys
    WHERE tenant = $1 AND principal = ANY ($2) AND speaks_for IS NOT NULL AND {IS_GOOD}
    """
    return [(row[0], row[1]) for row in await connection.fetch(query, tenant, list(principals))]


async def revoke_key(connection: Connection | Pool, tenant: UUID, id: str, all_ids: AllIds = _own) -> Key | None:
    """Revoke the tenant's key, and end the delegations that were made by it; with the last one of its person, who has
    `all_ids`, also the sessions that a link began. Twice is harmless: a link that was made since stays. None: the
    tenant has no key of this id. In a transaction the last one is known though another is revoked at the same time."""
    principal = await connection.fetchval("SELECT principal FROM keys WHERE tenant = $1 AND id = $2", tenant, id)
    ids = [] if principal is None else list(all_ids(principal))
    await connection.execute(_LOCK, tenant, ids)
    row = await connection.fetchrow(_REVOKE, tenant, id)
    if row is None:
        return None
    *columns, is_new = row
    key = Key(*columns)
    is_last = not await has_others(connection, key, ids)
    await delegations.end_of_key(connection, tenant, id, ids, is_last=is_last)
    if is_last and is_new:
        await sessions.end_links(connection, tenant, ids)
    return key


async def has_others(connection: Connection | Pool, key: Key, ids: Sequence[str]) -> bool:
    """Whether the key's person, of these ids, has another one that is good."""
    query = f"SELECT EXISTS (SELECT FROM keys WHERE tenant = $1 AND principal = ANY ($2) AND id <> $3 AND {IS_GOOD})"
    return bool(await connection.fetchval(query, key.tenant, list(ids), key.id))


async def is_over(
    connection: Connection | Pool, tenant: UUID, key_id: str, person: str, roles: Sequence[str], groups: Sequence[str]
) -> bool:
    """Whether the key is good no more, and neither its principal nor `person` has another one that is, with all of
    these roles and groups."""
    query = f"""
    SELECT NOT EXISTS (SELECT FROM keys WHERE tenant = $1 AND {IS_GOOD}
      AND (id = $2 OR (roles @> $4 AND groups @> $5
        AND principal IN ($3, (SELECT principal FROM keys WHERE tenant = $1 AND id = $2)))))
    """
    return bool(await connection.fetchval(query, tenant, key_id, person, list(roles), list(groups)))


def sign(parts: KeyParts, data: bytes) -> bytes:
    """A signature that needs the key's secret."""
    return _signing(parts).sign(_DOMAIN + data)


def _signing(parts: KeyParts) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(hmac.digest(parts.secret.encode(), _DOMAIN, "sha256"))
