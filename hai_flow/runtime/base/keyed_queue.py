"""Work in lines: the work of one line is done one after the other, and lines go on side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class KeyedQueue(Generic[Item]):
    """At most `most` items at once, in whatever lines. `work` deals with one, and with its own errors; `spawn` makes a
    task of a line."""

    def __init__(
        self, most: int, work: Callable[[Item], Awaitable[None]], spawn: Callable[[Coroutine[Any, Any, None]], Any]
    ) -> None:
        self._most = most
        self._work = work
        self._spawn = spawn
        self._lines: dict[Hashable, deque[tuple[Hashable, Item]]] = {}
        self._known: set[Hashable] = set()

    @property
    def room(self) -> int:
        """How many items may still be added."""
        return self._most - len(self._known)

    def add(self, line: Hashable, id: Hashable, item: Item) -> None:
        """Put an item at the end of its line. One whose `id` is there already is left out: it is being dealt with."""
        if id in self._known:
            return
        self._known.add(id)
        waiting = self._lines.get(line)
        if waiting is None:
            waiting = self._lines[line] = deque()
            self._spawn(self._go_through(line, waiting))
        waiting.append((id, item))

    async def _go_through(self, line: Hashable, waiting: deque[tuple[Hashable, Item]]) -> None:
        while waiting:
            id, item = waiting.popleft()
            try:
                await self._work(item)
            finally:
                self._known.discard(id)
                if not waiting:  # without an await in between: work that comes now begins a line of its own
                    del self._lines[line]
