"""An answer that is costly and often asked for: looked up once for many callers, and perhaps kept for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class SingleFlightCache(Generic[T]):
    """The result or error of `find`, at most `seconds` old. Callers that come while `find` runs share its result."""

    def __init__(self, find: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._find = find
        self._seconds = seconds
        self._looking: asyncio.Task[T] | None = None
        self._found_at = 0.0

    async def get(self) -> T:
        """The answer. Raises the errors of `find`."""
        look = self._looking
        if look is None or (look.done() and time.monotonic() - self._found_at > self._seconds):
            look = self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(look)  # the first caller may go away while others wait

    async def _look(self) -> T:
        try:
            return await self._find()
        finally:
            self._found_at = time.monotonic()


class Together(Generic[K, T]):
    """The result or error of `find`, for each key, by a call that begins after it was asked for: callers that come
    while one runs share the next one. So nothing is kept, and many that ask at once cost two calls, not one each."""

    def __init__(self, find: Callable[[K], Awaitable[T]]) -> None:
        self._find = find
        self._running: dict[K, asyncio.Future[None]] = {}
        self._next: dict[K, asyncio.Task[T]] = {}

    async def get(self, key: K) -> T:
        """The answer. Raises the errors of `find`."""
        upcoming = self._next.get(key)
        if upcoming is None:
            running = self._running.get(key)
            if running is None:
                return await self._begin(key)
            upcoming = self._next[key] = asyncio.create_task(self._follow(key, running))
        return await asyncio.shield(upcoming)  # the first caller may go away while others wait

    async def _follow(self, key: K, running: asyncio.Future[None]) -> T:
        await running
        del self._next[key]
        return await self._begin(key)

    async def _begin(self, key: K) -> T:
        over = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            return await self._find(key)
        finally:
            del self._running[key]
            over.set_result(None)
