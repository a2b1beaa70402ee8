"""Files that workflows `use`, and documents of services, read from the disk of the machine that publishes them.

A workflow names them relative to its own folder (`../shared/tools.yaml`). They must lie below the project: the current
directory, or the workflow's own folder if that lies elsewhere. The target of a link must be a YAML file below the
project, too (or JSON, for a service), because the files are sent to a server."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath
from typing import Final

from hai_flow.definition.yaml.document import BYTES_MAX
from hai_flow.definition.yaml.include_keys import UnusableFile, behind, include_files

SUFFIXES: Final = (".yaml", ".yml")
SERVICE_SUFFIXES: Final = (*SUFFIXES, ".json")


def with_uses(path: Path, source: bytes) -> bytes:
    """The workflow `source`, read from `path`, with the files that it uses. An unreadable file becomes a finding."""
    return include_files(source, lambda name: _read(path, name), lambda name: _read_service(path, name))


def used_files(path: Path, source: bytes) -> list[Path]:
    """The files that the workflow at `path` uses, there or not."""
    files = []
    for name in behind(with_uses(path, source)):
        try:
            files.append(_place(path, name, SERVICE_SUFFIXES))
        except UnusableFile:
            continue
    return files


def _read_service(path: Path, name: str) -> bytes:
    text = _read(path, name, SERVICE_SUFFIXES)
    if b"openapi" not in text:
        raise UnusableFile(f"{name} is no document of OpenAPI")
    return text


def _read(path: Path, name: str, suffixes: tuple[str, ...] = SUFFIXES) -> bytes:
    place = _place(path, name, suffixes)
    try:
        if not (stat.S_ISREG(mode := place.stat().st_mode) or stat.S_ISDIR(mode)):
            raise UnusableFile(f"{name} can't be read: it is a pipe or a device, and no file")  # to open a pipe waits
        with place.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise UnusableFile(f"{name} can't be read: {(error.strerror or str(error)).lower()}") from None
    if len(text) > BYTES_MAX:
        raise UnusableFile(f"{name} has more than {BYTES_MAX // 1024} KiB")
    return text


def _place(path: Path, name: str, suffixes: tuple[str, ...]) -> Path:
    """Where the file lies. Raises `UnusableFile` if a workflow must not name it."""
    if PurePosixPath(name).is_absolute() or "\\" in name or "\x00" in name or not name.endswith(suffixes):
        raise UnusableFile(
            f"expected the way to a {_kind(suffixes)} from here, such as ../shared/tools.yaml, found {name!r}"
        )
    try:
        folder = path.parent.resolve()
        project = Path.cwd().resolve()
        project = project if folder.is_relative_to(project) else folder
        place = (folder / name).resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise UnusableFile(f"{name} can't be found: {error}") from None
    if not place.is_relative_to(project):
        raise UnusableFile(
            f"{name} leads out of the project, which is the folder {project.name}; start above it, or copy it there"
        )
    if not place.name.endswith(suffixes):
        raise UnusableFile(f"{name} leads to {place.name}, and that is no {_kind(suffixes)}")
    return place


def _kind(suffixes: tuple[str, ...]) -> str:
    return "YAML file" if suffixes == SUFFIXES else "YAML or JSON file"
