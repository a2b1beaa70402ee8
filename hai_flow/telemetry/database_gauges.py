"""The numbers that only the database knows, as gauges. One process looks, every process tells
(`store/ops/metrics_queries`)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from hai_flow.runtime.base.service import Service
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.ops import metrics_queries
from hai_flow.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

CENSUS_SECONDS: Final = 5.0


class Census(Service):
    """Keeps the gauges of `metrics` up to date while the runtime lives."""

    def __init__(self, metrics: Metrics, seconds: float = CENSUS_SECONDS) -> None:
        super().__init__()
        self._seconds = seconds
        self._runtime: Runtime | None = None
        self._at = 0.0
        gauge = metrics.gauge
        self._runs = gauge("runs", "Runs that have not ended, by the last round of the census.", "workflow", "status")
        self._due = gauge("runs_due", "Runs that a worker is to take now.")
        self._due_age = gauge(
            "runs_due_oldest_seconds", "For how long the first of them has been due: the queue's lag."
        )
        self._queue_due = gauge("queue_runs_due", "Runs that are due, of the queues that lag most.", "queue")
        self._queue_age = gauge("queue_oldest_seconds", "For how long the first of a queue has been due.", "queue")
        self._queue_workers = gauge("queue_workers", "Workers that serve a queue in which runs are due.", "queue")
        self._overdue = gauge("runs_overdue", "Runs whose timer, deadline or work is more than 10 s late.")
        self._pendings = gauge("pendings_open", "Questions to people that are open.")
        self._pendings_age = gauge("pendings_oldest_seconds", "For how long the oldest of them has been open.")
        self._outbox = gauge("outbox_due", "Messages between runs that are due.")
        self._outbox_age = gauge("outbox_oldest_seconds", "For how long the oldest of them has been due.")
        self._unsealed_age = gauge("audit_unsealed_seconds", "For how long the oldest record waits for its seal.")
        self._stranded = gauge("pendings_stranded", "Questions that nobody can decide.")
        self._workers = gauge("workers_alive", "Workers that give signs of life.")
        metrics.reads("census_age_seconds", "How old the numbers of the census are.", self._age)

    def attach(self, runtime: Runtime) -> Sequence[Service]:
        """Live as long as the runtime does."""
        self._runtime = runtime
        return (self,)

    def _age(self) -> float:
        runtime = self._runtime
        return 0.0 if runtime is None or not self._at else max(0.0, runtime.committer.now_ms() / 1000 - self._at)

    async def _start(self) -> None:
        self._keep(self._run, "census")

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as error:  # the database is away: the numbers grow old, and say so
                log.warning("census_failed", error=str(error) or repr(error))
            await asyncio.sleep(self._seconds * random.uniform(0.9, 1.1))

    async def look(self) -> None:
        """Look, if it is this process's turn, and take over the newest counts of any process."""
        runtime = self._runtime
        assert runtime is not None
        async with runtime.database.engine.acquire() as connection:
            await metrics_queries.look(connection, timedelta(seconds=self._seconds))
            counts = await metrics_queries.read_last_counts(connection)
        if counts is not None:
            self._show(counts)

    def _show(self, found: metrics_queries.MetricsRound) -> None:
        self._at, waiting = found.at, found.waiting
        self._due.put(waiting.due)
        self._due_age.put(waiting.due_age)
        self._overdue.put(waiting.overdue)
        self._pendings.put(waiting.pendings)
        self._pendings_age.put(waiting.pendings_age)
        self._outbox.put(waiting.outbox)
        self._outbox_age.put(waiting.outbox_age)
        self._unsealed_age.put(waiting.unsealed_age)
        self._workers.put(waiting.workers)
        self._stranded.put(waiting.stranded)
        for gauge in (self._queue_due, self._queue_age, self._queue_workers):
            gauge.clear()
        for queue in found.queues:
            self._queue_due.put(queue.due, (queue.name,))
            self._queue_age.put(queue.age, (queue.name,))
            self._queue_workers.put(queue.workers, (queue.name,))
        if found.runs is not None:
            self._runs.clear()
            for workflow, status, number in found.runs:
                self._runs.put(number, (workflow, status))
