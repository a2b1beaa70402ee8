"""The workflows of whose runs' ends other workflows want to hear, read now and then from the stored triggers."""

from __future__ import annotations

import math
import time
from typing import Final
from uuid import UUID

from hai_flow.store.messaging import triggers
from hai_flow.store.postgres.database import Database

WATCHED_SECONDS: Final = 10.0  # rows that were read so long ago do not show which ends are wanted


class Watched:
    """Knows which ends have to be sent to the triggers; every end, as long as nothing newer is known."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._workflows: frozenset[tuple[UUID, str]] = frozenset()
        self._read_at = -math.inf  # monotonic: when they were asked for

    def wants(self, tenant: UUID, workflow: str) -> bool:
        """Whether the end of a run of the workflow has to be sent."""
        return (tenant, workflow) in self._workflows or time.monotonic() - self._read_at > WATCHED_SECONDS

    async def read(self) -> None:
        """Ask the database again."""
        asked_at = time.monotonic()
        self.learn(await triggers.workflows_with_end_triggers(self._database.api), asked_at)

    def learn(self, workflows: frozenset[tuple[UUID, str]], asked_at: float) -> None:
        """These were wanted when the database was asked, unless it was asked again since."""
        if asked_at >= self._read_at:
            self._workflows, self._read_at = workflows, asked_at
