"""Standing rules, and the votes by them.

What counts a use, and what ends or begins a rule, exclude each other by a lock of the tenant's rules: whoever has ended
one knows that no vote by it comes after. Each change raises the version that processes compare (`freeze_switch`), so
they know for which tools there are rules with the next commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.commit.commit_sql import RAISE_FREEZE_VERSION
from hai_flow.store.postgres.connections import Connection, Pool

SHOWN_MAX: Final = 1000


class RuleRow(msgspec.Struct, frozen=True):
    """`body` is the JSON of what it says (`runtime/people/standing_rules`). `proposer_ids` are all ids of who proposed
    it, `excluded_ids` of who else profits from it; `run_id` is the run whose gate approves it. `voters`: JSON of those
    who did; `people`: all ids of these and of the proposer. `uses_max` is of one `period` (None: for ever)."""

    id: UUID
    tenant: UUID
    kind: str
    tool: str
    workflow: str | None
    body: bytes
    digest: str
    until: datetime
    uses_max: int | None
    period: timedelta | None
    uses: int
    proposed_by: str
    proposer_ids: Sequence[str]
    excluded_ids: Sequence[str]
    run_id: UUID | None
    pending_id: str | None
    created_at: datetime
    voters: bytes | None
    people: Sequence[str] | None
    approved_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    ended_why: str | None
    is_over: bool
    is_used_up: bool


class RuleVote(msgspec.Struct, frozen=True):
    run_id: UUID
    pending_id: str
    at: datetime


_LEFT: Final = """(uses_max IS NULL OR CASE
  WHEN period IS NULL THEN uses < uses_max
  ELSE period_began IS NULL OR period_began + period <= clock_timestamp() OR period_uses < uses_max END)"""
_COLUMNS: Final = f"""id, tenant, kind, tool, workflow, body, digest, until, uses_max, period, uses, proposed_by,
  proposer_ids, excluded_ids, run_id, pending_id, created_at, voters, people, approved_at, ended_at, ended_by,
  ended_why, until <= clock_timestamp() AS is_over, NOT {_LEFT} AS is_used_up"""
_IN_FORCE: Final = "approved_at IS NOT NULL AND ended_at IS NULL AND until > clock_timestamp()"
_LOCKED: Final = "SELECT pg_advisory_xact_lock{}(hashtextextended('rules ' || $1::uuid, 0))"


async def create(connection: Connection, row: RuleRow) -> bool:
    """Keep a rule, unless there is one with its id: False."""
    query = """
    INSERT INTO rules (id, tenant, kind, tool, workflow, body, digest, until, uses_max, period, proposed_by,
      proposer_ids, excluded_ids, run_id, pending_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
    ON CONFLICT (id) DO NOTHING RETURNING true
    """
    return await connection.fetchval(
        query, row.id, row.tenant, row.kind, row.tool, row.workflow, row.body, row.digest, row.until, row.uses_max,
        row.period, row.proposed_by, list(row.proposer_ids), list(row.excluded_ids), row.run_id, row.pending_id,
    ) is not None  # fmt: skip


async def find_rule(connection: Connection | Pool, tenant: UUID, id: UUID) -> RuleRow | None:
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM rules WHERE tenant = $1 AND id = $2", tenant, id)
    return None if row is None else RuleRow(*row)


async def find_rule_of_run(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> RuleRow | None:
    """The rule that is approved by the gate of this run."""
    query = f"SELECT {_COLUMNS} FROM rules WHERE tenant = $1 AND run_id = $2"
    row = await connection.fetchrow(query, tenant, run_id)
    return None if row is None else RuleRow(*row)


async def list_rules(connection: Connection | Pool, tenant: UUID, *, over: bool) -> list[RuleRow]:
    """The tenant's rules, at most 1,000, the last one first. `over`: also those that hold no more."""
    query = f"""
    SELECT {_COLUMNS} FROM rules WHERE tenant = $1 AND ($2 OR (ended_at IS NULL AND until > clock_timestamp()))
    ORDER BY created_at DESC, id LIMIT {SHOWN_MAX}
    """
    return [RuleRow(*row) for row in await connection.fetch(query, tenant, over)]


async def list_uses(connection: Connection | Pool, tenant: UUID, rule: UUID, limit: int) -> list[RuleVote]:
    """The last uses of a rule in this cell, the last one first."""
    query = "SELECT run_id, pending_id, at FROM rule_uses WHERE tenant = $1 AND rule = $2 ORDER BY at DESC LIMIT $3"
    return [RuleVote(*row) for row in await connection.fetch(query, tenant, rule, limit)]


async def list_tools(connection: Connection | Pool) -> dict[UUID, frozenset[str]]:
    tools: dict[UUID, set[str]] = {}
    for tenant, tool in await connection.fetch(f"SELECT DISTINCT tenant, tool FROM rules WHERE {_IN_FORCE}"):
        tools.setdefault(tenant, set()).add(tool)
    return {tenant: frozenset(names) for tenant, names in tools.items()}


async def list_in_force(connection: Connection | Pool, tenant: UUID, tool: str) -> list[RuleRow]:
    query = f"SELECT {_COLUMNS} FROM rules WHERE tenant = $1 AND tool = $2 AND {_IN_FORCE} ORDER BY id"
    return [RuleRow(*row) for row in await connection.fetch(query, tenant, tool)]


async def lock_in_force(connection: Connection, tenant: UUID, tool: str) -> frozenset[UUID]:
    """The ids of the rules in force for a tool, which stay what they are until the transaction ends."""
    await connection.execute(_LOCKED.format("_shared"), tenant)
    query = f"SELECT id FROM rules WHERE tenant = $1 AND tool = $2 AND {_IN_FORCE}"
    return frozenset(row[0] for row in await connection.fetch(query, tenant, tool))


_COUNTED: Final = f"""
WITH counted AS (
  UPDATE rules SET uses = uses + 1,
    period_uses = CASE WHEN period_began + period > clock_timestamp() THEN period_uses + 1 ELSE 1 END,
    period_began = CASE WHEN period_began + period > clock_timestamp() THEN period_began ELSE clock_timestamp() END
  WHERE tenant = $1 AND id = $2 AND {_IN_FORCE} AND {_LEFT} RETURNING 1
)
INSERT INTO rule_uses (tenant, rule, run_id, pending_id) SELECT $1, $2, $3, $4 FROM counted
"""


async def count_use(connection: Connection, tenant: UUID, rule: UUID, run_id: UUID, pending_id: str) -> bool:
    """Count one use. False: the rule is over, or was used as often as it may be."""
    return (await connection.execute(_COUNTED, tenant, rule, run_id, pending_id)).endswith(" 1")


async def begin_change(connection: Connection, tenant: UUID) -> None:
    """Let nobody count uses of the tenant's rules until the transaction ends; then every process reads them again."""
    await connection.execute(_LOCKED.format(""), tenant)
    await connection.execute(RAISE_FREEZE_VERSION)


async def approve(connection: Connection, tenant: UUID, id: UUID, voters: bytes, people: Sequence[str]) -> bool:
    """Put a proposed rule in force. False: it is decided already, or over."""
    await begin_change(connection, tenant)
    query = """
    UPDATE rules SET approved_at = clock_timestamp(), voters = $3, people = $4
    WHERE tenant = $1 AND id = $2 AND approved_at IS NULL AND ended_at IS NULL AND until > clock_timestamp()
    """
    return (await connection.execute(query, tenant, id, voters, list(people))).endswith(" 1")


async def end(connection: Connection, tenant: UUID, id: UUID, by: str, why: str) -> bool:
    """End a rule: it was refused or revoked. False: it had ended."""
    await begin_change(connection, tenant)
    query = """
    UPDATE rules SET ended_at = clock_timestamp(), ended_by = $3, ended_why = $4
    WHERE tenant = $1 AND id = $2 AND ended_at IS NULL
    """
    return (await connection.execute(query, tenant, id, by, why)).endswith(" 1")
