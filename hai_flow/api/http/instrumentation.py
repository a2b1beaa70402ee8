"""Requests as the runtime's listeners see them: their place in a trace, and how long they take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from hai_flow.engine.state.tracing import TracePosition, place_of
from hai_flow.runtime.base.trace_parent import ASKER, TraceParent
from hai_flow.runtime.commit.hooks import tell
from hai_flow.runtime.runtime import Answered, OnRequest

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NO_ROUTE: Final = "(none)"  # refused before its route was known, or for no route at all


class Measured:
    """The outermost application. It reads the place in a trace that the caller names, and reports a request to the
    listeners when the head of its response is sent. It reports the declared route: the values in a path or query stay
    here."""

    def __init__(self, app: ASGIApp, watching: Sequence[OnRequest]) -> None:
        self._app = app
        self._watching = watching

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asker = TraceParent(_place_in(scope["headers"]))
        token = ASKER.set(asker)
        try:
            if self._watching:
                await self._app(scope, receive, self._telling(scope, send, asker))
            else:
                await self._app(scope, receive, send)
        finally:
            ASKER.reset(token)

    def _telling(self, scope: Scope, send: Send, asker: TraceParent) -> Send:
        began, method = time.monotonic(), scope["method"]

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", NO_ROUTE)
                tell(self._watching, Answered(method, route, message["status"], began, time.monotonic(), asker))
            await send(message)

        return telling


def _place_in(headers: Iterable[tuple[bytes, bytes]]) -> TracePosition | None:
    """The place that the one `traceparent` names; several name none."""
    values = [value for name, value in headers if name == b"traceparent"]
    return place_of(values[0].decode("latin-1")) if len(values) == 1 else None
