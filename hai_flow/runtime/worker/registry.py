"""A server says that it is there, every few seconds, so that `hai-flow status` can count it. Nothing depends on it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import structlog

from hai_flow import __version__
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.worker.takeover import build_worker_name
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import workers

log = structlog.get_logger(__name__)

SAY_SECONDS: Final = 5.0
LEAVE_SECONDS_MAX: Final = 2.0


class Presence(Service):
    """Writes the row of one server."""

    def __init__(self, database: Database, refused: Callable[[Exception], None]) -> None:
        """`refused` is called with each error by which the row could not be written."""
        super().__init__()
        self._database, self._refused = database, refused
        self._id = uuid4()

    async def _start(self) -> None:
        self._keep(self._run, "presence")

    async def _run(self) -> None:
        while True:
            try:
                await workers.renew_server(self._database.api, self._id, build_worker_name(), __version__)
            except Exception as error:
                log.warning("presence_failed", error=str(error) or repr(error))
                self._refused(error)
            await asyncio.sleep(SAY_SECONDS * random.uniform(0.9, 1.1))

    async def _stop(self) -> None:
        with contextlib.suppress(Exception):  # it is forgotten by itself
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await workers.remove_server(self._database.api, self._id)
