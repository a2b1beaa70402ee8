"""Which Python functions workflows may call: those that `@tool` registered in a module that the deployment takes tools
from; otherwise the right to publish would be the right to call `subprocess`. A workflow file that `dev` or `run` reads
from this disk may also name modules of its project, and call the functions that they define."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hai_flow import plugins
from hai_flow.engine.canaries import NOTHING
from hai_flow.errors import StepError
from hai_flow.steps.python.project import Project, file_of
from hai_flow.steps.tools import PythonFunction, read_function, registered

ENTRY_POINTS: Final = "hai_flow.tools"
FOLDER: Final = "tools"
BUILT_IN: Final = "hai_flow.steps.built_in"  # tools of the built-in workflows
NOT_ALLOWED: Final = "tool.not_allowed"
UNAVAILABLE: Final = "tool.unavailable"


class Toolbox:
    """The functions that workflows may call in this process.

    `modules`: where registered tools are taken from; `acme.*` means acme and every module below it. `folder`: a
    directory whose Python files count as well, as `tools.<file>`. `project`: the directory whose own modules a workflow
    from this disk may name; None where there is none."""

    def __init__(self, modules: Iterable[str] = (), *, folder: Path | None = None, project: Path | None = None) -> None:
        self.modules = tuple(modules)
        self._folder = folder
        self.project = None if project is None else Project(project)
        self._found: dict[tuple[str, str, str, bool], PythonFunction] = {}
        self._changes = registered.changes

    @classmethod
    def of(cls, modules: Iterable[str], here: Path, *, project: bool = False) -> Toolbox:
        """The toolbox of a process in the directory `here`. Its tools come from the modules of the settings, from those
        that installed packages offer (entry points of the group `hai_flow.tools`), from the folder `tools`, and from
        the built-in workflows."""
        offered = [each.value for each in plugins.list_offers(ENTRY_POINTS)]
        folder = here / FOLDER
        return cls([*modules, *offered, BUILT_IN, NOTHING], folder=folder, project=here if project else None)

    def load(self) -> None:
        """Import the modules that the settings and installed packages name, so that they register their tools.

        Raises StepError for a module that can't be imported."""
        for name in self.modules:
            _import(name.removesuffix(".*"))

    def find(self, target: str, function: str, name: str, *, from_disk: bool = False) -> PythonFunction:
        """The function of a call. `target` is the tool's `python:` value ("" for `registered`), `function` the part
        after the dot of `call: tool.fn`, `name` the tool's name. `from_disk`: the workflow was read from this disk.

        Raises StepError: `tool.not_allowed` for a module that tools are not taken from, `tool.unavailable` if the tool
        does not exist."""
        if self._changes != registered.changes:
            self._found.clear()
            self._changes = registered.changes
        key = target, function, name, from_disk
        python_function = self._found.get(key)
        if python_function is None:
            python_function = self._look_up(target, function, name, from_disk)
            self._found[key] = python_function
        return python_function

    def functions(self, target: str, name: str, *, from_disk: bool = False) -> dict[str, PythonFunction]:
        """The functions of a declared tool by the part after the dot of `call: tool.fn`; "" for a tool that is one
        function. Raises StepError as `find` does."""
        if ":" in target:
            return {"": self.find(target, "", name, from_disk=from_disk)}
        if not target:
            return self._find_below(name)
        self._check_module(target, from_disk)
        module, by_attribute = _import(target), {}
        for key, each in registered.of(target).items():
            attribute = each.function.__name__
            if self._find_in_module(module, attribute) is not each:
                attribute = key.removeprefix(f"{name}.")
            by_attribute[attribute] = self.find(target, attribute, name, from_disk=from_disk)
        if from_disk and self._is_of_project(target, module):
            for attribute in _list_own_functions(module):
                by_attribute.setdefault(attribute, self.find(target, attribute, name, from_disk=from_disk))
        return by_attribute

    def _find_below(self, name: str) -> dict[str, PythonFunction]:
        names = {each for module in registered.modules() if self._takes_from(module) for each in registered.of(module)}
        below = {each.removeprefix(f"{name}.") for each in names if each.startswith(f"{name}.")}
        by_name = {function: self._find_registered(f"{name}.{function}") for function in sorted(below)}
        return by_name if by_name and name not in names else {"": self._find_registered(name), **by_name}

    def _check_module(self, module: str, from_disk: bool) -> None:
        if not self._takes_from(module) and not (from_disk and self._is_of_project(module)):
            raise StepError(self._refusal(module, from_disk), code=NOT_ALLOWED, retriable=False)

    def _look_up(self, target: str, function: str, name: str, from_disk: bool) -> PythonFunction:
        if not target:
            return self._find_registered(f"{name}.{function}" if function else name)
        module_name, _, attribute = target.partition(":")
        attribute = attribute or function or name
        if module_name == NOTHING:  # its one function stands for all others
            attribute = "perform"
        self._check_module(module_name, from_disk)
        module = _import(module_name)
        candidates = registered.of(module_name)
        registration = (
            self._find_in_module(module, attribute)
            or candidates.get(attribute)
            or candidates.get(f"{name}.{attribute}")
        )
        if registration is not None:
            return registration
        if from_disk and self._is_of_project(module_name, module):
            return _find_own_function(module, attribute)
        has = ", ".join(sorted(each.function.__name__ for each in candidates.values())) or "none"
        raise StepError(
            f"expected a function {attribute!r} registered with @tool in {module_name}; it registers {has}",
            code=UNAVAILABLE,
        )

    def _find_registered(self, name: str) -> PythonFunction:
        by_module = {module: each for module, each in registered.named(name).items() if self._takes_from(module)}
        if len(by_module) == 1:
            return next(iter(by_module.values()))
        if by_module:
            several = " and ".join(sorted(by_module))
            raise StepError(f"{several} register a tool {name!r}; name one: python: pkg.mod", code=UNAVAILABLE)
        raise StepError(
            f"expected a Python function registered with @tool as {name!r}, found none in the modules that tools are "
            f"taken from ({self._sources()})",
            code=UNAVAILABLE,
        )

    def _takes_from(self, module: str) -> bool:
        for each in self.modules:
            package = each.removesuffix(".*")
            if module == package or (package != each and module.startswith(f"{package}.")):
                return True
        return self._folder is not None and file_of(module, self._folder.parent, below=self._folder) is not None

    def _find_in_module(self, module: ModuleType, attribute: str) -> PythonFunction | None:
        """The module's attribute, if it is (or wraps: `functools.wraps`) a function that a module which tools are taken
        from has registered."""
        function = getattr(module, attribute, None)
        if not callable(function):
            return None
        original = inspect.unwrap(function)
        registration = registered.found(original)
        if registration is None or not self._takes_from(registration.function.__module__):
            return None
        return registration if function is original else _read_function(function, attribute, module)

    def _is_of_project(self, name: str, module: ModuleType | None = None) -> bool:
        return self.project is not None and self.project.holds(name, module)

    def _refusal(self, module: str, from_disk: bool) -> str:
        here = f", nor a module of the project in {self.project.root}" if from_disk and self.project is not None else ""
        return (
            f"{module!r} is not a module that this deployment takes tools from ({self._sources()}){here}; name it in "
            "HAI_FLOW_TOOLS and register its functions with @tool"
        )

    def _sources(self) -> str:
        files = [f"the files of {self._folder}"] if self._folder is not None and self._folder.is_dir() else []
        return ", ".join([*self.modules, *files]) or "none is named"


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # an import runs whatever the module says
        registered.forget({module for module in registered.modules() if module not in sys.modules})
        fault = f"{type(error).__name__}: {error}"
        raise StepError(f"can't import {name}: {fault}", code=UNAVAILABLE) from error


def _list_own_functions(module: ModuleType) -> list[str]:
    """The names of the functions that the module itself defines."""
    own = inspect.getmembers(module, lambda each: inspect.isfunction(each) and each.__module__ == module.__name__)
    return [name for name, _ in own if not name.startswith("_")]


def _find_own_function(module: ModuleType, attribute: str) -> PythonFunction:
    """A function that the module itself defines. Raises StepError."""
    candidate: Any = getattr(module, attribute, None)
    defined = candidate.func if isinstance(candidate, partial) else candidate
    if attribute.startswith("_") or not inspect.isfunction(defined) or defined.__module__ != module.__name__:
        has = ", ".join(_list_own_functions(module)) or "none"
        message = f"expected a function {attribute!r} that {module.__name__} defines; it defines {has}"
        raise StepError(message, code=UNAVAILABLE)
    return _read_function(candidate, attribute, module)


def _read_function(function: Callable[..., Any], attribute: str, module: ModuleType) -> PythonFunction:
    try:
        return read_function(function)
    except (TypeError, ValueError) as error:
        message = f"{attribute!r} in {module.__name__} can't be a tool: {error}"
        raise StepError(message, code=UNAVAILABLE) from error
