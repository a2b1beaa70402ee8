"""The main loop of a process that performs: register, hold claimed runs, begin their open attempts, report through the
committer, hand back. A job is performed only after a statement of our own returned that we hold the run
(docs/design/store.md#claims); each renewal of the lease returns the runs that we hold by the database
(docs/design/store.md#held-runs); a process that could not renew drops everything and takes a new id; the attempts of a
dead worker are declared lost first (docs/design/store.md#lost-attempts). No web framework is imported here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import takewhile
from typing import Final
from uuid import UUID

import structlog

import hai_flow
from hai_flow.definition.paths import is_in_cleanup, is_inside
from hai_flow.engine import commands as c
from hai_flow.engine.state.jobs import lacks_time, next_due, next_ready, open_attempts, order_of, wake_at
from hai_flow.errors import Rejected, StepError, Unreadable
from hai_flow.primitives import instants
from hai_flow.runtime.base.queue_selection import NOTHING, QueueSelection
from hai_flow.runtime.base.service import Service, wait_at_most
from hai_flow.runtime.catalog.pii_catalog import hides_values
from hai_flow.runtime.catalog.pins import PinBook
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.hooks import tell
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.runtime.worker.attempt import CANCELLED, AttemptContext, RunningAttempt, failure
from hai_flow.runtime.worker.concurrency import ConcurrencyPlaces
from hai_flow.runtime.worker.heartbeat import HEART_SETTINGS, HeartbeatLoop
from hai_flow.runtime.worker.takeover import build_worker_name
from hai_flow.runtime.worker.thread_messages import ThreadMessages
from hai_flow.runtime.worker.timers import AGAIN_MS, TimerHeap
from hai_flow.steps.runner import Registry
from hai_flow.store.messaging import hints
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import leases
from hai_flow.store.runs.leases import Claimed, Heartbeat, Load
from hai_flow.values import Json

log = structlog.get_logger(__name__)

REASON_CHARS_MAX: Final = 1000  # of why a run was given back
HAND_BACK_SECONDS: Final = 10.0  # for the commits of a stop after the attempts have ended
CANCEL_SECONDS: Final = 1.0  # for attempts to react to being cancelled, once they are not waited for any more
LOOK_SECONDS: Final = 1.0
RESTING_MAX: Final = 10_000  # attempts without a place at once; more keep theirs
HANDED_ON_MAX: Final = 1000  # runs that are handed on by one statement
LATE: Final = "It waited for a worker before it had begun, and begins again with its whole time."
PAUSED: Final = "The run was paused before it had begun."
SOON_MS: Final = 1000  # so long may pass until a timer's command is decided


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """`lease_seconds`: how long the process counts as alive after its last heartbeat. `heartbeat_seconds`: between two.

    `attempts_max`: how many effects run at once. `chunk_seconds`: streamed text of a message is written this
    often where many stream, and sooner where few do; that of a child run, which every run above it hears of, every
    `relay_seconds`. `shutdown_seconds`: how long a
    stop waits for effects in flight before declaring them lost. `public_url`: where services call back. `served`: the
    queues whose runs this process performs."""

    lease_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    attempts_max: int = 1000
    chunk_seconds: float = 0.04
    relay_seconds: float = 1.0
    shutdown_seconds: float = 20.0
    public_url: str | None = None
    served: QueueSelection = field(default_factory=QueueSelection)

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_seconds * 2 < self.lease_seconds:
            raise ValueError(
                f"expected a lease of more than two heartbeats, found lease {self.lease_seconds} s and "
                f"heartbeat {self.heartbeat_seconds} s"
            )


@dataclass(slots=True, eq=False)
class HeldRun:
    """A run that this process holds, and the attempts at its steps that it deals with, by their paths."""

    run: CachedRun
    attempts: dict[str, RunningAttempt] = field(default_factory=dict)

    @property
    def rests(self) -> bool:
        """Whether no attempt needs its place now, and some will again."""
        return bool(self.attempts) and all(performance.rests for performance in self.attempts.values())

    def cancel(self) -> None:
        for performance in self.attempts.values():
            if performance.task is not None:
                performance.task.cancel()
        self.attempts.clear()


def _describe_receipts(held: HeldRun, now: int) -> dict[str, Json]:
    """What has come of the answers that a `timeout` (of the step, or of a block around it) or the duration of the run
    may cut off now, by the steps' paths."""
    state = held.run.state
    ends = any(timer.kind == "limit" for timer in takewhile(lambda timer: timer.due <= now, state.timers))
    blocks = [path for path in state.timeouts if path not in state.attempts]
    timed = [
        path
        for path in held.attempts
        if ends or path in state.timeouts or any(is_inside(path, block) for block in blocks)
    ]
    receipts = {path: held.attempts[path].describe_receipt() for path in timed}
    return {path: receipt for path, receipt in receipts.items() if receipt is not None}


class Worker(Service):
    """Performs the open attempts of the runs that this process holds."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        registry: Registry,
        config: WorkerConfig | None = None,
        files: Files | None = None,
        pins: PinBook | None = None,
        tenants: Tenants | None = None,
    ) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.config = config or WorkerConfig()
        self._stage = AttemptContext(
            committer,
            database,
            registry,
            files or Files(database),
            pins or PinBook(database),
            ThreadMessages(database),
            self.config.chunk_seconds,
            self.config.relay_seconds,
            public_url=self.config.public_url,
            tenants=tenants,
            holds=committer.freezes.holds,
            rest=self._rest,
        )
        self._held: dict[UUID, HeldRun] = {}
        self._claims: dict[UUID, Claimed] = {}  # by an answered statement, and not here yet
        self._wakes = TimerHeap()
        self._woken = asyncio.Event()
        self._places = ConcurrencyPlaces(self.config.attempts_max, self.config.served.places)
        self.short_of_places = False  # something was not claimed for want of a place
        self.on_place: Callable[[], object] | None = None  # called when one is free
        self._attempts: set[asyncio.Task[None]] = set()
        self._resting = 0  # of them, without a place
        self._leaving: dict[UUID, HeldRun] = {}  # of a process that stops: those that others shall go on with
        self._handing: asyncio.Task[None] | None = None
        self._waiting: dict[UUID, float] = {}  # held runs with attempts that could not be begun yet, and since when
        self._claiming = False
        self._undecided: set[UUID] = set()
        self._heart: HeartbeatLoop | None = None
        self._restart: asyncio.Task[None] | None = None
        self.allowed: Callable[[], Awaitable[None]] | None = None  # asked before it registers; raises where it must not

    @property
    def id(self) -> int | None:
        return self.committer.worker_id

    @property
    def held(self) -> int:
        """How many runs this process holds."""
        return len(self._held)

    def record_traces(self) -> None:
        """From now on the attempts of traced runs have spans of their own."""
        self._stage.traced = True

    @property
    def attempts(self) -> int:
        """How many attempts this process deals with: those that run, and those that wait for a place."""
        return len(self._attempts)

    @property
    def attempts_waiting(self) -> int:
        """How many of them wait for a place."""
        return self._places.waiting

    def list_begun(self) -> list[str]:
        """The attempts that a stop waits for, the oldest first: each as its workflow, step and run."""
        attempts = [each for held in self._held.values() for each in held.attempts.values() if each.has_begun]
        attempts.sort(key=lambda each: each.known_since)
        return [f"{each.run.state.workflow}: {each.path} (run {each.run.id})" for each in attempts]

    @property
    def load(self) -> Load:
        """The load of this process, for people to see."""
        waiting = self.attempts_waiting
        return Load(self.held, self.attempts - waiting - self._resting, waiting)

    @property
    def room(self) -> int:
        """So many more runs may be claimed that each finds a place for an attempt. Those that were claimed and are not
        here yet have theirs."""
        return max(0, self.config.attempts_max + self._resting - len(self._attempts) - len(self._claims))

    @property
    def coming(self) -> int:
        """How many runs were claimed and are not here yet: their logs are being read."""
        return len(self._claims)

    def room_of(self, queue: str) -> int:
        """How many more runs of this queue may be claimed: the queue may have fewer places than the process."""
        most = self.config.served.places.get(queue)
        if most is None:
            return self.room
        held = sum(
            held.run.plan is not None and held.run.plan.queue == queue and not held.rests
            for held in self._held.values()
        )
        coming = sum(claim.queue == queue for claim in self._claims.values())
        return max(0, min(self.room, most - held - coming))

    # --- life -----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._stage.closing = False
        self.committer.claims.served = self.config.served
        self.committer.listeners.changed.append(self.sync)
        self.committer.freezes.changed.append(self._heed_freezes)
        self.committer.listeners.unusable.append(self._release_unusable)
        try:
            await self._register()
        except BaseException:
            await self._let_go()
            raise
        self._keep(self._run_timers, "timers of held runs")

    async def _stop(self) -> None:
        """Hand on at once all runs without an attempt in flight, finish the attempts in flight or declare them lost,
        and hand on each run whose last attempt is over (docs/design/store.md#lost-attempts)."""
        self._stage.closing = True
        self.committer.claims.served = NOTHING  # no commit takes another claim, and held runs go to others
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.wait([self._restart])
        try:
            async with asyncio.timeout(self.config.shutdown_seconds + HAND_BACK_SECONDS):
                await self._begin_draining()
                await self._finish_attempts()
                await self._hand_back()
        except Exception as error:  # the database is away: the lease ends by itself, and others declare it all lost
            log.warning("not_handed_back", worker=self.id, held=len(self._held), error=str(error) or repr(error))
        finally:
            await self._let_go()

    async def _begin_draining(self) -> None:
        """Everything of which no attempt has begun goes to others now."""
        for held in list(self._held.values()):
            for path, performance in list(held.attempts.items()):
                if performance.task is not None and not performance.has_begun:
                    performance.task.cancel()
                    del held.attempts[path]
            self.sync(held.run)
        if self.id is not None:
            async with self.database.api.acquire() as connection:
                await leases.begin_draining(connection, self.id)

    async def _finish_attempts(self) -> None:
        """Wait until every attempt that was begun here is reported or declared lost, and that is committed."""
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=self.config.shutdown_seconds)
        await asyncio.gather(*(self._fail_begun(held) for held in list(self._held.values())))
        await self.committer.wait_committed([held.run for held in self._held.values()])

    async def _hand_back(self) -> None:
        worker, self.committer.worker_id = self.id, None  # no commit takes a claim from here on
        if worker is None:
            return
        held = [held.run for held in self._held.values() if held.run.owned]
        async with self.database.engine.acquire() as connection:
            await leases.release_runs(connection, worker, [run.id for run in held], self.committer.now())
            await leases.retire_worker(connection, worker)
        await self._tell_due(held)

    async def _tell_due(self, runs: Iterable[CachedRun]) -> None:
        queues = {run.plan.queue for run in runs if run.plan is not None}
        for queue in sorted(queues):
            await self.committer.hints.tell(hints.due(queue))

    def _hand_on(self, held: HeldRun) -> None:
        """Give the run to other workers, for this process stops. Attempts that have begun are finished here first."""
        if held.attempts:
            return
        self._leaving[held.run.id] = held
        if self._handing is None or self._handing.done():
            self._handing = self._spawn(self._hand_on_all(), "hand runs on")

    async def _hand_on_all(self) -> None:
        """Release the runs that leave, many at once. A run that could not be released here is released at the end."""
        while self._leaving:
            leaving = [self._leaving.pop(run_id) for run_id in list(self._leaving)[:HANDED_ON_MAX]]
            await self.committer.wait_committed([held.run for held in leaving])
            runs = [each.run for each in leaving if each.run.owned and not each.attempts]
            worker = self.id
            if worker is None or not runs:
                continue
            try:
                async with self.database.engine.acquire() as connection:
                    ids, at = [run.id for run in runs], self.committer.now()
                    released = set(await leases.release_runs(connection, worker, ids, at))
                await self._tell_due(runs)
            except Exception as error:
                log.warning("not_handed_on", runs=len(runs), error=str(error) or repr(error))
                continue
            for run in runs:
                if run.id in released:
                    self.committer.claims.note_release(run)
                else:
                    self.committer.refresh(run.id)

    async def _let_go(self) -> None:
        """Drop all runs, and cancel all attempts."""
        self.committer.worker_id = None
        if self._heart is not None:
            heart, self._heart = self._heart, None
            await heart.stop()
        self.committer.forget_claims()
        self.committer.listeners.changed.remove(self.sync)
        self.committer.freezes.changed.remove(self._heed_freezes)
        self.committer.listeners.unusable.remove(self._release_unusable)
        self._held.clear()
        self._claims.clear()
        self._waiting.clear()
        self._leaving.clear()
        self._wakes.clear()
        for task in self._attempts:
            task.cancel()
        if self._attempts:
            _, stubborn = await asyncio.wait(self._attempts, timeout=CANCEL_SECONDS)
            if stubborn:
                log.warning("attempts_ignore_cancellation", attempts=len(stubborn))

    async def _register(self) -> None:
        name = build_worker_name()
        lease = timedelta(seconds=self.config.lease_seconds)
        if self.allowed is not None:
            await self.allowed()
        began = time.monotonic()
        async with self.database.api.acquire() as connection:
            worker = await leases.register_worker(
                connection,
                name,
                lease,
                queues=self.config.served.words,
                release=hai_flow.__version__,
                places=self.config.attempts_max,
            )
        self.committer.worker_id = worker
        connect = partial(self.database.connect, HEART_SETTINGS)
        self._heart = HeartbeatLoop(
            connect,
            worker,
            began,
            self.committer.last_progress,
            self._beat,
            lambda: self.load,
            lease_seconds=self.config.lease_seconds,
            heartbeat_seconds=self.config.heartbeat_seconds,
        )

    async def _fail_begun(self, held: HeldRun) -> None:
        """Declare lost the attempts that were begun. Those that wait for a place are handed back with the run, as they
        are."""
        run = held.run
        for path, performance in list(held.attempts.items()):
            if performance.task is None or performance.task.done():
                continue
            performance.task.cancel()
            if not performance.has_begun:
                held.attempts.pop(path, None)
                continue
            try:
                lost = c.StepLost(path=path, attempt=performance.attempt)
                await self.committer.submit(run.id, run.tenant, lost)
            except Rejected as rejected:  # its result was in time, or the run has moved on: nothing is left behind
                log.info("not_lost", run_id=str(run.id), path=path, reason=rejected.detail)

    # --- the lease ------------------------------------------------------------------------------------------------

    def _beat(self, heart: HeartbeatLoop, beat: Heartbeat | None) -> None:
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
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Begin the attempts that could not be begun when they were opened, as far as they may now."""
        for run_id in list(self._waiting):
            if (ours := self._held.get(run_id)) is not None:
                self.sync(ours.run)

    def _heed_freezes(self) -> None:
        """Other freezes are in force: give back what they hold and what has not begun, and begin what waited."""
        for held in list(self._held.values()):
            for path, performance in list(held.attempts.items()):
                if performance.waits and self.committer.freezes.certainly_holds(held.run, path):
                    self._give_attempt_back(held, path, performance.attempt)
        self._begin_waiting()

    async def _start_over(self) -> None:
        """Drop everything and take a new id: others may perform the runs that we held."""
        self.committer.worker_id = None
        heart, self._heart = self._heart, None
        self.committer.forget_claims()
        self._claims.clear()
        if heart is not None:
            await heart.stop()
        while self.committer.worker_id is None and not self._stage.closing:
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
        return time.monotonic() - self.committer.last_progress() < self.config.heartbeat_seconds

    # --- holding --------------------------------------------------------------------------------------------------

    async def claim(
        self, limit: int, queues: Sequence[str], most: Sequence[int] | None = None, behind: str | None = None
    ) -> list[Claimed]:
        """Claim up to `limit` runs that are due, or whose worker is dead, and go on with them. `queues` and so on as in
        `claims.claim_runs`."""
        worker = self.id
        if worker is None or self._stage.closing or not self._works:
            return []
        self._claiming = True
        try:
            async with self.database.engine.acquire() as connection:
                sent = time.monotonic()
                claimed = await leases.claim_runs(connection, worker, limit, queues, most, behind=behind)
            if claimed:
                self.committer.clock.read(instants.milliseconds(claimed[0].db_now), sent, time.monotonic())
                self.adopt(claimed)
                tell(self.committer.listeners.claimed, claimed)
            return claimed
        finally:
            self._claiming = False
            undecided, self._undecided = self._undecided, set()
            for run_id in undecided:
                self.committer.refresh(run_id)

    def adopt(self, claimed: Iterable[Claimed]) -> None:
        """Runs that a claim of ours returned. Those of a dead worker first lose the attempts that it had begun."""
        for claim in claimed:
            self._claims[claim.run_id] = claim
            self.committer.refresh(claim.run_id)

    def sync(self, run: CachedRun) -> None:
        """Make the attempts that we perform equal to the open ones of the run's state. Called after every commit and
        load."""
        if not run.owned:
            self._drop(run)
            return
        held = self._held.get(run.id)
        if held is None or held.run is not run:
            held = self._held[run.id] = HeldRun(run)
        state = run.state
        succeeded = set()
        for path, performance in list(held.attempts.items()):
            current = state.attempts.get(path)
            if current is not None and current != performance.attempt and performance.renewed is not None:
                performance.take_over(current)
            elif current != performance.attempt:
                succeeded.add(path)
                del held.attempts[path]
                if performance.task is not None:
                    performance.task.cancel()
        if run.claim_unproven and self._claiming and run.id not in self._claims:
            self._undecided.add(run.id)  # the claim that is on its way will say whether it was a dead worker's
            return
        since = self._waiting.pop(run.id, None) if self._waiting else None
        waited = 0 if since is None else int(1000 * (time.monotonic() - since))
        if suspect := run.claim_unproven:
            run.prove_claim()
        if self._claims and (claim := self._claims.pop(run.id, None)) is not None:
            suspect = claim.lost
            waited = 0 if claim.due_at is None else (claim.db_now - claim.due_at) // timedelta(milliseconds=1)
            self._tell_of_place()
        if suspect and self._fail_lost(held):
            return
        if self._stage.closing:
            self._hand_on(held)
            return
        if state.status == "paused":
            for path, performance in list(held.attempts.items()):
                if performance.waits:
                    self._give_attempt_back(held, path, performance.attempt, PAUSED)
        attempts = open_attempts(state)
        new = [path for path in attempts if path not in held.attempts]
        for path in new if len(new) < 2 else sorted(new, key=partial(order_of, state)):
            self._begin(held, path, attempts[path], None if path in succeeded else waited)
        if state.status == "stopping":
            self._cancel_what_is_stopped(held)
        goes_on = state.ready and state.status in ("running", "stopping") and not run.submissions
        if goes_on and next_ready(state) is not None:
            self.committer.report(run, c.Continue())
        self._set_timer(run)

    def _drop(self, run: CachedRun) -> None:
        held = self._held.pop(run.id, None)
        self._claims.pop(run.id, None)
        self._waiting.pop(run.id, None)
        self._wakes.set(run.id, None)
        if held is not None:
            held.cancel()

    def _release_unusable(self, run: CachedRun, fence: int | None, error: Exception) -> None:
        """Give back a run that may be ours and that this process can't go on with: held any longer, no process
        could."""
        worker, fresh, held = self.id, run.id in self._claims, self._held.get(run.id)
        if worker is None or self._stage.closing or (self._claiming and held is None and not fresh):
            return  # a claim is on its way that says whether anything was begun; the next heartbeat names the run again
        has_begun = (
            bool(held.attempts) or run.claim_unproven if held is not None else not fresh or self._claims[run.id].lost
        )
        self._drop(run)
        hidden = not isinstance(error, Unreadable) and hides_values(run.plan, run.state)
        text = type(error).__name__ if hidden else str(error) or repr(error)
        reason = text.replace("\0", "")[:REASON_CHARS_MAX]
        self._spawn(self._give_back(worker, run.id, fence, reason, begun=has_begun), "give a run back")

    async def _give_back(self, worker: int, run_id: UUID, fence: int | None, reason: str, *, begun: bool) -> None:
        try:
            async with self.database.engine.acquire() as connection:
                pause = await leases.give_back(connection, worker, run_id, fence, begun=begun, reason=reason)
        except Exception as error:  # the next heartbeat names it again
            log.warning("not_given_back", run_id=str(run_id), error=str(error) or repr(error))
            return
        if pause is not None:
            log.warning("given_back", run_id=str(run_id), reason=reason, for_seconds=pause.total_seconds())

    def _fail_lost(self, held: HeldRun) -> bool:
        """The open attempts may have been begun by a process that is gone; ours are known and stay."""
        open_ = open_attempts(held.run.state)
        lost = [(path, attempt) for path, attempt in open_.items() if path not in held.attempts]
        for path, attempt in lost:
            held.attempts[path] = RunningAttempt(self._stage, held.run, path, attempt)
            self.committer.report(held.run, c.StepLost(path=path, attempt=attempt))
        return bool(lost)

    def _cancel_what_is_stopped(self, held: HeldRun) -> None:
        """Cancel every attempt, once: a second time would tear it out of its own cleaning up. The workflow's own steps
        that clean up go on. Attempts that have not begun are over at once."""
        for path, performance in list(held.attempts.items()):
            task = performance.task
            if task is None or task.cancelling() or is_in_cleanup(path):
                continue
            task.cancel()
            if not performance.has_begun:
                self._drop_unbegun(held, path, performance.attempt)

    def _drop_unbegun(self, held: HeldRun, path: str, attempt: int) -> None:
        held.attempts[path] = RunningAttempt(self._stage, held.run, path, attempt)
        error = StepError("The run was stopped before the step had begun.", code=CANCELLED, retriable=False)
        self.committer.report(held.run, failure(path, attempt, error))

    def _give_attempt_back(self, held: HeldRun, path: str, attempt: int, reason: str | None = None) -> None:
        """The attempt has not begun. A freeze holds it: the run's log holds the step from here on. Or the run is paused
        (`reason`), or it has waited for too long: then it is opened again, with its whole time."""
        if (waiting := held.attempts.get(path)) is not None and waiting.task is not None:
            waiting.task.cancel()
        held.attempts[path] = RunningAttempt(self._stage, held.run, path, attempt)
        self.committer.report(held.run, c.StepLost(path=path, attempt=attempt, held=True, reason=reason))

    def _give_late_back(self, held: HeldRun, soon: int = 0) -> None:
        """Give back the attempts that wait to begin and whose time is over now, or in `soon` ms, before something is
        decided by which they would fail. They stay in the queue for a place."""
        state, at = held.run.state, self.committer.now_ms() + soon
        for path in state.timeouts:
            if path not in state.attempts or self._is_timed(held, path) or not lacks_time(state, path, at):
                continue
            performance = held.attempts.get(path)
            if performance is None:
                self._give_attempt_back(held, path, state.attempts[path], LATE)
            elif performance.renewed is None:
                self._renew(performance)

    def _renew(self, performance: RunningAttempt) -> asyncio.Future[None]:
        """Give back an attempt that waits, or has waited, for its place: it goes on as the next one that is opened."""
        renewed = performance.renewed = asyncio.get_running_loop().create_future()
        command = c.StepLost(path=performance.path, attempt=performance.attempt, held=True, reason=LATE)
        self.committer.report(performance.run, command)
        return renewed

    async def _await_whole_time(self, performance: RunningAttempt) -> None:
        """Return once an attempt that has waited for its place has its time."""
        renewed, waited = performance.renewed, int(1000 * (time.monotonic() - performance.known_since))
        if renewed is None and lacks_time(performance.run.state, performance.path, self.committer.now_ms(), waited):
            renewed = self._renew(performance)
        if renewed is not None:
            await renewed

    @staticmethod
    def _is_timed(held: HeldRun, path: str) -> bool:
        """Whether the time of the open attempt passes: not while it waits to begin, for it is given back when it
        may, however long that takes."""
        performance = held.attempts.get(path)
        return path in held.run.state.children if performance is None else not performance.waits

    def _find_next_due(self, held: HeldRun) -> int | None:
        """When the next thing happens to the run by itself, or None."""
        state = held.run.state
        first = next_due(state, attempts=False)
        times = [] if first is None else [first.at]
        if state.running_since is not None:
            timed = [path for path in state.timeouts if path in state.attempts and self._is_timed(held, path)]
            times += [state.running_since + state.timeouts[path] - state.worked for path in timed]
        return min(times, default=None)

    def _set_timer(self, run: CachedRun) -> None:
        if self._wakes.set(run.id, wake_at(run.state)):
            self._woken.set()

    async def _run_timers(self) -> None:
        """The timers of the runs that we hold: the database has none for them (docs/design/store.md#leases)."""
        while True:
            now = self.committer.now_ms()
            for run_id in self._wakes.take(now):
                held = self._held.get(run_id)
                if held is None or any(isinstance(each.command, c.TimerFired) for each in held.run.submissions):
                    continue
                due = self._find_next_due(held)
                if due is not None and due <= now:
                    self._give_late_back(held, SOON_MS)
                    self.committer.report(held.run, c.TimerFired(_describe_receipts(held, now)))
                elif due is not None and due < now + AGAIN_MS:
                    self._wakes.set(run_id, due)
            self._woken.clear()
            first = self._wakes.first
            # No longer than that in one piece: the database's clock may have been set forward meanwhile.
            await wait_at_most(self._woken, None if first is None else min((first - now) / 1000, LOOK_SECONDS))

    # --- performing -----------------------------------------------------------------------------------------------

    @property
    def _may_begin(self) -> bool:
        """Nothing is begun by a process that stops, or whose lease may be over."""
        return not self._stage.closing and self._heart is not None and self._heart.safe

    def _begin(self, held: HeldRun, path: str, attempt: int, waited: int | None) -> None:
        """`waited`: for so long (ms) the run has waited for a worker; None: the attempt was opened for one of this
        process, which it succeeds, so it has waited for nothing but its commit."""
        run = held.run
        if run.state.status == "stopping" and not is_in_cleanup(path):
            self._drop_unbegun(held, path, attempt)
            return
        if run.state.status == "paused":
            self._give_attempt_back(held, path, attempt, PAUSED)
            return
        freezes = self.committer.freezes
        if not self._may_begin or (freezes.is_stale and not freezes.certainly_holds(run, path)):
            self._waiting.setdefault(run.id, time.monotonic() - (waited or 0) / 1000)
            return
        if freezes.holds(run, path):
            self._give_attempt_back(held, path, attempt)
            return
        if waited is not None and lacks_time(run.state, path, self.committer.now_ms(), waited):
            self._give_attempt_back(held, path, attempt, LATE)
            return
        performance = held.attempts[path] = RunningAttempt(self._stage, run, path, attempt)
        task = performance.task = asyncio.get_running_loop().create_task(self._attempt(performance))
        self._attempts.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._attempts.discard(task)
        self._tell_of_place()

    def _tell_of_place(self) -> None:
        if self.short_of_places and self.on_place is not None:
            self.short_of_places = False
            self.on_place()

    async def _attempt(self, performance: RunningAttempt) -> None:
        """Run one attempt and report its outcome. One that was closed meanwhile reports nothing."""
        run, queue = performance.run, performance.queue
        has_place = self._places.take(queue)
        if not has_place:
            await self._places.wait(queue)
        try:
            if not has_place:
                await self._await_whole_time(performance)
            if not self._may_begin or self.committer.freezes.holds(run, performance.path):
                self._forget(performance)
                self._waiting.setdefault(run.id, performance.known_since)
                return
            performance.has_begun = True
            began = time.monotonic()
            report = await performance.perform()
        finally:
            if not performance.rests:
                self._places.leave(queue)
            performance.cease()
        performance.flush()
        if watching := self.committer.listeners.performed:
            tell(watching, performance, report, began, time.monotonic())
        if len(run.state.attempts) > 1 and (held := self._held.get(run.id)) is not None:  # others may wait to begin
            self._give_late_back(held)
        self.committer.report(run, report, performance.transaction, is_large=performance.is_large)

    async def _rest(self, performance: RunningAttempt, seconds: float) -> None:
        """Sleep, while the attempt's place is for others; then wait for one."""
        queue = performance.queue
        if self._resting >= RESTING_MAX:
            await asyncio.sleep(seconds)
            return
        performance.rests = True
        self._places.leave(queue)
        self._resting += 1
        self._tell_of_place()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._resting -= 1
        if not self._places.take(queue):
            await self._places.wait(queue)
        performance.rests = False

    def _forget(self, performance: RunningAttempt) -> None:
        """Forget an attempt that has not begun: it may be begun again."""
        held = self._held.get(performance.run.id)
        if held is not None and held.attempts.get(performance.path) is performance:
            del held.attempts[performance.path]
