"""`hai-flow doctor`: looks at a deployment as its processes find it, and says what to do."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Any, Final

import typer

from hai_flow.cli.console import Styled
from hai_flow.cli.operate import JsonOption
from hai_flow.cli.processes import DataDirOption, load_settings, open_database, reachable
from hai_flow.cli.terminal import FAILED, out, print_json, say

if TYPE_CHECKING:
    from hai_flow.cli.processes import Database
    from hai_flow.runtime.doctor import Check
    from hai_flow.settings import Settings

_STYLES: Final = {"good": "green", "doubtful": "yellow", "bad": "red"}


def doctor(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Look at the database, the identity and the limits as `serve` and `worker` would find them here.

    Exits with 1 if anything is bad; what is doubtful works, but not as it should in production.
    """
    settings = load_settings(data_dir=data_dir)
    with open_database(settings, make=False) as database:
        checks = asyncio.run(_examined(database, settings))
    if as_json:
        print_json(
            {"checks": [{"name": c.name, "verdict": c.verdict, "found": c.found, "remedy": c.remedy} for c in checks]}
        )
    else:
        rows: list[Any] = [(Styled(c.verdict, _STYLES[c.verdict]), c.name, c.found) for c in checks]
        out().table(rows, heads=("", "what", "found"))
        for check in checks:
            if check.remedy:
                say(f"{check.name}: {check.remedy}.", _STYLES[check.verdict])
    if any(check.verdict == "bad" for check in checks):
        raise typer.Exit(FAILED)


async def _examined(database: Database, settings: Settings) -> list[Check]:
    import asyncpg

    from hai_flow.runtime.doctor import Place, examine
    from hai_flow.store import migrations
    from hai_flow.store.health import read_facts

    async with reachable(database):
        connection = await asyncpg.connect(database.dsn, statement_cache_size=0)
        try:
            facts = await read_facts(connection, pooled=settings.database_pooled)
        finally:
            await connection.close()
        schema = await migrations.current(database.dsn)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    place = Place(
        embedded=database.postgres is not None,
        schema=schema,
        newest=migrations.head(),
        known=schema is None or schema in migrations.known(),
        descriptors=2**31 if hard == resource.RLIM_INFINITY else max(soft, hard),
    )
    return examine(settings, facts, place)
