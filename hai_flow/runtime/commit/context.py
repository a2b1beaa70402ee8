"""What the parts of one committer share: its database, queues and clock, and its bounds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.engine.draft import DecisionContext
from hai_flow.engine.state.bounds import Bounds
from hai_flow.runtime.commit.freeze_cache import Freezes
from hai_flow.runtime.commit.hints import Hints
from hai_flow.runtime.commit.hooks import Listeners
from hai_flow.runtime.commit.ownership import RunOwnership
from hai_flow.runtime.commit.queues import Cache, Queues
from hai_flow.store.postgres.database import Database

FindPlan: TypeAlias = Callable[[UUID, bytes], Awaitable[Plan]]
"""The plan of a tenant's workflow with this digest. Raises Unreadable where this release can't perform it."""
RecallPlan: TypeAlias = Callable[[UUID, bytes], Plan | None]
"""The same, if it is in memory."""
WantsEnds: TypeAlias = Callable[[UUID, str], bool]
"""Whether ends of runs of this workflow, by its name, start other runs, so that they have to be sent."""
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, Any], str], object]
"""Begins a task that ends with the service, under a name."""


class Clock:
    """The database's clock as known here: a reading plus the time since, so a lower bound of the real one.

    It goes forward with every reading that shows more. It goes back only when a reading proves that it is ahead: when
    it showed more before the database was asked than the database then answered, so the database's clock was wrong or
    has been set back. An answer that is merely late proves nothing. So whatever the database's clock was once, this one
    is right again with the first reading after it is. Within a run time never goes back: `engine.evolve` sees to it.

    All times are milliseconds since 1970, all monotonic ones seconds."""

    def __init__(self) -> None:
        self._read_at = 0.0
        self._read_ms = 0
        self.heard_at = float("-inf")
        """The monotonic time of the last reading, whatever came of it."""

    def read(self, database_ms: int, sent: float, arrived: float) -> None:
        """Take in a reading of the database's clock at some time between `sent` and `arrived` (monotonic)."""
        self.heard_at = max(self.heard_at, arrived)
        # Both are cut to whole milliseconds, so one that seems to be ahead by one need not be.
        if database_ms >= self.at(arrived) or database_ms + 1 < self.at(sent):
            self._read_ms, self._read_at = database_ms, arrived

    def at(self, monotonic: float) -> int:
        """The time at `monotonic` seconds. 0 before the first reading."""
        if not self._read_ms:
            return 0
        return self._read_ms + int((monotonic - self._read_at) * 1000)


class CommitContext(msgspec.Struct, frozen=True):
    """`entries_max` runs and about `bytes_max` of events are committed by one statement; `bounds` are the engine's."""

    database: Database
    clock: Clock
    cache: Cache
    queues: Queues
    claims: RunOwnership
    listeners: Listeners
    hints: Hints
    freezes: Freezes
    find_plan: FindPlan
    wants_ends: WantsEnds
    spawn: Spawn
    bounds: Bounds
    entries_max: int
    bytes_max: int
    tools: DecisionContext  # of a tenant without freezes and rules

    def now_ms(self) -> int:
        """The database's clock as known here, in milliseconds since 1970: a lower bound."""
        return self.clock.at(time.monotonic())
