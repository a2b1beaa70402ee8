"""How many examples of a property are tried."""

from __future__ import annotations

from hypothesis import settings

QUICK = "quick"
QUICK_MAX = 20


def examples(count: int) -> int:
    """`count`; in the inner loop (`--quick`) no more than QUICK_MAX: the rest of them is the suite's."""
    return min(count, QUICK_MAX) if settings.get_current_profile_name() == QUICK else count
