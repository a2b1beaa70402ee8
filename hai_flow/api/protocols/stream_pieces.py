"""Streams of pieces, put together, for the dialects' endpoints and `/v1/runs/{id}/events`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from uuid import UUID

from hai_flow.api.http.stream import Frames
from hai_flow.api.permissions.credential_expiry import StreamEnd
from hai_flow.api.requests.access import Access
from hai_flow.engine.events import decode_events
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.runtime.streams.fanout import Following
from hai_flow.runtime.streams.stream_items import StreamItem, item_of_event
from hai_flow.store.runs import logs, threads
from hai_flow.wire.dialects.dialect import Dialect, Entry, Frame, Profile
from hai_flow.wire.sse import Cursor, parse_cursor


async def make_empty_stream() -> Frames:
    return
    yield


async def make_single_piece(piece: StreamItem) -> Frames:
    yield [piece]


def put_first(first: StreamItem, rest: Frames) -> Frames:
    """`first`, then `rest`; only `first` if that is an end."""
    if isinstance(rest, Following) and not first.terminal:
        return rest.put_first(first)
    return _put_first(first, rest)


async def _put_first(first: StreamItem, rest: Frames) -> Frames:
    async with contextlib.aclosing(rest):
        yield [first]
        if first.terminal:
            return
        async for pieces in rest:
            yield pieces


def up_to(head: RunState, rest: Frames) -> Frames:
    """`rest`: all of it if a turn is open at `head`, else up to `head`. Later turns belong to other streams."""
    return rest if head.turn_open else _up_to(head.seq, rest)


async def _up_to(seq: int, rest: Frames) -> Frames:
    async with contextlib.aclosing(rest):
        async for pieces in rest:
            yield pieces
            if pieces[-1].seq >= seq:
                return


def read_cursor(text: str) -> Cursor:
    """The place that a client names. Raises Rejected 400."""
    try:
        return parse_cursor(text)
    except ValueError as error:
        raise Rejected(400, "cursor.invalid", f"{error}.") from None


async def read_rest_of_event(
    access: Access, dialect: Dialect, profile: Profile, run_id: UUID, place: Cursor
) -> StreamItem:
    """The frames of the cursor's event that come behind the cursor."""
    before = await access.state(run_id, place.seq - 1)
    stored = (await logs.read_log(access.reads, run_id, place.seq - 1, 1))[0]
    event = decode_events(stored.events)[place.seq - stored.first_seq]
    frames = dialect.encoder(profile, before).encode(event)
    all_frames = item_of_event(dialect, frames, place.seq, run_id)
    sent_before = item_of_event(dialect, frames[: place.frame + 1], place.seq, run_id)
    return StreamItem(place.seq, frames[place.frame + 1 :], all_frames.data[len(sent_before.data) :])


async def list_earlier_entries(access: Access, thread_id: str, run_id: UUID) -> list[Entry]:
    """The transcript of the runs that come before this one in the thread, as much of it as is shown at once."""
    if not access.can_see_conversation(run_id):
        return []
    window, viewer = threads.WINDOW, access.viewer
    stored = await threads.transcript(
        access.reads, access.tenant, thread_id, before=run_id, window=window, viewer=viewer
    )
    return [entry for _, entry in await access.redact_entries(stored)]


def farewell(access: Access, dialect: Dialect, thread_id: str = "") -> Callable[[StreamEnd], bytes]:
    """How a stream of the dialect ends before its end: a client takes one that just ends for complete."""
    now_ms = access.runtime.committer.now_ms  # nothing else of the request stays with its stream
    return lambda ending: dialect.render_unnumbered(encode_last_frames(now_ms(), dialect, ending, thread_id))


def encode_last_frames(now_ms: int, dialect: Dialect, ending: StreamEnd, thread_id: str = "") -> list[Frame]:
    nobody = RunState("", thread_id=thread_id, at=now_ms)
    encoder = dialect.encoder(Profile(dialect=dialect.name), nobody)
    return encoder.farewell(ending.reason, ending.code)
