"""`hai-flow migrate`: the schema of every cell's database, brought to that of this release."""

from __future__ import annotations

import typer

from hai_flow.cli.database import RunDatabase, migrate_if_behind, open_database
from hai_flow.cli.errors import FAILED, OK
from hai_flow.cli.options import DataDirOption, load_settings
from hai_flow.cli.run_until_signal import live
from hai_flow.cli.serve.logs import configure_logs
from hai_flow.cli.terminal import note, say
from hai_flow.errors import StoreError
from hai_flow.settings import Settings


def migrate(data_dir: DataDirOption = None) -> None:
    """Bring the database to the schema of this release. Safe to repeat, and while older processes run."""
    settings = load_settings(data_dir=data_dir)
    # The owner of the tables works as such here, and it should.
    configure_logs("warning", settings.logs, heard={"no_role_of_its_own": lambda _: None})
    with open_database(settings) as database:
        code = live(lambda: _migrate_all(database, settings))
    raise typer.Exit(code)


async def _migrate_all(database: RunDatabase, settings: Settings) -> int:
    """Migrate home first, because it has the cells of each tenant, then the others. A cell that is away does not stop
    them."""
    from hai_flow.runtime.settings import cells_of

    places = [database, *(RunDatabase(cell.dsn, f"the cell {cell.name} ({cell.shown})") for cell in cells_of(settings))]
    code = OK
    for place in places:
        try:
            await migrate_if_behind(place)
        except StoreError as error:
            if place is database:
                raise
            note(str(error))
            code = FAILED
        else:
            say(f"{place.heading} has the schema of this release.")
    return code
