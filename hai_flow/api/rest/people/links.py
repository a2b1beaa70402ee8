"""`/links/{token}`: the page that a notification leads to, at which one person decides one question, once.

Opening it decides nothing, however often and by whatever method it is fetched: scanners of mail open links. Its form
posts the decision, which is checked as every decision is, as the person that the link was made for. The page needs no
script, loads nothing, and reveals its address to no other site."""

from __future__ import annotations

import html
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import Request, Response
from pydantic import ValidationError

from hai_flow.api.http.bodies import read_body
from hai_flow.api.http.visitor_pages import language_of, name_option, render_page, say, tell_refusal
from hai_flow.api.permissions.principals import Identity, Principal, open_to_everybody
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import OpenAccess
from hai_flow.api.rest.people import forms
from hai_flow.api.rest.people.decide_pendings import DecideBody, decide, find_pending
from hai_flow.api.rest.people.openings import note_opening
from hai_flow.api.routes import Routes
from hai_flow.cells import cell_of_address
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import name_workflow
from hai_flow.engine.events import PendingOpened
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import run_unless_short
from hai_flow.primitives.invisible_characters import WARNING, escape_json, has_hidden, reveal
from hai_flow.primitives.markdown import to_text
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.runtime.people.notifier import LINKS
from hai_flow.store.people import notifications
from hai_flow.store.people.notifications import Link

router = Routes(include_in_schema=False)

BODY_BYTES_MAX: Final = 64 * 1024
FIELDS_MAX: Final = 500
_WHOLE: Final = ("approve", "accept", None)  # these need the whole form; others take a part
_HEADERS: Final = {
    "Referrer-Policy": "same-origin",  # without one the browser would post the form with the Origin `null`
    "X-Robots-Tag": "noindex",
}
_GONE: Final = "This link has expired or was already used. If the question is still open, you can decide in your inbox."
_CLOSED: Final = "This question has already been closed."
_DECIDED: Final = "Done. Your decision has been recorded."


@router.api_route(LINKS + "{token}", methods=["GET", "HEAD"], dependencies=[open_to_everybody()])
async def show_link(token: str, request: Request, access: OpenAccess) -> Response:
    """The question, and a form. Nothing changes."""
    language = language_of(request)
    entry = await _find(access, request.app.state.identity, token)
    if entry is None:
        return _say_gone(language)
    link, theirs = entry
    try:
        run, pending = await find_pending(theirs, link.pending_id)
    except Rejected:
        return _say_gone(language)
    if pending.status != "open":
        return _page(language, say(language, "Decided"), f"<p>{say(language, _CLOSED)}</p>", 200)
    question = await _show_question(language, name_workflow(run), link, pending)
    return _page(language, _title(language, pending), question)


@router.post(LINKS + "{token}", dependencies=[open_to_everybody()])
async def use_link(token: str, request: Request, access: OpenAccess) -> Response:
    """Decide as the person that the link is for."""
    language = language_of(request)
    entry = await _find(access, request.app.state.identity, token)
    if entry is None:
        return _say_gone(language)
    link, theirs = entry
    form = await _form(request)
    try:
        run, pending = await find_pending(theirs, link.pending_id)
        await note_opening(theirs, run, pending, "question")  # its form came with the whole question
        await decide(theirs, link.pending_id, _answer(pending, form), f"link:{link.digest.hex()}", "link")
    except Rejected as rejected:
        return await _again(language, theirs, link, form, rejected)
    await notifications.use_link(theirs.pool, link.digest)
    return _page(language, say(language, "Decided"), f"<p>{say(language, _DECIDED)}</p>")


def _answer(pending: PendingState, given: forms.Given) -> DecideBody:
    """The answer in a posted form. The values are checked later, by the rules of the question. Raises Rejected 422 for
    a decision, reason or digest that is too long."""
    columns = [] if pending.opened.schema is None else forms.fields_of(pending.opened.schema)
    most = dict.fromkeys(("decision", "reason", "digest"), 1)
    most |= {forms.PREFIX + each.name: FIELDS_MAX if each.kind == "choices" else 1 for each in columns}
    for name, texts in given.items():
        if len(texts) > most.get(name, 0):
            problem = "stands twice in the form" if name in most else "is no field of the form"
            raise Rejected(422, "request.invalid", f"{name[:100]!r} {problem}; nothing is decided.")
    fields: dict[str, Any] = {
        name: given[name][0] for name in ("decision", "reason", "digest") if given.get(name, [""])[0]
    }
    if pending.opened.schema is not None:
        filled = forms.values_of(pending.opened.schema, given)
        if filled or fields.get("decision") in _WHOLE:
            fields["values"] = filled
    try:
        return DecideBody(**fields)
    except ValidationError as error:
        place, message = error.errors()[0]["loc"][0], error.errors()[0]["msg"]
        raise Rejected(422, "request.invalid", f"{place}: {message}.") from None


async def _again(language: str, theirs: Access, link: Link, given: forms.Given, rejected: Rejected) -> Response:
    """The form with all that was typed, and why it was refused; the reason alone, where the question can't be
    answered."""
    try:
        run, pending = await find_pending(theirs, link.pending_id)
    except Rejected:
        return _say_gone(language)
    if pending.status != "open":
        reason = html.escape(tell_refusal(language, rejected))
        return _page(language, say(language, "Not decided"), f"<p>{reason}</p>", rejected.status)
    question = await _show_question(language, name_workflow(run), link, pending, given, rejected)
    title = say(language, "Not decided: {}", _title(language, pending))
    return _page(language, title, question, rejected.status)


async def _find(access: Access, identity: Identity, token: str) -> tuple[Link, Access] | None:
    """The link, and the access of the person that it is for; None: it is unknown, or was used, or its person is not
    among those of the file of channels any more, or was let go. Of the roles and groups with which it was sent they
    have those that the file still gives them."""
    access = access.at(cell_of_address(token))
    link = await notifications.find_link(access.pool, hash_secret(token))
    if link is None or link.used_at is not None:
        return None
    roles, groups = set(link.roles), set(link.groups)
    people = await access.runtime.load_people_of_channels(link.tenant)
    if people is not None:
        person = people.get(link.principal)
        if person is None:
            return None
        roles, groups = roles.intersection(person.roles), groups.intersection(person.groups)
    who = c.Principal(link.principal, tuple(sorted(roles)), tuple(sorted(groups)))
    credential = link.digest.hex()[:16]
    expires_at = int(link.expires_at.timestamp() * 1000)
    caller = Principal(who, link.tenant, way="link", credential=credential, expires_at=expires_at)
    try:
        return link, await access.of_person(await identity.known(caller))
    except Rejected:
        return None


async def _form(request: Request) -> dict[str, list[str]]:
    """The fields of the form. Raises Rejected."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Rejected(415, "media_type.unexpected", "expected the form of the page.")
    body = await read_body(request, BODY_BYTES_MAX)
    try:
        return parse_qs(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise Rejected(400, "body.not_form", f"expected the form of the page: {error}") from None


def _title(language: str, pending: PendingState) -> str:
    opened = pending.opened
    return opened.heading or say(language, "A question")


async def _show_question(language: str, workflow: str, link: Link, pending: PendingState, *of_form: Any) -> str:
    opened = pending.opened
    texts = (opened.message or "", opened.args or "", opened.evidence or "")
    return await run_unless_short(texts, _question, language, workflow, link, pending, *of_form)


def _question(
    language: str,
    workflow: str,
    link: Link,
    pending: PendingState,
    given: forms.Given | None = None,
    refused: Rejected | None = None,
) -> str:
    """The question and its form, with the values `given` before, and the reason why they were `refused`."""
    opened = pending.opened
    names = f"<b>{html.escape(workflow)}</b>", html.escape(link.principal)
    parts = [f"<p>{say(language, 'The workflow {} asks {}:', *names)}</p>"]
    read = [each for each in (opened.title, opened.message) if each]
    data = [each for each in (opened.args, opened.evidence) if each]
    if any(map(has_hidden, read)) or any(escape_json(each) != each for each in data):
        parts.append(f'<p role="note"><strong>{html.escape(say(language, WARNING))}</strong></p>')
    parts += [f"<pre>{html.escape(reveal(to_text(opened.message)))}</pre>"] if opened.message else []
    parts += [f"<pre>{html.escape(escape_json(text))}</pre>" for text in data]
    if opened.kind not in _ANSWERABLE:
        return "".join([*parts, f"<p>{say(language, _ELSEWHERE)}</p>"])
    typed = html.escape((given or {}).get("reason", [""])[0])
    reason = f'<p><label for="reason">{say(language, "Reason")}</label><br>'
    reason += f'<textarea id="reason" name="reason" rows="3" cols="60" maxlength="10000">\n{typed}</textarea></p>'
    return "".join(
        [
            *parts,
            _refusal(language, pending, given, refused),
            '<form method="post">',
            f'<input type="hidden" name="digest" value="{opened.digest}">',
            "" if opened.schema is None else forms.render_form(language, opened.schema, given, _findings(refused)),
            "" if opened.kind == "ask" else reason,
            "".join(_render_button(language, each) for each in _list_buttons(opened)),
            f"</form><p>{say(language, 'Nothing is decided until you press a button.')}</p>",
        ]
    )


_ELSEWHERE: Final = "It can't be answered here. Please answer it in your inbox."
_ANSWERABLE: Final = ("approve", "gate", "ask")


def _list_buttons(opened: PendingOpened) -> tuple[str, ...]:
    """The decisions that can be sent; "" sends the values of a form alone."""
    return ("", *opened.options) if opened.kind == "ask" else opened.options


def _render_button(language: str, option: str) -> str:
    if not option:
        return f"<p><button>{say(language, 'Send')}</button></p>"
    label = html.escape(reveal(name_option(language, option)), quote=True)
    return f'<p><button name="decision" value="{html.escape(option, quote=True)}">{label}</button></p>'


def _findings(refused: Rejected | None) -> list[dict[str, Any]]:
    return [] if refused is None else list(refused.findings)


def _refusal(language: str, pending: PendingState, given: forms.Given | None, refused: Rejected | None) -> str:
    """Why an answer was refused, without the findings that are shown at the fields."""
    if refused is None:
        return ""
    typed = {name: texts[0].strip() for name, texts in (given or {}).items()}
    if refused.findings:
        sentences = [say(language, "Something has to be put right below.")]
    elif typed.get("decision") in derive_rules(pending).reasons and not typed.get("reason"):
        sentences = [say(language, "Enter a reason.")]
    else:
        sentences = [tell_refusal(language, refused)]
    sentences += forms.elsewhere(language, pending.opened.schema, _findings(refused))
    return f'<div role="alert"><p>{"</p><p>".join(map(html.escape, sentences))}</p></div>'


def _say_gone(language: str) -> Response:
    return _page(language, say(language, "Link no longer valid"), f"<p>{say(language, _GONE)}</p>", 404)


def _page(language: str, title: str, body: str, status: int = 200) -> Response:
    return render_page(reveal(title), body, status, language=language, forms="'self'", headers=_HEADERS)
