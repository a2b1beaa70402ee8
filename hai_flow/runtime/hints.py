"""Hints to other processes that runs have something new (docs/design/store.md#hints). The poll is the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from hai_flow.store import hints
from hai_flow.store.database import Database

log = structlog.get_logger(__name__)

HINT_SECONDS: Final = 0.02  # after a hint has gone out, those of this long go out together


class Hints:
    """Collects the runs of which others are to hear, and sends them many at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run_ids: set[str] = set()
        self._unclaimed = False
        self._wanted = asyncio.Event()

    def add(self, run_ids: Iterable[str], *, unclaimed: bool) -> None:
        """The runs have something new; `unclaimed`: and one of them something to perform, but no worker."""
        self._run_ids.update(run_ids)
        self._unclaimed = self._unclaimed or unclaimed
        self._wanted.set()

    def clear(self) -> None:
        self._run_ids.clear()
        self._unclaimed = False

    async def run(self) -> None:
        """Send the collected hints, after the commits: inside them NOTIFY would serialise them all."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            run_ids, self._run_ids = self._run_ids, set()
            unclaimed, self._unclaimed = self._unclaimed, False
            try:
                async with self._database.api.acquire() as connection:
                    await hints.notify(connection, run_ids)
                    if unclaimed:
                        await hints.notify_due(connection)
            except Exception as error:  # a hint may be lost: the poll is the truth
                log.debug("hint_lost", error=str(error))
            await asyncio.sleep(HINT_SECONDS)
