"""Tickets as credentials: for streams of clients that can't send headers, once."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import HTTPConnection

from hai_flow.api.identity.keys import invalid
from hai_flow.api.principals import Principal, now_ms
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.store import tickets
from hai_flow.wire import sse

if TYPE_CHECKING:
    from hai_flow.store.database import Pool

PARAMETER: Final = "ticket"
SECONDS: Final = 30


class _Kept(msgspec.Struct, frozen=True):
    """The principal of a ticket, but for their tenant."""

    who: c.Principal
    credential: str | None
    expires_at: int | None
    threads: tuple[str, ...] | None
    workflows: tuple[str, ...] | None


async def create(pool: Pool, principal: Principal, expires_at: datetime) -> str:
    """A ticket of the principal."""
    kept = _Kept(
        principal.who,
        principal.credential,
        principal.expires_at,
        None if principal.threads is None else tuple(principal.threads),
        None if principal.workflows is None else tuple(principal.workflows),
    )
    return await tickets.create_ticket(pool, principal.tenant, msgspec.json.encode(kept).decode(), expires_at)


def ticket_of(connection: HTTPConnection) -> str | None:
    """The ticket of a request, if it has one. Raises Rejected 400 where there is another credential, too, and 401 where
    it would open anything but a stream."""
    given = connection.query_params.getlist(PARAMETER)
    if not given:
        return None
    if len(given) > 1 or connection.headers.getlist("authorization"):
        raise Rejected(400, "credential_twice", "expected one credential: a ticket, or Authorization.")
    streams = connection.scope["type"] == "websocket" or (
        connection.scope["method"] == "GET" and sse.CONTENT_TYPE in connection.headers.get("accept", "")
    )
    if not streams:
        raise Rejected(401, "auth.invalid", "a ticket opens an event stream or a WebSocket, and nothing else.")
    return given[0]


async def principal_of(pool: Pool, ticket: str) -> Principal:
    """The caller of a ticket, which is used up. Raises Rejected 401."""
    used = await tickets.use_ticket(pool, ticket) if ticket.startswith(tickets.PREFIX) else None
    if used is None:
        raise invalid()
    tenant, text = used
    kept = msgspec.json.decode(text, type=_Kept)
    if kept.expires_at is not None and kept.expires_at <= now_ms():
        raise Rejected(401, "auth.expired", "the sign-in that this ticket was made with has ended; sign in again.")
    return Principal(
        kept.who,
        tenant,
        way="ticket",
        credential=kept.credential,
        expires_at=kept.expires_at,
        threads=None if kept.threads is None else frozenset(kept.threads),
        workflows=None if kept.workflows is None else frozenset(kept.workflows),
    )
