"""`hai-flow doctor`: checks a deployment as its processes find it, and advises how to mend its faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import typer

from hai_flow.cells import HOME
from hai_flow.cli.admin.each_cell import CellDatabase, CellOption, places, through
from hai_flow.cli.console import Styled
from hai_flow.cli.errors import FAILED
from hai_flow.cli.options import DataDirOption, JsonOption, load_settings
from hai_flow.cli.terminal import out, print_json, say

if TYPE_CHECKING:
    from hai_flow.runtime.ops.doctor import Check

_STYLES: Final = {"good": "green", "doubtful": "yellow", "bad": "red"}


def doctor(cell: CellOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Check the databases of all cells, the identity and the limits as `serve` and `worker` would find them here. Exits
    with 1 if anything is bad. Doubtful things work, but should be changed for production."""
    from hai_flow.runtime.ops.doctor import away

    with places(load_settings(data_dir=data_dir), cell) as chosen:
        visits = asyncio.run(through(chosen, _examine, alone=len(chosen) == 1))
    checks = [
        (each.cell, check)
        for each in visits
        for check in (each.result if each.result is not None else [away(each.fault or "")])
    ]
    if as_json:
        print_json({"checks": [_check_view(name, check) for name, check in checks]})
    else:
        _tell(checks, several=len(visits) > 1)
    if any(check.verdict == "bad" for _, check in checks):
        raise typer.Exit(FAILED)


def _check_view(cell: str, check: Check) -> dict[str, str]:
    return {"cell": cell, "name": check.name, "verdict": check.verdict, "found": check.found, "remedy": check.remedy}


def _tell(checks: list[tuple[str, Check]], *, several: bool) -> None:
    of = {name: f"{name}: " if several else "" for name, _ in checks}
    rows: list[Any] = [(Styled(c.verdict, _STYLES[c.verdict]), of[name] + c.name, c.found) for name, c in checks]
    out().table(rows, heads=("", "what", "found"))
    for name, check in checks:
        if check.remedy:
            say(f"{of[name]}{check.name}: {check.remedy}.", _STYLES[check.verdict])


async def _examine(cell: CellDatabase) -> list[Check]:
    from hai_flow.runtime.ops.examination import examine_database

    database = cell.database
    embedded = database.postgres is not None
    return await examine_database(
        cell.settings, database.dsn, direct=database.direct, embedded=embedded, home=cell.number == HOME
    )
