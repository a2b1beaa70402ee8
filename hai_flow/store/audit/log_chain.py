"""Checks the logs of runs: each commit has chained its events (`runs.head`), and the audit, itself chained and anchored
elsewhere, vouches for the heads that it has seen. Commits after the last act of a person on a run are protected by the
run's own head alone."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.store.audit.audit_chain import Fault
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs.log_compaction import iter_commits

RUNS_AT_ONCE: Final = 200
ROWS_AT_ONCE: Final = 200
_FIRST: Final = UUID(int=0)
REMOVED: Final = "run.removed"
"""The act of removing a run by retention. Its record has the head of the log as its digest."""

# The process that removes a run by retention writes a record of it, with the end of its log. The chain of the audit
# vouches for that record, and the heads in other records of the run must fit it.
_GONE: Final = """
SELECT DISTINCT a.run_id FROM audit a LEFT JOIN runs r ON r.id = a.run_id
WHERE a.tenant = $1 AND a.run_id IS NOT NULL AND a.head IS NOT NULL AND (r.id IS NULL OR r.tenant <> $1)
  AND NOT EXISTS (
    SELECT FROM retired_runs x JOIN audit w ON w.tenant = x.tenant AND w.run_id = x.run_id
    WHERE x.run_id = a.run_id AND x.tenant = $1 AND x.removed_at IS NOT NULL AND w.act = $2 AND w.digest = x.head
      AND (a.seq < x.seq OR (a.seq = x.seq AND a.head = x.head)))
"""


class Checked(NamedTuple):
    """How many runs were checked, how many heads of them the audit vouches for, and every fault."""

    runs: int
    vouched: int
    faults: list[Fault]


async def verify_logs(pool: Connection | Pool, tenant: UUID) -> Checked:
    """Check the logs of all runs of a tenant. A run that goes on meanwhile is checked as far as it was."""
    faults: list[Fault] = []
    runs = vouched = 0
    after = _FIRST
    query = "SELECT id, head, seq FROM runs WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3"
    while page := await pool.fetch(query, tenant, after, RUNS_AT_ONCE):
        for run_id, head, seq in page:
            heads, fault = await _verify_log(pool, tenant, run_id, head, seq)
            vouched += heads
            faults += [] if fault is None else [Fault(tenant, None, "log_changed", f"run {run_id}: {fault}")]
        runs += len(page)
        after = page[-1][0]
    faults += [
        Fault(tenant, None, "log_removed", f"the audit knows the run {run_id}, and there is none")
        for (run_id,) in await pool.fetch(_GONE, tenant, REMOVED)
    ]
    return Checked(runs, vouched, faults)


async def _verify_log(
    pool: Connection | Pool, tenant: UUID, run_id: UUID, head: bytes, seq: int
) -> tuple[int, str | None]:
    """How many heads of the audit the log has, and its faults."""
    query = "SELECT seq, head FROM audit WHERE tenant = $1 AND run_id = $2 AND head IS NOT NULL"
    vouched: dict[int, bytes] = {row["seq"]: row["head"] for row in await pool.fetch(query, tenant, run_id)}
    rows = """
    SELECT first_seq, last_seq, version, at, events, parts FROM log
    WHERE run_id = $1 AND last_seq > $2 AND last_seq <= $3 ORDER BY last_seq LIMIT $4
    """
    chain, at, heads = b"", 0, 0
    while at < seq and (page := await pool.fetch(rows, run_id, at, seq, ROWS_AT_ONCE)):
        try:
            commits = [commit for row in page for commit in iter_commits(dict(row))]
        except ValueError as error:
            return heads, f"the row behind event {at}: {error}"
        for commit in commits:
            first = commit["first_seq"]
            if first != at + 1:
                return heads, f"the events {at + 1} to {first - 1} are gone"
            chain, at = sha256(chain + commit["events"]).digest(), commit["last_seq"]
            if (expected := vouched.get(at)) is not None:
                if expected != chain:
                    return heads, f"its first {at} events are not those that the audit vouches for"
                heads += 1
    if at != seq:
        return heads, f"it has {at} events, and its row says {seq}"
    if chain != head:
        return heads, f"its {seq} events, or its head, were changed"
    if late := [each for each in vouched if each > seq]:
        return heads, f"it ends with event {seq}, and the audit knows event {max(late)}"
    if heads < len(vouched):
        return heads, "its commits are not those that the audit vouches for"
    return heads, None
