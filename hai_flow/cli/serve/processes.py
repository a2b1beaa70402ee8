"""The processes over a database: `serve` and `worker`.

A life, top to bottom: settings (`options`) -> a database that answers (`database`) -> runtimes (`running`) -> work
until a signal (`living`) -> hand everything back. `dev` and `run` go the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hai_flow import addresses
from hai_flow.cli.database import RunDatabase, open_database
from hai_flow.cli.errors import OK, UsageError
from hai_flow.cli.options import DataDirOption, HostOption, PortOption, QueuesOption, load_settings
from hai_flow.cli.run_until_signal import exit_code_for, live, tell_stopping
from hai_flow.cli.serve.logs import configure_logs
from hai_flow.cli.serve.runtimes import alongside, list_works, run_cells
from hai_flow.cli.terminal import program, say
from hai_flow.settings import Settings

if TYPE_CHECKING:
    from hai_flow.runtime.base.queue_selection import QueueSelection
    from hai_flow.runtime.cells import Cells

ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, max=10_000, help="Maximum number of attempts at a time.")
]


def serve(host: HostOption = None, port: PortOption = None, data_dir: DataDirOption = None) -> None:
    """Serve the API and the console; `worker` processes over the same database perform the runs."""
    settings = load_settings(host=host, port=port, data_dir=data_dir)
    configure_logs("info", settings.logs)
    with open_database(settings) as database:
        code = live(lambda: _serve(database, settings))
    raise typer.Exit(code)


def _tell_address(url: str, *, pages: bool) -> None:
    say(f"Serving {url} (steps are performed by `{program()} worker`).")
    if pages:
        say(f"Decide and watch in a browser: {url}{addresses.CONSOLE}/")


async def _serve(database: RunDatabase, settings: Settings) -> int:
    from hai_flow.api.app import create_app
    from hai_flow.api.http import server

    async with run_cells(database, settings, performs=False) as cells:
        runtime = cells.home
        app = create_app(settings, runtime, cells=cells)
        tell_identity(settings)
        pages = app.state.console.is_served
        async with alongside(_log_doubts(cells)):
            ended_by = await server.serve(
                app,
                runtime,
                settings,
                started=lambda url: _tell_address(url, pages=pages),
                stopping=lambda requests: tell_stopping(settings.shutdown_seconds, list_works([], requests)),
            )
    return exit_code_for(ended_by)


_DOUBTED_MAX: Final = 1000  # workflows whose doubts a server tells again when it starts, of all tenants together


async def _log_doubts(cells: Cells) -> None:
    """Write in the log what is doubtful about the workflows of each tenant: channels that the file of channels no
    longer has, roles, tools and models that this server does not know or reach."""
    import structlog

    from hai_flow.store.identity import tenants

    log = structlog.get_logger(__name__)
    budget = _DOUBTED_MAX
    for runtime in cells.runtimes():
        for tenant in await tenants.list_tenants(runtime.database.api):
            async for reference, findings in runtime.catalog.list_doubts(tenant.id, budget + 1):
                if budget == 0:
                    log.info("workflow_doubts_left_out", meaning=f"only {_DOUBTED_MAX} workflows were looked at.")
                    return
                budget -= 1
                for each in findings:
                    place = f"{reference}:{each.line}"
                    log.warning(
                        "workflow_doubtful", tenant=tenant.name, workflow=place, code=each.code, meaning=each.message
                    )


def tell_identity(settings: Settings) -> None:
    """Warn in the log if the server asks for no credentials."""
    import structlog

    from hai_flow.api.rest.landing import NO_IDENTITY

    if settings.identity is None:
        structlog.get_logger(__name__).warning("no_identity", meaning=NO_IDENTITY, remedy="HAI_FLOW_IDENTITY=keys")


def worker(
    queue: QueuesOption = None,
    concurrency: ConcurrencyOption = None,
    cells: Annotated[
        str | None,
        typer.Option("--cells", metavar="NAMES", help="Perform runs of these cells alone, by commas. Default: all."),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Perform nothing: list the deployment's workers, from a server.")
    ] = False,
    server: Annotated[str | None, typer.Option("--server", help="With --status: the server's URL.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --status: print JSON.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Perform runs: claim the runs that are due, and call tools. Start as many workers as you want. Without --queue
    (and HAI_FLOW_QUEUES) a worker serves the queue `default` only: a run of a workflow with another `queue` waits for a
    worker of that queue."""
    if status:
        from hai_flow.cli.serve.workers import show_workers

        show_workers(server, as_json=as_json)
        return
    settings = load_settings(data_dir=data_dir, queues=tuple(queue) if queue else None, concurrency=concurrency)
    configure_logs("info", settings.logs)
    cell_names = None if cells is None else _parse_cells(cells, settings)
    with open_database(settings) as database:
        code = live(lambda: _work(database, settings, cell_names))
    raise typer.Exit(code)


def _parse_cells(names: str, settings: Settings) -> frozenset[str]:
    """The names of cells in a list. Raises UsageError for a cell that does not exist."""
    from hai_flow.runtime.settings import cells_of
    from hai_flow.store.cells.cells import HOME_NAME

    existing = [HOME_NAME, *(cell.name for cell in cells_of(settings))]
    chosen = frozenset(name.strip() for name in names.split(","))
    for name in sorted(chosen):
        if name not in existing:
            raise UsageError(f"--cells: there is no cell {name!r:.60}; there are {', '.join(existing)}.")
    return chosen


async def _work(database: RunDatabase, settings: Settings, wanted: Collection[str] | None) -> int:
    async with run_cells(database, settings, performs=True, wanted=wanted) as cells:
        beside = "".join(f", {name}" for name in cells.names[1:])
        queues = _format_queues(cells.home.served)
        if cells.home.worker is None:
            say(f"A worker performs the runs of the cells {beside[2:]}, {queues}.")
        else:
            say(f"Worker {cells.home.worker.id} performs the runs of {database.shown}{beside}, {queues}.")
        try:
            await asyncio.Event().wait()
        finally:
            tell_stopping(settings.shutdown_seconds, list_works(cells.runtimes()))
    return OK


def _format_queues(served: QueueSelection) -> str:
    if served.every:
        return "every queue"
    return f"queue{'s' if len(served.names) > 1 else ''} {', '.join(served.names)}"
