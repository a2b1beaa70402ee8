"""Tokens of platforms that last a while: one is got when it is needed, and again when its time is nearly over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

_EARLY: Final = 60.0  # seconds before its end


class PlatformToken:
    """A token and its end. `get` returns a new one, with the seconds that it lasts."""

    def __init__(self, get: Callable[[], Awaitable[tuple[str, float]]]) -> None:
        self._get = get
        self._lock = asyncio.Lock()
        self._text = ""
        self._ends_at = 0.0

    async def text(self) -> str:
        """A token that is good. Raises NotSent."""
        async with self._lock:
            if time.monotonic() >= self._ends_at - _EARLY:
                self._text, lasts = await self._get()
                self._ends_at = time.monotonic() + max(lasts, _EARLY + 1)
            return self._text

    def forget(self) -> None:
        """It was refused: get another one the next time."""
        self._ends_at = 0.0
