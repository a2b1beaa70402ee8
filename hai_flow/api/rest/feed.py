"""`/v1/feed`: the lists of a page, live over one connection: runs, the inbox, workflows, schedules.

A browser has six connections to a server for all of its tabs, so a page can't have a stream for each of its lists."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from fastapi import Header, Query, Response

from hai_flow.api.http.stream import Frames
from hai_flow.api.permissions.rights import Right
from hai_flow.api.protocols.stream_pieces import farewell
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.pagination import PageLimit
from hai_flow.api.rest import schedules, workflows
from hai_flow.api.rest.people.inbox import read_inbox
from hai_flow.api.rest.runs import live_lists, runs
from hai_flow.api.routes import Routes
from hai_flow.api.shared_lists import derive_sight_key
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.wire.dialects.log import LOG

router = Routes(prefix="/v1/feed", tags=["runs"])

Topic: TypeAlias = Literal["runs", "inbox", "workflows", "schedules"]

_BULKY: Final = ("input", "output")  # of runs: a list has no room for them
_RIGHTS: Final[Mapping[Topic, Right]] = {
    "runs": Right.SEE_OWN,
    "inbox": Right.SEE_INBOX,
    "workflows": Right.READ_WORKFLOWS,
    "schedules": Right.SEE_RUNS,
}


@router.get("", *_RIGHTS.values(), answer=live_lists.STREAM)
async def follow(
    access: CurrentAccess,
    topic: Annotated[list[Topic] | None, Query(description="default: all that you may see")] = None,
    limit: PageLimit = 50,
    status: Annotated[list[schemas.RunStatus] | None, Query(description="of runs")] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The first `limit` items of each topic as they come and go. The first event of a topic has all `items`; later ones
    have those that are new or have `changed`, and the ids of those that are `gone`. Runs are without input and output.
    Come back with Last-Event-ID: a topic that has not changed since is not repeated."""
    for each in topic or ():
        access.require(_RIGHTS[each])
    topics = [each for each in _RIGHTS if (each in topic if topic else access.principal.may(_RIGHTS[each]))]
    selection = _Wanted(limit, None if status is None else tuple(status))
    sources: dict[str, live_lists.ListSource] = {each: _source(each, access, selection) for each in topics}

    async def begin() -> Frames:
        return _news(access, sources, _parse_known_states(last_event_id))

    return await access.stream(begin, LOG, farewell(access, LOG))


class _Wanted(NamedTuple):
    limit: int
    status: tuple[schemas.RunStatus, ...] | None


async def _runs(access: Access, wanted: _Wanted) -> live_lists.Items:
    status = None if wanted.status is None else list(wanted.status)
    page = await runs.list_runs(access, limit=wanted.limit, status=status)
    return {each["id"]: {k: v for k, v in each.items() if k not in _BULKY} for each in page["items"]}


async def _inbox(access: Access, wanted: _Wanted) -> live_lists.Items:
    return _map_index_by("id", (await read_inbox(access, limit=wanted.limit))["items"])


async def _workflows(access: Access, wanted: _Wanted) -> live_lists.Items:
    return _map_index_by("name", (await workflows.list_workflows(access, limit=wanted.limit))["items"])


async def _schedules(access: Access, wanted: _Wanted) -> live_lists.Items:
    return _map_index_by("id", (await schedules.list_schedules(access, limit=wanted.limit))["items"])


def _map_index_by(key: str, items: Sequence[Mapping[str, Any]]) -> live_lists.Items:
    return {each[key]: each for each in items}


_READERS: Final[Mapping[Topic, Callable[[Access, _Wanted], Awaitable[live_lists.Items]]]] = {
    "runs": _runs,
    "inbox": _inbox,
    "workflows": _workflows,
    "schedules": _schedules,
}


_CHANGES_AT: Final[Mapping[Topic, str]] = {"inbox": "claimed_until", "schedules": "next"}
_OF_THE_TENANT: Final = ("workflows", "schedules")  # the same for all who may see them


def _source(topic: Topic, access: Access, wanted: _Wanted) -> live_lists.ListSource:
    sight = (wanted.limit,) if topic in _OF_THE_TENANT else (derive_sight_key(access.principal), wanted)
    return live_lists.ListSource(sight, partial(_READERS[topic], access, wanted), _CHANGES_AT.get(topic))


def _news(access: Access, sources: Mapping[str, live_lists.ListSource], known: dict[str, str]) -> Frames:
    before: dict[str, live_lists.Items] = {}

    async def news(reader: live_lists.ListReader) -> AsyncGenerator[StreamItem, None]:
        for topic in sources:
            listed = await reader.read(topic)
            now = listed.items
            if known.get(topic) != listed.print:
                known[topic] = listed.print
                if topic in before:
                    changed, gone = live_lists.changes(before[topic], now)
                    yield live_lists.piece(topic, _id(known), {"changed": changed, "gone": gone})
                else:
                    yield live_lists.piece(topic, _id(known), {"items": list(now.values())})
            before[topic] = now

    return live_lists.watch_news(access, sources, news)


def _id(known: Mapping[str, str]) -> str:
    return ".".join(f"{topic}-{print_of}" for topic, print_of in known.items())


def _parse_known_states(id: str | None) -> dict[str, str]:
    """The state of each topic that a client has, read from the id of its last event. An id of another form counts as
    none."""
    pairs = (part.partition("-") for part in (id or "")[:400].split("."))
    return {topic: print_of for topic, _, print_of in pairs if topic in _RIGHTS}
