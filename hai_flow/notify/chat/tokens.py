"""Tokens of platforms that last a while: one is got when it is needed, and again when its time is nearly over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from hai_flow.notify.chat.contract import NotSent, Outbound, Response
from hai_flow.notify.chat.reading import dig, text_at

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


def read_token(platform: str, answer: Response, token: str, lasts: str, reason: str) -> tuple[str, float]:
    """The token in an answer, and the seconds that it lasts: its members of those names. Raises NotSent with the member
    `reason`."""
    text, seconds = text_at(answer.body, token), dig(answer.body, lasts)
    if not text or not isinstance(seconds, int):
        raise NotSent(f"{platform} gives no token: {str(dig(answer.body, reason) or answer.status)[:100]}")
    return text, float(seconds)


class TokenApp:
    """An app that calls its platform, at the address in the setting `ADDRESS`, with a token that lasts a while."""

    ADDRESS: ClassVar[str] = "api"

    def __init__(self, settings: Mapping[str, str], out: Outbound) -> None:
        self._settings = settings
        self._out = out
        self._token = PlatformToken(self._get_token)

    async def _get_token(self) -> tuple[str, float]:
        """A new token, and the seconds that it lasts. Raises NotSent."""
        raise NotImplementedError

    def _url(self, path: str) -> str:
        return self._settings[self.ADDRESS].rstrip("/") + path
