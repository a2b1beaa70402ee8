"""Followers of a thread wait here for its next run.

A run has a feed (`fanout`); a thread has none, for it has no row of its own. So one query asks for all threads that
have waiting followers: soon after a hint that something was committed, and every `poll_seconds` in case none came."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from hai_flow.runtime.base.service import Service, wait_at_most
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import threads
from hai_flow.store.runs.threads import Position

log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 0.05
"""Hints come by the thousand; the threads are asked for at most so often."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """Followers of one thread that have seen all up to `known`."""

    known: Position | None
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Threads(Service):
    """The threads with waiting followers in this process."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        super().__init__()
        self._database = database
        self._poll_seconds = poll_seconds
        self._waiting: dict[tuple[UUID, str], set[_Waiting]] = {}
        self._wake = asyncio.Event()

    async def _start(self) -> None:
        self._keep(self._run_polls, "waited-for threads")

    def hint(self, payload: str) -> None:
        """Something was committed, maybe a new run."""
        if self._waiting:
            self._wake.set()

    async def news(self, tenant: UUID, thread_id: str, known: Position | None) -> None:
        """Wait until the thread's newest run is another one than in `known`, or has got further. None: until it has
        any."""
        key, waiting = (tenant, thread_id), _Waiting(known)
        self._waiting.setdefault(key, set()).add(waiting)
        self._wake.set()
        try:
            await waiting.news.wait()
        finally:
            self._waiting[key].discard(waiting)
            if not self._waiting[key]:
                del self._waiting[key]

    async def _run_polls(self) -> None:
        while True:
            await wait_at_most(self._wake, self._poll_seconds if self._waiting else None)
            self._wake.clear()
            if self._waiting:
                try:
                    await self._look()
                except Exception as error:  # the next poll tries again
                    log.warning("poll_failed", error=str(error))
            await asyncio.sleep(SETTLE_SECONDS)

    async def _look(self) -> None:
        keys = list(self._waiting)
        async with self._database.api.acquire() as connection:
            newest = await threads.newest_positions(connection, keys)
        for key, place in newest.items():
            for waiting in self._waiting.get(key, ()):
                if waiting.known != place:
                    waiting.news.set()
