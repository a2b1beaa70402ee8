"""`hai-flow cells`: the schemas that each hold everything of their tenants. By the databases themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hai_flow.cli.admin.known_cells import list_cells_of_deployment, open_cell
from hai_flow.cli.commands import app_of
from hai_flow.cli.database import RunDatabase, migrate_if_behind, run_over_database
from hai_flow.cli.errors import FAILED, UsageError
from hai_flow.cli.options import DataDirOption, JsonOption, load_settings
from hai_flow.cli.terminal import out, print_json, say
from hai_flow.errors import HaiFlowError, StoreError
from hai_flow.store.postgres.connections import Connection
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.store.cells.cells import Cell

app = app_of(
    name="cells",
    lists="Cells: schemas and databases that each hold everything of their tenants; without a command, their list.",
)


@app.command("list")
def list_cells(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """All cells: where each is, how many tenants live there, and how much it holds. Exits with 1 if one is away."""
    cells = list_cells_of_deployment(load_settings(data_dir=data_dir))
    items = run_over_database(data_dir, lambda connection: _examine(cells, connection))
    if as_json:
        print_json({"items": items})
    else:
        rows = [
            (each["name"], str(each["number"]), each["place"], str(each["tenants"]), *_columns(each)) for each in items
        ]
        out().table(rows, heads=("name", "number", "place", "tenants", "runs", "bytes", "state"))
    if any(each["fault"] is not None for each in items):
        raise typer.Exit(FAILED)


async def _examine(cells: Sequence[Cell], home: Connection) -> list[dict[str, Json]]:
    from hai_flow.store.identity import tenants
    from hai_flow.store.ops import health

    lodgers = await tenants.lodgers(home)
    items: list[dict[str, Json]] = []
    for cell in cells:
        facts: dict[str, Json] = {"runs": None, "bytes": None, "fault": None}
        try:
            async with open_cell(cell, home) as connection:
                facts["runs"], facts["bytes"] = await health.extent(connection)
        except StoreError as error:
            facts["fault"] = str(error)
        place = "HAI_FLOW_DATABASE_URL" if cell.number == 0 else cell.shown
        items.append(
            {"name": cell.name, "number": cell.number, "place": place, "tenants": lodgers.get(cell.number, 0), **facts}
        )
    return items


def _columns(cell: dict[str, Any]) -> tuple[str, str, str]:
    if cell["fault"] is not None:
        return "?", "?", cell["fault"]
    return str(cell["runs"]), str(cell["bytes"]), "there"


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9, - and _.")],
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", help="The schema. Default: cell_NUMBER; none with --url.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="VARIABLE", help="The variable with the URL of its database.")
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Make a cell: its schema with all tables, and its line in the file of HAI_FLOW_CELLS. Processes know it when they
    are started again; the file is the same for all of them."""
    from hai_flow.cells import CELLS_MAX
    from hai_flow.settings import variables
    from hai_flow.store.cells.cells import CellEntry, File, parse_addresses

    settings = load_settings(data_dir=data_dir)
    if settings.cells is None:
        raise UsageError("expected HAI_FLOW_CELLS: the file in which the cells are, or will be.")
    file = _file(settings.cells)
    if name in file.cells:
        raise HaiFlowError(f"there is a cell {name!r} already.")
    number = max((each.number for each in file.cells.values()), default=0) + 1
    if number > CELLS_MAX:
        raise HaiFlowError(f"there are as many cells as there can be: {CELLS_MAX}.")
    entry = CellEntry(number=number, schema=schema or (None if url else f"cell_{number}"), url_from=url)
    new_file = _parse_file(File(hai="cells/v1", cells={**file.cells, name: entry}), str(settings.cells))
    environment = variables(each.url_from for each in new_file.cells.values() if each.url_from)
    places, faults = parse_addresses(new_file, settings, environment)
    if faults:
        raise UsageError(f"{faults[0]}.")
    cell = next(each for each in places if each.number == number)
    asyncio.run(_make(cell))
    _write(settings.cells, new_file)
    say(f"The cell {name} is there: {cell.shown}. Start the processes again, so that they know it.", "green")


def _file(path: Path) -> Any:
    from hai_flow.store.cells.cells import File

    return _parse_file(path.read_bytes(), str(path)) if path.exists() else File(hai="cells/v1")


def _parse_file(given: Any, path: str) -> Any:
    """The file, if it is one without mistakes. Raises UsageError."""
    import msgspec

    from hai_flow.store.cells.cells import read_cells

    source = given if isinstance(given, bytes) else msgspec.yaml.encode(given)
    file, findings = read_cells(source, path)
    if findings:
        raise UsageError(str(findings[0]) + ".")
    return file


def _write(path: Path, file: Any) -> None:
    import msgspec

    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(msgspec.yaml.encode(file))
    beside.replace(path)


async def _make(cell: Cell) -> None:
    import asyncpg

    from hai_flow.store.postgres.several_hosts import open_connection

    if cell.schema is not None:
        try:
            connection = await open_connection(cell.direct or cell.dsn)
        except (OSError, asyncpg.PostgresError) as error:
            raise StoreError(f"{cell.shown} does not answer: {error}.") from error
        try:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{cell.schema}"')
        finally:
            await connection.close()
    await migrate_if_behind(RunDatabase(cell.dsn, f"the cell {cell.name} ({cell.shown})", direct=cell.direct))
