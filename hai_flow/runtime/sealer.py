"""Chains the records of the audit, every second, one process at a time (`store/audit`).

Every process that performs runs has a sealer. One that dies leaves nothing half done, and the next one goes on.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import structlog

from hai_flow.runtime.service import Service
from hai_flow.store import audit
from hai_flow.store.database import Database

log = structlog.get_logger(__name__)

SEAL_SECONDS: Final = 1.0


class Sealer(Service):
    """Seals what is committed and unsealed."""

    def __init__(self, database: Database, seconds: float = SEAL_SECONDS) -> None:
        super().__init__()
        self._database = database
        self._seconds = seconds

    async def _start(self) -> None:
        self._keep(self._run, "sealing")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds * random.uniform(0.8, 1.0))
            try:
                while await audit.seal(self._database.api) == audit.SEALED_AT_ONCE:
                    pass
            except Exception as error:
                log.warning("sealing_failed", error=str(error) or repr(error))
