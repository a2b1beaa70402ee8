"""Lists that are sent again as they change: `/v1/feed` and the inbox.

An event, and its id, are made of the list as it is now. So a client that comes back with an id gets only the changes
since, and needs no place in a history.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from hai_flow.api.requests.access import Access
from hai_flow.api.shared_lists import Items, ListSnapshot, SharedList
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.wire import sse
from hai_flow.wire.dialects.dialect import Frame
from hai_flow.wire.dialects.log import LOG
from hai_flow.wire.sent_json import dump

STREAM: Final[dict[str, Any]] = {
    "description": "a stream",
    "content": {sse.CONTENT_TYPE: {"schema": {"type": "string"}}},
}
"""How such a route is described in OpenAPI."""

_POLL_SECONDS: Final = 5.0  # while hints may be missed, and while something is lent, of whose end none comes
_HEARD_SECONDS: Final = 60.0  # while they are heard: delegations begin by themselves
_LENT: Final = "on_behalf_of"  # the member of an item that names those who have lent it
_CLOCKS_SECONDS: Final = 0.2  # by which the database's clock may be behind
_SETTLE_SECONDS: Final = 0.5  # hints come by the thousand
_STREAMS_AT_ONCE: Final = 50  # beyond, each stream reads more seldom


class ListSource(msgspec.Struct, frozen=True):
    """A list that a stream shows. `sight`: all that decides which items it has. `changes_at`: the member of an item
    that says when it changes by itself."""

    sight: Hashable
    read: Callable[[], Awaitable[Items]]
    changes_at: str | None = None


@dataclass(slots=True)
class ListReader:
    """The lists of one stream as they are now, each read once for all streams that show the same."""

    shared: Mapping[str, SharedList]
    sources: Mapping[str, ListSource]
    now_ms: Callable[[], int]  # the database's clock
    since: float = 0.0
    changes: dict[str, float | None] = field(default_factory=dict)  # when each changes by itself next, since 1970
    lent: set[str] = field(default_factory=set)  # those with items that somebody has lent

    async def read(self, topic: str) -> ListSnapshot:
        """The list of the topic, no older than what the stream was hinted of."""
        source = self.sources[topic]
        listed = await self.shared[topic].get(self.since, source.read)
        self.changes[topic] = _next_change(listed.items, source.changes_at, self.now_ms() / 1000)
        self.lent.discard(topic)
        if any(each.get(_LENT) for each in listed.items.values()):
            self.lent.add(topic)
        return listed

    def seconds(self, at_most: float) -> float:
        """How long nothing changes by itself, and at most so long."""
        next_at = min((each for each in self.changes.values() if each is not None), default=None)
        return at_most if next_at is None else max(0.0, min(at_most, next_at - self.now_ms() / 1000))


def _next_change(items: Items, member: str | None, now: float) -> float | None:
    if member is None:
        return None
    texts = (each.get(member) for each in items.values())
    times = (datetime.fromisoformat(text).timestamp() + _CLOCKS_SECONDS for text in texts if text)
    return min((at for at in times if at > now), default=None)


async def watch_news(
    access: Access, sources: Mapping[str, ListSource], news: Callable[[ListReader], AsyncIterator[StreamItem]]
) -> AsyncGenerator[list[StreamItem], None]:
    """The pieces that `news` makes of the lists, now and after each change that may concern them, until the server
    closes."""
    hinted = asyncio.Event()
    with contextlib.ExitStack() as watching:
        for cell in access.within_reach:  # one that comes back is found by the poll
            watching.enter_context(cell.inbox.watch(access.tenant, hinted))
        shared = {
            topic: watching.enter_context(access.lists.open((topic, access.tenant, access.cell, source.sight)))
            for topic, source in sources.items()
        }
        reader = ListReader(shared, sources, access.cells.home.committer.now_ms, since=time.monotonic())
        closing = access.cells.home.fanout.closing
        while not closing.is_set():
            hinted.clear()
            async for each in news(reader):
                yield [each]
            await asyncio.sleep(settle_seconds(access.cells.home.inbox.watchers))
            at_most = _POLL_SECONDS if reader.lent or _is_deaf(access) else _HEARD_SECONDS
            seconds, since = reader.seconds(at_most), time.monotonic()
            if await _is_hinted(hinted, closing, seconds):
                since = max(cell.inbox.last_hint(access.tenant) for cell in access.within_reach)
            elif seconds < at_most:
                since += seconds  # what another stream read before that may be as it was
            reader.since = max(reader.since, since)


def _is_deaf(access: Access) -> bool:
    """Whether changes in a cell of the tenant may come without a hint."""
    here = access.within_reach
    return len(here) < len(access.everywhere) or any(each.runtime.carrier.fault is not None for each in here)


async def _is_hinted(hinted: asyncio.Event, closing: asyncio.Event, seconds: float) -> bool:
    """Wait for a hint, or for the server to close, but no longer than so many seconds. False: there was none."""
    waits = [asyncio.ensure_future(hinted.wait()), asyncio.ensure_future(closing.wait())]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return hinted.is_set()


def settle_seconds(streams: int) -> float:
    """How long a list that was just read is not read again, for so many streams: the more there are, the longer."""
    return min(_SETTLE_SECONDS * max(1.0, streams / _STREAMS_AT_ONCE), _POLL_SECONDS)


def changes(before: Items, now: Items) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The items that are new or changed, and the ids of those that are gone."""
    return [each for id, each in now.items() if before.get(id) != each], [id for id in before if id not in now]


def piece(name: str, id: str, data: dict[str, Any]) -> StreamItem:
    text = dump(data)
    return StreamItem(0, (Frame(name, text),), LOG.framing.render(text, name, id))
