"""Lanes: the commands for runs are decided and committed, up to 256 runs in one statement.

The next batch starts when the statement of the one before returns, so back-pressure needs no timer. A batch holds at
most one entry per run, and a run is in at most one batch in flight."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from operator import attrgetter
from typing import Final

import structlog

from hai_flow.engine import commands as c
from hai_flow.engine.state.jobs import is_busy
from hai_flow.engine.state.snapshot import ABI
from hai_flow.primitives import instants
from hai_flow.primitives.beside_loop import ALLOWED_SECONDS, TooLongForLoop
from hai_flow.runtime.commit.batch_recovery import BatchRecovery
from hai_flow.runtime.commit.batches import Batch, CommitEntry
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.context import CommitContext
from hai_flow.runtime.commit.decider import Decider
from hai_flow.runtime.commit.hooks import tell
from hai_flow.runtime.commit.loader import Loader, Snapshots, list_named, note_used
from hai_flow.runtime.commit.queues import Queue
from hai_flow.runtime.commit.submission import Submission
from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import BatchResult, CommitResult
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.error_classes import FAILURES, ErrorClass, classify, passing
from hai_flow.store.runs import logs

log = structlog.get_logger(__name__)

_read_bytes: Final = attrgetter("bytes")


class CommitPipeline:
    """Commits the queued runs: at most `entries_max` runs and about `bytes_max` of events in one statement."""

    def __init__(
        self, context: CommitContext, decider: Decider, loader: Loader, failures: BatchRecovery, snapshots: Snapshots
    ) -> None:
        self._context = context
        self._database = context.database
        self._queues = context.queues
        self._listeners = context.listeners
        self._decider = decider
        self._loader = loader
        self._failures = failures
        self._snapshots = snapshots
        self._alone = asyncio.Semaphore(1)  # of those that wait for the lock of their row

    async def run(self, lane: Queue) -> None:
        """A lane keeps its connection until that breaks: to fetch one from the pool costs each commit a tenth of it."""
        while True:
            self._failures.drop_hand(lane)
            await lane.ready.wait()
            try:
                async with self._database.lane() as connection:
                    while not connection.is_closed():
                        await lane.ready.wait()
                        await self._run_batch(lane, connection)
            except FAILURES as error:
                log.warning("lane_without_connection", error=str(error) or repr(error))
                await asyncio.sleep(0.1)  # the database is away: wait for it, do not spin

    async def _run_batch(self, lane: Queue, connection: Connection) -> None:
        lane.hand = lane.take(self._context.entries_max)
        batch = await self._build_entries(lane)
        while batch:
            sizes = list(accumulate(map(_read_bytes, batch)))
            count = max(1, bisect_right(sizes, self._context.bytes_max))
            await self._commit(lane, connection, batch[:count])
            batch = batch[count:]
        lane.hand, lane.entries = [], []

    async def _build_entries(self, lane: Queue) -> list[CommitEntry]:
        """The entries of the runs in hand. The loop is given back in between: short decisions of many runs are long."""
        lane.entries = []
        pause_at = time.perf_counter() + ALLOWED_SECONDS
        for run in lane.hand:
            if time.perf_counter() > pause_at:
                await asyncio.sleep(0)
                pause_at = time.perf_counter() + ALLOWED_SECONDS
            if run.submissions and run.submissions[0].carrier is not None:
                run.detach()
                self._context.spawn(self._carry(run), "commit a tool's transaction")
            elif run.must_lock:
                run.detach()
                self._context.spawn(self._take_alone(run), "take a run alone")
            else:
                try:
                    entry = self._decider.entry_of(run)
                except TooLongForLoop:
                    run.detach()
                    self._context.spawn(self._foresee_apart(run), "decide beside the loop")
                    continue
                if entry is not None:
                    lane.entries.append(entry)
        return lane.entries

    async def _foresee_apart(self, run: CachedRun) -> None:
        """Decide a command that is long work, while the lane goes on with other runs."""
        await self._decider.foresee(run)
        self._queues.find_lane(run).add(run)

    async def _make_entry(self, run: CachedRun, *, locked: bool = False) -> CommitEntry | None:
        """The run's entry, for one that is committed apart from its lane."""
        while True:
            try:
                return self._decider.entry_of(run, locked=locked)
            except TooLongForLoop:
                await self._decider.foresee(run)

    async def _commit(self, lane: Queue, connection: Connection, entries: list[CommitEntry]) -> None:
        """Send a batch, and the rest of it after a failure, until every entry has won, lost or been condemned."""
        batches = deque([Batch(entries)])
        while batches:
            batch = batches.popleft()
            began = time.monotonic()
            try:
                done = await self._send(connection, batch)
            except Exception as error:
                fault = classify(error)
                if fault is ErrorClass.UNKNOWN:
                    lane.failed.update(entry.run for entry in batch.entries)
                elif fault is not ErrorClass.INSTALLATION:
                    lane.got_on()
                batches.extendleft(reversed(await self._failures.split_remainder(batch, error)))
                continue
            lane.got_on()
            now = time.monotonic()
            self._context.clock.read(instants.milliseconds(done.db_now), began, now)
            for number, entry in enumerate(batch.entries):
                self._finish(entry, done, number, began)
            self._hint(batch.entries, done.won)

    async def _send(self, connection: Connection, batch: Batch) -> BatchResult:
        at = instants.instant(self._context.now_ms())
        began = time.monotonic()
        try:
            done = await commits.commit(connection, batch.rows, self._context.claims.worker_id, at)
        except Exception as error:
            tell(self._listeners.unsent, classify(error))
            tell(self._listeners.refused, error)
            raise
        if done.freezes is not None:
            self._context.freezes.note_version(done.freezes)
        tell(self._listeners.sent, batch.entries, len(done.won), began, time.monotonic())
        return done

    def _finish(self, entry: CommitEntry, done: BatchResult, number: int, began: float) -> None:
        won = done.won.get(number)
        if won is None:
            self._handle_loss(entry)
            return
        try:
            self._apply_win(entry, won, began, done.created_at)
        except Exception as error:
            self._failures.give_up(entry.run, error, entry.submissions)

    def _apply_win(self, entry: CommitEntry, won: CommitResult, began: float, created_at: datetime | None) -> None:
        run = entry.run
        first_seq = won.seq - len(entry.events) + 1
        run.win(won, entry.bytes, owned=self._context.claims.owns(won.worker), created_at=created_at)
        if entry.commands:
            run.note_commands(entry.commands)
        self._context.cache.weigh(run)
        if entry.undecided is not None and not entry.undecided.failed:
            run.submit_next(entry.undecided)
        if first_seq == run.state.seq + 1:
            run.advance(entry.state, entry.plan, began)
            self._listeners.notify_committed(run, first_seq, entry.events)
            self._snapshots.save_if_due(run)
            entry.settle()
            self._listeners.notify_changed(run)
            if not entry.decides and not run.submissions and self._decider.is_bound_due(run):
                run.submit(Submission(c.Continue(), time.monotonic()))  # a stream decides nothing by itself
        else:  # somebody's chunks lie between: fold them in their place first
            run.outdate(time.monotonic())
            entry.settle()
        if entry.outbox:
            self._listeners.notify_outbox()
        self._queues.release(run)

    def _hint(self, entries: Sequence[CommitEntry], won: Mapping[int, CommitResult]) -> None:
        """Send hints of the entries that won to other processes, and call the listeners."""
        if won:
            if self._listeners.written:
                tell(self._listeners.written, [entries[number] for number in won])
            unheld = (entries[number] for number, each in won.items() if each.worker is None)
            due = {entry.run.plan.queue for entry in unheld if entry.run.plan is not None and is_busy(entry.state)}
            self._context.hints.add(entries, won, due=due)

    def _handle_loss(self, entry: CommitEntry) -> None:
        """Another process moved the run first (or took its slot): load that, and decide again."""
        run = entry.run
        run.lose()
        entry.give_back()
        self._queues.load_again(run)

    async def _carry(self, run: CachedRun) -> None:
        """Commit the result of an attempt in the transaction of its tool. However long that takes, it holds up no other
        run."""
        began = time.monotonic()
        entry = await self._make_entry(run)
        if entry is None:
            return
        carried = entry.carried
        try:
            if carried is None or carried.carrier is None:  # something else comes first, or the result was refused
                async with self._database.engine.acquire() as connection:
                    done = await self._send(connection, Batch([entry]))
            else:
                done = await carried.carrier.commit(lambda connection: self._send(connection, Batch([entry])))
        except Exception as error:
            await self._handle_transaction_failure(entry, carried, error)
            return
        self._finish(entry, done, 0, began)
        self._hint([entry], done.won)

    async def _handle_transaction_failure(
        self, entry: CommitEntry, carried: Submission | None, error: Exception
    ) -> None:
        run = entry.run
        if carried is None:
            if not await self._failures.split_remainder(Batch([entry]), error):
                return
        elif carried.answer is not None:  # whoever asked hears of it, and tries again
            carried.fail(error)
            if classify(error) is ErrorClass.UNKNOWN:
                entry.give_back()
                self._queues.doubt(run)
                return
        elif classify(error) is ErrorClass.RETRY:
            await asyncio.sleep(0.01)
        else:
            log.warning("transaction_failed", run_id=str(run.id), error=str(error) or repr(error))
            carried.leave()
            carried.command = _replace_result(carried.command, error)
            entry.give_back()
            self._queues.doubt(run)
            return
        entry.give_back()
        self._queues.load_again(run)

    async def _take_alone(self, run: CachedRun) -> None:
        """The fourth try of a run that lost three times, or whose row is locked: one of them at once, else those that
        wait for locks would take all connections."""
        async with self._alone:
            await self._commit_alone(run)

    async def _commit_alone(self, run: CachedRun) -> None:
        """Lock the row, load, decide, the same commit (docs/design/store.md#decisions-and-chunks)."""
        entry: CommitEntry | None = None
        released = False
        began, named = time.monotonic(), list_named([run])
        try:
            async with (
                self._database.engine.acquire() as connection,
                logs.lock_run(
                    connection, run.id, run.state.seq, ABI, run.created_at, [id for _, id, _ in named]
                ) as loaded,
            ):
                await self._loader.take_in(run, loaded, began)
                loads = {} if loaded is None else {run.id: loaded}
                note_used(named, loads)
                await self._loader.look_up(connection, [run], loads)
                run.note_locked()
                entry = await self._make_entry(run, locked=True)
                released = entry is None
                if entry is None:
                    return
                batch = Batch([entry])
                done = await self._send(connection, batch)
        except Exception as error:
            if released:
                return  # everyone is answered; only the end of the transaction failed
            if entry is not None:
                if await self._failures.split_remainder(Batch([entry]), error):
                    entry.give_back()  # nothing happened: the same again, from the beginning
                    self._queues.load_again(run)
            elif passing(error):
                log.warning("take_alone_failed", run_id=str(run.id), error=str(error))
                self._queues.load_again(run)
            else:
                self._failures.give_up(run, error)
            return
        self._finish(entry, done, 0, began)
        self._hint([entry], done.won)


def _replace_result(command: c.Command, error: Exception) -> c.Command:
    """The report in the place of a result whose transaction broke: the attempt is lost where the connection was, else
    it has failed. If the transaction was committed all the same, the attempt is over, and the report is refused."""
    assert isinstance(command, c.StepSucceeded), "only results are carried"
    message = f"The transaction of the tool could not be committed: {error or type(error).__name__}"[:1000]
    if classify(error) is ErrorClass.UNKNOWN:
        return c.StepLost(path=command.path, attempt=command.attempt, reason=message)
    return c.StepFailed(
        path=command.path,
        attempt=command.attempt,
        code="tool.failed",
        message=message,
        retriable=True,
        ended_at=command.ended_at,
        used=command.used,
    )
