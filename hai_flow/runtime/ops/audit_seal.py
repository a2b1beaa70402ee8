"""Chains the records of the audit, about a second after they were written, one process at a time (`store/audit/audit`).

Every process that performs runs has a sealer. One that dies leaves nothing half done, and the next one goes on."""

from __future__ import annotations

import time
from typing import Final

import structlog

from hai_flow.runtime.base.pulse import PulsedService
from hai_flow.store.audit import audit
from hai_flow.store.postgres.database import Database

log = structlog.get_logger(__name__)

LATE_MS: Final = 600_000  # a record is committed at most so long after its id was made


class Sealer(PulsedService):
    """Seals committed records that are not sealed yet."""

    DUE, TASK, FAILURE = "records", "sealing", "sealing_failed"

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._since: int | None = 0

    async def _start(self) -> None:
        self._since = 0
        self._due.set()
        await super()._start()

    async def take_due(self) -> None:
        self._since = await self._enqueue_records(self._since)
        while await audit.seal(self._database.api) == audit.SEALED_AT_ONCE:
            pass

    async def _enqueue_records(self, since: int | None) -> int | None:
        """Queue the records that do not queue themselves: all of them the first time, then the new ones. None: all
        records queue themselves."""
        if since == 0 and await audit.is_self_queued(self._database.api):
            return None
        if since is not None:
            now = int(time.time() * 1000)
            await audit.queue(self._database.api, since)
            return now - LATE_MS
        return None
