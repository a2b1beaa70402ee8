"""Going through the cells, one after the other, for commands that look at the databases themselves.

If there is one cell, an error ends the command, as if there were no cells. If there are several, one that is away or
that refuses is named, and the others are looked at all the same."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar

import typer

from hai_flow.cells import HOME
from hai_flow.cli.database import RunDatabase, demand_schema, open_database, reachable
from hai_flow.cli.errors import UsageError
from hai_flow.cli.options import load_settings
from hai_flow.cli.terminal import note, say
from hai_flow.errors import HaiFlowError, StoreError
from hai_flow.settings import Settings, variable
from hai_flow.store.postgres.connections import Connection

Result = TypeVar("Result")

CONNECT_SECONDS: Final = 10.0
NOTE_SECONDS: Final = 5.0  # between two words on how far it has got

CellOption = Annotated[
    str | None, typer.Option("--cell", metavar="NAME", help="Only this cell, also `home`. Default: all.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDatabase:
    """The database of one cell, and the settings of a process over it alone."""

    name: str
    number: int
    database: RunDatabase
    settings: Settings


@dataclass(frozen=True, slots=True)
class Visit(Generic[Result]):
    """The result of a look at one cell; `fault`: why there is none."""

    cell: str
    result: Result | None
    fault: str | None = None


@contextlib.contextmanager
def places(settings: Settings, wanted: str | None) -> Iterator[list[CellDatabase]]:
    """The cell of this name; None: all, home first. Raises UsageError where there is none."""
    from hai_flow.runtime.cells import settings_of
    from hai_flow.runtime.settings import cells_of
    from hai_flow.store.cells.cells import HOME_NAME

    others = cells_of(settings)
    names = [HOME_NAME, *(cell.name for cell in others)]
    if wanted is not None and wanted not in names:
        raise UsageError(f"--cell: expected one of {', '.join(names)}, found {wanted!r:.60}.")
    other_places = [
        CellDatabase(
            name=cell.name,
            number=cell.number,
            database=RunDatabase(
                cell.dsn, f"the cell {cell.name} ({cell.shown})", direct=cell.direct, said_in=variable("cells")
            ),
            settings=settings_of(cell, settings, len(others)),
        )
        for cell in others
        if wanted in (None, cell.name)
    ]
    if wanted not in (None, HOME_NAME):
        yield other_places
        return
    with open_database(settings, make=False) as database:
        yield [CellDatabase(name=HOME_NAME, number=HOME, database=database, settings=settings), *other_places]


async def through(
    cells: Sequence[CellDatabase], work: Callable[[CellDatabase], Awaitable[Result]], *, alone: bool
) -> list[Visit[Result]]:
    """The result of `work` for each cell. `alone`: there is no other cell, so its errors are raised."""
    from hai_flow.store.postgres.error_classes import FAILURES

    visits: list[Visit[Result]] = []
    for place in cells:
        try:
            async with reachable(place.database):
                visits.append(Visit(place.name, await work(place)))
        except (HaiFlowError, *FAILURES) as error:
            if alone:
                raise
            visits.append(Visit(place.name, None, str(error).rstrip(".") or type(error).__name__))
    return visits


def visit(
    data_dir: Path | None,
    wanted: str | None,
    work: Callable[[CellDatabase, Connection], Awaitable[Result]],
    *,
    chosen: Callable[[Sequence[CellDatabase]], Sequence[CellDatabase]] = lambda all_places: all_places,
) -> list[Visit[Result]]:
    """The result of `work` over a session of its own in the cell, or in all that are `chosen`. Raises StoreError if
    there is one cell alone, and it does not answer."""

    async def over(place: CellDatabase) -> Result:
        async with session(place) as connection:
            return await work(place, connection)

    with places(load_settings(data_dir=data_dir), wanted) as all_places:
        cells = chosen(all_places)
        return asyncio.run(through(cells, over, alone=len(cells) == 1))


@contextlib.asynccontextmanager
async def session(place: CellDatabase) -> Any:
    """A session of the cell's database, which has to have this release's schema. Raises StoreError."""
    from hai_flow.store.postgres.several_hosts import open_connection

    database = place.database
    if place.settings.database_pooled and database.direct is None:
        at_home = place.number == HOME
        where = variable("database_direct_url") if at_home else f"the cell's `direct_url` in {variable('cells')}"
        raise StoreError(
            f"this command needs a session of its own, and a pooler keeps none: set {where} to the address of the "
            "server itself."
        )
    connection = await open_connection(database.direct or database.dsn, timeout=CONNECT_SECONDS)
    try:
        await demand_schema(database)
        yield connection
    finally:
        await connection.close()


async def follow(results: AsyncIterator[Result], last: Result, text: Callable[[Result], str]) -> Result:
    """The last of the results of work that goes on; `last` where there is none. Every few seconds, `text` is noted."""
    next_note = time.monotonic() + NOTE_SECONDS
    async for last in results:
        if time.monotonic() > next_note:
            next_note = time.monotonic() + NOTE_SECONDS
            note(text(last))
    return last


def tell_faults(visits: Sequence[Visit[Any]]) -> bool:
    """Name the cells that could not be looked at. Returns whether there are any."""
    faults = [each for each in visits if each.fault is not None]
    for each in faults:
        say(f"cell {each.cell}: {each.fault}.", "red")
    return bool(faults)


def cells_view(visits: Sequence[Visit[Any]], shown: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """`{"cells": {...}}` for JSON: the result of each cell, or its fault; nothing where there is one cell."""
    if len(visits) == 1:
        return {}
    return {
        "cells": {
            each.cell: {"fault": each.fault} if each.result is None else shown(each.result)
            for each in visits
            if each.result is not None or each.fault is not None
        }
    }
