"""The second wall between tenants: requests read as a role that sees the rows of one tenant.

Every statement names its tenant (the first wall). The role `hai_api` may read the tables of `roles.READ` and nothing
else, and the policies of all tables let it see rows of the tenant that is set for the transaction; none is set: no row.
So a statement that forgets its tenant, or takes it from the wrong place, finds nothing of another's.

The setting goes along with the statement, in one trip: the statement stands in a LATERAL subquery behind the one that
sets it. That refers to the setting and can't be pulled up (`OFFSET 0`), so a nested loop reads the setting first, and
nothing of the statement begins before. It ends with the transaction, which is the statement's own: nothing is left in
the session. BEGIN, SET, the statement and COMMIT would be four trips."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import asyncpg

from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database_roles import API, READ, SQL, takes_on

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Database


@functools.lru_cache(maxsize=512)
def wrap_in_role(query: str, parameters: int) -> str:
    """The query for a connection of the role; the tenant is one more parameter, the last."""
    return f"""
SELECT found.* FROM (SELECT set_config('hai.tenant', ${parameters + 1}::text, true) AS tenant OFFSET 0) AS set
CROSS JOIN LATERAL (SELECT asked.* FROM (
{query}
) AS asked WHERE set.tenant IS NOT NULL OFFSET 0) AS found
"""


@dataclass(frozen=True, slots=True)
class Reads:
    """The requests of one tenant read with this in place of a pool: queries alone, each a transaction of its own. Two
    of the same database and tenant are equal: requests that ask the same at once share the answer."""

    database: Database
    tenant: UUID

    async def fetch(self, query: str, *given: Any) -> list[asyncpg.Record]:
        pool = await self.database.make_row_secured_pool()
        return await pool.fetch(wrap_in_role(query, len(given)), *given, str(self.tenant))

    async def fetchrow(self, query: str, *given: Any) -> asyncpg.Record | None:
        """The first row of the query; None: there is no row."""
        pool = await self.database.make_row_secured_pool()
        return await pool.fetchrow(wrap_in_role(query, len(given)), *given, str(self.tenant))

    async def fetchval(self, query: str, *given: Any) -> Any:
        """The first value of its first row."""
        pool = await self.database.make_row_secured_pool()
        return await pool.fetchval(wrap_in_role(query, len(given)), *given, str(self.tenant))


_STANDS: Final = f"""
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = '{API}' AND NOT rolsuper AND NOT rolbypassrls)
  AND (SELECT bool_and(relrowsecurity AND relforcerowsecurity)
       FROM unnest($1::text[]) AS t LEFT JOIN pg_class ON oid = to_regclass(t)) IS TRUE
"""
_READABLE: Final = f"""
SELECT {takes_on(API)} AND (SELECT bool_and(has_table_privilege('{API}', t, 'SELECT')) FROM unnest($1::text[]) AS t)
"""


async def faults(connection: Connection | Pool) -> str | None:
    """Why requests can't read behind the wall, and how to mend it; None: they can."""
    try:
        if not await connection.fetchval(_STANDS, list(READ)):
            return (
                f"the role {API} is not there, or the tables have no policies: as a role that may create others, {SQL}"
            )
        if not await connection.fetchval(_READABLE, list(READ)):
            return f"this server's role is no member of {API}, or that may not read the tables: {SQL}"
    except asyncpg.UndefinedTableError:
        return "the schema is older than this release: run hai-flow migrate."
    return None
