"""`/v1/notifications`: what was sent to whom, and what could not be."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from hai_flow.api import shapes
from hai_flow.api.bodies import CheckedRoute
from hai_flow.api.deps import CurrentAccess, is_run_id
from hai_flow.api.pages import PageCursor, PageLimit, cut, decode_cursor, encode_cursor
from hai_flow.api.principals import requires
from hai_flow.api.problems import documented
from hai_flow.api.rights import Right
from hai_flow.api.views import notification_view
from hai_flow.errors import Rejected
from hai_flow.store import notifications

router = APIRouter(prefix="/v1/notifications", tags=["notifications"], route_class=CheckedRoute)


@router.get(
    "",
    dependencies=[requires(Right.SEE_RUNS)],
    response_model=None,
    responses={**documented(404), 200: {"model": shapes.NotificationPage}},
)
async def list_notifications(
    access: CurrentAccess,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    status: Annotated[Literal["queued", "due", "sent", "dropped", "dead"] | None, Query()] = None,
    run_id: Annotated[str | None, Query(max_length=60)] = None,
) -> dict[str, Any]:
    """The newest first. `dead`: given up; `dropped`: nobody needed it any more."""
    if run_id is not None and not is_run_id(run_id):
        raise Rejected(404, "run_unknown", f"there is no run {run_id!r}.")
    found = await notifications.list_notifications(
        access.reads,
        access.tenant,
        limit=limit + 1,
        status=status,
        run_id=None if run_id is None else UUID(run_id),
        before=decode_cursor(cursor),
    )
    rows, following = cut(found, limit, lambda row: encode_cursor(row.created_at, row.cursor_id))
    return {"items": [notification_view(each) for each in rows], "next_cursor": following}
