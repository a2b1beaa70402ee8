"""`hai-flow doctor`: checks a deployment as its processes find it, and advises how to mend its faults."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Any, Final

import typer

from hai_flow.cells import HOME
from hai_flow.cli.admin.each_cell import CONNECT_SECONDS, CellOption, Place, places, through
from hai_flow.cli.console import Styled
from hai_flow.cli.errors import FAILED
from hai_flow.cli.options import DataDirOption, JsonOption, load_settings
from hai_flow.cli.terminal import out, print_json, say
from hai_flow.errors import HaiFlowError

if TYPE_CHECKING:
    from asyncpg import Connection

    from hai_flow.runtime.ops.doctor import Check
    from hai_flow.store.ops.replicas import Standby

REPLICA_SECONDS: Final = 5.0  # that a replica is waited for

_STYLES: Final = {"good": "green", "doubtful": "yellow", "bad": "red"}


def doctor(cell: CellOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Check the databases of all cells, the identity and the limits as `serve` and `worker` would find them here.

    Exits with 1 if anything is bad. Doubtful things work, but not as they should in production.
    """
    from hai_flow.runtime.ops.doctor import away

    with places(load_settings(data_dir=data_dir), cell) as chosen:
        visits = asyncio.run(through(chosen, _examine, alone=len(chosen) == 1))
    checks = [
        (each.cell, check)
        for each in visits
        for check in (each.found if each.found is not None else [away(each.fault or "")])
    ]
    if as_json:
        print_json({"checks": [_check_view(name, check) for name, check in checks]})
    else:
        _tell(checks, several=len(visits) > 1)
    if any(check.verdict == "bad" for _, check in checks):
        raise typer.Exit(FAILED)


def _check_view(cell: str, check: Check) -> dict[str, str]:
    return {
        "cell": cell,
        "name": check.name,
        "verdict": check.verdict,
        "found": check.found,
        "remedy": check.remedy,
    }


def _tell(checks: list[tuple[str, Check]], *, several: bool) -> None:
    of = {name: f"{name}: " if several else "" for name, _ in checks}
    rows: list[Any] = [(Styled(c.verdict, _STYLES[c.verdict]), of[name] + c.name, c.found) for name, c in checks]
    out().table(rows, heads=("", "what", "found"))
    for name, check in checks:
        if check.remedy:
            say(f"{of[name]}{check.name}: {check.remedy}.", _STYLES[check.verdict])


async def _examine(cell: Place) -> list[Check]:
    import asyncpg

    from hai_flow.runtime.ops.doctor import Place, check_cell, examine
    from hai_flow.store.ops.health import is_pooler, read_facts
    from hai_flow.store.postgres import revisions

    settings, database = cell.settings, cell.database
    pooler = await is_pooler(database.dsn)
    direct_pooler = database.direct is not None and await is_pooler(database.direct)
    connection = await asyncpg.connect(database.dsn, statement_cache_size=0, timeout=CONNECT_SECONDS)
    try:
        replica = await _replica(settings.database_replica_url, connection)
        facts = await read_facts(connection, pooled=settings.database_pooled or pooler)
    finally:
        await connection.close()
    schema = await revisions.current(database.dsn)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    asks_redis = cell.number == HOME and settings.hints is not None
    place = Place(
        embedded=database.postgres is not None,
        schema=schema,
        newest=revisions.head(),
        known=schema is None or schema in revisions.list_revisions(),
        descriptors=2**31 if hard == resource.RLIM_INFINITY else max(soft, hard),
        pooler=pooler,
        direct_pooler=direct_pooler,
        replica=replica,
        hints=await _answering(settings.hints or "") if asks_redis else None,
    )
    return (examine if cell.number == HOME else check_cell)(settings, facts, place)


async def _replica(url: str | None, connection: Connection) -> Standby | str | None:
    """The standby at the replica's address, or why it does not answer; None: there is no replica."""
    from hai_flow.store.ops.replicas import probe
    from hai_flow.store.postgres.error_classes import FAILURES

    if url is None:
        return None
    try:
        return await probe(url, connection, REPLICA_SECONDS)
    except FAILURES as error:
        return f"it does not answer: {str(error) or type(error).__name__}"


async def _answering(url: str) -> float | str:
    """The seconds in which Redis answers, or why it does not."""
    from hai_flow.runtime.streams.redis_hints import probe

    try:
        return await probe(url)
    except HaiFlowError as error:
        return str(error)
