"""What every test may ask for: a PostgreSQL server for the session, and a database of its own in it.

`--quick` leaves out what needs a database, a process of its own or much time: the inner loop (`python3 cli.py quick`).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpcore2
import httpx2
import pytest
import structlog
from hypothesis import HealthCheck, settings

from hai_flow.store.postgres.database import Database
from tests.support import citus
from tests.support.examples import (
    CASES_MIN,
    CASES_SHARE,
    COSTLY,
    QUICK,
    QUICK_MAX,
    ROWS_MIN,
    ROWS_SHARE,
    SEED,
    SLOW,
    draw,
    draw_costly,
    examples,
)
from tests.support.identities import KEYS
from tests.support.postgres import Server, serve
from tests.support.scratch import use_memory
from tests.support.server import ServerProcess, serving
from tests.support.skewed import SkewedServer, compiler, skewed_server
from tests.support.stalls import STANDSTILL_SECONDS, stalls_measured

use_memory()

# How long an example takes says something about the machine, and nothing about us. In CI the examples are the same each
# time (hypothesis says so by itself), so that a change which passed does not fail on another's examples.
settings.register_profile(
    "suite",
    settings.get_profile("default"),
    deadline=None,
    max_examples=examples(settings.get_profile("default").max_examples),
    suppress_health_check=[HealthCheck.too_slow],
)
if settings.get_current_profile_name() == "default":
    settings.load_profile("suite")

# A rich traceback shows the locals of every frame: seconds in which a loop does nothing and its transactions time out.
LOG_PROCESSORS = [
    *structlog.get_config()["processors"][:-1],
    structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
]
structlog.configure(processors=LOG_PROCESSORS)

# A client reads all certificate authorities when it is made: 20 ms, thousands of times. Few of ours speak TLS.
vars(httpcore2)["default_ssl_context"] = cache(httpcore2.default_ssl_context)

# A client that is given no time: its own five seconds are less than a busy machine needs for an OpenAPI document.
httpx2._config.DEFAULT_TIMEOUT_CONFIG.read = 30.0

# Each connection is a process of PostgreSQL with empty caches: 15 ms of a processor, and a runtime that starts opens as
# many as it may. Three: a test holds up to two in transactions, and looks at them by another.
vars(Database)["open"].__func__.__kwdefaults__["api_connections"] = 3

# A shell ignores SIGINT for what it starts in the background, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
OVER_DATABASES = frozenset(("api", "attacks", "citus", "clients", "console", "runtime", "store", "upgrade"))
"""The folders most of whose tests need a database: to read them takes the inner loop too long."""
LONG = OVER_DATABASES | frozenset(("chaos", "cli", "corpus", "deploy", "lsp", "release", "sim", "telemetry"))
"""The folders whose tests take a tenth of a second and more: of the others there are many in each."""
SERVERS = frozenset(("postgres_server", "skewed"))  # fixtures that are, or need, a PostgreSQL
STALL = "longest standstill of the loop"
STARTS_ONE = "starts a process of its own"
STARTS = frozenset(("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"))
_testing = False
_started = False  # whether the test tried to start a process


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what needs a database, a process or seconds")
    parser.addoption("--failures", type=Path, help="write the ids of the tests that fail to this file, a line each")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        sys.addaudithook(_skip_at_processes)
        settings.register_profile(
            QUICK, settings.get_profile(settings.get_current_profile_name()), max_examples=QUICK_MAX
        )
        settings.load_profile(QUICK)
    if hasattr(config, "workerinput") and not config.option.durations:
        _send_less(config)


UNREAD = frozenset(("logstart", "logfinish"))  # which pytest-xdist's terminal shows to none but who asks for details


def _send_less(config: pytest.Config) -> None:
    """Let this process of pytest-xdist report no more of a test that passes than that: two messages, not six, each of
    which takes half a millisecond of both processes."""
    (interactor,) = (each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent"))
    send: Callable[..., None] = vars(type(interactor))["sendevent"]

    def send_some(name: str, **fields: Any) -> None:
        data = fields.get("data", {})
        if name not in UNREAD and not (data.get("outcome") == "passed" and data.get("when") in ("setup", "teardown")):
            send(interactor, name, **fields)

    vars(interactor)["sendevent"] = send_some


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Of a run over several processes only the one that controls them has a terminal."""
    _tell_standstill(terminalreporter)
    terminalreporter.write_line(f"the rows that were drawn from large tables are those of TEST_SEED={SEED}")
    path: Path | None = config.getoption("failures")
    if path is not None:
        stats = terminalreporter.stats
        failed = dict.fromkeys(report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ()))
        path.write_text("".join(f"{nodeid}\n" for nodeid in failed))


def _tell_standstill(reporter: pytest.TerminalReporter) -> None:
    reports = [each for each in reporter.getreports("passed") if isinstance(each, pytest.TestReport)]
    stalls = [
        (float(str(value)), each.nodeid) for each in reports for name, value in each.user_properties if name == STALL
    ]
    if stalls:
        seconds, test = max(stalls)
        reporter.write_line(
            f"the longest that a test's event loop did one thing alone: {1000 * seconds:.0f} ms, {test}"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The processes of pytest-xdist are given paths, whether or not somebody has named any."""
    node.workerinput["whole"] = _is_whole(node.config)


def _is_whole(config: pytest.Config) -> bool:
    """Whether the whole suite runs: nobody has named a file."""
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    return bool(worker.get("whole", config.args_source is not pytest.Config.ArgsSource.ARGS))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[object]:
    """Nothing that is collected is garbage: to look for some takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    left_out = config.getoption("quick") and _is_whole(config)
    return True if left_out and collection_path.parent == TESTS and collection_path.name in OVER_DATABASES else None


@pytest.hookimpl(trylast=True)  # of what `-k` and the like have left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    costly = [item for item in items if item.get_closest_marker(COSTLY)]
    stored = [item for item in items if _needs_database(item)]
    passed_over = set[pytest.Item]()
    if config.getoption("quick"):
        passed_over = {*stored, *costly, *(item for item in items if item.get_closest_marker(SLOW))}
        # What holds for the project as a whole lies outside of the folders, and is tried each time.
        cases = [item for item in items if item not in passed_over and item.path.parent != TESTS]
        if _is_whole(config):
            passed_over |= set(cases).difference(draw(cases, _table_of, CASES_MIN, CASES_SHARE))
    elif _is_whole(config):
        rows = [item for item in stored if not item.get_closest_marker(COSTLY)]  # each is drawn once
        passed_over = {*costly, *rows}.difference(
            draw_costly(costly, _table_of, _folder_of),
            draw(rows, _table_of, ROWS_MIN, ROWS_SHARE, id_of=lambda item: item.nodeid.partition("[")[2]),
        )
    config.hook.pytest_deselected(items=[item for item in items if item in passed_over])
    # The long ones first: at the end, the processes wait for the last test of each.
    items[:] = sorted((item for item in items if item not in passed_over), key=lambda item: not _is_long(item.path))


@cache
def _is_long(path: Path) -> bool:
    """Whether the tests of its folder tend to take long. Whole folders, so that their servers are started once."""
    folder = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    return path.parent == TESTS or folder in LONG


def _table_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _folder_of(table: str) -> str:
    return table.partition("::")[0].rpartition("/")[0]


def pytest_collection_finish() -> None:
    """The tests themselves and all modules are no garbage, and take a quarter of a second to look at."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _needs_database(item: pytest.Item) -> bool:
    names: Iterable[str] = getattr(item, "fixturenames", ())
    return not SERVERS.isdisjoint(names)


def _skip_at_processes(event: str, given: object) -> None:
    global _started
    if _testing and event in STARTS:
        _started = True
        pytest.skip(STARTS_ONE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    global _testing, _started
    _testing, _started = True, False
    try:
        return (yield)
    finally:
        _testing = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[object]:
    """A test whose code caught the skip, as it would catch any program that can't be started, is skipped as well. One
    in which the event loop was not given back for long fails."""
    try:
        with stalls_measured() as stalls:
            result = yield
    except BaseException:
        if _started:
            pytest.skip(STARTS_ONE)
        raise
    item.user_properties.append((STALL, stalls.longest))
    if stalls.longest > STANDSTILL_SECONDS:
        pytest.fail(f"the event loop did one thing alone for {stalls.longest:.1f} s of processor time: {stalls.what}")
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Iterator[object]:
    """What was open when a test was skipped in its midst is no fault of the test's, and goes before the next one."""
    if _started:
        warnings.simplefilter("ignore", ResourceWarning)
    result = yield
    if structlog.get_config()["processors"] is not LOG_PROCESSORS:  # a command of the test's has logged as it does
        structlog.reset_defaults()
        structlog.configure(processors=LOG_PROCESSORS)
    if _started:
        gc.collect()
        gc.freeze()  # or the next one looks through all that these tests have kept: 0.2 s, hundreds of times
    return result


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server of this test run, shared by all xdist workers. HAI_FLOW_TEST_DATABASE_URL names one that
    runs; HAI_FLOW_TEST_SESSION the run whose template several of pytest's processes share (`tests.mutants`)."""
    worker = getattr(request.config, "workerinput", None)
    session = worker["testrunuid"] if worker else uuid.uuid4().hex
    prefix = worker["workerid"] if worker else "main"
    if shared := os.environ.get("HAI_FLOW_TEST_SESSION"):
        session, prefix = shared, f"p{os.getpid()}"
    with serve(session[:12], prefix, os.environ.get("HAI_FLOW_TEST_DATABASE_URL") or None) as server:
        yield server


@pytest.fixture
def database_url(postgres_server: Server) -> Iterator[str]:
    """The DSN of a fresh database with the current schema and no rows; with `HAI_FLOW_TEST_CITUS` a schema."""
    with postgres_server.database() if citus.CITUS is None else citus.schema() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def dsn(postgres_server: Server) -> Iterator[str]:
    """The DSN of a database as `database_url`, for all tests of a module."""
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def strict(dsn: str) -> Iterator[ServerProcess]:
    """A server over `dsn` that asks everybody for a key."""
    with serving(dsn, environment=KEYS) as process:
        yield process


@pytest.fixture
def empty_database_url(postgres_server: Server) -> Iterator[str]:
    """The DSN of a fresh database without a schema."""
    with postgres_server.database(migrated=False) as dsn:
        yield dsn


@pytest.fixture
def skewed() -> Iterator[SkewedServer]:
    """A server of the test's own, whose clock it sets."""
    if compiler() is None:
        pytest.skip("a server whose clock can be set needs a C compiler (cc)")
    with skewed_server() as server:
        yield server
