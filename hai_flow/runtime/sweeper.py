"""What nobody else would notice: runs that are due, runs of dead workers, messages between runs, rows left behind.

The poll is the truth; a hint only makes it come sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from datetime import timedelta
import structlog

from hai_flow import values
from hai_flow.runtime.committer import Committer
from hai_flow.runtime.service import Service
from hai_flow.runtime.worker import Worker
from hai_flow.store import runs
from hai_flow.store.database import EVERYTHING, Database

log = structlog.get_logger(__name__)



@dataclass(frozen=True, slots=True)
class SweeperConfig:
    """`poll_seconds`: at least this often it is looked what is due. `claims_max`: runs taken by one claim.
    `held_max`: claim no more while this many are held. `queues`: whose runs this process performs."""

    poll_seconds: float = 1.0
    claims_max: int = 50
    held_max: int = 10_000
    queues: tuple[str, ...] = ("default",)
    tidy_seconds: float = 60.0


class Sweeper(Service):
    """Claims what is due or lost and hands it to the worker."""

    def __init__(
        self, database: Database, committer: Committer, worker: Worker, config: SweeperConfig | None = None
    ) -> None:
        super().__init__()
        self.database = database
        self.committer = committer
        self.worker = worker
        self.config = config or SweeperConfig()
        self._hinted = asyncio.Event()

    async def _start(self) -> None:
        self._hinted.set()
        self._spawn(self._run_claims(), "claims")
        self._spawn(self._run_tidying(), "tidying")

    def hint(self, payload: str) -> None:
        """Somebody committed a run that nobody holds and that has something to perform."""
        if payload in (runs.DUE, EVERYTHING):
            self._hinted.set()

    async def _run_claims(self) -> None:
        while True:
            pause = self.config.poll_seconds
            try:
                pause = await self._claim()
            except Exception as error:
                log.warning("claim_failed", error=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hinted.wait(), pause * random.uniform(0.8, 1.0))
            self._hinted.clear()

    async def _claim(self) -> float:
        """Claim once; return after how many seconds to look again."""
        worker = self.worker.id
        if worker is None or self.worker.held >= self.config.held_max:
            return self.config.poll_seconds
        async with self.database.engine.acquire() as connection:
            claimed = await runs.claim_runs(connection, worker, self.config.claims_max, self.config.queues)
            if claimed:
                self.committer.clock.read(values.milliseconds(claimed[0].db_now), time.monotonic())
                self.worker.adopt(claimed)
                return 0.0 if len(claimed) >= self.config.claims_max else self.config.poll_seconds
            due = await runs.next_wake(connection, self.config.queues)
        if due is None:
            return self.config.poll_seconds
        wait = (values.milliseconds(due) - self.committer.now_ms()) / 1000
        return min(max(wait, 0.001), self.config.poll_seconds)

    async def _run_tidying(self) -> None:
        while True:
            await asyncio.sleep(self.config.tidy_seconds * random.uniform(0.8, 1.0))
            try:
                async with self.database.api.acquire() as connection:
                    await runs.forget_workers(connection, timedelta(hours=1))
                    await runs.free_lost_slots(connection)
            except Exception as error:
                log.warning("tidying_failed", error=str(error))
