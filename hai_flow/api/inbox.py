"""`/v1/inbox`: the open questions that ask the caller."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from hai_flow.api import shapes
from hai_flow.api.bodies import NO_CONTROL_CHARACTERS, CheckedRoute
from hai_flow.api.deps import Access, CurrentAccess
from hai_flow.api.pages import PageCursor, PageLimit, bad_cursor, decode_cursor, encode_cursor
from hai_flow.api.principals import requires
from hai_flow.api.problems import documented
from hai_flow.api.rights import Right
from hai_flow.api.views import inbox_view
from hai_flow.engine.ids import run_of_pending
from hai_flow.runtime.inbox import Item
from hai_flow.store.inbox import Filters, Place

router = APIRouter(
    prefix="/v1/inbox", tags=["inbox"], route_class=CheckedRoute, dependencies=[requires(Right.SEE_INBOX)]
)

_Time: TypeAlias = Annotated[AwareDatetime | None, Query()]
_Name: TypeAlias = Annotated[str | None, Query(max_length=200, pattern=NO_CONTROL_CHARACTERS)]
_Kind: TypeAlias = Annotated[Literal["tool", "ask", "approve", "gate", "doubt"] | None, Query()]


def _filters(
    workflow: str | None,
    kind: str | None,
    opened_before: datetime | None,
    opened_after: datetime | None,
    deadline_before: datetime | None,
    text: str | None,
) -> Filters:
    return Filters(workflow, kind, opened_before, opened_after, deadline_before, text and text.casefold())


async def _still_open(access: Access, item: Item) -> bool:
    """Whether the question is open now: its deadline may have passed and no timer have fired yet."""
    if item.asked.deadline is None or item.asked.deadline > access.runtime.committer.now():
        return True
    state = await access.find_state(item.asked.run_id)
    return state is not None and (await access.current(state)).pendings[item.asked.id].status == "open"


def _decode(cursor: str | None) -> Place | None:
    after = decode_cursor(cursor)
    if after is not None and run_of_pending(after[1]) is None:
        raise bad_cursor()
    return after


@router.get("", response_model=None, responses={**documented(), 200: {"model": shapes.InboxPage}})
async def read_inbox(
    access: CurrentAccess,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    workflow: _Name = None,
    kind: _Kind = None,
    opened_before: _Time = None,
    opened_after: _Time = None,
    deadline_before: _Time = None,
    text: _Name = None,
) -> dict[str, Any]:
    """The open questions that ask you, the next deadline first. One that you may not decide says why. `text` is looked
    for in titles, messages and names of tools."""
    filters = _filters(workflow, kind, opened_before, opened_after, deadline_before, text)
    found, following = await access.runtime.inbox.page(
        access.tenant, access.principal.who, filters, limit=limit + 1, after=_decode(cursor)
    )
    if len(found) > limit:
        found, following = found[:limit], found[limit - 1].asked.place
    return {
        "items": [inbox_view(each) for each in found if await _still_open(access, each)],
        "next_cursor": None if following is None else encode_cursor(*following),
    }


@router.get("/counts", response_model=None, responses={**documented(), 200: {"model": shapes.InboxCounts}})
async def count_inbox(access: CurrentAccess) -> dict[str, Any]:
    """How many open questions of each workflow ask you."""
    counts, complete = await access.runtime.inbox.counts(access.tenant, access.principal.who)
    return {"workflows": counts, "complete": complete}
