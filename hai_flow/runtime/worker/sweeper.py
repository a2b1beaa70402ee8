"""Finds the work that no commit announces: runs that are due, runs of dead workers, rows left behind.

The poll (`pulse`) is the truth; a hint only makes it come sooner. Messages between runs are not here: `delivery`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec
import structlog

from hai_flow.primitives import instants
from hai_flow.runtime.base.pulse import Alarm
from hai_flow.runtime.base.service import Service, wait_at_most
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.hooks import tell
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.people.inbox import Inbox
from hai_flow.runtime.worker.worker import Worker
from hai_flow.store.identity import credential_checks
from hai_flow.store.messaging import callbacks, hints, signals
from hai_flow.store.ops.pulse import DueWork
from hai_flow.store.people import absences, chat, delegations, notifications
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.database import EVERYTHING, Database
from hai_flow.store.runs import leases

log = structlog.get_logger(__name__)

WAIT_SECONDS_MIN: Final = 0.01  # a run that is due but can't be taken (its row is locked) must not make us spin


class SweeperConfig(msgspec.Struct, frozen=True):
    """`poll_seconds`: how often it is asked what is due. `claims_max`: runs taken by one claim.

    `held_max`: claim no more while this many are held. `tidy_seconds`: how often old rows are cleared away."""

    poll_seconds: float = 1.0
    claims_max: int = 50
    held_max: int = 10_000
    tidy_seconds: float = 60.0


class Sweeper(Service):
    """Claims runs that are due or lost and hands them to the worker; tidies up."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        worker: Worker,
        config: SweeperConfig | None = None,
        files: Files | None = None,
        inbox: Inbox | None = None,
        rows: Rows | None = None,
    ) -> None:
        super().__init__()
        self._rows = rows or Rows()
        self._files = files or Files(database)
        self._inbox = inbox
        self.database = database
        self.committer = committer
        self.worker = worker
        self.config = config or SweeperConfig()
        self._hinted = asyncio.Event()
        self._alarm = Alarm(self._hinted, committer.now_ms, self.config.poll_seconds)
        self._behind = ""  # the queue of which runs were claimed last: the others come first next time

    async def _stop(self) -> None:
        self._alarm.cancel()

    async def _start(self) -> None:
        self._hinted.set()
        self.worker.on_place = self._hinted.set
        self._keep(self._run_claims, "claims")
        self._keep(self._run_tidying, "tidying")

    def hint(self, payload: str) -> None:
        """A run was committed that no worker holds and that has something to perform."""
        queue = hints.parse_due_queue(payload)
        is_served = payload == EVERYTHING if queue is None else self.worker.config.served.serves(queue)
        if is_served:
            self._hinted.set()

    def look(self, due: DueWork | None, asked_at: float) -> None:
        """Claim runs that are due, or will be before it is asked again, and those of dead workers (`pulse`)."""
        if due is None or due.lost:
            self._hinted.set()
        elif due.runs is not None:
            self._alarm.set(due.runs)

    async def _run_claims(self) -> None:
        while True:
            pause = None
            try:
                pause = await self._claim()
            except Exception as error:
                log.warning("claim_failed", error=str(error))
                tell(self.worker.committer.listeners.refused, error)
            await wait_at_most(self._hinted, None if pause is None else pause * random.uniform(0.8, 1.0))
            self._hinted.clear()

    async def _claim(self) -> float | None:
        """Claim once; return after how many seconds to look again; None: when there is something, which is asked every
        `poll_seconds`.

        It claims no more runs than there are places for: a run that waits for a place here could be performed
        elsewhere. Nor does it claim more before half of the last claim is loaded: many that are due at once leave time
        to those that go on. The queues take turns, so that a full one keeps no other from being looked at."""
        worker, served = self.worker, self.worker.config.served
        ahead = self.config.claims_max if worker.coming <= self.config.claims_max // 2 else 0
        limit = min(ahead, worker.room)
        if worker.id is None or worker.held >= self.config.held_max or not limit:
            worker.short_of_places = not limit
            return None
        names = served.places if served.every else sorted(served.names, key=lambda name: (name <= self._behind, name))
        rooms = {name: worker.room_of(name) for name in names}
        full = [name for name, room in rooms.items() if not room]
        if not served.every:
            rooms = {name: room for name, room in rooms.items() if room}
        worker.short_of_places = bool(full)
        behind = self._behind if served.every else None
        claimed = await worker.claim(limit, list(rooms), list(rooms.values()), behind)
        due = [each.queue for each in claimed if not each.lost]
        if due:
            self._behind = max(due, key=lambda name: (name <= self._behind, name))
        if len(claimed) >= limit:
            return 0.0
        return await self._pause(full if served.every else list(rooms), but=served.every)

    async def _pause(self, queues: list[str], *, but: bool) -> float | None:
        async with self.database.engine.acquire() as connection:
            due = await leases.next_wake(connection, queues, but=but)
        if due is None:
            return None
        wait = (instants.milliseconds(due) - self.committer.now_ms()) / 1000
        return max(wait, WAIT_SECONDS_MIN) if wait < self.config.poll_seconds else None

    async def _run_tidying(self) -> None:
        while True:
            await asyncio.sleep(self.config.tidy_seconds * random.uniform(0.8, 1.0))
            await self.tidy()

    async def tidy(self) -> None:
        """Clear away some of the rows left behind, unless another process just did. A kind of row that can't be cleared
        away is put off, and keeps no other."""
        for kind, clear in self._build_clearing().items():
            await self._rows.deal(Sweep.TIDYING, kind, clear)

    def _build_clearing(self) -> dict[str, Callable[[], Awaitable[object]]]:
        pool, every = self.database.api, timedelta(seconds=self.config.tidy_seconds)
        return {
            "newer runs": partial(self._tell_of_newer, every),  # first: it is the alarm for what stops others
            "workers": partial(leases.delete_dead_workers, pool, timedelta(hours=1)),
            **{
                name: partial(orphan_cleanup.sweep, pool, name, every, partial(forget, pool))
                for name, forget in (
                    ("subscriptions", signals.forget_subscriptions),
                    ("signals", signals.delete_old_signals),
                    ("callbacks", callbacks.delete_old_callbacks),
                )
            },
            "files": partial(self._files.tidy, every),
            **({} if self._inbox is None else {"inbox": partial(self._inbox.tidy, every)}),
            "notifications": partial(notifications.forget, pool),
            "links": partial(notifications.delete_old_links, pool),
            "chat_buttons": partial(chat.delete_old_buttons, pool, 1000),
            "absences": partial(absences.remove_old, pool),
            "delegations": partial(delegations.remove_old, pool),
            "forgotten people": partial(credential_checks.clear, pool),
        }

    async def _tell_of_newer(self, every: timedelta) -> None:
        if named := await leases.mark_newer(self.database.api, every):
            log.error("runs_of_a_newer_release", runs=named, remedy="start its workers again, or upgrade")
