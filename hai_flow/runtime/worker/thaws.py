"""Runs that go on because the freeze that held them is over.

That is found in the database: a run's row names the freezes that hold its steps. So it does not matter which process
ended the freeze, nor whether one was killed over it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import structlog

from hai_flow.engine import commands as c
from hai_flow.errors import HaiFlowError
from hai_flow.runtime.base.pulse import PulsedService
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.freeze_cache import Freezes
from hai_flow.store.ops.freezes import FrozenRun, runs_to_release
from hai_flow.store.ops.pulse import DueWork
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES

log = structlog.get_logger(__name__)

RELEASED_AT_ONCE: Final = 100


class Thaws(PulsedService):
    """Lets runs go on that are held by a freeze which is over."""

    DUE, TASK, FAILURE, ERRORS = "to_release", "runs held by freezes", "held_runs_not_released", FAILURES

    def __init__(self, database: Database, freezes: Freezes, committer: Committer) -> None:
        super().__init__()
        self._database = database
        self._freezes = freezes
        self._committer = committer
        self._in_hand: set[UUID] = set()
        self._put_off: set[UUID] = set()  # they could not be decided; the next pulse finds them again

    def look(self, due: DueWork | None, asked_at: float) -> None:
        if due is None or due.to_release:
            self._put_off.clear()
        super().look(due, asked_at)

    async def take_due(self) -> None:
        """Let runs go on, as many at once as there is room for. None of them waits for another one: a run whose row is
        locked takes one place, and nobody's time."""
        await self._freezes.read()
        while room := RELEASED_AT_ONCE - len(self._in_hand):
            async with self._database.engine.acquire() as connection:
                runs = await runs_to_release(connection, self._in_hand | self._put_off, room)
            if not runs:
                return
            self._in_hand.update(run.id for run in runs)
            for run in runs:
                self._spawn(self._go_on(run), "a run held by a freeze")

    async def _go_on(self, run: FrozenRun) -> None:
        """One that can't be decided stays as it is."""
        try:
            await self._committer.submit(run.id, run.tenant, c.Continue())
        except HaiFlowError as error:
            log.warning("held_run_not_released", run_id=str(run.id), error=str(error))
            self._put_off.add(run.id)
        finally:
            self._in_hand.discard(run.id)
            if len(self._in_hand) == RELEASED_AT_ONCE // 2:
                self._due.set()
