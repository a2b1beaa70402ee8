"""`/v1/schedules`: schedules start runs by the clock. List them, pause and resume them, or start a run now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final
from uuid import UUID

from fastapi import Query, Response

from hai_flow.api.base.id_patterns import is_run_id
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, cut, decode_place, encode_place, reject_cursor
from hai_flow.api.requests.views import build_run_view, render, schedule_view, time_of
from hai_flow.api.routes import Routes, answers_of
from hai_flow.errors import Rejected
from hai_flow.schedule import next_times
from hai_flow.store.messaging import triggers
from hai_flow.store.messaging.triggers import ScheduleRow

router = Routes(prefix="/v1/schedules", tags=["schedules"])

_AT_ONCE: Final = 10  # schedules
FIRES_SHOWN_MAX: Final = 50
POSITION_MAX: Final = 2**31 - 1  # of a trigger in its workflow, as the database counts


@router.get("", Right.SEE_RUNS)
async def list_schedules(
    access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None
) -> schemas.SchedulePage:
    """The schedules of the latest version of each workflow, by workflow."""
    place = decode_place(cursor)
    if place is not None and place[0] > POSITION_MAX:
        raise reject_cursor()
    after = ("", 0) if place is None else (place[1], place[0])
    listed = await triggers.list_schedules(access.reads, access.tenant, limit=limit + 1, after=after)
    rows, following = cut(listed, limit, lambda row: encode_place(row.position, row.workflow_name))
    return {"items": await _list_views(access, rows), "next_cursor": following}


@router.get("/{schedule_id}", Right.SEE_RUNS, refusals=(404,))
async def get_schedule(schedule_id: str, access: CurrentAccess) -> schemas.Schedule:
    """One schedule."""
    return await _view(access, await access.runtime.triggers.schedule(access.tenant, _id(schedule_id), access.reads))


@router.get("/{schedule_id}/fires", Right.SEE_RUNS, refusals=(404,))
async def get_fires(
    schedule_id: str, access: CurrentAccess, limit: Annotated[int, Query(ge=1, le=FIRES_SHOWN_MAX)] = 10
) -> schemas.Fires:
    """The next times at which it fires, and the last times at which it fired with their outcomes: `limit` of each."""
    row = await access.runtime.triggers.schedule(access.tenant, _id(schedule_id), access.reads)
    past = await triggers.list_last_fires(access.reads, row, limit)
    coming = await asyncio.to_thread(next_times, row.timing, row.next_fire_at, limit)
    return {"next": [time_of(each) for each in coming], "past": [render(schemas.Fire, each) for each in past]}


@router.post("/{schedule_id}/pause", Right.CONTROL_RUNS, refusals=(404,))
async def pause_schedule(schedule_id: str, access: CurrentAccess) -> schemas.Schedule:
    """Let it fire no more until it is resumed."""
    row = await access.runtime.triggers.pause_schedule(access.tenant, _id(schedule_id), asked=access.asked)
    access.hint_lists()
    return await _view(access, row)


@router.post("/{schedule_id}/resume", Right.CONTROL_RUNS, refusals=(404,))
async def resume_schedule(schedule_id: str, access: CurrentAccess) -> schemas.Schedule:
    """Let it fire again, from its next time on. Times that passed while it was paused do not count as missed."""
    row = await access.runtime.triggers.resume_schedule(access.tenant, _id(schedule_id), asked=access.asked)
    access.hint_lists()
    return await _view(access, row)


@router.post(
    "/{schedule_id}/run", Right.CONTROL_RUNS, status_code=201, refusals=(404, 409),
    responses=answers_of("this key has started it before", "it is started"),
)  # fmt: skip
async def run_schedule(schedule_id: str, access: CurrentAccess, key: CommandKey, response: Response) -> schemas.Run:
    """Start its run once, now, also while it is paused. 409 while its last run is active; with `overlap:
    cancel_running` that run is stopped."""
    id, key = _id(schedule_id), key or str(access.runtime.starts.new_id())
    with access.admission.command():
        outcome = await access.runtime.triggers.run_schedule(
            access.tenant, id, key, asked=access.asked, behind=access.principal.behind
        )
    if outcome.already:
        response.status_code = 200
    response.headers["Location"] = f"/v1/runs/{outcome.run_id}"
    return await build_run_view(await access.changed_run(outcome))


async def _list_views(access: Access, rows: Sequence[ScheduleRow]) -> list[schemas.Schedule]:
    """To say what a cron expression means takes some tenths of a millisecond: others use the loop in between."""
    views: list[schemas.Schedule] = []
    for number, row in enumerate(rows):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        views.append(await _view(access, row))
    return views


async def _view(access: Access, row: ScheduleRow) -> schemas.Schedule:
    plan = await access.catalog.plan(row.tenant, row.workflow)
    return schedule_view(row, plan.version)


def _id(text: str) -> UUID:
    if not is_run_id(text):
        raise Rejected(404, "schedule_unknown", f"there is no schedule {text[:60]!r}.")
    return UUID(text)
