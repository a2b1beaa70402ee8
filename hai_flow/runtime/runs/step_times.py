"""The steps of runs with their times, folded of their logs, and kept while a reader goes through their pages.

Any page of steps needs the whole log, because a step of its beginning may end, or be undone, with its newest event. So
each run's log is read once for its pages, and read on for later moments of the run."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from hai_flow.engine import events as e
from hai_flow.errors import reject_unknown_run
from hai_flow.primitives.beside_loop import run_by_size
from hai_flow.store.ops.replicas import History
from hai_flow.store.runs.logs import LogRow
from hai_flow.wire.timeline import Span, Spans

COMMITS_AT_ONCE: Final = 500
KEPT_BYTES_MAX: Final = 32 * 1024 * 1024  # of all runs; of their logs as they are stored
KEPT_SECONDS: Final = 60.0  # behind the last page
ENTRY_BYTES: Final = 512  # that a run without an event counts


class StepTimes:
    """The steps of one run as of its event `seq`. `see`: how their reader sees each event in turn; None: not at all."""

    def __init__(self, see: Callable[[e.Event], e.Event | None]) -> None:
        self.seq = 0
        self.bytes = ENTRY_BYTES
        self.used_at = 0.0
        self._see = see
        self._spans = Spans()

    @property
    def all(self) -> list[Span]:
        return self._spans.all

    async def read_on(self, log: History, run_id: str, end: int) -> None:
        """Read the log up to the event `end`. Raises Rejected 404 where the run was removed since it was found."""
        while self.seq < end:
            rows = await log.read_log(self.seq, COMMITS_AT_ONCE)
            if not rows:
                raise reject_unknown_run(run_id)
            await run_by_size(sum(len(row.events) for row in rows), self._take_all, rows, end)

    def _take_all(self, rows: Sequence[LogRow], end: int) -> None:
        for row in rows:
            if row.first_seq <= end:
                self._take(row, end)

    def _take(self, row: LogRow, end: int) -> None:
        """Take the events of a row that come next: it may begin before, for commits are merged, and go beyond `end`."""
        self.bytes += len(row.events)
        first = self.seq + 1
        events = e.decode_events(row.events)[first - row.first_seq : end + 1 - row.first_seq]
        for seq, event in enumerate(events, first):
            visible = self._see(event)
            if visible is not None:
                self._spans.take(seq, visible)
        self.seq = min(row.last_seq, end)


class StepTimesCache:
    """The steps of the runs whose pages were read last, each as one reader sees them."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._bytes = 0
        self._kept: OrderedDict[Hashable, StepTimes] = OrderedDict()

    def take(self, key: Hashable, end: int) -> StepTimes | None:
        """Take out what was kept under `key`, which is nobody else's until it is kept again; None: there is nothing
        that can be read on up to the event `end`."""
        self._drop()
        steps = self._kept.pop(key, None)
        if steps is None:
            return None
        self._bytes -= steps.bytes
        return steps if steps.seq <= end else None

    def keep(self, key: Hashable, steps: StepTimes) -> None:
        """Keep the steps for the next page, in place of any that are kept under `key`."""
        if (before := self._kept.pop(key, None)) is not None:
            self._bytes -= before.bytes
        steps.used_at = self._clock()
        self._kept[key] = steps
        self._bytes += steps.bytes
        self._drop()

    def _drop(self) -> None:
        """Drop what is too much, or too old, the least recently used first."""
        until = self._clock() - KEPT_SECONDS
        while self._kept and (self._bytes > self._bytes_max or next(iter(self._kept.values())).used_at < until):
            self._bytes -= self._kept.popitem(last=False)[1].bytes
