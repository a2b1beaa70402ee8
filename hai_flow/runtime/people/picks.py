"""Picks some of the people that a question asks, who alone decide it: `pick` of a policy (docs/language.md#people). A
message of the run's commit asks for it, and a sweep looks whether all picked people can still decide. Each pick is an
event, under a lock of the tenant, since it counts the picks before it. Where the people of the roster are too few, the
pick is empty, its note says so, and everybody with the role may decide."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec
import structlog

from hai_flow.engine import commands as c
from hai_flow.engine.pendings import votes
from hai_flow.engine.pendings.deadlines import PICK
from hai_flow.engine.pendings.eligibility import ineligible
from hai_flow.engine.pendings.selectors import World, list_excluding_selectors
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.people.delegates import AllIds
from hai_flow.runtime.people.roster import Roster, Rosters
from hai_flow.runtime.people.undecidable import ignore_picks, list_minds, look_by_turns, name_question, read_question
from hai_flow.store.commit.projection import PICKED
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.people import absences, inbox, picks, undecidable
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.people.inbox import OpenQuestion
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import Database

log = structlog.get_logger(__name__)

SECONDS: Final = 5.0
_ACTOR: Final = AuditActor(who=c.Principal("service:hai-flow"), way="pick")


def list_able(pending: PendingState, roster: Roster, away: Sequence[AbsenceRow], world: World) -> list[str]:
    """The people that may decide the question, picked or not, and are not away, each by their one id. An
    absence that an excluded person has entered does not count: the requester would choose the deciders. Where several
    must agree, of an agent and its people only the people: together they have one vote."""
    rules, open_to_all = derive_rules(pending), ignore_picks(pending)
    absent = {
        roster.all_ids(row.person)[0]
        for row in away
        if not list_excluding_selectors(rules.exclude, roster.name_person(c.Principal(row.entered_by)), world)
    }
    merged: dict[str, c.Principal] = {}
    for each in roster.list_people(rules.notify):  # by all keys of each person, and the file of channels
        other = merged.get(each.id, each)
        roles, groups = (*other.roles, *each.roles), (*other.groups, *each.groups)
        through = tuple(dict.fromkeys((*other.through, *each.through)))
        merged[each.id] = c.Principal(each.id, roles, groups, issuer=each.issuer, aliases=each.aliases, through=through)
    able = [each for id, each in merged.items() if id not in absent and ineligible(open_to_all, each, world) is None]
    return [each.id for each in able] if rules.quorum == 1 else list_minds(able)


def choose_people(
    pending: PendingState, able: Sequence[str], load: Mapping[str, int], all_ids: AllIds
) -> tuple[tuple[str, ...], str]:
    """The people that decide the question: the picked ones that are able still, or have voted, and then those with the
    least `load`; a hash decides between equals. None and a note, where there are too few: the whole role decides."""
    rules, spent = derive_rules(pending), _list_voters(pending, all_ids)
    number = rules.pick or 1
    picked = dict.fromkeys(all_ids(id)[0] for id in rules.picked or ())
    staying = [id for id in picked if id in able or id in spent]
    others = [id for id in able if id not in staying and id not in spent]
    others.sort(key=lambda id: (load.get(id, 0), sha256(f"{pending.opened.id} {id}".encode()).digest()))
    people = (*staying, *others[: number - len(staying)])
    if len(people) < number:
        return (), f"{number} of those whom it asks were to be picked, and {len(people)} can decide, so all may decide"
    return people, ""


def _list_voters(pending: PendingState, all_ids: AllIds) -> set[str]:
    return {all_ids(id)[0] for id in votes.voters(pending.votes)}


class Picks(Service):
    """Picks people for questions, and replaces those that can decide no more. `handlers` are for the outbox."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        catalog: Catalog,
        rosters: Rosters,
        rows: Rows,
        *,
        sweeps: bool = True,
    ) -> None:
        """`sweeps`: this process replaces people."""
        super().__init__()
        self._database = database
        self._committer = committer
        self._catalog = catalog
        self._rows = rows
        self._rosters = rosters
        self._sweeps = sweeps
        self._one_by_one = asyncio.Lock()  # so that no more than one connection waits for the lock of a tenant

    @property
    def handlers(self) -> dict[str, Callable[[OutboxMessage], Awaitable[None]]]:
        return {PICK: self._take}

    async def _start(self) -> None:
        if self._sweeps:
            self._keep(self._run, "people who are picked")

    async def _take(self, message: OutboxMessage) -> None:
        await self.pick(message.tenant, message.run_id, msgspec.json.decode(message.body)["id"])

    async def _run(self) -> None:
        await look_by_turns(self._database.api, "picks", SECONDS, self.look)

    async def look(self) -> None:
        """Pick for all questions that wait for it, or with a picked person that can decide no more."""
        tenants = await undecidable.list_selectors(self._database.api)
        await self._rows.go_through(Sweep.PICKS, tenants.items(), lambda each: f"tenant {each[0]}", self._look_through)

    async def _look_through(self, row: tuple[UUID, Sequence[str]]) -> None:
        pool = self._database.api
        tenant, selectors = row
        picked = [each for each in selectors if each.startswith(PICKED)]
        async for questions in inbox.iterate_pages(pool, tenant, picked):
            roster, away = await self._rosters.load(pool, tenant), await absences.list_now(pool, tenant, None)
            look = partial(self._look_at, tenant, roster, away)
            await self._rows.go_through(Sweep.PICKS, questions, name_question, look)

    async def _look_at(self, tenant: UUID, roster: Roster, away: Sequence[AbsenceRow], question: OpenQuestion) -> None:
        judged = await read_question(self._catalog, tenant, question)
        if judged is None:
            return
        pending, world = judged
        rules, spent = derive_rules(pending), _list_voters(pending, roster.all_ids)
        able = list_able(pending, roster, away, world)
        picked = {roster.all_ids(id)[0] for id in rules.picked or ()}
        has_changed = any(id not in able and id not in spent for id in picked)
        if rules.picked is None or has_changed or len(picked) < len(rules.picked):
            await self.pick(tenant, question.run_id, question.id)

    async def pick(self, tenant: UUID, run_id: UUID, pending_id: str) -> None:
        """Pick for the question, where that changes anything."""
        async with self._one_by_one, self._database.api.acquire() as connection, connection.transaction():
            await picks.lock(connection, tenant)
            command = await self._choose(connection, tenant, run_id, pending_id)
            if command is None:
                return
            try:
                await self._committer.submit(run_id, tenant, command, asked=_ACTOR)
            except Rejected as rejected:  # decided meanwhile, or the sweep finds it again
                log.info("people_not_picked", pending=pending_id, why=rejected.detail)

    async def _choose(self, connection: Connection, tenant: UUID, run_id: UUID, pending_id: str) -> c.PickPeople | None:
        """None: the question is open no more, has no `pick`, or its picked people can decide."""
        question = await inbox.get_asked(connection, tenant, run_id, pending_id)
        judged = None if question is None else await read_question(self._catalog, tenant, question)
        if judged is None:
            return None
        pending, world = judged
        rules = derive_rules(pending)
        if rules.pick is None or rules.picked == ():
            return None
        roster, away = await self._rosters.load(connection, tenant), await absences.list_now(connection, tenant, None)
        able, all_ids = list_able(pending, roster, away, world), roster.all_ids
        open_picks = await picks.count_open(connection, tenant, [id for one in able for id in all_ids(one)], pending_id)
        load = {one: sum(open_picks.get(id, 0) for id in all_ids(one)) for one in able}
        people, note = choose_people(pending, able, load, all_ids)
        if note and not roster.is_complete:
            note += "; whom an issuer gives a role, this server learns from its file of channels"
        if people == rules.picked:
            return None
        stages = len(rules.escalations)
        return c.PickPeople(id=pending_id, stages_left=stages, before=rules.picked, people=people, note=note)
