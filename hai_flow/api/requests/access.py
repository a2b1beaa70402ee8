"""The access that one request has, as its principal: a route's only way to a run, a command or a stream.

It is made of its tenant's scope (`tenant_scope`), of what the principal may see there (`run_visibility`), and of what
they may do, which is here. It is computed once for a request."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from hai_flow.api.http.load_shedding import Admission, StreamPlace
from hai_flow.api.http.stream import EventStream, Frames
from hai_flow.api.permissions.credential_expiry import CredentialWatcher, StreamEnd, StreamLease
from hai_flow.api.permissions.principals import Principal, reject_missing_right
from hai_flow.api.permissions.rate_limits import Decisions
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.run_visibility import RunVisibility, reject_limited
from hai_flow.api.shared_lists import SharedLists
from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import demand_unreserved
from hai_flow.engine.decide import as_of
from hai_flow.engine.pendings.selectors import ids_of
from hai_flow.engine.state.instigators import list_people_behind
from hai_flow.engine.state.jobs import next_due
from hai_flow.engine.state.state import RunState
from hai_flow.errors import DefinitionError, Rejected, Unreadable
from hai_flow.primitives.beside_loop import run_by_work
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.commit.submission import Begin, Outcome
from hai_flow.runtime.streams.fanout import Following
from hai_flow.runtime.streams.stream_items import StreamItem
from hai_flow.settings import Settings, variable
from hai_flow.store.audit import audit
from hai_flow.store.catalog import workflows
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.commit.entries import Branch
from hai_flow.store.identity.keys import is_pattern_of
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.runs import threads
from hai_flow.store.runs.run_lists import RunSummary
from hai_flow.values import Json
from hai_flow.wire.dialects.dialect import Dialect, Profile
from hai_flow.wire.dialects.log import LOG

Began = TypeVar("Began", bound=Begin)
Look = TypeVar("Look")

FOLLOWER: Final = Profile(dialect=LOG.name)  # who looks at the run anew with each event, and at no frame

_BEGINS_SECONDS: Final = 0.02
_BEGINS_MAX: Final = 100  # so often it looks whether another caller has begun the thread

_RIGHTS_FOR: Final[Mapping[type[c.Command], tuple[Right, ...]]] = {
    c.Answer: (Right.ANSWER, Right.DECIDE),
    c.Stop: (Right.SPEAK, Right.CONTROL_RUNS),  # of one's own thread, to go on from an earlier turn of it
}


@dataclass(frozen=True, slots=True)
class Access(RunVisibility):
    settings: Settings
    admission: Admission
    place: StreamPlace  # of the stream that answers it, if one does
    asked: AuditActor  # the caller and the way of the request, for the audit
    peer: str  # the address that the request counts for
    decisions: Decisions
    terms: CredentialWatcher
    find_base: Callable[[], str]
    lists: SharedLists
    publishing: bool  # whether this server takes workflows over the network
    development: bool  # whether it is a development server that listens on loopback alone

    @property
    def base(self) -> str:
        """The server's own address, as the request names it, without a slash at its end."""
        return self.find_base()

    def require(self, *rights: Right) -> None:
        """Raises Rejected 403 where the caller has none of `rights`. Routes demand a right on their own; the right for
        a dialect's POST is known only after its body was read."""
        if not any(self.principal.may(right) for right in rights):
            raise reject_missing_right(rights)

    def demand_own_credential(self, code: str, detail: str) -> None:
        """Raises Rejected 403 where the caller acts for somebody else, or by a credential that is lent."""
        if self.principal.who.on_behalf_of is not None or self.principal.is_lent:
            raise Rejected(403, code, detail)

    @property
    def uploader(self) -> str:
        """The principal whose uploads the caller may use, whether or not a run refers to them; "": nobody's, where the
        credential is for some threads or workflows."""
        return "" if self.principal.is_limited else self.principal.id

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.principal.id, *self.principal.who.aliases)

    @property
    def sender(self) -> str:
        """The caller as the sender of an event, with those for whom they act, who are behind it, too. Of a token for
        somebody else its holder stands first: ids that one key makes up drive out nobody who has sent a signal."""
        id, behind = self.principal.id, self.principal.behind
        is_of_holder = self.principal.who.issuer not in (None, id)
        return " ".join((*behind[:1], id, *behind[1:]) if is_of_holder else (id, *behind))

    def acting(self, who: c.Principal) -> Access:
        """The access of the principal as the delegate `who`."""
        actor = msgspec.structs.replace(self.asked, who=who)
        return dataclasses.replace(self, principal=dataclasses.replace(self.principal, who=who), asked=actor, _seen={})

    async def of_person(self, principal: Principal) -> Access:
        """The access of a person that the request has proven by itself: by a link, or an account in a chat."""
        actor = msgspec.structs.replace(
            self.asked, who=principal.who, way=principal.way, credential=principal.credential
        )
        living = await self.cells.living(principal.tenant)
        return dataclasses.replace(self, principal=principal, living=living, asked=actor, _seen={})

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
        return dataclasses.replace(self, principal=dataclasses.replace(self.principal, behind=behind))

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
        recalled: str = "",
    ) -> Outcome:
        """Start a run of the plan. `is_new`: its thread had no owner a moment ago. `recalled`: the reference for which
        `recall_startable` gave the plan. Raises Rejected as `submit` does, as `demand_speaks` where another caller
        began the thread first, and `SUPERSEDED` where what was recalled does not hold any more."""
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
                resolved=isinstance(begin, c.Start) and not recalled,
                latest=bool(recalled) and "@" not in recalled,
            )
            if isinstance(begin, c.Fork):
                outcome = await self.runtime.branches.begin(
                    self.tenant, begin, lambda fork, promised: starting(fork, promised=promised)
                )
            elif is_new and not self.principal.is_anybody:
                outcome = await self._start_first(begin.thread_id, partial(starting, begin))
            else:
                outcome = await starting(begin)
            self.note_begun(begin, outcome)
            return outcome

    async def rehearse(self, leaving: RunSummary | None, plan: Plan, begin: Begin) -> None:
        """Raises Rejected where `stop_and_start` would refuse the run before anything is stopped."""
        self._demand_starts(plan, begin)
        await self.runtime.files.demand_all(self.tenant, self.uploader, begin, self.viewer)
        if leaving is not None:
            await self.runtime.branches.rehearse(leaving, plan, begin)

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
            self.note_begun(begin, outcome)
            return outcome

    async def enqueue(self, plan: Plan, start: c.Start, *, command_id: str, body_sha: bytes) -> None:
        """Let the start wait until its thread is free. Raises Rejected as `start` and `MessageQueue.add` do."""
        self._demand_starts(plan, start)
        start = self._with_people(start)
        with self.admission.command():
            await self._record_files(start.run_id, start)
            await self.runtime.messages.add(
                self.tenant, plan.sha256, start, self._actor_of(start), command_id=command_id, body_sha=body_sha
            )

    def _with_people(self, begin: Began) -> Began:
        """The command, with those behind it for whom the caller acts: an agent, or the token of a page."""
        behind = self.principal.behind
        if not behind:
            return begin
        if isinstance(begin, c.Fork):
            return msgspec.structs.replace(begin, behind=behind)
        return msgspec.structs.replace(begin, instigators=list_people_behind("", behind, begin.instigators))

    def _demand_starts(self, plan: Plan, begin: Begin) -> None:
        """Raises Rejected 403 where the caller may not start this run, 409 where nobody may."""
        self.require(Right.SPEAK, Right.START_RUNS, *((Right.CONTROL_RUNS,) if isinstance(begin, c.Fork) else ()))
        demand_unreserved(plan.name)
        if isinstance(begin, c.Start) and not self.principal.is_for(begin.thread_id, plan.name):
            raise reject_limited(begin.thread_id, plan.name)

    async def startable(self, reference: str, found: WorkflowSummary | None = None) -> tuple[WorkflowSummary, Plan]:
        """The workflow that a request of the caller starts; `found`: where it was read already. Raises Rejected as
        `Catalog.resolve_startable`: 403 `version_forbidden` for all but the latest version, where the caller may not
        start runs of every workflow."""
        latest_only = not self.principal.may(Right.START_RUNS)
        return await self.catalog.resolve_startable(self.tenant, reference, found, latest_only=latest_only)

    def recall_startable(self, reference: str) -> tuple[WorkflowSummary, Plan] | None:
        """As `startable` for a run that begins a thread, by what this process remembers of the reference, which
        `start` has to hold against the database (`recalled`); None: `startable` has to find it."""
        if "@" in reference and not self.principal.may(Right.START_RUNS):
            return None
        startable = self.catalog.recall_startable(self.tenant, reference)
        if startable is None or not self.runtime.starts.asks_for_version(startable[1]):
            return None
        return startable

    @property
    def may_start_any(self) -> bool:
        """Whether the caller has a right by which runs are started."""
        return self.principal.may(Right.SPEAK) or self.principal.may(Right.START_RUNS)

    def is_for_workflow(self, name: str) -> bool:
        """Whether the caller's credential is for this workflow, or for all."""
        return self.principal.workflows is None or name in self.principal.workflows

    async def list_startable(self) -> list[tuple[WorkflowSummary, Plan]]:
        """The workflows that the caller may start by request, by name, each by its latest version."""
        if not self.may_start_any:
            return []
        seat = self.at_seat
        listed: list[tuple[WorkflowSummary, Plan]] = []
        for stored in await workflows.list_workflows(seat.reads, self.tenant):
            if self.is_for_workflow(stored.name):
                with contextlib.suppress(Rejected, DefinitionError, Unreadable):  # retired, or of another release
                    listed.append(await seat.startable(stored.name, stored))
        return listed

    async def find_startable(self, name: str) -> tuple[WorkflowSummary, Plan] | None:
        """The one of `list_startable` with this name; None: there is none."""
        if self.may_start_any and self.is_for_workflow(name):
            with contextlib.suppress(Rejected, DefinitionError, Unreadable):  # none, retired, or of another release
                stored, plan = await self.at_seat.startable(name)
                return (stored, plan) if plan.name == name else None  # a name has no version in it
        return None

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

    async def note(self, act: str, **details: Any) -> None:
        """Record an act that changes nothing: that the caller has read something."""
        async with self.act() as connection:
            await self.record(connection, act, **details)

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

    async def wait_until(
        self, state: RunState, seconds: float, look: Callable[[], Awaitable[Look]], is_enough: Callable[[Look], bool]
    ) -> Look | None:
        """What `look` gives as soon as it is enough; it looks anew at each event of the run behind `state`. None: it is
        not within so many seconds, or the server has no place for one more follower. Raises Rejected 401 if the
        caller's credential ends meanwhile."""
        try:
            await self.take_place(follows=True)
        except Rejected:
            return None
        term, news, loop = self.terms.begin(self.principal), None, asyncio.get_running_loop()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, term.seconds_left)) as bound:
                    term.notify = lambda: bound.expired() or bound.reschedule(loop.time())
                    start = await self.state(UUID(state.run_id), state.seq)
                    async with contextlib.aclosing(self.follow(start, LOG, FOLLOWER)) as pieces:
                        async for _ in pieces:
                            news = await look()
                            if is_enough(news):
                                break
                            news = None
            if term.is_over:
                raise Rejected(401, *term.ending)
        finally:
            term.leave()
            self.place.leave()
        return news

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
