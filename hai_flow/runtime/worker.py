"""The main loop of a process that performs: hold runs, perform their open attempts, report through the committer.

A life, top to bottom: register -> (claimed or committed: hold a run) -> begin open attempts -> report -> hand back.

The rules: a job is performed only after a statement of our own returned that we hold the run
(docs/design/store.md#claims). The lease is the process's, renewed from a thread of its own and only while this loop
answers and its commits get done (docs/design/store.md#leases); every renewal returns the runs that we hold by the
database, which is the poll of held runs (docs/design/store.md#held-runs). A process that could not renew drops
everything and takes a new id. The attempts of a dead worker are declared lost before anything is begun
(docs/design/store.md#lost-attempts). No web framework is imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import heapq
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.definition.expressions import CompiledExpression
from hai_flow.definition.paths import in_cleanup
from hai_flow.definition.plan import AgentTurn, Call, Expression, Step, Template
from hai_flow.engine import commands as c
from hai_flow.engine.agents import talk
from hai_flow.engine.draft import DEFAULT_BOUNDS, Draft, Raised
from hai_flow.engine.events import ModelUse
from hai_flow.engine.growing import grown_before, grown_piece
from hai_flow.engine.ids import message_id, shown_call_id
from hai_flow.engine.instances import standing_at
from hai_flow.engine.jobs import next_ready, performed, wake_at
from hai_flow.errors import Rejected, StepError
from hai_flow.runtime.cache import CachedRun
from hai_flow.runtime.committer import Committer
from hai_flow.runtime.files import Files
from hai_flow.runtime.limiter import Limiter
from hai_flow.runtime.memory import said_before
from hai_flow.runtime.service import Service, wait_at_most
from hai_flow.runtime.submissions import Chunk, Progress
from hai_flow.runtime.takeover import worker_name
from hai_flow.steps.runner import Attempt, Kind, Registry
from hai_flow.steps.trace import trace_of
from hai_flow.store import claims, hints
from hai_flow.store.claims import Claimed, Heartbeat
from hai_flow.store.database import SETTINGS, Database, Session
from hai_flow.store.transactions import Transaction

log = structlog.get_logger(__name__)

CANCELLED: Final = "step.cancelled"
CHUNK_CHARS_MAX: Final = 16 * 1024
REASON_CHARS_MAX: Final = 1000  # of why a run was given back
HAND_BACK_SECONDS: Final = 10.0  # for the commits of a stop after the attempts have ended
CANCEL_SECONDS: Final = 1.0  # for attempts to react to being cancelled, once they are not waited for any more
AGAIN_MS: Final = 1000
LOOK_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 1.0  # the least time between two of an attempt
REPLACED_MAX: Final = 64  # times that are replaced and still kept, beyond as many as there are runs
HEART_SETTINGS: Final = {**SETTINGS, "application_name": "hai-flow heartbeat"}


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """`lease_seconds`: how long the process counts as alive after its last heartbeat. `heartbeat_seconds`: between two.

    `attempts_max`: how many effects run at once. `chunk_seconds`: streamed text of a message is written at most this
    often; that of a child run, which every run above it hears of, every `relay_seconds`. `shutdown_seconds`: how long a
    stop waits for effects in flight before declaring them lost.
    """

    lease_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    attempts_max: int = 1000
    chunk_seconds: float = 0.04
    relay_seconds: float = 1.0
    shutdown_seconds: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_seconds * 2 < self.lease_seconds:
            raise ValueError(
                f"expected a lease of more than two heartbeats, found lease {self.lease_seconds} s and "
                f"heartbeat {self.heartbeat_seconds} s"
            )


@dataclass(slots=True, eq=False)
class Performing:
    """An attempt that this process deals with: `task` performs it, or is None while it is only being reported as over.

    `begun`: whether the task has its place and the effect may have happened.
    """

    attempt: int
    task: asyncio.Task[Any] | None = None
    begun: bool = False


@dataclass(slots=True, eq=False)
class HeldRun:
    """A run that this process holds, and the attempts at its steps that it deals with, by their paths."""

    run: CachedRun
    attempts: dict[str, Performing] = field(default_factory=dict)

    def cancel(self) -> None:
        """Let none of the attempts go on."""
        for performing in self.attempts.values():
            if performing.task is not None:
                performing.task.cancel()
        self.attempts.clear()


@dataclass(slots=True, eq=False)
class _Message:
    """The text that an attempt streamed and that is not with the committer yet, all of one `kind`. `written` counts
    what the committer has: chunks of its message `number`, characters of a call's arguments (`grows`). `flushed`: when
    that was, in the loop's time."""

    texts: list[str] = field(default_factory=list)
    kind: Kind = "text"
    number: int = 0
    written: int = 0
    grows: bool = False
    timer: asyncio.TimerHandle | None = None
    flushed: float = -math.inf


class _Wake(NamedTuple):
    """Look `at` this time at the run, because it is `due` (the same, or long past)."""

    at: int
    run_id: UUID
    due: int


class Wakes:
    """When held runs must be looked at: one time for each run, however often it is set, and the earliest first.

    A run whose time has come is given out again every `AGAIN_MS` until it has another time or none: the command that
    was sent may have been refused. Times that were replaced stay in the heap until they come or until they are the most
    of it.
    """

    def __init__(self) -> None:
        self._set: dict[UUID, _Wake] = {}
        self._heap: list[_Wake] = []

    def set(self, run_id: UUID, due: int | None) -> bool:
        """`due` (ms since 1970) is the run's only time now; None: it has none. Whether it is new and the earliest."""
        known = self._set.get(run_id)
        if due == (None if known is None else known.due):
            return False
        if due is None:
            del self._set[run_id]
        else:
            self._push(due, run_id, due)
        if not self._set:
            self._heap.clear()
        elif len(self._heap) > 2 * len(self._set) + REPLACED_MAX:
            self._heap = list(self._set.values())
            heapq.heapify(self._heap)
        return due is not None and self._heap[0].at == due

    def take(self, now: int) -> list[UUID]:
        """The runs whose time has come."""
        found = []
        while self._heap and self._heap[0].at <= now:
            wake = heapq.heappop(self._heap)
            if self._set.get(wake.run_id) is wake:
                found.append(wake.run_id)
                self._push(now + AGAIN_MS, wake.run_id, wake.due)
        return found

    def _push(self, at: int, run_id: UUID, due: int) -> None:
        wake = self._set[run_id] = _Wake(at, run_id, due)
        heapq.heappush(self._heap, wake)

    @property
    def first(self) -> int | None:
        """The earliest time, or an earlier one that was replaced."""
        return self._heap[0].at if self._heap else None

    def clear(self) -> None:
        self._set.clear()
        self._heap.clear()


class Worker(Service):
    """Performs the open attempts of the runs that this process holds."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        registry: Registry,
        config: WorkerConfig | None = None,
        files: Files | None = None,
    ) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.config = config or WorkerConfig()
        self._registry = registry
        self._files = files or Files(database)
        self._held: dict[UUID, HeldRun] = {}
        self._claims: dict[UUID, bool] = {}  # claimed by an answered statement: whether it was a dead worker's
        self._wakes = Wakes()
        self._woken = asyncio.Event()
        self._limiter = Limiter(self.config.attempts_max)
        self._attempts: set[asyncio.Task[None]] = set()
        self._waiting: set[UUID] = set()  # held runs with attempts that could not be begun when they were opened
        self._claiming = False
        self._undecided: set[UUID] = set()
        self._heart: Heart | None = None
        self._restart: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def id(self) -> int | None:
        return self.committer.worker_id

    @property
    def held(self) -> int:
        """How many runs this process holds."""
        return len(self._held)

    # --- life -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._stopping = False
        self.committer.listeners.changed.append(self.sync)
        self.committer.listeners.unusable.append(self._unusable)
        try:
            await self._register()
        except BaseException:
            await self._let_go()
            raise
        self._keep(self._run_timers, "timers of held runs")

    async def _stop(self) -> None:
        """Finish the attempts in flight or declare them lost, then hand every run back
        (docs/design/store.md#lost-attempts)."""
        self._stopping = True
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.wait([self._restart])
        try:
            async with asyncio.timeout(self.config.shutdown_seconds + HAND_BACK_SECONDS):
                await self._finish_attempts()
                await self._hand_back()
        except Exception as error:  # the database is away: the lease ends by itself, and others declare it all lost
            log.warning("not_handed_back", worker=self.id, held=len(self._held), error=str(error) or repr(error))
        finally:
            await self._let_go()

    async def _finish_attempts(self) -> None:
        """Until every attempt that was begun here is reported or declared lost, and that is committed."""
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=self.config.shutdown_seconds)
        await asyncio.gather(*(self._lose_begun(held) for held in list(self._held.values())))
        await self.committer.settled([held.run for held in self._held.values()])

    async def _hand_back(self) -> None:
        worker, self.committer.worker_id = self.id, None  # no commit takes a claim from here on
        if worker is None:
            return
        held = [run_id for run_id, held in self._held.items() if held.run.mine]
        async with self.database.engine.acquire() as connection:
            await claims.release_runs(connection, worker, held, self.committer.now())
            await claims.retire_worker(connection, worker)
        async with self.database.api.acquire() as connection:
            await hints.notify_due(connection)

    async def _let_go(self) -> None:
        """Hold nothing any more, and let nothing go on."""
        self.committer.worker_id = None
        if self._heart is not None:
            heart, self._heart = self._heart, None
            await heart.stop()
        self.committer.forget_claims()
        self.committer.listeners.changed.remove(self.sync)
        self.committer.listeners.unusable.remove(self._unusable)
        self._held.clear()
        self._claims.clear()
        self._waiting.clear()
        self._wakes.clear()
        for task in self._attempts:
            task.cancel()
        if self._attempts:
            _, stubborn = await asyncio.wait(self._attempts, timeout=CANCEL_SECONDS)
            if stubborn:
                log.warning("attempts_ignore_cancellation", attempts=len(stubborn))

    async def _register(self) -> None:
        name = worker_name()
        lease = timedelta(seconds=self.config.lease_seconds)
        asked = time.monotonic()
        async with self.database.api.acquire() as connection:
            worker = await claims.register_worker(connection, name, lease)
        self.committer.worker_id = worker
        connect = partial(self.database.connect, HEART_SETTINGS)
        self._heart = Heart(connect, worker, self.config, asked, self.committer.worked_at, self._beat)

    async def _lose_begun(self, held: HeldRun) -> None:
        """Declare lost the attempts that were begun. Those that wait for a place are handed back with the run, as they
        are."""
        run = held.run
        for path, performing in list(held.attempts.items()):
            if performing.task is None or performing.task.done():
                continue
            performing.task.cancel()
            if not performing.begun:
                held.attempts.pop(path, None)
                continue
            try:
                lost = c.StepLost(path=path, attempt=performing.attempt)
                await self.committer.submit(run.id, run.tenant, lost)
            except Rejected as rejected:  # its result was in time, or the run has moved on: nothing is left behind
                log.info("not_lost", run_id=str(run.id), path=path, reason=rejected.detail)

    # --- the lease ------------------------------------------------------------------------------------------------

    def _beat(self, heart: Heart, beat: Heartbeat | None) -> None:
        """Take in the database's answer to a heartbeat. None: the lease could not be renewed in time."""
        if heart is not self._heart:
            return
        if beat is None or not beat.alive:
            log.warning("lease_lost", worker=self.id)
            self._restart = self._spawn(self._start_over(), "start over")
            return
        held = {each.run_id: each for each in beat.held}
        for run_id, each in held.items():
            ours = self._held.get(run_id)
            if ours is None or ours.run.version != each.version or ours.run.fence != each.fence:
                self.committer.refresh(run_id)
        for run_id, ours in list(self._held.items()):
            if run_id not in held and not ours.run.queued:
                self.committer.refresh(run_id)
        waiting, self._waiting = self._waiting, set()
        for run_id in waiting:
            if (ours := self._held.get(run_id)) is not None:
                self.sync(ours.run)

    async def _start_over(self) -> None:
        """Drop everything and take a new id: others may perform the runs that we held."""
        self.committer.worker_id = None
        heart, self._heart = self._heart, None
        self.committer.forget_claims()
        self._claims.clear()
        if heart is not None:
            await heart.stop()
        while self.committer.worker_id is None and not self._stopping:
            if self._works:
                try:
                    await self._register()
                    return
                except Exception as error:
                    log.warning("register_failed", error=str(error) or repr(error))
            await asyncio.sleep(self.config.heartbeat_seconds)

    @property
    def _works(self) -> bool:
        """Whether the committer gets its work done. A process that can commit nothing must not hold more runs."""
        return time.monotonic() - self.committer.worked_at() < self.config.heartbeat_seconds

    # --- holding --------------------------------------------------------------------------------------------------

    async def claim(self, limit: int, queues: Sequence[str]) -> list[Claimed]:
        """Claim up to `limit` runs that are due, or whose worker is dead, and go on with them."""
        worker = self.id
        if worker is None or self._stopping or not self._works:
            return []
        self._claiming = True
        try:
            async with self.database.engine.acquire() as connection:
                sent = time.monotonic()
                claimed = await claims.claim_runs(connection, worker, limit, queues)
            if claimed:
                self.committer.clock.read(values.milliseconds(claimed[0].db_now), sent, time.monotonic())
                self.adopt(claimed)
            return claimed
        finally:
            self._claiming = False
            undecided, self._undecided = self._undecided, set()
            for run_id in undecided:
                self.committer.refresh(run_id)

    def adopt(self, claimed: Iterable[Claimed]) -> None:
        """Runs that a claim of ours returned. Those of a dead worker first lose the attempts that it had begun."""
        for claim in claimed:
            self._claims[claim.run_id] = claim.lost
            self.committer.refresh(claim.run_id)

    def sync(self, run: CachedRun) -> None:
        """Make the attempts that we perform equal to the open ones of the run's state. Called after every commit and
        load."""
        if not run.mine:
            self._drop(run)
            return
        held = self._held.get(run.id)
        if held is None or held.run is not run:
            held = self._held[run.id] = HeldRun(run)
        state = run.state
        for path, performing in list(held.attempts.items()):
            if state.attempts.get(path) != performing.attempt:
                del held.attempts[path]
                if performing.task is not None:
                    performing.task.cancel()
        if run.suspect and self._claiming and run.id not in self._claims:
            self._undecided.add(run.id)  # the claim that is on its way will say whether it was a dead worker's
            return
        suspect, run.suspect = run.suspect, False
        if self._claims:
            suspect = self._claims.pop(run.id, suspect)
        if suspect and self._declare_lost(held):
            return
        for path, attempt in performed(state).items():
            if path not in held.attempts:
                self._begin(held, path, attempt)
        if state.status == "stopping":
            self._cancel_what_is_stopped(held)
        if state.status in ("running", "stopping") and not run.submissions and next_ready(state) is not None:
            self.committer.report(run, c.Continue())
        self._set_timer(run)

    def _drop(self, run: CachedRun) -> None:
        held = self._held.pop(run.id, None)
        self._claims.pop(run.id, None)
        self._wakes.set(run.id, None)
        if held is not None:
            held.cancel()

    def _unusable(self, run: CachedRun, fence: int | None, error: Exception) -> None:
        """Give back a run that may be ours and that this process can't go on with: held any longer, no process
        could."""
        worker, fresh, held = self.id, run.id in self._claims, self._held.get(run.id)
        if worker is None or self._stopping or (self._claiming and held is None and not fresh):
            return  # a claim is on its way that says whether anything was begun; the next heartbeat names the run again
        begun = self._claims.get(run.id, True) if held is None else bool(held.attempts) or run.suspect
        self._drop(run)
        reason = (str(error) or repr(error)).replace("\0", "")[:REASON_CHARS_MAX]
        self._spawn(self._give_back(worker, run.id, fence, reason, begun=begun), "give a run back")

    async def _give_back(self, worker: int, run_id: UUID, fence: int | None, reason: str, *, begun: bool) -> None:
        try:
            async with self.database.engine.acquire() as connection:
                pause = await claims.give_back(connection, worker, run_id, fence, begun=begun, reason=reason)
        except Exception as error:  # the next heartbeat names it again
            log.warning("not_given_back", run_id=str(run_id), error=str(error) or repr(error))
            return
        if pause is not None:
            log.warning("given_back", run_id=str(run_id), reason=reason, for_seconds=pause.total_seconds())

    def _declare_lost(self, held: HeldRun) -> bool:
        """The open attempts may have been begun by a process that is gone; ours are known and stay."""
        open_ = performed(held.run.state)
        lost = [(path, attempt) for path, attempt in open_.items() if path not in held.attempts]
        for path, attempt in lost:
            held.attempts[path] = Performing(attempt)
            self.committer.report(held.run, c.StepLost(path=path, attempt=attempt))
        return bool(lost)

    def _cancel_what_is_stopped(self, held: HeldRun) -> None:
        """Cancel every attempt, once: a second time would tear it out of its own cleaning up. The workflow's own steps
        that clean up go on. Attempts that have not begun are over at once."""
        for path, performing in list(held.attempts.items()):
            task = performing.task
            if task is None or task.cancelling() or in_cleanup(path):
                continue
            task.cancel()
            if not performing.begun:
                self._never_begin(held, path, performing.attempt)

    def _never_begin(self, held: HeldRun, path: str, attempt: int) -> None:
        held.attempts[path] = Performing(attempt)
        error = StepError("The run was stopped before the step had begun.", code=CANCELLED, retriable=False)
        self.committer.report(held.run, _failed(path, attempt, error))

    def _set_timer(self, run: CachedRun) -> None:
        if self._wakes.set(run.id, wake_at(run.state)):
            self._woken.set()

    async def _run_timers(self) -> None:
        """The timers of the runs that we hold: the database has none for them (docs/design/store.md#leases)."""
        while True:
            now = self.committer.now_ms()
            for run_id in self._wakes.take(now):
                held = self._held.get(run_id)
                if held is not None and not any(
                    isinstance(each.command, c.TimerFired) for each in held.run.submissions
                ):
                    self.committer.report(held.run, c.TimerFired())
            self._woken.clear()
            first = self._wakes.first
            # No longer than that in one piece: the database's clock may have been set forward meanwhile.
            await wait_at_most(self._woken, None if first is None else min((first - now) / 1000, LOOK_SECONDS))

    # --- performing -----------------------------------------------------------------------------------------------

    @property
    def _may_begin(self) -> bool:
        """Nothing is begun by a process that stops, or whose lease may be over."""
        return not self._stopping and self._heart is not None and self._heart.safe

    def _begin(self, held: HeldRun, path: str, attempt: int) -> None:
        run = held.run
        if run.state.status == "stopping" and not in_cleanup(path):
            self._never_begin(held, path, attempt)
            return
        if not self._may_begin:
            self._waiting.add(run.id)
            return
        performing = held.attempts[path] = Performing(attempt)
        performing.task = asyncio.create_task(self._attempt(held, path, performing), name="attempt")
        self._attempts.add(performing.task)
        performing.task.add_done_callback(self._attempts.discard)

    async def _attempt(self, held: HeldRun, path: str, performing: Performing) -> None:
        """Run one attempt and report its outcome. One that was closed meanwhile reports nothing."""
        run = held.run
        message, number, transaction = _Message(), performing.attempt, Transaction(self.database)
        if not self._limiter.take():
            await self._limiter.wait()
        try:
            if not self._may_begin:
                held.attempts.pop(path, None)
                self._waiting.add(run.id)
                return
            performing.begun = True
            report = await self._perform(run, path, number, message, transaction)
            if report.ended_at is None:
                report = msgspec.structs.replace(report, ended_at=self.committer.now_ms())
        finally:
            self._limiter.leave()
            if message.timer is not None:
                message.timer.cancel()
        if message.texts:
            self._flush(run, path, number, message)
        self.committer.report(run, report, transaction if transaction.is_open else None)

    async def _perform(
        self, run: CachedRun, path: str, number: int, message: _Message, transaction: Transaction
    ) -> c.StepSucceeded | c.StepFailed:
        """The attempt's outcome. The tool's transaction is still open after a success, if it has begun one."""
        succeeded = False
        try:
            outcome = await self._performed(run, path, number, message, transaction)
            succeeded = isinstance(outcome, c.StepSucceeded)
            return outcome
        finally:
            if not succeeded:
                transaction.abandon()

    async def _performed(
        self, run: CachedRun, path: str, number: int, message: _Message, transaction: Transaction
    ) -> c.StepSucceeded | c.StepFailed:
        relay_seconds = None if run.state.parent is None else self.config.relay_seconds
        flush = partial(self._flush, run, path, number, message)
        tell = partial(self._tell, run, path, number)
        stream = _Stream(message, flush, self.config.chunk_seconds, relay_seconds, self._registry.hidden, tell)
        try:
            assert run.plan is not None
            step, known = standing_at(run.plan, path), run.state.steps[path]
            if isinstance(step.verb, Call) and step.verb.into is not None:
                message.grows, message.written = True, len(grown_before(step.verb.into))
            attempt = Attempt(
                run.state.run_id,
                path,
                number,
                known.args or "{}",
                step,
                known.key,
                run.plan.from_disk,
                run.plan.name,
                partial(self._evaluated, run, step),
                self._files.of_run(run.tenant, run.id),
                transaction=transaction,
            )
            if isinstance(step.verb, AgentTurn):
                offered = partial(self._registry.offered, from_disk=run.plan.from_disk)
                recall = partial(said_before, self.database, run.tenant, run.state.thread_id, run.id)
                told = partial(talk, run.plan, run.state, path)
                attempt = dataclasses.replace(attempt, talk=told, recall=recall, offered=offered)
            output = await self._registry.runner_of(step).perform(attempt, stream)
            if transaction.is_open:
                await transaction.seal()
            stream.tell_progress()
            ended_at, used = self.committer.now_ms(), tuple(stream.uses)
            output = self._registry.hidden(output)
            return c.StepSucceeded(path=path, attempt=number, output=output, ended_at=ended_at, used=used)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if not task.cancelling():  # this task was not cancelled, but something that the tool waited for
                return _failed(path, number, StepError("The tool was cancelled by something that it waited for."))
            if run.state.status != "stopping" or in_cleanup(path) or self._stopping:
                raise
            stopped = StepError("The run is being stopped.", code=CANCELLED, retriable=False)
            return _failed(path, number, stopped, uses=stream.uses)
        except StepError as error:
            cause = error.__cause__
            if cause is not None:
                log.warning("tool_failed", run_id=str(run.id), path=path, exc_info=cause)
            return self._hiding(_failed(path, number, error, cause, stream.uses))
        except Exception as error:
            log.warning("tool_raised", run_id=str(run.id), path=path, exc_info=error)
            failed = StepError(f"{type(error).__name__}: {error}")
            return self._hiding(_failed(path, number, failed, error, stream.uses))

    def _hiding(self, failed: c.StepFailed) -> c.StepFailed:
        """A failure without secrets: what is raised may quote what was sent."""
        hidden = self._registry.hidden
        return msgspec.structs.replace(
            failed, message=hidden(failed.message), data=hidden(failed.data), trace=hidden(failed.trace)
        )

    def _evaluated(self, run: CachedRun, step: Step, uses: Expression | Template, /, **names: Any) -> Any:
        """The value of an expression of the step now. Its runner asks, and what follows is recorded."""
        assert run.plan is not None
        draft = Draft(run.plan, run.state, self.committer.now_ms(), DEFAULT_BOUNDS)
        try:
            if isinstance(uses, CompiledExpression):
                return draft.truth(uses, step, **names)
            return draft.render(cast(Template, uses), step, **names)
        except Raised as raised:
            raise StepError(raised.message, code=raised.code, data=raised.data, retriable=False) from None

    def _tell(self, run: CachedRun, path: str, attempt: int, value: Any) -> None:
        self.committer.stream(run, [Progress(path, attempt, value)])

    def _flush(self, run: CachedRun, path: str, attempt: int, message: _Message) -> None:
        """Hand the text that was streamed since the last time to the committer, in chunks of bounded size."""
        if message.timer is not None:
            message.timer.cancel()
            message.timer = None
        message.flushed = asyncio.get_running_loop().time()
        text = "".join(message.texts)
        message.texts.clear()
        pieces = [text[start : start + CHUNK_CHARS_MAX] for start in range(0, len(text), CHUNK_CHARS_MAX)]
        if pieces and message.grows:
            self.committer.stream(run, _growing(run, path, attempt, message, pieces))
        elif pieces:
            id, kind = message_id(run.state.run_id, path, attempt, message.number), message.kind
            chunks = [Chunk(id, path, attempt, n, piece, kind=kind) for n, piece in enumerate(pieces, message.written)]
            self.committer.stream(run, chunks)
            message.written += len(chunks)


class _Stream:
    """The stream of one attempt. `flush` hands on its text, `seconds` after the first of it; at most every
    `relay_seconds`, if that is given."""

    def __init__(
        self,
        message: _Message,
        flush: Callable[[], None],
        seconds: float,
        relay_seconds: float | None,
        hide: Callable[[Any], Any],
        tell: Callable[[Any], None],
    ) -> None:
        self._message = message
        self._tell = tell
        self._progress: Any = None
        self._told_at = -math.inf
        self._telling: asyncio.TimerHandle | None = None
        self._hide = hide
        self._flush = flush
        self._seconds = seconds
        self._relay_seconds = relay_seconds
        self.uses: list[ModelUse] = []

    async def __call__(self, text: str, kind: Kind = "text") -> None:
        message, text = self._message, self._hide(text)
        if kind != message.kind and not message.grows:
            if message.texts or message.written:
                self._flush()
                message.number += 1
                message.written = 0
            message.kind = kind
        message.texts.append(text)
        if message.timer is None:
            wait, loop = self._seconds, asyncio.get_running_loop()
            if self._relay_seconds is not None:
                wait = max(wait, message.flushed + self._relay_seconds - loop.time())
            message.timer = loop.call_later(wait, self._flush)

    def used(self, use: ModelUse) -> None:
        self.uses.append(use)

    def progress(self, value: Any) -> None:
        """Tell it now, or at its time; what comes before that replaces it."""
        self._progress = self._hide(value)
        if self._telling is None:
            loop = asyncio.get_running_loop()
            wait = max(0.0, self._told_at + PROGRESS_SECONDS - loop.time())
            self._telling = loop.call_later(wait, self.tell_progress)

    def tell_progress(self) -> None:
        """Tell what waits to be told."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
            self._told_at = asyncio.get_running_loop().time()
            self._tell(self._progress)


def _growing(run: CachedRun, path: str, attempt: int, message: _Message, pieces: Iterable[str]) -> list[Chunk]:
    """The pieces of the arguments of a call that grows, each at its place in them."""
    id, chunks = shown_call_id(run.state.run_id, path, attempt), []
    for piece in map(grown_piece, pieces):
        chunks.append(Chunk(id, path, attempt, message.written, piece, is_call=True))
        message.written += len(piece)
    return chunks


def _failed(
    path: str, attempt: int, error: StepError, raised: BaseException | None = None, uses: Iterable[ModelUse] = ()
) -> c.StepFailed:
    """The report of a failed attempt. `raised`: an exception that the tool did not mean to raise, whose place in the
    code is reported. `uses`: the answers of models that it took all the same."""
    return c.StepFailed(
        path=path,
        attempt=attempt,
        code=error.code,
        message=error.message,
        retriable=error.retriable,
        data=error.data,
        retry_after=None if error.retry_after is None else int(error.retry_after * 1000),
        trace=None if raised is None else trace_of(raised),
        used=tuple(uses),
    )


class Heart:
    """Renews the lease from a thread and a connection of its own, as long as the process that it beats for works.

    A loop that is stuck performs nothing useful, nor does one whose commits or loads get no answer: so the lease should
    end, and others go on with the runs. A process that is only busy should keep it. `worked_at` says, in the loop,
    since which monotonic time something has been waiting to be done, or that it is now if nothing has.

    It beats from its making to `stop`. `registered` is the monotonic time at which the lease was asked for.
    """

    def __init__(
        self,
        connect: Callable[[], Coroutine[Any, Any, Session]],
        worker: int,
        config: WorkerConfig,
        registered: float,
        worked_at: Callable[[], float],
        notify: Callable[[Heart, Heartbeat | None], None],
    ) -> None:
        self._connect = connect
        self._worker = worker
        self._config = config
        self._worked_at = worked_at
        self._notify = notify
        self._owner = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._worked = time.monotonic()
        self._lease_until = registered + config.lease_seconds
        self._connection: Session | None = None
        self._own = asyncio.new_event_loop()
        self._main = self._own.create_task(self._beat_for_ever())
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def safe(self) -> bool:
        """Whether the lease surely still runs: a margin of one heartbeat before its end, by our own clock
        (docs/design/promises.md#fencing)."""
        return time.monotonic() < self._lease_until - self._config.heartbeat_seconds

    async def stop(self) -> None:
        """Returns when thread and connection are gone."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._own.call_soon_threadsafe(self._main.cancel)
        await self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._own.run_until_complete(self._main)
        finally:
            self._own.close()
            self._to_owner(self._ended.set)

    def _to_owner(self, call: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is everything that this heart beats for
            self._owner.call_soon_threadsafe(call, *arguments)

    async def _beat_for_ever(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._config.heartbeat_seconds)
                self._to_owner(self._ask)
                sent = time.monotonic()
                stuck = sent - self._worked > self._config.lease_seconds / 2
                beat = None if stuck else await self._beat()
                if beat is not None and beat.alive:
                    self._lease_until = sent + self._config.lease_seconds
                elif beat is None and time.monotonic() < self._lease_until:
                    continue
                self._to_owner(self._notify, self, beat)
                if beat is None or not beat.alive:
                    return
        finally:
            self._hang_up()

    async def _beat(self) -> Heartbeat | None:
        """One renewal. None: it failed, and the next one takes a new connection."""
        limit = self._config.lease_seconds / 3
        try:
            if self._connection is None or self._connection.is_closed():
                async with asyncio.timeout(limit):
                    self._connection = await self._connect()
            lease = timedelta(seconds=self._config.lease_seconds)
            async with asyncio.timeout(limit):
                return await claims.heartbeat(self._connection, self._worker, lease)
        except Exception as error:  # of any kind: this thread must go on, or the end of the lease is not noticed
            log.warning("heartbeat_failed", error=str(error) or repr(error))
            self._hang_up()
            return None

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _ask(self) -> None:
        self._worked = self._worked_at()
