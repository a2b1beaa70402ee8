"""The main loop of a process that performs: hold runs, perform their open attempts, report through the committer.

A life, top to bottom: register -> (claimed or committed: hold a run) -> begin what is open -> report -> hand back.

The rules (STORE.md): a job is performed only after a statement of our own said that we hold the run (B2). The lease is
the process's, renewed from a thread of its own and only while this loop answers (H3); every renewal returns what the
database says we hold, which is the poll of held runs (B3). A process that could not renew drops everything and takes a
new id. What was a dead worker's is declared lost before anything is begun (H4). No web framework is imported here.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import structlog

from hai_flow.engine import commands as c
from hai_flow.engine.ids import message_id
from hai_flow.engine.jobs import next_ready, wake_at
from hai_flow.errors import StepError
from hai_flow.runtime.committer import Chunk, Committer, Hot
from hai_flow.runtime.service import Service
from hai_flow.steps.runner import Attempt, Registry
from hai_flow.store import runs
from hai_flow.store.database import Database

log = structlog.get_logger(__name__)

CANCELLED: Final = "step.cancelled"


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """`lease_seconds`: how long the process counts as alive after its last heartbeat. `heartbeat_seconds`: between two.
    `attempts_max`: how many effects run at once. `chunk_seconds`: streamed text is written at most this often a message.
    `shutdown_seconds`: how long a stop waits for effects in flight before declaring them lost."""

    lease_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    attempts_max: int = 1000
    chunk_seconds: float = 0.04
    shutdown_seconds: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_seconds * 2 < self.lease_seconds:
            raise ValueError(
                f"expected a lease of more than two heartbeats, found lease {self.lease_seconds} s and "
                f"heartbeat {self.heartbeat_seconds} s"
            )


@dataclass(slots=True, eq=False)
class Performing:
    """An attempt that this process has begun; `task` None while it is only being declared lost."""

    attempt: int
    task: asyncio.Task[Any] | None


@dataclass(slots=True, eq=False)
class _Message:
    """The text that an attempt streamed and that is not with the committer yet."""

    id: str
    texts: list[str] = field(default_factory=list)
    chunks: int = 0
    timer: asyncio.TimerHandle | None = None


class Worker(Service):
    """Performs the open attempts of the runs that this process holds."""

    def __init__(
        self, database: Database, committer: Committer, registry: Registry, config: WorkerConfig | None = None
    ) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.config = config or WorkerConfig()
        self._registry = registry
        self._held: dict[UUID, Hot] = {}
        self._claims: dict[UUID, bool] = {}  # claimed by an answered statement: whether it was a dead worker's
        self._wakes: list[tuple[int, UUID]] = []
        self._woken = asyncio.Event()
        self._slots = asyncio.Semaphore(self.config.attempts_max)
        self._heart: _Heart | None = None
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
        self.committer.on_state = self.sync
        await self._register()
        self._spawn(self._run_timers(), "timers of held runs")

    async def _stop(self) -> None:
        """Finish or declare lost what is in flight, then hand every run back (STORE H4)."""
        self._stopping = True
        await self._wait_for_attempts()
        for hot in list(self._held.values()):
            await self._lose_begun(hot)
        worker, self.committer.worker_id = self.id, None
        self.committer.on_state = lambda hot: None
        if self._heart is not None:
            self._heart.stop()
        if worker is not None:
            held = [hot.id for hot in self._held.values() if hot.mine]
            async with self.database.engine.acquire() as connection:
                await runs.release_runs(connection, worker, held, self.committer.now())
                await runs.retire_worker(connection, worker)
        self.committer.forget_claims()
        self._held.clear()

    async def _register(self) -> None:
        name = f"{socket.gethostname()}:{os.getpid()}"
        lease = timedelta(seconds=self.config.lease_seconds)
        async with self.database.api.acquire() as connection:
            self.committer.worker_id = await runs.register_worker(connection, name, lease)
        self._heart = _Heart(self.database.dsn, self.committer.worker_id, self.config, self._beat)
        self._heart.start()

    async def _wait_for_attempts(self) -> None:
        tasks = [p.task for hot in self._held.values() for p in hot.tasks.values() if p.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=self.config.shutdown_seconds)

    async def _lose_begun(self, hot: Hot) -> None:
        for path, performing in list(hot.tasks.items()):
            if performing.task is None or performing.task.done():
                continue
            performing.task.cancel()
            try:
                lost = c.StepLost(path=path, attempt=performing.attempt)
                await self.committer.submit(hot.id, hot.tenant, lost)
            except Exception as error:  # its result was in time, or the run has moved on: nothing is left behind
                log.info("not_lost", run_id=str(hot.id), path=path, reason=str(error))

    # --- the lease ------------------------------------------------------------------------------------------------

    def _beat(self, beat: runs.Heartbeat | None) -> None:
        """What the database said to a heartbeat. None: the lease could not be renewed in time."""
        if self._stopping:
            return
        if beat is None or not beat.alive:
            log.warning("lease_lost", worker=self.id)
            self._spawn(self._start_over(), "start over")
            return
        held = {each.run_id: each for each in beat.held}
        for run_id, each in held.items():
            hot = self._held.get(run_id)
            if hot is None or hot.version != each.version or hot.fence != each.fence:
                self.committer.refresh(run_id)
        for run_id, hot in list(self._held.items()):
            if run_id not in held and not hot.queued:
                self.committer.refresh(run_id)

    async def _start_over(self) -> None:
        """Drop everything and take a new id: others may perform what we held."""
        if self._heart is not None:
            self._heart.stop()
        self.committer.worker_id = None
        self.committer.forget_claims()
        while self.committer.worker_id is None and not self._stopping:
            try:
                await self._register()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("register_failed", error=str(error))
                await asyncio.sleep(self.config.heartbeat_seconds)

    # --- holding --------------------------------------------------------------------------------------------------

    def adopt(self, claimed: Iterable[runs.Claimed]) -> None:
        """Runs that a claim of ours returned. Those of a dead worker first lose what it had begun."""
        for claim in claimed:
            self._claims[claim.run_id] = claim.lost
            self.committer.refresh(claim.run_id)

    def sync(self, hot: Hot) -> None:
        """Make what we perform equal to what the run's state says is open. Called after every commit and load."""
        if not hot.mine:
            self._drop(hot)
            return
        self._held[hot.id] = hot
        state = hot.state
        for path, performing in list(hot.tasks.items()):
            if state.attempts.get(path) != performing.attempt:
                del hot.tasks[path]
                if performing.task is not None:
                    performing.task.cancel()
        suspect, hot.suspect = self._claims.pop(hot.id, hot.suspect), False
        if suspect:
            self._declare_lost(hot)
            return
        for path, attempt in state.attempts.items():
            if path not in hot.tasks:
                self._begin(hot, path, attempt)
        if state.status == "stopping":
            self._cancel_all(hot)
        elif state.status == "running" and not hot.asks and next_ready(state) is not None:
            self.committer.tell(hot, c.Continue())
        self._set_timer(hot)

    def _drop(self, hot: Hot) -> None:
        self._held.pop(hot.id, None)
        self._claims.pop(hot.id, None)
        for performing in hot.tasks.values():
            if performing.task is not None:
                performing.task.cancel()
        hot.tasks.clear()

    def _declare_lost(self, hot: Hot) -> None:
        """The open attempts may have been begun by somebody who is gone; ours are known and stay."""
        lost = [(path, attempt) for path, attempt in hot.state.attempts.items() if path not in hot.tasks]
        for path, attempt in lost:
            hot.tasks[path] = Performing(attempt, None)
            self.committer.tell(hot, c.StepLost(path=path, attempt=attempt))
        if not lost:
            self.sync(hot)

    def _cancel_all(self, hot: Hot) -> None:
        for performing in hot.tasks.values():
            if performing.task is not None:
                performing.task.cancel()

    def _set_timer(self, hot: Hot) -> None:
        due = wake_at(hot.state)
        if due is not None:
            heapq.heappush(self._wakes, (due, hot.id))
            if self._wakes[0][0] == due:
                self._woken.set()

    async def _run_timers(self) -> None:
        """The timers of the runs that we hold: the database has none for them (STORE H3)."""
        while True:
            now = self.committer.now_ms()
            while self._wakes and self._wakes[0][0] <= now:
                due, run_id = heapq.heappop(self._wakes)
                hot = self._held.get(run_id)
                if hot is not None and wake_at(hot.state) == due:
                    self.committer.tell(hot, c.TimerFired())
            self._woken.clear()
            pause = (self._wakes[0][0] - now) / 1000 if self._wakes else None
            try:
                await asyncio.wait_for(self._woken.wait(), pause)
            except TimeoutError:
                continue

    # --- performing -----------------------------------------------------------------------------------------------

    def _begin(self, hot: Hot, path: str, attempt: int) -> None:
        if self._stopping or self._heart is None or not self._heart.safe:
            return  # nothing is started by a process whose lease may be over
        hot.tasks[path] = Performing(attempt, asyncio.create_task(self._perform(hot, path, attempt)))

    async def _perform(self, hot: Hot, path: str, number: int) -> None:
        """Run one attempt and report what became of it. One that was closed meanwhile reports nothing."""
        assert hot.plan is not None
        step = hot.plan.steps[path]
        known = hot.state.steps[path]
        message = _Message(message_id(str(hot.id), path, number, 0))
        attempt = Attempt(str(hot.id), path, number, known.args or "{}", step)

        async def stream(text: str) -> None:
            message.texts.append(text)
            if message.timer is None:
                loop = asyncio.get_running_loop()
                message.timer = loop.call_later(self.config.chunk_seconds, self._flush, hot, path, number, message)

        report: c.Command
        try:
            async with self._slots:
                output = await self._registry.runner_of(step).perform(attempt, stream)
            report = c.StepSucceeded(path=path, attempt=number, output=output)
        except asyncio.CancelledError:
            if hot.state.status != "stopping" or self._stopping:
                raise
            report = _failed(path, number, StepError("The run is being stopped.", code=CANCELLED, retriable=False))
        except StepError as error:
            report = _failed(path, number, error)
        except Exception as error:
            log.info("tool_raised", run_id=str(hot.id), path=path, exc_info=error)
            report = _failed(path, number, StepError(f"{type(error).__name__}: {error}"))
        self._flush(hot, path, number, message)
        self.committer.tell(hot, report)

    def _flush(self, hot: Hot, path: str, attempt: int, message: _Message) -> None:
        """Hand what was streamed since the last time to the committer, as one chunk."""
        if message.timer is not None:
            message.timer.cancel()
            message.timer = None
        text = "".join(message.texts)
        message.texts.clear()
        if text:
            self.committer.stream(hot, [Chunk(message.id, path, attempt, message.chunks, text)])
            message.chunks += 1


def _failed(path: str, attempt: int, error: StepError) -> c.StepFailed:
    return c.StepFailed(
        path=path,
        attempt=attempt,
        code=error.code,
        message=error.message,
        retriable=error.retriable,
        data=error.data,
        retry_after=None if error.retry_after is None else int(error.retry_after * 1000),
    )


class _Heart:
    """Renews the lease from a thread and a connection of its own, as long as the loop it beats for answers.

    A loop that is stuck performs nothing useful, so its lease should end; a loop that is only busy should keep it.
    """

    def __init__(
        self, dsn: str, worker: int, config: WorkerConfig, beat: Callable[[runs.Heartbeat | None], None]
    ) -> None:
        self._dsn = dsn
        self._worker = worker
        self._config = config
        self._tell = beat
        self._loop = asyncio.get_running_loop()
        self._end = threading.Event()
        self._answered = time.monotonic()
        self._lease_until = time.monotonic() + config.lease_seconds
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    @property
    def safe(self) -> bool:
        """Whether the lease surely still runs: a margin of one heartbeat before its end, by our own clock (P5)."""
        return time.monotonic() < self._lease_until - self._config.heartbeat_seconds

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()

    def _run(self) -> None:
        asyncio.run(self._beat_until_stopped())

    async def _beat_until_stopped(self) -> None:
        connection: asyncpg.Connection[Any] | None = None
        lease = timedelta(seconds=self._config.lease_seconds)
        while not self._end.wait(self._config.heartbeat_seconds):
            try:
                self._loop.call_soon_threadsafe(self._pong)
            except RuntimeError:  # the loop is closed: so is everything that this heart beats for
                break
            if time.monotonic() - self._answered > self._config.lease_seconds / 2:
                continue
            sent = time.monotonic()
            beat: runs.Heartbeat | None = None
            try:
                if connection is None or connection.is_closed():
                    connection = await asyncpg.connect(self._dsn, timeout=self._config.lease_seconds / 2)
                beat = await asyncio.wait_for(
                    runs.heartbeat(connection, self._worker, lease), self._config.lease_seconds / 2
                )
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("heartbeat_failed", error=str(error))
            if beat is not None and beat.alive:
                self._lease_until = sent + self._config.lease_seconds
            elif beat is None and time.monotonic() < self._lease_until:
                continue
            self._loop.call_soon_threadsafe(self._tell, beat)
            if beat is None or not beat.alive:
                break
        if connection is not None:
            connection.terminate()

    def _pong(self) -> None:
        self._answered = time.monotonic()
