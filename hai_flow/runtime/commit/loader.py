"""Bringing cached runs up to date, many in one statement; and the snapshots that make it short."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import structlog

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.snapshot import ABI, decode_state, encode_state
from hai_flow.engine.state.state import TERMINAL_STATUSES
from hai_flow.primitives.beside_loop import WORK_FOR, run_by_size
from hai_flow.runtime.commit.batch_recovery import BatchRecovery
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.context import CommitContext
from hai_flow.runtime.commit.submission import Submission
from hai_flow.store.catalog import workflows
from hai_flow.store.messaging import concurrency_slots
from hai_flow.store.messaging.concurrency_slots import derive_thread_slot
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.error_classes import ErrorClass, classify, passing
from hai_flow.store.runs import leases as claims
from hai_flow.store.runs import logs
from hai_flow.store.runs.logs import Loaded, LogRow

log = structlog.get_logger(__name__)

APART_SECONDS_MIN: Final = 0.1  # before a run is loaded apart from the others; doubled at each failure
APART_SECONDS_MAX: Final = 5.0
LOAD_ROWS_MAX: Final = 256  # commits of one run that are in memory at once while it is loaded
FOLDED_AT_ONCE: Final = 2000  # events; then the loop has a turn for others
SNAPSHOT_BYTES_MIN: Final = 64 * 1024


class Snapshots:
    """Folds of a log that are kept, so that a load need not fold it all (docs/design/store.md#snapshots). They are
    saved beside the commits; one may be lost."""

    def __init__(self, context: CommitContext) -> None:
        self._context = context

    def save_if_due(self, run: CachedRun) -> None:
        """Save a snapshot when the log since the last one exceeds its size: so the cost per event stays the same."""
        if run.log_bytes > max(SNAPSHOT_BYTES_MIN, run.snapshot_bytes):
            stored = encode_state(run.state)
            run.note_snapshot(len(stored))
            self._context.cache.weigh(run)
            self._context.spawn(self._save(run.id, run.state.seq, stored), "snapshot")

    async def _save(self, run_id: UUID, seq: int, stored: bytes) -> None:
        try:
            async with self._context.database.api.acquire() as connection:
                await logs.save_snapshot(connection, run_id, seq, ABI, stored)
        except Exception as error:  # a snapshot may be lost: the log is the truth
            log.warning("snapshot_lost", run_id=str(run_id), error=str(error))


class Loader:
    """Loads the runs of its queue, up to `entries_max` at once."""

    def __init__(self, context: CommitContext, failures: BatchRecovery, snapshots: Snapshots) -> None:
        self._context = context
        self._database = context.database
        self._queues = context.queues
        self._listeners = context.listeners
        self._claims = context.claims
        self._failures = failures
        self._snapshots = snapshots
        self._apart = asyncio.Semaphore(1)  # of the runs that are loaded apart from the others, one at once

    async def run(self) -> None:
        """Load the queued runs, for as long as the service lives."""
        queue = self._queues.loads
        while True:
            self._failures.drop_hand(queue)
            await queue.ready.wait()
            queue.hand = queue.take(self._context.entries_max)
            batches = deque([queue.hand])
            while batches:
                batch = batches.popleft()
                try:
                    await self._load(batch)
                    queue.since = time.monotonic()
                except Exception as error:
                    batches.extendleft(reversed(await self._split_failed_batch(batch, error)))
            queue.hand = []

    async def _split_failed_batch(self, batch: list[CachedRun], error: Exception) -> list[list[CachedRun]]:
        """The batches in which the runs of a failed load are loaded again: halves, until the culprit is alone.

        A run that waited for a lock or took too long makes all others of its batch wait as long: each is tried alone.
        """
        fault = classify(error)
        batch = [run for run in batch if run.position == "taken"]  # the others are dealt with
        if fault is ErrorClass.UNKNOWN:
            await asyncio.sleep(0.1)  # the database is away: wait for it, do not spin
            for run in batch:
                self._queues.loads.add(run)
            return []
        self._queues.loads.since = time.monotonic()
        if len(batch) > 1:
            step = 1 if fault is ErrorClass.RETRY else (len(batch) + 1) // 2
            return [batch[start : start + step] for start in range(0, len(batch), step)]
        for run in batch:
            if passing(error):
                run.detach()
                self._context.spawn(self._load_apart(run), "load a run apart")
            else:
                self._failures.give_up(run, error)
        return []

    def _take_short(self, batch: list[CachedRun], found: Mapping[UUID, Loaded]) -> list[CachedRun]:
        """Those of a batch that can be taken in at once. Runs with a long log to fold are loaded apart."""
        short = []
        for run in batch:
            loaded = found.get(run.id)
            if loaded is not None and loaded.rows and loaded.rows[-1].last_seq < loaded.seq:
                run.detach()
                self._context.spawn(self._load_apart(run, 0.0), "load a run apart")
            else:
                short.append(run)
        return short

    async def _load_apart(self, run: CachedRun, pause: float = APART_SECONDS_MIN) -> None:
        """Load a run that takes long, or whose load failed alone for a reason that may pass, until it has passed:
        meanwhile the loader serves the others."""
        while True:
            await asyncio.sleep(pause)
            try:
                async with self._apart:
                    await self._load([run])
                return
            except Exception as error:
                if not passing(error):
                    self._failures.give_up(run, error)
                    return
                log.warning("load_failed", run_id=str(run.id), error=str(error) or repr(error))
            pause = min(max(2 * pause, APART_SECONDS_MIN), APART_SECONDS_MAX)

    async def _load(self, batch: list[CachedRun]) -> None:
        began = time.monotonic()
        refence = [run.id for run in batch if run.must_fence]
        async with self._database.engine.acquire() as connection:
            if refence and self._claims.worker_id is not None:
                await claims.refence_runs(connection, self._claims.worker_id, refence)
            for run in batch:
                run.note_fenced()
            ids, seqs = [run.id for run in batch], [run.state.seq for run in batch]
            births, named = [run.created_at for run in batch], list_named(batch)
            loaded = await logs.load_runs(connection, ids, seqs, ABI, LOAD_ROWS_MAX, births, {id for _, id, _ in named})
            note_used(named, loaded)
            if len(batch) > 1:
                batch = self._take_short(batch, loaded)
            await self.look_up(connection, batch, loaded)
        faults: dict[UUID, Exception] = {}
        for run in batch:
            try:
                await self.take_in(run, loaded.get(run.id), began)
            except Exception as error:
                if passing(error):
                    raise
                faults[run.id] = error
        for run in batch:
            fault = faults.get(run.id)
            if fault is None:
                self._hand_on(run)
            else:
                self._failures.give_up(run, fault, loaded=loaded.get(run.id))

    async def look_up(self, connection: Connection, batch: list[CachedRun], found: Mapping[UUID, Loaded]) -> None:
        """Look up the rest that the waiting commands need: the holders of slots, and whether the versions of runs that
        begin were retired or superseded."""
        slots_by_run = {
            run.id: (run.tenant, slot) for run in batch if (slot := _find_slot_needed(run, found.get(run.id)))
        }
        promised = [
            (run, each, (run.tenant, each.seat)) for run in batch for each in run.submissions if each.seat is not None
        ]
        promises = [
            (run, each, (run.tenant, each.birth.slot or ""))
            for run in batch
            for each in run.submissions
            if each.birth is not None and each.birth.left
        ]
        slots = {*slots_by_run.values(), *(slot for _, _, slot in promised), *(slot for _, _, slot in promises)}
        holders = await concurrency_slots.slot_holders(connection, slots) if slots else {}
        for run in batch:
            for submission in list(run.submissions):  # more may come while the database is asked
                birth = submission.birth
                if birth is None or run.id in found:
                    continue
                if birth.latest:
                    submission.superseded = not await workflows.is_latest(connection, run.tenant, birth.plan.sha256)
                elif birth.in_use:
                    submission.retired = await workflows.is_retired(connection, run.tenant, birth.plan.sha256)
        for run in batch:
            slot_taken = run.id in slots_by_run and holders.get(slots_by_run[run.id]) not in (None, run.id)
            for submission in run.submissions:
                submission.slot_taken = slot_taken
        for run, submission, slot in promised:
            submission.seat_lost = holders.get(slot) != run.id
        for run, submission, slot in promises:
            submission.left_lost = holders.get(slot) != run.id

    def _hand_on(self, run: CachedRun) -> None:
        self._listeners.notify_changed(run)
        if run.has_work:
            self._queues.find_lane(run).add(run)
        else:
            self._queues.release(run)

    async def take_in(self, run: CachedRun, loaded: Loaded | None, began: float) -> None:
        """Bring a cached run up to its row and log in the database, as a load that `began` then has found them."""
        if loaded is None:
            run.miss(began)
            self._context.cache.weigh(run)
            return
        e.check_readable(loaded.abi)
        WORK_FOR.set(loaded.tenant)
        plan = run.plan
        if plan is None or plan.sha256 != loaded.workflow:
            plan = await self._context.find_plan(loaded.tenant, loaded.workflow)
        if loaded.from_seq < run.state.seq:
            run.forget()
        state, snapshot_bytes, log_bytes = run.state, run.snapshot_bytes, run.log_bytes
        if loaded.state is not None:
            state = await run_by_size(len(loaded.state), decode_state, loaded.state)
            snapshot_bytes, log_bytes = len(loaded.state), 0
        rows = loaded.rows
        while rows:
            for row in rows:
                if state.seq // FOLDED_AT_ONCE < row.last_seq // FOLDED_AT_ONCE:
                    await asyncio.sleep(0)  # a long log must not keep the loop from everything else
                gap = f"run {run.id}: the log jumps from {state.seq} to {row.first_seq}"
                assert row.first_seq <= state.seq + 1 <= row.last_seq, gap
                # Commits of an ended run are merged (`store/runs/log_compaction`): known events may stand in the same
                # row.
                decoded = await run_by_size(len(row.events), e.decode_events, row.events)
                events = decoded[state.seq + 1 - row.first_seq :]
                first, state = state.seq + 1, fold(state, events)
                log_bytes += len(row.events)
                self._listeners.notify_committed(run, first, events)
            rows = await self._read_on(run.id, state.seq, loaded.seq)
        assert state.seq == loaded.seq, f"run {run.id}: the log ends at {state.seq}, the run says {loaded.seq}"
        assert state.sha256 == loaded.workflow.hex(), f"run {run.id}: the log and the run name different workflows"
        owned = self._claims.owns(loaded.worker)
        run.load(loaded, plan, state, began, owned=owned, log_bytes=log_bytes, snapshot_bytes=snapshot_bytes)
        self._context.cache.weigh(run)
        self._snapshots.save_if_due(run)  # the next load need not fold all this again

    async def _read_on(self, run_id: UUID, seq: int, end: int) -> list[LogRow]:
        """The rows of a long log that a load left out, up to the seq that the run had then."""
        if seq >= end:
            return []
        async with self._database.engine.acquire() as connection:
            rows = await logs.read_log(connection, run_id, seq, LOAD_ROWS_MAX)
        return [row for row in rows if row.last_seq <= end]


def list_named(batch: Iterable[CachedRun]) -> list[tuple[CachedRun, str, Submission]]:
    """The commands that wait for these runs under an id, with the run and the id."""
    waiting = ((run, each.command_id, each) for run in batch for each in run.submissions)
    return [(run, id, each) for run, id, each in waiting if id is not None]


def note_used(named: Iterable[tuple[CachedRun, str, Submission]], found: Mapping[UUID, Loaded]) -> None:
    """Note at the commands that a load has looked their ids up, and which command had the id first."""
    for run, id, submission in named:
        submission.looked_up = True
        if run.id in found and (first_use := found[run.id].used.get(id)):
            submission.first_use = first_use


def _find_slot_needed(run: CachedRun, loaded: Loaded | None) -> str | None:
    """The slot that a waiting command needs: a Start's, or that of an ended run that is to go on."""
    if loaded is None:
        return next((each.birth.slot for each in run.submissions if each.birth is not None), None)
    retried = any(isinstance(each.command, c.Retry | c.Skip | c.TakeBack) for each in run.submissions)
    if loaded.status in TERMINAL_STATUSES and retried:
        return derive_thread_slot(loaded.thread_id)
    return None
