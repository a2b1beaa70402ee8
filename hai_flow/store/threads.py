"""Conversations: a thread is its runs in the order of their creation, and has no row of its own (STORE H13)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from hai_flow.store.runs import SUMMARY_COLUMNS, RunSummary

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn `n` of a run: events `first_seq` to `last_seq` (None while it is open)."""

    run_id: UUID
    n: int
    wire_run_id: str | None
    body_sha: bytes | None
    first_seq: int
    last_seq: int | None


@dataclass(frozen=True, slots=True)
class Message:
    run_id: UUID
    n: int
    id: str
    role: str
    body: bytes
    seq: int


async def runs_of_thread(connection: Connection | Pool, tenant: UUID, thread_id: str) -> list[RunSummary]:
    """The thread's runs, oldest first."""
    query = f"""
    SELECT {SUMMARY_COLUMNS} FROM runs WHERE tenant = $1 AND thread_id = $2 ORDER BY created_at, id
    """
    return [RunSummary(*row) for row in await connection.fetch(query, tenant, thread_id)]


async def last_run(connection: Connection | Pool, tenant: UUID, thread_id: str) -> RunSummary | None:
    """The thread's newest run that is nobody's child: the one that a POST may mean (DESIGN section 11)."""
    query = f"""
    SELECT {SUMMARY_COLUMNS} FROM runs WHERE tenant = $1 AND thread_id = $2 AND parent_id IS NULL
    ORDER BY created_at DESC, id DESC LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, thread_id)
    return None if row is None else RunSummary(*row)


async def turn_of_wire_run(
    connection: Connection | Pool, tenant: UUID, thread_id: str, wire_run_id: str
) -> Turn | None:
    """The turn that a client's POST opened under its own run id; the newest, should there be several."""
    query = """
    SELECT t.run_id, t.n, t.wire_run_id, t.body_sha, t.first_seq, t.last_seq
    FROM turns t JOIN runs r ON r.id = t.run_id
    WHERE t.tenant = $1 AND t.thread_id = $2 AND t.wire_run_id = $3
    ORDER BY r.created_at DESC, r.id DESC, t.n DESC LIMIT 1
    """
    row = await connection.fetchrow(query, tenant, thread_id, wire_run_id)
    return None if row is None else Turn(*row)


async def turns_of_run(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> list[Turn]:
    """The run's turns in order."""
    query = """
    SELECT run_id, n, wire_run_id, body_sha, first_seq, last_seq FROM turns WHERE run_id = $1 AND tenant = $2 ORDER BY n
    """
    return [Turn(*row) for row in await connection.fetch(query, run_id, tenant)]


async def transcript(connection: Connection | Pool, tenant: UUID, thread_id: str) -> list[Message]:
    """The thread's messages: its runs in order of creation, each run's messages in order."""
    query = """
    SELECT m.run_id, m.n, m.id, m.role, m.body, m.seq FROM messages m JOIN runs r ON r.id = m.run_id
    WHERE m.tenant = $1 AND m.thread_id = $2 ORDER BY r.created_at, r.id, m.n
    """
    return [Message(*row) for row in await connection.fetch(query, tenant, thread_id)]


async def unseen(connection: Connection | Pool, tenant: UUID, thread_id: str, message_ids: Collection[str]) -> set[str]:
    """Those of `message_ids` that the thread does not have."""
    query = "SELECT id FROM messages WHERE tenant = $1 AND thread_id = $2 AND id = ANY($3::text[])"
    rows = await connection.fetch(query, tenant, thread_id, list(message_ids))
    return set(message_ids) - {row[0] for row in rows}
