"""The runs and threads that the caller of a request may see, and how much of each: found once, then remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import UUID

import msgspec

from hai_flow import values
from hai_flow.api.base.id_patterns import is_run_id
from hai_flow.api.permissions.visibility import Sight, build_reader, build_viewer, find_sight, find_sight_by_questions
from hai_flow.api.requests.tenant_scope import TenantScope
from hai_flow.definition.personal.pii_flow import WHOLE, Personal, list_uncovered
from hai_flow.definition.personal.pii_marks import mask_object, mask_value
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import disguise_state, find_disguise, is_canary, read_disguise
from hai_flow.engine.events import Error, PendingOpened, Pin
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.state.state import MessageState, PendingState, RunState
from hai_flow.errors import Rejected, StoreError, Unreadable, reject_unknown_run
from hai_flow.primitives.beside_loop import run_by_size, run_if_large
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.submission import Begin, Outcome
from hai_flow.store.catalog import workflows
from hai_flow.store.commit.projection import read_thread_entry
from hai_flow.store.messaging.concurrency_slots import derive_thread_slot
from hai_flow.store.ops.replicas import History
from hai_flow.store.people import pendings
from hai_flow.store.postgres.connections import Pool
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.runs import run_lists, threads
from hai_flow.store.runs.run_lists import RunRow, RunSummary
from hai_flow.store.runs.threads import Message
from hai_flow.store.runs.viewers import Viewer
from hai_flow.wire.dialects.dialect import Entry
from hai_flow.wire.pii_masking import Mask, message, strip_personal, tool_call
from hai_flow.wire.reader_redaction import concerns, strip_conversation

Answer = TypeVar("Answer")
HEAD: Final = 2**53  # beyond every seq: all events


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
class RunVisibility(TenantScope):
    """What the principal may see. `permissions.visibility` decides; this reads what it decides on."""

    _seen: dict[UUID, _Seen] = field(default_factory=dict, kw_only=True)  # the runs that were looked for

    def at(self, cell: int) -> Self:
        return self if cell == self.cell else dataclasses.replace(self, cell=cell, _seen={})

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
        return await self._disguise_row(row)

    async def changed_run(self, outcome: Outcome, before: RunRow | None = None) -> RunRow:
        """The run behind a command of the principal's, without the personal values that are kept from them. `before`:
        its row as it was read in front of the command; None: the command has begun it.

        It is as it was committed, where that was this time and in this process, else as it is read. What is done is no
        failure: where it can't be read, it is as far as it is known, with every personal value kept that may be."""
        id, cached = outcome.run_id, self._peek_committed(outcome)
        row = before if cached is None else _to_row(cached, before)
        if cached is None and before is not None and not outcome.already:
            row = dataclasses.replace(before, status=outcome.status, seq=outcome.seq, ended_at=None, result=None)
        try:
            if cached is None or row is None or id not in self._seen or not _has_whole_row(cached, before):
                return (await self.redact_rows([await self.run(id)]))[0]
            personal = None if self._seen[id].personal is None else await self._personal_in(row, cached.state)
        except (Rejected, StoreError, *FAILURES):
            if row is None:
                raise
            personal = None if id in self._seen and self._seen[id].personal is None else WHOLE
        return await run_by_size(len(row.input or b"") + len(row.result or b""), strip_row, row, personal)

    async def read_started(self, outcome: Outcome, least: Sight) -> RunState:
        """As `read`, of the run that the principal has begun: no statement where that was in this process."""
        cached = self._peek_committed(outcome)
        if cached is None:
            return await self.read(outcome.run_id, least)
        id, state = outcome.run_id, cached.state
        if id not in self._seen:
            self._seen[id] = await self._look(RunFacts.of(state), state)
        if self._seen[id].sight < least:
            raise reject_unknown_run(id)
        return disguise_state(state)

    def _peek_committed(self, outcome: Outcome) -> CachedRun | None:
        """The run in this process, where the command was committed this time, and what is known of it holds that."""
        cached = None if outcome.already else self.runtime.committer.peek(outcome.run_id)
        return None if cached is None or cached.state.seq < outcome.seq or cached.created_at is None else cached

    async def sight(self, run: RunSummary) -> Sight:
        """How much of the run the principal sees."""
        if run.id not in self._seen:
            self._seen[run.id] = await self._look(run)
        return self._seen[run.id].sight

    async def read(self, run_id: str | UUID, least: Sight = Sight.CONVERSATION) -> RunState:
        """The run as it is, by one statement, where its row and its state would be two. Raises Rejected 404, also where
        the principal sees less of it than `least`."""
        id = UUID(str(run_id)) if isinstance(run_id, UUID) or is_run_id(run_id) else None
        state = None if id is None else await self.find_state(id)
        if id is not None and state is None and id not in self._seen and not self.principal.sees_all:
            await workflows.visibility_of(self.reads, self.tenant, bytes(32))  # as for a run of somebody else
        if id is None or state is None or self._seen[id].sight < least:
            raise reject_unknown_run(run_id)
        return disguise_state(state)

    async def find_state(self, run_id: UUID, outcome: Outcome | None = None) -> RunState | None:
        """The run as it is; None: it does not exist, or the principal sees nothing of it. `outcome`: that of a command
        of theirs for it, which the state has to hold: no statement where that was committed in this process."""
        cached = None if outcome is None else self._peek_committed(outcome)
        if cached is None:
            state = await self.runtime.fanout.state_at(self.tenant, run_id, HEAD, self.reads)
        else:
            state = cached.state
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
        return disguise_state(state)

    async def seen(self, state: RunState) -> RunState:
        """The run in `state`, which was found before, without the parts that are kept from the principal."""
        id = UUID(state.run_id)
        if not self.can_see_conversation(id):
            return strip_conversation(state, self.reader(id))
        mask = self.mask(id)
        return state if mask is None else await run_if_large(state, mask.state, state)

    def mask(self, run_id: UUID) -> Mask | None:
        """The mask that keeps personal values of the run from the principal; None: they see all of them. Of a run that
        was not found before, every value is kept from them."""
        if self.principal.is_anybody:
            return None
        sight = self._seen.get(run_id, _Seen(Sight.NOTHING, self.principal.who, WHOLE))
        return None if sight.personal is None else Mask(sight.personal, sight.reader)

    async def find_with_forms(self, runs: Sequence[RunSummary | RunFacts]) -> set[UUID]:
        """Those of the runs whose tools may have asked people for personal values, by one statement: of these alone the
        states are read. The values that are masked by it must have been read before."""
        if self.principal.is_anybody:
            return set()
        personals = self.runtime.personals
        of = {each: await personals.of(self.tenant, each, {}) for each in {run.workflow for run in runs}}
        ids = {run.id for run in runs if of[run.workflow].depends_on_answers}
        return await pendings.find_runs_with_marked_forms(self.reads, self.tenant, ids) if ids else ids

    async def personal(self, run: RunSummary | RunFacts, with_forms: Container[UUID] | None = None) -> Personal | None:
        """The personal values of a run that are kept from the principal; None: nothing is kept. `with_forms`: of a
        page with this run (`find_with_forms`)."""
        if self.principal.is_anybody:
            return None
        return None if await self._is_own(run) else await self._personal_in(run, with_forms=with_forms)

    async def personal_of_run(self, run: RunSummary | RunFacts, with_forms: Container[UUID] | None = None) -> Personal:
        """The personal values of a run, whoever reads it."""
        return await self._personal_in(run, with_forms=with_forms)

    async def list_unhidden(
        self, run: RunSummary, state: RunState, plan: Plan, pins: Mapping[str, Pin], mapping: Mapping[str, str]
    ) -> list[str]:
        """The parts of a run whose personal values are kept from the principal, and would not be if it went on with the
        version `plan`, in which steps are named by `mapping`."""
        before = None if run.workflow == plan.sha256 else await self.personal(run)
        if before is None or not before.anything:
            return []
        after = await self.runtime.personals.of_run(
            self.tenant, plan.sha256, msgspec.structs.replace(state, pins={**state.pins, **pins})
        )
        old = await self.catalog.plan(self.tenant, run.workflow)
        paths = {old.ids.get(was, was): plan.ids.get(now, now) for was, now in mapping.items()}
        return list(list_uncovered(before, after, paths))

    async def redact_rows(self, runs: Sequence[RunRow], with_forms: Container[UUID] | None = None) -> list[RunRow]:
        """Rows of a list of runs that the principal may see, without the personal values that are kept from them."""
        with_forms = await self.find_with_forms(runs) if with_forms is None else with_forms
        rows: list[RunRow] = []
        for run in runs:
            size, personal = len(run.input or b"") + len(run.result or b""), await self.personal(run, with_forms)
            rows.append(await run_by_size(size, strip_row, run, personal))
        return rows

    async def redact_question(self, run: RunFacts, opened: PendingOpened, with_forms: Container[UUID]) -> PendingOpened:
        """A question of a list, without the personal values that are kept from the principal."""
        personal = await self.personal(run, with_forms)
        if personal is None:
            return opened
        forked = run.started_by in ids_of(self.principal.who)
        mask = Mask(personal, None if forked else await self._build_reader(run.workflow))
        return (await run_if_large(opened, mask.pending, PendingState(opened), personal)).opened

    async def redact_entries(self, stored: Sequence[Message]) -> list[tuple[Message, Entry]]:
        """Entries of a thread's transcript, without the personal values that are kept from the principal."""
        entries = [(each, read_thread_entry(each.role, each.body)) for each in stored]
        if self.principal.is_anybody or not stored:
            return entries
        runs = await run_lists.get_runs(self.reads, self.tenant, {each.run_id for each in stored})
        with_forms = await self.find_with_forms(runs)
        personal = {run.id: await self.personal(run, with_forms) for run in runs}
        return [
            (each, await run_if_large(entry, strip_entry, entry, personal.get(each.run_id, WHOLE)))
            for each, entry in entries
        ]

    def can_see_conversation(self, run_id: UUID) -> bool:
        """Whether the principal sees more of the run than questions of their own. False for one that was not found."""
        sight = self._get_seen(run_id).sight
        return sight >= Sight.CONVERSATION or (self.principal.sees_all and sight is Sight.NOTHING)

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
        if is_canary(run.workflow_name, run.started_by) and not await self._has_ended(run, state):
            return await self._look_at_canary(run, state)
        if not principal.sees_all and not principal.is_for(run.thread_id, run.workflow_name):
            return _Seen(Sight.NOTHING, who)
        if await self._is_own(run):
            return _Seen(Sight.ALL if principal.sees_all else Sight.CONVERSATION, who)
        if principal.sees_all:
            personal = await self._personal_in(run, state)
            may_hide = personal.anything or personal.depends_on_answers
            return _Seen(Sight.ALL, await self._build_reader(run.workflow) if may_hide else who, personal)
        visibility = await workflows.visibility_of(self.reads, self.tenant, run.workflow)
        reader = await self._build_reader(run.workflow)
        sight = find_sight(who, run.started_by, visibility)
        if sight is None:
            state = state or await self.runtime.fanout.state_at(self.tenant, run.id, HEAD, self.reads)
            sight = find_sight_by_questions(reader, state)
        return _Seen(sight, reader, await self._personal_in(run, state) if sight >= Sight.CONVERSATION else None)

    async def _has_ended(self, run: RunSummary | RunFacts, state: RunState | None) -> bool:
        if isinstance(run, RunSummary):
            return run.ended_at is not None
        state = state or await self.runtime.fanout.state_at(self.tenant, run.id, HEAD, self.reads)
        return state is None or state.ended

    async def _look_at_canary(self, run: RunSummary | RunFacts, state: RunState | None) -> _Seen:
        """Of a seeded question there is only the question until it is decided: the rest of the run would tell it from a
        real one."""
        reader = await self._build_reader(run.workflow)
        state = state or await self.runtime.fanout.state_at(self.tenant, run.id, HEAD, self.reads)
        disguise = None if state is None else find_disguise(state)
        own = disguise is not None and disguise.requester in ids_of(self.principal.who)
        if disguise is not None and not own and self.principal.is_for(run.thread_id, disguise.workflow):
            sight = Sight.QUESTIONS if self.principal.sees_all else find_sight_by_questions(reader, state)
            return _Seen(sight, reader)
        return _Seen(Sight.NOTHING, reader)

    def note_begun(self, begin: Begin, outcome: Outcome) -> None:
        """The principal has begun a run, which is theirs to see."""
        if not outcome.already:  # else it may be another's run
            self._seen.pop(begin.run_id, None)
            if isinstance(begin, c.Start):  # of a fork it depends on the run that it was forked from
                self._seen[begin.run_id] = _Seen(Sight.CONVERSATION, self.principal.who)

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

    async def _personal_in(
        self, run: RunSummary | RunFacts, state: RunState | None = None, with_forms: Container[UUID] | None = None
    ) -> Personal:
        personals = self.runtime.personals
        if not await personals.has_children(self.tenant, run.workflow):
            personal = await personals.of(self.tenant, run.workflow, {})
            if not personal.depends_on_answers:
                return personal
            if state is None and run.id not in (
                await self.find_with_forms([run]) if with_forms is None else with_forms
            ):
                return personal
        try:
            state = state or await self.runtime.fanout.state_at(self.tenant, run.id, HEAD, self.reads)
        except Unreadable:  # another release's log: its pins and answers are not known here
            return WHOLE
        if state is None:
            return await personals.of(self.tenant, run.workflow, {})
        return await personals.of_run(self.tenant, run.workflow, state)

    async def _build_reader(self, workflow: bytes) -> c.Principal:
        """The principal as the workflow's questions know them."""
        who = self.principal.who
        try:
            return build_reader(who, (await self.catalog.plan(self.tenant, workflow)).roles)
        except Unreadable:  # this release can't read the meaning of its roles
            return msgspec.structs.replace(who, roles=())

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
            raise reject_limited(thread_id, last.workflow_name)
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
        return None if last is None or await self.sight(last) is Sight.NOTHING else await self.disguise(last)

    async def disguise(self, run: RunSummary) -> RunSummary:
        """The run as `disguise_state` shows it; one that was removed since is as it was."""
        if run.ended_at is not None or not is_canary(run.workflow_name, run.started_by):
            return run
        row = await run_lists.get_run(self.reads, self.tenant, run.id)
        return run if row is None else await self._disguise_row(row)

    async def _disguise_row(self, run: RunRow) -> RunRow:
        """The row of a run as `disguise_state` shows the run."""
        if run.ended_at is not None or not is_canary(run.workflow_name, run.started_by):
            return run
        disguise = None if run.input is None else read_disguise(values.loads(run.input))
        if disguise is None:
            return run
        workflow = bytes.fromhex(disguise.sha256)
        return dataclasses.replace(
            run,
            workflow=workflow,
            workflow_name=disguise.workflow,
            workflow_version=disguise.version,
            workflow_title=await self.catalog.find_title(self.tenant, workflow),
            started_by=disguise.requester,
            instigators=None,
        )


def _to_row(run: CachedRun, before: RunRow | None) -> RunRow:
    """The row of a run that this process has moved, or begun (`before` None), as far as its state has that."""
    state, plan, created_at = run.state, run.plan, run.created_at
    assert plan is not None, "it has decided"
    assert created_at is not None, "its commit has won"
    moved: dict[str, Any] = {
        "status": state.status,
        "seq": state.seq,
        "version": run.version,
        "ended_at": None,
        "result": None,
        "unreadable": None,
        "instigators": " ".join(state.all_instigators),
        "held": " ".join(sorted(set(state.held.values()))),
    }
    if before is not None:
        return dataclasses.replace(before, **moved)
    return RunRow(
        id=run.id,
        tenant=run.tenant,
        workflow=plan.sha256,
        workflow_name=plan.name,
        workflow_version=plan.version,
        dev=state.dev,
        thread_id=state.thread_id,
        parent_id=None,
        parent_path=None,
        queue=plan.queue,
        slot=derive_thread_slot(state.thread_id),
        started_by=state.requester,
        created_at=created_at,
        branch_of=None,
        follows=None,
        copied=0,
        workflow_title=plan.title or None,
        input=values.dumps(state.input),
        **moved,
    )


def _has_whole_row(run: CachedRun, before: RunRow | None) -> bool:
    """Whether `_to_row` lacks nothing: the line about the run that its workflow computes; its end and result; and of a
    run that was begun, the one that it comes from."""
    state, plan = run.state, run.plan
    if plan is None or plan.summary is not None or state.ended:
        return False
    return not (state.forked or state.parent) if before is None else before.workflow == plan.sha256


def thread_unknown(thread_id: str) -> Rejected:
    """The refusal of a thread that does not exist, or of which the caller sees nothing."""
    return Rejected(404, "thread_unknown", f"there is no thread {thread_id[:100]!r}.")


def reject_limited(thread_id: str, workflow: str) -> Rejected:
    """The refusal of a credential that is for other threads or workflows."""
    detail = f"your credential is not for a thread {thread_id[:100]!r} of {workflow}."
    return Rejected(403, "credential_limited", detail)


def strip_row(run: RunRow, personal: Personal | None) -> RunRow:
    """A run without its personal input, output and error."""
    if personal is None or not personal.anything:
        return run
    input, result = run.input, run.result
    if input is not None:
        input = values.dumps(mask_object(values.loads(input), personal.input))
    if result is not None:
        ended = values.loads(result)
        if "output" in ended:
            ended["output"] = mask_value(ended["output"], personal.output)
        if ended.get("error") is not None:
            error = strip_personal(msgspec.convert(ended["error"], Error), personal)
            ended["error"] = msgspec.to_builtins(error)
        result = values.dumps(ended)
    return dataclasses.replace(run, input=input, result=result)


def strip_entry(entry: Entry, personal: Personal | None) -> Entry:
    """A message or a call of a thread."""
    if personal is None or not personal.anything:
        return entry
    return message(entry, personal) if isinstance(entry, MessageState) else tool_call(entry, personal)
