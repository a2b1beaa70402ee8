"""Asks the database, every `poll_seconds`, whether there is anything to do, and wakes the loops of the process that
have something to do.

The poll is the truth, and hints only make it come sooner: this is the poll. It is one statement for all loops. Where
its answer can't be had, each loop is woken and looks for itself: so a fault of one kind of rows keeps no other from its
work. So it is on Citus, too, where nothing shows that a record of the audit has no seal yet."""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import ClassVar, Final, TypeAlias

import structlog

from hai_flow.primitives import instants
from hai_flow.runtime.base.queue_selection import QueueSelection
from hai_flow.runtime.base.service import Service
from hai_flow.store.ops.pulse import DueWork, due_work
from hai_flow.store.postgres.database import Database

log = structlog.get_logger(__name__)

SOONEST: Final = 0.9  # of `poll_seconds`, until it is asked again
LATEST: Final = 1.1

Look: TypeAlias = Callable[[DueWork | None, float], None]
"""Called with what is due, and the monotonic time at which it was asked for; None: it is not known."""


class Pulse(Service):
    """`served`: the queues whose runs the process performs; None: it performs nothing. `looks` are called in their
    order, and must not wait."""

    def __init__(self, database: Database, served: QueueSelection | None, poll_seconds: float) -> None:
        super().__init__()
        self._database = database
        self._served = served
        self._poll_seconds = poll_seconds
        self._failing = False
        self.looks: list[Look] = []

    async def _start(self) -> None:
        self._keep(self._run, "what is due")

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            due = await self._due()
            for look in self.looks:
                look(due, began)
            await asyncio.sleep(self._poll_seconds * random.uniform(SOONEST, LATEST))

    async def _due(self) -> DueWork | None:
        if self._database.sharded:
            return None
        try:
            served = self._served
            queues = None if served is None or served.every else sorted(served.names)
            async with self._database.engine.acquire() as connection:
                due = await due_work(connection, queues, performs=served is not None)
        except Exception as error:
            if not self._failing:
                log.warning("pulse_failed", error=str(error) or repr(error), meanwhile="every_loop_looks_for_itself")
            self._failing = True
            return None
        self._failing = False
        return due


class Alarm:
    """Sets `event` at an instant of the database's clock, which `now_ms` tells, if the next pulse may come after it."""

    def __init__(self, event: asyncio.Event, now_ms: Callable[[], int], poll_seconds: float) -> None:
        self._event = event
        self._now_ms = now_ms
        self._poll_seconds = poll_seconds
        self._timer: asyncio.TimerHandle | None = None

    def set(self, due: datetime) -> None:
        """In place of the instant that was given before."""
        self.cancel()
        wait = (instants.milliseconds(due) - self._now_ms()) / 1000
        if wait <= 0:
            self._event.set()
        elif wait < LATEST * self._poll_seconds:
            self._timer = asyncio.get_running_loop().call_later(wait, self._event.set)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PulsedService(Service):
    """A service that works whenever the pulse has found something due for it."""

    DUE: ClassVar[str]
    """The field of `DueWork` that says so."""
    TASK: ClassVar[str]
    FAILURE: ClassVar[str]
    """The message of the log about work that ended with one of `ERRORS`; the next time may do better."""
    ERRORS: ClassVar[type[Exception] | tuple[type[Exception], ...]] = Exception

    def __init__(self) -> None:
        super().__init__()
        self._due = asyncio.Event()

    def look(self, due: DueWork | None, asked_at: float) -> None:
        """Hear from the pulse; None: it could not ask."""
        if due is None or getattr(due, self.DUE):
            self._due.set()

    async def _start(self) -> None:
        self._keep_woken(self._due, self.take_due, self.TASK, self.FAILURE, self.ERRORS)

    @abstractmethod
    async def take_due(self) -> None: ...
