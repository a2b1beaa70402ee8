"""How often something is tried that chance decides: a few times in the suite, more each night (`TEST_NIGHTLY=1`)."""

from __future__ import annotations

import os
from typing import Final, TypeVar

from hypothesis import settings

T = TypeVar("T")

QUICK = "quick"
QUICK_MAX = 20
SUITE_MAX: Final = 50
NIGHTLY: Final = bool(os.environ.get("TEST_NIGHTLY"))


def examples(count: int) -> int:
    """`count` each night; in the suite no more than SUITE_MAX, and in the inner loop (`--quick`) than QUICK_MAX."""
    if NIGHTLY:
        return count
    return min(count, QUICK_MAX if settings.get_current_profile_name() == QUICK else SUITE_MAX)


def by_night(night: T, day: T) -> T:
    """How many, or which, there are of what takes its time: `night` in the nightly run, `day` in the suite."""
    return night if NIGHTLY else day
