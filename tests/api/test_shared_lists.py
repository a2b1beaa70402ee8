"""Open consoles: a list is read once for all that show the same, and not at all while nothing of theirs changes."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from hai_flow.api.permissions.principals import Principal
from hai_flow.api.rest.runs import live_lists
from hai_flow.api.shared_lists import Items, SharedLists, derive_sight_key
from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT


class Counted:
    """A list, and how often it was read."""

    def __init__(self) -> None:
        self.reads = 0
        self.release = asyncio.Event()
        self.release.set()

    async def __call__(self) -> Items:
        self.reads += 1
        await self.release.wait()
        return {"a": {"id": "a", "n": self.reads}}


async def test_streams_that_were_hinted_of_the_same_read_once() -> None:
    lists, find = SharedLists(), Counted()
    with lists.open("one") as first, lists.open("one") as second:
        hinted_at = time.monotonic()
        found = await asyncio.gather(*(each.get(hinted_at, find) for each in (first, second, first)))
        assert find.reads == lists.reads == 1
        assert len({each.print for each in found}) == 1
        await second.get(time.monotonic(), find)
        assert find.reads == 2


async def test_a_read_that_began_before_the_hint_is_not_good_enough() -> None:
    lists, find = SharedLists(), Counted()
    find.release.clear()
    with lists.open("one") as shared:
        before = asyncio.create_task(shared.get(time.monotonic(), find))
        await asyncio.sleep(0)
        behind = asyncio.create_task(shared.get(time.monotonic(), find))
        await asyncio.sleep(0)
        find.release.set()
        assert (await before).items["a"]["n"] == 1 or find.reads == 2
        assert (await behind).items["a"]["n"] == 2


async def test_a_stream_that_goes_away_takes_the_read_from_nobody() -> None:
    lists, find = SharedLists(), Counted()
    find.release.clear()
    with lists.open("one") as shared:
        since = time.monotonic()
        gone = asyncio.create_task(shared.get(since, find))
        await asyncio.sleep(0)
        other = asyncio.create_task(shared.get(since, find))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        find.release.set()
        assert (await other).items["a"]["n"] == 1


def test_a_list_is_forgotten_with_its_last_stream() -> None:
    lists = SharedLists()
    with lists.open("one"):
        with lists.open("one"), lists.open("two"):
            assert len(lists) == 2
        assert len(lists) == 1
    assert len(lists) == 0


WHO = c.Principal("user:ann", ("viewer",), ("sales",))


def test_the_same_person_by_two_sessions_has_one_sight() -> None:
    first = Principal(WHO, LOCAL_TENANT, way="session", session=b"1", expires_at=1, credential="x")
    second = Principal(WHO, LOCAL_TENANT, way="session", session=b"2", session_version=3, expires_at=2)
    assert derive_sight_key(first) == derive_sight_key(second)
    assert hash(derive_sight_key(first)) == hash(derive_sight_key(second))


@pytest.mark.parametrize(
    "other",
    [
        {"who": c.Principal("user:bob", ("viewer",), ("sales",))},
        {"who": c.Principal("user:ann", ("operator",), ("sales",))},
        {"who": c.Principal("user:ann", ("viewer",), ())},
        {"who": c.Principal("user:ann", ("viewer",), ("sales",), on_behalf_of="user:eve")},
        {"tenant": uuid4()},
        {"threads": frozenset(["t"])},
        {"workflows": frozenset(["w"])},
        {"way": "key"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_who_may_see_something_else_has_another_sight(other: dict[str, Any]) -> None:
    mine: dict[str, Any] = {"who": WHO, "tenant": LOCAL_TENANT, "way": "session"}
    assert derive_sight_key(Principal(**mine)) != derive_sight_key(Principal(**mine | other))


def _reader(items: Items) -> live_lists.ListReader:
    async def read() -> Items:
        return items

    lists = SharedLists()
    shared = lists.open("inbox").__enter__()
    return live_lists.ListReader(
        {"inbox": shared},
        {"inbox": live_lists.ListSource("me", read, "until")},
        lambda: int(time.time() * 1000),
        since=time.monotonic(),
    )


@pytest.mark.parametrize(
    ("until", "at_least", "at_most"),
    [(None, 60, 60), ("2000-01-01T00:00:00Z", 60, 60), ("2999-01-01T00:00:00Z", 60, 60)],
)
async def test_a_list_waits_for_what_changes_by_itself_and_not_for_what_is_past(
    until: str | None, at_least: float, at_most: float
) -> None:
    reader = _reader({"a": {"id": "a", "until": until}})
    await reader.read("inbox")
    assert at_least <= reader.seconds(60.0) <= at_most


async def test_a_claim_that_ends_soon_is_read_when_it_ends() -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 10))
    reader = _reader({"a": {"id": "a", "until": soon}})
    await reader.read("inbox")
    assert 8 < reader.seconds(60.0) < 11
