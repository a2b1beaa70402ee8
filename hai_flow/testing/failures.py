"""The failure of a test: the place in its document, a sentence, and the expected value beside the found one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hai_flow.testing.suite import ABSENT
from hai_flow.values import Json


class Failure(msgspec.Struct, frozen=True):
    """One thing that was not as the test says. `expected` and `actual` are ABSENT where there is nothing to compare."""

    line: int
    column: int
    message: str
    expected: Json = ABSENT
    actual: Json = ABSENT


class CaseFailed(Exception):
    """The case can't go on. The message is the failure's; where it happened, the runner knows."""


class ValueDifference(msgspec.Struct, frozen=True):
    """A place where two values differ: `at` leads there from the top, key by key."""

    at: tuple[str | int, ...]
    expected: Json
    actual: Json


def differences(expected: Json, actual: Json, at: tuple[str | int, ...] = ()) -> Iterator[ValueDifference]:
    """Where `actual` is not as expected: maps may have further keys, lists are compared exactly."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            yield from differences(value, actual.get(key, ABSENT), (*at, key))
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, (mine, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(mine, other, (*at, number))
    elif not _same(expected, actual):
        yield ValueDifference(at, expected, actual)


def find_hollow(expected: Json, actual: Json, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of `{}` where a map is that has members: nothing of it is compared."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if not expected and actual:
            yield at
        for key, value in expected.items():
            yield from find_hollow(value, actual.get(key, ABSENT), (*at, key))


def _same(expected: Json, actual: Json) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return expected == actual
