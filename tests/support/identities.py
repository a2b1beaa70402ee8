"""Callers with credentials: a server with identity on, and people with keys.

with serving(dsn, environment=KEYS) as server:
    ann = People(dsn).person("user:ann", roles=["operator"], tenant="acme")
    httpx2.get(f"{server.url}/v1/runs", headers=ann)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg

from hai_flow.store.identity import keys, tenants
from hai_flow.store.identity.keys import Key
from tests.support.postgres import connecting
from tests.support.values import require
from tests.support.waiting import until

T = TypeVar("T")

KEYS: Final = {"HAI_FLOW_IDENTITY": "keys", "HAI_FLOW_PUBLISH": "1"}
"""The environment of a server that asks everybody for a key, and takes workflows from publishers."""


class People:
    """The callers of a database's servers."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._headers: dict[Any, dict[str, str]] = {}

    def person(
        self,
        id: str,
        *,
        roles: Sequence[str] = (),
        groups: Sequence[str] = (),
        tenant: str = tenants.DEFAULT,
        expires_at: datetime | None = None,
    ) -> dict[str, str]:
        """The headers of a caller with a key of `tenant`, which is made if there is none of this name. The key is made
        once: that takes eight times as long as a request."""
        caller = (id, tuple(roles), tuple(groups), tenant, expires_at)
        if caller not in self._headers:
            _, text = self.key(id, roles=roles, groups=groups, tenant=tenant, expires_at=expires_at)
            self._headers[caller] = carried(text)
        return dict(self._headers[caller])

    def key(
        self,
        id: str,
        *,
        roles: Sequence[str] = (),
        groups: Sequence[str] = (),
        tenant: str = tenants.DEFAULT,
        expires_at: datetime | None = None,
        speaks_for: Sequence[str] = (),
    ) -> tuple[Key, str]:
        """The key, and the text that proves it. `speaks_for`: as whom the tokens that it makes may decide."""

        async def make(connection: asyncpg.Connection) -> tuple[Key, str]:
            return await keys.create_key(
                connection,
                await _tenant(connection, tenant),
                id,
                name=id,
                roles=roles,
                groups=groups,
                created_by="user:test",
                expires_at=expires_at,
                speaks_for=speaks_for,
            )

        return self.do(make)

    def tenant(self, name: str) -> UUID:
        """The id of the tenant, which is made if there is none."""
        return self.do(lambda connection: _tenant(connection, name))

    def tenant_of(self, header: str) -> str:
        """The name of the tenant of the key that an `Authorization` carries."""
        query = "SELECT t.name FROM keys k JOIN tenants t ON t.id = k.tenant WHERE k.id = $1"
        id = header.removeprefix("Bearer ").split("_")[1]
        return str(self.do(lambda connection: connection.fetchval(query, id)))

    def revoke(self, key: Key) -> None:
        """Revoke it behind the servers' backs, as another process does."""
        self.do(lambda connection: keys.revoke_key(connection, key.tenant, key.id))

    @contextmanager
    def hold_up(self, table: str, requests: int) -> Iterator[None]:
        """Nothing is written into the table until so many requests are about to, so that they do it at once."""
        is_held = threading.Event()
        waiting = f"SELECT count(*) >= {requests} FROM pg_locks WHERE NOT granted AND relation = '{table}'::regclass"

        async def hold(connection: asyncpg.Connection) -> None:
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
                is_held.set()
                await until(lambda: connection.fetchval(waiting))

        thread = threading.Thread(target=self.do, args=(hold,))
        thread.start()
        is_held.wait()
        yield
        thread.join()

    def do(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """The result of `work`, which gets a connection of its own. Works inside a running event loop, too."""
        done: list[T] = []

        async def connected() -> None:
            async with connecting(self._dsn) as connection:
                done.append(await work(connection))

        thread = threading.Thread(target=lambda: asyncio.run(connected()))
        thread.start()
        thread.join()
        return done[0]


async def _tenant(connection: asyncpg.Connection, name: str) -> UUID:
    await tenants.create_tenant(connection, name)
    return require(await tenants.find_tenant(connection, name)).id


def carried(credential: str) -> dict[str, str]:
    """The header that carries a credential."""
    return {"Authorization": f"Bearer {credential}"}
