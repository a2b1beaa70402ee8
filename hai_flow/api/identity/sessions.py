"""A browser's session as a credential: a cookie that no script reads, and no page of another site can use.

The cookie goes with whatever the browser is made to send, so it proves nothing alone. What changes anything, and a
WebSocket, has to come from a page of this very origin; and what changes anything has to name the session's own word,
which only such a page could read.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.responses import Response

from hai_flow.api.identity.book import Book
from hai_flow.api.identity.kept import dumped, loaded
from hai_flow.api.identity.keys import invalid
from hai_flow.api.principals import Principal, now_ms
from hai_flow.api.rights import ROLES
from hai_flow.engine.commands import Principal as Who
from hai_flow.errors import Rejected
from hai_flow.runtime import Runtime
from hai_flow.runtime.auditing import Asked
from hai_flow.store import audit, sessions, tickets

if TYPE_CHECKING:
    from hai_flow.store.database import Pool

COOKIE: Final = "__Host-hai_session"
CSRF: Final = "HAI-CSRF"
SECONDS: Final = 1.0  # a session that was ended elsewhere is believed for no longer
LASTS_SECONDS: Final = 8 * 3600
LINK_LASTS: Final = timedelta(minutes=10)
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))


class Sessions:
    """The sessions of the database."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: Book[Principal | None] = Book(self._find, SECONDS)

    async def principal(self, connection: HTTPConnection, text: str) -> Principal:
        """The caller of the session. Raises Rejected 401 and 403."""
        if not _TEXT.fullmatch(text):
            raise invalid()
        principal = await self._known.get(sessions.digest(text).hex())
        if principal is None or (principal.expires_at is not None and principal.expires_at <= now_ms()):
            raise Rejected(401, "auth.expired", "your session has ended; sign in again.")
        _demand_own_page(connection, text)
        return principal

    async def begin(self, principal: Principal, asked: Asked) -> str:
        """Begin a session of the principal, whose proof was good now, and record it. Returns its text."""
        end = now_ms() + LASTS_SECONDS * 1000
        kept = dumped(Principal(principal.who, principal.tenant, credential=principal.credential, expires_at=end))
        expires_at = datetime.fromtimestamp(end / 1000, UTC)
        async with self._runtime.database.api.acquire() as connection, connection.transaction():
            text = await sessions.create_session(connection, principal.tenant, kept, expires_at)
            await audit.write(connection, principal.tenant, [asked.row("session.begun")])
        return text

    async def end(self, text: str, tenant: UUID, asked: Asked) -> None:
        """End the session, and record it."""
        digest = sessions.digest(text)
        async with self._runtime.database.api.acquire() as connection, connection.transaction():
            await sessions.end_session(connection, digest)
            await audit.write(connection, tenant, [asked.row("session.ended")])
        self._known.forget(digest.hex())

    async def _find(self, digest: str) -> Principal | None:
        found = await sessions.find_session(self._runtime.database.api, bytes.fromhex(digest))
        return None if found is None else replace(loaded(*found, way="session"), session=bytes.fromhex(digest))


async def link_token(pool: Pool, tenant: UUID, id: str) -> str:
    """What a link ends in that signs a browser in as `id`, with every built-in role: once, within ten minutes."""
    whole = dumped(Principal(Who(id, tuple(ROLES)), tenant, credential="link"))
    return await tickets.create_ticket(pool, tenant, whole, datetime.now(UTC) + LINK_LASTS, tickets.LINK)


def session_of(connection: HTTPConnection) -> str | None:
    """The text of the request's session, if it has one. Raises Rejected 400 where it has two."""
    found = [
        value
        for header in connection.headers.getlist("cookie")
        for name, _, value in (part.strip().partition("=") for part in header.split(";"))
        if name == COOKIE
    ]
    if len(found) > 1:
        raise Rejected(400, "credential_twice", "expected one session, found several cookies of its name.")
    return found[0] if found else None


def csrf_of(text: str) -> str:
    """The word that requests of the session have to name."""
    return base64.urlsafe_b64encode(hmac.digest(text.encode(), b"hai-flow csrf v1", "sha256")).rstrip(b"=").decode()


def _demand_own_page(connection: HTTPConnection, text: str) -> None:
    """Raises Rejected 403 where a page of another origin could have sent it."""
    headers, socket = connection.headers, connection.scope["type"] == "websocket"
    if not socket and connection.scope["method"] in _SAFE:
        return
    own = _netloc(headers.get("origin", "")) == headers.get("host", "").lower() != ""
    if not own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Rejected(403, "csrf.origin", "a session is used by pages of this server alone.")
    if not socket and not hmac.compare_digest(headers.get(CSRF, "").encode(), csrf_of(text).encode()):
        raise Rejected(403, "csrf.missing", f"expected the session's word in {CSRF}; GET /v1/session tells it.")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def set_cookie(response: Response, text: str) -> None:
    """Give the browser its session."""
    response.set_cookie(COOKIE, text, max_age=LASTS_SECONDS, path="/", secure=True, httponly=True, samesite="lax")


def forget_cookie(response: Response) -> None:
    """Let the browser forget its session."""
    response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")
