"""The common part of the apps: an act is handed on or refused, and its outcome written to the person; and the tokens
of platforms that last a while: one is got when it is needed, and again when its time is nearly over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from hai_flow.notify.chat.contract import Desk, NotSent, Outbound, Press, PressOutcome, Response
from hai_flow.notify.chat.reading import dig, text_at

FOREIGN: Final = "Your account is not of the company that this app belongs to, so you can't decide here."
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


class PlatformApp:
    """An app that calls its platform at the address in the setting `ADDRESS`. A `fault` says why a call may not act."""

    ADDRESS: ClassVar[str] = "api"

    def __init__(self, settings: Mapping[str, str], out: Outbound) -> None:
        self._settings = settings
        self._out = out

    def _url(self, path: str) -> str:
        return self._settings[self.ADDRESS].rstrip("/") + path

    async def _press(self, desk: Desk, press: Press, fault: str) -> PressOutcome:
        return await desk.refuse(press.account, fault) if fault else await desk.press(press)

    async def _connect(self, desk: Desk, account: str, text: str, fault: str, place: str | None = None) -> None:
        """Connect the account that has sent the text, and write the outcome to the `place`, by default the account."""
        if fault:
            await desk.refuse(account, fault)
        else:
            await self._tell(account if place is None else place, (await desk.connect(account, text)).text)

    async def _tell(self, place: str, text: str) -> None:
        """Write to one person. What was decided is decided, whether or not they can be told."""
        with contextlib.suppress(NotSent):
            await self._write(place, text)

    async def _write(self, place: str, text: str) -> None:
        raise NotImplementedError


class TokenApp(PlatformApp):
    """An app that calls its platform with a token that lasts a while."""

    def __init__(self, settings: Mapping[str, str], out: Outbound) -> None:
        super().__init__(settings, out)
        self._token = PlatformToken(self._get_token)

    async def _get_token(self) -> tuple[str, float]:
        """A new token, and the seconds that it lasts. Raises NotSent."""
        raise NotImplementedError
