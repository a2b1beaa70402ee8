"""The workflow files that a command names: found, and read with the files that they use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from hai_flow.cli.errors import UsageError

SUFFIXES: Final = (".yaml", ".yml")
WORKFLOWS: Final = tuple(f".flow{suffix}" for suffix in SUFFIXES)
TESTS: Final = tuple(f".test{suffix}" for suffix in SUFFIXES)
STDIN: Final = "-"
_INSTALLED: Final = ("node_modules", "site-packages", "venv")

FilesArgument = Annotated[
    list[str], typer.Argument(metavar="FILE|FOLDER|-", help="Workflow files, folders of them, or - for standard input.")
]


def read_sources(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Every document that was named, as (name, bytes). Raises UsageError for a name that leads nowhere."""
    for name in names:
        if name == STDIN:
            yield "<stdin>", sys.stdin.buffer.read()
            continue
        for path in list_workflow_files(Path(name)):
            yield str(path), read(path)


def list_workflow_files(place: Path) -> list[Path]:
    """The workflow files at `place`: itself, or every `*.flow.yaml` in the folder and below, but for the folders that
    hold what others have installed. Raises UsageError."""
    if not place.is_dir():
        return [place]
    files = sorted(path for path in _below(place) if path.name.endswith(WORKFLOWS) and path.is_file())
    if not files:
        raise UsageError(f"{place}: expected workflow files (*{', *'.join(WORKFLOWS)}) in the folder, found none.")
    return files


def _below(place: Path) -> Iterator[Path]:
    """The files in the folder and below it, without `.venv` and other hidden folders, and `node_modules`."""
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _INSTALLED]
        yield from (Path(folder, name) for name in files)


def read(path: Path) -> bytes:
    """The bytes of a workflow file. Raises UsageError."""
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"{path}: expected a workflow file that can be read: {error.strerror}."
        raise UsageError(message + _file_of(path)) from None


def _file_of(name: Path) -> str:
    """A word on the file of a workflow that was named in its place, where there is one."""
    places = (
        folder / f"{name.name}{ending}" for folder in (name.parent, name.parent / "workflows") for ending in WORKFLOWS
    )
    file = next((place for place in places if place.is_file()), None)
    return f" Did you mean {file}?" if file is not None and name.suffix not in SUFFIXES else ""


def read_whole(path: Path) -> bytes:
    """A workflow file with the files that it uses. Raises UsageError."""
    return include_files_of(str(path), read(path))


def include_files_of(name: str, source: bytes) -> bytes:
    """The workflow of that name with the files that it uses; from standard input, as they lie from here."""
    from hai_flow.shared import with_uses

    return with_uses(Path("stdin") if name == "<stdin>" else Path(name), source)
