"""An AUI client over a real socket: it rebuilds the state from snapshots and patches, as a page would."""

from __future__ import annotations

import copy
import json
from contextlib import ExitStack, suppress
from typing import Any
from uuid import UUID

import jsonpatch
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

_open: set[AuiClient] = set()


def close_all() -> None:
    """Close every socket that a test has left open."""
    while _open:
        _open.pop().close()


class AuiClient:
    """One socket. `events` are those that have come; `state` is the run's state as the events have patched it."""

    def __init__(
        self, url: str, stream_type: str = "interactive", headers: dict[str, str] | None = None, **params: Any
    ) -> None:
        address = url.replace("http://", "ws://") + f"/api/aui/ws/{stream_type}"
        self.events: list[dict[str, Any]] = []
        self.state: Any = None
        self._stack = ExitStack()
        opened = connect(address, open_timeout=10, close_timeout=5, additional_headers=headers)
        self.socket: ClientConnection = self._stack.enter_context(opened)
        _open.add(self)
        if params:
            self.send(type="params", data=params)

    def send(self, **frame: Any) -> None:
        self.socket.send(json.dumps(frame))

    def until(self, type: str) -> dict[str, Any]:
        """Read until an event of the type comes, or the end; that event."""
        while True:
            event = self.next()
            if event["type"] == type:
                return event

    def next(self) -> dict[str, Any]:
        event = json.loads(self.socket.recv(timeout=20))
        UUID(event["id"])
        assert event["timestamp"].endswith("Z")
        assert None not in event.values()
        self.events.append(event)
        if event["type"] == "aui_state_snapshot":
            self.state = event["state"]
        elif event["type"] == "aui_state_delta":
            self.state = jsonpatch.apply_patch(copy.deepcopy(self.state), event["delta"])
        return event

    def ended(self) -> int | None:
        """Read to the end; the code that the server closed with."""
        with suppress(ConnectionClosed):
            while True:
                self.next()
        return self.socket.close_code

    def close(self) -> None:
        _open.discard(self)
        self._stack.close()

    def text(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "aui_text_delta")

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]
