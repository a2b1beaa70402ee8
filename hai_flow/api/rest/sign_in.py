"""Sign-in of browsers: by an identity provider (`/sign-in`), or by a link that is good once. Both begin a session
(`/v1/session`)."""

from __future__ import annotations

import contextlib
import html
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from fastapi import Header, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.routing import APIRoute

from hai_flow.api.auth.authenticate import CREDENTIAL_CHARS_MAX
from hai_flow.api.auth.credentials import KnownIdentity
from hai_flow.api.auth.directory.principal_json import load_principal
from hai_flow.api.auth.issuers import oidc
from hai_flow.api.auth.issuers.jwt import Issuer
from hai_flow.api.auth.sessions import demand_own_origin, derive_csrf, forget_cookie, read_session, set_cookie
from hai_flow.api.http.bodies import read_body
from hai_flow.api.http.visitor_pages import language_of, render_page, say, tell_refusal
from hai_flow.api.permissions.principals import Principal, Unproven, open_to_everybody, requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CurrentAccess, actor_of
from hai_flow.api.requests.views import time_of
from hai_flow.api.rest import console
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.store.identity import tickets


class _PageRoute(APIRoute):
    """A route that a person visits: a refusal is a page for their browser, which explains the next step."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_visit(request: Request) -> Response:
            try:
                return await handle(request)
            except Rejected as rejected:
                visits = self.path.startswith("/sign-in") and "text/html" in request.headers.get("accept", "")
                if not visits or rejected.status == 429:  # whose Retry-After is for programs, too
                    raise
                return _render_refusal_page(language_of(request), rejected)

        return handle_visit


router = Routes(tags=["identity"], route_class=_PageRoute)

LINK_PATH: Final = "/sign-in/link/"
_LOCAL: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,500}", re.ASCII)
_HEADERS: Final = {"Referrer-Policy": "same-origin"}  # without one the browser would post with the Origin `null`
_NEXT: Final = {
    "identity_none": "Continue without it.",
    "sign_in_none": "Ask who runs this server for a link, or use an API key at "
    "<a href='/console/'>the console</a>. "
    "<code>hai-flow sign-in WHO</code> prints a link. Programs use an API key (<code>hai-flow keys create</code>).",
}
_LINK_NEXT: Final = "<code>hai-flow sign-in WHO</code> prints a link, which works once, within ten minutes."
_AGAIN: Final = '<a href="/sign-in">Sign in again</a>.'


def _page(language: str, title: str, body: str, status: int = 200, forms: str = "'self'") -> Response:
    body += f'<p><a href="/">{say(language, "Back to the start")}</a></p>'
    return render_page(say(language, title), body, status, language=language, forms=forms, headers=_HEADERS)


def _render_refusal_page(language: str, rejected: Rejected) -> Response:
    """The page that shows a refusal to a visitor; programs get a problem instead."""
    reason = html.escape(tell_refusal(language, rejected))
    following = say(language, _NEXT.get(rejected.code, _LINK_NEXT if "link" in rejected.detail else _AGAIN))
    return _page(language, "Not signed in", f"<p>{reason}</p><p>{following}</p>", rejected.status)


def _find_identity(request: Request) -> KnownIdentity:
    identity = request.app.state.identity
    if not isinstance(identity, KnownIdentity):
        raise Rejected(404, "identity_none", "nobody is asked here who they are, so there is no sign-in.")
    return identity


def _issuers(request: Request) -> list[Issuer]:
    """The issuers that browsers can sign in with. Raises Rejected 404 where there is none."""
    issuers = [each for each in _find_identity(request).issuers if each.client is not None]
    if not issuers or request.app.state.settings.public_url is None:
        detail = "no issuer of the identity file has a `client`, or HAI_FLOW_PUBLIC_URL is not set."
        raise Rejected(404, "sign_in_none", f"browsers can't sign in here: {detail}")
    return issuers


def _issuer(request: Request, name: str | None) -> tuple[KnownIdentity, Issuer, str]:
    """The issuer of this name (None: the first one), and the address to which it sends browsers back. Each issuer has
    an address of its own, so that none can send a code that another one gave. Raises Rejected 404."""
    issuers = _issuers(request)
    issuer = next((each for each in issuers if name in (None, each.name)), None)
    if issuer is None:
        raise Rejected(404, "sign_in_none", f"browsers can't sign in with an issuer {str(name)[:60]!r} here.")
    back = f"{request.app.state.settings.public_url.rstrip('/')}/sign-in/callback"
    return _find_identity(request), issuer, back if issuer is issuers[0] else f"{back}/{quote(issuer.name, safe='')}"


@router.get("/sign-in", include_in_schema=False, dependencies=[open_to_everybody()])
async def begin_sign_in(
    request: Request,
    return_to: Annotated[str, Query()] = "/",
    issuer: Annotated[str | None, Query()] = None,
    accept: Annotated[str, Header()] = "",
) -> Response:
    """Send the browser to the identity provider; where there are several, to the one that is chosen. To a page that
    asks for JSON, name them."""
    if accept == "application/json":
        return JSONResponse({"issuers": [each.name for each in _issuers(request)]})
    if issuer is None and len(_issuers(request)) > 1:
        return _choice(language_of(request), _issuers(request), return_to)
    _, chosen, redirect_uri = _issuer(request, issuer)
    sign_in = oidc.begin(chosen, redirect_uri, return_to if _LOCAL.fullmatch(return_to) else "/")
    response = RedirectResponse(sign_in.location, 302)
    response.set_cookie(
        oidc.COOKIE, sign_in.remembered, max_age=oidc.SECONDS, path="/", secure=True, httponly=True, samesite="lax"
    )
    return response


def _choice(language: str, issuers: list[Issuer], return_to: str) -> Response:
    """A page with a button for each issuer."""
    buttons = "".join(
        f'<p><button name="issuer" value="{html.escape(each.name)}">{html.escape(each.name)}</button></p>'
        for each in issuers
    )
    hidden = f'<input type="hidden" name="return_to" value="{html.escape(return_to)}">'
    # A form leads to the issuer by a redirect, which `form-action` would be asked about, too.
    return _page(language, "Sign in with", f'<form action="/sign-in">{hidden}{buttons}</form>', forms="*")


@router.get("/sign-in/callback", include_in_schema=False, dependencies=[open_to_everybody()])
@router.get("/sign-in/callback/{issuer_name}", include_in_schema=False, dependencies=[open_to_everybody()])
async def finish_sign_in(
    request: Request,
    issuer_name: str | None = None,
    code: Annotated[str, Query()] = "",
    state: Annotated[str, Query()] = "",
    iss: Annotated[str | None, Query()] = None,
) -> Response:
    """Take the browser back from the identity provider, and begin its session."""
    identity, issuer, redirect_uri = _issuer(request, issuer_name)
    remembered = request.cookies.get(oidc.COOKIE, "")
    try:
        done = await oidc.finish(
            identity.tokens, issuer, redirect_uri, code=code, state=state, remembered=remembered, iss=iss
        )
    except Rejected as refusal:
        if isinstance(refusal, Unproven):
            refusal.of(await identity.tokens.tenant_of(issuer), issuer.name)
        raise await request.app.state.sign_ins.record_refusal(request, refusal) from None
    return await _begin_session(request, identity, done.principal, done.return_to, done.grant)


@router.get(LINK_PATH + "{link}", include_in_schema=False, dependencies=[open_to_everybody()])
async def show_link(link: str, request: Request) -> Response:
    """A page with a button. Opening a link alone signs in no browser: programs that check links open them, too."""
    action = html.escape(LINK_PATH + quote(link, safe=""))
    language = language_of(request)
    text = f"<p>{say(language, 'This link signs this browser in, once.')}</p>"
    button = f"<button>{say(language, 'Sign in')}</button>"
    return _page(language, "Sign in", f'{text}<form method="post" action="{action}">{button}</form>')


@router.post(LINK_PATH + "{link}", include_in_schema=False, dependencies=[open_to_everybody()])
async def use_link(link: str, request: Request) -> Response:
    """Begin a session with a link, which is used up."""
    identity = _find_identity(request)
    used = None
    if link.startswith(tickets.LINK):
        used = await tickets.take_ticket(request.app.state.runtime.database.api, link)
    if used is None:
        used_up = Rejected(401, "auth.invalid", "this link was used, or its time is over; ask for a new one.")
        raise await request.app.state.sign_ins.record_refusal(request, used_up)
    return await _begin_session(request, identity, load_principal(*used, way="link"), f"{console.PATH}/")


class KeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key, in whose place the browser keeps a session."""

    key: str


@router.post("/sign-in/key", include_in_schema=False, dependencies=[open_to_everybody()])
async def use_key(request: Request) -> Response:
    """Begin a session with an API key, which the browser does not keep. Pages of this server alone may do that."""
    identity = _find_identity(request)
    demand_own_origin(request)
    try:
        body = msgspec.json.decode(await read_body(request, CREDENTIAL_CHARS_MAX), type=KeyBody)
    except msgspec.MsgspecError:
        raise Rejected(
            400, "request.invalid", 'expected a JSON object with your API key: {"key": "hai_..."}.'
        ) from None
    try:
        text, seconds = await identity.begin_with_key(body.key.strip(), lambda principal: actor_of(request, principal))
    except Rejected as refusal:
        raise await request.app.state.sign_ins.record_refusal(request, refusal) from None
    response = Response(status_code=204)
    with contextlib.suppress(Rejected):
        if (before := read_session(request)) is not None:
            await identity.sessions.end_before(before)
    set_cookie(response, text, seconds)
    return response


async def _begin_session(
    request: Request, identity: KnownIdentity, principal: Principal, return_to: str, grant: oidc.Grant | None = None
) -> Response:
    """Begin the browser's session. A session that it had ends: somebody may have seen its cookie."""
    response = RedirectResponse(return_to if _LOCAL.fullmatch(return_to) else "/", 303)
    with contextlib.suppress(Rejected):
        if (before := read_session(request)) is not None:
            await identity.sessions.end_before(before)
    set_cookie(response, *await identity.sessions.begin(principal, actor_of(request, principal), grant))
    response.delete_cookie(oidc.COOKIE, path="/", secure=True, httponly=True, samesite="lax")
    return response


@router.get("/v1/session", dependencies=[requires(*Right)])
async def get_session(access: CurrentAccess, request: Request) -> schemas.Session:
    """Your identity here, and, in a browser's session, the word that its requests send in HAI-CSRF."""
    principal = access.principal
    text = read_session(request) if principal.way == "session" else None
    return {
        "principal": principal.id,
        "roles": list(principal.who.roles),
        "groups": list(principal.who.groups),
        "rights": sorted(right for right in Right if principal.may(right)),
        "way": principal.way,
        "expires_at": time_of(principal.expires_at),
        "csrf": None if text is None else derive_csrf(text),
    }


@router.delete("/v1/session", *Right, responses={204: {"description": "the session has ended"}})
async def end_session(access: CurrentAccess, request: Request) -> Response:
    """Sign out: the session of the cookie ends. Other credentials stay."""
    response = Response(status_code=204)
    text = read_session(request)
    if access.principal.way == "session" and text is not None:
        await _find_identity(request).sessions.end(text, access.tenant, access.asked)
        access.terms.look()
        forget_cookie(response)
    return response
