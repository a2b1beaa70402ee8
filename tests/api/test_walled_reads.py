"""What requests read, they read behind the second wall: what the engine's role may read changes no answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import asyncpg
import httpx2
import pytest

from hai_flow.store.postgres.database_roles import ENGINE, READ
from tests.api.test_tenants import ROUTES, SECRET, asked, callers, world_of
from tests.support.examples import sample
from tests.support.identities import KEYS, People
from tests.support.postgres import Server
from tests.support.server import serving

BESIDE: Final = {
    "keys": "who calls is found before there is a tenant",
    "tenants": "webhooks and tokens name their tenant",
    "runs": "one look at the new commits of all runs that are followed, which were found before",
    "log": "the same",
    "snapshots": "the same",
}
"""The tables that a request may come to by way of the engine's role, with the reason."""


@pytest.fixture
def dsn(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as dsn:
        yield dsn


def test_every_read_by_every_role_works_without_the_engines_read_rights(dsn: str) -> None:
    reads = [route for route in ROUTES if route.method == "GET"]
    with serving(dsn, environment={**KEYS, "HAI_FLOW_SECRET_SHOP_HOOK": SECRET}) as process:
        world = world_of(process.url, People(dsn), "acme", "alphabet")
        requests = sample(itertools.product(callers(dsn, "acme").items(), reads), 100)

        def answers() -> dict[tuple[str, str], int]:
            with httpx2.Client(base_url=process.url, timeout=30) as client:
                return {
                    (role, route.path): asked(client, route, world, headers)[0] for (role, headers), route in requests
                }

        before = answers()
        tables = ", ".join(sorted(set(READ) - set(BESIDE)))
        People(dsn).do(lambda connection: _revoke(connection, tables))
        assert answers() == before
        early = {status for (_, path), status in before.items() if path.endswith("/receipt")}
        assert early <= {403, 404, 409}, "the question is open"
        rest = {status for (_, path), status in before.items() if not path.endswith("/receipt")}
        assert rest <= {200, 403, 404}


async def _revoke(connection: asyncpg.Connection, tables: str) -> None:
    await connection.execute(f"REVOKE SELECT ON {tables} FROM {ENGINE}")
