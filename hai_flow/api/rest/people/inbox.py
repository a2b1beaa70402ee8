"""`/v1/inbox`: the open questions that ask the caller, and the caller's decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Container, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

from fastapi import Header, Query, Response
from pydantic import Field

from hai_flow import values
from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, Instant
from hai_flow.api.http.bodies import Body
from hai_flow.api.http.problems import WITH_BODY, build_problem, reject_unreadable
from hai_flow.api.http.stream import Frames
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.protocols.stream_pieces import farewell
from hai_flow.api.requests import cross_cell, schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, decode_cursor, reject_cursor
from hai_flow.api.requests.run_visibility import RunFacts
from hai_flow.api.requests.views import render_decision, render_inbox_item
from hai_flow.api.rest.people.decide_pendings import DecideBody, decide
from hai_flow.api.rest.runs import live_lists
from hai_flow.api.routes import Routes
from hai_flow.api.shared_lists import derive_sight_key
from hai_flow.definition.names.durations import NotADuration, milliseconds
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected, Unreadable
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.runtime.people.inbox import InboxEntry
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.store.commit.projection import words_of
from hai_flow.store.people import inbox
from hai_flow.store.people.inbox import Filters, Place
from hai_flow.values import Json
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.pii_masking import Mask
from hai_flow.wire.reader_redaction import strip_evidence_of

router = Routes(prefix="/v1/inbox", tags=["inbox"], dependencies=[requires(Right.SEE_INBOX)])

_Time: TypeAlias = Annotated[Instant | None, Query()]
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


async def _still_open(access: Access, item: InboxEntry) -> bool:
    """Whether the question is open now: its deadline may have passed and no timer have fired yet."""
    if item.asked.deadline is None or item.asked.deadline > access.runtime.committer.now():
        return True
    try:
        state = await access.find_state(item.asked.run_id)
        return state is not None and (await access.current(state)).pendings[item.asked.id].status == "open"
    except Unreadable:  # another release's run: it is open as far as its row says
        return True


async def _is_shown(access: Access, item: InboxEntry) -> bool:
    return access.principal.is_for(item.asked.thread_id, item.asked.workflow_name) and await _still_open(access, item)


async def _filter_question(access: Access, item: InboxEntry, with_forms: Container[UUID] | None) -> PendingState:
    """The question without its personal values, unless the caller may decide it, has decided it, or started its run."""
    if item.shows_evidence:
        return item.pending
    personal = await access.personal(_run_of(item), with_forms)
    if personal is None:
        return item.pending
    return await run_if_large(item.opened, Mask(personal, None).pending, item.pending, personal)


def _run_of(item: InboxEntry) -> RunFacts:
    row = item.asked
    return RunFacts(row.run_id, row.started_by, row.workflow, row.workflow_name, row.thread_id)


async def _view(access: Access, item: InboxEntry, with_forms: Container[UUID] | None = None) -> schemas.InboxItem:
    return render_inbox_item(item, await _filter_question(access, item, with_forms), sees_all=access.principal.sees_all)


async def _is_found(access: Access, item: InboxEntry, filters: Filters, with_forms: Container[UUID]) -> bool:
    """Whether a search may find the question. If its words are hidden from the caller, no search finds it: they could
    learn the words by searching. Personal values of its arguments and its evidence are found by nobody."""
    if not await _is_shown(access, item):
        return False
    if not filters.words:
        return True
    if await _filter_question(access, item, with_forms) is not item.pending:
        return False
    if filters.words in words_of(item.pending.opened):
        return True
    personal = await access.personal_of_run(_run_of(item), with_forms)
    opened = (await run_if_large(item.opened, Mask(personal, None).pending, item.pending, personal)).opened
    if not (item.shows_evidence or access.principal.sees_all):
        opened = strip_evidence_of(opened)
    texts = [each for each in (opened.args, opened.evidence) if each]
    return await run_if_large(texts, _is_in_any, texts, filters.words)


def _is_in_any(texts: Sequence[str], words: str) -> bool:
    return any(_mentions(values.loads(each), words) for each in texts)


def _mentions(value: Json, words: str) -> bool:
    """Whether the words stand in a text or a number of the value."""
    if isinstance(value, dict):
        return any(_mentions(each, words) for each in value.values())
    if isinstance(value, list):
        return any(_mentions(each, words) for each in value)
    return not isinstance(value, bool) and value is not None and words in str(value).casefold()


def _decode(cursor: str | None) -> Place | None:
    after = decode_cursor(cursor)
    if after is not None and run_of_pending(after[1]) is None:
        raise reject_cursor()
    return after


@router.get("")
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
) -> schemas.InboxPage:
    """The open questions that ask you, the next deadline first. `why_not` explains why you may not decide one. `text`
    is searched for in titles, messages, names of tools, arguments and evidence; personal values are not searched."""
    filters = _filters(workflow, kind, opened_before, opened_after, deadline_before, text)
    page = await _page(access, filters, limit, _decode(cursor))
    return page.show(list((await _load_views(page, filters)).values()))


async def _page(access: Access, filters: Filters, limit: int, after: Place | None) -> cross_cell.Page[InboxEntry]:
    async def ask(cell: Access) -> tuple[Sequence[InboxEntry], Place | None]:
        items, following = await cell.inbox.page(cell.tenant, cell.principal.who, filters, limit=limit + 1, after=after)
        return (items[:limit], items[limit - 1].asked.place) if len(items) > limit else (items, following)

    return await cross_cell.page(access, ask, lambda item: item.asked.place, limit, newest_first=False)


async def _load_views(page: cross_cell.Page[InboxEntry], filters: Filters) -> dict[str, schemas.InboxItem]:
    with_forms = await cross_cell.find_with_forms((cell, _run_of(each)) for cell, each in page.rows)
    return {
        each.asked.id: await _view(cell, each, with_forms)
        for cell, each in page.rows
        if await _is_found(cell, each, filters, with_forms)
    }


@router.get("/counts")
async def count_inbox(access: CurrentAccess) -> schemas.InboxCounts:
    """How many open questions of each workflow ask you."""

    async def ask(cell: Access) -> tuple[dict[str, int], bool]:
        return await cell.inbox.counts(cell.tenant, cell.principal.who)

    answer = await cross_cell.ask_all_cells(access, ask)
    counts = cross_cell.sum_counts([counts for _, (counts, _) in answer.by_cell])
    complete = all(complete for _, (_, complete) in answer.by_cell) and not answer.missing
    return {"workflows": counts, "complete": complete, "missing": answer.missing}


# --- live -------------------------------------------------------------------------------------------------------------


@router.get("/events", answer=live_lists.STREAM)
async def follow_inbox(
    access: CurrentAccess,
    limit: PageLimit = 50,
    workflow: _Name = None,
    kind: _Kind = None,
    text: _Name = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The first `limit` questions of your inbox as they come and go: an event `inbox` with all of them, then `changed`
    with those that are new or have changed, and the ids of those that are `gone`. Come back with Last-Event-ID: if
    nothing has happened since, nothing is repeated."""
    filters = _filters(workflow, kind, None, None, None, text)
    return await access.stream(lambda: _begin(access, filters, limit, last_event_id), LOG, farewell(access, LOG))


async def _begin(access: Access, filters: Filters, limit: int, last: str | None) -> Frames:
    before: live_lists.Items | None = None

    async def news(reader: live_lists.ListReader) -> AsyncGenerator[StreamItem, None]:
        nonlocal before, last
        listed = await reader.read("inbox")
        now, id = listed.items, listed.print
        if before is None and id != last:
            yield live_lists.piece("inbox", id, {"items": list(now.values())})
        elif before is not None and id != last:
            changed, gone = live_lists.changes(before, now)
            yield live_lists.piece("changed", id, {"items": changed, "gone": gone})
        last, before = id, now

    sight = (derive_sight_key(access.principal), filters, limit)
    source = live_lists.ListSource(sight, lambda: _load_first_page(access, filters, limit), "claimed_until")
    return live_lists.watch_news(access, {"inbox": source}, news)


async def _load_first_page(access: Access, filters: Filters, limit: int) -> live_lists.Items:
    return await _load_views(await _page(access, filters, limit, None), filters)


# --- deciding ---------------------------------------------------------------------------------------------------------

BULK_MAX: Final = 100
_AT_ONCE: Final = 8  # answers of one request that are under way at once


class BulkItem(DecideBody):
    id: str = Field(max_length=200)


class DecideSeveralBody(Body):
    """Several answers, each of which is taken or refused on its own."""

    items: list[BulkItem] = Field(min_length=1, max_length=BULK_MAX)


@router.post("/decide", Right.DECIDE)
async def decide_several(body: DecideSeveralBody, access: CurrentAccess, key: CommandKey) -> schemas.BulkOutcomes:
    """Answer several questions. The outcomes stand in the order of the answers; a refused answer does not affect the
    others."""
    twice = {each.id for each in body.items if [other.id for other in body.items].count(each.id) > 1}
    if twice:
        raise Rejected(422, "answer.invalid", f"items: {min(twice)[:100]} is answered twice; answer it once.")
    room = asyncio.Semaphore(_AT_ONCE)

    async def outcome(item: BulkItem) -> schemas.BulkOutcome:
        async with room:
            try:
                body = DecideBody(**{name: part for name, part in item.sent().items() if name != "id"})
                cell = await access.find_at_pending(item.id)
                pending = await decide(cell, item.id, body, key and f"{key}/{item.id}")
            except (Rejected, Unreadable) as error:
                rejected = reject_unreadable(error) if isinstance(error, Unreadable) else error
                return {"id": item.id, "status": rejected.status, "pending": None, "problem": build_problem(rejected)}
        return {"id": item.id, "status": 200, "pending": pending, "problem": None}

    return {"items": await asyncio.gather(*map(outcome, body.items))}


@router.get("/decided")
async def read_decided(access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None) -> schemas.DecidedPage:
    """Your decisions, and those of your delegates in your name, the newest first."""
    before, who = _decode(cursor), access.principal.id

    def place(row: inbox.Decided) -> Place:
        return row.at, row.pending_id

    async def ask(cell: Access) -> tuple[Sequence[inbox.Decided], Place | None]:
        decided = await cell.past(
            lambda pool: inbox.list_decided_by(pool, cell.tenant, who, limit=limit + 1, before=before)
        )
        return cross_cell.cut_page(decided, limit, place)

    page = await cross_cell.page(access, ask, place, limit)
    return page.show([render_decision(row) for _, row in page.rows])


# --- one question -----------------------------------------------------------------------------------------------------

_CLAIM_MAX_MS: Final = 24 * 3_600_000


class ClaimBody(Body):
    for_: str = Field(default="30m", alias="for", max_length=100, description="how long, at most a day: `30m`, `PT2H`")


async def _item(access: Access, pending_id: str) -> InboxEntry:
    """The open question, if the caller may see it here: it asks them, or somebody whose delegate they are; or they see
    all runs. Raises Rejected 404."""
    run_id, item = run_of_pending(pending_id), None
    if run_id is not None:
        item = await access.inbox.item(access.tenant, access.principal.who, run_id, pending_id)
    is_visible = item is not None and (item.is_theirs or access.principal.sees_all)
    if item is None or not is_visible or not await _is_shown(access, item):
        raise Rejected(404, "pending_unknown", f"there is no open question {pending_id[:100]!r} in your inbox.")
    return item


@router.get("/{pending_id}", refusals=(404,))
async def check_pending(pending_id: str, access: CurrentAccess) -> schemas.InboxItem:
    """Whether you may decide the question, why not, and which others may."""
    return await _view(access, await _item(access, pending_id))


@router.post("/{pending_id}/claim", Right.DECIDE, refusals=(403, 404, 409))
async def claim_pending(pending_id: str, access: CurrentAccess, body: ClaimBody | None = None) -> schemas.InboxItem:
    """Tell others that you are working on the question. They can still decide it, and the claim ends by itself."""
    item, who = await _item(access, pending_id), access.principal.who
    if item.obstacle is not None and not item.for_others:
        raise Rejected(403, "pending_forbidden", f"{pending_id} is not {who.id}'s to answer: {item.obstacle.reason}.")
    try:
        time = milliseconds((body or ClaimBody()).for_)
    except NotADuration as error:
        raise Rejected(422, "request.invalid", f"for: {error}.") from None
    if not 0 < time <= _CLAIM_MAX_MS:
        raise Rejected(422, "request.invalid", "for: expected more than nothing, and at most a day.")
    run_id = item.asked.run_id
    async with access.act() as connection:
        is_claimed = await inbox.claim(
            connection, access.tenant, run_id, pending_id, who.id, timedelta(milliseconds=time)
        )
        if is_claimed:
            await access.record(connection, "pending.claimed", subject=f"pending:{pending_id}", run_id=run_id, ms=time)
    access.hint_lists()
    item = await _item(access, pending_id)
    if not is_claimed:
        winner = {"by": item.asked.claimed_by}
        raise Rejected(409, "pending_claimed", f"{item.asked.claimed_by} is at {pending_id} already.", winner=winner)
    return await _view(access, item)


@router.post("/{pending_id}/release", Right.DECIDE, refusals=(403, 404, 409, *WITH_BODY))
async def release_pending(pending_id: str, access: CurrentAccess) -> schemas.InboxItem:
    """Withdraw your claim. Without a claim of yours this changes nothing."""
    run_id, who = (await _item(access, pending_id)).asked.run_id, access.principal.who
    async with access.act() as connection:
        if await inbox.release(connection, access.tenant, run_id, pending_id, who.id):
            await access.record(connection, "pending.released", subject=f"pending:{pending_id}", run_id=run_id)
    access.hint_lists()
    return await _view(access, await _item(access, pending_id))
