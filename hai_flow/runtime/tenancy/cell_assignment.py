"""Sets the cells in which a tenant lives. One with data keeps all its cells and its first one: its logs are not moved,
and in cells that are not named any more none of its threads begin. Nothing begins in an added cell until every process
knows of it (`runtime/tenancy/placement`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final, TypeAlias
from uuid import UUID

import hai_flow
from hai_flow.cells import TenantCells
from hai_flow.errors import Rejected
from hai_flow.runtime.tenancy.tenants import SECONDS
from hai_flow.store.cells import replication
from hai_flow.store.identity import tenants
from hai_flow.store.identity.tenants import Tenant
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.runs import workers

KNOWN_AFTER: Final = timedelta(seconds=2 * SECONDS)
"""Nothing begins in an added cell before this time has passed: then every process knows of the cell."""
Connect: TypeAlias = Callable[[int], AbstractAsyncContextManager["Connection"]]
"""A connection to the cell of a number."""


async def settle(
    home: Connection, connect: Connect, name: str, wanted: Sequence[int], *, after: timedelta = KNOWN_AFTER
) -> Tenant | None:
    """Let new threads of the tenant begin in the `wanted` cells, in the caller's transaction over home. None: the
    tenant does not exist. Raises Rejected 409 where a process of another release is there, which knows no tenants in
    several cells; and whatever `connect` raises for a cell that is needed and away."""
    tenant = await tenants.find_tenant(home, name, locked=True)
    if tenant is None:
        return None
    living = await _list_living(connect, tenant, tuple(dict.fromkeys(wanted)))
    grows = living.is_large and living.seat == tenant.living.seat and living.anchors == tenant.living.anchors
    opening = [cell for cell in living.open if grows and cell not in tenant.living.open]
    if living.is_large:
        await _demand_one_release(home)
    for cell in living.cells:
        if cell not in tenant.cells or not tenant.living.is_large:
            await _prepare(connect, tenant, living.seat, cell)
    return await tenants.set_living(home, name, living, opening, after)


async def _list_living(connect: Connect, found: Tenant, wanted: tuple[int, ...]) -> TenantCells:
    was = found.living
    if not was.is_large and not await _is_living_in(connect, was.seat, found.id):
        return TenantCells(wanted, wanted)
    cells = (*was.cells, *(cell for cell in wanted if cell not in was.cells))
    closed = tuple(cell for cell in cells if cell not in wanted)
    return TenantCells(cells, was.anchors, closed)


async def _is_living_in(connect: Connect, cell: int, tenant: UUID) -> bool:
    async with connect(cell) as other:
        return await tenants.lives_here(other, tenant)


async def _prepare(connect: Connect, tenant: Tenant, seat: int, cell: int) -> None:
    """Write the tenant into the cell, and make the cell like its seat (`store/cells/replication`)."""
    async with connect(cell) as other:
        await tenants.copy_tenant(other, tenant)
        if cell != seat:
            async with connect(seat) as source:
                await replication.repeat(source, other, tenant.id)


async def _demand_one_release(home: Connection) -> None:
    others = await workers.find_other_releases(home, hai_flow.__version__)
    if others:
        raise Rejected(
            409,
            "releases_mixed",
            f"processes of the release {', '.join(others)} are there, and this one is {hai_flow.__version__}: a tenant "
            "lives in several cells when all processes are of one release. Replace them first (docs/upgrades.md).",
        )
