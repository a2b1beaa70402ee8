"""Notifies people and systems of open questions, never in the way of a run. A row of the outbox becomes a notification
under its id (`Queueing`, in every process), which is divided among its receivers and sent by processes that know the
channels (`Notifier`), at least once each. One that could not be sent is tried again, ever more seldom, and given up in
the end, which people can see."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import astuple

from hai_flow import addresses
from hai_flow.cells import cell_of, sign_address
from hai_flow.definition.personal.pii_flow import WHOLE
from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings.selectors import name_holdings
from hai_flow.errors import Unreadable
from hai_flow.notify import channels
from hai_flow.notify.channels import App, NotifyFile, Person, TenantChannels
from hai_flow.notify.delivery import SECONDS, NotSent, Sender
from hai_flow.notify.letters import NoticeContent
from hai_flow.primitives.beside_loop import run_if_large
from hai_flow.primitives.retry_after import wait_for_try
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.pii_catalog import Personals
from hai_flow.runtime.commit.states import HEAD, state_at
from hai_flow.runtime.people.absences import find_seat, map_absences
from hai_flow.runtime.people.chat_cards import ChatCards, find_connected, is_for_chat
from hai_flow.runtime.people.delegates import AllIds
from hai_flow.runtime.people.inbox import Inbox, InboxEntry
from hai_flow.runtime.people.roster import Rosters
from hai_flow.runtime.people.undecidable import MENDERS, STRANDED
from hai_flow.steps.http.transport import HttpConfig
from hai_flow.store.commit.projection import NOTIFY, PICKED, Notice
from hai_flow.store.identity import tenants
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.people import absences, inbox, notifications
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.people.notifications import Link, Notification
from hai_flow.store.postgres.database import Database
from hai_flow.wire.pii_masking import mask_opened

log = structlog.get_logger(__name__)

LINKS: Final = "/links/"


class Queueing:
    """Takes notifications out of the outbox."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.handlers = {NOTIFY: self._queue}

    async def _queue(self, message: OutboxMessage) -> None:
        notice = msgspec.json.decode(message.body, type=Notice)
        await notifications.queue(
            self._database.api, message.command_id, message.tenant, message.run_id, notice.pending_id, notice.what,
            notice.notify, notice.person,
        )  # fmt: skip


class NotifierConfig(msgspec.Struct, frozen=True):
    """`again_seconds`: after the first try that failed; each time after twice as long, but at most `again_seconds_max`;
    `tries_max` in all. `batch_max`: under way at once. `link_base`: with which links begin; None: none are sent."""

    poll_seconds: float = 1.0
    again_seconds: float = 5.0
    again_seconds_max: float = 3600.0
    tries_max: int = 15
    batch_max: int = 20
    link_base: str | None = None


class Notifier(Service):
    """Sends notifications over the channels of the file."""

    def __init__(
        self,
        database: Database,
        inbox: Inbox,
        rosters: Rosters,
        file: NotifyFile,
        secrets: Mapping[str, str],
        http: HttpConfig,
        now: Callable[[], datetime],
        config: NotifierConfig | None = None,
        rows: Rows | None = None,
        cards: ChatCards | None = None,
    ) -> None:
        """`rosters` know where people's accounts are, and who was let go; `now` is the database's clock; `cards` sends
        those of chats."""
        super().__init__()
        self._rows = rows or Rows()
        self._cards = cards
        self._rosters = rosters
        self._now = now
        self._database = database
        self._inbox = inbox
        self._personals = Personals(inbox.catalog)
        self._file = file
        self._secrets = secrets
        self._http = http
        self.config = config or NotifierConfig()
        self._names: dict[UUID, str] = {}
        self._under_way = 0

    async def _start(self) -> None:
        self._sender = Sender(self._file, self._secrets, self._http)
        self._room = asyncio.Event()
        self._keep(self._run, "notifications")

    async def _stop(self) -> None:
        await self._end_tasks()
        await self._sender.close()

    async def _run(self) -> None:
        while True:
            count = 0
            room = self.config.batch_max - self._under_way
            try:
                count = await self._take(room) if room else 0
            except Exception as error:
                log.warning("notifications_not_taken", error=str(error) or repr(error))
            if not count:
                await asyncio.sleep(self.config.poll_seconds * random.uniform(0.8, 1.0))

    async def _take(self, room: int) -> int:
        """Begin to deal with those that are due. The time until they are given out again is longer than a try."""
        notifications_due = await notifications.due(self._database.api, room, timedelta(seconds=SECONDS * 3))
        for each in notifications_due:
            self._under_way += 1
            self._spawn(self._deal_with(each), "a notification")
        return len(notifications_due)

    async def _deal_with(self, given: Notification) -> None:
        try:
            await self._rows.deal(Sweep.NOTIFICATIONS, f"notification {given.id}", lambda: self._try(given))
        finally:
            self._under_way -= 1

    async def _try(self, given: Notification) -> None:
        try:
            if given.what == "reminded" and await notifications.is_followed(self._database.api, given):
                reason = "a newer notification of the question follows"
                await notifications.end(self._database.api, given.id, "dropped", reason)
            elif given.channel is None:
                await self._divide(given)
            elif given.person is not None and await self._rosters.has_left(
                self._database.api, given.tenant, given.person
            ):
                await notifications.end(
                    self._database.api, given.id, "dropped", "the keys of the person were revoked, or they were erased"
                )
            else:
                await self._send(given)
        except NotSent as error:
            await self._record_failure(given, str(error), error)

    async def _record_failure(self, given: Notification, reason: str, error: NotSent) -> None:
        pool = self._database.api
        if error.final or given.tries >= self.config.tries_max:
            log.error("notification_given_up", id=given.id, channel=given.channel, tries=given.tries, reason=reason)
            await notifications.end(pool, given.id, "dead", reason)
            return
        wait = wait_for_try(given.tries, self.config.again_seconds, self.config.again_seconds_max, error.after)
        log.info("notification_put_off", id=given.id, channel=given.channel, tries=given.tries, reason=reason)
        await notifications.put_off(pool, given.id, wait, reason)

    async def _divide(self, given: Notification) -> None:
        place = await self._place(given.tenant)
        selectors = await inbox.selectors_of(self._database.api, given.tenant, given.run_id, given.pending_id)
        names = place.channels if given.what == STRANDED else {text.partition(":")[0] for text in given.notify}
        credentials, all_ids = await self._rosters.find_credentials(self._database.api, given.tenant)
        connected = {
            name: await find_connected(self._inbox.of_people(all_ids), credentials, given.tenant, name)
            for name in names
            if isinstance(place.channels.get(name), App)
        }
        picked = [each.removeprefix(PICKED) for each in selectors if each.startswith(PICKED)]
        notify, people = given.notify, picked or selectors
        menders: list[channels.Recipient] = []
        if given.what == STRANDED:  # those who can mend it, over the question's channels, in mails and in chats
            mails = (name for name, channel in place.channels.items() if isinstance(channel, channels.Email))
            notify, people = tuple(dict.fromkeys((*given.notify, *mails))), list(MENDERS)
            of_chats = [f"{name}:{each}" for name in connected for each in MENDERS]
            menders = [each for each in channels.recipients(place, of_chats, (), connected) if each.person is not None]
        people = list(dict.fromkeys(id for each in people for id in all_ids(each)))  # a role has no further ids
        receivers = [*channels.recipients(place, notify, people, connected), *menders]
        away = map_absences(await absences.list_now(self._database.api, given.tenant, None), all_ids)
        if given.what != STRANDED and (away or given.person is not None):
            receivers = _reseat(place, given, receivers, people, connected, away, all_ids)
        receivers = _tell_once(receivers, all_ids)
        parts = [
            (
                notifications.derive_notification_id("\n".join((given.id, each.channel, each.person or "", each.whom))),
                *astuple(each),
            )
            for each in receivers
        ]
        await notifications.divide(self._database.api, given.id, parts)

    async def _send(self, given: Notification) -> None:
        place = await self._place(given.tenant)
        channel = place.channels.get(given.channel or "")
        if channel is None:
            log.warning("notify_channel_missing", channels=[given.channel], pending=given.pending_id)
            raise NotSent(f"there is no channel {given.channel} in the file that HAI_FLOW_NOTIFY names", final=True)
        if isinstance(channel, App):
            await self._send_card(given)
            return
        person = None if given.person is None else place.people.get(given.person, Person())
        item = await self._find_item(given, await self._principal(given, person))
        mends = given.what == STRANDED
        if item is None or (person is not None and item.obstacle is not None and not (item.for_others or mends)):
            await notifications.end(self._database.api, given.id, "dropped")
            return
        now = self._now()
        link = None
        if (
            person is not None and given.person is not None and item.obstacle is None
        ):  # a link decides for its person alone
            link = await self._link(given, given.person, person, now)
        masked = await self._mask_question(given, item)
        question = masked if person is None or mends else item.opened
        # Subjects are read by more than the receiver.
        shared = msgspec.structs.replace(question, args=masked.args, evidence=masked.evidence)
        content = NoticeContent(
            what=given.what,
            pending_id=given.pending_id,
            run_id=str(given.run_id),
            workflow=item.asked.workflow_name,
            kind=question.kind,
            title=shared.heading or "A question",
            message=question.message,
            deadline=item.asked.deadline,
            link=link,
            page=addresses.link(self.config.link_base, addresses.pending(given.pending_id)),
        )
        address = None if person is None else person.email
        await self._sender.send(channel, given.id, content, given.whom, address, now)
        await notifications.end(self._database.api, given.id, "sent")

    async def _send_card(self, given: Notification) -> None:
        """Send it as a card in a chat. A person who is named there by the document, or can mend the question, gets one
        for reading, if they may not decide."""
        if self._cards is None:
            raise NotSent("this process knows no apps in chats", final=True)
        person = (
            None
            if given.person is None
            else await self._cards.principal(given.tenant, given.channel or "", given.person)
        )
        item = await self._find_item(given, person)
        named = given.what == STRANDED or any(text.startswith(f"{given.channel}:") for text in given.notify)
        if item is None or (person is not None and item.obstacle is not None and not item.for_others and not named):
            await notifications.end(self._database.api, given.id, "dropped")
            return
        plan = await self._inbox.catalog.plan(given.tenant, item.asked.workflow)
        if not is_for_chat(plan, item.opened.tool):
            await notifications.end(self._database.api, given.id, "dropped", "the workflow keeps it out of chats")
            return
        sent = await self._cards.send(given, person)
        await notifications.end(self._database.api, given.id, "sent" if sent else "dropped")

    async def _find_item(self, given: Notification, who: c.Principal | None) -> InboxEntry | None:
        """The question, if it is open, as the person's inbox shows it."""
        inbox, who = self._inbox.of_people(await self._all_ids(given.tenant)), who or c.Principal("service:notify")
        return await inbox.item(given.tenant, who, given.run_id, given.pending_id)

    async def _mask_question(self, given: Notification, item: InboxEntry) -> e.PendingOpened:
        """The question for a channel that is not one person's own, and may have any readers."""
        opened = item.opened
        try:
            state = await state_at(self._database, given.tenant, given.run_id, HEAD)
        except Unreadable:
            state = None
        workflow = item.asked.workflow
        personal = WHOLE if state is None else await self._personals.of_run(given.tenant, workflow, state)
        return await run_if_large(opened, mask_opened, opened, personal.of(opened.path))

    async def _link(self, given: Notification, id: str, person: Person, now: datetime) -> str | None:
        if self.config.link_base is None:
            return None
        token = sign_address(secrets.token_urlsafe(32), cell_of(given.run_id))
        link = Link(
            digest=hash_secret(token),
            tenant=given.tenant,
            run_id=given.run_id,
            pending_id=given.pending_id,
            principal=id,
            roles=person.roles,
            groups=person.groups,
            expires_at=now + timedelta(hours=self._file.link_hours),
            used_at=None,
        )
        await notifications.add_link(self._database.api, link)
        return f"{self.config.link_base.rstrip('/')}{LINKS}{token}"

    async def _principal(self, given: Notification, person: Person | None) -> c.Principal | None:
        if person is None or given.person is None:
            return None
        one, *further = (await self._all_ids(given.tenant))(given.person)
        return c.Principal(one, person.roles, person.groups, aliases=tuple(further))

    async def _all_ids(self, tenant: UUID) -> AllIds:
        return (await self._rosters.find_credentials(self._database.api, tenant))[1]

    async def _place(self, tenant: UUID) -> TenantChannels:
        if tenant not in self._names:
            self._names |= {each.id: each.name for each in await tenants.list_tenants(self._database.api)}
        return self._file.place(self._names.get(tenant, ""))


def _tell_once(receivers: Sequence[channels.Recipient], all_ids: AllIds) -> list[channels.Recipient]:
    """The receivers, each person once in each channel: by the first of their ids that the channel reaches."""
    people = {(each.channel, each.person and all_ids(each.person)[0]): each for each in reversed(receivers)}
    first = {(channel, each.person) for (channel, _), each in people.items()}
    return [each for each in receivers if (each.channel, each.person) in first]


def _reseat(
    place: TenantChannels,
    given: Notification,
    receivers: Sequence[channels.Recipient],
    asked: Sequence[str],
    connected: Mapping[str, channels.Connected],
    away: Mapping[str, AbsenceRow],
    all_ids: AllIds,
) -> list[channels.Recipient]:
    """The receivers, with those who decide for people that are away in the place of these. One whose seat nobody
    holds, or whose delegate the channels do not reach, is told all the same."""
    people = [row.person for row in away.values() if _is_asked(row, asked)] if given.person is None else [given.person]
    unchanged = list(receivers) if given.person is None else []
    for person in people:
        one = all_ids(person)[0]
        holder = all_ids(find_seat(one, away, all_ids).holder or one)
        notify = dict.fromkeys(name for text in given.notify for name in _name_receivers(place, text, holder))
        theirs = [each for each in channels.recipients(place, [*notify], holder, connected) if each.person in holder]
        if theirs:
            unchanged = [*(each for each in unchanged if each.person not in all_ids(person)), *theirs]
    return list(dict.fromkeys(unchanged))


def _name_receivers(place: TenantChannels, text: str, holder: Sequence[str]) -> list[str]:
    """The channel of `notify`, for the holder of a seat: in a chat with a room their account if the document named
    people there."""
    name, _, whom = text.partition(":")
    return [f"{name}:{id}" for id in holder] if whom and isinstance(place.channels.get(name), App) else [name]


def _is_asked(row: AbsenceRow, asked: Sequence[str]) -> bool:
    return not set(asked).isdisjoint((row.person, *name_holdings(row.roles, row.groups)))
