"""Threads for functions that block. A function that hangs takes nothing from the others.

A thread can't be stopped from outside. A thread whose caller gave up (a timeout, a stop) is *left behind*: it goes on
by itself, is counted for its tool until it returns, and another thread takes its place. A tool that left too many
threads behind gets no new one, so its harm is bounded. The threads are daemons: the process ends without waiting for
them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

import structlog

from hai_flow.errors import StepError

Work: TypeAlias = Callable[[], Any]
log = structlog.get_logger(__name__)

IDLE_MAX: Final = 32  # threads that are kept for the next call
IDLE_NAME: Final = "tool: idle"


@dataclass(slots=True, eq=False)
class _Tool:
    """A tool with calls under way: its `places`, and how many calls hold or want one (`calls`)."""

    places: asyncio.Semaphore
    calls: int = 0
    left_behind: int = 0


@dataclass(slots=True, eq=False)
class _Job:
    """One call. `future` is cancelled when its caller gives up."""

    tool: str
    caller: str
    work: Work
    future: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class _Thread:
    """A thread that does one job after the other; None ends it."""

    jobs: SimpleQueue[_Job | None] = field(default_factory=SimpleQueue)


class ToolThreads:
    """`calls_max` calls of one tool run at once; others of it wait. When `left_behind_max` of it were left behind and
    have not returned yet, further ones fail.

    Everything but the calls themselves happens on the event loop.
    """

    def __init__(self, calls_max: int = 32, left_behind_max: int = 32) -> None:
        self._calls_max = calls_max
        self._left_behind_max = left_behind_max
        self._tools: dict[str, _Tool] = {}
        self._idle: list[_Thread] = []
        self._closed = False

    async def run(self, tool: str, caller: str, work: Work) -> Any:
        """Run `work` in a thread, named after `tool` and `caller` meanwhile. Returns its result, raises its exception.

        Raises StepError `tool.unavailable` if too many calls of the tool hang. Cancelled, it leaves the thread behind.
        """
        entry = self._tools.get(tool)
        if entry is None:
            entry = self._tools[tool] = _Tool(asyncio.Semaphore(self._calls_max))
        entry.calls += 1
        try:
            async with entry.places:
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
        while self._idle:
            self._idle.pop().jobs.put(None)

    async def _call(self, known: _Tool, job: _Job) -> Any:
        thread = self._idle.pop() if self._idle else self._start_thread()
        thread.jobs.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            if job.future.cancelled():
                known.left_behind += 1
                log.warning("tool_left_behind", tool=job.tool, caller=job.caller, left_behind=known.left_behind)
            raise

    def _start_thread(self) -> _Thread:
        thread = _Thread()
        threading.Thread(target=self._do_jobs, args=(thread,), name=IDLE_NAME, daemon=True).start()
        return thread

    def _do_jobs(self, thread: _Thread) -> None:
        me = threading.current_thread()
        while (job := thread.jobs.get()) is not None:
            me.name = f"tool: {job.tool} for {job.caller}"
            output, error = None, None
            try:
                output = job.work()
            except BaseException as raised:  # of any kind: the caller that waits must get it
                error = raised
            me.name = IDLE_NAME
            try:
                job.future.get_loop().call_soon_threadsafe(self._handle_return, thread, job, output, error)
            except RuntimeError:  # the loop is closed: no caller waits any more
                return
            del job, output, error  # an idle thread keeps nothing alive

    def _handle_return(self, thread: _Thread, job: _Job, output: Any, error: BaseException | None) -> None:
        if job.future.cancelled():
            entry = self._tools[job.tool]
            entry.left_behind -= 1
            log.info("tool_returned_late", tool=job.tool, caller=job.caller, left_behind=entry.left_behind)
            self._forget_unused(job.tool, entry)
        elif error is None:
            job.future.set_result(output)
        else:
            job.future.set_exception(error)
        if self._closed or len(self._idle) >= IDLE_MAX:
            thread.jobs.put(None)
        else:
            self._idle.append(thread)

    def _forget_unused(self, tool: str, known: _Tool) -> None:
        if not known.calls and not known.left_behind:
            del self._tools[tool]


def _hangs(tool: str, calls: int) -> str:
    return (
        f"{calls} calls of the tool {tool} were given up and still run in their threads, so it gets no more of them "
        "until some return. Give it timeouts of its own; to end such threads, restart the worker."
    )
