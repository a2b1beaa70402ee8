"""The Python modules that the tools of workflow files name, found by their files and read without running them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hai_flow.definition.python_modules import PythonModule, python_module

_BYTES_MAX: Final = 4 << 20


class ModuleFiles:
    """Finds modules: those of the project, which lie below the working directory or beside the workflow files, and
    those that are installed. Of the project every function counts, of others what `@tool` marks.

    `unread` are the modules that were asked for and not found."""

    def __init__(self, files: Iterable[str]) -> None:
        folders = {Path(name).resolve().parent for name in files if name != "<stdin>"}
        own = dict.fromkeys((Path.cwd(), *sorted(folders), *sorted(folder.parent for folder in folders)))
        self._own = tuple(folder for folder in own if folder != Path(folder.anchor))
        self._installed = tuple(Path(entry) for entry in sys.path if entry)
        self._found: dict[str, PythonModule | str | None] = {}
        self.unread: set[str] = set()

    def find(self, name: str) -> PythonModule | str | None:
        """See `Modules`."""
        if name not in self._found:
            self._found[name] = self._look_for(name)
        return self._found[name]

    def _look_for(self, name: str) -> PythonModule | str | None:
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            return f"`{name[:80]}` is no name of a module; write package.module"
        for folder in self._own:
            if (file := _file_of(folder, parts)) is not None:
                return _read(file)
            if _has_package(folder, parts[0]):
                return f"there is no module {name} in {folder}"
        for folder in self._installed:
            if (file := _file_of(folder, parts)) is not None:
                module = _read(file)
                return module.registered_alone() if isinstance(module, PythonModule) else module
        self.unread.add(name)
        return None


def _file_of(folder: Path, parts: list[str]) -> Path | None:
    path = folder.joinpath(*parts)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _has_package(folder: Path, name: str) -> bool:
    """Whether the first part of a module's name is code of this folder, so that a module below it has to be there."""
    path = folder / name
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() or any(path.glob("*.py"))


def _read(file: Path) -> PythonModule | str | None:
    try:
        if file.stat().st_size > _BYTES_MAX:
            return None
        return python_module(file.read_bytes())
    except SyntaxError as error:
        return f"{file.name}:{error.lineno or 1}: {error.msg}"
    except OSError as error:
        return f"{file} can't be read: {error.strerror}"
