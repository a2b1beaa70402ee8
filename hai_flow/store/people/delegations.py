"""Delegations: one person may answer the questions of another, for a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

SHOWN_MAX: Final = 100  # delegations that one person is given, or shown
KEPT: Final = timedelta(days=30)  # how long a repeated request is told that its delegation has ended
_END: Final = "UPDATE delegations SET since = least(since, now() - interval '1 microsecond'), until = now()"


class Delegation(msgspec.Struct, frozen=True):
    """`to_id` may answer the questions to `from_id`, who had these roles and groups when they delegated. It ends with
    what they did so by: `key` is the API key, `session` the digest of the browser's session (which may rest on a key),
    `token` names the issuer's token, behind whose time `until` is not. None of them: it is not known. `held`: the roles
    and groups that either of the two holds now, as selectors; what excludes one of these excludes the vote."""

    id: UUID
    from_id: str
    to_id: str
    roles: Sequence[str]
    groups: Sequence[str]
    since: datetime
    until: datetime
    note: str | None
    created_at: datetime
    key: str | None = None
    session: bytes | None = None
    token: str | None = None
    held: tuple[str, ...] = ()

    @property
    def ends_with(self) -> str | None:
        """The kind of proof by which it was made: `session`, `key` or `token`. None: it is not known."""
        if self.session is not None:
            return "session"
        return "key" if self.key is not None else "token" if self.token is not None else None


_COLUMNS: Final = "id, from_id, to_id, roles, groups, since, until, note, created_at, key, session, token"


async def create(connection: Connection | Pool, tenant: UUID, given: Delegation) -> bool:
    """Keep a delegation, unless there is one with its id: False. Its `created_at` is the database's time."""
    query = """
    INSERT INTO delegations (id, tenant, from_id, to_id, roles, groups, since, until, note, key, session, token)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING
    RETURNING true
    """
    return await connection.fetchval(
        query, given.id, tenant, given.from_id, given.to_id, list(given.roles), list(given.groups), given.since,
        given.until, given.note, given.key, given.session, given.token,
    ) is not None  # fmt: skip


async def find(connection: Connection | Pool, tenant: UUID, id: UUID) -> Delegation | None:
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM delegations WHERE tenant = $1 AND id = $2", tenant, id)
    return None if row is None else Delegation(*row)


async def end_all(connection: Connection | Pool, tenant: UUID, ids: Sequence[UUID]) -> None:
    """End delegations that hold no more."""
    await connection.execute(f"{_END} WHERE tenant = $1 AND id = ANY ($2::uuid[]) AND until > now()", tenant, list(ids))


async def list_of_tenant(
    connection: Connection | Pool, tenant: UUID, *, limit: int, before: tuple[datetime, UUID] | None = None
) -> list[Delegation]:
    """All delegations of the tenant that have not ended, the newest first, behind the one `before`."""
    query = f"""
    SELECT {_COLUMNS} FROM delegations
    WHERE tenant = $1 AND until > now() AND ($3::timestamptz IS NULL OR (created_at, id) < ($3, $4))
    ORDER BY created_at DESC, id DESC LIMIT $2
    """
    return [Delegation(*row) for row in await connection.fetch(query, tenant, limit, *(before or (None, None)))]


async def end(connection: Connection | Pool, tenant: UUID, id: UUID, person: Sequence[str] | None) -> bool:
    """End a delegation at once. `person`: only one from or to the person of these ids. False: the id is unknown, or it
    has ended."""
    query = f"""
    {_END}
    WHERE id = $1 AND tenant = $2 AND ($3::text[] IS NULL OR ARRAY[from_id, to_id] && $3) AND until > now()
    RETURNING id
    """
    return await connection.fetchval(query, id, tenant, None if person is None else [*person]) is not None


async def end_of_key(
    connection: Connection | Pool, tenant: UUID, key: str, person: Sequence[str], *, is_last: bool
) -> None:
    """End the delegations that were made by a key which is revoked; where it `is_last` of the person of these ids, also
    those of which it is not known how they were made."""
    query = f"""
    {_END}
    WHERE tenant = $1 AND until > now()
      AND (key = $2 OR ($4 AND key IS NULL AND session IS NULL AND token IS NULL AND from_id = ANY ($3)))
    """
    await connection.execute(query, tenant, key, list(person), is_last)


async def list_of_person(connection: Connection | Pool, tenant: UUID, person: Sequence[str]) -> list[Delegation]:
    """The delegations from and to the person of these ids that have not ended, the newest first."""
    query = f"""
    SELECT {_COLUMNS} FROM delegations WHERE tenant = $1 AND from_id = ANY ($2::text[]) AND until > now()
    UNION SELECT {_COLUMNS} FROM delegations WHERE tenant = $1 AND to_id = ANY ($2::text[]) AND until > now()
    ORDER BY created_at DESC, id LIMIT {SHOWN_MAX}
    """
    return [Delegation(*row) for row in await connection.fetch(query, tenant, list(person))]


async def to_person(
    connection: Connection | Pool, tenant: UUID, person: Sequence[str], from_ids: Sequence[str] | None = None
) -> list[Delegation]:
    """The delegations by which the person of these ids may answer now for others, or for the one of `from_ids`
    alone."""
    query = f"""
    SELECT {_COLUMNS} FROM delegations
    WHERE tenant = $1 AND to_id = ANY ($2::text[]) AND until > now() AND since <= now()
      AND ($3::text[] IS NULL OR from_id = ANY ($3::text[]))
    ORDER BY created_at DESC, id LIMIT {SHOWN_MAX}
    """
    others = None if from_ids is None else list(from_ids)
    return [Delegation(*row) for row in await connection.fetch(query, tenant, list(person), others)]


async def remove_old(connection: Connection | Pool) -> None:
    """Remove those that have been over for long."""
    await connection.execute("DELETE FROM delegations WHERE until < now() - $1::interval", KEPT)
