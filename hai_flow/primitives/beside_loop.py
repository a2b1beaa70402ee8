"""A thread beside the event loop, for work on large values: it may take tenths of a second, and others are served
meanwhile.

The loop gives the interpreter's lock back with each packet that it sends, and each time the thread beside it may keep
it for a turn. Of turns of 5 ms, as the interpreter has them, a commit of twenty packets takes 100 ms; so they are
shorter meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

LARGE_BYTES: Final = 64 * 1024
"""Values up to this size are read and checked on the loop, which is faster than to hand them over."""
TURN_SECONDS: Final = 0.001
"""For how long a thread beside the loop may keep the interpreter's lock."""

_LARGE_VALUES: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-values")


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
    """What the work returns; called in a thread."""
    with _TURNS.short():
        return work()


async def run_beside_loop(function: Callable[..., T], *args: Any, **more: Any) -> T:
    """What the function returns, by the thread for large values."""
    work = partial(contextvars.copy_context().run, partial(function, *args, **more))
    return await asyncio.get_running_loop().run_in_executor(_LARGE_VALUES, run_in_short_turns, work)


async def run_by_size(size: int, function: Callable[..., T], *args: Any, **more: Any) -> T:
    """What the function returns, which works on a value of `size` bytes: beside the loop if that is large."""
    if size <= LARGE_BYTES:
        return function(*args, **more)
    return await run_beside_loop(function, *args, **more)


async def run_if_large(value: Any, function: Callable[..., T], *args: Any, **more: Any) -> T:
    """What the function returns, which works on a JSON value: beside the loop if that is large."""
    if not is_large(value):
        return function(*args, **more)
    return await run_beside_loop(function, *args, **more)


def is_large(value: Any) -> bool:
    """Whether a JSON value, or the JSON values in a struct, are large: by their texts, and by their parts, each of
    which counts as sixteen bytes. Looks at no more of it than that takes."""
    size = 0
    stack = [value]
    while stack:
        part = stack.pop()
        kind = type(part)
        if kind is str or kind is bytes:
            size += len(part)
        elif kind is dict:
            size += 16 * len(part)
            if size <= LARGE_BYTES:
                stack.extend(part)
                stack.extend(part.values())
        elif kind is list or kind is tuple:
            size += 16 * len(part)
            if size <= LARGE_BYTES:
                stack.extend(part)
        elif isinstance(part, msgspec.Struct):
            stack.extend(getattr(part, name) for name in part.__struct_fields__)
        if size > LARGE_BYTES:
            return True
    return False
