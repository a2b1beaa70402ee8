"""`/v1/overview`: how the deployment stands, for operators of the tenant `default`, whose deployment it is."""

from __future__ import annotations

import time
from typing import Final
from weakref import WeakKeyDictionary

from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.routes import Routes
from hai_flow.cells import HOME
from hai_flow.runtime.ops.doctor import Check, away
from hai_flow.runtime.ops.examination import examine_database
from hai_flow.runtime.ops.status_problems import faults_of
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import tenants
from hai_flow.store.ops import status
from hai_flow.store.postgres.error_classes import FAILURES

router = Routes(prefix="/v1/overview", tags=["overview"], dependencies=[requires(Right.CONTROL_RUNS)])


@router.get("", refusals=(403,))
async def read_overview(access: CurrentAccess) -> schemas.Overview:
    """What `hai-flow status` shows of each cell: servers, workers, the queue, open runs, open questions and all that a
    person should look at; what `hai-flow doctor` finds there, no older than a minute; and how many runs of each of the
    last 24 hours have finished and failed."""
    access.demand_deployment(f"it is of the runs of all tenants; operators of the tenant {tenants.DEFAULT} see it.")
    cells: list[schemas.CellOverview] = []
    for runtime in access.cells.runtimes():
        async with runtime.database.engine.acquire() as connection:
            standing, hours = await status.standing(connection), await status.list_last_day(connection)
        faults = list(faults_of(standing))
        cells.append(
            {
                "name": access.cells.name(runtime.cell),
                "servers": [render(schemas.ServerStanding, each) for each in standing.servers],
                "workers": [render(schemas.WorkerStanding, each) for each in standing.workers],
                "waiting": render(schemas.WaitingCounts, standing.waiting),
                "runs": dict(standing.runs),
                "faults": [each.message for each in faults],
                "problems": [render(schemas.FaultStanding, each) for each in faults],
                "checks": [render(schemas.SetupCheck, each) for each in await _checks(runtime)],
                "hours": [render(schemas.HourOfRuns, each) for each in hours],
            }
        )
    return {"cells": cells, "counted_max": status.COUNTED_MAX}


_CHECKED_SECONDS: Final = 60.0
_checked: WeakKeyDictionary[Runtime, tuple[float, list[Check]]] = WeakKeyDictionary()


async def _checks(runtime: Runtime) -> list[Check]:
    """What `doctor` finds in the cell, as this process is set up."""
    at, checks = _checked.get(runtime, (-_CHECKED_SECONDS, []))
    if time.monotonic() - at < _CHECKED_SECONDS:
        return checks
    _checked[runtime] = time.monotonic(), checks  # others that ask meanwhile get the ones before
    settings, home = runtime.settings, runtime.cell == HOME
    try:
        checks = await examine_database(
            settings,
            runtime.dsn,
            direct=settings.database_direct_url,
            embedded=settings.database_url is None,
            home=home,
        )
    except FAILURES as error:
        checks = [away(str(error) or type(error).__name__)]
    _checked[runtime] = time.monotonic(), checks
    return checks
