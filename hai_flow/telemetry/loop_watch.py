"""How long the event loop stands still: nothing else of a process is answered meanwhile.

A beat is due every 20 ms; by how much it is late is how long something held the loop up, or the interpreter's lock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from hai_flow.runtime.base.service import Service
from hai_flow.runtime.runtime import Runtime
from hai_flow.telemetry.metrics import Metrics

BEAT_SECONDS: Final = 0.02
WINDOW_SECONDS: Final = 60.0


class LoopWatch(Service):
    """Measures the longest standstill of the loop within the last one to two minutes, while the runtime lives."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        super().__init__()
        self._since = time.monotonic()
        self._longest = self._longest_before = 0.0
        if metrics is not None:
            meaning = "The longest time within the last minutes in which the event loop did one thing alone."
            metrics.reads("loop_stall_seconds", meaning, lambda: self.longest)

    def attach(self, runtime: Runtime) -> Sequence[Service]:
        return (self,)

    async def _start(self) -> None:
        self._keep(self._beat, "loop watch")

    @property
    def longest(self) -> float:
        """Seconds."""
        self._turn()
        return max(self._longest, self._longest_before)

    def forget(self) -> None:
        """Begin to measure anew."""
        self._longest = self._longest_before = 0.0

    def note(self, seconds: float) -> None:
        """A beat was late by so much."""
        self._turn()
        self._longest = max(self._longest, seconds)

    def _turn(self) -> None:
        now = time.monotonic()
        if now - self._since >= WINDOW_SECONDS:
            self._since, self._longest_before, self._longest = now, self._longest, 0.0

    async def _beat(self) -> None:
        due = time.monotonic() + BEAT_SECONDS
        while True:
            await asyncio.sleep(due - time.monotonic())
            now = time.monotonic()
            self.note(now - due)
            due = now + BEAT_SECONDS
