"""`/links/{token}`: the page that a notification leads to, at which one person decides one question, once.

Opening it decides nothing, however often and by whatever method it is fetched: scanners of mail open links. Its form
posts the decision, which goes the way of all decisions, as the person whom the link was made for. The page needs no
script, loads nothing, and tells nobody its address.
"""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from hai_flow.api.bodies import read_body
from hai_flow.api.deciding import DecideBody, decide, find_pending
from hai_flow.api.deps import Access, OpenAccess
from hai_flow.api.principals import Principal, open_to_everybody
from hai_flow.engine import commands as c
from hai_flow.engine.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.runtime.notifier import LINKS, digest_of
from hai_flow.store import notifications
from hai_flow.store.notifications import Link

router = APIRouter(include_in_schema=False)

BODY_BYTES_MAX: Final = 64 * 1024
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Robots-Tag": "noindex",
}
_GONE: Final = (
    "This link is not good any more: its time is over, or it was used. Decide in your inbox, if it still asks."
)
_DECIDED: Final = "Thank you: this is recorded."


@router.api_route(LINKS + "{token}", methods=["GET", "HEAD"], dependencies=[open_to_everybody()])
async def show_link(token: str, access: OpenAccess) -> Response:
    """The question, and a form. Nothing changes."""
    found = await _find(access, token)
    if found is None:
        return _page("Not here", f"<p>{_GONE}</p>", 404)
    link, theirs = found
    try:
        run, pending = await find_pending(theirs, link.pending_id)
    except Rejected:
        return _page("Not here", f"<p>{_GONE}</p>", 404)
    if pending.status != "open":
        return _page("Decided", "<p>This question is not open any more.</p>", 200)
    return _page(_title(pending), _question(run.workflow, link, pending))


@router.post(LINKS + "{token}", dependencies=[open_to_everybody()])
async def use_link(token: str, request: Request, access: OpenAccess) -> Response:
    """Decide as the person whom the link is for."""
    found = await _find(access, token)
    if found is None:
        return _page("Not here", f"<p>{_GONE}</p>", 404)
    link, theirs = found
    given = await _form(request)
    body = DecideBody(decision=given.get("decision"), reason=given.get("reason") or None, digest=given.get("digest"))
    try:
        await decide(theirs, link.pending_id, body, f"link:{link.digest.hex()}", "link")
    except Rejected as rejected:
        return _page("Not decided", f"<p>{html.escape(rejected.detail)}</p>", rejected.status)
    await notifications.use_link(access.pool, link.digest)
    return _page("Decided", f"<p>{_DECIDED}</p>")


async def _find(access: Access, token: str) -> tuple[Link, Access] | None:
    """The link, and the access of the person whom it is for."""
    link = await notifications.find_link(access.pool, digest_of(token))
    if link is None or link.used_at is not None:
        return None
    who = c.Principal(link.principal, tuple(link.roles), tuple(link.groups))
    credential = link.digest.hex()[:16]
    principal = Principal(
        who, link.tenant, way="link", credential=credential, expires_at=int(link.expires_at.timestamp() * 1000)
    )
    asked = msgspec.structs.replace(access.asked, who=who, way="link", credential=credential)
    return link, replace(access, principal=principal, asked=asked, _seen={}, _personal={})


async def _form(request: Request) -> dict[str, str]:
    """The fields of the form. Raises Rejected."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Rejected(415, "media_type.unexpected", "expected the form of the page.")
    body = await read_body(request, BODY_BYTES_MAX)
    try:
        found = parse_qs(body.decode(), strict_parsing=True, max_num_fields=10)
    except ValueError as error:
        raise Rejected(400, "body.not_form", f"expected the form of the page: {error}") from None
    return {name: each[0] for name, each in found.items()}


def _title(pending: PendingState) -> str:
    return pending.opened.title or pending.opened.tool or "A question"


def _question(workflow: str, link: Link, pending: PendingState) -> str:
    opened = pending.opened
    shown = [f"<p>The workflow <b>{html.escape(workflow)}</b> asks {html.escape(link.principal)}:</p>"]
    shown += [f"<pre>{html.escape(text)}</pre>" for text in (opened.message, opened.args, opened.evidence) if text]
    if opened.kind not in ("approve", "gate") or _must_fill_in(opened.schema):
        return "".join([*shown, "<p>Its form can't be filled in here: answer it in your inbox.</p>"])
    options = "".join(
        f'<p><button name="decision" value="{html.escape(each, quote=True)}">{html.escape(each)}</button></p>'
        for each in opened.options
    )
    return "".join(
        [
            *shown,
            '<form method="post">',
            f'<input type="hidden" name="digest" value="{opened.digest}">',
            '<p><label>Reason<br><textarea name="reason" rows="3" cols="60" maxlength="10000"></textarea></label></p>',
            options,
            "</form><p>Nothing is decided until you press one of these.</p>",
        ]
    )


def _must_fill_in(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.get("required"))


def _page(title: str, body: str, status: int = 200) -> Response:
    shown = html.escape(title)
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{shown}</title>'
        f'<meta name="viewport" content="width=device-width"></head><body><h1>{shown}</h1>{body}</body></html>\n'
    )
    return HTMLResponse(page, status, _HEADERS)
