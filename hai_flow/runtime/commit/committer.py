"""Commands in, commits out: the one door through which anything happens to a run.

The head of this package says how it works. The rules, each with its reason in docs/design/store.md:

* a batch holds at most one entry per run, and a run is in at most one batch in flight;
* a winner learns from the statement itself whether it holds the run (`claims`);
* only a win proves that a state was fresh: a refusal from a cached state is answered after loading the tail;
* a batch refused for its data is halved until the culprit is alone; the others commit;
* a decision compares `version`, that of the holder `fence`, too, and streamed chunks compare `fence` alone;
* after three losses a run is taken alone;
* a repeated command id gets the first outcome, with another body 409;
* an unknown outcome publishes nothing: the run is loaded, and callers are answered from there.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterable
from datetime import datetime
from itertools import takewhile
from typing import Final
from uuid import UUID

import structlog

from hai_flow.definition.plan import Plan
from hai_flow.engine import commands as c
from hai_flow.engine.decide import decide
from hai_flow.engine.decision import Decision
from hai_flow.engine.draft import DecisionContext, Sources, ToolSchemas, know_no_schema, pin_nothing
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.engine.state.state import RunState
from hai_flow.engine.steps.agents import Talk
from hai_flow.errors import Rejected, StoreError
from hai_flow.primitives import instants
from hai_flow.primitives.beside_loop import is_large, run_beside_loop, run_by_work
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.base.trace_parent import ASKER
from hai_flow.runtime.commit.batch_recovery import BatchRecovery
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.context import Clock, CommitContext, FindPlan, RecallPlan, WantsEnds
from hai_flow.runtime.commit.decider import Decider
from hai_flow.runtime.commit.freeze_cache import Freezes
from hai_flow.runtime.commit.hints import Carrier, Hints, Notify
from hai_flow.runtime.commit.hooks import Listeners
from hai_flow.runtime.commit.lanes import CommitPipeline
from hai_flow.runtime.commit.loader import Loader, Snapshots
from hai_flow.runtime.commit.ownership import RunOwnership
from hai_flow.runtime.commit.queues import Cache, Queues
from hai_flow.runtime.commit.states import RecentReads
from hai_flow.runtime.commit.submission import CommitCarrier, Outcome, RunCreation, Streamed, Submission
from hai_flow.store.ops.pulse import DueWork
from hai_flow.store.postgres import database
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs.logs import Loaded

log = structlog.get_logger(__name__)

STOP_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 10.0  # a caller hears after this that the database does not answer
LATE_LOOK_SECONDS: Final = 1.0  # between two looks for callers that have waited for too long
CLOCK_SECONDS: Final = 5.0  # the database's clock is read at least so often
CLOCK_OFF_SECONDS: Final = 10.0  # by which this machine's may differ from it before the log says so


class Committer(Service):
    """Takes commands and answers them after their commit.

    `find_plan` gives the plan that a run is pinned to, `recall_plan` if it is in memory. `wants_ends` tells whether the
    ends of a workflow's runs start others, which then hear of them. Services that must hear of commits are among the
    `listeners`; other processes hear of them by the `carrier` (None: NOTIFY)."""

    def __init__(
        self,
        database: Database,
        *,
        lanes: int = 1,
        entries_max: int = 256,
        bytes_max: int = 1024 * 1024,
        cache_bytes_max: int = 64 * 1024 * 1024,
        limits: Bounds = DEFAULT_BOUNDS,
        find_plan: FindPlan,
        recall_plan: RecallPlan = lambda tenant, digest: None,
        wants_ends: WantsEnds = lambda tenant, workflow: False,
        carrier: Carrier | None = None,
        freezes: Freezes | None = None,
        sources: Sources = pin_nothing,
        schemas: ToolSchemas = know_no_schema,
    ) -> None:
        super().__init__()
        self.database = database
        self.clock = Clock()
        self.listeners = Listeners()
        self.claims = RunOwnership(self.listeners)
        self.cache = Cache(cache_bytes_max)
        self._recall_plan = recall_plan
        self._reads = RecentReads()
        self.queues = Queues(self.cache, lanes)
        self.hints = Hints(carrier or Notify(database))
        self.freezes = freezes or Freezes(database)
        context = CommitContext(
            database,
            self.clock,
            self.cache,
            self.queues,
            self.claims,
            self.listeners,
            self.hints,
            self.freezes,
            find_plan,
            wants_ends,
            self._spawn,
            limits,
            entries_max,
            bytes_max,
            DecisionContext(sources=sources, schemas=schemas),
        )
        failures, snapshots = BatchRecovery(context), Snapshots(context)
        self._decider = Decider(context, failures)
        self._loader = Loader(context, failures, snapshots)
        self._lanes = CommitPipeline(context, self._decider, self._loader, failures, snapshots)
        self._closing = False
        self._clock_off = False
        self._answers: dict[asyncio.Future[Outcome], tuple[CachedRun, Submission]] = {}  # that are owed, oldest first

    # --- the door -------------------------------------------------------------------------------------------------

    async def submit(
        self,
        run_id: UUID,
        tenant: UUID,
        command: c.Command,
        *,
        command_id: str | None = None,
        body_sha: bytes = b"",
        birth: RunCreation | None = None,
        seat: str | None = None,
        asked: AuditActor | None = None,
        active: bool = False,
        carrier: CommitCarrier | None = None,
    ) -> Outcome:
        """Decide and commit `command`; return after the commit. Raises `Rejected` if it was refused.

        `command_id` makes a repetition safe: the first outcome again, or 409 if `body_sha` differs. `birth` comes with
        a run's first command, which `starts` completes. `seat` is the slot with which the run begins, or goes on:
        `SEAT_LOST` if it is not the run's any more. `asked`: the person who asks, for the audit. `active`: the command
        was made for a run that has not ended, `ENDED_SINCE` if it has. `carrier`: the transaction that both are
        committed in; an error of it is raised, and then neither was."""
        if self._closing or not self.running:
            raise Rejected(503, "closing", "the server is shutting down; send the request again.")
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        submission = Submission(
            command,
            time.monotonic(),
            command_id,
            body_sha,
            answer,
            birth,
            seat,
            tenant=tenant,
            asked=asked,
            asker=ASKER.get(),
            active=active,
            carrier=carrier,
        )
        run = self.cache.get(run_id)
        if run is None and birth is None and (run := self._reads.take(run_id)) is not None:
            self.cache.add(run)
        if run is not None:
            self.cache.hits += 1
        else:
            run = self.cache.add(CachedRun(run_id, tenant))
            if birth is None:
                self.cache.misses += 1
            else:
                run.expect_birth(birth.plan, time.monotonic())
        run.submit(submission)
        self.queues.add(run)
        self._answers[answer] = run, submission
        answer.add_done_callback(self._answers.pop)
        return await answer

    def report(
        self,
        run: CachedRun,
        command: c.Command,
        carrier: CommitCarrier | None = None,
        *,
        is_large: bool | None = None,
    ) -> None:
        """The same door for commands that need no answer: results, timers. A refusal is logged and dropped.

        `carrier`: the transaction of the tool whose result it is. Both are committed together, or neither.
        `is_large` as in `Submission`."""
        submission = Submission(command, time.monotonic(), carrier=carrier, is_large=is_large)
        if not self.running:
            submission.leave()
            return
        if not run.bytes:
            run = self.cache.get(run.id) or self.cache.add(run)
        run.submit(submission)
        self.queues.add(run)

    def stream(self, run: CachedRun, chunks: Iterable[Streamed]) -> None:
        """Append texts and progress of attempts in flight to the log of a run that this process holds
        (docs/design/store.md#decisions-and-chunks)."""
        cached = self.cache.get(run.id)
        if cached is None or not cached.owned or not self.running:
            return  # somebody else holds the run: they would lose by their fence
        cached.stream(chunks)
        self.queues.add(cached)

    async def wait_committed(self, waiting: Iterable[CachedRun]) -> None:
        """Return when all commands for these runs are decided and committed."""
        await self.queues.wait_committed(waiting)

    async def rehearse(self, command: c.Command, plan: Plan, state: RunState) -> Decision:
        """The decision on the command if it came now to the run in `state`; nothing is committed. Raises Rejected where
        it would be refused."""
        now, limits = self.now_ms(), self._decider.limits
        run = run_beside_loop if is_large(command) else run_by_work
        context = DecisionContext(schemas=self._decider.tools.schemas)
        return await run(decide, plan, state, command, now, limits, context=context)

    def look(self, due: DueWork | None, asked_at: float) -> None:
        """What the pulse has found, the database's clock among it; None: it could not ask. So a process that commits
        nothing need not ask for the clock alone."""
        now = time.monotonic()
        if due is not None and due.now is not None and now >= self.clock.heard_at + CLOCK_SECONDS / 2:
            self.clock.read(instants.milliseconds(due.now), asked_at, now)
        self._tell_of_clock()

    def _tell_of_clock(self) -> None:
        """Log it, once, when the two clocks begin to differ: nothing here goes by this machine's, but either may be the
        wrong one."""
        ahead = self.clock_ahead()
        was_off, self._clock_off = self._clock_off, abs(ahead) > CLOCK_OFF_SECONDS
        if self._clock_off and not was_off:
            remedy = "synchronise both clocks: deadlines, keys, sessions and tokens end by the database's"
            log.warning("clock_off", ahead_seconds=round(ahead, 1), remedy=remedy)

    def clock_ahead(self) -> float:
        """By how many seconds this machine's clock is ahead of the database's, as that is known here."""
        return time.time() - self.now_ms() / 1000

    def now_ms(self) -> int:
        """The database's clock as known here, in milliseconds since 1970: a lower bound."""
        return self.clock.at(time.monotonic())

    def now(self) -> datetime:
        """The database's clock as known here, as an instant in UTC."""
        return instants.instant(self.now_ms())

    def peek(self, run_id: UUID) -> CachedRun | None:
        """The run as this process knows it, however old that is."""
        return self.cache.get(run_id)

    def note_read(self, row: Loaded, state: RunState, began: float) -> None:
        """A reading of a run that began then has found this row and, by its whole log, this state: a command that comes
        now need not load it. (Not where somebody holds the run: what that means, a load has to find out. Nor of one
        that has ended, as the cache keeps none.)"""
        is_whole = row.from_seq == 0 and state.seq == row.seq and state.sha256 == row.workflow.hex()
        if not is_whole or state.ended or row.worker is not None or self.cache.get(row.run_id) is not None:
            return
        plan = self._recall_plan(row.tenant, row.workflow)
        if plan is not None:
            run, log_bytes = CachedRun(row.run_id, row.tenant), sum(len(each.events) for each in row.rows)
            run.enqueue()
            run.take()
            snapshot_bytes = len(row.state or b"")
            run.load(row, plan, state, began, owned=False, log_bytes=log_bytes, snapshot_bytes=snapshot_bytes)
            run.leave()
            self._reads.add(run)

    def talk(self, run: CachedRun, plan: Plan, state: RunState, answer: str) -> Talk:
        """See `CachedRun.talk`. The conversation counts in the cache from now on."""
        conversation = run.talk(plan, state, answer)
        self.cache.weigh(run)
        return conversation

    def refresh(self, run_id: UUID, tenant: UUID | None = None) -> None:
        """Load the run's tail: another process has moved it, or this one holds it and does not know it yet."""
        if not self.running:
            return
        run = self.cache.get(run_id)
        if run is None:
            run = self.cache.add(CachedRun(run_id, tenant or UUID(int=0)))
        self.queues.refresh(run)

    # --- the runs of this process ----------------------------------------------------------------------------------

    @property
    def worker_id(self) -> int | None:
        """This process's id in the workers table, None while it performs nothing."""
        return self.claims.worker_id

    @worker_id.setter
    def worker_id(self, worker_id: int | None) -> None:
        self.claims.worker_id = worker_id

    def forget_claims(self) -> None:
        """This process could not renew its lease: it holds nothing any more."""
        for run in self.cache:
            if run.owned:
                self.claims.disown(run)

    def last_progress(self) -> float:
        """Since when (monotonic) something has been waiting without any lane, or the loader, getting on; now, if
        nothing has."""
        return self.queues.last_progress()

    # --- life -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._closing = False
        await self._ask_clock()
        for number, queue in enumerate(self.queues.lanes):
            self._keep(functools.partial(self._lanes.run, queue), f"lane {number}")
        self._keep(self._loader.run, "loads")
        self._keep(self.hints.run, "hints")
        self._keep(self._run_clock, "clock")
        self._keep(self._run_late, "late answers")

    async def _stop(self) -> None:
        """Commit the commands that came before the stop; refuse those that come after, and those that take too long."""
        self._closing = True
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.queues.wait_empty()
        except TimeoutError:
            log.error("stopped_unfinished", runs=self.queues.queued)
        finally:
            await self._end_tasks()
            self._forget_everything()

    def _forget_everything(self) -> None:
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(StoreError("the server stopped before the outcome was known; send it again."))
        for run in self.cache:
            for submission in run.drop_work():
                submission.leave()
        self.cache.clear()
        self._reads.clear()
        self.queues.clear()
        self.hints.clear()

    async def _run_late(self) -> None:
        """Answer callers that have waited for too long: the database is away, or far behind."""
        while True:
            await asyncio.sleep(LATE_LOOK_SECONDS)
            self._answer_late()

    def _answer_late(self) -> None:
        """Callers may send their commands again, so these leave the queue: else what was asked once would be done
        twice, by a database that is behind already. A commit that is under way may hold its command yet: a line that
        has gone silent is cut only when a statement over it could not be slow any more. Commands of the process itself
        go on waiting."""
        now = time.monotonic()
        late = list(takewhile(lambda each: now - each[1].arrived > ANSWER_SECONDS, self._answers.values()))
        for run, submission in late:
            run.withdraw(submission)
            message = "the database has not answered for a while; the outcome is unknown: send it again."
            submission.fail(StoreError(message))

    async def _run_clock(self) -> None:
        """Read the database's clock if neither a commit nor the pulse has for a while: it may have been set to another
        time."""
        while True:
            await asyncio.sleep(self.clock.heard_at + CLOCK_SECONDS - time.monotonic())
            try:
                if time.monotonic() >= self.clock.heard_at + CLOCK_SECONDS:
                    await self._ask_clock()
            except Exception as error:  # the database is away: the next commit reads its clock
                log.debug("clock_not_read", error=str(error) or repr(error))
                await asyncio.sleep(CLOCK_SECONDS)

    async def _ask_clock(self) -> None:
        async with self.database.api.acquire() as connection:
            sent = time.monotonic()
            self.clock.read(instants.milliseconds(await database.read_clock(connection)), sent, time.monotonic())
