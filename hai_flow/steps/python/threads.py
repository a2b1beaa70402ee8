"""Threads for functions that block, where one that hangs takes nothing from the others. A thread whose caller gave up
is *left behind*: it is counted for its tool until it returns, and another takes its place; a tool with too many of
these gets no new one. The threads are daemons. Calls begin in the order given, and their effects happen side by side.
Those of one answer of a model (a *batch*) each begin when those before are over, or a moment later than they did: quick
ones act one after the other, slow ones at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

import structlog

from hai_flow.errors import StepError

Work: TypeAlias = Callable[[], Any]
log = structlog.get_logger(__name__)

IDLE_MAX: Final = 32  # threads that are kept for the next call
IDLE_NAME: Final = "tool: idle"
LEAD_SECONDS: Final = 0.03  # of a call before the next one of its batch; much less than a model needs for an answer
LEADS_SECONDS_MAX: Final = 0.15  # of all calls of a batch


@dataclass(slots=True, eq=False)
class _Tool:
    """A tool with calls under way: its `places`, and how many calls hold or want one (`calls`)."""

    places: asyncio.Semaphore
    calls: int = 0
    left_behind: int = 0


@dataclass(slots=True, eq=False)
class _Batch:
    """Calls that begin in order: those under way, when the first of them began, and when the next may begin (times of
    the loop)."""

    began: float
    free_at: float
    calls: list[asyncio.Future[None]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Job:
    """One call. `future` is cancelled when its caller gives up."""

    tool: str
    caller: str
    work: Work
    future: asyncio.Future[Any]


class ToolThreads:
    """`calls_max` calls of one tool run at once; others of it wait. When `left_behind_max` of it were left behind and
    have not returned yet, further ones fail.

    Everything but the calls themselves happens on the event loop."""

    def __init__(self, calls_max: int = 32, left_behind_max: int = 32) -> None:
        self._calls_max = calls_max
        self._left_behind_max = left_behind_max
        self._tools: dict[str, _Tool] = {}
        self._batches: dict[str, _Batch] = {}
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()  # None ends the thread that takes it
        self._idle = 0  # threads that wait for a job, less the jobs that have not been taken
        self._closed = False

    async def run(self, tool: str, caller: str, work: Work, batch: str = "") -> Any:
        """Run `work` in a thread, named after `tool` and `caller` meanwhile. Returns its result, raises its exception.
        `batch`: the name of the calls that it belongs to; "" for none.

        Raises StepError `tool.unavailable` if too many calls of the tool hang. Cancelled, it leaves the thread behind.
        """
        entry = self._tools.get(tool)
        if entry is None:
            entry = self._tools[tool] = _Tool(asyncio.Semaphore(self._calls_max))
        entry.calls += 1
        try:
            async with self._turn(batch), entry.places:
                if entry.left_behind >= self._left_behind_max:
                    raise StepError(_hangs(tool, entry.left_behind), code="tool.unavailable", retriable=True)
                return await self._call(entry, _Job(tool, caller, work, asyncio.get_running_loop().create_future()))
        finally:
            entry.calls -= 1
            self._forget_unused(tool, entry)

    @property
    def left_behind(self) -> int:
        """How many calls were given up and still run."""
        return sum(tool.left_behind for tool in self._tools.values())

    def close(self) -> None:
        """End the threads that do nothing, and the others when they return."""
        self._closed = True
        self._end_threads(self._idle)

    @contextlib.asynccontextmanager
    async def _turn(self, batch: str) -> AsyncIterator[None]:
        """The turn of a call within its batch."""
        if not batch:
            yield
            return
        loop = asyncio.get_running_loop()
        now, over = loop.time(), loop.create_future()
        entry = self._batches.setdefault(batch, _Batch(now, now))
        before, begins = list(entry.calls), min(max(entry.free_at, now), entry.began + LEADS_SECONDS_MAX)
        entry.calls.append(over)
        entry.free_at = begins + LEAD_SECONDS
        try:
            if before:
                await asyncio.wait(before, timeout=max(0.0, begins - now))
            yield
        finally:
            over.set_result(None)
            entry.calls.remove(over)
            if not entry.calls:
                del self._batches[batch]

    async def _call(self, known: _Tool, job: _Job) -> Any:
        if self._idle:
            self._idle -= 1
        else:
            threading.Thread(target=self._do_jobs, name=IDLE_NAME, daemon=True).start()
        self._jobs.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            if job.future.cancelled():
                known.left_behind += 1
                log.warning("tool_left_behind", tool=job.tool, caller=job.caller, left_behind=known.left_behind)
            raise

    def _end_threads(self, number: int) -> None:
        """End so many of the threads that wait."""
        self._idle -= number
        for _ in range(number):
            self._jobs.put(None)

    def _do_jobs(self) -> None:
        me = threading.current_thread()
        while (job := self._jobs.get()) is not None:
            me.name = f"tool: {job.tool} for {job.caller}"
            output, error = None, None
            try:
                output = job.work()
            except BaseException as raised:  # of any kind: the caller that waits must get it
                error = raised
            me.name = IDLE_NAME
            try:
                job.future.get_loop().call_soon_threadsafe(self._handle_return, job, output, error)
            except RuntimeError:  # the loop is closed: no caller waits any more
                return
            del job, output, error  # an idle thread keeps nothing alive

    def _handle_return(self, job: _Job, output: Any, error: BaseException | None) -> None:
        if job.future.cancelled():
            entry = self._tools[job.tool]
            entry.left_behind -= 1
            log.info("tool_returned_late", tool=job.tool, caller=job.caller, left_behind=entry.left_behind)
            self._forget_unused(job.tool, entry)
        elif error is None:
            job.future.set_result(output)
        else:
            job.future.set_exception(error)
        self._idle += 1
        if self._closed or self._idle > IDLE_MAX:
            self._end_threads(1)

    def _forget_unused(self, tool: str, known: _Tool) -> None:
        if not known.calls and not known.left_behind:
            del self._tools[tool]


def _hangs(tool: str, calls: int) -> str:
    return (
        f"{calls} calls of the tool {tool} were given up and still run in their threads, so it gets no more of them "
        "until some return. Give it timeouts of its own; to end such threads, restart the worker."
    )
