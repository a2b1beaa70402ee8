"""Rows that many requests ask for, kept for a moment each: most requests then ask the database nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from hai_flow.runtime.base.single_flight import SingleFlightCache

T = TypeVar("T")

ENTRIES_MAX: Final = 10_000


class Book(Generic[T]):
    """The results of `find` by name, each kept for at most `seconds`. Requests for a name that is being looked up share
    one look-up."""

    def __init__(self, find: Callable[[str], Awaitable[T]], seconds: float) -> None:
        self._find = find
        self._seconds = seconds
        self._entries: OrderedDict[str, SingleFlightCache[T]] = OrderedDict()

    async def get(self, name: str) -> T:
        """Raises the errors of `find`."""
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = SingleFlightCache(lambda: self._find(name), self._seconds)
            if len(self._entries) > ENTRIES_MAX:
                self._entries.popitem(last=False)
        self._entries.move_to_end(name)
        return await entry.get()

    def forget(self, name: str) -> None:
        """Look the name up anew the next time: its row was changed by this process."""
        self._entries.pop(name, None)
