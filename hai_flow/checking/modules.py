"""The Python modules that the tools of workflow files name: found by their files, and read without running them. One
whose source does not show a function that is called is imported, in a process of its own (`imported`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from hai_flow import plugins
from hai_flow.checking.imported import NotImported, import_module
from hai_flow.definition.schemas.python_modules import FunctionSource, PythonModule, python_module

_BYTES_MAX: Final = 4 << 20
_TOOLS: Final = "hai_flow.tools"  # the group of entry points, of installed packages that offer tools
_EXAMPLES: Final = "hai_flow.examples"  # which the settings name by default
_IMPORTS_MAX: Final = 16  # that may end at their limit of time


class ModuleFiles:
    """Finds modules: those of the project, which lie below the working directory or beside the workflow files, and
    those that are installed. Of the project every function counts, of others what `@tool` marks.

    `imports`: whether modules may be imported at all, which runs their code. `unread` are the tools that were asked for
    and not looked at: a name, and the reason."""

    def __init__(self, files: Iterable[str], *, root: Path | None = None, imports: bool = True) -> None:
        here = root or Path.cwd()
        folders = {(here / name).resolve().parent for name in files if name != "<stdin>"}
        own = dict.fromkeys((here, *sorted(folders), *sorted(folder.parent for folder in folders)))
        self._root = here
        self._own = tuple(folder for folder in own if folder != Path(folder.anchor))
        self._imports = imports
        self._late = 0
        self._sources: dict[str, tuple[Path, PythonModule] | str | None] = {}
        self._imported: dict[str, PythonModule | str | None] = {}
        self._registered: PythonModule | None = None
        self.unread: dict[str, str] = {}

    def find(self, name: str, functions: Sequence[str] = ()) -> PythonModule | str | None:
        """See `Modules`."""
        if not name:
            return self._find_registered(functions)
        place = self.source_of(name)
        if place is None:
            self.unread.setdefault(name, "validate where it lies, or is installed")
            return None
        if isinstance(place, str):
            return place
        folder, module = place
        if module.is_sure_of(functions):
            return module
        if name not in self._imported:
            self._imported[name] = self._import(name, folder)
        imported = self._imported[name]
        if imported is None:
            return module
        is_own = folder in self._own
        return imported if is_own or isinstance(imported, str) else imported.filter_registered()

    def source_of(self, name: str) -> tuple[Path, PythonModule] | str | None:
        """The folder in which the module was found, and its functions as its source shows them; a text as `find`."""
        if name not in self._sources:
            self._sources[name] = self._look_for(name)
        return self._sources[name]

    def file_of(self, name: str) -> Path | None:
        place = self.source_of(name)
        return _file_of(place[0], name.split(".")) if isinstance(place, tuple) else None

    def modules_with_tools(self) -> list[str]:
        """The modules whose functions `python: registered` means, as far as they are known without the settings of a
        deployment: the examples, those of installed packages, and the files of the folder `tools`."""
        offered = [each.value.removesuffix(".*") for each in plugins.list_offers(_TOOLS)]
        files = sorted(path.stem for path in (self._root / "tools").glob("*.py"))[:1000]
        return [_EXAMPLES, *offered, *(f"tools.{stem}" for stem in files if stem.isidentifier())]

    def _find_registered(self, functions: Sequence[str]) -> PythonModule | None:
        if self._registered is None:  # each call of such a tool asks
            self._registered = self._read_registered()
        module = self._registered
        if module.find(functions) is None and functions:
            self.unread.setdefault(functions[0], "no module here registers it; a server may")
        return module

    def _read_registered(self) -> PythonModule:
        registered: dict[str, FunctionSource] = {}
        for name in self.modules_with_tools():
            place = self.source_of(name)
            if isinstance(place, tuple):
                registered |= place[1].filter_registered().functions
        return PythonModule(registered, frozenset(registered), frozenset(), True)

    def _look_for(self, name: str) -> tuple[Path, PythonModule] | str | None:
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            return f"`{name[:80]}` is no name of a module; write package.module"
        for folder in self._own:
            if (file := _file_of(folder, parts)) is not None:
                module = _read(file)
                return (folder, module) if isinstance(module, PythonModule) else module
            if _has_package(folder, parts[0]):
                return f"there is no module {name} in {folder}"
        for folder in (Path(entry) for entry in sys.path if entry):
            if (file := _file_of(folder, parts)) is not None:
                module = _read(file)
                return (folder, module.filter_registered()) if isinstance(module, PythonModule) else module
        return None

    def _import(self, name: str, folder: Path) -> PythonModule | str | None:
        if not self._imports or self._late >= _IMPORTS_MAX:
            self.unread.setdefault(name, "its source does not show its functions, and it was not imported")
            return None
        try:
            return import_module(name, folder if folder in self._own else self._root)
        except NotImported as error:
            if error.certain:
                self._late += 1
                return str(error)
            self.unread.setdefault(name, f"{error}; validate where that is installed")
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
        state = file.stat()
        return None if state.st_size > _BYTES_MAX else _read_once(file, state.st_mtime_ns, state.st_size)
    except OSError as error:
        return f"{file} can't be read: {error.strerror}"


@lru_cache(maxsize=256)
def _read_once(file: Path, mtime_ns: int, size: int) -> PythonModule | str:
    """An editor asks after each key, and the file is seldom another. Raises OSError."""
    try:
        return python_module(file.read_bytes())
    except SyntaxError as error:
        return f"{file.name}:{error.lineno or 1}: {error.msg}"
