"""Whether the event loop was given back in time: by the processor time of what ran on it in one go.

Not by the clock: a machine that does much else makes everything late. Passes of the garbage collector do not count:
the process of the tests holds all that the tests have imported, and one pass over it takes up to 0.1 s."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

STALL_SECONDS: Final = 0.05
GRAIN_SECONDS: Final = 0.0005
"""By so much may a measure be too long: to ask for a thread's processor time takes longer than most callbacks."""
STANDSTILL_SECONDS: Final = 5.0
"""In any test: an async test's own work is on its loop as well, and the modules that it imports first."""


class Stalls:
    """The longest piece of work on the loop of this thread, in seconds of processor time, and what it was."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.what = ""

    def forget(self) -> None:
        self.longest, self.what = 0.0, ""

    def note(self, seconds: float, handle: asyncio.Handle) -> None:
        if seconds > self.longest:
            self.longest, self.what = seconds, _name_of(handle)


class _Collected(threading.local):
    """The processor time of this thread that passes of the garbage collector took, in seconds; what else it had used,
    and when that was read."""

    seconds = 0.0
    begun = 0.0
    used = 0.0
    read = float("-inf")

    def note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self.begun = time.thread_time()
        else:
            self.seconds += time.thread_time() - self.begun


def _name_of(handle: asyncio.Handle) -> str:
    """The coroutine or the function that it runs. Its `repr` has the results of futures in it, however large."""
    called: Any = handle._callback  # type: ignore[attr-defined]
    task = getattr(called, "__self__", None)
    if isinstance(task, asyncio.Task):
        called = task.get_coro()
    return str(getattr(called, "__qualname__", None) or type(called).__qualname__)


@contextmanager
def stalls_measured() -> Iterator[Stalls]:
    """Measure each callback that a loop of asyncio runs, in whatever thread: the time is that thread's own."""
    stalls, collected, run, clock = Stalls(), _Collected(), asyncio.Handle._run, time.perf_counter

    def measured(handle: asyncio.Handle) -> Any:
        begun = clock()
        if begun > collected.read + GRAIN_SECONDS:
            collected.read, collected.used = begun, time.thread_time() - collected.seconds
        try:
            return run(handle)
        finally:
            if clock() - begun > stalls.longest:  # else it can't have used the processor for longer
                stalls.note(time.thread_time() - collected.seconds - collected.used, handle)

    asyncio.Handle._run = measured  # type: ignore[method-assign]
    gc.callbacks.append(collected.note)
    try:
        yield stalls
    finally:
        gc.callbacks.remove(collected.note)
        asyncio.Handle._run = run  # type: ignore[method-assign]
