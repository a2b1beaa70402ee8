"""The keys of the states and sessions of `/mcp`: a ring that every process reads from the database, and that can be
rotated (docs/protocols/mcp.md#keys-of-states)."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from hai_flow.store.identity.state_keys import StateKey
from hai_flow.store.postgres.error_classes import FAILURES

REFRESH_SECONDS: Final = 10.0
"""How old the ring of a process may become."""
_UNKNOWN_SECONDS: Final = 0.1  # and where a state names a key that is not in it


class StateKeys:
    """A codec of the SDK over the ring. A state is `ID.token`; one under the first key has no id, as releases without
    a ring read and write it. `clock_ahead`: by how many seconds the machine's clock, by which the SDK judges states, is
    ahead of the database's, by which they end."""

    def __init__(
        self, read: Callable[[], Awaitable[tuple[StateKey, ...]]], clock_ahead: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._read = read
        self._clock_ahead = clock_ahead
        self._read_at = 0.0
        self._keys: tuple[StateKey, ...] = ()
        self._codecs: dict[str, AESGCMRequestStateCodec] = {}

    @property
    def opening(self) -> list[bytes]:
        """The keys that open, the sealing one first."""
        return [each.key for each in self._keys if self._opens(each)]

    async def refresh(self, message: Any, *, is_known: bool = True) -> str | None:
        """Read the ring anew if it is old, or does not have the key of the state in the message, or that of a session
        (not `is_known`). Returns why that state is refused, if its key is retired."""
        params = message.get("params") if isinstance(message, Mapping) else None
        state = params.get("requestState") if isinstance(params, Mapping) else None
        age = time.monotonic() - self._read_at
        is_known = is_known and (not isinstance(state, str) or self._find(state) is not None)
        if not self._keys or age > (REFRESH_SECONDS if is_known else _UNKNOWN_SECONDS):
            await self._reread()
        key = self._find(state) if isinstance(state, str) else None
        if key is None or self._opens(key):
            return None
        return (
            f"requestState: expected one of a key in use, found one of the key {key.id}, which is retired since "
            f"{key.until_text}. The question is still open: repeat the call without it, or use `answer`."
        )

    async def _reread(self) -> None:
        try:
            keys = await self._read()
        except FAILURES:
            if not self._keys:
                raise
            return  # the call itself says that the database is away
        self._keys = keys
        self._codecs = {each.id: AESGCMRequestStateCodec([each.key]) for each in keys}
        self._read_at = time.monotonic()

    def seal(self, payload: bytes) -> str:
        key = self._keys[0]
        token = self._codecs[key.id].seal(_move_times(payload, -self._clock_ahead()))
        return token if key.is_first else f"{key.id}.{token}"

    def unseal(self, token: str) -> bytes:
        key = self._find(token)
        if key is None or not self._opens(key):
            raise InvalidRequestState("unknown or retired key")
        payload = self._codecs[key.id].unseal(token if key.is_first else token.partition(".")[2])
        return _move_times(payload, self._clock_ahead())

    def _opens(self, key: StateKey) -> bool:
        return key.until is None or time.time() - self._clock_ahead() < key.until

    def _find(self, state: str) -> StateKey | None:
        id = state.partition(".")[0]
        return next((key for key in self._keys if (key.is_first if id == "v1" else key.id == id)), None)


def _move_times(payload: bytes, seconds: float) -> bytes:
    """The SDK's claims with their times so much later."""
    claims = json.loads(payload)
    return json.dumps({**claims, "iat": claims["iat"] + seconds, "exp": claims["exp"] + seconds}).encode()
