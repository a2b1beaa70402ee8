"""`/v1/workers`: the processes that perform runs, for operators of the tenant `default`, whose deployment it is."""

from __future__ import annotations

from typing import Final

from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.routes import Routes
from hai_flow.store.identity import tenants
from hai_flow.store.runs import workers

router = Routes(prefix="/v1/workers", tags=["workers"], dependencies=[requires(Right.CONTROL_RUNS)])

WORKERS_MAX: Final = 1000


@router.get("", refusals=(403,))
async def list_workers(access: CurrentAccess) -> schemas.Workers:
    """The workers, living ones first, at most 1,000 of each cell. A worker that has ended or died is listed for up to
    an hour, and longer if runs of it still wait to be taken over."""
    access.demand_deployment(
        f"workers perform the runs of all tenants; operators of the tenant {tenants.DEFAULT} see them."
    )
    items: list[schemas.Worker] = []
    for runtime in access.cells.runtimes():
        cell = access.cells.name(runtime.cell)
        listed = await workers.list_workers(runtime.database.api, WORKERS_MAX)
        items += [render(schemas.Worker, each, cell=cell, queues=list(each.queues)) for each in listed]
    return {"items": items}
