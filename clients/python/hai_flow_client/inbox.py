"""An inbox as it changes, put together from the events that the server sends. Pure: see `effects.py`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hai_flow_client.effects import Answer, Backoff, Effect, Feed, Give, Lost, Read, Request
from hai_flow_client.errors import HaiFlowError, Unavailable, unreachable, unreadable
from hai_flow_client.models import InboxItem
from hai_flow_client.scripts import EVENT_STREAM, EXPIRED, error_of, not_opened, parameters
from hai_flow_client.sse import Frame, Parser
from hai_flow_client.values import Json

PATH: Final = "/v1/inbox/events"
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class InboxNews(msgspec.Struct, frozen=True, kw_only=True):
    """An inbox as it is now: `items`, the next deadline first. `changed`: those of them that are new or have changed.
    `gone`: the ids of those that were there before."""

    items: list[InboxItem]
    changed: list[InboxItem]
    gone: list[str]


class _Told(msgspec.Struct):
    """The data of one event: all items (`inbox`), or those that have changed (`changed`) and the ids of those that are
    gone."""

    items: list[InboxItem]
    gone: list[str] = []


class _Known:
    """The items and the last event's id that a follower has so far."""

    def __init__(self, query: Mapping[str, Json]) -> None:
        self._query = parameters(query)
        self._items: dict[str, InboxItem] = {}
        self._id = ""
        self._told = False
        self.url = PATH
        self.failures = 0  # in a row: since the last sign of life

    def request(self) -> Request:
        came_from = {"Last-Event-ID": self._id} if self._id else {}
        return Request("GET", PATH, self._query, headers={"Accept": EVENT_STREAM, **came_from}, streams=True)

    def hear(self, frame: Frame) -> InboxNews | None:
        """The news of an event; None: it brings no change. Raises MsgspecError for an event that can't be read."""
        message = msgspec.json.decode(frame.data, type=_Told)
        items = {each.id: each for each in message.items}
        if frame.name == "changed":
            items = {id: each for id, each in self._items.items() if id not in message.gone} | items
        changed = [each for id, each in items.items() if self._items.get(id) != each]
        gone = [id for id in self._items if id not in items]
        first, self._items, self._id, self._told = not self._told, items, frame.id, True
        if not (first or changed or gone):
            return None
        return InboxNews(items=sorted(items.values(), key=_place), changed=sorted(changed, key=_place), gone=gone)


def _place(item: InboxItem) -> tuple[datetime, str]:
    return item.deadline or _NEVER, item.id


def follow(query: Mapping[str, Json]) -> Feed[InboxNews]:
    """The inbox as it is, and again after each change. A lost stream is opened again, and items that have not changed
    since are not repeated. Raises HaiFlowError."""
    state = _Known(query)
    while True:
        error = yield from _stream(state)
        if not isinstance(error, Unavailable):
            raise error
        state.failures += 1
        yield Backoff(state.failures, error, streams=True)


def _stream(known: _Known) -> Generator[Effect | Give[InboxNews], Any, HaiFlowError]:
    """The news of one connection; returns why it ended."""
    answer: Answer | Lost = yield known.request()
    known.url = answer.url
    if (refused := not_opened(answer)) is not None:
        return refused
    parser = Parser()
    while True:
        chunk: bytes | Lost = yield Read()
        if isinstance(chunk, Lost):
            return error_of(chunk)
        if not chunk:
            return unreachable(known.url, "the stream ended")
        known.failures = 0
        for frame in parser.feed(chunk):
            if frame.name == EXPIRED:
                return unreachable(known.url, "the credential has expired")  # the next request shows another one
            if frame.name not in ("inbox", "changed"):
                continue
            try:
                news = known.hear(frame)
            except msgspec.MsgspecError as error:
                return unreadable(str(error))
            if news is not None:
                yield Give(news)
