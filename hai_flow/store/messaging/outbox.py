"""Messages of commits to other runs, until they were delivered (docs/design/store.md#outbox).

Delivery makes a command with the id (run, seq, n) and deletes the message after the receiver's commit or its
"already so". A message may be delivered twice, never lost, and per sender and target in order."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool


class OutboxMessage(msgspec.Struct, frozen=True):
    run_id: UUID
    last_seq: int
    n: int
    tenant: UUID
    kind: str
    target: str
    body: bytes

    @property
    def command_id(self) -> str:
        """The id under which the receiver carries it out once."""
        return f"{self.run_id}/{self.last_seq}/{self.n}"


_DUE: Final = """
WITH due AS MATERIALIZED (
  SELECT o.run_id, o.last_seq, o.n FROM outbox o
  WHERE o.due_at <= now() AND NOT EXISTS (
    SELECT FROM outbox e WHERE e.run_id = o.run_id AND (e.last_seq, e.n) < (o.last_seq, o.n) AND e.target = o.target)
  ORDER BY o.due_at LIMIT $1 FOR UPDATE OF o SKIP LOCKED
)
UPDATE outbox o SET due_at = now() + $2 FROM due d WHERE o.run_id = d.run_id AND o.last_seq = d.last_seq AND o.n = d.n
RETURNING o.run_id, o.last_seq, o.n, o.tenant, o.kind, o.target, o.body
"""


async def due_messages(
    connection: Connection | Pool, limit: int, again_after: timedelta = timedelta(seconds=5)
) -> list[OutboxMessage]:
    """Up to `limit` messages to deliver now: of each sender and target the first one only.

    A message that is not deleted within `again_after` is given out again, so a deliverer that dies loses nothing and
    two at once seldom do the same work."""
    rows = [OutboxMessage(*row) for row in await connection.fetch(_DUE, limit, again_after)]
    return sorted(rows, key=lambda message: (message.run_id, message.last_seq, message.n))


async def put_off(connection: Connection | Pool, message: OutboxMessage, wait: timedelta) -> None:
    """Give the message, and those behind it, out again after a while."""
    query = "UPDATE outbox SET due_at = now() + $4 WHERE (run_id, last_seq, n) = ($1, $2, $3)"
    await connection.execute(query, message.run_id, message.last_seq, message.n, wait)


_DELETE: Final = """
WITH done AS (DELETE FROM outbox WHERE run_id = $1 AND last_seq = $2 AND n = $3)
SELECT EXISTS (SELECT FROM outbox WHERE run_id = $1 AND (last_seq, n) > ($2, $3) AND target = $4)
"""


async def delete_message(connection: Connection | Pool, message: OutboxMessage) -> bool:
    """The receiver has the message: delete it. Returns whether another one of the same sender to it waits behind.
    Deleting twice is harmless."""
    return await connection.fetchval(_DELETE, message.run_id, message.last_seq, message.n, message.target)
