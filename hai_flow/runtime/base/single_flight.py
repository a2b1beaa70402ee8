"""An answer that is costly and often asked for: it is looked up once for all callers, and kept for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
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
