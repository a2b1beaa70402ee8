"""All rows of a run, for checking, archiving and comparing it. It is read and never written here.

One snapshot shows a run whole, because each of its commits is one statement; so a database of any size is looked at
run by run, each page in a transaction of its own, and no vacuum waits for the end of the walk."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import read_clock
from hai_flow.store.runs.log_compaction import iter_commits

Row: TypeAlias = Mapping[str, Any]

# The tables beside `runs` and `log` that have rows of a run, keyed by it, with the order in which they are read.
TABLES: Final[Mapping[str, str]] = {
    "commands": "command_id",
    "pendings": "id",
    "votes": "pending_id, principal",
    "inbox": "pending_id, selector",
    "outbox": "last_seq, n",
    "turns": "n",
    "messages": "n",
    "snapshots": "seq",
    "subscriptions": "path, type",
    "slots": "slot",
}
ROWS_AT_ONCE: Final = 100
PAGE_RUNS: Final = 100
PAGE_BYTES: Final = 4 * 1024 * 1024
_FIRST: Final = UUID(int=0)


class Kin(NamedTuple):
    """A run above or below another one. `messages`: so many rows of its outbox wait, by the run that they are for."""

    id: UUID
    tenant: UUID
    status: str
    messages: Collection[str]


class Evidence(msgspec.Struct, frozen=True):
    """One run: its row, the rows of `TABLES`, and the rows of others about it. `heads`: the ends of its chain that the
    audit has, by seq. `holder`: when the lease of its worker ends; None if that worker has no row. `above` is its
    parent, if that is there, `below` are its children. `slot_holder`: the run that holds the slot that the row names.
    `now` is the database's clock."""

    run: Row
    rows: Mapping[str, Sequence[Row]]
    heads: Mapping[int, bytes]
    holder: datetime | None
    above: Kin | None
    below: Mapping[UUID, Kin]
    slot_holder: UUID | None
    now: datetime


@contextlib.asynccontextmanager
async def snapshot(connection: Connection) -> AsyncGenerator[None]:
    """Inside, every statement sees the database as of one moment, and none may write."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        yield


async def run_pages(connection: Connection, tenant: UUID | None = None) -> AsyncIterator[list[UUID]]:
    """The ids of all runs (of the tenant) in order, in pages whose logs fit into little memory."""
    query = """
    SELECT id, log_bytes FROM runs WHERE id > $1 AND ($2::uuid IS NULL OR tenant = $2) ORDER BY id LIMIT $3
    """
    after = _FIRST
    while rows := await connection.fetch(query, after, tenant, PAGE_RUNS):
        page: list[UUID] = []
        size = 0
        for id, log_bytes in rows:
            if page and size + log_bytes > PAGE_BYTES:
                break
            page.append(id)
            size += log_bytes
        after = page[-1]
        yield page


async def workflow_run_pages(
    connection: Connection | Pool, tenant: UUID, name: str, age: timedelta
) -> AsyncIterator[list[Row]]:
    """The rows of all runs of the tenant's workflow that began within this time, the oldest first, in pages whose logs
    fit into little memory: `id`, `workflow` (its digest), `abi`, `copied`."""
    query = """
    SELECT id, created_at, workflow, abi, copied, log_bytes FROM runs
    WHERE tenant = $1 AND workflow_name = $2 AND created_at >= $3 AND (created_at, id) > ($4, $5)
    ORDER BY created_at, id LIMIT $6
    """
    since = await read_clock(connection) - age
    place = since, _FIRST
    while rows := await connection.fetch(query, tenant, name, since, *place, PAGE_RUNS):
        page: list[Row] = []
        size = 0
        for row in rows:
            if page and size + row["log_bytes"] > PAGE_BYTES:
                break
            page.append(dict(row))
            size += row["log_bytes"]
        place = page[-1]["created_at"], page[-1]["id"]
        yield page


async def find_vocabulary_start(connection: Connection, abi: int) -> datetime | None:
    """When the database got the schema of the first release that writes this vocabulary; None: it is not known."""
    return await connection.fetchval("SELECT since FROM vocabularies WHERE abi = $1", abi)


async def statuses(connection: Connection) -> dict[str, int]:
    """How many runs have each status. It reads all of them."""
    rows = await connection.fetch("SELECT status, count(*) FROM runs GROUP BY status")
    return {row[0]: row[1] for row in rows}


async def evidence_of(connection: Connection, run_ids: Sequence[UUID]) -> list[Evidence]:
    """The evidence of these runs; those that are not there any more are left out. Call it inside a `snapshot`."""
    query = "SELECT * FROM runs WHERE id = ANY($1::uuid[]) ORDER BY id"
    runs = [dict(row) for row in await connection.fetch(query, run_ids)]
    children: dict[str, dict[UUID, list[Row]]] = {}
    for table, order in TABLES.items():
        query = f"SELECT * FROM {table} WHERE run_id = ANY($1::uuid[]) ORDER BY run_id, {order}"
        children[table] = _group_by_run(await connection.fetch(query, run_ids))
    heads = """
    SELECT run_id, seq, head FROM audit
    WHERE tenant = ANY($1::uuid[]) AND run_id = ANY($2::uuid[]) AND head IS NOT NULL
    """
    audited = _group_by_run(await connection.fetch(heads, list({run["tenant"] for run in runs}), run_ids))
    kin = await _load_kin(connection, run_ids)
    query = "SELECT id, alive_until FROM workers WHERE id = ANY($1::bigint[])"
    workers = {row["id"]: row["alive_until"] for row in await connection.fetch(query, _strip_nulls(runs, "worker"))}
    held = (
        "SELECT s.tenant, s.slot, s.run_id FROM slots s JOIN runs r USING (tenant, slot) WHERE r.id = ANY($1::uuid[])"
    )
    slots = {(row["tenant"], row["slot"]): row["run_id"] for row in await connection.fetch(held, run_ids)}
    now = await read_clock(connection)
    return [
        Evidence(
            run=run,
            rows={table: rows_by_run.get(run["id"], []) for table, rows_by_run in children.items()},
            heads={row["seq"]: row["head"] for row in audited.get(run["id"], [])},
            holder=workers.get(run["worker"]),
            above=kin.get(run["parent_id"]),
            below={each.id: each for each in kin.values() if each.id in kin.children.get(run["id"], ())},
            slot_holder=slots.get((run["tenant"], run["slot"])),
            now=now,
        )
        for run in runs
    ]


class _Family(dict[UUID, Kin]):
    """Runs above and below others, by id."""

    def __init__(self) -> None:
        super().__init__()
        self.children: dict[UUID, set[UUID]] = {}


async def _load_kin(connection: Connection, run_ids: Sequence[UUID]) -> _Family:
    query = """
    SELECT k.id, k.tenant, k.status, k.parent_id,
      ARRAY(SELECT DISTINCT o.target FROM outbox o WHERE o.run_id = k.id) AS messages
    FROM runs k WHERE k.id = ANY(ARRAY(
      SELECT c.id FROM runs c WHERE c.parent_id = ANY($1::uuid[]) AND c.parent_id IS NOT NULL
      UNION SELECT c.parent_id FROM runs c WHERE c.id = ANY($1::uuid[])))
    """
    family = _Family()
    for row in await connection.fetch(query, run_ids):
        family[row["id"]] = Kin(row["id"], row["tenant"], row["status"], row["messages"])
        if row["parent_id"] is not None:
            family.children.setdefault(row["parent_id"], set()).add(row["id"])
    return family


async def log_rows(
    connection: Connection | Pool, run_id: UUID, *, after: int = 0, at_once: int = ROWS_AT_ONCE
) -> AsyncIterator[Row]:
    """The commits of the run's log in order, also those that stand in one row. Raises ValueError (`iter_commits`)."""
    query = "SELECT * FROM log WHERE run_id = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3"
    while rows := await connection.fetch(query, run_id, after, at_once):
        for row in rows:
            for commit in iter_commits(dict(row)):
                yield commit
        after = rows[-1]["last_seq"]


async def find_lost_files(connection: Connection, tenant: UUID, run_id: UUID, digests: Collection[bytes]) -> set[bytes]:
    """Those of the files that the run refers to and that are not there any more."""
    query = """
    SELECT u.sha256 FROM file_uses u LEFT JOIN files f USING (tenant, sha256)
    WHERE u.tenant = $1 AND u.sha256 = ANY($2::bytea[]) AND u.run_id = $3 AND f.sha256 IS NULL
    """
    return {row["sha256"] for row in await connection.fetch(query, tenant, list(digests), run_id)}


def _strip_nulls(rows: Sequence[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def _group_by_run(rows: Sequence[Any]) -> dict[UUID, list[Row]]:
    by_run: dict[UUID, list[Row]] = {}
    for row in rows:
        by_run.setdefault(row["run_id"], []).append(dict(row))
    return by_run
