"""A thread beside the event loop, for work on large values. Small values may be long work, too, for expressions of
strangers: their evaluation begins on the loop with an allowance (`spend`), and is done again beside it where that is
used up (`run_by_work`). The interpreter's switch interval is shorter meanwhile: with turns of 5 ms a commit of twenty
packets takes 100 ms."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

LARGE_BYTES: Final = 64 * 1024
"""Values up to this size are read and checked on the loop, which is faster than to hand them over."""
SHORT_BYTES: Final = 8 * 1024
"""Likewise, for functions that take a microsecond or more for each character or part."""
ALLOWED_SECONDS: Final = 0.008
"""For how long work with an allowance may go on before it begins another piece."""
ALLOWED_UNITS: Final = 5_000
"""How much it may spend: microseconds, as they are estimated before a piece is begun."""
TURN_SECONDS: Final = 0.001
"""For how long a thread beside the loop may keep the interpreter's lock."""

WORK_FOR: Final[contextvars.ContextVar[Hashable]] = contextvars.ContextVar("work_for", default=None)
"""The tenant for whom a task works; None: for the process."""


class _Turns:
    """The length of turns for the interpreter's lock, which is the process's: short while any thread is at work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self._usual = 0.0

    @contextmanager
    def short(self) -> Iterator[None]:
        with self._lock:
            if not self._working:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, TURN_SECONDS))
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1
                if not self._working:
                    sys.setswitchinterval(self._usual)


_TURNS: Final = _Turns()


def run_in_short_turns(work: Callable[[], T]) -> T:
    """The result of the work; called in a thread."""
    with _TURNS.short():
        return work()


class FairThread:
    """A thread that works for tenants in turns, one piece for each: who has a hundred long ones holds up nobody but
    themselves."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """The work's result; called on a loop, and done in short turns for the interpreter's lock."""
        result: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(WORK_FOR.get(), deque()).append((result, work))
        self._thread.submit(self._do_next)
        return asyncio.wrap_future(result)

    def _do_next(self) -> None:
        with self._lock:
            tenant, pieces = self._waiting.popitem(last=False)
            result, work = pieces.popleft()
            if pieces:
                self._waiting[tenant] = pieces  # behind all others
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(run_in_short_turns(work))
            except StopIteration as error:  # no future of a loop takes one: its task would wait for ever
                result.set_exception(RuntimeError(f"the work raised {error!r}"))
            except BaseException as error:
                result.set_exception(error)


_LARGE_VALUES: Final = FairThread("large-values")


async def run_beside_loop(function: Callable[..., T], *args: Any, **more: Any) -> T:
    """The function's result, by the thread for large values."""
    work = partial(contextvars.copy_context().run, partial(function, *args, **more))
    return await _LARGE_VALUES.submit(work)


class TooLongForLoop(BaseException):
    """Work on the loop has used up its allowance: do it again beside it. No `Exception`: what takes any error of an
    expression, as the library's have many types, must not take it for one."""


class _WorkCount:
    """The work that a thread has done, in microseconds by the estimates: equal work has equal ones."""

    __slots__ = ("allowed", "most", "units", "until")

    def __init__(self) -> None:
        self.units = 0
        self.most = 0  # where the value that is worked on has to be given up
        self.allowed: int | None = None  # where the allowance is used up, if there is one
        self.until = 0.0  # the clock's reading at which it is over


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.work = _WorkCount()


THIS_THREAD: Final = _OfThread()


def spend(units: int) -> None:
    """The caller is about to do so much work, in microseconds. Raises `TooLongForLoop` where that is more than is left
    of the allowance, if there is one."""
    work = THIS_THREAD.work
    work.units += units
    if work.allowed is not None and (work.units > work.allowed or time.perf_counter() > work.until):
        raise TooLongForLoop


def run_with_allowance(function: Callable[..., T], *args: Any, **more: Any) -> T:
    """The result of a function without effects. Raises `TooLongForLoop` where it is to be called beside the
    loop."""
    work = THIS_THREAD.work
    outer = work.allowed, work.until
    work.allowed, work.until = work.units + ALLOWED_UNITS, time.perf_counter() + ALLOWED_SECONDS
    try:
        return function(*args, **more)
    finally:
        work.allowed, work.until = outer


async def run_by_work(function: Callable[..., T], *args: Any, **more: Any) -> T:
    """The result of a function without effects: on the loop, or beside it where it is long work."""
    try:
        return run_with_allowance(function, *args, **more)
    except TooLongForLoop:
        return await run_beside_loop(function, *args, **more)


async def run_by_size(size: int, function: Callable[..., T], *args: Any, **more: Any) -> T:
    """The result of a function that works on a value of `size` bytes: beside the loop if that is large."""
    if size <= LARGE_BYTES:
        return function(*args, **more)
    return await run_beside_loop(function, *args, **more)


async def run_if_large(value: Any, function: Callable[..., T], *args: Any, **more: Any) -> T:
    """The result of a function that works on a JSON value: beside the loop if that is large."""
    if not is_large(value):
        return function(*args, **more)
    return await run_beside_loop(function, *args, **more)


async def run_unless_short(value: Any, function: Callable[..., T], *args: Any, **more: Any) -> T:
    """The result of a function that is slow: beside the loop unless the value that it works on is short."""
    if not is_large(value, SHORT_BYTES):
        return function(*args, **more)
    return await run_beside_loop(function, *args, **more)


def is_large(value: Any, most: int = LARGE_BYTES) -> bool:
    """Whether a JSON value, or the JSON values in a struct, are larger than `most`, as `measure` finds."""
    return measure(value, most) > most


def measure(value: Any, most: int = LARGE_BYTES) -> int:
    """The size of a JSON value, or of the JSON values in a struct: that of their texts, and of their parts, each of
    which counts as sixteen bytes. Looks at no more of it than is needed to find more than `most`."""
    size = 0
    if type(value) in _WITHOUT_PARTS:
        return size
    parts = [value]
    for part in parts:  # which grows by the parts of those that have some
        kind = type(part)
        if kind in _WITHOUT_PARTS:
            continue
        if kind is str or kind is bytes:
            size += len(part)
        elif kind is tuple or kind is list or kind is dict:
            size += 16 * len(part)
            if part and size <= most:
                parts += part
                if kind is dict:
                    parts += part.values()
        elif (read_fields := _find_reader(kind)) is not None:
            parts += filter(None, read_fields(part))  # most fields of a command are empty
        if size > most:
            break
    return size


@functools.cache
def _find_reader(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Reads the fields of a struct that may hold texts or parts, where values of the type are structs."""
    if not issubclass(kind, msgspec.Struct):
        return None
    types = get_type_hints(kind)
    names = [name for name in kind.__struct_fields__ if not _WITHOUT_PARTS.issuperset(_alternatives(types[name]))]
    return attrgetter(*names) if len(names) > 1 else lambda part: tuple(getattr(part, name) for name in names)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


_WITHOUT_PARTS: Final = frozenset({NoneType, bool, int, float})
