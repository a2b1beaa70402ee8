"""The public keys of one issuer (JWKS): from a file, or fetched, kept and renewed.

A token of a known key never waits for the issuer's server. Only an unknown key is fetched first, and so seldom that
made-up names of keys can't make us ask more often."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from hai_flow import values
from hai_flow.errors import Rejected
from hai_flow.values import NotJson

if TYPE_CHECKING:
    import httpx2
    import jwt

log = structlog.get_logger(__name__)

FETCH_SECONDS: Final = 5.0
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
RENEW_SECONDS: Final = 600.0  # a key that the issuer has withdrawn is believed for no longer, if its server answers
AGAIN_SECONDS: Final = 10.0  # not more often for keys that are not known, or after a failure
STALE_SECONDS: Final = 86400.0  # for so long the keys are good while its server does not answer
RSA_BITS_MIN: Final = 2048

# The algorithms that a key may be for, by its kind and curve.
_FITTING: Final[Mapping[tuple[str, str | None], frozenset[str]]] = {
    ("RSA", None): frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    ("EC", "P-256"): frozenset(("ES256",)),
    ("EC", "P-384"): frozenset(("ES384",)),
    ("EC", "P-521"): frozenset(("ES512",)),
    ("OKP", "Ed25519"): frozenset(("EdDSA",)),
}


class KeySet:
    """The keys at a URL, or in a file."""

    def __init__(self, url: str | None, file: Path | None) -> None:
        self._url = url
        self._file = file
        self._keys: dict[str, _Key] = {}
        self._fetching: asyncio.Task[None] | None = None
        self._fetched_at = -STALE_SECONDS
        self._tried_at = -STALE_SECONDS
        self._modified: float | None = None

    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The issuer's key of this name for the algorithm; without a name, its only one. Raises Rejected 503 where its
        keys can't be had."""
        if self._file is not None:
            self._read(self._file)
            return self._find(kid, algorithm)
        now = time.monotonic()
        is_fresh = now - self._fetched_at < STALE_SECONDS
        public_key = self._find(kid, algorithm) if is_fresh else None
        if public_key is not None:
            if now - self._fetched_at > RENEW_SECONDS and now - self._tried_at > AGAIN_SECONDS:
                self._fetch()
            return public_key
        if self._fetching is None and now - self._tried_at > AGAIN_SECONDS:
            self._fetch()
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        if time.monotonic() - self._fetched_at >= STALE_SECONDS:
            raise Rejected(
                503, "auth.unavailable", "who signed this token can't be asked for their keys now; try again."
            )
        return self._find(kid, algorithm)

    def _find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if kid is None:
            only = list(self._keys.values())
            key = only[0] if len(only) == 1 else None
        else:
            key = self._keys.get(kid)
        return None if key is None or algorithm not in key.algorithms else key.find_for_algorithm(algorithm)

    def _fetch(self) -> None:
        self._tried_at = time.monotonic()
        self._fetching = asyncio.create_task(self._fetch_again())

    async def _fetch_again(self) -> None:
        import httpx2  # a server without issuers needs none of it

        assert self._url is not None
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                body = await _get(self._url)
            self._keys = _parse_keys(body)
            self._fetched_at = time.monotonic()
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, OSError) as error:
            log.warning("keys_unavailable", url=self._url, error=str(error) or type(error).__name__)
        finally:
            self._fetching = None

    def _read(self, file: Path) -> None:
        """Read the file, if it was written since. One that can't be read leaves the keys as they were."""
        try:
            modified = file.stat().st_mtime
            if modified != self._modified:
                self._keys = _parse_keys(file.read_bytes())
                self._modified = modified
        except (OSError, ValueError) as error:
            log.warning("keys_unavailable", file=str(file), error=str(error))
            if self._modified is None:
                raise Rejected(503, "auth.unavailable", "the keys of who signed this token can't be read.") from None


class _Key:
    """One key. `algorithms` are those that it may be used with."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        kind, curve = raw.get("kty"), raw.get("crv")
        fitting = _FITTING.get((str(kind), None if kind == "RSA" else str(curve)), frozenset())
        algorithm = raw.get("alg")
        self.algorithms = fitting if algorithm is None else fitting & {algorithm}
        self._made: dict[str, jwt.PyJWK] = {}

    def find_for_algorithm(self, algorithm: str) -> jwt.PyJWK:
        import jwt  # loads all of `cryptography`, which most servers never need

        if algorithm not in self._made:
            self._made[algorithm] = jwt.PyJWK(dict(self._raw), algorithm)
        return self._made[algorithm]

    @property
    def is_strong(self) -> bool:
        """Whether it can be read, and is long enough."""
        import jwt

        try:
            key = self.find_for_algorithm(next(iter(self.algorithms)))
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            return False
        return self._raw.get("kty") != "RSA" or key.key.key_size >= RSA_BITS_MIN


def _parse_keys(body: bytes) -> dict[str, _Key]:
    """The signing keys of a JWKS, by name. Raises ValueError if it is no JWKS."""
    try:
        document = values.loads(body)
    except NotJson as error:
        raise ValueError(f"expected a JWKS, {error}") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("expected a JWKS: an object with the list `keys`")
    return dict(_signing(listed[:KEYS_MAX]))


def _signing(listed: Iterable[Any]) -> Iterable[tuple[str, _Key]]:
    for number, raw in enumerate(listed):
        if not isinstance(raw, dict) or raw.get("use", "sig") != "sig":
            continue
        operations = raw.get("key_ops")
        if isinstance(operations, list) and "verify" not in operations:
            continue
        public = {name: value for name, value in raw.items() if name not in _PRIVATE}
        key = _Key(public)
        if not key.algorithms or not key.is_strong:
            continue
        kid = raw.get("kid")
        yield kid if isinstance(kid, str) else f"\0{number}", key


_PRIVATE: Final = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))


async def _get(url: str) -> bytes:
    """The body at the URL: at most BYTES_MAX. Redirects are not followed. Raises httpx2's errors and ValueError."""
    import httpx2

    async with (
        httpx2.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=False) as client,
        client.stream("GET", url, headers={"Accept": "application/json"}) as response,
    ):
        if response.status_code != 200:
            raise ValueError(f"expected 200, found {response.status_code}")
        return await read_answer(response, BYTES_MAX)


async def read_answer(response: httpx2.Response, bytes_max: int) -> bytes:
    """The body of an issuer's answer. Raises httpx2's errors, and ValueError for one that is too long."""
    body = b""
    async with contextlib.aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > bytes_max:
                raise ValueError(f"expected at most {bytes_max} bytes")
    return body
