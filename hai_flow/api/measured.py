"""How long requests take until the head of their response, told to those who watch the runtime."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hai_flow.runtime import OnRequest
from hai_flow.runtime.listeners import tell

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NO_ROUTE: Final = "(none)"  # refused before its route was known, or for no route at all


class Measured:
    """Around everything else. A route is told as it is declared: what stands in a path or behind it stays here."""

    def __init__(self, app: ASGIApp, watching: Sequence[OnRequest]) -> None:
        self._app = app
        self._watching = watching

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, method = time.monotonic(), scope["method"]

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", NO_ROUTE)
                tell(self._watching, method, route, message["status"], time.monotonic() - began)
            await send(message)

        await self._app(scope, receive, measured)
