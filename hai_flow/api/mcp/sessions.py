"""Sessions of clients of older revisions, which say once what they can show, and ask for nothing else to be kept.

The id of a session says it, sealed for its caller: no process keeps a session, so any of them goes on with it, and
nobody else can take it over. The server's questions have the ids of the run's questions, so any process takes an
answer; the call that waits hears of it from the run."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.types import Message, Send

from hai_flow import values
from hai_flow.api.mcp.state_keys import StateKeys
from hai_flow.store.messaging import hints

HEADER: Final = "mcp-session-id"
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_KNOWN_MAX: Final = 10_000


class Session(NamedTuple):
    """What a client said in its handshake: the modes of elicitation that it can show."""

    id: str
    forms: bool
    urls: bool


class McpSessions:
    """Begins and resumes sessions with the keys that all processes of a deployment have.

    One fact is known to this process alone: the level of log messages that a session wants, without which it gets
    none. That a person has put off a question is told to the others, whose calls wait to their end without it."""

    def __init__(self, keys: StateKeys) -> None:
        self._keys = keys
        self._levels: dict[str, int] = {}
        self._put_off: dict[str, asyncio.Event] = {}

    def begin(self, principal: str, capabilities: Any) -> str:
        """The id of a new session of the principal, whose client has these capabilities."""
        asks = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
        modes = asks if isinstance(asks, Mapping) else {}
        forms = isinstance(asks, Mapping) and ("form" in modes or "url" not in modes)
        payload = f"{'f' * forms}{'u' * ('url' in modes)}.{secrets.token_hex(8)}"
        return f"{payload}.{_seal(self._keys.opening[0], principal, payload)}"

    async def find(self, principal: str, id: str) -> Session | None:
        """The session of this id, also of one whose key this process may not have yet; None: it is none of this
        principal."""
        payload, _, seal = id.rpartition(".")

        def is_ours() -> bool:
            seals = (_seal(key, principal, payload) for key in self._keys.opening)
            return id.isascii() and any(hmac.compare_digest(seal, each) for each in seals)

        if not is_ours():
            await self._keys.refresh(None, is_known=False)
            if not is_ours():
                return None
        modes = payload.partition(".")[0]
        return Session(id, "f" in modes, "u" in modes)

    def set_level(self, session: Session, level: str) -> None:
        """Log messages of this level and above go to the session's calls."""
        if len(self._levels) >= _KNOWN_MAX:
            self._levels.clear()
        self._levels[session.id] = LEVELS.index(level)

    def wants(self, session: Session, level: str) -> bool:
        return self._levels.get(session.id, len(LEVELS)) <= LEVELS.index(level)

    def watch(self, question: str) -> asyncio.Event:
        """Is set when a person puts off the question in this process."""
        return self._put_off.setdefault(question, asyncio.Event())

    def forget(self, question: str) -> None:
        self._put_off.pop(question, None)

    def hear(self, payload: str) -> None:
        """A hint of this process or of another one, which may have taken what a person said."""
        if (question := hints.parse_put_off(payload)) is not None:
            self.put_off(question)

    def put_off(self, question: str) -> None:
        if (event := self._put_off.get(question)) is not None:
            event.set()


def _seal(key: bytes, principal: str, payload: str) -> str:
    return hmac.digest(key, f"mcp session v1 {principal} {payload}".encode(), "sha256").hex()


class LegacyStream:
    """The answer to one request of a client of an older revision. `begun`: the id of the session that it begins.

    The SDK sends messages whole; a question of the server's is written between two of them, because it has its own id,
    and its answer comes to any process."""

    def __init__(self, send: Send, begun: str | None = None) -> None:
        self._send = send
        self._begun = begun
        self._lock = asyncio.Lock()
        self._started = asyncio.Event()

    async def send(self, message: Message) -> None:
        """Pass on a message of the SDK's."""
        if message["type"] == "http.response.start" and self._begun is not None and message["status"] == 200:
            headers = [*message.get("headers", ()), (HEADER.encode(), self._begun.encode())]
            message = {**message, "headers": headers}
        async with self._lock:
            await self._send(message)
        self._started.set()

    async def ask(self, id: str, method: str, params: Mapping[str, Any]) -> None:
        """Send a request to the client."""
        await self._started.wait()
        body = values.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        frame = b"event: message\r\ndata: " + body + b"\r\n\r\n"
        async with self._lock:
            await self._send({"type": "http.response.body", "body": frame, "more_body": True})
