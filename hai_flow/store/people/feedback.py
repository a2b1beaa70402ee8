"""Opinions of people on a thread's messages, and on the decisions in it (docs/design/protocols.md#feedback).

Kept with the thread, not in a run's log: the terminal event stays the last one, and an opinion moves no run. There is
one row for each principal and subject: their opinion now. The constraints keep that; the caller finds out which
subjects there are, and they stay, since messages and decided pendings do not go away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

Kind: TypeAlias = Literal["message", "pending"]
Rating: TypeAlias = Literal["up", "down", "1", "2", "3", "4", "5"]


class Subject(NamedTuple):
    """The subject of an opinion: a message (or a call) of the thread's transcript, or a pending, by its id."""

    tenant: UUID
    thread_id: str
    kind: Kind
    id: str


class Opinion(NamedTuple):
    """An opinion; it is not empty. `rating` is a thumb or a number of stars."""

    rating: Rating | None
    comment: str | None
    labels: Sequence[str]


class Feedback(msgspec.Struct, frozen=True):
    """`run_id` is the run whose message or pending `subject_id` is; `via` over which way `principal` gave it."""

    id: UUID
    thread_id: str
    kind: Kind
    subject_id: str
    run_id: UUID
    principal: str
    via: str
    rating: Rating | None
    comment: str | None
    labels: list[str]
    created_at: datetime
    updated_at: datetime


_COLUMNS: Final = (
    "id, thread_id, kind, subject_id, run_id, principal, via, rating, comment, labels, created_at, updated_at"
)
_WHOSE: Final = "tenant = $1 AND thread_id = $2 AND kind = $3 AND subject_id = $4 AND principal = $5"

# xmax of a row that was inserted, and not updated, is 0. The same again moves no time: it is no change. The time is the
# default of the column: Citus, which may keep a cell, takes no clock in DO UPDATE.
_GIVE: Final = f"""
INSERT INTO feedback AS f (tenant, thread_id, kind, subject_id, principal, run_id, via, rating, comment, labels)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant, thread_id, kind, subject_id, principal) DO UPDATE SET
  run_id = excluded.run_id, via = excluded.via, rating = excluded.rating, comment = excluded.comment,
  labels = excluded.labels,
  updated_at = CASE WHEN (f.via, f.rating, f.comment, f.labels)
      IS DISTINCT FROM (excluded.via, excluded.rating, excluded.comment, excluded.labels)
    THEN excluded.updated_at ELSE f.updated_at END
RETURNING {_COLUMNS}, xmax = 0
"""


async def keep_run(connection: Connection, run_id: UUID) -> bool:
    """Keep the run from being removed until this transaction ends, so that what is stored with it is in its archive, or
    kept. False: it was removed."""
    return await connection.fetchval("SELECT true FROM runs WHERE id = $1 FOR KEY SHARE", run_id) is not None


async def give_feedback(
    connection: Connection | Pool, subject: Subject, run_id: UUID, principal: str, via: str, opinion: Opinion
) -> tuple[Feedback, bool]:
    """Make `opinion` the principal's one on the subject; returns it, and whether it is their first."""
    values = (opinion.rating, opinion.comment, list(opinion.labels))
    row = await connection.fetchrow(_GIVE, *subject, principal, run_id, via, *values)
    assert row is not None
    *columns, new = row
    return Feedback(*columns), new


async def get_feedback(connection: Connection | Pool, subject: Subject, principal: str) -> Feedback | None:
    """The principal's opinion on the subject, if there is one."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM feedback WHERE {_WHOSE}", *subject, principal)
    return None if row is None else Feedback(*row)


async def withdraw_feedback(connection: Connection | Pool, subject: Subject, principal: str) -> None:
    """Remove the principal's opinion on the subject. Twice is harmless."""
    await connection.execute(f"DELETE FROM feedback WHERE {_WHOSE}", *subject, principal)


async def list_feedback(
    connection: Connection | Pool,
    tenant: UUID,
    thread_id: str,
    *,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
) -> list[Feedback]:
    """All opinions, newest first. `before` is the (created_at, id) of the last one of the page before."""
    arguments: list[Any] = [tenant, thread_id, limit]
    earlier = ""
    if before is not None:
        arguments.extend(before)
        earlier = "AND (created_at, id) < ($4, $5)"
    query = f"""
    SELECT {_COLUMNS} FROM feedback WHERE tenant = $1 AND thread_id = $2 {earlier}
    ORDER BY created_at DESC, id DESC LIMIT $3
    """
    return [Feedback(*row) for row in await connection.fetch(query, *arguments)]


async def run_of_message(connection: Connection | Pool, tenant: UUID, thread_id: str, message_id: str) -> UUID | None:
    """The run of the message or the call, in this thread: of several the newest. Also one of a branch that the thread
    has left: it has been seen."""
    query = """
    SELECT m.run_id FROM messages m JOIN runs r ON r.id = m.run_id
    WHERE m.tenant = $1 AND m.thread_id = $2 AND m.id = $3 ORDER BY r.place DESC, r.created_at DESC, r.id DESC LIMIT 1
    """
    return await connection.fetchval(query, tenant, thread_id, message_id)


async def find_pending_of_thread(
    connection: Connection | Pool, tenant: UUID, thread_id: str, run_id: UUID, pending_id: str
) -> str | None:
    """The status of the pending, if its run (which its id names) is of this thread."""
    query = """
    SELECT p.status FROM pendings p JOIN runs r ON r.id = p.run_id
    WHERE p.run_id = $1 AND p.id = $2 AND p.tenant = $3 AND r.thread_id = $4
    """
    return await connection.fetchval(query, run_id, pending_id, tenant, thread_id)
