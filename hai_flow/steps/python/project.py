"""The Python modules of a project: their files, their imports, and the reloading of changed ones.

A project is a directory whose modules workflow files of this disk may name. `dev` loads them again when they are saved.
They are imported afresh beside the old ones, not over them: an attempt that runs goes on with the code that it began
with, and where the new code can't be imported, nothing has changed."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

import msgspec

from hai_flow.steps.tools import registered

Stamp: TypeAlias = tuple[int, int, int]
"""The time of a file's last change, its size, and its permissions."""

_OURS: Final = __name__.partition(".")[0]
_INSTALLED: Final = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


class Reloaded(msgspec.Struct, frozen=True):
    """The result of a reload: `modules` are loaded anew; or `fault` gives the reason why all are as before."""

    modules: tuple[str, ...] = ()
    fault: str = ""


class Project:
    """The modules below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._prefix = os.path.join(root, "")
        self._imports: dict[Path, tuple[Stamp, tuple[str, ...]]] = {}
        self._behind: set[str] = set()  # loaded modules whose files say something else by now

    def holds(self, name: str, module: ModuleType | None = None) -> bool:
        """Whether `name` is a module of the project.

        Its file must be one of the project. An imported `module` must also come from that file, because an installed
        module of the same name comes first on Python's path."""
        file = file_of(name, self.root, below=self.root)
        if module is None or file is None:
            return file is not None
        return module.__file__ is not None and Path(module.__file__).resolve() == file.resolve()

    def files(self, modules: Iterable[str]) -> dict[Path, str]:
        """The files of the project, each with its module's name: those of `modules`, of their imports, and of all
        loaded modules. Modules that can't be imported are followed, too."""
        names_by_file: dict[Path, str] = {}
        waiting = [*modules, *self._list_loaded_modules()]
        visited: set[str] = set()
        while waiting:
            name = waiting.pop()
            file = None if name in visited else self._file(name)
            visited.add(name)
            if file is not None:
                names_by_file[file] = name
                waiting += self._list_imports_needed(name, file)
        return names_by_file

    def reload(self, changed: Iterable[str]) -> Reloaded:
        """Load again the loaded ones of the modules `changed`, and the modules that import them.

        If one of them can't be imported, all stay as they were, and are tried again with the next change."""
        changed = list(changed)
        importlib.invalidate_caches()
        for name in changed:
            _forget_compiled(self._file(name))
        self._behind = {name for name in self._behind.union(changed) if name in sys.modules}
        stale = self._with_importers(self._behind)
        try:
            _import_anew([name for name in stale if self._file(name) is not None], stale)
        except (Exception, SystemExit) as error:  # an import runs whatever the module says
            return Reloaded(fault=self._describe(error))
        self._behind.clear()
        return Reloaded(tuple(stale))

    def _list_loaded_modules(self) -> dict[str, Path]:
        loaded = {name: self._file(name) for name in list(sys.modules)}
        return {name: file for name, file in loaded.items() if file is not None and name != "__main__"}

    def _file(self, name: str) -> Path | None:
        """The file of a module of the project. None for modules of Python, of installed packages or of this package."""
        module = sys.modules.get(name)
        if name.partition(".")[0] == _OURS:
            return None
        if module is None:
            return file_of(name, self.root, below=self.root)
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.startswith(self._prefix) or _is_installed(file):
            return None
        path = Path(file)
        return path if path.suffix == ".py" and path.is_file() else None

    def _list_imports_needed(self, name: str, file: Path) -> list[str]:
        """The modules that importing `name` imports: its packages, and the imports in its file."""
        stamp = read_stamp(file)
        cached = self._imports.get(file)
        if cached is None or cached[0] != stamp:
            cached = self._imports[file] = (stamp, tuple(_iter_imports(name, file)))
        return [*_iter_packages(name), *cached[1]]

    def _with_importers(self, changed: Collection[str]) -> list[str]:
        """`changed`, and all loaded modules of the project that import one of them, or import one that does; sorted."""
        needs = {name: self._list_imports_needed(name, file) for name, file in self._list_loaded_modules().items()}
        affected, size = set(changed), -1
        while size != len(affected):
            size = len(affected)
            affected |= {name for name, needed in needs.items() if not affected.isdisjoint(needed)}
        return sorted(affected)

    def _describe(self, error: BaseException) -> str:
        """The error, after its last place in the project."""
        fault = f"{type(error).__name__}: {error}"
        if isinstance(error, SyntaxError) and error.filename and error.lineno:
            return f"{self._relative_path(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}"
        _, _, *frames = traceback.extract_tb(error.__traceback__)  # without our own
        for frame in reversed(frames):
            if frame.filename.startswith(self._prefix):
                return f"{self._relative_path(frame.filename)}:{frame.lineno}: {fault}"
        return fault

    def _relative_path(self, file: str) -> str:
        path = Path(file)
        return str(path.relative_to(self.root) if path.is_relative_to(self.root) else path)


def file_of(module: str, root: Path, *, below: Path) -> Path | None:
    """The file that the module's name means under `root`, if there is one and it really lies below `below`."""
    path = root.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file() and file.resolve().is_relative_to(below.resolve()):
            return file
    return None


@functools.cache
def _is_installed(file: str) -> bool:
    return not _INSTALLED.isdisjoint(Path(file).parents)


def read_stamp(file: Path) -> Stamp:
    """Zeros for a file that is not there."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_mode


def _iter_packages(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def _iter_imports(name: str, file: Path) -> Iterator[str]:
    """The modules that a file names in its imports; none if Python can't read it. `from shop import x` may mean the
    module `shop.x`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*outer, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _import_anew(wanted: Iterable[str], stale: Iterable[str]) -> None:
    """Import `wanted` in place of the loaded modules `stale`.

    If an import raises, everything is put back, and its exception passes on."""
    before = {name: sys.modules[name] for name in stale}
    attributes = list(_attributes(before))
    tools = registered.forget(before)
    for name in before:
        del sys.modules[name]
    try:
        for name in wanted:
            importlib.import_module(name)
    except BaseException:
        registered.forget(before)
        registered.restore(tools)
        sys.modules.update(before)
        for package, name, value in attributes:
            setattr(package, name, value)
        raise


def _attributes(modules: dict[str, ModuleType]) -> Iterator[tuple[ModuleType, str, object]]:
    """The attributes of packages that hold one of `modules`: package, name and value."""
    for name in modules:
        outer, _, attribute = name.rpartition(".")
        package = sys.modules.get(outer)
        if package is not None and hasattr(package, attribute):
            yield package, attribute, getattr(package, attribute)


def _forget_compiled(file: Path | None) -> None:
    """Delete the bytecode of `file`. Python would reuse it if two saves have the same second and the same size."""
    if file is not None:
        with suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(str(file))).unlink()
