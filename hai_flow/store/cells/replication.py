"""Copies from the seat of a large tenant to its other cells: published workflows with their pinned tools, triggers by
the ends of runs, delegations, absences, and standing rules without a bound of uses. Schedules, webhooks and triggers by
events start runs from the seat alone. The seat is right: a cell is made like it in one transaction, inside of which the
seat is read, so an older reading never overwrites a newer one."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.people import rules
from hai_flow.store.postgres.connections import Connection, Pool


class _Table(msgspec.Struct, frozen=True):
    """`key` and `rest`: its columns, but the tenant. `compared`: those whose change matters. `whole`: rows that the
    seat does not have are removed. `only`: which rows are repeated."""

    name: str
    key: tuple[str, ...]
    rest: tuple[str, ...]
    compared: tuple[str, ...]
    whole: bool = True
    only: str = "true"
    by_tenant: bool = True  # whether its primary key begins with the tenant

    @property
    def unique(self) -> str:
        return ", ".join((*(("tenant",) if self.by_tenant else ()), *self.key))

    @property
    def print_of_row(self) -> str:
        return f"hashtextextended(ROW({', '.join((*self.key, *self.compared))})::text, 0)"


# A version of a workflow stays: runs of the cell may be pinned to it. Its sha256 fixes its source.
_TABLES: Final = (
    _Table(
        "workflows",
        ("sha256",),
        ("name", "version", "dev", "title", "source", "created_at", "from_disk", "visibility", "retired_at"),
        ("dev", "from_disk", "extract(epoch FROM created_at)", "extract(epoch FROM retired_at)"),
        whole=False,
    ),
    _Table("tool_pins", ("workflow", "name"), ("digest",), ("digest",)),
    _Table(
        "event_triggers",
        ("workflow_name", "position"),
        ("workflow", "dev", "type", "kind"),
        ("workflow", "dev", "type"),
        only="kind = 'run'",
    ),
    _Table(
        "delegations",
        ("id",),
        ("from_id", "to_id", "roles", "groups", "since", "until", "note", "created_at", "key", "session", "token"),
        ("extract(epoch FROM until)",),
        by_tenant=False,
    ),
    _Table(
        "absences",
        ("id",),
        (
            "person",
            "delegate",
            "first_day",
            "last_day",
            "zone",
            "since",
            "until",
            "roles",
            "groups",
            "note",
            "entered_by",
            "created_at",
        ),
        ("extract(epoch FROM until)",),
        by_tenant=False,
    ),
    _Table(
        "rules",
        ("id",),
        (
            "kind",
            "tool",
            "workflow",
            "body",
            "digest",
            "until",
            "proposed_by",
            "proposer_ids",
            "excluded_ids",
            "run_id",
            "pending_id",
            "created_at",
            "voters",
            "people",
            "approved_at",
            "ended_at",
            "ended_by",
            "ended_why",
        ),
        ("extract(epoch FROM approved_at)", "extract(epoch FROM ended_at)", "ended_why"),
        whole=False,
        only="uses_max IS NULL",
        by_tenant=False,
    ),
)


def _print_of(table: _Table) -> str:
    return f"""(SELECT count(*) || ':' || coalesce(sum({table.print_of_row}::numeric), 0)
      FROM {table.name} WHERE tenant = $1 AND {table.only})"""


_PRINT: Final = f"SELECT concat_ws('/', {', '.join(map(_print_of, _TABLES))})"


async def print_of(connection: Connection | Pool, tenant: UUID) -> str:
    """A fingerprint of the tenant's mirrored rows: equal for two cells with the same rows."""
    return str(await connection.fetchval(_PRINT, tenant))


async def repeat(seat: Connection | Pool, there: Connection, tenant: UUID) -> None:
    """Make the cell `there` like the seat."""
    async with there.transaction():
        await there.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"mirror:{tenant}")
        for table in _TABLES:
            await _repeat(seat, there, tenant, table)


async def _repeat(seat: Connection | Pool, there: Connection, tenant: UUID, table: _Table) -> None:
    keys = ", ".join(table.key)
    own = f"FROM {table.name} WHERE tenant = $1"
    listed = f"SELECT {keys}, {table.print_of_row} {own} AND {table.only}"
    prints = {tuple(row)[:-1]: row[-1] for row in await seat.fetch(listed, tenant)}
    prints_there = {tuple(row)[:-1]: row[-1] for row in await there.fetch(listed, tenant)}
    columns = ("tenant", *table.key, *table.rest)
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    changes = ", ".join(f"{name} = excluded.{name}" for name in table.rest)
    put = f"""
    INSERT INTO {table.name} ({", ".join(columns)}) VALUES ({places})
    ON CONFLICT ({table.unique}) DO UPDATE SET {changes}
    """
    one = f"{own} AND {' AND '.join(f'{name} = ${n}' for n, name in enumerate(table.key, 2))}"
    if table.whole:
        for key in prints_there.keys() - prints.keys():
            await there.execute(f"DELETE {one}", tenant, *key)
    changed = [key for key, print in prints.items() if prints_there.get(key) != print]
    if table.name == "rules" and changed:  # no vote by a rule that ends here comes after
        await rules.begin_change(there, tenant)
    for key in changed:
        row = await seat.fetchrow(f"SELECT {', '.join(columns)} {one}", tenant, *key)
        if row is not None:  # else it has gone since
            await there.execute(put, *row.values())
