"""Runs as requests read them: one, pages of them, how many there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.definition.plan import DEFAULT_QUEUE
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs.viewers import NO_OPEN_CANARY, Viewer, readable


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
    instigators: str | None = None
    summary: str | None = None
    held: str | None = None

    @property
    def behind(self) -> tuple[str, ...]:
        """The people behind the run beside the one that started it."""
        return tuple((self.instigators or "").split())


@dataclass(frozen=True, slots=True)
class RunRow(RunSummary):
    """A run with its input, its workflow's title and, when it has ended, its `result`: JSON text of `{"output"}` or
    `{"error"}`."""

    input: bytes | None = None
    result: bytes | None = None
    workflow_title: str | None = None


ENDED: Final = frozenset({"finished", "failed", "stopped"})
"""The statuses of runs that have ended."""
SUMMARY_COLUMNS: Final = (
    "id, tenant, workflow, workflow_name, workflow_version, dev, thread_id, parent_id, parent_path, queue, slot, "
    "status, seq, version, started_by, created_at, ended_at, branch_of, follows, copied, unreadable, instigators, "
    "summary, held"
)
_FEW_WORKFLOWS: Final = 20
_OF_ROW: Final = (
    ", ".join(f"r.{column}" for column in SUMMARY_COLUMNS.split(", "))
    + ", r.input, r.result, (SELECT w.title FROM workflows w WHERE w.tenant = r.tenant AND w.sha256 = r.workflow)"
)


async def get_run(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> RunRow | None:
    """The run, if it is the tenant's."""
    query = f"SELECT {_OF_ROW} FROM runs r WHERE r.id = $1 AND r.tenant = $2"
    row = await connection.fetchrow(query, run_id, tenant)
    return None if row is None else RunRow(*row)


async def get_runs(connection: Connection | Pool, tenant: UUID, ids: Collection[UUID]) -> list[RunSummary]:
    """The runs with these ids, if they are the tenant's."""
    query = f"SELECT {SUMMARY_COLUMNS} FROM runs WHERE id = ANY ($1::uuid[]) AND tenant = $2"
    return [RunSummary(*row) for row in await connection.fetch(query, list(ids), tenant)]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for runs; None: any value. `workflows`: of one of these names. `since` and `until`: created not
    before, and before. `error`: those that failed with this code."""

    statuses: Sequence[str] | None = None
    workflow: str | None = None
    workflows: Sequence[str] | None = None
    version: int | None = None
    thread_id: str | None = None
    queue: str | None = None
    started_by: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None

    @property
    def few_workflows(self) -> bool:
        """Whether a page is looked up for each of `workflows`: of many, a page of all runs soon finds some."""
        return self.workflows is not None and len(self.workflows) <= _FEW_WORKFLOWS

    def conditions(self) -> list[tuple[str, Any]]:
        """The conditions for a run `r`, but for its status: each with its parameter, which is `{}` in the text."""
        pairs: list[tuple[str, Any]] = [
            ("r.workflow_name = {}", self.workflow),
            ("r.workflow_version = {}", self.version),
            ("r.thread_id = {}", self.thread_id),
            ("r.queue = {}", self.queue),
            ("r.started_by = {}", self.started_by),
            ("r.created_at >= {}", self.since),
            ("r.created_at < {}", self.until),
        ]
        if self.workflows is not None and not self.few_workflows:
            pairs.append(("r.workflow_name = ANY ({})", list(self.workflows)))
        if self.queue not in (None, DEFAULT_QUEUE):  # by its index, which has few rows: it knows no other
            pairs.append((f"(r.queue <> '{DEFAULT_QUEUE}' AND {{}}::bool)", True))
        if self.error is not None:  # the committer writes the code first
            begins = f'{{"error":{{"code":"{self.error}",'.encode()
            pairs.append((f"substring(r.result FROM 1 FOR {len(begins)}) = {{}}", begins))
        return [(condition, value) for condition, value in pairs if value is not None]


async def list_runs(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    limit: int,
    statuses: Sequence[str] | None = None,
    workflow: str | None = None,
    thread_id: str | None = None,
    before: tuple[datetime, UUID] | None = None,
    viewer: Viewer | None = None,
) -> list[RunRow]:
    """The tenant's runs of some statuses, a workflow, a thread, as `find_runs` has them."""
    filters = Filter(statuses=statuses, workflow=workflow, thread_id=thread_id)
    return await find_runs(connection, tenant, filters, limit=limit, before=before, viewer=viewer)


async def find_runs(
    connection: Connection | Pool,
    tenant: UUID,
    wanted: Filter,
    *,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
    viewer: Viewer | None = None,
) -> list[RunRow]:
    """The tenant's runs, newest first; only those that `viewer` may read, where one is given. `before` is the
    (created_at, id) of the last one of the page before.

    The filter `needs_attention` also gives runs that no worker can read, whatever their status is."""
    pages, arguments = _pages(tenant, wanted, limit, before, viewer)
    query = f"""
    SELECT {_OF_ROW} FROM ({pages}) r ORDER BY r.created_at DESC, r.id DESC LIMIT $2
    """
    return [RunRow(*row) for row in await connection.fetch(query, *arguments)]


async def count_runs(
    connection: Connection | Pool, tenant: UUID, wanted: Filter, *, limit: int, viewer: Viewer | None = None
) -> dict[str, int]:
    """How many runs have each of the filter's statuses, counted up to `limit`. `needs_attention` also counts those that
    no worker can read."""
    pages, arguments = _pages(tenant, wanted, limit, None, viewer)
    query = f"""
    SELECT r.status, count(*), count(*) FILTER (WHERE r.unreadable IS NOT NULL) FROM ({pages}) r
    GROUP BY r.status
    """
    counts = dict.fromkeys(wanted.statuses or (), 0)
    unreadable = 0
    for status, count, lost in await connection.fetch(query, *arguments):
        if status in counts:
            counts[status] = min(limit, count)
        unreadable += 0 if status == "needs_attention" else lost
    if "needs_attention" in counts:
        counts["needs_attention"] = min(limit, counts["needs_attention"] + unreadable)
    return counts


def _pages(
    tenant: UUID, wanted: Filter, limit: int, before: tuple[datetime, UUID] | None, viewer: Viewer | None
) -> tuple[str, list[Any]]:
    """A query of the newest rows `r` of each of the filter's statuses, and its arguments; `limit` is its `$2`."""
    statuses = wanted.statuses
    if wanted.error is not None:  # whatever else has been asked for: the few that failed are found by their status
        statuses = ["failed"] if statuses is None else [each for each in statuses if each == "failed"]
    arguments: list[Any] = [tenant, limit, None if statuses is None else sorted(set(statuses))]
    conditions = ["r.tenant = $1"]
    conditions.append(NO_OPEN_CANARY)

    def demand(condition: str, *values: Any) -> None:
        numbers = range(len(arguments) + 1, len(arguments) + 1 + len(values))
        arguments.extend(values)
        conditions.append(condition.format(*(f"${number}" for number in numbers)))

    for condition, value in wanted.conditions():
        demand(condition, value)
    if before is not None:
        demand("(r.created_at, r.id) < ({}, {})", *before)

    def page(*more: str) -> str:
        if viewer is None:
            return _page(*conditions, *more)
        return f"({readable(_page(*conditions, *more, '{}'), first)})"

    lateral, of_workflow, of_any = "LATERAL ", list[str](), list[str]()
    if wanted.few_workflows:
        arguments.append(list(wanted.workflows or ()))
        names = f"${len(arguments)}::text[]"
        lateral = f"unnest({names}) AS named(workflow) CROSS JOIN LATERAL "
        of_workflow, of_any = ["r.workflow_name = named.workflow"], [f"r.workflow_name = ANY ({names})"]
    first = len(arguments) + 1
    if viewer is not None:
        arguments.extend(viewer.parameters())
    if statuses is None:
        pages = page("$3::text[] IS NULL", *of_workflow)
        return f"(SELECT r.* FROM {lateral}{pages} r)" if of_workflow else pages, arguments
    # A page of each status, of which the newest are taken: looked for together, a page of few runs among many
    # others is a walk through all of those, and one of many among few a sort of them.
    of_each = page("r.status = wanted.status", *of_workflow)
    pages = f"(SELECT r.* FROM unnest($3::text[]) AS wanted(status) CROSS JOIN {lateral}{of_each} r)"
    if "needs_attention" in statuses:
        pages += f" UNION ALL {page('r.unreadable IS NOT NULL', 'r.status <> ALL ($3)', *of_any)}"
    return pages, arguments


def _page(*conditions: str) -> str:
    return f"(SELECT r.* FROM runs r WHERE {' AND '.join(conditions)} ORDER BY r.created_at DESC, r.id DESC LIMIT $2)"
