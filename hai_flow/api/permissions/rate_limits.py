"""Rates at which one caller may try credentials, or decide. Each name (an address, a principal) has a bucket with the
actions of a minute. Only the names seen last are kept, so many addresses can't fill the memory; crowds are limited by
`load_shedding` and `connections`."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from uuid import UUID

from hai_flow.errors import Rejected
from hai_flow.settings import Settings

NAMES_MAX: Final = 10_000
_MINUTE: Final = 60.0


class Rate:
    """`per_minute` actions for each name; after a minute without any, a name may do all of them at once."""

    def __init__(
        self, per_minute: int, *, names_max: int = NAMES_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_minute = per_minute
        self._names_max = names_max
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when the bucket of a name will be full again

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, name: str) -> float:
        """Do one action for `name`. Returns 0.0, or, if it may not do it yet, the seconds until it may; then nothing is
        counted."""
        now, one = self._clock(), _MINUTE / self.per_minute
        full_at = max(now, self._full_at.get(name, now)) + one
        late = full_at - now - _MINUTE
        if late > 1e-9:
            return late
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        if len(self._full_at) > self._names_max:
            self._full_at.popitem(last=False)
        return 0.0


ADDRESS_FACTOR: Final = 20  # so many people may decide from one address as fast as one may


class Decisions:
    """How often one principal, and one address, may answer. Where everybody is `user:local` nothing is counted."""

    def __init__(self, settings: Settings) -> None:
        self._counts = settings.identity is not None
        self._of_people = Rate(settings.decisions_max)
        self._of_addresses = Rate(settings.decisions_max * ADDRESS_FACTOR)

    def take(self, tenant: UUID, principal: str, peer: str) -> None:
        """Count one answer. Raises Rejected 429 before anything is stored."""
        if not self._counts:
            return
        if seconds := self._of_people.take(f"{tenant} {principal}"):
            many = f"you have answered {self._of_people.per_minute} times within a minute, the most that one may."
            raise too_often("decisions.too_often", many, seconds)
        if seconds := self._of_addresses.take(peer):
            raise too_often("decisions.too_often", "your address has answered too often within a minute.", seconds)


TICKETS_MAX: Final = 120  # of one principal in a minute: each opens one stream, and is a row for half a minute


class TicketRate:
    """How many tickets one principal may make. Where everybody is `user:local` nothing is counted."""

    def __init__(self, settings: Settings) -> None:
        self._counts = settings.identity is not None
        self._of_people = Rate(TICKETS_MAX)

    def take(self, tenant: UUID, principal: str) -> None:
        """Count one ticket. Raises Rejected 429 before anything is stored."""
        if self._counts and (seconds := self._of_people.take(f"{tenant} {principal}")):
            many = f"you have made {TICKETS_MAX} tickets within a minute, the most that one may."
            raise too_often("tickets.too_often", many, seconds)


def too_often(code: str, detail: str, seconds: float) -> Rejected:
    """The refusal of a caller that may try again after so many seconds."""
    return Rejected(429, code, detail, retry_after=max(1, math.ceil(seconds)))
