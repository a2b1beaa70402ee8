"""Sign-in of a browser by an identity provider: OpenID Connect's code flow, with PKCE.

What has to be remembered between the two requests is in a cookie of the browser that began: so a code is taken only
from the browser that asked for it, and nothing of it is kept here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import urlencode

import httpx2
import msgspec
import structlog

from hai_flow import values
from hai_flow.api.identity.issuers import Issuer, Tokens
from hai_flow.api.principals import Principal, Unproven
from hai_flow.errors import Rejected
from hai_flow.values import NotJson

log = structlog.get_logger(__name__)

COOKIE: Final = "__Host-hai_sign_in"
SECONDS: Final = 600
FETCH_SECONDS: Final = 10.0
BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class SignIn:
    """A sign-in that has begun: where the browser goes, and what it has to remember."""

    location: str
    remembered: str


class _Remembered(msgspec.Struct, frozen=True):
    state: str
    nonce: str
    verifier: str
    return_to: str
    issuer: str = ""  # its name; "": of a release that had one


def begin(issuer: Issuer, redirect_uri: str, return_to: str) -> SignIn:
    """Send a browser to the issuer."""
    assert issuer.client is not None, "only such issuers are asked"
    kept = _Remembered(*(secrets.token_urlsafe(32) for _ in range(3)), return_to=return_to, issuer=issuer.name)
    challenge = base64.urlsafe_b64encode(sha256(kept.verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": issuer.client.id,
        "redirect_uri": redirect_uri,
        "scope": issuer.client.scope,
        "state": kept.state,
        "nonce": kept.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    remembered = base64.urlsafe_b64encode(msgspec.json.encode(kept)).decode()
    return SignIn(f"{issuer.client.authorize}?{urlencode(query)}", remembered)


async def finish(
    tokens: Tokens, issuer: Issuer, redirect_uri: str, *, code: str, state: str, remembered: str, iss: str | None = None
) -> tuple[Principal, str]:
    """The principal who comes back from the issuer, and where they wanted to go. `iss` is who says to have sent the
    browser back (RFC 9207). Raises Rejected 401, and 503 where the issuer does not answer.

    A code goes to no other issuer than the one that was asked: another one, to which this browser also goes, could have
    had it sent here, or would get it.
    """
    try:
        kept = msgspec.json.decode(base64.urlsafe_b64decode(remembered), type=_Remembered)
    except (ValueError, msgspec.MsgspecError):
        raise _refused() from None
    if kept.issuer not in ("", issuer.name) or iss not in (None, issuer.issuer):
        raise _refused()
    if not code or not state or not hmac.compare_digest(state.encode(), kept.state.encode()):
        raise _refused()
    token = await _exchanged(issuer, redirect_uri, code, kept.verifier)
    signer, claims = await tokens.claims(token)
    nonce = claims.get("nonce")
    asked = isinstance(nonce, str) and hmac.compare_digest(nonce.encode(), kept.nonce.encode())
    if signer is not issuer or not asked:
        raise _refused()
    return await tokens.person(issuer, claims), kept.return_to


async def _exchanged(issuer: Issuer, redirect_uri: str, code: str, verifier: str) -> str:
    """The issuer's id_token for the code."""
    client = issuer.client
    assert client is not None
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "client_id": client.id,
        "code_verifier": verifier,
        **({"client_secret": client.secret} if client.secret else {}),
    }
    body = b""
    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx2.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=False) as http,
            http.stream("POST", client.token, data=form, headers={"Accept": "application/json"}) as response,
        ):
            async with contextlib.aclosing(response.aiter_bytes()) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > BYTES_MAX:
                        raise ValueError(f"expected at most {BYTES_MAX} bytes")
            status = response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, OSError) as error:
        log.warning("sign_in_unavailable", issuer=issuer.name, error=str(error) or type(error).__name__)
        raise Rejected(503, "auth.unavailable", "who signs you in does not answer now; try again.") from None
    try:
        told = values.loads(body)
    except NotJson:
        told = None
    token = told.get("id_token") if isinstance(told, dict) else None
    if status != 200 or not isinstance(token, str):
        log.warning("sign_in_refused", issuer=issuer.name, status=status)
        raise _refused()
    return token


def _refused() -> Unproven:
    return Unproven(401, "auth.invalid", "this sign-in can't be finished; begin it anew.")
