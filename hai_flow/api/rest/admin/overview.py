"""`/v1/overview`: how the deployment stands, for operators of the tenant `default`, whose deployment it is."""

from __future__ import annotations

from typing import Any

import msgspec

from hai_flow import instants
from hai_flow.api.http.problems import list_refusal_responses
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.runtime.ops.status_problems import faults_of
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity import tenants
from hai_flow.store.ops import status

router = Routes(prefix="/v1/overview", tags=["overview"], dependencies=[requires(Right.CONTROL_RUNS)])


@router.get("", response_model=None, responses={**list_refusal_responses(403), 200: {"model": schemas.Overview}})
async def read_overview(access: CurrentAccess) -> dict[str, Any]:
    """What `hai-flow status` shows of each cell: servers, workers, the queue, open runs, open questions and all that a
    person should look at; and how many runs of each of the last 24 hours have finished and failed."""
    if access.tenant != LOCAL_TENANT:
        detail = f"it is of the runs of all tenants; operators of the tenant {tenants.DEFAULT} see it."
        raise Rejected(403, "tenant_forbidden", detail)
    cells = []
    for runtime in access.cells.runtimes():
        async with runtime.database.engine.acquire() as connection:
            standing, hours = await status.standing(connection), await status.list_last_day(connection)
        cells.append(
            {
                "name": access.cells.name(runtime.cell),
                "servers": [each._asdict() for each in standing.servers],
                "workers": [each._asdict() for each in standing.workers],
                "waiting": msgspec.to_builtins(standing.waiting),
                "runs": dict(standing.runs),
                "faults": list(faults_of(standing)),
                "hours": [{**each._asdict(), "since": instants.rfc3339(each.since)} for each in hours],
            }
        )
    return {"cells": cells, "counted_max": status.COUNTED_MAX}
