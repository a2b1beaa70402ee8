"""Tells of questions that wait for somebody else since an absence has begun, or again since it has ended.

Who may decide needs no telling: that is looked up whenever somebody decides (`absences`). What is done here happens
once for each absence: a row of `absences` says how far it has got, and changes in the transaction that queues the
notifications. So it matters neither which process does it, nor whether all of them were down at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from hai_flow.engine import events as e
from hai_flow.engine.pendings.selectors import ANYONE, name_holdings
from hai_flow.engine.pendings.votes import derive_rules
from hai_flow.engine.state.state import PendingState
from hai_flow.errors import Unreadable
from hai_flow.runtime.base.pulse import PulsedService
from hai_flow.runtime.base.sweep_isolation import Rows, Sweep
from hai_flow.store.people import absences, inbox, notifications
from hai_flow.store.people.absences import AbsenceRow
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import Database
from hai_flow.store.postgres.error_classes import FAILURES

log = structlog.get_logger(__name__)

RESEATED: Final = "reseated"


class Reseating(PulsedService):
    """Queues notifications where an absence has begun or ended. `hint_lists` makes open lists of a tenant look anew."""

    DUE, TASK, FAILURE = "absences", "absences that begin and end", "absence_not_told"
    ERRORS = FAILURES

    def __init__(self, database: Database, hint_lists: Callable[[UUID], None], rows: Rows) -> None:
        super().__init__()
        self._database = database
        self._rows = rows
        self._hint_lists = hint_lists

    async def take_due(self) -> None:
        """Deal with every absence that has begun or ended."""
        await self._rows.go_through(
            Sweep.ABSENCES, await absences.list_due(self._database.engine), lambda id: f"absence {id}", self._tell
        )

    async def _tell(self, id: UUID) -> None:
        async with self._database.engine.acquire() as connection, connection.transaction():
            due = await absences.take_due(connection, id)
            if due is None:
                return
            tenant, row, stage = due
            is_over = await absences.is_over(connection, id)
            if stage == "begun" or not is_over:  # of one that nobody saw, nobody needs to be told
                await self._queue(connection, tenant, row, stage)
            await absences.set_stage(connection, id, "over" if is_over else "begun")
        self._hint_lists(tenant)

    async def _queue(self, connection: Connection, tenant: UUID, row: AbsenceRow, stage: str) -> None:
        selectors = (row.person, *name_holdings(row.roles, row.groups), ANYONE)
        async for questions in inbox.iterate_pages(connection, tenant, selectors):
            for each in questions:
                try:
                    notify = derive_rules(PendingState(e.decode_pending(each.body))).notify
                except Unreadable:  # a newer release wrote it
                    continue
                if notify:
                    id = notifications.derive_notification_id(f"{row.id} {stage} {each.id}")
                    await notifications.queue(
                        connection, id, tenant, each.run_id, each.id, RESEATED, notify, row.person
                    )
