"""`/v1/threads`: conversations and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from hai_flow.api.base.id_patterns import ThreadId
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.cross_cell import cut_page, page
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, decode_place, demand_id_cursor, encode_place
from hai_flow.api.requests.run_visibility import RunFacts, thread_unknown
from hai_flow.api.requests.views import build_run_view, render_message_in_queue, render_thread, render_thread_message
from hai_flow.api.routes import Routes
from hai_flow.definition.personal.pii_flow import Personal
from hai_flow.errors import Rejected
from hai_flow.runtime.runs.message_queue import WITHDRAWN
from hai_flow.store.messaging import message_queue
from hai_flow.store.messaging.message_queue import QueuedMessage
from hai_flow.store.runs import run_lists, thread_lists, threads
from hai_flow.store.runs.thread_lists import ThreadSummary

router = Routes(prefix="/v1/threads", tags=["threads"])

RUNS_SHOWN: Final = 50


async def find_thread(access: Access, thread_id: str) -> ThreadSummary:
    """The thread, if the caller may read its newest run. Raises Rejected 404."""
    thread = await thread_lists.get_thread(access.reads, access.tenant, thread_id)
    if not await _may_read(access, thread):
        raise thread_unknown(thread_id)
    assert thread is not None
    return thread


async def _may_read(access: Access, thread: ThreadSummary | None) -> bool:
    if access.viewer is None:
        return thread is not None
    try:
        await access.run(uuid4() if thread is None else thread.run_id)  # looked for either way: no clock tells
    except Rejected:
        return False
    return True


@router.get("", Right.SEE_OWN)
async def list_threads(access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None) -> schemas.ThreadPage:
    """The threads, the one with the newest run first."""
    before = demand_id_cursor(cursor)

    async def ask(cell: Access) -> tuple[Sequence[ThreadSummary], Any]:
        rows_found = await thread_lists.list_threads(
            cell.reads, cell.tenant, limit=limit + 1, before=before, viewer=cell.viewer
        )
        return cut_page(rows_found, limit, _place)

    listed = await page(access, ask, _place, limit)
    return listed.show([render_thread(thread) for _, thread in listed.rows])


def _place(thread: ThreadSummary) -> tuple[datetime, UUID]:
    return thread.run_created_at, thread.run_id


@router.get("/{thread_id}", Right.SEE_OWN, refusals=(404,))
async def get_thread(thread_id: ThreadId, access: CurrentAccess) -> schemas.ThreadWithRuns:
    """One thread, with its newest runs."""
    thread = await find_thread(access, thread_id)
    newest = await run_lists.list_runs(
        access.reads, access.tenant, limit=RUNS_SHOWN, thread_id=thread_id, viewer=access.viewer
    )
    return {**render_thread(thread), "runs": [await build_run_view(run) for run in await access.redact_rows(newest)]}


@router.get("/{thread_id}/messages", Right.SEE_OWN, refusals=(404,))
async def list_messages(
    thread_id: ThreadId, access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None
) -> schemas.ThreadMessagePage:
    """The thread's complete messages and its calls, oldest first. If the thread was taken back to an earlier turn, the
    messages after that turn are left out."""
    place = decode_place(cursor)
    viewer = access.viewer
    if viewer is not None:
        await find_thread(access, thread_id)
    transcript = await threads.transcript(access.reads, access.tenant, thread_id, viewer=viewer)
    if not transcript and viewer is None:
        await find_thread(access, thread_id)
    start = 0 if place is None else _behind(place, transcript)
    messages = transcript[start : start + limit]
    more = len(transcript) > start + limit
    return {
        "items": [render_thread_message(*each) for each in await access.redact_entries(messages)],
        "next_cursor": encode_place(messages[-1].n, messages[-1].run_id) if more else None,
    }


@router.get("/{thread_id}/queue", Right.SEE_OWN, refusals=(404,))
async def list_queued_messages(thread_id: ThreadId, access: CurrentAccess) -> schemas.QueuedMessages:
    """The messages that wait until the thread's run has ended (`on_message: enqueue`), the next one first, and those of
    the last day that could start no run. Callers that do not see the conversation get no texts."""
    run = await access.run((await find_thread(access, thread_id)).run_id)
    queued = await message_queue.list_of_thread(access.reads, access.tenant, thread_id)
    says = access.can_see_conversation(run.id)
    return {"items": [render_message_in_queue(each, await _personal_in(access, each), says=says) for each in queued]}


async def _personal_in(access: Access, queued: QueuedMessage) -> Personal | None:
    return await access.personal(
        RunFacts(queued.run_id, queued.principal, queued.workflow, "", queued.thread_id, False), with_forms=()
    )


@router.delete(
    "/{thread_id}/queue/{run_id}", Right.SPEAK, Right.CONTROL_RUNS, status_code=204, refusals=(403, 404, 409)
)
async def withdraw_queued_message(thread_id: ThreadId, run_id: UUID, access: CurrentAccess) -> None:
    """Take back a message that waits: it starts no run. 409 if its run is there already."""
    last = await access.last_run(thread_id)
    if last is None:
        raise thread_unknown(thread_id)
    if not access.principal.may(Right.CONTROL_RUNS):
        await access.demand_speaks(thread_id, last)
    message = await message_queue.find(access.reads, access.tenant, run_id)
    if message is not None and message.thread_id == thread_id:
        async with access.act() as connection:
            withdrawn = await message_queue.refuse(connection, access.tenant, run_id, WITHDRAWN)
            if withdrawn:
                await access.record(connection, "message.withdrawn", subject=f"run:{run_id}")
        if withdrawn or message.refused is not None:
            return
    elif (run := await run_lists.get_run(access.reads, access.tenant, run_id)) is None or run.thread_id != thread_id:
        raise Rejected(404, "message_unknown", f"no message of thread {thread_id[:100]!r} waits to start run {run_id}.")
    raise Rejected(409, "message_begun", f"the message has started run {run_id}; stop that if you want it undone.")


def _behind(place: tuple[int, str], transcript: list[threads.Message]) -> int:
    """Where the transcript goes on behind the message that a cursor names. Raises Rejected 400."""
    for index, message in enumerate(transcript):
        if (message.n, str(message.run_id)) == place:
            return index + 1
    raise Rejected(
        400,
        "cursor.invalid",
        "cursor: expected one that a page of this list returned; if it did, the thread has been taken back to an "
        "earlier turn since: begin with its first page.",
    )
