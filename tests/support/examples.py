"""How often something is tried that chance decides: a few times in the suite, more each night (`TEST_NIGHTLY=1`).

Of tables the suite tries some rows, the next ones each day, so that every row has its turn: `TEST_SEED` repeats
a day's, `TEST_ROWS=all` tries all. A module draws them with `sample`; `tests/conftest.py` draws those of tables over
a database (`draw`), and some of the costly tests of each folder, unless somebody has named files."""

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
ROWS_MIN: Final = 1  # of a table over a database
ROWS_SHARE: Final = 24  # or one of so many, where that is more
CASES_MIN: Final = 4  # of a table without one, in the inner loop
CASES_SHARE: Final = 8
COSTLY: Final = "costly"  # the mark of a test that takes seconds of a processor
COSTLY_MIN: Final = 1  # of the costly tables of a folder
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


def sample(rows: Iterable[T], count: int, salt: str = "", days: int = 1) -> list[T]:
    """All rows in the nightly run and for mutants; in the suite `count` of them, in their order, others after so many
    `days`. `salt`: of what the rows are, where others are drawn for each."""
    every = list(rows)
    if NIGHTLY or os.environ.get("TEST_ROWS") == "all" or count >= len(every):
        return every
    places = list(range(len(every)))
    random.Random(salt).shuffle(places)
    start = SEED // days * count
    return [every[place] for place in sorted(places[(start + step) % len(every)] for step in range(count))]


def draw(
    rows: Iterable[T],
    table_of: Callable[[T], str],
    least: int,
    share: int,
    days: int = 1,
    id_of: Callable[[T], str] | None = None,
) -> list[T]:
    """The rows of all tables, as `sample` draws `least` of each, or one of `share`, where that is more. By their ids,
    tables with the same rows have the same ones drawn: what these share, such as a server, is made for one of them."""
    return [
        row
        for name, table in _group(rows, table_of).items()
        for row in sample(
            table,
            max(least, math.ceil(len(table) / share)),
            salt=name if id_of is None else " ".join(map(id_of, table)),
            days=days,
        )
    ]


def draw_costly(rows: Iterable[T], table_of: Callable[[T], str], folder_of: Callable[[str], str]) -> list[T]:
    """Some tables of each folder, and some rows of those. A table has its turn at least once in COSTLY_SHARE days, and
    other rows at each turn: with those of each day, some rows would never meet the days of their table."""
    tables = _group(rows, table_of)
    today = draw(tables, folder_of, COSTLY_MIN, COSTLY_SHARE)
    return draw([row for name in today for row in tables[name]], table_of, ROWS_MIN, ROWS_SHARE, COSTLY_SHARE)


def _group(rows: Iterable[T], table_of: Callable[[T], str]) -> dict[str, list[T]]:
    tables: defaultdict[str, list[T]] = defaultdict(list)
    for row in rows:
        tables[table_of(row)].append(row)
    return tables
