"""The contract of everything that lives: it starts and stops the same way.

Rules, held by one stress test for every service: `start` returns when the service works, or raises and leaves nothing
behind; `stop` returns when nothing of it runs any more; both may be called by several tasks, in any order, any number
of times; a stopped service can be started again; a stop during a start waits for it and then stops."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

import structlog

log = structlog.get_logger(__name__)

AGAIN_SECONDS_MIN: Final = 0.1
AGAIN_SECONDS_MAX: Final = 5.0
MENDED_SECONDS: Final = 10.0  # a loop that was begun again and has run for so long is well


class Service(ABC):
    """Something that runs from `start` to `stop`.

    Subclasses write `_start` and `_stop`. They use `_keep` for tasks that must run as long as the service does, and
    `_spawn` for those that end by themselves."""

    def __init__(self) -> None:
        self._life = asyncio.Lock()
        self._running = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ailing: dict[str, float] = {}

    @property
    def running(self) -> bool:
        return self._running

    @property
    def ailing(self) -> list[str]:
        """The names of the kept tasks that have ended by an error and not run for a while since."""
        now = time.monotonic()
        return [name for name, until in self._ailing.items() if now < until]

    async def start(self) -> None:
        async with self._life:
            if self._running:
                return
            try:
                await self._start()
            except BaseException:
                await self._end_tasks()
                raise
            self._running = True

    async def stop(self) -> None:
        async with self._life:
            if not self._running:
                return
            try:
                await self._stop()
            finally:
                await self._end_tasks()
                self._running = False
                self._ailing.clear()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run the service inside an `async with`."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    @abstractmethod
    async def _start(self) -> None: ...

    async def _stop(self) -> None:  # noqa: B027 (nothing to do is a good default)
        """Do the work that must be done before the service's tasks are cancelled. Nothing by default."""

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task that ends with the service. If it fails, that is logged: no other task waits for it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._handle_end)
        return task

    def _keep(self, work: Callable[[], Coroutine[Any, Any, Any]], name: str) -> asyncio.Task[Any]:
        """A task that runs as long as the service: should it end, it is begun again, after a pause that grows."""
        return self._spawn(self._begin_again(work, name), name)

    def _keep_woken(
        self,
        woken: asyncio.Event,
        work: Callable[[], Awaitable[None]],
        name: str,
        failure: str,
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
        **details: str,
    ) -> None:
        """A kept task that does the work each time that the event is set. One of these errors is logged as `failure`,
        and the next time may do better."""

        async def run() -> None:
            while True:
                await woken.wait()
                woken.clear()
                try:
                    await work()
                except errors as error:
                    log.warning(failure, **details, error=str(error) or repr(error))

        self._keep(run, name)

    async def _begin_again(self, work: Callable[[], Coroutine[Any, Any, Any]], name: str) -> None:
        pause = AGAIN_SECONDS_MIN
        while True:
            began = time.monotonic()
            try:
                await work()
                log.error("task_ended", task=name)
            except Exception as error:
                log.error("task_failed", task=name, exc_info=error)
            now = time.monotonic()
            pause = AGAIN_SECONDS_MIN if now - began > MENDED_SECONDS else min(2 * pause, AGAIN_SECONDS_MAX)
            self._ailing[name] = now + pause + MENDED_SECONDS
            await asyncio.sleep(pause)

    def _handle_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", task=task.get_name(), exc_info=error)

    async def _end_tasks(self) -> None:
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1.0)  # again, for one that was cancelled while it dealt with an error


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set or the time is over. Not `wait_for`: in Python 3.11 that swallows a cancellation
    which comes together with the event, and the task goes on for ever."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


Item = TypeVar("Item")


class KeyedQueue(Generic[Item]):
    """At most `most` items at once, in whatever lines. `work` deals with one, and with its own errors; `spawn` makes a
    task of a line."""

    def __init__(
        self, most: int, work: Callable[[Item], Awaitable[None]], spawn: Callable[[Coroutine[Any, Any, None]], Any]
    ) -> None:
        self._most = most
        self._work = work
        self._spawn = spawn
        self._lines: dict[Hashable, deque[tuple[Hashable, Item]]] = {}
        self._known: set[Hashable] = set()

    @property
    def room(self) -> int:
        """How many items may still be added."""
        return self._most - len(self._known)

    def add(self, line: Hashable, id: Hashable, item: Item) -> None:
        """Put an item at the end of its line. One whose `id` is there already is left out: it is being dealt with."""
        if id in self._known:
            return
        self._known.add(id)
        waiting = self._lines.get(line)
        if waiting is None:
            waiting = self._lines[line] = deque()
            self._spawn(self._go_through(line, waiting))
        waiting.append((id, item))

    async def _go_through(self, line: Hashable, waiting: deque[tuple[Hashable, Item]]) -> None:
        while waiting:
            id, item = waiting.popleft()
            try:
                await self._work(item)
            finally:
                self._known.discard(id)
                if not waiting:  # without an await in between: work that comes now begins a line of its own
                    del self._lines[line]
