"""`test`: the tests of workflows, played in memory. Needs no database and no server, unless a test names a version."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hai_flow.cli.console import clean
from hai_flow.cli.database import RunDatabase, open_database, reachable
from hai_flow.cli.errors import FAILED, USAGE, UsageError, print_findings
from hai_flow.cli.options import load_settings
from hai_flow.cli.terminal import out, print_json, say
from hai_flow.errors import Finding, HaiFlowError

if TYPE_CHECKING:
    from hai_flow.testing.cassettes import Performer
    from hai_flow.testing.coverage import Coverage
    from hai_flow.testing.loading import DocumentLoader, LoadedDocument, Published
    from hai_flow.testing.runner import Result

WIDTH: Final = 80
WATCH_SECONDS: Final = 0.3
WATCHED: Final = (".yaml", ".yml", ".py", ".json")
WATCHED_MAX: Final = 20_000
_STYLES: Final = {"plain": "", "dim": "dim", "bold": "bold", "good": "green", "bad": "red"}


def play(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Test files (*.test.yaml), or folders of them. Default: this folder."),
    ] = None,
    keyword: Annotated[
        str | None, typer.Option("-k", metavar="NAME", help="Only cases whose file or name contains this text.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for each case.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Call real services and models for effects without a mock; record answers.")
    ] = False,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="List the steps, branches and answers that no test covers.")
    ] = False,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", metavar="FOLDER", help="With --coverage: draw the workflows there.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Run again whenever a file is saved, until Ctrl+C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"cases": [...], "findings": [...], ...}.')] = False,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="The server of published workflows (name@version).")
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", metavar="DSN", help="The database of published workflows instead.")
    ] = None,
) -> None:
    """Run the tests of workflows: the real engine in memory, effects mocked, time passing only as the test says."""
    from hai_flow.checking.modules import ModuleFiles
    from hai_flow.testing.loading import DocumentLoader

    if server is not None and database is not None:
        raise UsageError("--server and --database: expected one of them, found both.")
    published = _Published(server, database).source_of if server or database else None
    places = _places(paths or ["."])
    if pictures is not None and not coverage:
        raise UsageError("--pictures: expected --coverage beside it.")
    if watch:
        if record or as_json:
            raise UsageError("--watch: expected neither --record nor --json beside it.")
        _watch(paths or ["."], keyword, published, verbose=verbose, coverage=coverage, pictures=pictures)
        return
    began = time.perf_counter()
    with _recorder() if record else contextlib.nullcontext() as performer:
        loader = DocumentLoader(published, performer, ModuleFiles(map(str, places)).find)
        session = _TestSession(loader, _Covered() if coverage else None)
        for place in places:
            session.play(place, keyword, verbose=verbose, quiet=as_json)
    seconds = time.perf_counter() - began
    if keyword is not None and not session.results and not session.findings:
        raise UsageError(f"-k {keyword}: expected a part of a file's or a case's name, and no case has it.")
    if as_json:
        print_json(session.as_dict(seconds))
    else:
        session.report(seconds)
    if session.covered is not None and pictures is not None:
        session.covered.draw(pictures)
    if session.findings:
        raise typer.Exit(USAGE)
    if any(not result.passed for result in session.results):
        raise typer.Exit(FAILED)


def _watch(
    paths: Sequence[str],
    keyword: str | None,
    published: Published | None,
    *,
    verbose: bool,
    coverage: bool,
    pictures: Path | None,
) -> None:
    """Play the tests, and again after each save of a file below the folders of the tests and the project."""
    from hai_flow.checking.modules import ModuleFiles
    from hai_flow.testing.loading import DocumentLoader

    stamps_played: dict[Path, int] | None = None
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            stamps = _stamps(paths)
            if stamps == stamps_played:
                time.sleep(WATCH_SECONDS)
                continue
            stamps_played = stamps
            try:
                places = _places(paths)
                began = time.perf_counter()
                session = _TestSession(
                    DocumentLoader(published, None, ModuleFiles(map(str, places)).find),
                    _Covered() if coverage else None,
                )
                for place in places:
                    session.play(place, keyword, verbose=verbose, quiet=False)
                session.report(time.perf_counter() - began)
                if session.covered is not None and pictures is not None:
                    session.covered.draw(pictures)
            except UsageError as error:  # a file that is gone for a moment
                say(str(error), "red")
            say("Waiting for a file to be saved; Ctrl+C ends.", "dim")


def _stamps(paths: Sequence[str]) -> dict[Path, int]:
    """When each file that tests may depend on was written: documents and Python beside them and below this folder."""
    from hai_flow.testing.loading import find_files

    roots = {Path(path) if Path(path).is_dir() else Path(path).parent for path in paths} | {Path()}
    stamps: dict[Path, int] = {}
    for root in roots:
        for place in find_files(root, WATCHED, WATCHED_MAX):
            with contextlib.suppress(OSError):
                stamps[place.resolve()] = place.stat().st_mtime_ns
    return stamps


class _Covered:
    """The coverage of the workflows whose tests were played, by file."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Coverage, str]] = {}

    def of(self, loaded: LoadedDocument) -> Coverage | None:
        """That of the workflow of a test file; None where it can't be played."""
        from hai_flow.testing.coverage import Coverage

        if loaded.plan is None:
            return None
        file = loaded.workflow
        entry = self._of.get(file)
        if entry is None or entry[0].plan.sha256 != loaded.plan.sha256:
            entry = self._of[file] = (Coverage(loaded.plan), file)
        return entry[0]

    def as_dict(self) -> dict[str, object]:
        """By workflow, as `--json` prints it."""
        by_file: dict[str, object] = {}
        for file, (coverage, _) in self._of.items():
            covered, total = coverage.counts()
            missed = [{"line": each.line, "path": each.path, "message": each.text} for each in coverage.find_gaps()]
            by_file[file] = {"covered": covered, "total": total, "missed": missed}
        return by_file

    def lines(self) -> Iterator[tuple[str, str]]:
        for file, (coverage, _) in self._of.items():
            covered, total = coverage.counts()
            missed = coverage.find_gaps()
            yield f"{file}: {covered} of {total} steps, branches and answers", "yellow" if missed else "green"
            for each in missed:
                yield f"{file}:{each.line} {each.text}", ""

    def draw(self, folder: Path) -> None:
        """Draw each workflow as SVG, with the steps that no test takes."""
        from hai_flow.graph import draw

        try:
            folder.mkdir(parents=True, exist_ok=True)
            for file, (coverage, _) in self._of.items():
                source = Path(file).read_bytes() if Path(file).is_file() else None
                if source is None:
                    say(f"{file} is a published version, and is not drawn; give the path of its file", "yellow")
                    continue
                name = f"{Path(file).name.removesuffix('.flow.yaml')}.svg"
                (folder / name).write_text(draw(source, "svg", coverage.unreached))
        except OSError as error:
            raise UsageError(f"--pictures {folder}: can't be written: {error.strerror}.") from None


def _recorder() -> AbstractContextManager[Performer]:
    from hai_flow.cli.author.recording import ReplayRecorder

    return ReplayRecorder.open()


def _places(names: Sequence[str]) -> list[Path]:
    """Every test file that was named, once. Raises UsageError where there is none."""
    from hai_flow.testing.loading import find_suites

    files: dict[Path, None] = {}
    for name in names:
        place = Path(name)
        if not place.exists():
            raise UsageError(f"{name}: expected a test file (*.test.yaml) or a folder of them, found nothing there.")
        try:
            files.update(dict.fromkeys(find_suites(place)))
        except OSError as error:
            raise UsageError(f"{error.filename}: expected a folder that can be read: {error.strerror}.") from None
    if not files:
        raise UsageError(f"{', '.join(names)}: expected test files (*.test.yaml), found none.")
    return list(files)


class _TestSession:
    """The files of one call, played one after the other."""

    def __init__(self, loader: DocumentLoader, covered: _Covered | None = None) -> None:
        self._loader = loader
        self.covered = covered
        self.results: list[Result] = []
        self.findings: list[Finding] = []
        self._sources: dict[str, str] = {}
        self._deselected = 0

    def play(self, place: Path, keyword: str | None, *, verbose: bool, quiet: bool) -> None:
        """Play the cases of a file, and show how they go."""
        try:
            loaded = self._loader.load(place)
        except OSError as error:
            raise UsageError(f"{place}: expected a test file that can be read: {error.strerror}.") from None
        self.findings += loaded.findings
        self._sources |= loaded.sources
        marks = self._mark_results(loaded, keyword, verbose=verbose)
        if quiet:
            for _ in marks:
                pass
        elif verbose:
            for text in marks:
                say(text, "red" if text.endswith("FAILED") else "green")
        else:
            line = out()
            has_heading = False
            for mark in marks:
                if not has_heading:
                    line.print(f"{clean(loaded.file)} ", end="")
                    has_heading = True
                line.print(mark, end="", style="green" if mark == "." else "red")
            if has_heading:
                line.print()
        if loaded.cassette is not None:
            try:
                loaded.cassette.save()
            except OSError as error:
                raise UsageError(f"{loaded.cassette.path}: can't be written: {error.strerror}.") from None
        if loaded.findings and not quiet:
            say(f"{loaded.file} can't be run", "red")

    def _mark_results(self, loaded: LoadedDocument, keyword: str | None, *, verbose: bool) -> Iterator[str]:
        coverage = None if self.covered is None else self.covered.of(loaded)
        for case in loaded.cases:
            name = f"{loaded.file}::{case.name}"
            if keyword is not None and keyword.casefold() not in name.casefold():
                self._deselected += 1
                continue
            result = loaded.run(case, coverage)
            self.results.append(result)
            if verbose:
                yield f"{name} {'PASSED' if result.passed else 'FAILED'}"
            else:
                yield "." if result.passed else "F"

    def as_dict(self, seconds: float) -> dict[str, object]:
        """Everything, as `--json` prints it."""
        failed = sum(not result.passed for result in self.results)
        return {
            "cases": [result.as_dict() for result in self.results],
            "findings": [finding.as_dict() for finding in self.findings],
            "passed": len(self.results) - failed,
            "failed": failed,
            "deselected": self._deselected,
            "seconds": round(seconds, 6),
            **({} if self.covered is None else {"coverage": self.covered.as_dict()}),
        }

    def report(self, seconds: float) -> None:
        """Print the failures, in full and then in short, and the closing line."""
        from hai_flow.testing.report import closing, describe, first_words

        failed = [result for result in self.results if not result.passed]
        if self.findings:
            say(_format_title_line(" FINDINGS ", "="))
            print_findings(self.findings, self._sources, out())
        if failed:
            say(_format_title_line(" FAILURES ", "="))
        for result in failed:
            say(_format_title_line(f" {result.case.name} ", "_"), "bold red")
            for line in describe(result):
                say(line.text, _STYLES[line.tone] or None)
        if failed:
            say(_format_title_line(" short test summary ", "="))
        for result in failed:
            say(f"FAILED {first_words(result)}", "red")
        for result in self.results:
            for note in result.notes:
                place = f"{result.suite.file}:{note.line}:{note.column}"
                say(f"{place}: {result.case.name}: note: {note.message}", "yellow")
        if self.covered is not None:
            say(_format_title_line(" coverage ", "="))
            for text, style in self.covered.lines():
                say(text, style or None)
        closed = closing(self.results, len(self.findings), self._deselected, seconds)
        say(closed, "bold red" if failed or self.findings else "bold green")


def _format_title_line(title: str, rule: str) -> str:
    return title.center(WIDTH, rule)


class _Published:
    """Published workflows by `name@version`, from a server or its database."""

    def __init__(self, server: str | None, database: str | None) -> None:
        self._server = server
        self._database = database

    def source_of(self, reference: str) -> bytes:
        """The bytes of the document. Raises HaiFlowError where there is none."""
        if self._database is None:
            return asyncio.run(self._ask_server(reference))
        return self._ask_database(reference, self._database)

    async def _ask_server(self, reference: str) -> bytes:
        from hai_flow.cli.client.rest import Server

        async with Server(self._server) as server:
            answer = await server.get(f"/v1/workflows/{reference}")
        return answer["source"].encode()

    def _ask_database(self, reference: str, dsn: str) -> bytes:
        settings = load_settings(database_url=dsn)
        with open_database(settings) as database:
            return asyncio.run(_read_published(reference, database))


async def _read_published(reference: str, database: RunDatabase) -> bytes:
    from hai_flow.runtime.runtime import LOCAL_TENANT
    from hai_flow.store.catalog import workflows
    from hai_flow.store.postgres.several_hosts import open_connection

    name, _, version = reference.partition("@")
    async with reachable(database):
        connection = await open_connection(database.direct or database.dsn, statement_cache_size=0)
        try:
            stored = await workflows.workflow_version(connection, LOCAL_TENANT, name, int(version.partition("+")[0]))
        finally:
            await connection.close()
    if stored is None:
        raise HaiFlowError(f"there is no workflow `{reference}` in {database.shown}; publish it first")
    return stored.source
