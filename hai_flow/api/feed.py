"""`/v1/feed`: what a page shows, live over one connection: runs, the inbox, workflows, schedules.

A browser has six connections to a server for all of its tabs, so a page can't have a stream for each of its lists.
What is told of a topic is a function of its first page as it is now, and so is its id: a client that comes back is
told of the topics that are otherwise than it knew, and there is no place to lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import APIRouter, Header, Query, Response

from hai_flow import values
from hai_flow.api import runs, schedules, shapes, workflows
from hai_flow.api.deps import Access, CurrentAccess, Pieces
from hai_flow.api.following import farewell
from hai_flow.api.inbox import read_inbox
from hai_flow.api.pages import PageLimit
from hai_flow.api.principals import requires
from hai_flow.api.problems import documented
from hai_flow.api.rights import Right
from hai_flow.runtime.fanout import Piece
from hai_flow.runtime.service import wait_at_most
from hai_flow.wire import sse
from hai_flow.wire.dialect import Frame, dump
from hai_flow.wire.log import LOG

router = APIRouter(prefix="/v1/feed", tags=["runs"])

Topic: TypeAlias = Literal["runs", "inbox", "workflows", "schedules"]
Items: TypeAlias = dict[str, dict[str, Any]]

_POLL_SECONDS: Final = 5.0  # some changes come without a hint
_SETTLE_SECONDS: Final = 0.5  # hints come by the thousand
_BULKY: Final = ("input", "output")  # of runs: a list has no room for them
_RIGHTS: Final[Mapping[Topic, Right]] = {
    "runs": Right.SEE_OWN,
    "inbox": Right.SEE_INBOX,
    "workflows": Right.READ_WORKFLOWS,
    "schedules": Right.SEE_RUNS,
}
_STREAM: Final[dict[str, Any]] = {
    "description": "a stream",
    "content": {sse.CONTENT_TYPE: {"schema": {"type": "string"}}},
}


@router.get(
    "",
    dependencies=[requires(*_RIGHTS.values())],
    response_model=None,
    responses={**documented(), 200: _STREAM},
)
async def follow(
    access: CurrentAccess,
    topic: Annotated[list[Topic] | None, Query(description="default: all that you may see")] = None,
    limit: PageLimit = 50,
    status: Annotated[list[shapes.RunStatus] | None, Query(description="of runs")] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The first `limit` items of each topic as they come and go: an event of the topic's name with all `items`, later
    with those that are `changed` (new or otherwise) and the ids of those that are `gone`. Runs are without input and
    output. Come back with Last-Event-ID: a topic that is as it was then is not repeated."""
    for each in topic or ():
        access.require(_RIGHTS[each])
    topics = [each for each in _RIGHTS if (each in topic if topic else access.principal.may(_RIGHTS[each]))]
    readers = {each: _READERS[each] for each in topics}

    async def begin() -> Pieces:
        return _news(access, readers, _Wanted(limit, status), _known(last_event_id))

    return await access.stream(begin, LOG, farewell(access, LOG))


class _Wanted:
    def __init__(self, limit: int, status: list[shapes.RunStatus] | None) -> None:
        self.limit = limit
        self.status = status


async def _runs(access: Access, wanted: _Wanted) -> Items:
    page = await runs.list_runs(access, limit=wanted.limit, status=wanted.status)
    return {each["id"]: {k: v for k, v in each.items() if k not in _BULKY} for each in page["items"]}


async def _inbox(access: Access, wanted: _Wanted) -> Items:
    return _by("id", await read_inbox(access, limit=wanted.limit))


async def _workflows(access: Access, wanted: _Wanted) -> Items:
    return _by("name", await workflows.list_workflows(access, limit=wanted.limit))


async def _schedules(access: Access, wanted: _Wanted) -> Items:
    return _by("id", await schedules.list_schedules(access, limit=wanted.limit))


def _by(key: str, page: dict[str, Any]) -> Items:
    return {each[key]: each for each in page["items"]}


_READERS: Final[Mapping[Topic, Callable[[Access, _Wanted], Awaitable[Items]]]] = {
    "runs": _runs,
    "inbox": _inbox,
    "workflows": _workflows,
    "schedules": _schedules,
}


async def _news(
    access: Access,
    readers: Mapping[Topic, Callable[[Access, _Wanted], Awaitable[Items]]],
    wanted: _Wanted,
    known: dict[str, str],
) -> AsyncGenerator[list[Piece], None]:
    before: dict[str, Items] = {}
    with access.inbox.watched() as hinted:
        while not access.runtime.fanout.closing.is_set():
            hinted.clear()
            for topic, read in readers.items():
                now = await read(access, wanted)
                print_of = sha256(values.dumps(now)).hexdigest()[:16]
                if known.get(topic) != print_of:
                    known[topic] = print_of
                    yield [_piece(topic, _id(known), before.get(topic), now)]
                before[topic] = now
            await asyncio.sleep(_SETTLE_SECONDS)
            await wait_at_most(hinted, _POLL_SECONDS)


def _piece(topic: str, id: str, before: Items | None, now: Items) -> Piece:
    data: dict[str, Any] = {"items": list(now.values())}
    if before is not None:
        changed = [each for key, each in now.items() if before.get(key) != each]
        data = {"changed": changed, "gone": [key for key in before if key not in now]}
    shown = dump(data)
    return Piece(0, (Frame(topic, shown),), LOG.framing.render(shown, topic, id))


def _id(known: Mapping[str, str]) -> str:
    return ".".join(f"{topic}-{print_of}" for topic, print_of in known.items())


def _known(id: str | None) -> dict[str, str]:
    """What a client was last told of, by the id of that event. One that is none of ours is as good as none."""
    pairs = (part.partition("-") for part in (id or "")[:400].split("."))
    return {topic: print_of for topic, _, print_of in pairs if topic in _RIGHTS}
