"""Lists that several open streams show are read once for all of them.

Two streams show the same list if their readers have the same sight: the same person with the same roles, groups and
limits, or, of what does not depend on the person, the same tenant. Such streams share a read if it began after the last
hint that a stream knows of."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeAlias

from hai_flow import values
from hai_flow.api.permissions.principals import Principal

Items: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The items of a list as they are shown, by their ids."""


@dataclass(eq=False)
class ListSnapshot:
    """A list as it was read at one time."""

    items: Items

    @cached_property
    def print(self) -> str:
        """A fingerprint: the same for the same items in the same order, and almost certainly another one for others."""
        return sha256(values.dumps(list(self.items.values()))).hexdigest()[:16]


class SharedList:
    """A list that all streams of one sight read together."""

    def __init__(self, all_lists: SharedLists) -> None:
        self.streams = 0
        self._all = all_lists
        self._began = 0.0
        self._reading: asyncio.Task[ListSnapshot] | None = None

    async def get(self, since: float, find: Callable[[], Awaitable[Items]]) -> ListSnapshot:
        """The list as `find` reads it, or as another stream has read it since then (`time.monotonic`). Raises the
        errors of `find`."""
        reading = self._reading
        if reading is None or self._began < since:
            self._began = time.monotonic()
            self._all.reads += 1
            reading = self._reading = asyncio.create_task(_read(find), name="read a list")
        return await asyncio.shield(reading)  # the stream that began it may end while others wait


async def _read(find: Callable[[], Awaitable[Items]]) -> ListSnapshot:
    return ListSnapshot(await find())


class SharedLists:
    """The lists that open streams of this process show."""

    def __init__(self) -> None:
        self._lists: dict[Hashable, SharedList] = {}
        self.reads = 0
        """How often a list was read, since the start."""

    def __len__(self) -> int:
        return len(self._lists)

    @contextlib.contextmanager
    def open(self, key: Hashable) -> Iterator[SharedList]:
        """The list of this key, for a stream that shows it. It is forgotten with its last stream."""
        shared = self._lists.setdefault(key, SharedList(self))
        shared.streams += 1
        try:
            yield shared
        finally:
            shared.streams -= 1
            if not shared.streams:
                del self._lists[key]


def derive_sight_key(principal: Principal) -> Hashable:
    """What of a principal decides which rows of lists they are shown, and with which values: all but the proof of who
    they are."""
    return replace(principal, credential=None, expires_at=None, key=None, session=None, session_version=0, keep=None)
