"""Cells of a test: schemas of one database, or databases of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import asyncpg

from hai_flow.cells import TenantCells
from hai_flow.runtime.tenancy import cell_assignment
from hai_flow.store.cells.cells import Cell, within
from hai_flow.store.identity import tenants
from hai_flow.store.postgres import migrations
from tests.support.postgres import connecting


def cell(number: int, dsn: str, schema: str | None = None) -> Cell:
    return Cell(number=number, name=f"cell{number}", dsn=within(dsn, schema), direct=None, pooled=False, schema=schema)


def home(dsn: str) -> Cell:
    """Home, as a cell that tenants are settled in."""
    return Cell(number=0, name="home", dsn=dsn, direct=None, pooled=False, schema=None)


@asynccontextmanager
async def schemas(dsn: str, *numbers: int) -> AsyncIterator[list[Cell]]:
    """A cell for each number, as schemas of the database; they are gone at the end."""
    admin = await asyncpg.connect(dsn)
    made = [cell(number, dsn, f"cell_{number}") for number in numbers]
    try:
        for each in made:
            await admin.execute(f"CREATE SCHEMA {each.schema}")
            await migrations.upgrade(each.dsn)
        yield made
    finally:
        for each in made:
            await admin.execute(f"DROP SCHEMA {each.schema} CASCADE")
        await admin.close()


async def settle(home: str, name: str, cells: Sequence[Cell]) -> UUID:
    """The id of the tenant `name`, which lives in these cells, and is made if there is none."""
    async with connecting(home) as connection:
        numbers = tuple(each.number for each in cells)
        living = TenantCells(numbers, numbers)
        found = await tenants.create_tenant(connection, name, numbers) or await tenants.set_living(
            connection, name, living
        )
        assert found is not None
    for each in cells:
        async with connecting(each.dsn) as there:
            await tenants.copy_tenant(there, found)
    return found.id


async def spread(home: str, name: str, cells: Sequence[Cell], after: timedelta = timedelta(0)) -> None:
    """Let new threads of the tenant begin in these cells, as an operator does while servers run. In production the
    cells count after a time in which every process has read of them; without `after` they count at once, which is
    harder."""
    known = {each.number: each for each in cells}

    @asynccontextmanager
    async def connect(number: int) -> AsyncIterator[asyncpg.Connection]:
        async with connecting(known[number].dsn) as connection:
            yield connection

    async with connecting(home) as connection, connection.transaction():
        wanted = [each.number for each in cells]
        assert await cell_assignment.settle(connection, connect, name, wanted, after=after)
