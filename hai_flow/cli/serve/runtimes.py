"""The runtimes of a process over its cells: started together, kept going, and handed back at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hai_flow.cli.database import RunDatabase, demand_schema, reachable
from hai_flow.cli.terminal import note, plural
from hai_flow.errors import StoreError
from hai_flow.settings import Settings

if TYPE_CHECKING:
    from hai_flow.runtime.cells import Cells
    from hai_flow.runtime.runtime import Runtime

WATCH_SECONDS: Final = 2.0


@contextlib.asynccontextmanager
async def run_runtime(
    database: RunDatabase, settings: Settings, *, performs: bool, project: bool = False
) -> AsyncIterator[Runtime]:
    """The runtime over home of `run_cells`."""
    async with run_cells(database, settings, performs=performs, project=project) as cells:
        yield cells.home


@contextlib.asynccontextmanager
async def run_cells(
    database: RunDatabase,
    settings: Settings,
    *,
    performs: bool,
    project: bool = False,
    wanted: Collection[str] | None = None,
) -> AsyncIterator[Cells]:
    """A runtime over a database whose schema is this release's, with its embedded server kept alive, and those over the
    further cells of the settings, as soon as they can be reached. `project`: see `Runtime`. `wanted`: the cells whose
    runs are performed; None: all."""
    from hai_flow.runtime.cells import Cells
    from hai_flow.runtime.ops.gc import relax_collector
    from hai_flow.runtime.runtime import Runtime
    from hai_flow.runtime.settings import cells_of
    from hai_flow.store.cells.cells import HOME_NAME
    from hai_flow.telemetry.watching import Watching

    add_current_directory()
    async with reachable(database):
        await demand_schema(database)
    if performs:
        await take_over(database)
    others = [cell for cell in cells_of(settings) if wanted is None or cell.name in wanted]
    relax_collector()
    watching = Watching(settings)
    here = performs and (wanted is None or HOME_NAME in wanted)
    runtime = Runtime(database.dsn, settings, performs=here, project=project, observers=watching.observers)
    runtime.went_back.append(_end_this_process)
    cells = Cells(runtime, others, performs=performs, observers=watching.observers_of)
    async with watching.serve(runtime, cells) as place, cells.lifespan(), alongside(keep_running(database)):
        if place is not None:
            note(f"Metrics are at {place}/metrics.")
        yield cells


def list_works(runtimes: Iterable[Runtime], requests: int = 0) -> list[str]:
    """What a process that stops waits for: the steps that its workers have begun, and requests."""
    works = [each for runtime in runtimes if runtime.worker is not None for each in runtime.worker.list_begun()]
    return [*works, *([plural(requests, "request")] if requests else [])]


def _end_this_process(error: Exception) -> None:
    """End this process with SIGTERM, as its supervisor would: it hands back its runs. The reason is printed for the
    person that starts it again."""
    note(str(error))
    os.kill(os.getpid(), signal.SIGTERM)


async def take_over(database: RunDatabase) -> None:
    """Take over the runs of an earlier process at once if it is proven dead; else print when they are taken over."""
    if database.postgres is None:
        return
    from hai_flow.runtime.worker.takeover import take_over
    from hai_flow.store.postgres.several_hosts import open_connection

    connection = await open_connection(database.dsn)
    try:
        doubtful = await take_over(connection, unused=database.postgres.found_unused)
    finally:
        await connection.close()
    for name, seconds in doubtful:
        note(f"Worker {name} performs runs here, too; if it is dead, its runs are taken over in {seconds:.0f} s.")


def add_current_directory() -> None:
    """Let workflows name tools in modules of the current directory. Last on the path: they shadow nothing."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


async def keep_running(database: RunDatabase) -> None:
    """Start the embedded server again whenever it is gone: its owner may have ended, or it was killed.

    It is started from here, hence on the main thread, and everything else waits for it: without it nothing can go on.
    """
    postgres = database.postgres
    if postgres is None:
        return
    pid = postgres.pid
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            postgres.ensure_running()
        except StoreError as error:
            note(f"PostgreSQL is gone and cannot be started again: {error} Trying on.")
            continue
        if postgres.pid != pid:
            pid = postgres.pid
            note(f"PostgreSQL was gone; it runs again (process {pid}).")


@contextlib.asynccontextmanager
async def alongside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `works` beside the block, and end them with it."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
