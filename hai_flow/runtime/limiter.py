"""A limit to how much is done at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class Limiter:
    """So many places; when all are taken, they go to those that wait, in their order.

    Like a semaphore, but a free place is taken without awaiting anything.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a place that is free. If it returns False, `wait` for one."""
        if not self._free or self._waiting:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Return with a place."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it had its place already
                self.leave()
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)
            raise

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    def leave(self) -> None:
        """Give a place back."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
