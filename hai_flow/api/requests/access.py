"""The access that one request has, as its principal: a route's only way to a run, a command or a stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from uuid import UUID

import msgspec

from hai_flow.api.base.id_patterns import is_run_id
from hai_flow.api.http.load_shedding import Admission, StreamPlace
from hai_flow.api.http.stream import EventStream, Frames
from hai_flow.api.permissions.credential_expiry import CredentialWatcher, StreamEnd, StreamLease
from hai_flow.api.permissions.principals import Principal, reject_missing_right
from hai_flow.api.permissions.rate_limits import Decisions
from hai_flow.api.permissions.redaction import strip_entry, strip_row
from hai_flow.api.permissions.rights import Right, may_decide
from hai_flow.api.permissions.visibility import Sight, build_reader, build_viewer, find_sight, find_sight_by_questions
from hai_flow.api.shared_lists import SharedLists
from hai_flow.cells import HOME, TenantCells
from hai_flow.definition.personal.personal import WHOLE, Personal
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.decide import as_of
from hai_flow.engine.events import PendingOpened
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.state.instigators import list_people_behind
from hai_flow.engine.state.jobs import next_due
from hai_flow.engine.state.state import PendingState, RunState
from hai_flow.errors import Rejected, Unreadable, reject_unknown_run
from hai_flow.primitives.beside_loop import run_by_work
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.cells import Cells
from hai_flow.runtime.commit.submission import Begin, Outcome
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.people.inbox import Inbox
from hai_flow.runtime.runtime import Runtime
from hai_flow.runtime.streams.fanout import Following
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.runtime.tenancy.placement import demand_seat
from hai_flow.settings import Settings, variable
from hai_flow.store.audit import audit
from hai_flow.store.catalog import workflows
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.commit.entries import Branch
from hai_flow.store.commit.projection import read_thread_entry
from hai_flow.store.identity.keys import is_pattern_of
from hai_flow.store.ops.replicas import History
from hai_flow.store.postgres.row_security import Reads
from hai_flow.store.runs import run_lists, threads
from hai_flow.store.runs.run_lists import RunRow, RunSummary
from hai_flow.store.runs.threads import Message
from hai_flow.store.runs.viewers import Viewer
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Dialect, Entry, Profile
from hai_flow.wire.personal import Mask
from hai_flow.wire.withheld import concerns, strip_conversation

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Connection, Pool

Answer = TypeVar("Answer")
Began = TypeVar("Began", bound=Begin)

HEAD: Final = 2**53  # beyond every seq: all events
_BEGINS_SECONDS: Final = 0.02
_BEGINS_MAX: Final = 100  # so often it looks whether another caller has begun the thread

_RIGHTS_FOR: Final[Mapping[type[c.Command], tuple[Right, ...]]] = {
    c.Answer: (Right.ANSWER, Right.DECIDE),
    c.Stop: (Right.SPEAK, Right.CONTROL_RUNS),  # of one's own thread, to go on from an earlier turn of it
}


class RunFacts(NamedTuple):
    """The facts of a run that decide which callers may see it, read from its state or from a row of a list."""

    id: UUID
    started_by: str
    workflow: bytes
    workflow_name: str
    thread_id: str
    is_fork: bool | None = None  # None: not known

    @classmethod
    def of(cls, state: RunState) -> RunFacts:
        id, workflow = UUID(state.run_id), bytes.fromhex(state.sha256)
        return cls(id, state.requester, workflow, state.workflow, state.thread_id, state.forked > 0)


class _Seen(NamedTuple):
    """How the caller sees a run: how much of it (`sight`), the principal that its questions take them for (`reader`),
    and the personal values that are kept from them (None: nothing is kept)."""

    sight: Sight
    reader: c.Principal
    personal: Personal | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The access that one request has, as its principal: a route's only way to a run, a command or a stream."""

    principal: Principal
    cells: Cells
    cell: int  # where the run, thread or list of the request lives
    living: TenantCells  # all cells of the tenant
    settings: Settings
    admission: Admission
    place: StreamPlace  # of the stream that answers it, if one does
    asked: AuditActor  # the caller and the way of the request, for the audit
    peer: str  # the address that the request counts for
    decisions: Decisions
    terms: CredentialWatcher
    lists: SharedLists
    publishing: bool  # whether this server takes workflows over the network
    development: bool  # whether it is a development server that listens on loopback alone
    _seen: dict[UUID, _Seen] = field(default_factory=dict)  # the runs that were looked for

    @property
    def tenant(self) -> UUID:
        return self.principal.tenant

    # --- the cell

    @property
    def runtime(self) -> Runtime:
        """The runtime over the cell. Raises Rejected 503 while it is away."""
        return self.cells.at(self.cell)

    @property
    def at_home(self) -> Access:
        """The access to home, the cell that has the tenants and credentials."""
        return self.at(HOME)

    @property
    def everywhere(self) -> Sequence[Access]:
        """The access to each of the tenant's cells."""
        return [self.at(cell) for cell in self.living.cells] if self.living.is_large else (self,)

    def at(self, cell: int) -> Access:
        """The access to the given cell."""
        return self if cell == self.cell else replace(self, cell=cell, _seen={})

    @property
    def at_seat(self) -> Access:
        """The access to the tenant's seat. It has the things that the tenant has once: workflows, schedules,
        delegations, events to all."""
        return self.at(self.living.seat)

    async def find_at_thread(self, thread_id: str) -> Access:
        """The access to the cell of a thread of the tenant; of one that is not there, to where it would begin."""
        if not self.cells.several:
            return self
        cell = await self.cells.places.of_thread(self.tenant, thread_id)
        return self.at(self.living.place(thread_id) if cell is None else cell)

    async def find_at_run(self, run_id: UUID) -> Access:
        """The access to the cell of a run of the tenant."""
        return self.at(await self.cells.places.of_run(self.tenant, run_id)) if self.cells.several else self

    async def beginning(self, plan: Plan, start: c.Start) -> Access:
        """The access to the cell where the run begins in the thread that it names. Raises Rejected as the engine does;
        503 where a cell is away whose answer is needed, 422 where the run would have to be in another cell than its
        thread."""
        if not self.living.is_large:
            return self
        await self.runtime.starts.rehearse(plan, start)  # a start that is refused in any case leaves nothing behind
        at_seat = await self.catalog.counts(self.tenant, plan)
        cell = await self.cells.places.begin(self.tenant, start.thread_id, at_seat=at_seat)
        if at_seat:
            demand_seat(cell, self.living.seat, plan.name)
        return self.at(cell)

    async def beginning_anew(self, plan: Plan, start: c.Start, id: UUID | None) -> Access:
        """The access to the cell where the run begins in a thread of its own. `id`: made of the key under which it is
        started once. Raises as `beginning`."""
        if not self.living.is_large:
            return self
        await self.runtime.starts.rehearse(plan, start)
        places, at_seat = self.cells.places, await self.catalog.counts(self.tenant, plan)
        if id is not None:
            cell = await places.begin_once(self.tenant, id, at_seat=at_seat)
        else:
            cell = self.living.seat if at_seat else await places.anywhere(self.tenant)
        if at_seat:
            demand_seat(cell, self.living.seat, plan.name)
        return self.at(cell)

    @property
    def somewhere(self) -> Access:
        """The access to any cell of the tenant that is not away; to its seat, if all are."""
        away = self.cells.away_numbers
        return self.at(next((cell for cell in self.living.cells if cell not in away), self.living.seat))

    async def repeat(self) -> None:
        """Copy changes of the tenant's seat to its other cells, before the request is answered. A cell that is away
        gets them later."""
        await self.cells.spreading.repeat(self.tenant, self.living)

    @property
    def pool(self) -> Pool:
        """The connections with which requests write, and read credentials: only these show which tenant the request is
        of."""
        return self.runtime.database.api

    @property
    def reads(self) -> Pool:
        """The connections with which requests read: behind the second wall, unless the server asks for no
        credentials."""
        if self.principal.is_anybody:
            return self.runtime.database.api
        return cast("Pool", Reads(self.runtime.database, self.tenant))

    @property
    def catalog(self) -> Catalog:
        """The workflows, read as `reads` does."""
        return self.runtime.catalog.reading(self.reads)

    @property
    def inbox(self) -> Inbox:
        """The inboxes, read as `reads` does."""
        return self.runtime.inbox.reading(self.reads, self.principal.people.all_of, may_decide)

    @property
    def uploader(self) -> str:
        """The principal whose uploads the caller may use, whether or not a run refers to them; "": nobody's, where the
        credential is for some threads or workflows."""
        return "" if self.principal.is_limited else self.principal.id

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids of the caller."""
        return (self.principal.id, *self.principal.who.aliases)

    @property
    def files(self) -> Files:
        """The files, read as `reads` does."""
        return self.runtime.files.reading(self.reads)

    def acting(self, who: c.Principal) -> Access:
        """The access of the principal as the delegate `who`."""
        actor = msgspec.structs.replace(self.asked, who=who)
        return replace(self, principal=replace(self.principal, who=who), asked=actor, _seen={})

    def acting_for(self, person: Json) -> Access:
        """The access of an agent that names the person for whom it acts: they are behind the runs that it starts, too.
        Raises Rejected 403 where its key does not speak for them."""
        if person is None:
            return self
        patterns = self.principal.speaks_for
        if not isinstance(person, str) or not any(is_pattern_of(each, person) for each in patterns):
            some = ", ".join(patterns) or "nobody"
            detail = f"you can't act for {str(person)[:100]!r}: your key speaks for {some}; an admin makes others."
            raise Rejected(403, "credential_limited", detail)
        behind = tuple(dict.fromkeys((*self.principal.behind, person)))
        return replace(self, principal=replace(self.principal, behind=behind))

    # --- runs, as far as the principal may see them

    @property
    def viewer(self) -> Viewer | None:
        """The person whose lists these are; None: they may see every run of the tenant."""
        return None if self.principal.sees_all else build_viewer(self.principal)

    async def run(self, run_id: str | UUID, least: Sight = Sight.CONVERSATION) -> RunRow:
        """The one loader of runs for requests: tenant and id together. Raises Rejected 404, also where the principal
        sees less of it than `least`."""
        row = None
        if isinstance(run_id, UUID) or is_run_id(run_id):
            row = await run_lists.get_run(self.reads, self.tenant, UUID(str(run_id)))
            if row is None:
                await self._look_for_nothing(UUID(str(run_id)))
        if row is None or await self.sight(row) < least:
            raise reject_unknown_run(run_id)
        return row

    async def sight(self, run: RunSummary) -> Sight:
        """How much of the run the principal sees."""
        if run.id not in self._seen:
            self._seen[run.id] = await self._look(run)
        return self._seen[run.id].sight

    async def find_state(self, run_id: UUID) -> RunState | None:
        """The run as it is; None: it does not exist, or the principal sees nothing of it."""
        state = await self.runtime.fanout.state_at(self.tenant, run_id, HEAD, self.reads)
        if state is None:
            return None
        if run_id not in self._seen:
            self._seen[run_id] = await self._look(RunFacts.of(state), state)
        return None if self._seen[run_id].sight is Sight.NOTHING else state

    def history(self, row: RunRow, upto: int | None = None) -> History:
        """The log of a run that was found before, up to the event `upto` (None: to its end). If no event can be added
        to that part any more, a replica may answer."""
        end = row.seq if upto is None else min(upto, row.seq)
        replica = self.runtime.replica if row.ended_at is not None or end < row.seq else None
        tenant = None if self.principal.is_anybody else self.tenant
        return History(replica, self.reads, tenant, row.id, row.created_at, end)

    async def past(self, ask: Callable[[Pool], Awaitable[Answer]]) -> Answer:
        """The answer of `ask`, for a list of runs that are over. A replica may give it, if it has all that the database
        has now. Whether the caller may see those runs is always read from the database."""
        replica, walled = self.runtime.replica, not self.principal.is_anybody
        answer = None if replica is None else await replica.ask_replica_now(self.tenant, walled, ask)
        return await ask(self.reads) if answer is None else answer

    async def state_of(self, row: RunRow, seq: int | None = None) -> RunState:
        """As `state`, of a run whose row was read. `seq` None: as of that row, or later."""
        return await self.state(row.id, HEAD if seq is None else seq, self.history(row, seq))

    async def state(self, run_id: UUID, seq: int = HEAD, history: History | None = None) -> RunState:
        """The fold of the first `seq` events of a run that was found before, whatever the principal sees of it. Raises
        Rejected 404 where the run was removed since."""
        state = await self.runtime.fanout.state_at(self.tenant, run_id, seq, self.reads, history)
        if state is None:
            raise reject_unknown_run(run_id)
        if run_id not in self._seen and state.sha256:
            self._seen[run_id] = await self._look(RunFacts.of(state), state)
        return state

    def require(self, *rights: Right) -> None:
        """Raises Rejected 403 where the caller has none of `rights`. Routes demand a right on their own; the right for
        a dialect's POST is known only after its body was read."""
        if not any(self.principal.may(right) for right in rights):
            raise reject_missing_right(rights)

    def seen(self, state: RunState) -> RunState:
        """The run in `state`, which was found before, without the parts that are kept from the principal."""
        id = UUID(state.run_id)
        if not self.can_see_conversation(id):
            return strip_conversation(state, self.reader(id))
        mask = self.mask(id)
        return state if mask is None else mask.state(state)

    def mask(self, run_id: UUID) -> Mask | None:
        """The mask that keeps personal values of the run from the principal; None: they see all of them. Of a run that
        was not found before, every value is kept from them."""
        if self.principal.is_anybody:
            return None
        sight = self._seen.get(run_id, _Seen(Sight.NOTHING, self.principal.who, WHOLE))
        return None if sight.personal is None else Mask(sight.personal, sight.reader)

    async def personal(self, run: RunSummary | RunFacts) -> Personal | None:
        """The personal values of a run that are kept from the principal; None: nothing is kept."""
        if self.principal.is_anybody:
            return None
        return None if await self._is_own(run) else await self._personal_in(run)

    async def personal_of_run(self, run: RunSummary | RunFacts) -> Personal:
        """The personal values of a run, whoever reads it."""
        return await self._personal_in(run)

    async def redact_rows(self, runs: Iterable[RunRow]) -> list[RunRow]:
        """Rows of a list of runs that the principal may see, without the personal values that are kept from them."""
        return [strip_row(run, await self.personal(run)) for run in runs]

    async def redact_question(self, run: RunFacts, opened: PendingOpened) -> PendingOpened:
        """A question of a list, without the personal values that are kept from the principal."""
        personal = await self.personal(run)
        if personal is None or not personal.anything:
            return opened
        forked = run.started_by in ids_of(self.principal.who)
        mask = Mask(personal, None if forked else await self._build_reader(run.workflow))
        return mask.pending(PendingState(opened), personal).opened

    async def redact_entries(self, stored: Sequence[Message]) -> list[tuple[Message, Entry]]:
        """Entries of a thread's transcript, without the personal values that are kept from the principal."""
        entries = [(each, read_thread_entry(each.role, each.body)) for each in stored]
        if self.principal.is_anybody or not stored:
            return entries
        runs = await run_lists.get_runs(self.reads, self.tenant, {each.run_id for each in stored})
        personal = {run.id: await self.personal(run) for run in runs}
        return [(each, strip_entry(entry, personal.get(each.run_id, WHOLE))) for each, entry in entries]

    def can_see_conversation(self, run_id: UUID) -> bool:
        """Whether the principal sees more of the run than questions of their own. False for one that was not found."""
        return self.principal.sees_all or self._get_seen(run_id).sight >= Sight.CONVERSATION

    def sees_evidence(self, run: RunState, pending: PendingState) -> bool:
        """Whether the evidence of the run's question is for the principal: they see all, or it is their question."""
        if self.principal.sees_all:
            return True
        if run.requester in ids_of(self.principal.who):
            return (pending.opened.policy or {}).get("asks_requester", True)
        return concerns(pending, self.reader(UUID(run.run_id)))

    def reader(self, run_id: UUID) -> c.Principal:
        """The principal that the run's questions take the caller for: with the roles that its workflow gives them."""
        return self._get_seen(run_id).reader

    def _get_seen(self, run_id: UUID) -> _Seen:
        return self._seen.get(run_id, _Seen(Sight.NOTHING, self.principal.who))

    async def _look(self, run: RunSummary | RunFacts, state: RunState | None = None) -> _Seen:
        principal, who = self.principal, self.principal.who
        if principal.is_anybody:
            return _Seen(Sight.ALL, who)
        if not principal.sees_all and not principal.is_for(run.thread_id, run.workflow_name):
            return _Seen(Sight.NOTHING, who)
        if await self._is_own(run):
            return _Seen(Sight.ALL if principal.sees_all else Sight.CONVERSATION, who)
        if principal.sees_all:
            personal = await self._personal_in(run, state)
            return _Seen(Sight.ALL, await self._build_reader(run.workflow) if personal.anything else who, personal)
        visibility = await workflows.visibility_of(self.reads, self.tenant, run.workflow)
        reader = await self._build_reader(run.workflow)
        sight = find_sight(who, run.started_by, visibility)
        if sight is None:
            state = state or await self.runtime.fanout.state_at(self.tenant, run.id, HEAD, self.reads)
            sight = find_sight_by_questions(reader, state)
        return _Seen(sight, reader, await self._personal_in(run, state) if sight >= Sight.CONVERSATION else None)

    async def _look_for_nothing(self, run_id: UUID) -> None:
        """Send the same statements as for a run of somebody else, so that the time of the answer does not reveal
        whether there is one."""
        if not self.principal.sees_all:
            await workflows.visibility_of(self.reads, self.tenant, bytes(32))
            await self.runtime.fanout.state_at(self.tenant, run_id, HEAD, self.reads)

    async def _is_own(self, run: RunSummary | RunFacts) -> bool:
        """Whether the principal has started the run, and each run that it was forked from: forking another person's run
        shows them no more of it."""
        current: RunSummary | RunFacts | None = run
        while current is not None and current.started_by in ids_of(self.principal.who):
            if isinstance(current, RunFacts):
                if current.is_fork is False:
                    return True
                current = await run_lists.get_run(self.reads, self.tenant, current.id)
            elif not current.copied or current.branch_of is None:
                return not current.copied
            else:
                current = await run_lists.get_run(self.reads, self.tenant, current.branch_of)
        return False

    async def _personal_in(self, run: RunSummary | RunFacts, state: RunState | None = None) -> Personal:
        personals, pins = self.runtime.personals, {}
        if await personals.has_children(self.tenant, run.workflow):
            try:
                state = state or await self.runtime.fanout.state_at(self.tenant, run.id, HEAD, self.reads)
            except Unreadable:  # another release's log: its pins are not known here
                return WHOLE
            pins = {} if state is None else state.pins
        return await personals.of(self.tenant, run.workflow, pins)

    async def _build_reader(self, workflow: bytes) -> c.Principal:
        """The principal as the workflow's questions know them."""
        who = self.principal.who
        try:
            return build_reader(who, (await self.catalog.plan(self.tenant, workflow)).roles)
        except Unreadable:  # this release can't read the meaning of its roles
            return msgspec.structs.replace(who, roles=())

    # --- threads: the right to speak in them

    def can_speak_in(self, last: RunSummary | None) -> bool:
        """Whether the principal may speak in the thread whose newest run is `last`: the thread is theirs and their
        credential is for it, or it has no run yet."""
        if last is None or self.principal.is_anybody:
            return True
        return self._has_begun(last) and self.principal.is_for(last.thread_id, last.workflow_name)

    def _has_begun(self, run: RunSummary) -> bool:
        return run.started_by in ids_of(self.principal.who)

    async def demand_speaks(self, thread_id: str, last: RunSummary | None) -> None:
        """Raises Rejected unless the principal may speak in the thread: 404 where they see nothing of it, else 403, as
        for a thread that does not exist where it is theirs and their credential is for others."""
        if last is None or self.can_speak_in(last):
            return
        if self._has_begun(last):
            raise _reject_limited(thread_id, last.workflow_name)
        if await self.sight(last) is Sight.NOTHING:
            raise thread_unknown(thread_id)
        raise Rejected(
            403,
            "thread_foreign",
            f"thread {thread_id[:100]!r} belongs to somebody else: you may read it and answer what you are asked, but "
            "only they speak in it. Begin a thread of your own.",
        )

    async def last_run(self, thread_id: str) -> RunSummary | None:
        """The newest run of the thread itself, not of a child; None: there is none, or the principal sees nothing of
        it."""
        last = await threads.last_run(self.reads, self.tenant, thread_id)
        return None if last is None or await self.sight(last) is Sight.NOTHING else last

    # --- features of the server

    def require_publishing(self) -> None:
        """Raises Rejected 403 where this server takes no workflows over the network."""
        if not self.publishing:
            raise Rejected(
                403,
                "publishing_off",
                f"this server takes no workflows over the network; set {variable('publish')}=1 where it runs if "
                "those who can call it may do all that its tools can.",
            )

    def require_development(self, what: str, code: str) -> None:
        """Raises Rejected 403, with `code`, where this is no development server."""
        if not self.development:
            raise Rejected(
                403,
                code,
                f"{what}: only a development server (`hai-flow dev`) that listens on loopback alone does that.",
            )

    async def current(self, state: RunState) -> RunState:
        """The run in `state` as an answer finds it now: deadlines hold, whether or not their timers have fired."""
        now = self.runtime.committer.now_ms()
        due = next_due(state, attempts=False)
        if due is None or due.at > now:
            return state
        plan = await self.catalog.plan(self.tenant, bytes.fromhex(state.sha256))
        return await run_by_work(as_of, plan, state, now)

    async def submit(
        self, run_id: UUID, command: c.Command, *, command_id: str | None, body_sha: bytes, seat: str | None = None
    ) -> Outcome:
        """Decide and commit. Raises Rejected; 429 before anything is stored, 404 for a file of somebody else's."""
        self.require(*_RIGHTS_FOR.get(type(command), (Right.CONTROL_RUNS,)))
        with self.admission.command():
            if isinstance(command, c.Answer) and command.answers:
                self.decisions.take(self.tenant, self.principal.id, self.peer)
            await self._record_files(run_id, command)
            submitting = partial(
                self.runtime.committer.submit,
                run_id,
                self.tenant,
                command_id=command_id,
                body_sha=body_sha,
                asked=self._actor_of(command),
            )
            if isinstance(command, (c.Retry, c.Skip)):
                return await self.runtime.branches.go_on(
                    self.tenant,
                    run_id,
                    command,
                    lambda current, slot, active: submitting(current, seat=slot, active=active),
                )
            return await submitting(command, seat=seat)

    async def start(
        self,
        plan: Plan,
        begin: Begin,
        *,
        command_id: str,
        body_sha: bytes,
        branch: Branch | None = None,
        is_new: bool = False,
    ) -> Outcome:
        """Start a run of the plan. `is_new`: its thread had no owner a moment ago. Raises Rejected as `submit` does,
        and as `demand_speaks` where another caller began the thread first."""
        self._demand_starts(plan, begin)
        begin = self._with_people(begin)
        with self.admission.command():
            if isinstance(begin, c.Fork) and begin.answer.answers:
                self.decisions.take(self.tenant, self.principal.id, self.peer)
            await self._record_files(begin.run_id, begin)
            starting = partial(
                self.runtime.starts.start,
                self.tenant,
                plan,
                command_id=command_id,
                body_sha=body_sha,
                branch=branch,
                asked=self._actor_of(begin),
                resolved=isinstance(begin, c.Start),
            )
            if isinstance(begin, c.Fork):
                outcome = await self.runtime.branches.begin(
                    self.tenant, begin, lambda fork, promised: starting(fork, promised=promised)
                )
            elif is_new and not self.principal.is_anybody:
                outcome = await self._start_first(begin.thread_id, partial(starting, begin))
            else:
                outcome = await starting(begin)
            self._record_begun(begin, outcome)
            return outcome

    async def rehearse(self, leaving: RunSummary | None, plan: Plan, begin: Begin) -> None:
        """Raises Rejected where `stop_and_start` would refuse the run before anything is stopped."""
        self._demand_starts(plan, begin)
        await self.runtime.files.demand_all(self.tenant, self.principal.id, begin, self.viewer)
        if leaving is not None:
            await self.runtime.branches.rehearse(leaving, plan, begin)

    def _record_begun(self, begin: Begin, outcome: Outcome) -> None:
        if not outcome.already:  # else it may be another's run
            self._seen.pop(begin.run_id, None)
            if isinstance(begin, c.Start):  # of a fork it depends on the run that it was forked from
                self._seen[begin.run_id] = _Seen(Sight.CONVERSATION, self.principal.who)

    async def stop_and_start(
        self,
        leaving: RunSummary,
        stop: c.Stop,
        plan: Plan,
        begin: Begin,
        *,
        stop_id: str,
        command_id: str,
        body_sha: bytes,
        branch: Branch | None = None,
    ) -> Outcome:
        """Stop the thread's active run `leaving`, and begin another in its place (`Branches.succeed`). Raises Rejected
        as `start` does, before anything is stopped."""
        self._demand_starts(plan, begin)
        begin = self._with_people(begin)
        with self.admission.command():
            if isinstance(begin, c.Fork) and begin.answer.answers:
                self.decisions.take(self.tenant, self.principal.id, self.peer)
            await self._record_files(begin.run_id, begin)
            if isinstance(begin, c.Fork):
                await self.runtime.branches.hand_files(self.tenant, begin)
            outcome = await self.runtime.branches.succeed(
                leaving,
                stop,
                plan,
                begin,
                stop_id=stop_id,
                command_id=command_id,
                body_sha=body_sha,
                branch=branch,
                asked=self._actor_of(begin),
            )
            self._record_begun(begin, outcome)
            return outcome

    async def enqueue(self, plan: Plan, start: c.Start, *, command_id: str, body_sha: bytes) -> None:
        """Let the start wait until its thread is free. Raises Rejected as `start` and `MessageQueue.add` do."""
        self._demand_starts(plan, start)
        start = self._with_people(start)
        with self.admission.command():
            await self._record_files(start.run_id, start)
            await self.runtime.messages.add(
                self.tenant,
                plan.sha256,
                start,
                self._actor_of(start),
                command_id=command_id,
                body_sha=body_sha,
            )

    def _with_people(self, begin: Began) -> Began:
        """The command, with those behind it for whom the caller acts, if it is an agent."""
        if not self.principal.behind or not isinstance(begin, c.Start):
            return begin
        return msgspec.structs.replace(
            begin, instigators=list_people_behind("", begin.instigators, self.principal.behind)
        )

    def _demand_starts(self, plan: Plan, begin: Begin) -> None:
        """Raises Rejected 403 where the caller may not start this run."""
        self.require(Right.SPEAK, Right.START_RUNS, *((Right.CONTROL_RUNS,) if isinstance(begin, c.Fork) else ()))
        if isinstance(begin, c.Start) and not self.principal.is_for(begin.thread_id, plan.name):
            raise _reject_limited(begin.thread_id, plan.name)

    async def startable(self, reference: str, found: WorkflowSummary | None = None) -> tuple[WorkflowSummary, Plan]:
        """The workflow that a request of the caller starts; `found`: where it was read already. Raises Rejected as
        `Catalog.resolve_startable`: 403 `version_forbidden` for all but the latest version, where the caller may not
        start runs of every workflow."""
        latest_only = not self.principal.may(Right.START_RUNS)
        return await self.catalog.resolve_startable(self.tenant, reference, found, latest_only=latest_only)

    async def _start_first(self, thread_id: str, starting: Callable[..., Awaitable[Outcome]]) -> Outcome:
        """Begin the thread, which is then the principal's. If several callers begin it at once, one gets it; the others
        are refused as they would be a moment later."""
        for more in range(_BEGINS_MAX, -1, -1):
            try:
                outcome = await starting(owners=ids_of(self.principal.who))
            except Rejected as rejected:
                last = await threads.last_run(self.reads, self.tenant, thread_id)
                await self.demand_speaks(thread_id, last)
                if rejected.code != "thread_busy" or last is not None or not more:
                    raise
                await asyncio.sleep(_BEGINS_SECONDS)  # the first one has not begun yet, and may not
                continue
            if outcome.already:
                await self.demand_speaks(thread_id, await threads.last_run(self.reads, self.tenant, thread_id))
            return outcome
        raise AssertionError("the last try returns or raises")

    def hint_lists(self) -> None:
        """Have open lists of the tenant read anew, because of a change that is no commit of a run."""
        self.runtime.hint_lists(self.tenant)

    @contextlib.asynccontextmanager
    async def act(self) -> AsyncGenerator[Connection]:
        """The transaction of an act that is no command for a run. Its record is written in it (`record`). Raises
        Rejected 429."""
        with self.admission.command():
            async with self.pool.acquire() as connection, connection.transaction():
                yield connection

    async def record(
        self,
        connection: Connection,
        act: str,
        *,
        subject: str | None = None,
        digest: bytes | None = None,
        run_id: UUID | None = None,
        **details: Any,
    ) -> None:
        """Record that the caller did `act`, in the transaction of the act."""
        row = self.asked.row(act, subject=subject, digest=digest, **details)
        await audit.write(connection, self.tenant, [row], run_id=run_id)

    def _actor_of(self, command: c.Command) -> AuditActor:
        via = command.answer.via if isinstance(command, c.Fork) else getattr(command, "via", None)
        return msgspec.structs.replace(self.asked, via=via or self.asked.via)

    async def _record_files(self, run_id: UUID, command: c.Command) -> None:
        await self.runtime.files.use_all(self.tenant, self.uploader, run_id, command, self.viewer)

    def follow(
        self,
        start: RunState,
        dialect: Dialect,
        profile: Profile,
        *,
        last: Callable[[StreamItem], StreamItem] | None = None,
    ) -> Following:
        """The pieces of the events after `start`, as they are committed, until a terminal one. `last` may rewrite that
        one. A stream costs least if it has no other pieces."""
        return self.runtime.fanout.follow(UUID(start.run_id), dialect, profile, start, last=last)

    async def take_place(self, *, follows: bool) -> None:
        """Take the place of the stream that answers the request; `follows`: it changes nothing. Raises Rejected 429,
        also where the tenant has as many followers as it may."""
        self.place.followers_max = (await self.cells.home.tenants.limits(self.tenant)).followers or 0
        self.place.take(follows=follows)

    async def stream(
        self,
        begin: Callable[[], Awaitable[Frames]],
        dialect: Dialect,
        farewell: Callable[[StreamEnd], bytes],
        *,
        follows: bool = True,
    ) -> EventStream:
        """The response that streams the pieces of `begin` in the dialect's framing. Its place is taken first: 429
        before anything is stored. `follows`: `begin` changes nothing, so the stream only gets a place for followers.
        The stream ends when its reader's credential does."""
        await self.take_place(follows=follows)
        try:
            pieces = await begin()
        except BaseException:
            self.place.leave()
            raise
        term = self.terms.begin(self.principal)
        return EventStream(
            pieces,
            framing=dialect.framing,
            keepalive_seconds=self.settings.keepalive_seconds,
            stall_seconds=self.settings.follower_stall_seconds,
            farewell=farewell,
            closed=partial(_leave, self.place, term),
            term=term,
        )


def _leave(place: StreamPlace, term: StreamLease) -> None:
    place.leave()
    term.leave()


def thread_unknown(thread_id: str) -> Rejected:
    """The refusal of a thread that does not exist, or of which the caller sees nothing."""
    return Rejected(404, "thread_unknown", f"there is no thread {thread_id[:100]!r}.")


def _reject_limited(thread_id: str, workflow: str) -> Rejected:
    """The refusal of a credential that is for other threads or workflows."""
    detail = f"your credential is not for a thread {thread_id[:100]!r} of {workflow}."
    return Rejected(403, "credential_limited", detail)
