"""`/v1/tenants`: the limits of tenants, and their cells. An admin sees their own tenant. Admins of the tenant
`default`, who run the deployment, see and change all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import Path
from pydantic import Field

from hai_flow.api.http.bodies import Body
from hai_flow.api.http.problems import WITH_BODY, list_refusal_responses
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render_tenant
from hai_flow.api.routes import Routes
from hai_flow.cells import HOME
from hai_flow.errors import Rejected
from hai_flow.runtime.tenancy.cell_assignment import settle
from hai_flow.store.audit import audit
from hai_flow.store.identity import tenants
from hai_flow.store.identity.tenants import MOST, Tenant
from hai_flow.store.postgres.connections import Connection

router = Routes(prefix="/v1/tenants", tags=["identity"], dependencies=[requires(Right.MANAGE_KEYS)])

Name = Annotated[str, Path(max_length=63)]


class TenantBody(Body):
    """The limits to be changed: a number; 0: no limit; null: the value of the settings. The others stay. `cells`: the
    names of the cells in which its new threads begin. A cell with data of the tenant that is not named keeps that data.
    """

    cells: list[Annotated[str, Field(max_length=32)]] | None = Field(default=None, min_length=1, max_length=1024)

    runs_per_minute: int | None = Field(default=None, ge=0, le=MOST["runs_per_minute"])
    open_runs: int | None = Field(default=None, ge=0, le=MOST["open_runs"])
    followers: int | None = Field(default=None, ge=0, le=MOST["followers"], description="in each process")
    log_bytes: int | None = Field(default=None, ge=0, le=MOST["log_bytes"])


@router.get("")
async def list_tenants(access: CurrentAccess) -> schemas.Tenants:
    """The tenants, by name, each with its limits: all, or your own."""
    home = access.at_home
    listed = await tenants.list_tenants(home.pool if access.is_of_deployment else home.reads)
    return {"items": [_view(access, each) for each in listed if _is_seen(access, each)]}


@router.get("/{tenant}", refusals=(404,))
async def get_tenant(tenant: Name, access: CurrentAccess) -> schemas.Tenant:
    """One tenant."""
    return _view(access, await _tenant(access, tenant))


@router.patch("/{tenant}", refusals=(403, 404), responses=list_refusal_responses(*WITH_BODY))
async def limit_tenant(tenant: Name, limits: TenantBody, access: CurrentAccess) -> schemas.Tenant:
    """Change limits of a tenant, or the cells in which its threads begin. Other processes apply them within seconds.
    422 for a cell that does not exist, 503 for one that is away, 409 while processes of another release are running."""
    row = await _tenant(access, tenant)
    access.demand_deployment(
        f"what {row.name} may have is said by the admins of the tenant {tenants.DEFAULT}; ask one of them."
    )
    changed = limits.model_dump(exclude_unset=True)
    cells = changed.pop("cells", None)
    numbers = None if cells is None else _numbers(access, cells)
    async with access.at_home.act() as connection:
        if numbers is not None:
            await settle(connection, partial(_connect, access, connection), row.name, numbers)
        limited = await tenants.set_limits(connection, row.name, changed)
        assert limited is not None, "tenants stay"
        rows = []
        if numbers is not None:
            rows.append(access.asked.row("tenant.placed", subject=f"tenant:{row.name}", cells=cells))
        if changed or numbers is None:
            rows.append(access.asked.row("tenant.limited", subject=f"tenant:{row.name}", limits=changed))
        for of in {row.id, access.tenant}:  # both can read this record
            await audit.write(connection, of, rows)
    access.cells.home.tenants.forget(row.id)
    return _view(access, limited)


def _numbers(access: Access, names: list[str]) -> list[int]:
    """The numbers of the cells with these names. Raises Rejected 422 for a cell that does not exist."""
    numbers_by_name = {access.cells.name(number): number for number in access.cells.numbers}
    for name in names:
        if name not in numbers_by_name:
            raise Rejected(
                422, "cell_unknown", f"cells: expected some of {', '.join(numbers_by_name)}, found {name[:60]!r}."
            )
    return [numbers_by_name[name] for name in names]


@contextlib.asynccontextmanager
async def _connect(access: Access, home: Connection, number: int) -> AsyncIterator[Connection]:
    if number == HOME:
        yield home
        return
    async with access.cells.at(number).database.api.acquire() as connection:
        yield connection


def _is_seen(access: Access, tenant: Tenant) -> bool:
    return access.is_of_deployment or tenant.id == access.tenant


async def _tenant(access: Access, name: str) -> Tenant:
    home = access.at_home
    row = await tenants.find_tenant(home.pool if access.is_of_deployment else home.reads, name)
    if row is None or not _is_seen(access, row):
        raise Rejected(404, "tenant_unknown", f"there is no tenant {name[:63]!r}.")
    return row


def _view(access: Access, tenant: Tenant) -> schemas.Tenant:
    return render_tenant(tenant, access.cells.home.tenants.defaults, access.cells.name)
