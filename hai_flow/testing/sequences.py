"""Lists of what happened, held against what a test expects of them: `*` stands for anything, `...` for any number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hai_flow.testing.failures import differences
from hai_flow.values import Json

ANY_NUMBER: Final = "..."
ANYTHING: Final = "*"


def is_sequence(expected: Sequence[Json], found: Sequence[Json]) -> bool:
    """Whether `found` has the entries of `expected`, in order, and no others but where `...` stands."""
    reached = {0}  # how many of `found` may be behind us
    for entry in expected:
        if entry == ANY_NUMBER:
            reached = set(range(min(reached), len(found) + 1))
        else:
            reached = {place + 1 for place in reached if place < len(found) and is_like(entry, found[place])}
        if not reached:
            return False
    return len(found) in reached


def is_like(expected: Json, found: Json) -> bool:
    """Whether a value is as expected: maps may have further keys, and a `*` in a text stands for anything."""
    if expected == ANYTHING:
        return True
    if isinstance(expected, str) and isinstance(found, str):
        return re.fullmatch(".*".join(map(re.escape, expected.split("*"))), found, re.DOTALL) is not None
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(key in found and is_like(value, found[key]) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(is_like, expected, found))
    return not any(differences(expected, found))
