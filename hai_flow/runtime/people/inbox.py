"""People's inboxes: the questions that a principal can decide now, and why not, where it can't.

The index (`store/people/inbox`) finds the pendings that ask a person; the rules of each pending say whether they may
decide it. Both are read in one statement, without any run's log. `tidy` writes the index for pendings of releases that
had none."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings.eligibility import NOT_ASKED, Obstacle, obstacle
from hai_flow.engine.pendings.selectors import World, principal_selectors
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected, Unreadable
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.people import delegates
from hai_flow.runtime.people.absences import find_seat, list_voices, map_absences
from hai_flow.runtime.people.delegates import AllIds, MayDecide
from hai_flow.store.commit.projection import list_selectors_asked, words_of
from hai_flow.store.identity import proofs
from hai_flow.store.messaging import hints
from hai_flow.store.people import absences, delegations, inbox
from hai_flow.store.people.delegations import Delegation
from hai_flow.store.people.inbox import Filters, OpenQuestion, Place
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import EVERYTHING, Database
from hai_flow.store.postgres.error_classes import passing
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page

COUNTED_MAX: Final = 10_000
Correction: TypeAlias = tuple[inbox.InboxRow, str, str, str]
"""A pending with its selectors, kind and words, as its rows in the inbox should have them."""

_votes = msgspec.json.Decoder(e.VoteCast)


class InboxEntry(msgspec.Struct, frozen=True):
    """A pending in a principal's inbox. `obstacle`: why the principal may not decide it; `for_others`: on whose behalf
    it may. `pending` has only the fields that the rules need."""

    asked: OpenQuestion
    pending: PendingState
    obstacle: Obstacle | None
    for_others: tuple[str, ...] = ()

    @property
    def opened(self) -> e.PendingOpened:
        return self.pending.opened

    @property
    def shows_evidence(self) -> bool:
        """Whether the principal may, or could once, decide it: then the evidence is shown."""
        return self.obstacle is None or self.obstacle.code == "voted" or bool(self.for_others)

    @property
    def is_theirs(self) -> bool:
        """Whether it asks the principal, or a person whose delegate the principal is."""
        return self.obstacle is None or self.obstacle.code != NOT_ASKED or bool(self.for_others)


class _Watch:
    """The streams that show lists of one tenant, and when they were hinted last."""

    def __init__(self) -> None:
        self.streams: set[asyncio.Event] = set()
        self.hinted_at = 0.0


class Inbox:
    """Reads inboxes, and keeps their index whole."""

    def __init__(
        self, database: Database, catalog: Catalog, rows: Rows | None = None, home: Database | None = None
    ) -> None:
        """`home`: the database that has the credentials of people, where that is another one."""
        self.database = database
        self._credentials: Pool = (home or database).api
        self._rows = rows or Rows()
        self.reads: Pool = database.api
        self.catalog = catalog
        self._watching: dict[UUID, _Watch] = {}
        self._all_ids: AllIds = lambda id: (id,)
        self._may_decide: MayDecide = lambda roles: True

    def reading(self, reads: Pool, all_ids: AllIds, may_decide: MayDecide) -> Inbox:
        """The same inboxes for a request, which reads with `reads`. `all_ids`: the people of its tenant. `may_decide`:
        which roles let them decide."""
        view = copy.copy(self)
        view.reads, view.catalog = reads, self.catalog.reading(reads)
        view._all_ids, view._may_decide = all_ids, may_decide
        return view

    def of_people(self, all_ids: AllIds) -> Inbox:
        """The same inboxes, in a tenant with these people."""
        return self.reading(self.reads, all_ids, self._may_decide)

    async def in_force(self, tenant: UUID, found: Sequence[Delegation]) -> list[Delegation]:
        """Those of the delegations that hold now, each with what its giver still has."""
        return await delegates.in_force(self._credentials, tenant, found, self._all_ids, self._may_decide)

    def hint(self, payload: str) -> None:
        """Call this after a commit, which may have a question or an answer. A payload names the tenants of such
        commits; one with ids of runs concerns nobody here, and EVERYTHING everybody."""
        named = self._watching.keys() if payload == EVERYTHING else hints.parse_tenants(payload) or ()
        for tenant in named:
            watch = self._watching.get(tenant)
            if watch is not None:
                watch.hinted_at = time.monotonic()
                for hinted in watch.streams:
                    hinted.set()

    def last_hint(self, tenant: UUID) -> float:
        """When the last hint about inboxes of the tenant came, as `time.monotonic` has it; nobody knows it unless
        somebody watches."""
        watch = self._watching.get(tenant)
        return 0.0 if watch is None else watch.hinted_at

    @property
    def watchers(self) -> int:
        """How many streams wait for hints."""
        return sum(len(watch.streams) for watch in self._watching.values())

    @contextlib.contextmanager
    def watch(self, tenant: UUID, hinted: asyncio.Event) -> Iterator[asyncio.Event]:
        """Let `hinted` be set whenever inboxes of the tenant may have changed."""
        watch = self._watching.setdefault(tenant, _Watch())
        watch.streams.add(hinted)
        try:
            yield hinted
        finally:
            watch.streams.discard(hinted)
            if not watch.streams and self._watching.get(tenant) is watch:
                del self._watching[tenant]

    async def page(
        self, tenant: UUID, who: c.Principal, filters: Filters, *, limit: int, after: Place | None = None
    ) -> tuple[list[InboxEntry], Place | None]:
        """The questions to the principal, the next deadline first; and where to go on, if there are more. A page may be
        short, though there is more."""
        voices = await self.list_voices_of(tenant, who)
        rows, following = await inbox.page_of_inbox(
            self.reads, tenant, _selectors(voices), filters, limit=limit, after=after
        )
        items = [await self._item(tenant, voices, each) for each in rows]
        return [each for each in items if each.is_theirs], following

    async def item(self, tenant: UUID, who: c.Principal, run_id: UUID, pending_id: str) -> InboxEntry | None:
        """An open pending as the principal's inbox shows it, also one that does not ask them."""
        row = await inbox.get_asked(self.reads, tenant, run_id, pending_id)
        voices = await self.list_voices_of(tenant, who)  # also where there is none: no clock tells
        return None if row is None else await self._item(tenant, voices, row)

    async def representing(self, tenant: UUID, who: c.Principal, other: str) -> c.Principal:
        """The principal as the delegate of `other`, by a delegation or by absences. Raises Rejected 403 where there is
        none."""
        granted = await delegations.to_person(self.reads, tenant, (who.id, *who.aliases), self._all_ids(other))
        granted = await self.in_force(tenant, granted)
        if granted and who.on_behalf_of is None:
            return self._delegate(who, granted[0])
        person = self._all_ids(other)[0]
        if who.on_behalf_of is None:
            for voice in await self._list_seats(tenant, who):
                if voice.on_behalf_of == person:
                    return voice
        away = map_absences(await absences.list_now(self.reads, tenant, None), self._all_ids)
        why = find_seat(person, away, self._all_ids).why if person in away else ""
        raise Rejected(
            403,
            "delegation_missing",
            f"{other} has not delegated to {who.id}, or not for now{f': {why}' if why else ''}; they do that with POST "
            "/v1/inbox/delegations, or with POST /v1/absences for the days of an absence. A delegation ends with the "
            "key, session or token by which it was made, and with the roles by which they may decide.",
        )

    async def list_voices_of(self, tenant: UUID, who: c.Principal) -> list[c.Principal]:
        """The principal; and the principal as the delegate of each person that has delegated to them, or is away and
        whose seat is theirs."""
        if who.on_behalf_of is not None:
            return [who]
        granted = await delegations.to_person(self.reads, tenant, (who.id, *who.aliases))
        granted = await self.in_force(tenant, granted)
        newest = {self._all_ids(each.from_id)[0]: each for each in reversed(granted)}
        seats = [each for each in await self._list_seats(tenant, who) if each.on_behalf_of not in newest]
        return [who, *(self._delegate(who, each) for each in newest.values()), *seats]

    async def _list_seats(self, tenant: UUID, who: c.Principal) -> list[c.Principal]:
        rows = await absences.list_now(self.reads, tenant, (who.id, *who.aliases))
        if not rows:
            return []
        load_holdings = partial(proofs.load_holdings_of_people, self._credentials, tenant)
        return await list_voices(who, rows, self._all_ids, partial(self.in_force, tenant), load_holdings)

    def _delegate(self, who: c.Principal, delegation: Delegation) -> c.Principal:
        other, *further = self._all_ids(delegation.from_id)
        return msgspec.structs.replace(
            who,
            on_behalf_of=other,
            lent_roles=tuple(delegation.roles),
            lent_groups=tuple(delegation.groups),
            lent_aliases=tuple(further),
            through=(*who.through, *delegation.held),
        )

    async def counts(self, tenant: UUID, who: c.Principal) -> tuple[dict[str, int], bool]:
        """How many open pendings of each workflow ask the principal, and whether all were counted."""
        selectors = _selectors(await self.list_voices_of(tenant, who))
        return await inbox.count_by_workflow(self.reads, tenant, selectors, COUNTED_MAX)

    async def _item(self, tenant: UUID, voices: Sequence[c.Principal], asked: OpenQuestion) -> InboxEntry:
        pending = build_unreadable(asked.id)
        try:
            readable = PendingState(e.decode_pending(asked.body))
            derive_rules(readable)
            pending = readable
            votes = tuple(map(_votes.decode, asked.votes))
            behind = tuple((asked.instigators or "").split())
            world = await self._world(tenant, asked.workflow, asked.started_by, behind)
            pending = PendingState(readable.opened, votes=votes)
            obstacles = [obstacle(pending, each, world) for each in voices]
        except (Unreadable, msgspec.DecodeError):
            fault = Obstacle("unreadable", "a newer release wrote it, which alone can judge it")
            return InboxEntry(asked, pending, fault)
        others = [
            each.on_behalf_of or each.id for each, fault in zip(voices[1:], obstacles[1:], strict=True) if not fault
        ]
        mine = obstacles[0]
        if mine is not None and mine.code == NOT_ASKED and not others:  # it asks others, and they may not
            mine = next((each for each in obstacles if each is not None and each.code != NOT_ASKED), mine)
        return InboxEntry(asked, pending, mine, tuple(others))

    async def _world(self, tenant: UUID, workflow: bytes, requester: str, behind: tuple[str, ...] = ()) -> World:
        """Raises Unreadable: the workflow is of a release that this one can't read."""
        return World(requester, (await self.catalog.plan(tenant, workflow)).roles, behind)

    async def fill(self) -> None:
        """Compare the whole index with the open pendings, a page at a time: after a release without one."""
        after: list[Any] | None = None
        while (after := (await self._mend(after)).last) is not None:
            pass

    async def tidy(self, every: timedelta) -> None:
        """Compare a page of the index with the open pendings, unless another process just did."""
        pool = self.database.api
        await orphan_cleanup.sweep(pool, "inbox", every, self._mend)
        await orphan_cleanup.sweep(pool, "inbox.closed", every, partial(inbox.delete_closed, pool))

    async def _mend(self, after: list[Any] | None) -> Page:
        listed = await inbox.open_page(self.database.api, after)
        wrong: list[Correction] = []

        async def judge(each: inbox.InboxRow) -> None:
            if (correction := await self._correction(each)) is not None:
                wrong.append(correction)

        await self._rows.go_through(Sweep.INBOX, listed, lambda each: f"pending {each.id}", judge)
        if wrong:
            await self._write(wrong)
        last = listed[-1] if len(listed) == PAGE_ROWS else None
        key = None if last is None else [str(last.tenant), last.opened_at.isoformat(), last.id]
        return Page(len(listed), len(wrong), key)

    async def _write(self, wrong: Sequence[Correction]) -> None:
        """Write all of them at once; where the database refuses something in them, one by one."""
        pool = self.database.api
        try:
            await inbox.mend(pool, wrong)
        except Exception as error:
            if passing(error):
                raise
            await self._rows.go_through(Sweep.INBOX, wrong, _name_of, lambda each: inbox.mend(pool, [each]))

    async def _correction(self, listed: inbox.InboxRow) -> Correction | None:
        try:
            opened = e.decode_pending(listed.body)
            world = await self._world(listed.tenant, listed.workflow, listed.started_by)
            asks: Sequence[str] = list_selectors_asked(PendingState(opened), world)
        except Unreadable:
            return None  # a process of the release that wrote it sees to it
        if listed.current and set(asks) == set(listed.asks):
            return None
        return listed, " ".join(asks), opened.kind, words_of(opened)


def _name_of(wrong: Correction) -> str:
    return f"pending {wrong[0].id}"


def build_unreadable(pending_id: str) -> PendingState:
    """A question of which this release can read nothing but its place."""
    return PendingState(e.PendingOpened(at=0, id=pending_id, path="", kind="ask", digest=""))


def _selectors(voices: Sequence[c.Principal]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(selector for voice in voices for selector in principal_selectors(voice)))
