"""The settings that both clients share: the server's address, the principal, and their patience. No I/O."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from hai_flow_client.effects import Answer, Backoff, Lost, Request
from hai_flow_client.errors import Unavailable
from hai_flow_client.hosts import is_loopback, place_fault

if TYPE_CHECKING:
    import httpx2

RETRY_AFTER_SECONDS_MAX: Final = 60.0
URL: Final = "http://127.0.0.1:8000"  # where HAI_FLOW_URL is not set
_CREDENTIAL: Final = re.compile(r"[\x21-\x7e]+")

Credential: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""What proves who calls, or a function that is asked for it before each request. `AsyncClient` awaits what it gives."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a client tries. All times are in seconds.

    `repeats`: of one request that finds no server, or a busy one. `reconnects`: of a stream, in a row without a sign of
    life. The pauses double from `pause_first` to `pause_max`, or last as long as the server asks; `jitter` (0 to 1)
    shortens them by up to a half, so that many clients that lost one server do not come back at once. `tell` is called
    before each pause, with the failure and its count.
    """

    repeats: int = 4
    reconnects: int = 10
    pause_first: float = 0.25
    pause_max: float = 15.0
    connect: float = 5.0
    answer: float = 60.0
    silence: float = 60.0  # of a stream, which sends keep-alives
    jitter: Callable[[], float] = random.random
    tell: Callable[[Unavailable, int], None] = lambda error, failures: None

    def pause(self, wanted: Backoff) -> float:
        """The seconds to pause now. Raises the failure if it is one too many, or if the server asks for a pause that is
        too long."""
        times = self.reconnects if wanted.streams else self.repeats
        server_pause = wanted.error.retry_after
        if wanted.failures > times or server_pause > RETRY_AFTER_SECONDS_MAX:
            raise wanted.error
        self.tell(wanted.error, wanted.failures)
        doubled = min(self.pause_max, self.pause_first * 2 ** min(wanted.failures - 1, 30))
        return max(server_pause, doubled * (1 - self.jitter() / 2))


@dataclass(frozen=True, slots=True)
class Link:
    """A server, as one client sees it."""

    url: str
    headers: Mapping[str, str] = field(repr=False)  # a credential is among them
    patience: Patience
    ask: Callable[[], str | Awaitable[str]] | None = None  # gives the credential of the next request

    @staticmethod
    def to(
        url: str | None,
        *,
        act_as: str | None,
        key: Credential | None = None,
        headers: Mapping[str, str] | None,
        patience: Patience | None,
    ) -> Link:
        """The link to `url` (None: HAI_FLOW_URL) with `key` (None: HAI_FLOW_KEY, or what is in the file that
        HAI_FLOW_KEY_FILE names). Raises ValueError where it is no address, or no key."""
        url = (url or os.environ.get("HAI_FLOW_URL", "").strip() or URL).rstrip("/")
        key = _key_of_environment() if key is None else key
        if fault := place_fault(url):
            raise ValueError(f"url: {fault}, found {url!r}")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: expected http://host:port or https://host, found {url!r}")
        all_headers = dict(headers or {})
        if act_as is not None:
            all_headers["HAI-Act-As"] = act_as
        ask = None
        if key and not any(name.lower() == "authorization" for name in all_headers):
            if isinstance(key, str):
                all_headers |= _bearer(key)
            else:
                ask = key
        return Link(url, all_headers, patience or Patience(), ask)

    @property
    def trusts_environment(self) -> bool:
        """Whether the environment's proxy settings apply: not for a server on this machine, which a proxy
        can't reach."""
        return not is_loopback(urlsplit(self.url).hostname or "")

    def signed(self, request: Request, key: str | Awaitable[str]) -> Request:
        """The request with this credential. Raises ValueError for a key that is no text (`Client` awaits nothing)."""
        return replace(request, headers={**request.headers, **_bearer(key)})

    def silence(self, request: Request) -> float:
        """For how many seconds the answer to `request` may be silent."""
        silence = self.patience.silence if request.streams else self.patience.answer
        return silence if request.seconds is None else min(silence, request.seconds)

    def prepared(self, request: Request) -> dict[str, Any]:
        """The arguments of httpx2's `build_request`."""
        import httpx2  # here and in the callers: it takes long to load, and some clients never need it

        return {
            "method": request.method,
            "url": self.url + request.path,
            "params": list(request.query) or None,
            "content": request.body,
            "headers": {**self.headers, **request.headers},
            "timeout": httpx2.Timeout(self.silence(request), connect=self.patience.connect),
        }

    def lost(self, error: Exception) -> Lost:
        return Lost(self.url, str(error) or type(error).__name__)


def _key_of_environment() -> str:
    """The key that the environment gives; empty: none. Raises ValueError."""
    key, file = (os.environ.get(name, "").strip() for name in ("HAI_FLOW_KEY", "HAI_FLOW_KEY_FILE"))
    if not file:
        return key
    if key:
        raise ValueError("HAI_FLOW_KEY_FILE: expected either it or HAI_FLOW_KEY, found both.")
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"HAI_FLOW_KEY_FILE: {file!r:.200} can't be read: {reason}.") from None
    if not key:
        raise ValueError(f"HAI_FLOW_KEY_FILE: {file!r:.200} is empty.")
    return key


def _bearer(key: str | Awaitable[str]) -> dict[str, str]:
    if not isinstance(key, str):
        raise ValueError(f"key: expected a function that gives a text, found {type(key).__name__}")
    if not _CREDENTIAL.fullmatch(key):  # it is a secret: it is not repeated
        raise ValueError("key: expected visible ASCII characters without spaces")
    return {"Authorization": f"Bearer {key}"}


def answer(response: httpx2.Response, body: bytes = b"") -> Answer:
    """A response as an answer of effects.py."""
    return Answer(str(response.url), response.status_code, {k.lower(): v for k, v in response.headers.items()}, body)


def faults() -> tuple[type[Exception], ...]:
    """The exceptions that httpx2 raises where there is no answer."""
    import httpx2

    return httpx2.RequestError, httpx2.InvalidURL
