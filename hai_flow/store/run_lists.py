"""Runs as requests read them: one, pages of them, how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as lists show it. `unreadable`: why workers could not read it, where that is so."""

    id: UUID
    tenant: UUID
    workflow: bytes
    workflow_name: str
    workflow_version: int
    dev: bool
    thread_id: str
    parent_id: UUID | None
    parent_path: str | None
    queue: str
    slot: str | None
    status: str
    seq: int
    version: int
    started_by: str
    created_at: datetime
    ended_at: datetime | None
    branch_of: UUID | None
    follows: UUID | None
    copied: int
    unreadable: str | None


@dataclass(frozen=True, slots=True)
class RunRow(RunSummary):
    """A run with its input and, when it has ended, its `result`: JSON text of `{"output"}` or `{"error"}`."""

    input: bytes | None
    result: bytes | None


SUMMARY_COLUMNS: Final = (
    "id, tenant, workflow, workflow_name, workflow_version, dev, thread_id, parent_id, parent_path, queue, slot, "
    "status, seq, version, started_by, created_at, ended_at, branch_of, follows, copied, unreadable"
)
_OF_RUN: Final = ", ".join(f"r.{column}" for column in SUMMARY_COLUMNS.split(", "))


async def get_run(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> RunRow | None:
    """The run, if it is the tenant's."""
    query = f"SELECT {SUMMARY_COLUMNS}, input, result FROM runs WHERE id = $1 AND tenant = $2"
    row = await connection.fetchrow(query, run_id, tenant)
    return None if row is None else RunRow(*row)


async def list_runs(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    limit: int,
    statuses: Sequence[str] | None = None,
    workflow: str | None = None,
    thread_id: str | None = None,
    before: tuple[datetime, UUID] | None = None,
) -> list[RunRow]:
    """The tenant's runs, newest first. `before` is the (created_at, id) of the last one of the page before.

    Of the status `needs_attention` are also runs that nobody can read, whatever their own status is.
    """
    arguments: list[Any] = [tenant, limit, None if statuses is None else sorted(set(statuses))]
    conditions = ["r.tenant = $1"]

    def demand(condition: str, *values: Any) -> None:
        numbers = range(len(arguments) + 1, len(arguments) + 1 + len(values))
        arguments.extend(values)
        conditions.append(condition.format(*(f"${number}" for number in numbers)))

    if workflow is not None:
        demand("r.workflow_name = {}", workflow)
    if thread_id is not None:
        demand("r.thread_id = {}", thread_id)
    if before is not None:
        demand("(r.created_at, r.id) < ({}, {})", *before)

    def page(*more: str) -> str:
        found = f"SELECT r.* FROM runs r WHERE {' AND '.join((*conditions, *more))}"
        return f"({found} ORDER BY r.created_at DESC, r.id DESC LIMIT $2)"

    if statuses is None:
        pages = page("$3::text[] IS NULL")
    else:
        # A page of each status, of which the newest are taken: looked for together, a page of few runs among many
        # others is a walk through all of those, and one of many among few a sort of them.
        of_each = page("r.status = wanted.status")
        pages = f"(SELECT r.* FROM unnest($3::text[]) AS wanted(status) CROSS JOIN LATERAL {of_each} r)"
        if "needs_attention" in statuses:
            pages += f" UNION ALL {page('r.unreadable IS NOT NULL', 'r.status <> ALL ($3)')}"
    query = f"""
    SELECT {_OF_RUN}, r.input, r.result FROM ({pages}) r ORDER BY r.created_at DESC, r.id DESC LIMIT $2
    """
    return [RunRow(*row) for row in await connection.fetch(query, *arguments)]


async def count_by_status(connection: Connection | Pool, tenant: UUID | None = None) -> dict[str, int]:
    """How many runs have each status, of one tenant or of all."""
    query = "SELECT status, count(*) FROM runs WHERE $1::uuid IS NULL OR tenant = $1 GROUP BY status"
    return dict(map(tuple, await connection.fetch(query, tenant)))
