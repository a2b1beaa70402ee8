"""The processes over a database: `serve`, `worker`, `migrate`, and the parts that `dev` and `run` share with them.

A life, top to bottom: settings -> a database that answers -> a runtime -> work until a signal -> hand everything back.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, TypeVar
from urllib.parse import urlsplit

import typer

from hai_flow import addresses
from hai_flow.cli.console import clean, one_line
from hai_flow.cli.terminal import FAILED, OK, TERMINATED, UsageError, note, program, say
from hai_flow.errors import StoreError
from hai_flow.settings import Settings, variable

if TYPE_CHECKING:
    from asyncpg import Connection

    from hai_flow.embedded import EmbeddedPostgres
    from hai_flow.runtime import Runtime
    from hai_flow.runtime.cells import Cells
    from hai_flow.runtime.serving import Served

Result = TypeVar("Result")

WATCH_SECONDS: Final = 2.0

PortOption = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="The TCP port; 0 takes a free one.")]
HostOption = Annotated[str | None, typer.Option("--host", help="The address to listen on.")]
QueuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="NAME[=N]",
        help="A queue whose runs are performed here (again for each); N: at most so many attempts at once; *: all.",
        show_default=False,
    ),
]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, max=10_000, help="The most attempts performed at a time.")
]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="The directory of the embedded PostgreSQL.", show_default=False)
]


# --- commands -----------------------------------------------------------------------------------------------------


def serve(host: HostOption = None, port: PortOption = None, data_dir: DataDirOption = None) -> None:
    """Serve the API. Runs are performed by `worker` processes over the same database."""
    settings = load_settings(host=host, port=port, data_dir=data_dir)
    configure_logs("info", settings.logs)
    with open_database(settings) as database:
        code = live(lambda: _serve(database, settings))
    raise typer.Exit(code)


def _tell_address(url: str, *, pages: bool) -> None:
    say(f"Serving {url} (no worker: see {program()} worker).")
    if pages:
        say(f"Decide and watch in a browser: {url}{addresses.CONSOLE}/")


async def _serve(database: Database, settings: Settings) -> int:
    from hai_flow.api import server
    from hai_flow.api.app import create_app

    async with running_cells(database, settings, performs=False) as cells:
        runtime = cells.home
        app = create_app(settings, runtime, cells=cells)
        tell_identity(settings)
        pages = app.state.console.is_served
        ended_by = await server.serve(app, runtime, settings, started=lambda url: _tell_address(url, pages=pages))
        say("Stopping.")
    return exit_code_for(ended_by)


def tell_identity(settings: Settings) -> None:
    """Warn in the log if the server asks for no credentials."""
    import structlog

    from hai_flow.api.welcome import NO_IDENTITY

    if settings.identity is None:
        structlog.get_logger(__name__).warning("no_identity", meaning=NO_IDENTITY, remedy="HAI_FLOW_IDENTITY=keys")


def worker(
    queue: QueuesOption = None,
    concurrency: ConcurrencyOption = None,
    cells: Annotated[
        str | None,
        typer.Option("--cells", metavar="NAMES", help="Only the runs of these cells, by commas. Default: of all."),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Perform nothing: show the workers that there are, as a server tells.")
    ] = False,
    server: Annotated[str | None, typer.Option("--server", help="Of --status: the server's URL.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Of --status: write JSON.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Perform runs: claim the runs that are due, and call tools. Start as many workers as you want.

    Without --queue (and HAI_FLOW_QUEUES) those of the queue `default`: a run of a workflow with another `queue` waits
    for a worker that serves it.
    """
    if status:
        from hai_flow.cli.workers import show_workers

        show_workers(server, as_json=as_json)
        return
    settings = load_settings(data_dir=data_dir, queues=tuple(queue) if queue else None, concurrency=concurrency)
    configure_logs("info", settings.logs)
    wanted = None if cells is None else _named(cells, settings)
    with open_database(settings) as database:
        code = live(lambda: _work(database, settings, wanted))
    raise typer.Exit(code)


def _named(names: str, settings: Settings) -> frozenset[str]:
    """The names of cells in a list. Raises UsageError for a cell that does not exist."""
    from hai_flow.runtime.world import cells_of
    from hai_flow.store.cells import HOME_NAME

    known = [HOME_NAME, *(cell.name for cell in cells_of(settings))]
    given = frozenset(name.strip() for name in names.split(","))
    for name in sorted(given):
        if name not in known:
            raise UsageError(f"--cells: there is no cell {name!r:.60}; there are {', '.join(known)}.")
    return given


async def _work(database: Database, settings: Settings, wanted: Collection[str] | None) -> int:
    async with running_cells(database, settings, performs=True, wanted=wanted) as cells:
        beside = "".join(f", {name}" for name in cells.names[1:])
        queues = _queues_in_words(cells.home.served)
        if cells.home.worker is None:
            say(f"A worker performs the runs of the cells {beside[2:]}, {queues}.")
        else:
            say(f"Worker {cells.home.worker.id} performs the runs of {database.shown}{beside}, {queues}.")
        await asyncio.Event().wait()
    return OK


def _queues_in_words(served: Served) -> str:
    if served.every:
        return "every queue"
    return f"queue{'s' if len(served.names) > 1 else ''} {', '.join(served.names)}"


def migrate_schema(data_dir: Path | None = None) -> None:
    """Bring the database to the schema of this release. Safe to repeat, and while older processes run."""
    settings = load_settings(data_dir=data_dir)
    with open_database(settings) as database:
        code = live(lambda: _migrate_all(database, settings))
    raise typer.Exit(code)


async def _migrate_all(database: Database, settings: Settings) -> int:
    """Migrate home first, because it has the cells of each tenant, then the others. A cell that is away does not stop
    them."""
    from hai_flow.runtime.world import cells_of

    places = [database, *(Database(cell.dsn, f"the cell {cell.name} ({cell.shown})") for cell in cells_of(settings))]
    code = OK
    for place in places:
        try:
            await migrated(place)
        except StoreError as error:
            if place is database:
                raise
            note(str(error))
            code = FAILED
        else:
            say(f"{_upper(place.shown)} has the schema of this release.")
    return code


# --- settings and logs --------------------------------------------------------------------------------------------


def load_settings(*, dev: bool = False, **options: Any) -> Settings:
    """The settings of the environment; those of the command line override them. Raises SettingsError."""
    given = {name: value for name, value in options.items() if value is not None}
    return replace(Settings.from_environment(dev=dev), **given)


def configure_logs(level: str, style: str = "auto") -> None:
    """Structured logs on standard error: as text or as JSON lines; `auto`: as text on a terminal."""
    import logging

    import structlog

    # asyncpg's pool logs a traceback for each connection that it cannot restore; the code that needed it logs it, too.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # likewise: `telemetry/otel` reports the failure
    as_text = style == "text" or (style == "auto" and sys.stderr.isatty())
    shown: list[Any] = (
        [_plain_values, structlog.dev.ConsoleRenderer(exception_formatter=_plain_traceback)]
        if as_text
        else [
            # Without local variables: they hold inputs, arguments and secrets.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _with_place,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *shown,
            _without_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _with_place(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the subject of a log line, as far as its task knows it: the attempt that is performed with its run, and the
    trace. It is looked up only when something is logged, so a step pays nothing for it."""
    from hai_flow.runtime.tracing import ASKER, PERFORMED

    performed, asker, place = PERFORMED.get(), ASKER.get(), None
    if performed is not None:
        run, place = performed.run, performed.place
        entry.setdefault("run_id", str(run.id))
        entry.setdefault("thread_id", run.state.thread_id)
        entry.setdefault("tenant", str(run.tenant))
        entry.setdefault("path", performed.path)
        entry.setdefault("attempt", performed.attempt)
    elif asker is not None:
        place = asker.place or asker.parent
    if place is not None:
        entry.setdefault("trace_id", place.trace_id)
        entry.setdefault("span_id", place.span_id)
    return entry


def _without_secrets(_logger: Any, _method: str, line: Any) -> Any:
    """A line of the log without secrets: an exception in it may quote a request."""
    from hai_flow.steps.secrets import hidden

    return hidden(line)


def _plain_values(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values of a log may come from a client: on a terminal they must not control it, nor begin a line of their own.

    Values that are not text are shown by their `repr`, which escapes control characters.
    """
    return {name: one_line(value) if isinstance(value, str) else value for name, value in entry.items()}


def _plain_traceback(file: TextIO, raised: Any) -> None:
    """A traceback whose message can't control the terminal: it may come from another system."""
    import structlog

    text = io.StringIO()
    structlog.dev.plain_traceback(text, raised)
    file.write(clean(text.getvalue()))


# --- the database -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Database:
    """The database of the runs. `dsn` leads to it, `shown` is the same without a password. `postgres` is the embedded
    server, if it is one; `direct` a way past a pooler; `said_in` the setting that names it."""

    dsn: str
    shown: str
    postgres: EmbeddedPostgres | None = None
    direct: str | None = None
    said_in: str = "HAI_FLOW_DATABASE_URL"


@contextlib.contextmanager
def open_database(settings: Settings, *, interrupted: int = OK, make: bool = True) -> Iterator[Database]:
    """The database of the settings; an embedded one is started here, or attached to, and let go of at the end. One that
    is not there yet is made, unless `make` is false: StoreError then.

    Called on the main thread, outside any loop: a server ends with the thread that started it. A signal in here ends
    the process as one later does (`live`).
    """
    if settings.database_url is not None:
        yield Database(settings.database_url, _shown(settings.database_url), direct=settings.database_direct_url)
        return
    from hai_flow.embedded import EmbeddedPostgres

    postgres = EmbeddedPostgres(settings.data_dir, binaries=settings.pg_bin)

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(exit_code_for(number, interrupted))

    with _handling(end):
        try:
            if not postgres.data.exists():
                if not make:
                    raise StoreError(
                        f"There is no PostgreSQL in {settings.data_dir}. Name another place with --data-dir or "
                        f"HAI_FLOW_DATABASE_URL, or make one: {program()} migrate."
                    )
                note(f"Making a PostgreSQL in {settings.data_dir}; the first time takes some seconds.")
            postgres.start()
            postgres.ensure_database()
            yield Database(postgres.dsn(), f"the PostgreSQL in {settings.data_dir}", postgres)
        finally:
            postgres.stop()


def _shown(url: str) -> str:
    """The database's place without user and password."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] or "localhost"
    return f"the PostgreSQL database {parts.path.lstrip('/') or 'postgres'} at {place}"


async def migrated(database: Database) -> None:
    """Bring the database to this release's schema. Raises StoreError."""
    from hai_flow.store import migrations

    async with reachable(database):
        await migrations.upgrade(database.direct or database.dsn)


@contextlib.asynccontextmanager
async def reachable(database: Database) -> AsyncIterator[None]:
    """Turn the failures of a database that does not answer into a sentence for people."""
    import asyncpg

    try:
        yield
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        why = str(error) or type(error).__name__  # a timeout says nothing
        raise StoreError(f"{_upper(database.shown)} does not answer: {why}. Look at {database.said_in}.") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(f"{_upper(database.shown)} refuses its role: {error}. Grant it what it needs.") from error
    except asyncpg.InvalidCatalogNameError as error:
        raise StoreError(f"{_upper(database.shown)}: {error}. Create it, then run {program()} migrate.") from error


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def over_database(data_dir: Path | None, work: Callable[[Connection], Awaitable[Result]]) -> Result:
    """The result of `work` over the database of the settings, which has to be there. Raises StoreError."""
    settings = load_settings(data_dir=data_dir)
    if settings.database_pooled and settings.database_direct_url is None:
        raise StoreError(
            "this command needs a session of its own, and a pooler keeps none: set "
            f"{variable('database_direct_url')} to the address of the server itself."
        )

    async def connected() -> Result:
        import asyncpg

        async with reachable(database):
            await demand_schema(database)
            connection = await asyncpg.connect(database.direct or database.dsn)
            try:
                return await work(connection)
            finally:
                await connection.close()

    with open_database(settings, make=False) as database:
        return asyncio.run(connected())


async def demand_schema(database: Database) -> None:
    """Raises StoreError unless the database has this release's schema."""
    from hai_flow.store import revisions

    if await revisions.is_behind(database.dsn):
        raise StoreError(f"{_upper(database.shown)} does not have the schema of this release: run {program()} migrate.")


@contextlib.asynccontextmanager
async def running_runtime(
    database: Database, settings: Settings, *, performs: bool, project: bool = False
) -> AsyncIterator[Runtime]:
    """The runtime over home of `running_cells`."""
    async with running_cells(database, settings, performs=performs, project=project) as cells:
        yield cells.home


@contextlib.asynccontextmanager
async def running_cells(
    database: Database,
    settings: Settings,
    *,
    performs: bool,
    project: bool = False,
    wanted: Collection[str] | None = None,
) -> AsyncIterator[Cells]:
    """A runtime over a database whose schema is this release's, with its embedded server kept alive, and those over the
    further cells of the settings, as soon as they can be reached. `project`: see `Runtime`. `wanted`: the cells whose
    runs are performed; None: all."""
    from hai_flow.runtime import Runtime
    from hai_flow.runtime.cells import Cells
    from hai_flow.runtime.service import relax_collector
    from hai_flow.runtime.world import cells_of
    from hai_flow.store.cells import HOME_NAME
    from hai_flow.telemetry.watching import Watching

    import_from_here()
    async with reachable(database):
        await demand_schema(database)
    if performs:
        await taken_over(database)
    others = [cell for cell in cells_of(settings) if wanted is None or cell.name in wanted]
    relax_collector()
    watching = Watching(settings)
    here = performs and (wanted is None or HOME_NAME in wanted)
    runtime = Runtime(database.dsn, settings, performs=here, project=project, observers=watching.observers)
    runtime.went_back.append(_end_this_process)
    cells = Cells(runtime, others, performs=performs, observers=watching.of_cell)
    async with watching.shown(runtime, cells) as place, cells.lifespan(), alongside(keep_running(database)):
        if place is not None:
            note(f"Metrics are at {place}/metrics.")
        yield cells


def _end_this_process(error: Exception) -> None:
    """End this process with SIGTERM, as its supervisor would: it hands back its runs. The reason is printed for the
    person that starts it again."""
    note(str(error))
    os.kill(os.getpid(), signal.SIGTERM)


async def taken_over(database: Database) -> None:
    """Take over the runs of an earlier process at once if it is proven dead; else print when they are taken over."""
    if database.postgres is None:
        return
    import asyncpg

    from hai_flow.runtime.takeover import take_over

    connection = await asyncpg.connect(database.dsn)
    try:
        doubtful = await take_over(connection, unused=database.postgres.found_unused)
    finally:
        await connection.close()
    for name, seconds in doubtful:
        note(f"Worker {name} performs runs here, too; if it is dead, its runs are taken over in {seconds:.0f} s.")


def import_from_here() -> None:
    """Let workflows name tools in modules of the current directory. Last on the path: they shadow nothing."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


async def keep_running(database: Database) -> None:
    """Start the embedded server again whenever it is gone: its owner may have ended, or it was killed.

    It is started from here, hence on the main thread, and everything else waits for it: without it nothing can go on.
    """
    postgres = database.postgres
    if postgres is None:
        return
    known = postgres.pid
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            postgres.ensure_running()
        except StoreError as error:
            note(f"PostgreSQL is gone and cannot be started again: {error} Trying on.")
            continue
        if postgres.pid != known:
            known = postgres.pid
            note(f"PostgreSQL was gone; it runs again (process {known}).")


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


# --- living and ending --------------------------------------------------------------------------------------------


def live(work: Callable[[], Awaitable[int | None]], *, interrupted: int = OK) -> int:
    """Run `work` until it ends or a signal cancels it. Returns the exit code for that.

    Ctrl-C gives `interrupted`, SIGTERM 143. `work` may take both signals over for a while, as the web server does.
    A second signal does not wait for anything.
    """
    received: list[int] = []

    async def main() -> int:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int, frame: FrameType | None) -> None:
            received.append(number)
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            loop.call_soon_threadsafe(task.cancel)

        with _handling(end):
            return await work() or OK

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(main())
    except asyncio.CancelledError:
        pass
    except Exception as error:
        if not received:
            raise
        note(f"While stopping: {error}")  # for example, the database ended first: other workers take over the runs
    return exit_code_for(received[0] if received else None, interrupted)


@contextlib.contextmanager
def _handling(end: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def exit_code_for(ended_by: int | None, interrupted: int = OK) -> int:
    """The exit code of a process that the signal `ended_by` has ended; None: no signal did."""
    return {None: OK, int(signal.SIGINT): interrupted}.get(ended_by, TERMINATED)
