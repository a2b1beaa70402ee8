"""The steps of a run are folded of its log once for all pages, and read on for later moments, as one fold would be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine.events import decode_events
from hai_flow.errors import Rejected
from hai_flow.runtime.runs.step_times import ENTRY_BYTES, KEPT_SECONDS, StepTimes, StepTimesCache
from hai_flow.store.ops.replicas import History
from hai_flow.store.runs.logs import LogRow
from hai_flow.wire.timeline import Span, Spans
from tests.corpus import kept
from tests.support.examples import examples

COMMITS = max(
    ([msgspec.json.encode(batch) for batch, _ in run.batches] for run in kept.read(kept.files()[0], kept.Kept)), key=len
)
"""Those of the recorded run that has the most: a loop with questions."""
EVENTS = [event for commit in COMMITS for event in decode_events(commit)]


class Log:
    """The log of `COMMITS`, of which some were merged; and how many of its rows were read."""

    def __init__(self) -> None:
        self.read = 0
        self.rows: list[LogRow] = []
        self.merge(1)

    def merge(self, size: int) -> None:
        """Each row has as many commits from now on."""
        self.rows, first = [], 1
        for n in range(0, len(COMMITS), size):
            events = [each for commit in COMMITS[n : n + size] for each in msgspec.json.decode(commit)]
            self.rows.append(LogRow(first, first + len(events) - 1, msgspec.json.encode(events)))
            first += len(events)

    async def read_log(self, after: int, limit: int) -> list[LogRow]:
        rows = [row for row in self.rows if row.last_seq > after][:limit]
        self.read += len(rows)
        return rows


def spans(upto: int) -> list[Span]:
    """The steps as of an event, by one fold."""
    folded = Spans()
    for seq, event in enumerate(EVENTS[:upto], 1):
        folded.take(seq, event)
    return folded.all


def read_on(steps: StepTimes, log: Any, end: int) -> list[Span]:
    asyncio.run(steps.read_on(cast("History", log), str(uuid4()), end))
    return steps.all


@settings(max_examples=examples(30))
@given(moments=st.lists(st.tuples(st.integers(0, len(EVENTS)), st.integers(1, 9)), min_size=1, max_size=6))
def test_steps_read_on_are_those_of_one_fold_whatever_was_merged(moments: Sequence[tuple[int, int]]) -> None:
    log, steps = Log(), StepTimes(lambda event: event)
    for end, size in sorted(moments):
        log.merge(size)
        assert read_on(steps, log, end) == spans(end)
        assert steps.seq == end


def test_the_steps_of_a_run_that_was_removed_meanwhile_are_not_found() -> None:
    log, steps = Log(), StepTimes(lambda event: event)
    del log.rows[2:]
    with pytest.raises(Rejected) as rejected:
        read_on(steps, log, len(EVENTS))
    assert rejected.value.status == 404


def test_kept_steps_are_for_one_reader_at_a_time_and_for_no_earlier_moment() -> None:
    cache, steps = StepTimesCache(), StepTimes(lambda event: event)
    read_on(steps, Log(), 9)
    cache.keep("ann", steps)
    assert cache.take("ben", 9) is None
    assert cache.take("ann", 10) is steps
    assert cache.take("ann", 10) is None
    cache.keep("ann", steps)
    assert cache.take("ann", 8) is None


def test_kept_steps_are_dropped_when_they_are_too_much_or_too_old() -> None:
    now = 0.0
    cache = StepTimesCache(2 * ENTRY_BYTES, lambda: now)
    first, second, third = (StepTimes(lambda event: event) for _ in range(3))
    for name, steps in {"first": first, "second": second, "third": third}.items():
        cache.keep(name, steps)
    assert cache.take("first", 0) is None
    assert cache.take("second", 0) is second
    cache.keep("second", second)
    now = KEPT_SECONDS + 1
    assert cache.take("second", 0) is None
    large = StepTimes(lambda event: event)
    read_on(large, Log(), len(EVENTS))
    cache.keep("large", large)
    assert cache.take("large", len(EVENTS)) is None
