"""How a batch, a load or a single run that failed is dealt with, so that the others go on.

A batch that was refused for its data is halved until the culprit is alone; a run whose row is locked is taken alone;
after an unknown outcome nothing is taken for granted and the runs are loaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog

from hai_flow.engine import commands as c
from hai_flow.errors import Rejected, StoreError, Unreadable
from hai_flow.runtime.catalog.pii_catalog import describe_error
from hai_flow.runtime.commit.batches import Batch, CommitEntry
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.runtime.commit.context import CommitContext
from hai_flow.runtime.commit.queues import Queue
from hai_flow.runtime.commit.submission import Submission
from hai_flow.store.postgres.error_classes import FAILURES, UNSTORABLE, ErrorClass, classify, is_unstorable, sqlstate_of
from hai_flow.store.runs import logs
from hai_flow.store.runs.logs import Loaded

log = structlog.get_logger(__name__)

LOCKED: Final = "55P03"  # a statement has waited too long for a row
RETRIES_MAX: Final = 3  # of one batch, before it is halved: one locked row must not stop the others for ever


class BatchRecovery:
    """Deals with failures of the lanes and of the loader."""

    def __init__(self, context: CommitContext) -> None:
        self._database = context.database
        self._cache = context.cache
        self._queues = context.queues
        self._claims = context.claims

    async def split_remainder(self, batch: Batch, error: Exception) -> list[Batch]:
        """The part of a failed batch that is to be sent again. The other runs of it are dealt with."""
        fault, entries = classify(error), batch.entries
        if sqlstate_of(error) == LOCKED and (free := await self._filter_unlocked(entries)) is not None:
            return free
        if fault is ErrorClass.RETRY and (batch.tries < RETRIES_MAX):
            await asyncio.sleep(0.01)
            return [Batch(entries, batch.tries + 1)]
        if away(error) or (fault is ErrorClass.RETRY and len(entries) == 1):
            log.warning("commit_outcome_unknown", runs=len(entries), error=str(error))
            # The server may be restarting, or wait for somebody to mend it: do not spin on it.
            await asyncio.sleep(0.05 if fault is not ErrorClass.INSTALLATION else 0.5)
            for entry in entries:
                entry.give_back()
                self._queues.doubt(entry.run)
            return []
        if len(entries) > 1:
            middle = len(entries) // 2
            return [Batch(entries[:middle]), Batch(entries[middle:])]
        self.condemn(entries[0], error)
        return []

    async def _filter_unlocked(self, entries: list[CommitEntry]) -> list[Batch] | None:
        """The part of a batch to be sent again that has waited for a row which another transaction holds. Those whose
        rows are held are taken alone, each with a connection of its own: to wait for them again would make all others
        wait as long. None: none of them is held now."""
        try:
            async with self._database.engine.acquire() as connection:
                held = await logs.find_locked_runs(connection, [entry.run.id for entry in entries if entry.run.exists])
        except FAILURES as error:
            log.warning("locks_unknown", error=str(error) or repr(error))
            return None
        if not held:
            return None
        free = [entry for entry in entries if entry.run.id not in held]
        for entry in entries:
            if entry.run.id in held:
                entry.give_back()
                entry.run.demand_lock()
                self._queues.load_again(entry.run)
        return [Batch(free)] if free else []

    def condemn(self, entry: CommitEntry, error: Exception) -> None:
        """One entry whose content can't be stored (docs/design/store.md#refused-batches): without its chunks, then
        command by command, until the culprit is alone."""
        run = entry.run
        if entry.chunks and entry.submissions:
            entry.chunks.clear()
            entry.give_back()
        elif len(entry.submissions) > 1:
            run.separate(len(entry.submissions))
            entry.give_back()
        else:
            for submission in entry.submissions:
                self.undecidable(run, submission, error)
        self._queues.load_again(run)

    def undecidable(self, run: CachedRun, submission: Submission, error: Exception) -> None:
        """A command that can't be carried out, for a fault of ours or of its data: the caller gets an error.

        Without a caller, the run needs attention, else the same would be tried for ever; and its attempt counts as
        lost, so that a person's Retry performs it again."""
        details = describe_error(run.plan, run.state, error)
        log.error("command_failed", run_id=str(run.id), command=type(submission.command).__name__, **details)
        submission.leave()
        if submission.answer is not None and is_unstorable(error):
            submission.fail(Rejected(422, "value_unstorable", UNSTORABLE))
            return
        if submission.answer is not None:
            fault = type(error).__name__  # its text may quote values, and is logged where the request came in
            submission.fail(StoreError(f"the command of run {run.id} could not be carried out: {fault}"))
            return
        if not run.exists:
            return
        command = submission.command
        is_expected = isinstance(command, c.TimerFired) and run.state.status == "needs_attention"  # asked each second
        if is_expected or isinstance(command, c.NeedAttention | c.StepLost):
            if run.owned:  # it would not be asked for again
                self._claims.let_go(run, run.fence, error)
            return
        now = time.monotonic()
        if isinstance(command, c.StepSucceeded | c.StepFailed):
            run.submit_next(Submission(c.StepLost(path=command.path, attempt=command.attempt), now))
        run.submit_next(Submission(c.NeedAttention(reason="what the run would store can't be stored"), now))

    def give_up(
        self, run: CachedRun, error: Exception, submissions: Iterable[Submission] = (), loaded: Loaded | None = None
    ) -> None:
        """Nothing can be decided for this run (its log or its workflow can't be read): its callers get an error, and if
        it is ours, another worker gets it, with the results and timers that are dropped here."""
        failure: Unreadable | StoreError
        if isinstance(error, Unreadable):  # another release's: the same each time that somebody tries
            log.error("run_unreadable", run_id=str(run.id), reason=str(error))
            failure = error
        else:
            log.error("run_unusable", run_id=str(run.id), **describe_error(run.plan, run.state, error))
            failure = StoreError(f"run {run.id} can't be decided: {type(error).__name__}")
        for submission in (*submissions, *run.drop_work()):
            submission.fail(failure)
        if loaded is not None and loaded.worker == self._claims.worker_id:
            self._claims.let_go(run, loaded.fence, error)
        elif loaded is None:
            self._claims.let_go(run, run.fence if run.owned else None, error)
        run.outdate(time.monotonic())
        self._queues.leave(run)
        self._cache.forget(run)

    def drop_hand(self, queue: Queue) -> None:
        """An error has stopped the lane: its runs are treated as after a commit of unknown outcome."""
        for entry in queue.entries:
            if entry.run.position == "taken":
                entry.give_back()
        for run in queue.hand:
            if run.position == "taken":
                self._queues.doubt(run)
        queue.hand, queue.entries = [], []


def away(error: Exception) -> bool:
    """Whether the database did not answer, or can answer no statement as it is."""
    return classify(error) in (ErrorClass.UNKNOWN, ErrorClass.INSTALLATION)
