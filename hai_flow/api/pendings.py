"""`/v1/pendings`: questions that wait for people, and their decisions."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

from hai_flow.api import shapes
from hai_flow.api.bodies import CheckedRoute
from hai_flow.api.deciding import DecideBody, decide, find_pending, view_for
from hai_flow.api.deps import Access, CommandKey, CurrentAccess
from hai_flow.api.pages import PageCursor, PageLimit, bad_cursor, decode_cursor, encode_cursor
from hai_flow.api.principals import requires
from hai_flow.api.problems import WITH_BODY, documented
from hai_flow.api.rights import Right
from hai_flow.api.views import listed_pending_view
from hai_flow.engine.events import decode_pending
from hai_flow.engine.ids import run_of_pending
from hai_flow.engine.votes import asks
from hai_flow.errors import Rejected
from hai_flow.store import pendings
from hai_flow.wire.withheld import opened_without_evidence

router = APIRouter(prefix="/v1/pendings", tags=["pendings"], route_class=CheckedRoute)

PAGES_LOOKED_AT: Final = 20  # for one page of a caller who may not see all


async def _shown(access: Access, row: pendings.Listed) -> dict[str, Any] | None:
    """The open pending of a list. None: it is open no more, for its deadline has passed and no timer has fired yet; or
    it is not for the caller."""
    opened = decode_pending(row.body)
    if access.viewer is None and (row.deadline is None or row.deadline > access.runtime.committer.now()):
        return listed_pending_view(row, opened)
    if not row.readable and opened.policy is not None and not asks(opened.policy, access.principal.who):
        return None
    try:
        run, pending = await find_pending(access, row.id)
    except Rejected:
        return None
    if pending.status != "open":
        return None
    sees = access.sees_evidence(run, pending)
    return listed_pending_view(row, pending.opened if sees else opened_without_evidence(pending.opened))


@router.get(
    "",
    dependencies=[requires(Right.SEE_OWN, Right.SEE_INBOX)],
    response_model=None,
    responses={**documented(), 200: {"model": shapes.PendingPage}},
)
async def list_pendings(access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None) -> dict[str, Any]:
    """The open pendings that you may see, newest first. A page may be short, though others follow."""
    place = decode_cursor(cursor)
    if place is not None and run_of_pending(place[1]) is None:
        raise bad_cursor()
    items: list[dict[str, Any]] = []
    for _ in range(1 if access.viewer is None else PAGES_LOOKED_AT):
        found = await pendings.open_pendings(
            access.reads, access.tenant, limit=limit + 1, before=place, viewer=access.viewer
        )
        for row in found[:limit]:
            place = row.opened_at, row.id
            shown = await _shown(access, row)
            items += [] if shown is None else [shown]
            if len(items) == limit:
                break
        if len(found) <= limit and (not found or place == (found[-1].opened_at, found[-1].id)):
            return {"items": items, "next_cursor": None}
        if len(items) == limit:
            break
    return {"items": items, "next_cursor": None if place is None else encode_cursor(*place)}


@router.get(
    "/{pending_id}",
    dependencies=[requires(Right.SEE_OWN, Right.SEE_INBOX)],
    response_model=None,
    responses={**documented(404), 200: {"model": shapes.Pending}},
)
async def get_pending(pending_id: str, access: CurrentAccess) -> dict[str, Any]:
    """One pending: the question and its outcome."""
    return view_for(access, *await find_pending(access, pending_id))


@router.post(
    "/{pending_id}/decide",
    dependencies=[requires(Right.ANSWER, Right.DECIDE)],
    response_model=None,
    responses={**documented(404, 409, 410, *WITH_BODY), 200: {"model": shapes.DecidedPending}},
)
async def decide_pending(pending_id: str, body: DecideBody, access: CurrentAccess, key: CommandKey) -> dict[str, Any]:
    """Answer. The first valid answer stands: the same one again is 200, a different one 409 with the winner."""
    return await decide(access, pending_id, body, key)
