"""When the runs that a process holds must be looked at, though nothing happens."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final
from uuid import UUID

AGAIN_MS: Final = 1000
REPLACED_MAX: Final = 64  # times that are replaced and still kept, beyond as many as there are runs


@dataclass(slots=True)
class _Wake:
    """Look `at` this time at the run, which is `due` then or later, or was before."""

    due: int
    at: int


class TimerHeap:
    """When held runs must be looked at: one time for each run, however often it is set, and the earliest first.

    A run whose time has come is given out again every `AGAIN_MS` until it has another time or none: the command that
    was sent may have been refused. Most times are replaced by later ones, as each step's time-out is by that of the
    next step; so a run keeps its place in the heap then, and gets the later one once that comes. Places that were
    replaced by earlier ones stay in the heap until they come or until they are the most of it."""

    def __init__(self) -> None:
        self._set: dict[UUID, _Wake] = {}
        self._heap: list[tuple[int, UUID]] = []

    def set(self, run_id: UUID, due: int | None) -> bool:
        """`due` (ms since 1970) is the run's only time now; None: it has none. Whether it is new and the earliest."""
        wake = self._set.get(run_id)
        if due is None:
            if wake is not None:
                del self._set[run_id]
                self._tidy()
            return False
        if wake is None:
            wake = self._set[run_id] = _Wake(due, due)
        elif wake.due == due:
            return False
        else:
            wake.due = due
            if wake.at <= due:
                return False
            wake.at = due
        heapq.heappush(self._heap, (due, run_id))
        self._tidy()
        return self._heap[0][0] == due

    def take(self, now: int) -> list[UUID]:
        """The runs whose time has come."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, run_id = heapq.heappop(self._heap)
            wake = self._set.get(run_id)
            if wake is None or wake.at != at:
                continue
            if wake.due <= now:
                due.append(run_id)
            wake.at = wake.due if wake.due > now else now + AGAIN_MS
            heapq.heappush(self._heap, (wake.at, run_id))
        return due

    def _tidy(self) -> None:
        if not self._set:
            self._heap.clear()
        elif len(self._heap) > 2 * len(self._set) + REPLACED_MAX:
            self._heap = [(wake.at, run_id) for run_id, wake in self._set.items()]
            heapq.heapify(self._heap)

    @property
    def first(self) -> int | None:
        """The earliest time, or an earlier one that was replaced."""
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._set.clear()
        self._heap.clear()
