"""Sign-in of a browser by an identity provider: OpenID Connect's code flow, with PKCE.

A cookie of the browser keeps the facts that the second request needs from the first. So a code is taken only from the
browser that asked for it, and the server keeps nothing."""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlencode

import msgspec
import structlog
from msgspec.structs import replace

from hai_flow import values
from hai_flow.api.auth.issuers.jwks import read_answer
from hai_flow.api.auth.issuers.jwt import Issuer, Tokens
from hai_flow.api.permissions.principals import Principal, Unproven
from hai_flow.errors import Rejected
from hai_flow.values import NotJson

log = structlog.get_logger(__name__)

COOKIE: Final = "__Host-hai_sign_in"
SECONDS: Final = 600
FETCH_SECONDS: Final = 10.0
BYTES_MAX: Final = 64 * 1024
# Errors of a renewal that say nothing of the person: it is ours to mend, or the issuer's.
_NOT_THEIRS: Final = frozenset(("invalid_client", "temporarily_unavailable", "server_error", "slow_down"))
# Claims of an id_token that its issuer's userinfo does not change.
_OF_TOKENS: Final = ("iss", "aud", "exp", "nbf", "iat", "sub", "jti", "sid", "nonce")

Told: TypeAlias = Mapping[str, Any]  # the object that an issuer answers with
Claims: TypeAlias = Mapping[str, Any]


class SignIn(msgspec.Struct, frozen=True):
    """A sign-in that has begun: the address that the browser goes to, and the text of its cookie."""

    location: str
    remembered: str


class SignedIn(NamedTuple):
    """A sign-in that is finished: the person, the page that they wanted, and the grant with which the issuer can be
    asked for them again, if it gave one."""

    principal: Principal
    return_to: str
    grant: Grant | None


class Grant(msgspec.Struct, frozen=True):
    """A refresh token, with which the issuer is asked again for a person that has signed in. `sub` is the issuer's name
    for them; `until` (seconds since 1970) is when its first claims about them expire."""

    issuer: str
    sub: str
    refresh_token: str
    until: int = 0

    def __repr__(self) -> str:
        return f"Grant({self.issuer!r}, {self.sub!r})"


class _Remembered(msgspec.Struct, frozen=True):
    state: str
    nonce: str
    verifier: str
    return_to: str
    issuer: str = ""  # its name; "": of a release that had one


def begin(issuer: Issuer, redirect_uri: str, return_to: str) -> SignIn:
    """Send a browser to the issuer."""
    assert issuer.client is not None, "only such issuers are asked"
    pending_sign_in = _Remembered(
        *(secrets.token_urlsafe(32) for _ in range(3)), return_to=return_to, issuer=issuer.name
    )
    challenge = base64.urlsafe_b64encode(sha256(pending_sign_in.verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": issuer.client.id,
        "redirect_uri": redirect_uri,
        "scope": issuer.client.scope,
        "state": pending_sign_in.state,
        "nonce": pending_sign_in.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    remembered = base64.urlsafe_b64encode(msgspec.json.encode(pending_sign_in)).decode()
    return SignIn(f"{issuer.client.authorize}?{urlencode(query)}", remembered)


async def finish(
    tokens: Tokens, issuer: Issuer, redirect_uri: str, *, code: str, state: str, remembered: str, iss: str | None = None
) -> SignedIn:
    """The person that comes back from the issuer. `iss` names the issuer that sent the browser back, as the request
    claims (RFC 9207). Raises Rejected 401, and 503 where the issuer does not answer.

    A code goes only to the issuer that was asked for it. Another issuer that this browser also uses could have sent it
    here, or would receive it."""
    try:
        pending_sign_in = msgspec.json.decode(base64.urlsafe_b64decode(remembered), type=_Remembered)
    except (ValueError, msgspec.MsgspecError):
        raise _refusal() from None
    if pending_sign_in.issuer not in ("", issuer.name) or iss not in (None, issuer.issuer):
        raise _refusal()
    if not code or not state or not hmac.compare_digest(state.encode(), pending_sign_in.state.encode()):
        raise _refusal()
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": pending_sign_in.verifier,
    }
    status, answer = await _ask_token_endpoint(issuer, form)
    token = answer.get("id_token")
    if status != 200 or not isinstance(token, str):
        log.warning("sign_in_refused", issuer=issuer.name, status=status)
        raise _refusal()
    signer, claims = await tokens.claims(token)
    nonce = claims.get("nonce")
    is_our_nonce = isinstance(nonce, str) and hmac.compare_digest(nonce.encode(), pending_sign_in.nonce.encode())
    if signer is not issuer or not is_our_nonce:
        raise _refusal()
    principal = await tokens.person(issuer, await _merge_claims(issuer, claims, answer))
    refresh_token = answer.get("refresh_token")
    grant = None
    if isinstance(refresh_token, str) and refresh_token:
        grant = Grant(issuer.name, str(claims["sub"]), refresh_token, int(claims["exp"]))
    return SignedIn(principal, pending_sign_in.return_to, grant)


async def refresh_grant(issuer: Issuer, grant: Grant) -> tuple[Grant, Told]:
    """Ask the issuer for a person's claims anew. Returns the grant for the next time, and the issuer's answer. Raises
    Rejected 401 where it refuses, and 503 where it does not answer, or not as an issuer does."""
    status, answer = await _ask_token_endpoint(
        issuer, {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    )
    error = answer.get("error")
    if 400 <= status <= 403 and isinstance(error, str) and error not in _NOT_THEIRS:
        raise _refusal()
    if status != 200:
        log.warning("renewal_unavailable", issuer=issuer.name, status=status, error=error)
        raise _unavailable()
    token = answer.get("refresh_token")
    return (replace(grant, refresh_token=token) if isinstance(token, str) and token else grant), answer


async def update_principal(tokens: Tokens, issuer: Issuer, grant: Grant, told: Told) -> Principal | None:
    """The person that the issuer describes in its answer to a renewal; None: its answer describes no person. Raises
    Rejected 401, also where that is another person. Raises 503 where an answer is missing, or its id_token can't be
    believed: it comes from the issuer itself, so the fault is not the person's."""
    token = told.get("id_token")
    if not isinstance(token, str) and (issuer.client is None or issuer.client.userinfo is None):
        return None
    claims: Claims = {"sub": grant.sub, "exp": grant.until, "iat": tokens.now_ms() // 1000}
    if isinstance(token, str):
        try:
            signer, claims = await tokens.claims(token)
        except Unproven as doubt:
            log.warning("renewal_not_believed", issuer=issuer.name, code=doubt.code)
            raise _unavailable() from None
        if signer is not issuer or claims.get("sub") != grant.sub:
            raise _refusal()
    return await tokens.person(issuer, await _merge_claims(issuer, claims, told))


async def _merge_claims(issuer: Issuer, claims: Claims, told: Told) -> Claims:
    """The claims about the person: those of the id_token. If the issuer's userinfo is to be asked, its claims instead,
    except for those of the token itself (`_OF_TOKENS`)."""
    client, access = issuer.client, told.get("access_token")
    if client is None or client.userinfo is None:
        return claims
    if not isinstance(access, str) or not access.isprintable():
        raise _refusal()
    headers = {"Accept": "application/json", "Authorization": f"Bearer {access}"}
    status, answer = await _send(issuer, "GET", client.userinfo, headers)
    if status in (401, 403):
        raise _refusal()
    if status != 200:
        raise _unavailable()
    if answer.get("sub") != claims.get("sub"):
        raise _refusal()
    return {**answer, **{name: claims[name] for name in _OF_TOKENS if name in claims}}


async def _ask_token_endpoint(issuer: Issuer, form: dict[str, str]) -> tuple[int, Told]:
    """The answer of the issuer's token endpoint: its status and object."""
    client = issuer.client
    assert client is not None, "only such issuers are asked"
    secret = {"client_secret": client.secret} if client.secret else {}
    all_fields = {**form, "client_id": client.id, **secret}
    return await _send(issuer, "POST", client.token, {"Accept": "application/json"}, all_fields)


async def _send(
    issuer: Issuer, method: str, url: str, headers: dict[str, str], form: dict[str, str] | None = None
) -> tuple[int, Told]:
    """The status, and the JSON object of the body; an empty one if the body is something else. Raises Rejected 503."""
    import httpx2  # a server without issuers needs none of it

    try:
        async with (
            asyncio.timeout(FETCH_SECONDS),
            httpx2.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=False) as http,
            http.stream(method, url, data=form, headers=headers) as response,
        ):
            status, body = response.status_code, await read_answer(response, BYTES_MAX)
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, OSError) as error:
        log.warning("sign_in_unavailable", issuer=issuer.name, error=str(error) or type(error).__name__)
        raise _unavailable() from None
    try:
        answer = values.loads(body)
    except NotJson:
        answer = None
    return status, answer if isinstance(answer, dict) else {}


def _unavailable() -> Rejected:
    return Rejected(503, "auth.unavailable", "who signs you in does not answer now; try again.")


def _refusal() -> Unproven:
    return Unproven(401, "auth.invalid", "this sign-in can't be finished; begin it anew.")
