"""`/v1/tokens`: a backend makes tokens for its page. `/v1/tickets`: a page makes tickets for streams that can't send
headers."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from fastapi import Request
from pydantic import Field

from hai_flow.api.auth.frontend_tokens import issue, new_claims
from hai_flow.api.auth.tickets import SECONDS, create
from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, Names, PrincipalId
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.primitives import instants
from hai_flow.store.identity import keys

router = Routes(prefix="/v1", tags=["identity"])

SECONDS_MAX: Final = 86_400
CHARS_MAX: Final = 6_000  # of all that a token says

ThreadIds = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS)]], Field(max_length=50)
]


class TokenBody(Body):
    """The principal that calls with the token, with their roles and groups. `threads` and `workflows`: the only ones
    that it is for; null: all that its principal may see. `expires_in` is in seconds."""

    principal: PrincipalId
    roles: Names = Field(default=[])
    groups: Names = Field(default=[])
    threads: ThreadIds | None = None
    workflows: Names | None = None
    expires_in: int = Field(default=900, ge=1, le=SECONDS_MAX)


@router.post("/tokens", Right.ISSUE_TOKENS, status_code=201)
async def create_token(body: TokenBody, access: CurrentAccess, request: Request) -> schemas.Token:
    """Make a short-lived token for a frontend. It can hold no more rights than the API key with which you ask, and ends
    with that key. Every protocol takes it as `Authorization: Bearer`."""
    credential = request.headers.get("authorization", "").partition(" ")[2]
    parts = keys.split_key(credential)
    if parts is None:
        raise Rejected(403, "token.issuer", "tokens are issued to who calls with an API key of this server.")
    now_ms = access.at_home.runtime.committer.now_ms()
    exp = now_ms + body.expires_in * 1000
    if access.principal.expires_at is not None:
        exp = min(exp, access.principal.expires_at)
    limits = body.model_dump(exclude={"principal", "expires_in"})
    token = issue(access.principal, credential, new_claims(parts, now_ms, exp, body.principal, **limits))
    if len(token) > CHARS_MAX:
        raise Rejected(422, "token.too_large", f"a token has at most {CHARS_MAX} characters; name fewer things in it.")
    home = access.at_home
    async with home.act() as connection:
        await home.record(
            connection,
            "token.issued",
            subject=f"key:{parts.id}",
            principal=body.principal,
            given_roles=list(body.roles),
            threads=body.threads,
            workflows=body.workflows,
            expires_at=instants.rfc3339(exp),
        )
    return {"token": token, "principal": body.principal, "expires_at": instants.rfc3339(exp)}


@router.post("/tickets", Right.SEE_OWN, status_code=201)
async def create_ticket(access: CurrentAccess, request: Request) -> schemas.Ticket:
    """Make a ticket: `?ticket=...` opens one event stream or one WebSocket, as you, within half a minute. For clients
    that can't send a header there. The stream ends when your own credential does. 429 beyond 120 within a minute."""
    request.app.state.tickets.take(access.tenant, access.principal.id)
    expires_at = access.at_home.runtime.committer.now() + timedelta(seconds=SECONDS)
    with access.admission.command():
        ticket = await create(access.at_home.pool, access.principal, expires_at)
    return {"ticket": ticket, "expires_at": instants.rfc3339(int(expires_at.timestamp() * 1000))}
