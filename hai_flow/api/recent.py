"""An answer that many ask for and that costs something: looked for once at a time, and good for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """What `find` has returned, or raised, at most `seconds` ago. Who asks while it looks gets what it finds."""

    def __init__(self, find: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._find = find
        self._seconds = seconds
        self._looking: asyncio.Task[T] | None = None
        self._found_at = 0.0

    async def get(self) -> T:
        """The answer. Raises what `find` does."""
        known = self._looking
        if known is None or (known.done() and time.monotonic() - self._found_at > self._seconds):
            known = self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(known)  # who asked first may go away, and the others wait

    async def _look(self) -> T:
        try:
            return await self._find()
        finally:
            self._found_at = time.monotonic()
