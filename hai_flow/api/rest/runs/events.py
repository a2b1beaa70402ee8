"""`/v1/runs/{id}/events`: a run's log as a page or as it grows, and its turns as a dialect shows them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import Header, Query, Response

from hai_flow.api.http.stream import Frames
from hai_flow.api.permissions.rights import Right
from hai_flow.api.permissions.visibility import Sight
from hai_flow.api.protocols.stream_pieces import (
    farewell,
    list_earlier_entries,
    make_empty_stream,
    put_first,
    read_cursor,
    read_rest_of_event,
    up_to,
)
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.profiles import make_view_of_events, reader_of
from hai_flow.api.routes import Routes
from hai_flow.definition.names.wording import suggestion
from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.runtime.streams.stream_items import item_of_event, item_without_number
from hai_flow.store.runs.run_lists import RunRow
from hai_flow.wire import DIALECTS, sse
from hai_flow.wire.dialects.dialect import Dialect, Frame, Profile
from hai_flow.wire.dialects.log import LOG, event_json
from hai_flow.wire.dialects.turns import TurnEncoder
from hai_flow.wire.sent_json import dump
from hai_flow.wire.sse import Cursor

router = Routes(prefix="/v1/runs", tags=["runs"])

RESET: Final = "cursor_reset"
LOOKED_AT_MAX: Final = 20_000  # events, for one page of those that are wanted
_COMMITS_AT_ONCE: Final = 500
_SEQ: Final = re.compile(r"0|[1-9][0-9]{0,14}")

_STREAM: Final[dict[str, Any]] = {
    "description": "a page, or a stream",
    "content": {sse.CONTENT_TYPE: {"schema": {"type": "string"}}},
}


@router.get("/{run_id}/events", Right.SEE_OWN, refusals=(404,), answer=_STREAM)
async def get_events(
    run_id: str,
    access: CurrentAccess,
    after: Annotated[str | None, Query(description="a seq; with `dialect`, a cursor")] = None,
    before: Annotated[int | None, Query(ge=1, le=2**53, description="a seq; of a page")] = None,
    type: Annotated[list[str] | None, Query(description="only these; of a page")] = None,
    path: Annotated[
        str | None, Query(min_length=1, max_length=600, description="only of this step and those inside it; of a page")
    ] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="`desc`: the newest first; of a page")] = "asc",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    dialect: Literal["hai", "agui", "social", "aui", "agent-api"] | None = None,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str | None, Header(description="beats `after`")] = None,
) -> schemas.EventsPage | Response:
    """The run's events after a seq: as `text/event-stream` (Accept) until the run ends, else as a page.

    A page has those between `after` and `before`. `next_cursor` is the `after` of the next page, or with `order=desc`
    its `before`. With filters a page may be short, or empty, though more follow.

    With `dialect`, that protocol's frames: of the newest turn, or all that come after a cursor; in another framing of
    it, if Accept asks for one. If the cursor is not a place of this run, the answer is `cursor_reset` and the run as it
    is now."""
    selection = _WantedEvents(before, None if type is None else _types(type), path, backwards=order == "desc")
    row = await access.run(run_id, Sight.QUESTIONS)
    cursor = (last_event_id if last_event_id is not None else after) or None
    if dialect is not None:
        view = _ShownRun(access, row, DIALECTS[dialect].choose_framing(accept))
        return await access.stream(lambda: view.after(cursor), view.dialect, farewell(access, view.dialect))
    seq = _seq(cursor)
    if sse.CONTENT_TYPE not in accept:
        return await _page(access, row, seq, limit, selection)
    return await access.stream(lambda: _log(access, row, seq), LOG, farewell(access, LOG))


# --- the log ------------------------------------------------------------------------------------------------------


def _seq(text: str | None) -> int:
    if text is None:
        return 0
    if not _SEQ.fullmatch(text):
        raise Rejected(400, "cursor.invalid", f"expected the seq of an event, found {text[:60]!r}.")
    return int(text)


class _WantedEvents(msgspec.Struct, frozen=True):
    """Which events of a log a page has."""

    before: int | None
    types: frozenset[str] | None
    path: str | None
    backwards: bool

    def has(self, event: e.Event) -> bool:
        if self.types is not None and event.type not in self.types:
            return False
        if self.path is None:
            return True
        path: str | None = getattr(event, "path", None)
        return path is not None and (path == self.path or path.startswith((f"{self.path}/", f"{self.path}[")))


def _types(given: list[str]) -> frozenset[str]:
    """Raises Rejected 422 where one is no event's."""
    for name in given:
        if name not in e.TYPE_NAMES:
            hint = suggestion(name[:60], e.TYPE_NAMES)
            raise Rejected(422, "request.invalid", f"type: there is no event {name[:60]!r}{hint or '.'}")
    return frozenset(given)


async def _page(access: Access, row: RunRow, after: int, limit: int, wanted: _WantedEvents) -> schemas.EventsPage:
    if after > row.seq:
        return {"items": [], "next_cursor": None, "cursor_reset": {"seq": row.seq}}
    last = row.seq if wanted.before is None else min(wanted.before - 1, row.seq)
    if wanted.backwards:
        items, more = await _read_backwards(access, row, after, last, limit, wanted)
    else:
        items, more = await _read_forwards(access, row, after, last, limit, wanted)
    return {"items": items, "next_cursor": None if more is None else str(more)}


async def _read_forwards(
    access: Access, row: RunRow, after: int, last: int, limit: int, wanted: _WantedEvents
) -> tuple[list[dict[str, Any]], int | None]:
    """Up to `limit` events, and the seq behind which there are more."""
    items: list[dict[str, Any]] = []
    see, place = await make_view_of_events(access, row, after), after
    most = limit if wanted.types is None and wanted.path is None else LOOKED_AT_MAX
    while place < last:
        commits = await access.history(row, last).read_log(place, min(most, _COMMITS_AT_ONCE))
        if not commits:
            break
        for stored in commits:
            events = await run_by_size(len(stored.events), e.decode_events, stored.events)
            for seq, event in enumerate(events, stored.first_seq):
                if not place < seq <= last:
                    continue
                if len(items) == limit or seq - after > most:
                    return items, place
                place, visible = seq, await run_by_size(len(stored.events), see, event)
                if visible is not None and wanted.has(visible):
                    items.append(event_json(seq, visible))
    return items, None


async def _read_backwards(
    access: Access, row: RunRow, after: int, last: int, limit: int, wanted: _WantedEvents
) -> tuple[list[dict[str, Any]], int | None]:
    """Up to `limit` events, the newest first, and the seq before which there are more."""
    items: list[dict[str, Any]] = []
    place = last + 1
    while place > after + 1 and last - place < LOOKED_AT_MAX:
        start = max(after, place - 1 - _COMMITS_AT_ONCE)  # each commit has an event
        see = await make_view_of_events(access, row, start)
        entries: list[tuple[int, e.Event]] = []
        for stored in await access.history(row, last).read_log(start, _COMMITS_AT_ONCE):
            events = await run_by_size(len(stored.events), e.decode_events, stored.events)
            for seq, event in enumerate(events, stored.first_seq):
                visible = await run_by_size(len(stored.events), see, event) if start < seq < place else None
                if visible is not None and wanted.has(visible):
                    entries.append((seq, visible))
        for seq, visible in reversed(entries):
            if len(items) == limit:
                return items, items[-1]["seq"]
            items.append(event_json(seq, visible))
        place = start + 1
    return items, place if place > after + 1 else None


async def _log(access: Access, row: RunRow, seq: int) -> Frames:
    if seq > row.seq:
        state = await access.state(row.id)
        reset = [Frame(RESET, dump({"seq": state.seq}))]
        return put_first(item_of_event(LOG, reset, state.seq, row.id), _until_end(access, row, state, state.seq))
    return _until_end(access, row, await access.state(row.id, seq), row.seq)


def _until_end(access: Access, row: RunRow, start: RunState, head: int) -> Frames:
    if start.ended and start.seq >= head:
        return make_empty_stream()
    return access.follow(start, LOG, reader_of(access, row, LOG, start))


# --- a dialect ----------------------------------------------------------------------------------------------------


class _ShownRun(msgspec.Struct, frozen=True):
    """A run as a dialect shows it to clients that come without a POST."""

    access: Access
    row: RunRow
    dialect: Dialect

    async def after(self, cursor: str | None) -> Frames:
        """The newest turn, or all frames after `cursor`. Raises Rejected 400."""
        if cursor is None:
            return await self._newest_turn()
        place = self._place(cursor)
        if place.encoding != DIALECTS[self.dialect.name].encoding or place.seq > self.row.seq:
            return await self._reset()
        return await self._rest(place)

    def _place(self, cursor: str) -> Cursor:
        place = read_cursor(cursor)
        ours = place.encoding.rpartition("-")[0] == self.dialect.name
        if place.run_id != str(self.row.id) or not ours or not place.seq:
            raise Rejected(400, "cursor.invalid", "expected a cursor of this run's own stream.")
        return place

    async def _newest_turn(self) -> Frames:
        head = await self.access.state(self.row.id)
        start = await self.access.state(self.row.id, head.turn.first_seq - 1 if head.turn else 0)
        return self._follow(start, self._profile(head), head)

    async def _rest(self, place: Cursor) -> Frames:
        """The other frames of the cursor's event, then those of later events: in this turn, else in later ones."""
        here = await self.access.state(self.row.id, place.seq)
        head = await self.access.state(self.row.id)
        profile = self._profile(here)
        rest = await read_rest_of_event(self.access, self.dialect, profile, self.row.id, place)
        return put_first(rest, self._follow(here, profile, head))

    def _profile(self, state: RunState) -> Profile:
        return reader_of(self.access, self.row, self.dialect, state)

    async def _reset(self) -> Frames:
        """The run as it is now, for a follower whose place in it is unknown."""
        state = await self.access.state(self.row.id)
        profile = self._profile(state)
        earlier = await list_earlier_entries(self.access, self.row.thread_id, self.row.id)
        encoder = self.dialect.encoder(profile, state)
        started, *frames = encoder.preface(None, earlier)
        note = encoder.custom(state.at, f"hai.{RESET}", {"seq": state.seq}) if isinstance(encoder, TurnEncoder) else []
        preface = item_without_number(self.dialect, [started, *note, *frames])
        return put_first(preface, self._follow(state, profile, state))

    def _follow(self, start: RunState, profile: Profile, head: RunState) -> Frames:
        if start.seq >= head.seq and not head.turn_open:
            return make_empty_stream()
        return up_to(head, self.access.follow(start, self.dialect, profile))
