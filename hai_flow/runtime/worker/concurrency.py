"""Limits to how much is done at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping


class Limiter:
    """So many places; when all are taken, they go to those that wait, in their order.

    Like a semaphore, but a free place is taken without awaiting anything."""

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


class ConcurrencyPlaces:
    """The places of a process: `count` in all, and of each queue of `of_queues` no more than it says."""

    def __init__(self, count: int, of_queues: Mapping[str, int]) -> None:
        self._all = Limiter(count)
        self._of = {queue: Limiter(most) for queue, most in of_queues.items()}

    def take(self, queue: str) -> bool:
        """Take a place that is free. If it returns False, `wait` for one."""
        own = self._of.get(queue)
        if own is None:
            return self._all.take()
        if not own.take():
            return False
        if self._all.take():
            return True
        own.leave()
        return False

    async def wait(self, queue: str) -> None:
        """Return with a place. An attempt that waits for a place of its queue takes none from other queues
        meanwhile."""
        own = self._of.get(queue)
        if own is not None and not own.take():
            await own.wait()
        try:
            if not self._all.take():
                await self._all.wait()
        except BaseException:
            if own is not None:
                own.leave()
            raise

    def leave(self, queue: str) -> None:
        """Give a place back."""
        self._all.leave()
        if (own := self._of.get(queue)) is not None:
            own.leave()

    @property
    def waiting(self) -> int:
        return self._all.waiting + sum(own.waiting for own in self._of.values())
