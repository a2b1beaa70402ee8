"""Deals with the rows of a sweep apart from each other. A row that can't be dealt with (a newer release wrote it, a
value that nobody expected) is logged once, counted and put off, ever longer; the ones behind it have theirs. Whoever
writes a sweep names it in `Sweep`: `tests/runtime/test_rows.py` puts a bad row in front of a good one in each of them.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

import structlog

from hai_flow.errors import Rejected
from hai_flow.store.postgres.error_classes import passing

T = TypeVar("T")
log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 5.0
AGAIN_SECONDS_MAX: Final = 300.0  # more than the time between two rounds of any sweep
PASSING_MAX: Final = 3  # faults of the database in a row: it is away, and the rest of a page would only wait for it
REMEMBERED_MAX: Final = 10_000


class Sweep(StrEnum):
    """The sweeps of a runtime, as logs and `hai_flow_rows_put_off_total` name them."""

    TIDYING = "tidying"
    """The kinds of rows that are cleared away (`Sweeper.tidy`)."""
    INBOX = "inbox"
    """Open questions whose rows in the inbox are wrong (`Inbox.tidy`)."""
    QUEUED_MESSAGES = "queued_messages"
    """Threads whose next message waits though no run is active (`MessageQueue.sweep`)."""
    PROMISED_SLOTS = "promised_slots"
    """Concurrency keys with promises that are over, and runs whose heir has not begun in time (`Slots.sweep`)."""
    WAITING_KEYS = "waiting_keys"
    """Concurrency keys with a free slot and a run that waits (`Slots.sweep`)."""
    WAITING_RUNS = "waiting_runs"
    """Runs that have a slot and are to begin, or that a newer one replaces (`Slots.admit`)."""
    OUTBOX = "outbox"
    """Messages between runs (`Delivery`)."""
    SIGNALS = "signals"
    """Signals that are to be offered (`Delivery`)."""
    NOTIFICATIONS = "notifications"
    """Notifications that are to be sent (`Notifier`)."""
    SCHEDULES = "schedules"
    """Schedules that are due (`Triggers`)."""
    RELAYS = "relays"
    """Events on their way to the cells of a tenant (`Spreading.send_due_relays`)."""
    MIRRORS = "mirrors"
    """Tenants whose cells are made like their seat (`Spreading.send_due_again`)."""
    ABSENCES = "absences"
    """Absences that have begun or ended (`Reseating`)."""
    STRANDED = "stranded"
    """Open questions that perhaps nobody can decide (`Stranded.look`)."""
    PICKS = "picks"
    """Open questions whose picked people perhaps can decide no more (`Picks.look`)."""


@dataclass(slots=True)
class _PutOff:
    until: float
    wait: float
    reason: str


class Rows:
    """Deals with the rows of all sweeps of a runtime. A row is put off for `again_seconds`, then twice as long each
    time, at most `again_seconds_max`. `failed` counts, by sweep, how often one was put off."""

    def __init__(self, again_seconds: float = AGAIN_SECONDS, again_seconds_max: float = AGAIN_SECONDS_MAX) -> None:
        self.again_seconds = again_seconds
        self._again_seconds_max = again_seconds_max
        self.failed: Counter[Sweep] = Counter()
        self._put_off: OrderedDict[tuple[Sweep, str], _PutOff] = OrderedDict()

    async def deal(self, sweep: Sweep, row: str, work: Callable[[], Awaitable[object]]) -> float:
        """Do `work` for the row with this name, unless it was put off. Returns 0.0 where it was done, else in how many
        seconds it is tried again. Raises nothing."""
        wait, _ = await self._attempt(sweep, row, work)
        return wait

    async def go_through(
        self, sweep: Sweep, rows: Iterable[T], name: Callable[[T], str], work: Callable[[T], Awaitable[object]]
    ) -> None:
        """Do `work` for each of the rows, one after the other. Raises the error of the database where it seems to do
        nothing any more. If it was those rows after all, they are put off, and the next round comes to those behind."""
        faults = 0
        for row in rows:
            _, error = await self._attempt(sweep, name(row), lambda row=row: work(row))
            faults = faults + 1 if error is not None and passing(error) else 0
            if error is not None and faults == PASSING_MAX:
                raise error

    async def _attempt(
        self, sweep: Sweep, row: str, work: Callable[[], Awaitable[object]]
    ) -> tuple[float, Exception | None]:
        key, now = (sweep, row), time.monotonic()
        before = self._put_off.get(key)
        if before is not None and now < before.until:
            return before.until - now, None
        try:
            await work()
        except Exception as error:
            return self._note(key, before, error), error
        if before is not None:
            del self._put_off[key]
            log.info("row_dealt_with", sweep=sweep.value, row=row)
        return 0.0, None

    def _note(self, key: tuple[Sweep, str], before: _PutOff | None, error: Exception) -> float:
        sweep, row = key
        self.failed[sweep] += 1
        reason = f"{type(error).__name__}: {error}"
        wait = self.again_seconds
        if before is not None and not _is_elsewhere(error):
            wait = min(2 * before.wait, self._again_seconds_max)
        if before is None or before.reason != reason:  # once, not at each try
            log.warning("row_put_off", sweep=sweep.value, row=row, error=reason)
        # A little less, so that one which the database gives out again after as long is not passed over once more.
        self._put_off[key] = _PutOff(time.monotonic() + 0.8 * wait, wait, reason)
        self._put_off.move_to_end(key)
        while len(self._put_off) > REMEMBERED_MAX:
            self._put_off.popitem(last=False)
        return wait


def _is_elsewhere(error: Exception) -> bool:
    """Whether a cell is away, or a limit reached: that is over at once when it is over."""
    return isinstance(error, Rejected) and error.status in (429, 503)
