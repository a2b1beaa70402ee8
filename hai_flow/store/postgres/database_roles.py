"""The two roles of PostgreSQL that processes work as. `hai_engine` does all work for several tenants at once, and
writes for requests; it owns no table, so it can switch off neither row-level security nor a trigger. `hai_api` reads
for requests, a tenant at a time (`row_security`). Neither can log in: a process connects as the role of its URL, a
member of both, and takes one on in each session; behind a transaction pooler that role has the rights of `hai_engine`
itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

import asyncpg

from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.several_hosts import open_connection

ENGINE: Final = "hai_engine"
API: Final = "hai_api"
READ: Final = (
    "runs", "log", "snapshots", "pendings", "votes", "turns", "messages", "workflows", "schedules", "signals",
    "feedback", "files", "uploads", "file_uses", "blobs", "inbox", "delegations", "notifications", "event_triggers",
    "fires", "keys", "tenants", "audit", "audit_details", "audit_seals", "queued_messages",
    "chat_accounts", "absences", "rules", "rule_uses", "canaries", "openings",
)  # fmt: skip
"""The tables that requests read, and the only ones that `hai_api` may."""

_ALL: Final = "SELECT, INSERT, UPDATE, DELETE"
_KEPT: Final = "SELECT, INSERT"
OF_TENANTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "runs", "log", "commands", "pendings", "votes", "delegations", "inbox", "notifications", "links", "outbox",
            "turns", "messages", "snapshots", "slots", "slot_waiters", "schedules", "fires", "event_triggers",
            "signals", "subscriptions", "callbacks", "feedback", "workflows", "blobs", "files", "uploads", "file_uses",
            "file_leftovers", "tool_pins", "tickets", "sessions", "queued_messages", "relays", "pushes",
            "chat_cards", "chat_buttons", "chat_accounts", "absences", "rules", "rule_uses",
            "rehearsals", "canaries", "openings",
        ),
        _ALL,
    ),
    "keys": "SELECT, INSERT, UPDATE (revoked_at), UPDATE (used_at)",  # to give a key other roles is for nobody
    "tenants": "SELECT, INSERT, UPDATE",
    "deposits": "SELECT, UPDATE, DELETE",  # to write them is for the function alone
    "depositors": "SELECT",  # to let others deposit is for the owner
    "erased_people": "SELECT",  # to forget and to restore is for the owner
    "retired_runs": "SELECT",  # to remove runs is for the owner, too: hai-flow prune
    "audit": _KEPT,
    "audit_details": _KEPT,  # to erase is for the owner: hai-flow forget
    "audit_seals": _KEPT,
    "audit_unsealed": "SELECT, INSERT, DELETE",
}  # fmt: skip
"""The tables with rows of tenants, each with the rights of `hai_engine`."""
OF_ALL: Final[Mapping[str, str]] = {
    "sweeps": _ALL,
    "workers": _ALL,
    "hint_keys": _KEPT,
    "state_keys": "SELECT",  # to rotate them is for the owner
    "servers": _ALL,
    "freezes": "SELECT, INSERT, UPDATE (thawed_at), UPDATE (thawed_by)",  # they stay when they end
    "freeze_switch": "SELECT, INSERT, UPDATE",
    "eras": "SELECT, INSERT, UPDATE",
    "beats": "SELECT, INSERT, DELETE",
    "forgotten": "SELECT, DELETE",  # to forget somebody is for the owner, too
    "vocabularies": "SELECT",
    "alembic_version": "SELECT",
}
"""The tables without rows of tenants: how far sweeps have come, which processes are alive, their keys, the era of the
database, hashes of people that were forgotten lately, the log's vocabularies, and the revision of the schema."""
_TOO_MUCH: Final = (("keys", "UPDATE"), ("keys", "DELETE"))  # rights that earlier releases gave `hai_engine`
_SEQUENCES: Final = ("runs_place", "signals_place")

# Since PostgreSQL 16 a member need not be allowed to take the role on, and the privilege has another name.
_TAKES_ON: Final = (
    "pg_has_role(session_user, r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000 "
    "THEN 'SET' ELSE 'MEMBER' END)"
)


def takes_on(role: str) -> str:
    """The condition, in SQL, that the connected role may take the role on."""
    return f"EXISTS (SELECT FROM pg_roles r WHERE r.rolname = '{role}' AND {_TAKES_ON})"


def _role(name: str) -> str:
    # Several databases of a server may be migrated at once, and roles are the server's.
    return f"""
    DO $$
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN
        BEGIN
          CREATE ROLE {name} NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
        END;
      END IF;
      IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') AND NOT {takes_on(name)} THEN
        BEGIN
          EXECUTE format('GRANT {name} TO %I', current_user);
        EXCEPTION WHEN insufficient_privilege OR unique_violation THEN NULL;
        END;
      END IF;
    END $$
    """


_SCHEMA: Final = """
DO $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO hai_engine, hai_api', current_schema());
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""
_UNWALLED: Final = """
SELECT c.relname::text FROM unnest($1::text[]) AS t JOIN pg_class c ON c.oid = to_regclass(t)
WHERE NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'engine') ORDER BY 1
"""
# The rights as one list: (role, table or sequence, right). Only those that are missing are granted: a grant writes the
# table's row in the catalog, which others that migrate write as well.
_HELD: Final = """CASE WHEN allowed LIKE '%(%' THEN
    has_column_privilege({role}, to_regclass(name), substring(allowed FROM '[(](.*)[)]'), split_part(allowed, ' ', 1))
  ELSE has_table_privilege({role}, to_regclass(name), allowed) END"""
_MISSING: Final = f"""
SELECT role, name, string_agg(allowed, ', ') AS rights
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted(role, name, rights)
CROSS JOIN LATERAL unnest(string_to_array(rights, ', ')) AS allowed
WHERE CASE (SELECT relkind FROM pg_class WHERE oid = to_regclass(name))
  WHEN 'S' THEN has_sequence_privilege(role, to_regclass(name), allowed)
  ELSE {_HELD.format(role="role")} END IS FALSE
GROUP BY role, name ORDER BY role, name
"""


def rights() -> list[tuple[str, str, str]]:
    """All that the roles may do: (role, table or sequence, rights)."""
    engine = [(ENGINE, name, allowed) for name, allowed in {**OF_TENANTS, **OF_ALL}.items()]
    return [*engine, *((ENGINE, name, "USAGE") for name in _SEQUENCES), *((API, name, "SELECT") for name in READ)]


async def ensure(connection: Connection) -> None:
    """Make the roles, let the connection's role be a member of them, and give them their rights on the tables that are
    there. Statements that the connection may not execute are left to an administrator (`SQL`). Raises asyncpg's
    LockNotAvailableError where a table is not free for a moment: try again."""
    for name in (ENGINE, API):
        await connection.execute(_role(name))
    existing = await connection.fetch("SELECT rolname::text FROM pg_roles WHERE rolname = ANY ($1)", [ENGINE, API])
    if {row[0] for row in existing} != {ENGINE, API}:
        return
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        await connection.execute(_SCHEMA)
        for name, right in _TOO_MUCH:
            if await connection.fetchval("SELECT has_table_privilege($1, to_regclass($2), $3)", ENGINE, name, right):
                await connection.execute(f"REVOKE {right} ON {name} FROM {ENGINE}")
        for row in await connection.fetch(_MISSING, *map(list, zip(*rights(), strict=True))):
            await connection.execute(f"GRANT {row['rights']} ON {row['name']} TO {row['role']}")
        for row in await connection.fetch(_UNWALLED, list(OF_TENANTS)):
            # Else each of its rows would be asked which role reads it.
            await connection.execute(f"CREATE POLICY engine ON {row[0]} TO {ENGINE} USING (true)")


async def has_all_roles(dsn: str) -> bool:
    """Whether the roles are there with all of their rights, so that `ensure` has nothing to do."""
    connection = await open_connection(dsn)
    try:
        rows = await connection.fetch("SELECT rolname::text FROM pg_roles WHERE rolname = ANY ($1)", [ENGINE, API])
        return (
            {row[0] for row in rows} == {ENGINE, API}
            and not await connection.fetch(_MISSING, *map(list, zip(*rights(), strict=True)))
            and not await connection.fetch(_UNWALLED, list(OF_TENANTS))
        )
    finally:
        await connection.close()


_TAKE_ON: Final = f"""
SELECT CASE WHEN {takes_on(ENGINE)} AND NOT EXISTS (
  SELECT FROM unnest($1::text[], $2::text[]) AS wanted(name, rights)
  CROSS JOIN LATERAL unnest(string_to_array(rights, ', ')) AS allowed
  WHERE coalesce(NOT {_HELD.format(role=f"'{ENGINE}'")}, true)
) THEN set_config('role', '{ENGINE}', false) END
"""
_WORKS: Final = {**OF_TENANTS, **OF_ALL}


async def take_on(connection: Connection | Pool) -> bool:
    """Let the session work as `hai_engine` from now on, if it may and that has all of its rights. Returns whether."""
    return await connection.fetchval(_TAKE_ON, list(_WORKS), list(_WORKS.values())) is not None


_OWNS: Final = """
SELECT bool_or(pg_has_role(c.relowner, 'USAGE')) FROM unnest($1::text[]) AS t JOIN pg_class c ON c.oid = to_regclass(t)
"""


async def fault(connection: Connection | Pool) -> str | None:
    """Why the session works with more rights than it needs, and how to mend it; None: it does not."""
    if not await connection.fetchval(_OWNS, list(OF_TENANTS)):
        return None
    return (
        f"it works as the owner of its tables, which can switch off every guard of theirs: connect as a member of "
        f"{ENGINE} that is not their owner, or make it one that may take that role on: {SQL}"
    )


SQL: Final = (
    f"CREATE ROLE {ENGINE} NOLOGIN; CREATE ROLE {API} NOLOGIN; "
    f"GRANT {ENGINE}, {API} TO (the role of HAI_FLOW_DATABASE_URL, and the one that migrates); "
    "and then hai-flow migrate."
)
"""Statements for an administrator, where the migrations' role may not create roles."""
