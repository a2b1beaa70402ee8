"""The cells that the settings name, for commands over the databases: by name, by number, and a connection to one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import load_settings
from hai_flow.errors import HaiFlowError, StoreError
from hai_flow.store.postgres.connections import Connection

if TYPE_CHECKING:
    from hai_flow.settings import Settings
    from hai_flow.store.cells.cells import Cell


def list_cells_of_deployment(settings: Settings) -> list[Cell]:
    """All cells, home first."""
    from hai_flow.cells import HOME
    from hai_flow.runtime.settings import cells_of
    from hai_flow.store.cells.cells import HOME_NAME
    from hai_flow.store.cells.cells import Cell as Place

    home = Place(
        number=HOME, name=HOME_NAME, dsn=settings.database_url or "", direct=None, pooled=False, schema=None
    )  # fmt: skip
    return [home, *cells_of(settings)]


def find_cells(data_dir: Path | None, names: Sequence[str]) -> list[Cell]:
    """The cells of these names, each once. Raises UsageError for a name that no cell has."""
    if not names:
        return []
    by_name = {cell.name: cell for cell in list_cells_of_deployment(load_settings(data_dir=data_dir))}
    for name in names:
        if name not in by_name:
            raise UsageError(f"--cell: expected one of {', '.join(by_name)}, found {name!r:.60}.")
    return [by_name[name] for name in dict.fromkeys(names)]


def list_cells_by_number(data_dir: Path | None, numbers: Sequence[int]) -> list[Cell]:
    """The cells of these numbers. Raises HaiFlowError for one that the settings do not name."""
    by_number = {cell.number: cell for cell in list_cells_of_deployment(load_settings(data_dir=data_dir))}
    for number in numbers:
        if number not in by_number:
            raise HaiFlowError(f"HAI_FLOW_CELLS names no cell {number}, where something may live.")
    return [by_number[number] for number in numbers]


@contextlib.asynccontextmanager
async def open_cell(cell: Cell, home: Connection) -> AsyncIterator[Connection]:
    """A connection to the cell; `home` for that. Raises StoreError."""
    import asyncpg

    from hai_flow.cells import HOME
    from hai_flow.store.postgres.several_hosts import open_connection

    if cell.number == HOME:
        yield home
        return
    try:
        connection = await open_connection(cell.direct or cell.dsn, timeout=10)
    except (OSError, asyncpg.PostgresError) as error:
        raise StoreError(f"the cell {cell.name} ({cell.shown}) does not answer: {error}.") from error
    try:
        yield connection
    finally:
        await connection.close()
