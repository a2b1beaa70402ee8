"""Running mutants: each is put into a copy of the project, and the tests that should notice it are run there.

The checkout itself is never changed. A mutant is *killed* when a test fails, also when one takes too long (a bug that
makes something wait for ever is noticed), and *survives* when all pass. Anything else (a test that can't be collected,
a fixture that fails, a test that fails without the bug, too) proves nothing, and is an error of the mutant.

A process is forked for each mutant, so that what all tests import of others is imported once. PostgreSQL is that of
one test session, whose template of a database serves all mutants. Chance is the same in each run: what survived once
survives again."""

from __future__ import annotations

import compileall
import contextlib
import gc
import hashlib
import importlib
import json
import os
import py_compile
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pytest

from tests.mutants.mutant import ROOT, Mutant

Outcome: TypeAlias = Literal["killed", "survived", "invalid"]

LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv", ".hai-flow", "node_modules", "__pycache__", ".hypothesis", ".*_cache", "dist"
)
OURS: Final = ("hai_flow", "tests", "migrations")
PRELOADED: Final = (
    "alembic.command", "asyncpg", "asyncio", "cel_expr_python", "email.message", "fastapi", "hypothesis", "immutables",
    "jsonschema_rs", "msgspec", "pydantic", "rich", "sqlalchemy.ext.asyncio", "structlog", "yaml",
)  # fmt: skip
TEST_SECONDS: Final = 60  # longer than any test takes that is chosen here, also on a machine with much to do
RUN_SECONDS: Final = 300
MEMORY_MAX: Final = 2 * 1024**3
ALL: Final = "all of them together"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant. `by`: the test that failed, or what was wrong. `late`: it took too long."""

    outcome: Outcome
    by: str = ""
    late: bool = False
    seconds: float = 0.0
    cached: bool = False


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Job:
    """A process that is at work. `mutant` None: the tests as they are, without any bug."""

    place: Path
    tests: Sequence[str]
    mutant: Mutant | None
    report: Path
    output: Path
    began: float


@dataclass(slots=True)
class Workshop:
    """Copies of the project, and the processes that try mutants in them."""

    root: Path
    directory: Path
    environment: dict[str, str]
    seconds: float = RUN_SECONDS
    _jobs: dict[int, _Job] = field(default_factory=dict)
    _count: int = 0

    def place(self, number: int) -> Path:
        """The `number`-th copy of the project, made if it is not there."""
        place = self.directory / f"copy-{number}"
        if not place.exists():
            shutil.copytree(self.pristine, place, symlinks=True)
            # By content, not by time: one mutant may follow another within a second, and be as long.
            by_content = py_compile.PycInvalidationMode.CHECKED_HASH
            compileall.compile_dir(place / "hai_flow", quiet=2, invalidation_mode=by_content)
        return place

    def begin(self, place: Path, tests: Sequence[str], mutant: Mutant | None = None) -> None:
        """Run `tests` in a copy that nobody uses, with the mutant in it."""
        self._count += 1
        report, output = self.directory / f"report-{self._count}", self.directory / f"output-{self._count}"
        if mutant is not None:
            path = place / mutant.file
            path.write_text(mutant.applied((self.pristine / mutant.file).read_text()))
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _become_pytest(self, place, tests, report, output, writes=mutant is None)
        self._jobs[pid] = _Job(place, tests, mutant, report, output, time.monotonic())

    def ended(self) -> tuple[_Job, Result]:
        """The next one that ends, and what became of it. Its copy is as it was."""
        while True:
            for pid, job in list(self._jobs.items()):
                allowed = self.seconds if job.mutant else max(self.seconds, RUN_SECONDS)  # the tests alone do end
                late = time.monotonic() - job.began > allowed
                if late:
                    _kill(pid)
                done, status = os.waitpid(pid, 0 if late else os.WNOHANG)
                if not done:
                    continue
                _kill(pid)  # what the tests have left behind
                del self._jobs[pid]
                if job.mutant is not None:
                    shutil.copy2(self.pristine / job.mutant.file, job.place / job.mutant.file)
                return job, _result(job, os.waitstatus_to_exitcode(status), late)
            time.sleep(0.02)

    @property
    def pristine(self) -> Path:
        """The project as it was when the workshop opened: it may be worked on meanwhile."""
        return self.directory / "pristine"

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def close(self) -> None:
        for pid in self._jobs:
            _kill(pid)
            os.waitpid(pid, 0)
        self._jobs.clear()


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _result(job: _Job, code: int, late: bool) -> Result:
    seconds = round(time.monotonic() - job.began, 1)
    if late:
        return Result("killed", ALL, True, seconds)
    try:
        failed = json.loads(job.report.read_text())
    except (OSError, ValueError):
        failed = {}
    if code == pytest.ExitCode.OK:
        return Result("survived", seconds=seconds)
    if code == pytest.ExitCode.TESTS_FAILED and failed and failed["when"] != "setup":
        return Result("killed", failed["test"], failed["late"], seconds)
    if code < 0:
        return Result("killed", f"the process died of signal {-code}", False, seconds)
    tail = "\n".join(job.output.read_text(errors="replace").splitlines()[-30:])
    return Result("invalid", f"pytest ended with {code}:\n{tail}", False, seconds)


def _become_pytest(
    workshop: Workshop, place: Path, tests: Sequence[str], report: Path, output: Path, *, writes: bool
) -> None:
    """In the forked process: be a pytest in `place` that knows nothing of the checkout. Does not return."""
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with contextlib.suppress(ValueError, OSError):  # a bug that fills the memory fails, and takes nobody along
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
        with output.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(place)
        os.environ |= workshop.environment | {
            "PYTHONPATH": str(place),
            "HAI_FLOW_MUTANT_REPORT": str(report),
            "TEST_ROWS": "all",
        }
        for name in [each for each in sys.modules if each.partition(".")[0] in OURS]:
            del sys.modules[name]
        sys.path[:] = [str(place), *(each for each in sys.path if each not in ("", str(ROOT), str(workshop.root)))]
        importlib.invalidate_caches()
        sys.dont_write_bytecode = not writes
        arguments = ["-x", "-p", "no:xdist", "-p", "tests.mutants.plugin", f"--timeout={TEST_SECONDS}", "--tb=short"]
        arguments += [
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]  # of plugins that were imported before the fork
        code = pytest.main([*arguments, *tests])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))


@contextlib.contextmanager
def workshop(root: Path = ROOT, *, database: bool = True, seconds: float = RUN_SECONDS) -> Iterator[Workshop]:
    """A place to try mutants of the project in `root`. `database`: with a PostgreSQL for them."""
    for name in PRELOADED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="hai-flow-mutants-") as name:
        directory = Path(name)
        bytecode = str(directory / "bytecode")  # of the copies: it goes with them
        environment = {
            "HYPOTHESIS_STORAGE_DIRECTORY": str(directory / "hypothesis"),
            "PYTHONPYCACHEPREFIX": bytecode,
            "TEST_PATIENCE": "20",  # what a mutant has broken never becomes true
        }
        made = Workshop(root, directory, environment, seconds)
        shutil.copytree(root, made.pristine, ignore=LEFT_OUT, symlinks=True)
        with _postgres(environment) if database else contextlib.nullcontext():
            gc.freeze()
            before, sys.pycache_prefix = sys.pycache_prefix, bytecode
            try:
                yield made
            finally:
                sys.pycache_prefix = before
                made.close()


@contextlib.contextmanager
def _postgres(environment: dict[str, str]) -> Iterator[None]:
    from tests.support.postgres import serve

    session = f"mutants{os.getpid()}"[:12]
    with serve(session, "mutants", os.environ.get("HAI_FLOW_TEST_DATABASE_URL") or None) as server:
        environment |= {"HAI_FLOW_TEST_DATABASE_URL": server.dsn("postgres"), "HAI_FLOW_TEST_SESSION": session}
        yield


# --- what is known already --------------------------------------------------------------------------------------------


class Cache:
    """Results by what they depend on most: the mutant, the source of its file, and the tests.

    Kept in a file, for the next run. A change elsewhere (of another module, of fixtures and builders) is not noticed:
    `--fresh` runs all anew."""

    def __init__(self, path: Path, root: Path = ROOT, *, fresh: bool = False) -> None:
        self._path = path
        self._root = root
        self._hashes: dict[Path, str] = {}
        self._known: dict[str, dict[str, Any]] = {}
        if not fresh:
            with contextlib.suppress(OSError, ValueError):
                self._known = json.loads(path.read_text())

    def get(self, mutant: Mutant) -> Result | None:
        found, key = self._known.get(mutant.name), self._key(mutant)  # of the files as they are before the run
        if found is None or found["key"] != key:
            return None
        return Result(**found["result"] | {"cached": True})

    def keep(self, mutant: Mutant, result: Result) -> None:
        """Remember what became of the mutant, at once: a run may be broken off."""
        self._known[mutant.name] = {"key": self._key(mutant), "result": asdict(result)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(self._known, indent=1))
        temporary.replace(self._path)

    def _key(self, mutant: Mutant) -> str:
        paths = {self._root / mutant.file}
        for test in mutant.tests:
            path = self._root / test.partition("::")[0]
            paths.update([path] if path.is_file() else path.rglob("*.py"))
        parts = [repr(mutant), *(self._hash(path) for path in sorted(paths))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _hash(self, path: Path) -> str:
        if path not in self._hashes:
            self._hashes[path] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        return self._hashes[path]


# --- all of them ------------------------------------------------------------------------------------------------------


def run(
    shop: Workshop, mutants: Iterable[Mutant], jobs: int, tell: Callable[[Mutant, Result], None], until: float = inf
) -> dict[str, Result]:
    """Try each mutant, `jobs` at once; `tell` hears of each as it ends. None is begun after `until` (monotonic)."""
    waiting = deque(mutants)
    results: dict[str, Result] = {}
    passing: dict[Sequence[str], bool] = {}  # the tests that have killed a mutant: whether they pass without any
    unproven: dict[Path, tuple[Mutant, Result]] = {}  # by the copy in which these tests run
    free = [shop.place(number) for number in range(min(jobs, len(waiting)))]
    while True:
        while free and waiting and time.monotonic() < until:
            mutant = waiting.popleft()
            shop.begin(free.pop(), mutant.tests, mutant)
        if not shop.busy:
            return results
        job, result = shop.ended()
        if job.mutant is None:
            passing[job.tests] = result.outcome == "survived"
            mutant, result = unproven.pop(job.place)
        else:
            mutant = job.mutant
        tests = (result.by,) if "::" in result.by else mutant.tests
        if result.outcome == "killed" and tests not in passing:
            unproven[job.place] = mutant, result
            shop.begin(job.place, tests)
            continue
        if result.outcome == "killed" and not passing[tests]:
            result = Result("invalid", f"{result.by} fails without any mutant, too", seconds=result.seconds)
        free.append(job.place)
        results[mutant.name] = result
        tell(mutant, result)
