"""When the runs that a process holds must be looked at, though nothing happens."""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple
from uuid import UUID

AGAIN_MS: Final = 1000
REPLACED_MAX: Final = 64  # times that are replaced and still kept, beyond as many as there are runs


class _Wake(NamedTuple):
    """Look `at` this time at the run, because it is `due` (the same, or long past)."""

    at: int
    run_id: UUID
    due: int


class Wakes:
    """When held runs must be looked at: one time for each run, however often it is set, and the earliest first.

    A run whose time has come is given out again every `AGAIN_MS` until it has another time or none: the command that
    was sent may have been refused. Times that were replaced stay in the heap until they come or until they are the most
    of it.
    """

    def __init__(self) -> None:
        self._set: dict[UUID, _Wake] = {}
        self._heap: list[_Wake] = []

    def set(self, run_id: UUID, due: int | None) -> bool:
        """`due` (ms since 1970) is the run's only time now; None: it has none. Whether it is new and the earliest."""
        known = self._set.get(run_id)
        if due == (None if known is None else known.due):
            return False
        if due is None:
            del self._set[run_id]
        else:
            self._push(due, run_id, due)
        if not self._set:
            self._heap.clear()
        elif len(self._heap) > 2 * len(self._set) + REPLACED_MAX:
            self._heap = list(self._set.values())
            heapq.heapify(self._heap)
        return due is not None and self._heap[0].at == due

    def take(self, now: int) -> list[UUID]:
        """The runs whose time has come."""
        found = []
        while self._heap and self._heap[0].at <= now:
            wake = heapq.heappop(self._heap)
            if self._set.get(wake.run_id) is wake:
                found.append(wake.run_id)
                self._push(now + AGAIN_MS, wake.run_id, wake.due)
        return found

    def _push(self, at: int, run_id: UUID, due: int) -> None:
        wake = self._set[run_id] = _Wake(at, run_id, due)
        heapq.heappush(self._heap, wake)

    @property
    def first(self) -> int | None:
        """The earliest time, or an earlier one that was replaced."""
        return self._heap[0].at if self._heap else None

    def clear(self) -> None:
        self._set.clear()
        self._heap.clear()
