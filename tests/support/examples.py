"""How often something is tried that chance decides: a few times in the suite, more each night (`TEST_NIGHTLY=1`).

Of tables the suite tries some rows, the next ones each day, so that every row has its turn: `TEST_SEED` repeats
a day's, `TEST_ROWS=all` tries all. A module draws them with `sample`; `tests/conftest.py` draws those of other tables,
and some of the costly tests of each folder (`draw`), unless somebody has named files.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from hypothesis import settings

T = TypeVar("T")

QUICK = "quick"
QUICK_MAX = 20
SUITE_MAX: Final = 30
CASES_MIN: Final = 4  # of a table
CASES_SHARE: Final = 8  # or one of so many, where that is more
ROWS_MIN: Final = 1  # of a table over a database
ROWS_SHARE: Final = 24
COSTLY: Final = "costly"  # the mark of a test that takes seconds of a processor
COSTLY_MIN: Final = 1  # of a folder
COSTLY_SHARE: Final = 8
SLOW: Final = "slow"  # the mark of a test that the inner loop leaves out
NIGHTLY: Final = bool(os.environ.get("TEST_NIGHTLY"))
_DAY_SECONDS: Final = 86_400
SEED: Final = int(os.environ.setdefault("TEST_SEED", f"{time.time() // _DAY_SECONDS:.0f}"))
"""The number of the day. pytest's other processes inherit it."""


def examples(count: int) -> int:
    """`count` each night; in the suite no more than SUITE_MAX, and in the inner loop (`--quick`) than QUICK_MAX."""
    if NIGHTLY:
        return count
    return min(count, QUICK_MAX if settings.get_current_profile_name() == QUICK else SUITE_MAX)


def by_night(night: T, day: T) -> T:
    """How many, or which, there are of what takes its time: `night` in the nightly run, `day` in the suite."""
    return night if NIGHTLY else day


def sample(rows: Iterable[T], count: int, salt: str = "") -> list[T]:
    """All rows in the nightly run and for mutants; in the suite `count` of them, in their order, others each day.
    `salt`: of what the rows are, where others are drawn for each."""
    every = list(rows)
    if NIGHTLY or os.environ.get("TEST_ROWS") == "all" or count >= len(every):
        return every
    places = list(range(len(every)))
    random.Random(salt).shuffle(places)
    start = SEED * count
    return [every[place] for place in sorted(places[(start + step) % len(every)] for step in range(count))]


def draw(rows: Iterable[T], table_of: Callable[[T], str], least: int, share: int) -> list[T]:
    """The rows of all tables, as `sample` draws `least` of each, or one of `share`, where that is more."""
    tables: defaultdict[str, list[T]] = defaultdict(list)
    for row in rows:
        tables[table_of(row)].append(row)
    return [
        row
        for name, table in tables.items()
        for row in sample(table, max(least, math.ceil(len(table) / share)), salt=name)
    ]
