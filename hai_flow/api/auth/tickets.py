"""Tickets as credentials: for streams of clients that can't send headers, once."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from starlette.requests import HTTPConnection

from hai_flow.api.auth.directory.principal_json import dump_principal, load_principal
from hai_flow.api.permissions.principals import Principal, reject_credential
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import credential_checks, tickets
from hai_flow.store.identity.credential_checks import Proof
from hai_flow.store.postgres.connections import Pool
from hai_flow.wire import sse

PARAMETER: Final = "ticket"
SECONDS: Final = 30


async def create(pool: Pool, principal: Principal, expires_at: datetime) -> str:
    return await tickets.create_ticket(pool, principal.tenant, dump_principal(principal), expires_at)


def read_ticket(connection: HTTPConnection) -> str | None:
    """The ticket of a request, if it has one. Raises Rejected 400 where there is another credential, too, and 401 where
    it would open anything but a stream."""
    parameters = connection.query_params.getlist(PARAMETER)
    if not parameters:
        return None
    if len(parameters) > 1 or connection.headers.getlist("authorization"):
        raise Rejected(400, "credential_twice", "expected one credential: a ticket, or Authorization.")
    streams = connection.scope["type"] == "websocket" or (
        connection.scope["method"] == "GET" and sse.CONTENT_TYPE in connection.headers.get("accept", "")
    )
    if not streams:
        raise Rejected(401, "auth.invalid", "a ticket opens an event stream or a WebSocket, and nothing else.")
    return parameters[0]


async def principal_of(runtime: Runtime, ticket: str) -> Principal:
    """The caller of a ticket, which is used up. Raises Rejected 401, also where the credential that the ticket was made
    with has ended."""
    pool, now = runtime.database.api, runtime.committer.now()
    used = await tickets.take_ticket(pool, ticket) if ticket.startswith(tickets.TICKET) else None
    if used is None:
        raise reject_credential()
    principal = load_principal(*used, way="ticket")
    if principal.seconds_left(instants.milliseconds(now)) == 0.0:
        raise Rejected(401, "auth.expired", "the sign-in that this ticket was made with has ended; sign in again.")
    proof = Proof(principal.tenant, principal.id, principal.key, principal.session, principal.session_version)
    if await credential_checks.find_ended(pool, [(proof, now)]):
        raise reject_credential()
    return principal
