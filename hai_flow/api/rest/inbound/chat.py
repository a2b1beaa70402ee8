"""`/chat/{channel}`: where the platform of a chat calls, when somebody presses a button or sends a message to the app.

The channel's app proves the call; the `Desk` finds out whose account it is, and decides as that person through the one
function that decides. A refusal changes nothing. The person learns of it, and it is on record where the person is
known."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from fastapi import Request, Response
from pydantic import ValidationError

from hai_flow import addresses, values
from hai_flow.api.http.bodies import read_body
from hai_flow.api.permissions.principals import Identity, Principal, open_to_everybody
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import OpenAccess
from hai_flow.api.rest.people import forms
from hai_flow.api.rest.people.decide_pendings import DecideBody, decide, find_pending
from hai_flow.api.routes import Routes
from hai_flow.cells import cell_of, cell_of_address, sign_address
from hai_flow.engine import commands as c
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.notify.channels import ChatPerson
from hai_flow.notify.chat import cards
from hai_flow.notify.chat.contract import Dialog, DialogField, NotSent, PlatformCall, Press, PressOutcome, UnprovenCall
from hai_flow.notify.chat.reading import code_in
from hai_flow.primitives.invisible_characters import has_hidden, reveal
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.runtime.messaging.inbound_webhooks import tenant_of
from hai_flow.runtime.people.chat_cards import Chats, as_delegation, is_for_chat
from hai_flow.store.identity import tenants
from hai_flow.store.people import chat
from hai_flow.store.people.chat import ButtonRow, CardRow
from hai_flow.values import Json

log = structlog.get_logger(__name__)

router = Routes(include_in_schema=False)

BODY_BYTES_MAX: Final = 256 * 1024
ACCOUNT_MAX: Final = 200
_STALE: Final = "This button is not good any more. Use the newest card, or decide in your inbox."


@router.api_route("/chat/{address:path}", methods=["GET", "POST"], dependencies=[open_to_everybody()])
async def receive_chat(address: str, request: Request, access: OpenAccess) -> Response:
    """A call of a platform: 404 where there is no such channel, 401 where it is not proven."""
    chats, name = access.runtime.chats, tenant_of(address)
    channel = address.removeprefix("@").partition("/")[2] if address.startswith("@") else address
    body = await read_body(request, BODY_BYTES_MAX)
    if chats is None or chats.channel(name, channel) is None:
        raise Rejected(404, "chat_unknown", "there is no app in a chat here.")
    tenant = await tenants.find_tenant(access.at_home.pool, name)
    if tenant is None:
        raise Rejected(404, "chat_unknown", "there is no app in a chat here.")
    headers = {key.lower(): text for key, text in request.headers.items()}
    call = PlatformCall(
        request.method, headers, dict(request.query_params), body, access.at_home.runtime.committer.now_ms() / 1000
    )
    desk = _Desk(access, request.app.state.identity, chats, tenant.id, name, channel)
    try:
        reply = await chats.app(name, channel).receive(call, desk)
    except NotSent as error:
        log.error("chat_not_configured", channel=channel, reason=str(error))
        raise Rejected(401, "chat_refused", "the call does not prove that it is from the platform.") from None
    except UnprovenCall:
        raise Rejected(401, "chat_refused", "the call does not prove that it is from the platform.") from None
    return Response(reply.body, reply.status, media_type=reply.media_type)


class _Pressed(msgspec.Struct, frozen=True):
    """A button that its presser may use."""

    button: ButtonRow
    card: CardRow
    theirs: Access


class _Refusal(Exception):
    """A press without effect. `theirs`: the access of its person, where that is known; `subject`: the question."""

    def __init__(
        self, text: str, theirs: Access | None = None, subject: str | None = None, *, is_copy: bool = False
    ) -> None:
        super().__init__(text)
        self.theirs = theirs
        self.subject = subject
        self.is_copy = is_copy


class _Desk:
    def __init__(
        self, access: Access, identity: Identity, chats: Chats, tenant: UUID, tenant_name: str, channel: str
    ) -> None:
        self._access = access
        self._identity = identity
        self._chats = chats
        self._tenant = tenant
        self._tenant_name = tenant_name
        self._channel = channel

    async def press(self, press: Press) -> PressOutcome:
        """See `contract.Desk`."""
        if not _is_account(press.account) or not (press.adds or "").isprintable():
            return await self.refuse(press.account, self._is_nobody())
        try:
            pressed = await self._find(press)
            return await self._decide(pressed, press)
        except _Refusal as refusal:
            outcome = await self._refuse(str(refusal), refusal.theirs, refusal.subject)
            return msgspec.structs.replace(outcome, is_copy=refusal.is_copy)
        except Rejected as rejected:  # a cell is away, the server is full
            return PressOutcome(rejected.detail)

    async def connect(self, account: str, text: str) -> PressOutcome:
        """See `contract.Desk`."""
        code = code_in(text)
        if code is None:
            return PressOutcome(self._how_to_connect())
        if not _is_account(account):
            return await self.refuse(account, "This account has signs that no account has, or none, or too many.")
        if self._chats.owner(self._tenant_name, self._channel, account) is not None:
            return PressOutcome(
                "This account is somebody's by the file of the deployment; it can't be connected to others."
            )
        try:
            return await self._connect(account, code)
        except Rejected as rejected:
            return PressOutcome(rejected.detail)

    async def _connect(self, account: str, code: str) -> PressOutcome:
        home = self._access.at_home
        async with home.act() as connection:
            row = await chat.connect_account(connection, self._tenant, self._channel, account, hash_secret(code))
            if row is None:
                return PressOutcome("This code is not good: it was used, or its ten minutes are over. Get a new one.")
            theirs = await self._access_of(ChatPerson(row.principal, account, row.roles, row.groups))
            until = row.until.isoformat()
            await theirs.at_home.record(  # the account is a detail: only those can be erased
                connection, "chat.connected", subject=f"account:{row.id}", account=account, until=until
            )
        return PressOutcome(f"Connected: this account decides as {row.principal} from now on.", done=True)

    async def refuse(self, account: str, reason: str) -> PressOutcome:
        """See `contract.Desk`. An account of elsewhere is nobody's here, whatever it is called."""
        log.info("chat_refused", channel=self._channel, reason=reason)
        return PressOutcome(reason)

    # --- who, and what

    async def _find(self, press: Press) -> _Pressed:
        """Raises _Refusal, and Rejected where a cell is away."""
        access = self._access.at(cell_of_address(press.token))
        button = await chat.find_button(access.pool, hash_secret(press.token), press.account)
        card = None if button is None else await chat.find_card(access.pool, button.card)
        theirs = await self._find_person(access, press.account)
        if button is None or card is None or button.tenant != self._tenant or not self._is_ours(card):
            raise _Refusal(_STALE, theirs)
        subject = f"pending:{card.pending_id}"
        if press.message is not None and card.message is not None and press.message != card.message.split(" ")[0]:
            raise _Refusal("This is a copy of a card. Only the card itself decides.", theirs, subject, is_copy=True)
        if button.account not in (None, press.account):
            raise _Refusal("This dialog was opened by somebody else.", theirs, subject)
        if theirs is None:
            raise _Refusal(self._is_nobody())
        if card.person is not None and card.person not in theirs.ids:
            raise _Refusal(f"This card is for {card.person} alone.", theirs, subject)
        if card.message is None and press.message is not None:  # it was sent, and nobody has heard of it
            await chat.adopt_message(access.pool, card.id, press.message)
        if press.adds is not None:
            await chat.add_to_name(access.pool, card.id, press.adds)
        if button.is_used:
            raise _Refusal("This button was pressed before, and has decided.", theirs, subject)
        if button.is_taken:
            raise _Refusal("Somebody else has pressed this button just now. Look at the card.", theirs, subject)
        return _Pressed(button, card, theirs)

    def _is_ours(self, card: CardRow) -> bool:
        """Whether the card is of the app that the platform calls for: several channels may be rooms of one app."""
        return self._chats.is_same_app(self._tenant_name, card.channel, self._channel)

    async def _find_person(self, access: Access, account: str) -> Access | None:
        """The access of the person whose account it is, with the roles that they have now."""
        person = self._chats.owner(self._tenant_name, self._channel, account)
        if person is None:
            home = access.at_home.pool
            for row in await chat.find_accounts(home, self._tenant, self._channel, account):
                try:
                    theirs = await self._access_of(ChatPerson(row.principal, account, (), ()))
                except Rejected as rejected:
                    if rejected.status != 401:
                        raise
                    continue  # the keys of its person were revoked, and the account ends with them
                for held in await theirs.at_home.inbox.in_force(self._tenant, [as_delegation(row)]):
                    person = ChatPerson(row.principal, account, held.roles, held.groups, held.held)
        if person is None:
            return None
        return (await self._access_of(person)).at(access.cell)

    async def _access_of(self, person: ChatPerson) -> Access:
        who = c.Principal(person.id, tuple(person.roles), tuple(person.groups))
        credential = f"{self._channel}:{person.account}"
        principal = await self._identity.known(Principal(who, self._tenant, way="chat", credential=credential))
        through = tuple(dict.fromkeys((*principal.who.through, *person.held)))
        who = msgspec.structs.replace(principal.who, through=through)
        return await self._access.of_person(dataclasses.replace(principal, who=who))

    async def _refuse(self, text: str, theirs: Access | None, subject: str | None) -> PressOutcome:
        """Tell the person, and keep it on record where they are known."""
        log.info("chat_refused", channel=self._channel, reason=text)
        if theirs is not None:
            with contextlib.suppress(Rejected):  # the server is full, or there are too many: it stands all the same
                theirs.decisions.take(self._tenant, theirs.principal.id, theirs.peer)  # so many records in a minute
                async with theirs.act() as connection:
                    await theirs.record(connection, "chat.refused", subject=subject, reason=text)
        return PressOutcome(text)

    def _is_nobody(self) -> str:
        return f"Nobody here is known by this account, so it can't decide. {self._how_to_connect()}"

    def _how_to_connect(self) -> str:
        return (
            f"To connect it, run `hai-flow chat connect {self._channel}` where you are signed in, and send me the line "
            "that it gives you: connect CODE"
        )

    # --- deciding

    async def _decide(self, pressed: _Pressed, press: Press) -> PressOutcome:
        theirs, pending_id = pressed.theirs, pressed.card.pending_id
        subject = f"pending:{pending_id}"
        item = await theirs.inbox.item(self._tenant, theirs.principal.who, pressed.card.run_id, pending_id)
        others = () if item is None or item.obstacle is None else item.for_others
        if len(others) > 1:
            return PressOutcome(f"You decide this for {' and for '.join(others)}: do so {self._page(pending_id)}")
        other = next(iter(others), None)
        for voice in await theirs.inbox.list_voices_of(self._tenant, theirs.principal.who):
            if item is None or voice.on_behalf_of == other:  # one that is over asks nobody: any seat may have seen it
                with contextlib.suppress(Rejected):
                    run, pending = await find_pending(theirs.acting(voice), pending_id)
                    break
        else:
            raise _Refusal("This question is not for you to decide.", theirs, subject)
        plan = await theirs.catalog.plan(self._tenant, bytes.fromhex(run.sha256))
        if not is_for_chat(plan, pending.opened.tool):
            raise _Refusal("This is not decided in chats: decide it in your inbox.", theirs, subject)
        if pending.status != "open":
            await chat.hurry_cards(theirs.pool, pressed.card.run_id)
            raise _Refusal("This is decided already; the card says how.", theirs, subject)
        choices = {each.option: each for each in cards.list_choices(pending.opened, derive_rules(pending))}
        choice = choices.get(pressed.button.option)
        if choice is None:
            raise _Refusal(_STALE, theirs, subject)
        if choice.asks and press.fields is None:
            return await self._open_dialog(pressed, press, pending, choice)
        filled_in = press.fields or {}
        fields = {each.name for each in _list_fields(pending, choice) or ()}
        if extra := next((name for name in filled_in if _FIELD.fullmatch(name) and name not in fields), None):
            raise _Refusal(f"{extra} is no field of this dialog; nothing is decided.", theirs, subject)
        body = self._answer(pending, choice, filled_in, pressed.button.question.hex(), other)
        if isinstance(body, PressOutcome):
            return body
        return await self._submit(pressed, press, pending, body)

    async def _submit(self, pressed: _Pressed, press: Press, pending: PendingState, body: DecideBody) -> PressOutcome:
        theirs, digest = pressed.theirs, pressed.button.digest
        if not await chat.take_button(theirs.pool, digest, press.account):
            raise _Refusal("Somebody else has pressed this button just now. Look at the card.", theirs)
        try:
            view = await decide(theirs, pressed.card.pending_id, body, _command_id(digest, theirs.principal.id), "chat")
        except Rejected as rejected:
            await chat.give_back_button(theirs.pool, digest, press.account)
            outcome = await self._refuse(rejected.detail, theirs, f"pending:{pressed.card.pending_id}")
            return msgspec.structs.replace(outcome, faults=_find_faults(pending, rejected))
        await chat.use_button(theirs.pool, digest)
        await chat.hurry_cards(theirs.pool, pressed.card.run_id)
        decided = "" if view["status"] == "open" else f" The question is decided: {view['status']}."
        person = " for ".join(filter(None, (theirs.principal.id, body.on_behalf_of)))
        return PressOutcome(f"Recorded, as {person}.{decided}", done=True)

    async def _open_dialog(
        self, pressed: _Pressed, press: Press, pending: PendingState, choice: cards.Choice
    ) -> PressOutcome:
        """A dialog for the person who pressed, or where they decide instead."""
        fields = _list_fields(pending, choice)
        if press.dialogs is None or fields is None or not press.dialogs.admit(fields):
            return PressOutcome(f"This needs more than a press: decide it {self._page(pending.opened.id)}")
        token = sign_address(token_urlsafe(32), cell_of(pressed.card.run_id))
        button = msgspec.structs.replace(pressed.button, digest=hash_secret(token), account=press.account)
        await chat.add_buttons(pressed.theirs.pool, [button])
        return PressOutcome("", dialog=Dialog(choice.label.rstrip("…"), token, tuple(fields)))

    def _page(self, pending_id: str) -> str:
        page = addresses.link(self._access.settings.public_url, addresses.pending(pending_id))
        return "in your inbox" if page is None else f"at {page}"

    def _answer(
        self,
        pending: PendingState,
        choice: cards.Choice,
        filled_in: Mapping[str, Sequence[str]],
        digest: str,
        other: str | None,
    ) -> DecideBody | PressOutcome:
        """The answer of a press or a dialog, for the person `other`; what is wrong with it is for the rules of the
        question to say."""
        opened = pending.opened
        members: dict[str, Any] = {"digest": digest}
        if other is not None:
            members["on_behalf_of"] = other
        if choice.option:
            members["decision"] = "approve" if choice.option == cards.EDIT else choice.option
        if reason := "".join(filled_in.get("reason", ())):
            members["reason"] = reason
        if opened.schema is not None and choice.option in ("", "approve", "accept", cards.EDIT) and filled_in:
            members["values"] = forms.values_of(opened.schema, _as_form(opened.schema, filled_in))
        if choice.option == cards.EDIT:
            members["edits"] = _read_edits(pending, filled_in)
        try:
            return DecideBody(**members)
        except ValidationError as error:
            place, message = error.errors()[0]["loc"][0], error.errors()[0]["msg"]
            return PressOutcome(f"{place}: {message}.")


def _is_account(text: str) -> bool:
    """Whether a platform may name an account so: none of them has longer names, or writes hidden signs in them."""
    return 0 < len(text) <= ACCOUNT_MAX and text.isprintable()


def _command_id(button: bytes, person: str) -> str:
    """The id of a decision: the same where a person presses the button again, and another one for another person, who
    must not be given the first one's outcome."""
    return f"chat:{sha256(button + person.encode()).hexdigest()}"


# --- dialogs ----------------------------------------------------------------------------------------------------------


_FIELD: Final = re.compile(r"[ef]\d+|reason")  # our names: a platform may add fields of its own


def _list_fields(pending: PendingState, choice: cards.Choice) -> list[DialogField] | None:
    """The fields of a dialog; None: it needs a page, because a field would hide signs."""
    opened, rules = pending.opened, derive_rules(pending)
    fields: list[DialogField] = []
    if opened.schema is not None and choice.option in ("", "approve", "accept", cards.EDIT):
        for number, each in enumerate(forms.fields_of(opened.schema)):
            kind: Any = {"choice": "choice", "choices": "choices", "lines": "lines", "json": "lines"}.get(
                each.kind, "text"
            )
            choices = tuple((str(at), reveal(values.to_text(value))) for at, value in enumerate(each.choices))
            value = "" if each.default is None or each.choices else values.to_text(each.default)
            fields.append(DialogField(f"f{number}", reveal(each.label), kind, each.required, choices, value))
    if choice.option == cards.EDIT:
        for number, (name, value) in enumerate(_list_editable(pending)):
            fields.append(DialogField(f"e{number}", reveal(name), "lines", value=values.to_text(value)))
    if opened.kind in ("approve", "gate"):
        fields.append(DialogField("reason", "Reason", "lines", choice.option in rules.reasons))
    return None if any(has_hidden(each.value) for each in fields) else fields


def _list_editable(pending: PendingState) -> list[tuple[str, Json]]:
    """The arguments that a decider may replace, and their values."""
    args: Json = values.loads(pending.opened.args or "{}")
    edit = derive_rules(pending).edit
    if not isinstance(args, Mapping):
        return []
    return [(name, value) for name, value in args.items() if edit is True or (edit and name in edit)]


def _read_edits(pending: PendingState, filled_in: Mapping[str, Sequence[str]]) -> dict[str, Json]:
    """The arguments that were changed."""
    edits: dict[str, Json] = {}
    for number, (name, value) in enumerate(_list_editable(pending)):
        text = "".join(filled_in.get(f"e{number}", ()))
        if f"e{number}" not in filled_in or text == values.to_text(value):
            continue
        edits[name] = text if isinstance(value, str) else forms.read_value(text)
    return edits


def _as_form(schema: Json, filled_in: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The fields of a dialog as those of the form on a page. A choice comes as its number."""
    form: dict[str, list[str]] = {}
    for number, field in enumerate(forms.fields_of(schema)):
        texts = list(filled_in.get(f"f{number}", ()))
        if field.choices:
            chosen = [int(each) for each in texts if each.isascii() and each.isdecimal() and len(each) < 6]
            texts = [values.to_text(field.choices[at]) for at in chosen if at < len(field.choices)]
        form[forms.PREFIX + field.name] = texts
    return form


def _find_faults(pending: PendingState, rejected: Rejected) -> dict[str, str]:
    """What is wrong with the fields of the dialog."""
    schema = pending.opened.schema
    if schema is None or not rejected.findings:
        return {}
    faults: dict[str, str] = {}
    for number, field in enumerate(forms.fields_of(schema)):
        for finding in rejected.findings:
            if forms.is_at(finding, field):
                faults[f"f{number}"] = str(finding["message"])
    return faults
