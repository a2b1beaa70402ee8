"""Commands that need no server and no database: `validate` and `version`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from hai_flow.cli.terminal import FAILED, UsageError, err, out, plural, print_findings, print_json, say
from hai_flow.errors import Finding

SUFFIXES: Final = (".yaml", ".yml")
WORKFLOWS: Final = tuple(f".flow{suffix}" for suffix in SUFFIXES)
TESTS: Final = tuple(f".test{suffix}" for suffix in SUFFIXES)
STDIN: Final = "-"

FilesArgument = Annotated[
    list[str],
    typer.Argument(metavar="FILE|FOLDER|-", help="Workflow files, folders of them, or - for standard input."),
]


def validate(
    files: FilesArgument,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"findings": [...]}.')] = False,
) -> None:
    """Check workflows offline: every mistake at once, with file, line and column."""
    from hai_flow.definition.compiler import check_workflow

    sources = dict(sources_of(files))
    found = {name: check_workflow(source, name) for name, source in sources.items()}
    findings = [finding for each in found.values() for finding in each]
    if as_json:
        print_json({"findings": [finding.as_dict() for finding in findings]})
    else:
        texts = {name: source.decode(errors="replace") for name, source in sources.items()}
        print_findings(findings, texts, out())
        say(_summary(found), "green" if not findings else None)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(FAILED)


def sources_of(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Every document that was named, as (name, bytes). Raises UsageError for a name that leads nowhere."""
    for name in names:
        if name == STDIN:
            yield "<stdin>", sys.stdin.buffer.read()
            continue
        for path in workflow_files(Path(name)):
            yield str(path), read(path)


def workflow_files(place: Path) -> list[Path]:
    """The workflow files at `place`: itself, or every `*.flow.yaml` in the folder and below. Raises UsageError."""
    if not place.is_dir():
        return [place]
    files = sorted(path for path in place.rglob("*") if path.name.endswith(WORKFLOWS) and path.is_file())
    if not files:
        raise UsageError(f"{place}: expected workflow files (*{', *'.join(WORKFLOWS)}) in the folder, found none.")
    return files


def read(path: Path) -> bytes:
    """The bytes of a workflow file. Raises UsageError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: expected a workflow file that can be read: {error.strerror}.") from None


def _summary(found: dict[str, list[Finding]]) -> str:
    findings = [finding for each in found.values() for finding in each]
    files = plural(len(found), "file")
    if not findings:
        return f"{files}: no findings."
    errors = sum(finding.severity == "error" for finding in findings)
    counts = [plural(errors, "error")] if errors else []
    if errors < len(findings):
        counts.append(plural(len(findings) - errors, "warning"))
    faulty = sum(1 for each in found.values() if each)
    return f"{' and '.join(counts)} in {faulty} of {files}."


def version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """The version of HAI Flow and of Python."""
    import hai_flow

    if as_json:
        print_json({"version": hai_flow.__version__, "python": platform.python_version()})
    else:
        say(f"hai-flow {hai_flow.__version__} (Python {platform.python_version()})")


def print_definition_error(findings: Iterable[Finding], path: str, source: bytes) -> None:
    """What is wrong with one file, with its lines."""
    print_findings(list(findings), {path: source.decode(errors="replace")}, err())
