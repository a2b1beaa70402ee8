"""Finds open questions that nobody can decide, and tells those who can mend it: operators and admins of the tenant.

Whether somebody can is looked up in the roster (keys, and the people of the file of channels) and absences, whichever
of them has changed, every few seconds and by one process. Where a roster is not complete, a question is stranded only
if it asks people by name who are away and have left their seat to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import structlog

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.pendings.eligibility import obstacle
from hai_flow.engine.pendings.selectors import World, list_matching_selectors
from hai_flow.engine.pendings.votes import derive_rules, describe_needs, ids_of_voter
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import HaiFlowError
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.people.absences import find_seat, map_absences
from hai_flow.runtime.people.roster import Roster, Rosters
from hai_flow.store.commit.projection import PICKED
from hai_flow.store.identity.proofs import Holding
from hai_flow.store.people import absences, inbox, notifications, undecidable
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.people.inbox import OpenQuestion
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES

log = structlog.get_logger(__name__)

STRANDED: Final = "stranded"
MENDERS: Final = ("role:operator", "role:admin")
SECONDS: Final = 10.0
FEW: Final = 20  # of a selector that more people match, somebody can decide
JUDGED_MAX: Final = 2_000
_votes = msgspec.json.Decoder(e.VoteCast)


def list_minds(people: Iterable[c.Principal]) -> list[str]:
    """The ids of the people whose votes count beside one another: with several seats a person has one vote, and of an
    agent and its people the people have it."""
    minds, spent = list[str](), set[str]()
    for each in sorted(people, key=lambda each: len(each.through) if each.issuer else -1):
        ids = {each.id, *(ids_of_voter(each) if each.issuer else ())}
        if spent.isdisjoint(ids):
            minds.append(each.id)
            spent |= ids
    return minds


class Staff:
    """The deciders of a tenant, and who of them is away."""

    def __init__(self, roster: Roster, away: Sequence[AbsenceRow]) -> None:
        self.roster = roster
        self._away = map_absences(away, roster.all_ids)

    def list_doubtful(self, selectors: Sequence[str]) -> list[str]:
        """The selectors that may match no decider."""
        return [each for each in selectors if self._is_doubtful(each)]

    def _is_doubtful(self, selector: str) -> bool:
        if not self.roster.is_complete:
            return self.roster.all_ids(selector)[0] in self._away
        people, world = self.roster.list_people(None), World("", {})
        matching = [each for each in people if list_matching_selectors((selector,), each, world)]
        return len(matching) <= FEW

    def find_fault(self, pending: PendingState, world: World) -> str | None:
        """Why nobody can decide the question, or not as many as it needs; None: enough people can."""
        rules = derive_rules(pending)
        is_complete = self.roster.is_complete
        if not is_complete and not all(each.startswith("user:") for each in rules.from_):
            return None
        named = () if is_complete else (self.roster.name_person(c.Principal(each)) for each in rules.from_)
        people = self.roster.list_people(rules.notify) if is_complete else list(named)
        holdings = {each.id: Holding(frozenset(each.roles), frozenset(each.groups)) for each in people}
        needed = 1
        if pending.opened.kind in ("approve", "gate"):
            missing: Mapping[str, int] = describe_needs(pending)["missing"]  # type: ignore[assignment]
            needed = max(1, missing["people"])
        voices: list[c.Principal] = []
        faults: dict[str, None] = {}
        for person in people:
            if not list_matching_selectors(rules.from_, person, world):
                continue
            voice = self._give_voice(person, holdings, faults)
            if voice is None:
                continue
            fault = obstacle(pending, voice, world)
            if fault is not None:
                faults[fault.reason] = None
            else:
                voices.append(voice)
        able = len(list_minds(voices))
        if able >= needed:
            return None
        if able:
            return f"it needs {needed} more people, and {able} can decide"
        if matched := [each for each in faults if each]:
            return "; ".join(matched[:3])
        if self.roster.file.people:
            return f"nobody with a key or in the file of channels matches {', '.join(rules.from_)}"
        return f"nobody with a key matches {', '.join(rules.from_)}"

    def _give_voice(
        self, person: c.Principal, holdings: Mapping[str, Holding], faults: dict[str, None]
    ) -> c.Principal | None:
        """The person, or whoever holds their seat while they are away."""
        all_ids = self.roster.all_ids
        if person.id not in self._away:
            return person
        seat = find_seat(person.id, self._away, all_ids)
        if seat.holder is None or (self.roster.is_complete and seat.holder not in holdings):
            faults[seat.why or f"{person.id} is away, and {seat.holder} has no key to decide with"] = None
            return None
        holding = holdings.get(seat.holder, Holding(frozenset(), frozenset()))
        return c.Principal(
            seat.holder,
            tuple(holding.roles or ()),
            tuple(holding.groups),
            on_behalf_of=person.id,
            lent_roles=person.roles,
            lent_groups=person.groups,
            aliases=tuple(all_ids(seat.holder)[1:]),
            lent_aliases=person.aliases,
            through=(
                *person.through,
                *self.roster.list_held(seat.holder),
                *seat.list_selectors_between(all_ids, holdings),
            ),
        )


class _Verdict(NamedTuple):
    """Why nobody can decide the question; None: somebody can."""

    tenant: UUID
    question: OpenQuestion
    fault: str | None


@dataclass(slots=True)
class _Look:
    """One round: the number of tenants looked through, their questions that may be stranded, and the verdicts."""

    tenants: int = 0
    keys: set[tuple[UUID, str]] = field(default_factory=set)
    verdicts: dict[tuple[UUID, str], _Verdict] = field(default_factory=dict)


class Stranded(Service):
    """Marks questions that nobody can decide, and queues one notification for each."""

    def __init__(self, database: Database, catalog: Catalog, rosters: Rosters, rows: Rows) -> None:
        super().__init__()
        self._database = database
        self._catalog = catalog
        self._rows = rows
        self._rosters = rosters

    async def _start(self) -> None:
        self._keep(self._run, "questions that nobody can decide")

    async def _run(self) -> None:
        await look_by_turns(self._database.api, STRANDED, SECONDS, self.look)

    async def look(self) -> None:
        """Judge the questions that may be stranded, and those that were."""
        pool = self._database.api
        look = _Look()
        tenants = await undecidable.list_selectors(pool)
        judge = partial(self._judge_tenant, look)
        await self._rows.go_through(Sweep.STRANDED, tenants.items(), lambda each: f"tenant {each[0]}", judge)
        is_complete = look.tenants == len(tenants)
        good = {key for key, verdict in look.verdicts.items() if verdict.fault is None}
        for key in await undecidable.list_marked(pool):
            if key in good or (is_complete and key not in look.keys):
                async with self._database.engine.acquire() as connection:
                    await undecidable.mark(connection, *key, None)
        faulty = [each for each in look.verdicts.values() if each.fault is not None]
        await self._rows.go_through(Sweep.STRANDED, faulty, lambda each: name_question(each.question), self._mark)

    async def _judge_tenant(self, look: _Look, row: tuple[UUID, Sequence[str]]) -> None:
        pool = self._database.api
        tenant, selectors = row
        roster = await self._rosters.load(pool, tenant)
        staff = Staff(roster, await absences.list_now(pool, tenant, None))
        selectors = [each for each in selectors if not each.startswith(PICKED)]
        judge, count = partial(self._judge, tenant, staff, look.verdicts), 0
        async for questions in inbox.iterate_pages(pool, tenant, staff.list_doubtful(selectors)):
            count += len(questions)
            look.keys |= {(each.run_id, each.id) for each in questions}
            await self._rows.go_through(Sweep.STRANDED, questions, name_question, judge)
            if count >= JUDGED_MAX:
                break
        look.tenants += 1

    async def _judge(
        self, tenant: UUID, staff: Staff, verdicts: dict[tuple[UUID, str], _Verdict], question: OpenQuestion
    ) -> None:
        fault, judged = None, await read_question(self._catalog, tenant, question)
        if judged is not None:
            pending, world = judged
            fault = staff.find_fault(ignore_picks(pending), world)
        verdicts[question.run_id, question.id] = _Verdict(tenant, question, fault)

    async def _mark(self, verdict: _Verdict) -> None:
        tenant, question, fault = verdict.tenant, verdict.question, verdict.fault or ""
        async with self._database.engine.acquire() as connection, connection.transaction():
            since = await undecidable.mark(connection, question.run_id, question.id, fault[:1000])
            if since is None:
                return
            notify = derive_rules(PendingState(e.decode_pending(question.body))).notify
            id = notifications.derive_notification_id(f"{STRANDED} {question.run_id} {question.id} {since}")
            await notifications.queue(connection, id, tenant, question.run_id, question.id, STRANDED, notify)
        log.warning("question_stranded", pending=question.id, reason=fault)


async def look_by_turns(pool: Pool, name: str, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
    """Call `look` every so many seconds, in one of the processes, for ever; one that fails is followed by the next."""
    while True:
        try:
            if await orphan_cleanup.take(pool, name, timedelta(seconds=seconds)) is not None:
                await look()
        except FAILURES as error:
            log.warning("look_failed", look=name, error=str(error) or repr(error))
        await asyncio.sleep(seconds / 2)


def name_question(question: OpenQuestion) -> str:
    """As logs name its row."""
    return f"question {question.id} of {question.run_id}"


async def read_question(catalog: Catalog, tenant: UUID, question: OpenQuestion) -> tuple[PendingState, World] | None:
    """The question with its votes, and its world; None: a newer release wrote it, which looks after it."""
    try:
        pending = PendingState(e.decode_pending(question.body), votes=tuple(map(_votes.decode, question.votes)))
        derive_rules(pending)
        plan = await catalog.plan(tenant, question.workflow)
    except (HaiFlowError, msgspec.DecodeError):
        return None
    return pending, World(question.started_by, plan.roles, tuple((question.instigators or "").split()))


def ignore_picks(pending: PendingState) -> PendingState:
    """The question without its `pick`: other people can be picked."""
    policy: Any = pending.opened.policy
    if not policy or "pick" not in policy:
        return pending
    bare = {name: each for name, each in policy.items() if name not in ("pick", "picked", "pick_note")}
    return msgspec.structs.replace(pending, opened=msgspec.structs.replace(pending.opened, policy=bare))
