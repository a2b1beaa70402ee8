"""The roles and groups that API keys and browser sessions stand for now. What has ended is not found."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

WHOLE: Final = "link"  # the credential of a session that has all built-in roles, whichever they are


class Holding(NamedTuple):
    """The roles and groups that a proof of identity stands for. `roles` None: all."""

    roles: frozenset[str] | None
    groups: frozenset[str]

    def caps(self, roles: Sequence[str], groups: Sequence[str]) -> tuple[list[str], list[str]]:
        """Those of `roles` and `groups` that it stands for, in their order."""
        own_roles = [each for each in roles if self.roles is None or each in self.roles]
        return own_roles, [each for each in groups if each in self.groups]


class _Who(msgspec.Struct):
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class _StoredIdentity(msgspec.Struct):
    who: _Who
    credential: str | None = None


IS_GOOD: Final = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"  # of a key

_OF_KEYS: Final = f"""
SELECT id, roles, groups FROM keys
WHERE tenant = $1 AND id = ANY ($2::text[]) AND {IS_GOOD}
"""
_OF_ROLE: Final = f"""
SELECT principal, roles, groups FROM keys
WHERE tenant = $1 AND $2 = ANY (roles) AND {IS_GOOD} ORDER BY principal
"""
_OF_SESSIONS: Final = """
SELECT sha256, principal FROM sessions
WHERE tenant = $1 AND sha256 = ANY ($2::bytea[]) AND expires_at > now() AND (good_until IS NULL OR good_until > now())
"""
_HOLDERS: Final = f"""
WITH RECURSIVE begins AS (  -- what the salts of `erasure` begin with: few, however many were erased
  (SELECT substring(first.salt FOR 16) AS salt FROM erased_people first WHERE tenant = $1 ORDER BY first.salt LIMIT 1)
  UNION ALL
  SELECT (
    SELECT substring(next.salt FOR 16) FROM erased_people next
    WHERE tenant = $1 AND next.salt > begins.salt || decode(repeat('ff', 17), 'hex') ORDER BY next.salt LIMIT 1
  ) FROM begins WHERE salt IS NOT NULL
)
SELECT principal, bool_or(is_good) FROM (
  SELECT principal, $3 AND revoked_at IS NOT NULL AS was_let_go, {IS_GOOD} AS is_good FROM keys
  WHERE tenant = $1 AND principal = ANY ($2::text[])
  UNION ALL
  SELECT id, true, false FROM begins CROSS JOIN unnest($2::text[]) AS id CROSS JOIN convert_to(id, 'UTF8') AS name
  CROSS JOIN unnest(ARRAY[begins.salt, begins.salt || substring(sha256(begins.salt || name) FOR 16)]) AS own
  WHERE sha256(own || name) = (SELECT sha256 FROM erased_people WHERE tenant = $1 AND salt = own)
) AS each GROUP BY principal HAVING bool_or(is_good OR was_let_go)
"""
_OF_PEOPLE: Final = f"""
SELECT principal, roles, groups, {IS_GOOD} FROM keys
WHERE tenant = $1 AND principal = ANY ($2::text[])
"""


async def load_holdings_of_keys(
    connection: Connection | Pool, tenant: UUID, ids: Collection[str]
) -> dict[str, Holding]:
    """What the tenant's keys of these ids stand for."""
    rows = await connection.fetch(_OF_KEYS, tenant, list(ids)) if ids else []
    return {id: Holding(frozenset(roles), frozenset(groups)) for id, roles, groups in rows}


async def load_holdings_of_sessions(
    connection: Connection | Pool, tenant: UUID, digests: Collection[bytes]
) -> dict[bytes, Holding]:
    """What the tenant's sessions of these digests stand for, as their issuers said last."""
    rows = await connection.fetch(_OF_SESSIONS, tenant, list(digests)) if digests else []
    return {digest: _build_session_holding(principal) for digest, principal in rows}


async def load_holdings_of_people(
    connection: Connection | Pool, tenant: UUID, ids: Collection[str]
) -> dict[str, Holding]:
    """What all keys of a person stand for together, of each of the `ids` that was ever given a key: nothing, where none
    of them is good any more."""
    rows = await connection.fetch(_OF_PEOPLE, tenant, list(ids)) if ids else []
    together = {id: Holding(frozenset(), frozenset()) for id, *_ in rows}
    for id, roles, groups, is_good in rows:
        if is_good:
            before = together[id]
            together[id] = Holding((before.roles or frozenset()) | set(roles), before.groups | set(groups))
    return together


async def list_holders(
    connection: Connection | Pool, tenant: UUID, role: str
) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """The principals with their roles and groups, of each good key of the tenant that has the `role`."""
    return [tuple(row) for row in await connection.fetch(_OF_ROLE, tenant, role)]


async def find_key_holders(
    connection: Connection | Pool, tenant: UUID, ids: Collection[str], *, by_keys: bool = True
) -> dict[str, bool]:
    """Whether each of the `ids` has a key that is good. Those with none that is good, who were not erased and have none
    that was revoked, are left out, as a key that expires by itself lets nobody go. `by_keys`: keys alone let people
    sign in; else who has a revoked one may sign in without."""
    rows = await connection.fetch(_HOLDERS, tenant, list(ids), by_keys) if ids else []
    return {row[0]: row[1] for row in rows}


def has_left(holders: Mapping[str, bool], ids: Collection[str]) -> bool:
    """Whether the person of these ids was erased, or a key of theirs revoked, and none is good."""
    have_good_key = [holders[id] for id in ids if id in holders]
    return bool(have_good_key) and not any(have_good_key)


def _build_session_holding(principal: str) -> Holding:
    row = msgspec.json.decode(principal, type=_StoredIdentity)
    return Holding(None if row.credential == WHOLE else frozenset(row.who.roles), frozenset(row.who.groups))
