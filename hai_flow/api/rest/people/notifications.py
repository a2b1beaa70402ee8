"""`/v1/notifications`: the notifications that were sent or will be, their receivers, and those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query

from hai_flow.api.base.id_patterns import is_run_id
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.cross_cell import cut_page, page
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, decode_cursor
from hai_flow.api.requests.views import render
from hai_flow.api.routes import Routes
from hai_flow.errors import reject_unknown_run
from hai_flow.store.people import notifications

router = Routes(prefix="/v1/notifications", tags=["notifications"])


@router.get("", Right.SEE_RUNS, refusals=(404,))
async def list_notifications(
    access: CurrentAccess,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    status: Annotated[Literal["queued", "due", "sent", "dropped", "dead"] | None, Query()] = None,
    run_id: Annotated[str | None, Query(max_length=60)] = None,
) -> schemas.NotificationPage:
    """The notifications, newest first. `dead`: given up; `dropped`: not needed any more, so not sent."""
    if run_id is not None and not is_run_id(run_id):
        raise reject_unknown_run(run_id)
    before = decode_cursor(cursor)

    async def ask(cell: Access) -> tuple[Sequence[notifications.NotificationSummary], Any]:
        rows_found = await notifications.list_notifications(
            cell.reads,
            cell.tenant,
            limit=limit + 1,
            status=status,
            run_id=None if run_id is None else UUID(run_id),
            before=before,
        )
        return cut_page(rows_found, limit, _place)

    listed = await page(access, ask, _place, limit)
    return listed.show([render(schemas.Notification, row) for _, row in listed.rows])


def _place(row: notifications.NotificationSummary) -> tuple[datetime, str]:
    return row.created_at, row.cursor_id
