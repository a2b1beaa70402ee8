"""Facts about the database, for `hai-flow doctor`: durability, the role, row security, the audit's guards."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg
import msgspec

from hai_flow.store.identity.state_keys import read_ring
from hai_flow.store.postgres import database_roles, row_security
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.several_hosts import open_connection
from hai_flow.store.runs import leases

_SETTINGS: Final = ("fsync", "synchronous_commit", "full_page_writes", "max_connections", "server_version")
AUDIT_TRIGGERS: Final = frozenset(
    {
        "audit_append_only",
        "audit_kept",
        "audit_queued",
        "audit_seals_append_only",
        "audit_seals_kept",
        "audit_details_erased",
        "audit_details_append_only",
        "audit_details_kept",
    }
)
"""The triggers by which the audit is append-only, and by which each record waits for its seal."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`settings` are the server's, as this session has them. `ahead_ms`: how far this machine's clock is ahead of the
    database's, give or take `within_ms`.

    `role` is the role that connects, `works_as` the one that a process takes on then; `no_role`: why it works with more
    rights than it needs. `tables`: how many tables have rows of tenants. `no_wall`: why requests can't read behind the
    second wall. `audit_triggers` are there and enabled. `may_change_audit`: the role `works_as` may update, delete or
    truncate records. `unsealed_seconds`: for how long the oldest record waits for its seal. `unserved`: queues in which
    runs wait and that no worker serves. `state_keys`: the key that seals states at `/mcp`, and the older ones with the
    times until when they open them. `no_space`: of `find_space_fault`.
    """

    settings: Mapping[str, str]
    version: int
    role: str
    superuser: bool
    bypasses: bool
    ahead_ms: float
    within_ms: float
    tables: int = 0
    works_as: str = ""
    no_role: str | None = None
    no_wall: str | None = None
    audit_triggers: frozenset[str] = frozenset()
    may_change_audit: bool = False
    unsealed_seconds: float = 0.0
    keys: int = 0
    stranded: int = 0
    workers: int = 0
    unserved: Sequence[str] = ()
    state_keys: Sequence[str] = ()
    no_space: str | None = None


MORE_SPACE: Final = "free disk space on the database's server, or connect to its primary"
"""The remedy for the faults of `find_space_fault`."""


async def find_space_fault(connection: Connection) -> str | None:
    """Why the server does not store a megabyte; None: it does; empty: nobody knows. Nothing of it stays."""
    import asyncpg

    rows = "CREATE TEMPORARY TABLE space ON COMMIT DROP AS SELECT n FROM generate_series(1, 30000) n"
    try:
        async with connection.transaction():
            await connection.execute(rows)
    except (asyncpg.InsufficientResourcesError, asyncpg.PostgresSystemError) as error:
        return str(error).partition("\n")[0]
    except asyncpg.ReadOnlySQLTransactionError:  # a standby; services make the database so before its disk is full
        return "it is read-only"
    except asyncpg.PostgresError:  # the role may make no such table
        return ""
    return None


async def read_facts(connection: Connection, *, pooled: bool = False) -> Facts:
    """Ask the database; the parts about tables only where the schema is there. The session works as a process's does
    from then on: `pooled` says that it takes no role on."""
    query = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY ($1)"
    settings = {row["name"]: row["current_setting"] for row in await connection.fetch(query, list(_SETTINGS))}
    version = await connection.fetchval("SELECT current_setting('server_version_num')::int")
    role = await connection.fetchrow(
        "SELECT rolname::text, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
    )
    assert role is not None, "the role that asks exists"
    ahead, within = await _clock(connection)
    fields: dict[str, Any] = {
        "settings": settings,
        "version": version,
        "role": role[0],
        "superuser": role[1],
        "bypasses": role[2],
        "ahead_ms": ahead,
        "within_ms": within,
        "no_space": await find_space_fault(connection),
    }
    if await connection.fetchval("SELECT to_regclass('audit_unsealed')") is None:
        return Facts(**fields)
    if not pooled:
        await database_roles.take_on(connection)
    return Facts(
        **fields,
        works_as=await connection.fetchval("SELECT current_user::text"),
        no_role=await database_roles.fault(connection),
        tables=await connection.fetchval(_TABLES),
        no_wall=await row_security.faults(connection),
        audit_triggers=frozenset(name for (name,) in await _triggers(connection)),
        may_change_audit=await connection.fetchval(_MAY_CHANGE),
        unsealed_seconds=await connection.fetchval(_UNSEALED) or 0.0,
        keys=await connection.fetchval("SELECT count(*) FROM keys WHERE revoked_at IS NULL"),
        stranded=await connection.fetchval(
            "SELECT count(*) FROM pendings WHERE status = 'open' AND nobody IS NOT NULL"
        ),
        state_keys=await _list_state_keys(connection),
        unserved=await _list_queues_without_worker(connection),
        workers=await connection.fetchval(
            "SELECT count(*) FROM workers WHERE alive_until > now() AND name NOT LIKE 'nobody:%'"
        ),
    )


async def _list_queues_without_worker(connection: Connection) -> Sequence[str]:
    query = "SELECT FROM pg_attribute WHERE attrelid = 'workers'::regclass AND attname = 'queues'"
    if await connection.fetchrow(query) is None:  # of a schema that is behind
        return ()
    return (await leases.attendance(connection)).unserved


async def _list_state_keys(connection: Connection) -> Sequence[str]:
    may = "has_table_privilege(to_regclass('state_keys'), 'SELECT') AND has_table_privilege('hint_keys', 'INSERT')"
    if not await connection.fetchval(f"SELECT {may}"):  # of a role without rights, or of a schema that is behind
        return ()
    sealing, *older = await read_ring(connection)
    now = await connection.fetchval("SELECT extract(epoch FROM now())::float8")
    opening = [f"{key.id} (until {key.until_text})" for key in older if (key.until or 0.0) > now]
    return [sealing.id, *opening]


async def _clock(connection: Connection) -> tuple[float, float]:
    """How far our clock is ahead (ms), and the error: half of the fastest of some questions."""
    best = (0.0, float("inf"))
    for _ in range(5):
        began = time.time()
        theirs = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered = time.time()
        half = (answered - began) / 2
        if half * 1000 < best[1]:
            best = ((began + half - theirs) * 1000, half * 1000)
    return best


_ASKED: Final = "2718281ms"


async def is_pooler(dsn: str) -> bool:
    """Whether something at `dsn` stands between us and the server that does not keep a session for each client, as
    PgBouncer does in its transaction mode: it refuses the settings of a client that connects, or forgets them. Raises
    asyncpg's errors, and `TimeoutError`."""
    session_settings = {"application_name": "hai-flow doctor", "lock_timeout": _ASKED}
    try:
        connection = await open_connection(dsn, timeout=10, statement_cache_size=0, server_settings=session_settings)
    except asyncpg.ProtocolViolationError:
        return True
    try:
        return await connection.fetchval("SELECT current_setting('lock_timeout') <> $1", _ASKED)
    finally:
        await connection.close()


_TABLES: Final = """
SELECT count(*) FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
"""


async def _triggers(connection: Connection) -> Sequence[Any]:
    return await connection.fetch("""
    SELECT t.tgname::text FROM pg_trigger t
    WHERE t.tgrelid IN ('audit'::regclass, 'audit_details'::regclass, 'audit_seals'::regclass)
      AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
    """)


_MAY_CHANGE: Final = """
SELECT bool_or(has_table_privilege(name, privilege))
FROM unnest(ARRAY['audit', 'audit_seals']) AS name, unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE']) AS privilege
"""
_UNSEALED: Final = """
SELECT extract(epoch FROM clock_timestamp() - min(a.at))::float8 FROM audit_unsealed u
JOIN audit a ON a.tenant = u.tenant AND a.id = u.id
"""


_EXTENT: Final = """
SELECT coalesce(max(c.reltuples::bigint) FILTER (WHERE c.relname = 'runs'), 0),
  coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
"""


async def extent(connection: Connection) -> tuple[int, int]:
    """How many runs the schema has, as the planner estimates, and how many bytes all of it takes."""
    row = await connection.fetchrow(_EXTENT)
    assert row is not None, "it counts"
    return max(0, row[0]), row[1]


async def answers(connection: Connection | Pool) -> None:
    """Ask for a row of the schema: where Citus keeps it, its node has to answer, too. Raises asyncpg's errors."""
    await connection.fetchval("SELECT version_num FROM alembic_version")
