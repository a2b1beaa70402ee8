"""`/api/v1/agent/runs/{thread_id}`: a thread as one stream of Server-Sent Events, and its history.

The dialect is `wire/dialects/social.py`. It has no way up: runs are started and questions answered over REST, or in
any other dialect."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Header, Query, Response
from fastapi.responses import JSONResponse

from hai_flow.api.base.id_patterns import ThreadId
from hai_flow.api.http.stream import Frames
from hai_flow.api.permissions.rights import Right
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.protocols.openapi_streams import OBJECTS
from hai_flow.api.protocols.stream_pieces import farewell, list_earlier_entries, read_cursor, read_rest_of_event
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.profiles import read_by
from hai_flow.api.requests.run_visibility import thread_unknown
from hai_flow.api.routes import Routes
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.runtime.streams.stream_items import StreamItem, item_without_number
from hai_flow.store.runs import run_lists, threads
from hai_flow.store.runs.run_lists import RunRow, RunSummary
from hai_flow.store.runs.threads import Position
from hai_flow.wire.dialects.dialect import Profile
from hai_flow.wire.dialects.social import SOCIAL, SocialEncoder, profile
from hai_flow.wire.sse import LAST_FRAME, Cursor

router = Routes(prefix="/api/v1/agent/runs", tags=["dialects"])

_BEGINNING: Final = Cursor("00000000-0000-0000-0000-000000000000", SOCIAL.encoding, 0, 0)
"""The place before all runs of a thread. A client that listened before the first run gets all of them, also after its
connection was lost."""

_FOREIGN_ID: Final = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")
"""The id of an entry of a Redis stream, which the protocol's document names as the id of an event."""

_STREAM: Final[dict[str, Any]] = {
    "description": "the thread's events, for as long as one listens",
    "content": {SOCIAL.framing.content_type: {"schema": {"type": "string"}}},
}
_HISTORY: Final[dict[str, Any]] = {
    "description": "what the thread has said",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["threadId", "runId", "status", "messages", "pendings", "cursor"],
                "properties": {
                    "threadId": {"type": "string"},
                    "runId": {"type": ["string", "null"]},
                    "status": {"type": ["string", "null"]},
                    "messages": OBJECTS,
                    "pendings": OBJECTS,
                    "cursor": {"type": "string"},
                },
            }
        }
    },
}


@router.get("/{thread_id:path}/events", Right.SEE_OWN, refusals=(400,), answer=_STREAM)
async def get_thread_events(
    thread_id: ThreadId,
    access: CurrentAccess,
    after: Annotated[str | None, Query(description="a cursor: an event's id, or the history's")] = None,
    last_event_id: Annotated[str | None, Header(description="beats `after`")] = None,
) -> Response:
    """The thread's events, across its turns and runs, until the client stops listening: those after a cursor, else from
    the start of its newest turn. A thread without a run sends an empty MESSAGES_SNAPSHOT, then its first run."""
    thread = _FollowedThread(access, thread_id)
    cursor = (last_event_id if last_event_id is not None else after) or None
    return await access.stream(lambda: thread.after(cursor), SOCIAL, farewell(access, SOCIAL, thread_id))


@router.get("/{thread_id:path}/history", Right.SEE_OWN, refusals=(400,), answer=_HISTORY)
async def get_thread_history(thread_id: ThreadId, access: CurrentAccess) -> Response:
    """The thread's messages so far, its open questions, and the cursor behind which the events go on."""
    last = await access.last_run(thread_id)
    if last is None:
        state, earlier, cursor = RunState("", thread_id=thread_id), [], str(_BEGINNING)
    else:
        state = await access.state(last.id)
        earlier = await list_earlier_entries(access, thread_id, last.id)
        cursor = str(Cursor(str(last.id), SOCIAL.encoding, state.seq, LAST_FRAME))
    reading = profile() if last is None else read_by(profile(), access, last.id, last.started_by)
    history = SocialEncoder(reading, state).history(earlier)
    return JSONResponse({**history, "cursor": cursor})


class _FollowedThread(msgspec.Struct, frozen=True):
    """A thread as one client follows it."""

    access: Access
    thread_id: str

    async def after(self, cursor: str | None) -> Frames:
        """The events after `cursor`; without one, the newest turn and all later events. A thread of which the caller
        sees nothing is like one without a run, in which nothing ever happens. Raises Rejected 400."""
        foreign = cursor is not None and _FOREIGN_ID.fullmatch(cursor) is not None
        if await self._is_hidden():
            if cursor not in (None, str(_BEGINNING)) and not foreign:
                await self._place(cursor or "")
            return self._silent(self._empty() if cursor is None or foreign else None)
        if cursor is None:
            start = await self._newest_turn()
            return self._from(start, self._empty() if start is None else None)
        if cursor == str(_BEGINNING):
            return self._from(None)
        if foreign:
            return await self._after_foreign_id()
        place, row = await self._place(cursor)
        if place.encoding != SOCIAL.encoding or not 0 < place.seq <= row.seq:
            return await self._reset()
        return await self._rest(place, row)

    async def _after_foreign_id(self) -> Frames:
        """The thread as it is now, and what follows: an EventSource that comes over from a server which numbers events
        as Redis does keeps its last id, and never comes back after an error."""
        if await self.access.last_run(self.thread_id) is None:
            return self._from(None, self._empty())
        return await self._reset()

    async def _place(self, cursor: str) -> tuple[Cursor, RunRow]:
        place = read_cursor(cursor)
        row = await run_lists.get_run(self.access.reads, self.access.tenant, UUID(place.run_id))
        ours = place.encoding.rpartition("-")[0] == SOCIAL.name
        hidden = row is None or await self.access.sight(row) is Sight.NOTHING
        if row is None or hidden or row.thread_id != self.thread_id or not ours:
            raise Rejected(400, "cursor.invalid", "expected a cursor of this thread's own stream.")
        return place, row

    async def _is_hidden(self) -> bool:
        """Whether the thread has runs, and the caller sees nothing of the newest one."""
        if self.access.viewer is None:
            return False
        last = await threads.last_run(self.access.reads, self.access.tenant, self.thread_id)
        return last is not None and await self.access.sight(last) is Sight.NOTHING

    async def _silent(self, first: StreamItem | None) -> Frames:
        """`first`, and then nothing until the server's end."""
        if first is not None:
            yield [first]
        await self._closing.wait()

    def _empty(self) -> StreamItem:
        """A thread without a run: an empty snapshot, with a cursor that a client can come back to."""
        frames = SocialEncoder(profile(), RunState(self.thread_id, thread_id=self.thread_id)).messages_snapshot(0, ())
        rendered = SOCIAL.framing.render(frames[0].data, frames[0].name, str(_BEGINNING))
        return StreamItem(0, frames, rendered)

    async def _newest_turn(self) -> RunState | None:
        last = await self._last()
        if last is None:
            return None
        head = await self.access.state(last)
        return await self.access.state(last, head.turn.first_seq - 1 if head.turn else 0)

    async def _last(self) -> UUID | None:
        last = await threads.last_run(self.access.reads, self.access.tenant, self.thread_id)
        return None if last is None else last.id

    async def _rest(self, place: Cursor, row: RunRow) -> Frames:
        """The other frames of the cursor's event, then those of all later events."""
        rest = await read_rest_of_event(self.access, SOCIAL, self._profile(row), row.id, place)
        return self._from(await self.access.state(row.id, place.seq), rest)

    def _profile(self, run: RunSummary) -> Profile:
        return read_by(profile(), self.access, run.id, run.started_by)

    async def _reset(self) -> Frames:
        """The thread as it is now, as a MESSAGES_SNAPSHOT, for a follower whose place in it is unknown."""
        last = await self._last()
        if last is None:  # the thread was removed meanwhile
            raise thread_unknown(self.thread_id)
        return self._from(*await self._current(last))

    async def _current(self, run_id: UUID) -> tuple[RunState, StreamItem]:
        """The thread as it is now, up to the newest event of its run `run_id`: that run's state, and the snapshot."""
        state = await self.access.state(run_id)
        earlier = await list_earlier_entries(self.access, self.thread_id, run_id)
        reading = read_by(profile(), self.access, run_id, state.requester)
        return state, item_without_number(SOCIAL, SocialEncoder(reading, state).preface(None, earlier))

    async def _from(self, start: RunState | None, first: StreamItem | None = None) -> Frames:
        """`first`, then the events after `start`, in its run and in later ones. `start` is None: from the next run."""
        if first is not None:
            yield [first]
        place: Position | None = None
        while not self._closing.is_set():
            if start is not None:
                run_id, seq = UUID(start.run_id), start.seq
                # A later run of the thread may show the caller less than the one that they came for, but never the
                # whole of it: then they see that it goes on, and the questions that ask them.
                reading = self._profile(await self.access.run(run_id, Sight.NOTHING))
                rest = self.access.follow(start, SOCIAL, reading)
                async with contextlib.aclosing(rest):
                    async for pieces in rest:
                        seq = pieces[-1].seq or seq
                        yield pieces
                place = Position(run_id, seq)
            await self._news(place)
            start, piece = await self._next(place)
            if piece is not None:
                yield [piece]

    @property
    def _closing(self) -> asyncio.Event:
        return self.access.runtime.fanout.closing

    async def _news(self, known: Position | None) -> None:
        """Wait for more of the thread, or for the server's end."""
        news = self.access.runtime.threads.news(self.access.tenant, self.thread_id, known)
        waits = [asyncio.ensure_future(news), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _next(self, place: Position | None) -> tuple[RunState | None, StreamItem | None]:
        """Where the thread goes on behind `place`: in the same run, if that was retried, else in the run after it. A
        branch goes on from an earlier turn, so a snapshot of the thread comes with it, to be sent first."""
        pool, tenant = self.access.reads, self.access.tenant
        if place is not None:
            row = await run_lists.get_run(pool, tenant, place.run_id)
            if row is not None and row.seq > place.seq:
                return await self.access.state(place.run_id, place.seq), None
        following = await threads.next_run(pool, tenant, self.thread_id, None if place is None else place.run_id)
        if following is None:
            return None, None
        await self.access.sight(following)
        return (RunState(str(following.id)), None) if following.branch_of is None else await self._current(following.id)
