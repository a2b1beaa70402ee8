"""The messages of a thread before a run, which an agent's model gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from hai_flow.engine.state.state import MessageState
from hai_flow.engine.steps.agents import Said, said_by
from hai_flow.store.commit.projection import thread_entry
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import threads

RUNS_MAX: Final = 50
MESSAGES_MAX: Final = 200


async def said_before(database: Database, tenant: UUID, thread_id: str, run_id: UUID) -> Sequence[Said]:
    """The newest messages of the thread's line before the run, the oldest first; none of a run beside it."""
    async with database.api.acquire() as connection:
        rows = await threads.transcript(
            connection, tenant, thread_id, before=run_id, window=threads.Window(RUNS_MAX, MESSAGES_MAX)
        )
    entries = (thread_entry(row.role, row.body) for row in rows)
    return [said for each in entries if isinstance(each, MessageState) and (said := said_by(each)) is not None]
