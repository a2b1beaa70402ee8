"""Messages that wait until their thread's run has ended (`on_message: enqueue`), each with the run that it will start.

A thread's messages stand in the order in which they came. The one in front starts its run as soon as no other is active
in the thread, and its row goes. A message whose run could not be started stays for a day with the refusal, so that its
sender finds out."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.errors import Rejected
from hai_flow.store.messaging.concurrency_slots import derive_thread_slot
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page

WAITING_MAX: Final = 20
"""So many messages of one thread may wait."""
REFUSED_KEPT: Final = timedelta(days=1)


class QueuedMessage(msgspec.Struct, frozen=True):
    """A message, and all that is needed to start its run later. `workflow`: the version's sha256; `start` and `asked`
    are encoded; `refused` is None while it waits."""

    tenant: UUID
    run_id: UUID
    thread_id: str
    workflow: bytes
    principal: str
    start: bytes
    asked: bytes
    command_id: str
    body_sha: bytes
    queued_at: datetime
    refused: bytes | None = None

    @property
    def refusal(self) -> Rejected | None:
        """Why its run was not started."""
        return None if self.refused is None else Rejected(**msgspec.json.decode(self.refused))


_COLUMNS: Final = (
    "tenant, run_id, thread_id, workflow, principal, start, asked, command_id, body_sha, queued_at, refused"
)
_ADD: Final = """
INSERT INTO queued_messages (tenant, run_id, thread_id, workflow, principal, start, asked, command_id, body_sha)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9
WHERE (SELECT count(*) FROM queued_messages WHERE tenant = $1 AND thread_id = $3 AND refused IS NULL) < $10
  OR EXISTS (SELECT FROM queued_messages WHERE tenant = $1 AND run_id = $2)
ON CONFLICT (tenant, run_id) DO NOTHING
"""


async def add(pool: Pool, message: QueuedMessage) -> QueuedMessage | None:
    """Let the message wait behind the others of its thread. Returns it as it stands there: one with the same run that
    came before stays as it was. None: `WAITING_MAX` of the thread wait already."""
    async with pool.acquire() as connection, connection.transaction():
        # One after the other, so that they are counted; the place is then that of the order in which they came, too.
        slot = f"messages:{message.tenant}:{message.thread_id}"
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", slot)
        await connection.execute(
            _ADD,
            message.tenant,
            message.run_id,
            message.thread_id,
            message.workflow,
            message.principal,
            message.start,
            message.asked,
            message.command_id,
            message.body_sha,
            WAITING_MAX,
        )
        return await find(connection, message.tenant, message.run_id)


async def find(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> QueuedMessage | None:
    query = f"SELECT {_COLUMNS} FROM queued_messages WHERE tenant = $1 AND run_id = $2"
    row = await connection.fetchrow(query, tenant, run_id)
    return None if row is None else QueuedMessage(*row)


async def list_of_thread(connection: Connection | Pool, tenant: UUID, thread_id: str) -> list[QueuedMessage]:
    """The messages of a thread, the next one first, and those that were refused lately."""
    query = f"SELECT {_COLUMNS} FROM queued_messages WHERE tenant = $1 AND thread_id = $2 ORDER BY place"
    return [QueuedMessage(*row) for row in await connection.fetch(query, tenant, thread_id)]


async def first_of(connection: Connection | Pool, tenant: UUID, thread_id: str) -> QueuedMessage | None:
    query = f"""
    SELECT {_COLUMNS} FROM queued_messages WHERE tenant = $1 AND thread_id = $2 AND refused IS NULL
    ORDER BY place LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, thread_id)
    return None if row is None else QueuedMessage(*row)


async def remove(pool: Pool, tenant: UUID, run_id: UUID) -> None:
    """The run is there: its message waits no more."""
    await pool.execute("DELETE FROM queued_messages WHERE tenant = $1 AND run_id = $2", tenant, run_id)


async def refuse(connection: Connection | Pool, tenant: UUID, run_id: UUID, why: Rejected) -> bool:
    """The message will start no run. Returns False where it waits no more."""
    refused = msgspec.json.encode({"status": why.status, "code": why.code, "detail": why.detail})
    query = """
    UPDATE queued_messages SET refused = $3, refused_at = now()
    WHERE tenant = $1 AND run_id = $2 AND refused IS NULL RETURNING true
    """
    return bool(await connection.fetchval(query, tenant, run_id, refused))


async def find_settled(pool: Pool, messages: Collection[tuple[UUID, UUID]]) -> set[tuple[UUID, UUID]]:
    """Those of the messages, named by tenant and run, that wait no more: their run is there, or was refused."""
    query = """
    SELECT k.tenant, k.run_id FROM unnest($1::uuid[], $2::uuid[]) AS k(tenant, run_id)
    WHERE NOT EXISTS (
      SELECT FROM queued_messages q WHERE q.tenant = k.tenant AND q.run_id = k.run_id AND q.refused IS NULL)
    """
    rows = await pool.fetch(query, [each[0] for each in messages], [each[1] for each in messages])
    return {(row[0], row[1]) for row in rows}


_STALLED: Final = f"""
WITH page AS MATERIALIZED (
  SELECT tenant, run_id, thread_id, refused_at FROM queued_messages WHERE (tenant, run_id) > ($1, $2)
  ORDER BY tenant, run_id LIMIT $3
), gone AS (
  DELETE FROM queued_messages q USING page p
  WHERE q.tenant = p.tenant AND q.run_id = p.run_id AND p.refused_at < now() - $4::interval
)
SELECT tenant, run_id, thread_id, refused_at IS NULL AND NOT EXISTS (
  SELECT FROM slots s WHERE s.tenant = page.tenant AND s.slot = '{derive_thread_slot("")}' || page.thread_id
) FROM page ORDER BY tenant, run_id
"""


async def find_stalled_threads(pool: Pool, after: list[Any] | None = None) -> tuple[set[tuple[UUID, str]], Page]:
    """Of a page of the messages that wait, the threads (with their tenants) in which no run is active: the process that
    should have started the next one is gone. Messages that were refused long ago are removed."""
    tenant, run_id = after or (UUID(int=0), UUID(int=0))
    rows = await pool.fetch(_STALLED, UUID(str(tenant)), UUID(str(run_id)), PAGE_ROWS, REFUSED_KEPT)
    stalled = {(row[0], row[2]) for row in rows if row[3]}
    last = [str(rows[-1][0]), str(rows[-1][1])] if len(rows) == PAGE_ROWS else None
    return stalled, Page(len(rows), len(stalled), last)
