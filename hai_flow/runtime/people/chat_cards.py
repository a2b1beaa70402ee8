"""Cards in chats: sends the card of a question, and keeps each card right until the question is over.

A card is the message of a notification, and is sent where notifications are, so it is tried again as they are and never
in the way of a run. What is said on it later follows the run's log: a row per card has the event up to which it is
right, so nothing depends on who committed the change or was alive then.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from hai_flow import addresses
from hai_flow.cells import cell_of, sign_address
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import name_workflow
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.notify.channels import App, ChatPerson, NotifyFile
from hai_flow.notify.chat import apps, cards
from hai_flow.notify.chat.contract import Card, ChatApp, ChatPlace, NotSent
from hai_flow.notify.delivery import SECONDS, Poster
from hai_flow.primitives.beside_loop import run_if_large, run_unless_short
from hai_flow.primitives.retry_after import wait_for_try
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.runtime.base.pulse import PulsedService
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.pii_catalog import Personals
from hai_flow.runtime.commit.states import HEAD, state_at
from hai_flow.runtime.people.inbox import Inbox
from hai_flow.runtime.people.roster import Rosters
from hai_flow.runtime.people.undecidable import STRANDED
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.store.people import chat
from hai_flow.store.people.chat import Account, ButtonRow, CardRow
from hai_flow.store.people.delegations import Delegation
from hai_flow.store.people.notifications import Notification
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.wire.pii_masking import mask_opened

log = structlog.get_logger(__name__)

BATCH_MAX: Final = 20


def is_for_chat(plan: Plan, tool: str | None) -> bool:
    """Whether questions of the workflow, about this tool, may stand in chats (`chat: false`)."""
    return plan.chat and (tool is None or tool.partition(".")[0] not in plan.tools_without_chat)


class Chats:
    """The apps of the channels, made when they are asked for. In every process that has the file of channels."""

    def __init__(self, file: NotifyFile, secrets: Mapping[str, str], http: HttpConfig) -> None:
        self._file = file
        self._secrets = secrets
        self.out = Poster(EgressGuard(file.hosts), http)
        self._apps: dict[tuple[str, str], ChatApp] = {}

    def channel(self, tenant: str, name: str) -> App | None:
        """The channel of the tenant, if it is an app in a chat."""
        channel = self._file.place(tenant).channels.get(name)
        return channel if isinstance(channel, App) else None

    def person(self, tenant: str, id: str, channel: str) -> ChatPerson | None:
        """The person of the file with an account of the channel, or who alone reads its room."""
        person, app = self._file.place(tenant).people.get(id), self.channel(tenant, channel)
        if person is None or app is None or (channel not in person.accounts and app.person != id):
            return None
        return ChatPerson(id, person.accounts.get(channel, ""), person.roles, person.groups)

    def place(self, tenant: str, channel: str, id: str, person: str | None) -> ChatPlace:
        app = self.channel(tenant, channel)
        return ChatPlace(id, is_account=person is not None and (app is None or id != app.room))

    def is_same_app(self, tenant: str, one: str, other: str) -> bool:
        """Whether two channels are of one app, which the platform calls at one address."""
        channels = self.channel(tenant, one), self.channel(tenant, other)
        apps = [(each.app, each.settings) for each in channels if each is not None]
        return len(apps) == 2 and apps[0] == apps[1]

    def owner(self, tenant: str, channel: str, account: str) -> ChatPerson | None:
        """The person of the file whose account it is."""
        people = self._file.place(tenant).people
        id = next((id for id, each in people.items() if each.accounts.get(channel) == account), None)
        return None if id is None else self.person(tenant, id, channel)

    def app(self, tenant: str, name: str) -> ChatApp:
        """The app of a channel. Raises NotSent where there is none, or a secret of it is not there."""
        if (tenant, name) not in self._apps:
            channel = self.channel(tenant, name)
            if channel is None:
                raise NotSent(f"{name} is no app in a chat, in the file that HAI_FLOW_NOTIFY names", final=True)
            try:
                settings = apps.complete_settings(channel.app, channel.settings, self._secrets)
            except KeyError as error:
                raise NotSent(f"the secret {error.args[0]} is not there; set HAI_FLOW_SECRET_{error.args[0]}") from None
            self._apps[tenant, name] = apps.load_app(channel.app)(settings, self.out)
        return self._apps[tenant, name]


class ChatCardsConfig(msgspec.Struct, frozen=True):
    """`again_seconds`: after the first update that failed; each time after twice as long, but at most
    `again_seconds_max`; `tries_max` in all. `apart_seconds`: at least so long between two looks at a run."""

    again_seconds: float = 5.0
    again_seconds_max: float = 900.0
    tries_max: int = 60
    apart_seconds: float = 0.5


class ChatCards(PulsedService):
    """Sends and updates cards, in every process that sends notifications. `link_base`: with which the page of a
    question begins; `rosters` know where people's accounts are, and who was let go."""

    DUE, TASK, FAILURE = "cards", "cards in chats", "cards_not_taken"

    def __init__(
        self, database: Database, inbox: Inbox, chats: Chats, tenants: Tenants, rosters: Rosters, link_base: str | None,
        rows: Rows,
    ) -> None:  # fmt: skip
        super().__init__()
        self._database = database
        self._rosters = rosters
        self._inbox = inbox
        self._personals = Personals(inbox.catalog)
        self._chats = chats
        self._tenants = tenants
        self._link_base = link_base
        self._rows = rows
        self.config = ChatCardsConfig()

    async def _start(self) -> None:
        self._due.set()
        await super()._start()

    async def send(self, notification: Notification, person: c.Principal | None) -> bool:
        """Send the card of a notification, once: a card that is there already is not sent again. `person`: its only
        reader. False: it is not needed. Raises NotSent."""
        channel = notification.channel or ""
        tenant = await self._tenants.name(notification.tenant)
        app = self._chats.app(tenant, channel)
        place = self._chats.place(tenant, channel, notification.whom, None if person is None else person.id)
        if not place.id:
            message = "nobody who is meant has connected an account of this chat, and the channel has no `room`"
            raise NotSent(message, final=True)
        row = await chat.begin_card(self._database.api, notification, None if person is None else person.id)
        if row.message is not None:
            return True
        drawn = await self._draw(row, app, person)
        if drawn is None or drawn.pending.status != "open":
            return False
        card = await self._add_buttons(row, drawn)
        async with _in_time():
            message = await app.send(card, place, again=row.tries > 0)
        await self._mark(row, drawn, message, drawn.digest)
        return True

    async def take_due(self) -> None:
        while batch := await chat.take_cards(self._database.api, BATCH_MAX, timedelta(seconds=SECONDS * 3)):
            await asyncio.gather(*map(self._deal_with, batch))

    async def _deal_with(self, row: CardRow) -> None:
        await self._rows.deal(Sweep.NOTIFICATIONS, f"card {row.id}", lambda: self._try(row))

    async def _try(self, row: CardRow) -> None:
        try:
            await self._update(row)
        except NotSent as failure:
            pool = self._database.api
            if failure.final or row.tries >= self.config.tries_max:
                log.error("card_given_up", id=row.id, channel=row.channel, tries=row.tries, reason=str(failure))
                await chat.put_off_card(pool, row.id, None, str(failure))
                return
            wait = wait_for_try(row.tries, self.config.again_seconds, self.config.again_seconds_max, failure.after)
            log.info("card_put_off", id=row.id, channel=row.channel, tries=row.tries, reason=str(failure))
            await chat.put_off_card(pool, row.id, wait, str(failure))

    async def _update(self, row: CardRow) -> None:
        tenant = await self._tenants.name(row.tenant)
        app = self._chats.app(tenant, row.channel)
        person = None if row.person is None else await self.principal(row.tenant, row.channel, row.person)
        drawn = await self._draw(row, app, person)
        if drawn is None or row.message is None:
            await chat.put_off_card(self._database.api, row.id, None, "there is no such question any more")
            return
        message: str | None = row.message
        if drawn.digest != row.content:
            card = await self._add_buttons(row, drawn)
            place = self._chats.place(tenant, row.channel, row.place, row.person)
            async with _in_time():
                message = await app.update(card, place, row.message)
        if message is None and row.content is not None:  # it stays as it was, with the buttons that it has
            await self._mark(row, drawn, row.message, row.content)
        else:
            await self._mark(row, drawn, message or row.message, drawn.digest)

    async def _mark(self, row: CardRow, drawn: _DrawnCard, message: str, digest: bytes) -> None:
        is_open = drawn.pending.status == "open"
        wait = timedelta(seconds=self.config.apart_seconds) if is_open else None
        await chat.mark_shown(self._database.api, row, message, digest, drawn.seq, wait)

    # --- what a card says

    async def _draw(self, row: CardRow, app: ChatApp, person: c.Principal | None) -> _DrawnCard | None:
        state = await state_at(self._database, row.tenant, row.run_id, HEAD)
        pending = None if state is None else state.pendings.get(row.pending_id)
        if state is None or pending is None:
            return None
        is_open, decides = pending.status == "open", False
        if person is not None and await self._rosters.has_left(self._database.api, row.tenant, person.id):
            person = None
        elif person is not None:
            _, all_ids = await self._rosters.find_credentials(self._database.api, row.tenant)
            inbox = self._inbox.of_people(all_ids)
            item = await inbox.item(row.tenant, person, row.run_id, row.pending_id)
            decides = item is not None and (item.obstacle is None or bool(item.for_others))
        else:
            decides = True
        readable = person is not None and (decides or not is_open)
        if not readable:  # a room may have any readers
            personal = await self._personals.of_run(row.tenant, bytes.fromhex(state.sha256), state)
            opened = pending.opened
            masked = await run_if_large(opened, mask_opened, opened, personal.of(opened.path))
            pending = replace(pending, opened=masked)
        page = addresses.link(self._link_base, addresses.pending(row.pending_id))
        texts = (pending.opened.args or "", pending.opened.evidence or "", pending.opened.message or "")
        card = await run_unless_short(
            texts,
            cards.build_card,
            row.id,
            name_workflow(state),
            pending,
            what=row.what or "opened",
            page=page,
            arguments_max=app.ARGUMENTS_MAX,
            shows_evidence=readable and is_open,
        )
        channel = self._chats.channel(await self._tenants.name(row.tenant), row.channel)
        choices: Sequence[cards.Choice] = ()
        if is_open and decides and row.what != STRANDED and channel is not None and not channel.read_only:
            choices = [
                each
                for each in cards.list_choices(pending.opened, derive_rules(pending))
                if app.DIALOGS is not None or not each.asks
            ][: app.BUTTONS_MAX]
        return _DrawnCard(card, tuple(choices), pending, state.seq)

    async def _add_buttons(self, row: CardRow, drawn: _DrawnCard) -> Card:
        tokens = [sign_address(secrets.token_urlsafe(32), cell_of(row.run_id)) for _ in drawn.choices]
        question, content = bytes.fromhex(drawn.pending.opened.digest), drawn.digest
        buttons = [
            ButtonRow(hash_secret(token), row.tenant, row.run_id, row.id, choice.option, question, content)
            for token, choice in zip(tokens, drawn.choices, strict=True)
        ]
        await chat.add_buttons(self._database.api, buttons)
        return cards.with_buttons(drawn.card, drawn.choices, tokens)

    async def principal(self, tenant: UUID, channel: str, id: str) -> c.Principal:
        """The reader of a card, with the roles that they have now."""
        name = await self._tenants.name(tenant)
        credentials, all_ids = await self._rosters.find_credentials(self._database.api, tenant)
        ids = all_ids(id)
        person = next(filter(None, (self._chats.person(name, each, channel) for each in ids)), None)
        if person is None:
            connected = await find_connected(self._inbox.of_people(all_ids), credentials, tenant, channel)
            person = next((each for each in connected if each.id in ids), ChatPerson(id, "", (), ()))
        who = c.Principal(ids[0], tuple(person.roles), tuple(person.groups))
        return replace(who, aliases=ids[1:], through=tuple(person.held))


class _DrawnCard(msgspec.Struct, frozen=True):
    """A card, the choices that it offers, and what it was drawn from."""

    card: Card
    choices: tuple[cards.Choice, ...]
    pending: PendingState
    seq: int

    @property
    def digest(self) -> bytes:
        return cards.digest_of(self.card, self.choices)


@contextlib.asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """All requests of one try end before the card is given out again: else it could be sent twice at once."""
    try:
        async with asyncio.timeout(SECONDS * 2):
            yield
    except TimeoutError:
        raise NotSent(f"no end within {SECONDS * 2:g} s") from None


async def find_connected(inbox: Inbox, credentials: Pool, tenant: UUID, channel: str) -> list[ChatPerson]:
    """The people who have connected an account of the channel that holds now, with what they have now. `credentials`:
    the database that has the accounts."""
    accounts = {each.id: each for each in await chat.find_accounts(credentials, tenant, channel)}
    return [
        ChatPerson(held.from_id, accounts[held.id].account or "", held.roles, held.groups, held.held)
        for held in await inbox.in_force(tenant, [as_delegation(each) for each in accounts.values()])
    ]


def as_delegation(account: Account) -> Delegation:
    """The account as what it is: it may act for its person, as long as what they proved themselves by holds."""
    return Delegation(
        account.id, account.principal, "", account.roles, account.groups, account.created_at, account.until, None,
        account.created_at, account.key, account.session, account.token,
    )  # fmt: skip
