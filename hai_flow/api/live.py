"""Lists that are sent again as they change: `/v1/feed` and the inbox.

An event, and its id, are made of the list as it is now. So a client that comes back with an id gets only the changes
since, and needs no place in a history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from hashlib import sha256
from typing import Any, Final, TypeAlias

from hai_flow import values
from hai_flow.api.access import Access
from hai_flow.runtime.base.service import wait_at_most
from hai_flow.runtime.streams.stream_items import Piece
from hai_flow.wire import sse
from hai_flow.wire.dialect import Frame
from hai_flow.wire.log import LOG
from hai_flow.wire.sent_json import dump

Items: TypeAlias = dict[str, dict[str, Any]]
"""The items of a list as they are shown, by their ids."""

STREAM: Final[dict[str, Any]] = {
    "description": "a stream",
    "content": {sse.CONTENT_TYPE: {"schema": {"type": "string"}}},
}
"""How such a route is described in OpenAPI."""

_POLL_SECONDS: Final = 5.0  # some changes come without a hint: claims and delegations end by themselves
_SETTLE_SECONDS: Final = 0.5  # hints come by the thousand
_STREAMS_AT_ONCE: Final = 50  # beyond, each stream reads more seldom


async def repeated(access: Access, news: Callable[[], AsyncIterator[Piece]]) -> AsyncGenerator[list[Piece], None]:
    """The pieces of `news`, now and after each change that may concern it, until the server closes."""
    hinted = asyncio.Event()
    with contextlib.ExitStack() as watching:
        for cell in access.everywhere:
            if cell.cell not in access.cells.away_numbers:  # one that comes back is found by the poll
                watching.enter_context(cell.inbox.watched(access.tenant, hinted))
        while not access.cells.home.fanout.closing.is_set():
            hinted.clear()
            async for each in news():
                yield [each]
            await asyncio.sleep(settle_seconds(access.cells.home.inbox.watchers))
            await wait_at_most(hinted, _POLL_SECONDS)


def settle_seconds(streams: int) -> float:
    """How long a list that was just read is not read again, for so many streams: the more there are, the longer."""
    return min(_SETTLE_SECONDS * max(1.0, streams / _STREAMS_AT_ONCE), _POLL_SECONDS)


def print_of(items: Items) -> str:
    """A fingerprint: the same for the same items in the same order, and almost certainly another one for others."""
    return sha256(values.dumps(list(items.values()))).hexdigest()[:16]


def changes(before: Items, now: Items) -> tuple[list[dict[str, Any]], list[str]]:
    """The items that are new or changed, and the ids of those that are gone."""
    return [each for id, each in now.items() if before.get(id) != each], [id for id in before if id not in now]


def piece(name: str, id: str, data: dict[str, Any]) -> Piece:
    """An event of a live list."""
    shown = dump(data)
    return Piece(0, (Frame(name, shown),), LOG.framing.render(shown, name, id))
