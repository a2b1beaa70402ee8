"""Compiles documents beside the loop, in two threads: one for plans that are published or that runs begin with,
the other for checks, formatting and pictures of documents that are stored nowhere, so that many checks hold up other
checks alone. Each deals with one document at a time, and with tenants in turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from hai_flow.errors import Rejected
from hai_flow.primitives.beside_loop import FairThread

T = TypeVar("T")

CHECKS_MAX: Final = 32
"""Checks that are under way or wait for their turn; a quarter of them for one principal."""
_OF_ONE_MAX: Final = CHECKS_MAX // 4

_PLANS: Final = FairThread("plans")
_CHECKS: Final = FairThread("checks")


async def make(function: Callable[..., T], *args: Any, **more: Any) -> T:
    """What the function returns, by the thread that makes plans."""
    return await _PLANS.submit(partial(function, *args, **more))


class Checks:
    """The checks of documents that one process has taken on."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    async def make(self, who: str, function: Callable[..., T], *args: Any) -> T:
        """What the function returns, by the thread that checks. `who` asks for it. Raises Rejected 429."""
        if self._of.total() >= CHECKS_MAX or self._of[who] >= _OF_ONE_MAX:
            raise Rejected(
                429,
                "checks_busy",
                f"{self._of.total()} documents are being checked, {self._of[who]} of them for you; a process takes on "
                f"{CHECKS_MAX}, and {_OF_ONE_MAX} of one caller. Try again in a moment.",
                retry_after=1,
            )
        self._of[who] += 1
        # The thread works on for a caller who has gone, so the place is free when it is done, and not before.
        work = _CHECKS.submit(partial(function, *args))
        work.add_done_callback(lambda _: self._leave(who))
        return await asyncio.shield(work)

    def _leave(self, who: str) -> None:
        self._of[who] -= 1
        if not self._of[who]:
            del self._of[who]
