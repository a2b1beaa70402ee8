"""Runs that go on because the freeze that held them is over.

That is found in the database: a run's row names the freezes that hold its steps. So it does not matter which process
ended the freeze, nor whether one was killed over it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from uuid import UUID

import structlog

from hai_flow.engine import commands as c
from hai_flow.errors import HaiFlowError
from hai_flow.runtime.base.service import Service
from hai_flow.store.ops.freezes import runs_to_release
from hai_flow.store.postgres.error_classes import FAILURES

if TYPE_CHECKING:
    from hai_flow.runtime.commit.committer import Committer
    from hai_flow.runtime.commit.freezes import Freezes
    from hai_flow.store.ops.due_work import DueWork
    from hai_flow.store.ops.freezes import FrozenRun
    from hai_flow.store.postgres.database import Database

log = structlog.get_logger(__name__)

RELEASED_AT_ONCE: Final = 100


class Thaws(Service):
    """Lets runs go on that are held by a freeze which is over."""

    def __init__(self, database: Database, freezes: Freezes, committer: Committer) -> None:
        super().__init__()
        self._database = database
        self._freezes = freezes
        self._committer = committer
        self._due = asyncio.Event()

    def look(self, due: DueWork | None, asked_at: float) -> None:
        """What the pulse has found; None: it could not ask."""
        if due is None or due.to_release:
            self._due.set()

    async def _start(self) -> None:
        # the next pulse finds the runs again
        self._keep_woken(self._due, self._release, "runs held by freezes", "held_runs_not_released", FAILURES)

    async def _release(self) -> None:
        await self._freezes.read()
        after: UUID | None = None
        while True:
            async with self._database.engine.acquire() as connection:
                runs = await runs_to_release(connection, after, RELEASED_AT_ONCE)
            if not runs:
                return
            await asyncio.gather(*map(self._go_on, runs))
            after = runs[-1].id

    async def _go_on(self, run: FrozenRun) -> None:
        """One that can't be decided stays as it is, and the next pulse finds it again."""
        try:
            await self._committer.submit(run.id, run.tenant, c.Continue())
        except HaiFlowError as error:
            log.warning("held_run_not_released", run_id=str(run.id), error=str(error))
