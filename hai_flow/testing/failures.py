"""The failure of a test: the place in its document, a sentence, and the expected value beside the found one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hai_flow.testing.suite import ABSENT
from hai_flow.values import Json


class Failure(msgspec.Struct, frozen=True):
    """One thing that was not as the test says. `expected` and `found` are ABSENT where there is nothing to compare."""

    line: int
    column: int
    message: str
    expected: Json = ABSENT
    found: Json = ABSENT


class CaseFailed(Exception):
    """The case can't go on. The message is the failure's; where it happened, the runner knows."""


class ValueDifference(msgspec.Struct, frozen=True):
    """A place where two values differ: `at` leads there from the top, key by key."""

    at: tuple[str | int, ...]
    expected: Json
    found: Json


def differences(expected: Json, found: Json, at: tuple[str | int, ...] = ()) -> Iterator[ValueDifference]:
    """Where `found` is not as expected: maps may have further keys, lists are compared exactly."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            yield from differences(value, found.get(key, ABSENT), (*at, key))
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, (mine, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(mine, other, (*at, number))
    elif not _same(expected, found):
        yield ValueDifference(at, expected, found)


def _same(expected: Json, found: Json) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    return expected == found
