"""Everything that a POST of a UI protocol has to know of its thread before it is decided, read in one statement.

One statement is one moment: a commit of another POST meanwhile is seen as a whole or not at all. It also costs a client
that waits one round trip instead of four."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.catalog.workflows import LATEST_FIRST, SUMMARY_COLUMNS, NamedVersion, WorkflowSummary
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs.run_lists import RunSummary
from hai_flow.store.runs.threads import LAST_RUN, TURN_OF_WIRE_RUN, Turn


class PostContext(msgspec.Struct, frozen=True):
    """`last`: the thread's newest run, `turn`: the one that a POST with this runId opened, `seen`: those of the posted
    messages that the thread has; `workflow`: the one that a new run would be of, None where there is none."""

    last: RunSummary | None
    turn: Turn | None
    seen: frozenset[str]
    workflow: WorkflowSummary | None


_NO_VERSION: Final = (None, None, None)
_KNOWN: Final = f"""
WITH last AS MATERIALIZED (
  {LAST_RUN}
), turn AS MATERIALIZED (
  {TURN_OF_WIRE_RUN}
), wanted AS MATERIALIZED (        -- what the client names, else what the thread ran last, else the server's default
  SELECT name, number, sha8 FROM (
    VALUES (1, $6::text, $7::int, $8::text), (3, $9, $10::int, $11)
    UNION ALL SELECT 2, workflow_name, NULL, NULL FROM last
  ) AS choices (place, name, number, sha8) WHERE name IS NOT NULL ORDER BY place LIMIT 1
), workflow AS MATERIALIZED (
  SELECT {SUMMARY_COLUMNS} FROM workflows JOIN wanted USING (name)
  WHERE tenant = $1 AND (number IS NULL OR version = number)
    AND (sha8 IS NULL OR starts_with(encode(sha256, 'hex'), sha8))
  ORDER BY {LATEST_FIRST} LIMIT 1
)
SELECT ARRAY(SELECT id FROM messages WHERE tenant = $1 AND thread_id = $2 AND id = ANY($5::text[])) AS seen,
  turn.*, workflow.*, last.*
FROM (SELECT) AS one LEFT JOIN last ON true LEFT JOIN turn ON true LEFT JOIN workflow ON true
"""


async def load_context(
    connection: Connection | Pool,
    tenant: UUID,
    thread_id: str,
    wire_run_id: str,
    body_sha: bytes,
    message_ids: Collection[str],
    *,
    wanted: NamedVersion | None,
    default: NamedVersion | None,
) -> PostContext:
    """The rows of a thread to which `message_ids` are posted under a client's own run id.

    `wanted`: the workflow that the client names; without it that of the thread's last run counts, then `default`."""
    row = await connection.fetchrow(
        _KNOWN,
        tenant,
        thread_id,
        wire_run_id,
        body_sha,
        list(message_ids),
        *(wanted or _NO_VERSION),
        *(default or _NO_VERSION),
    )
    assert row is not None, "it joins to one row"
    message_row, turn, workflow, last = row[0], row[1:7], row[7:15], row[15:]
    return PostContext(
        last=None if last[0] is None else RunSummary(*last),
        turn=None if turn[0] is None else Turn(*turn),
        seen=frozenset(message_row),
        workflow=None if workflow[0] is None else WorkflowSummary(*workflow),
    )
