"""The files that `dev` loads and watches: workflows, and the Python modules of the project that they call.

A saved workflow is published, a saved module is imported anew. A file that could not be loaded is tried again with
every change, because the missing part may be there now. Files that depend on a change are checked again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hai_flow.checking.modules import ModuleFiles
from hai_flow.checking.workflows import Workflows
from hai_flow.cli.author.sources import SUFFIXES, TESTS, include_files_of, read, read_whole
from hai_flow.cli.client.samples import generate_input
from hai_flow.cli.console import clean
from hai_flow.cli.errors import UsageError, explain, print_findings
from hai_flow.cli.terminal import err, note, plural, say
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import ApiTrigger, Call, Plan, PythonTool, Run
from hai_flow.definition.readiness import RunnersMissing
from hai_flow.definition.yaml.include_keys import first_of, is_shared, read_texts
from hai_flow.errors import DefinitionError, Finding, HaiFlowError, Rejected, StoreError
from hai_flow.shared import used_files
from hai_flow.steps.python.project import Project, Stamp, read_stamp
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.values import Json

if TYPE_CHECKING:
    from hai_flow.cli.serve.backend import Local


_PACKAGE: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = (_PACKAGE.parent / "workflows", _PACKAGE / "_workflows")
"""The folders of the included examples, in a checkout and in a wheel."""
_PLACEHOLDER: Final = re.compile(r"'([\w-]+\.)*example\.(com|net|org)' has no address")
"""The doubt about a host whose name is reserved for examples: it has none anywhere."""

POLL_SECONDS: Final = 0.25
NAMED_MAX: Final = 8  # of the workflows that were loaded: a line or two
FILES_MAX: Final = 2000  # of the project that a document is compared with
AGAIN_SECONDS: Final = 2.0


@dataclass(slots=True)
class _File:
    """A workflow file as it was last read.

    `stands`: exactly these bytes are published. `complaint`: the last complaint about the file that was printed."""

    path: Path
    source: bytes  # with the files that it uses
    plan: Plan | None  # None: it has mistakes
    used: frozenset[Path] = frozenset()
    stands: bool = False
    complaint: str = ""

    def children(self) -> set[str]:
        """The names of the workflows that it runs."""
        return set() if self.plan is None else {verb.workflow for verb in self._verbs(Run)}

    def modules(self) -> set[str]:
        """The Python modules that it calls, as it names them."""
        tools = (verb.tool for verb in self._verbs(Call))
        return {tool.target.partition(":")[0] for tool in tools if isinstance(tool, PythonTool) and tool.target}

    def is_calling_python(self) -> bool:
        return any(isinstance(verb.tool, PythonTool) for verb in self._verbs(Call))

    def _verbs(self, kind: type[Any]) -> Iterator[Any]:
        steps = () if self.plan is None else self.plan.steps.values()
        return (step.verb for step in steps if isinstance(step.verb, kind))


class Shelf:
    """The workflow files of `folders`, which may not be there yet, published as dev copies; and the modules of
    `project` that they call."""

    def __init__(self, backend: Local, folders: Sequence[Path], project: Project | None) -> None:
        self._backend = backend
        self._folders = folders
        self._project = project
        self._stamps: dict[Path, Stamp] = {}  # of all that is watched, as they were when it was last loaded
        self._files: dict[Path, _File] = {}
        self._modules: dict[Path, str] = {}
        self._compiled: dict[tuple[str, bytes], Plan | None] = {}  # of files as those beside them see them
        self._unanswered = False
        self.names: dict[str, str] = {}  # workflow -> its reference
        self.samples: dict[str, dict[str, Json]] = {}  # workflow that a request may start -> an input that it takes

    async def load(self) -> None:
        """Publish every file. One with mistakes shows them, and the others go on."""
        self._stamps = self._look()
        self._read(path for path in self._stamps if path not in self._modules)
        await self._publish_all(())
        names = sorted(self.names.values())
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        named = f": {', '.join(names[:NAMED_MAX])}{more}" if names else ""
        say(f"{plural(len(names), 'workflow')} from {self._folders[0]}{named}")
        for folder in self._folders:
            if not folder.is_dir():
                say(f"There is no folder {folder} yet; what you put there is loaded, too.")

    def holds(self, source: bytes) -> bool:
        """Whether this is a workflow file of the project, with the files that it uses."""
        if self._project is None:
            return False
        if any(file.source == source for file in list(self._files.values())):
            return True
        own = len(first_of(source))
        files = islice(self._project.root.rglob("*.flow.y*ml"), FILES_MAX)
        return any(_is_file(path) and path.stat().st_size == own and read_whole(path) == source for path in files)

    async def watch(self) -> None:
        """Load saved files, once they have stopped changing."""
        stamps, waited = self._stamps, 0.0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            waited += POLL_SECONDS
            now = self._look()
            gone = self._stamps.keys() - now.keys()
            self._forget(gone)
            self._stamps = self._stamps_of_modules(now) | self._stamps
            settled = {
                path: stamp for path, stamp in now.items() if stamp == stamps.get(path) != self._stamps.get(path)
            }
            stamps = now
            self._stamps |= settled
            if settled:
                await self._load_changed(settled)
            elif gone:  # another file may have had its name
                await self._publish_all(())
            elif self._unanswered and waited >= AGAIN_SECONDS:
                waited = 0.0
                await self._publish_all(())

    def _look(self) -> dict[Path, Stamp]:
        """The watched files that exist now."""
        files = (Path(where, name) for folder in self._folders for where, _, names in os.walk(folder) for name in names)
        workflows = sorted(file for file in files if file.suffix in SUFFIXES and not file.name.endswith(TESTS))
        used = (path for file in self._files.values() for path in file.used)
        stamps = {file: read_stamp(file) for file in (*workflows, *used) if _is_file(file)}
        if self._project is not None:
            self._modules = self._project.files({module for file in self._files.values() for module in file.modules()})
        return stamps | {file: read_stamp(file) for file in self._modules}

    def _stamps_of_modules(self, stamps: dict[Path, Stamp]) -> dict[Path, Stamp]:
        """The stamps of modules that are loaded: one that was not watched before was imported just now."""
        return {path: stamp for path, stamp in stamps.items() if self._modules.get(path) in sys.modules}

    def _forget(self, gone: Iterable[Path]) -> None:
        for path in gone:
            del self._stamps[path]
            self._files.pop(path, None)

    async def _load_changed(self, changed: Iterable[Path]) -> None:
        saved = {path for path in changed if path not in self._modules}
        using = [path for path, file in self._files.items() if not saved.isdisjoint(file.used)]
        workflows = [*saved, *(path for path in using if path not in saved)]
        modules = [path for path in changed if path in self._modules]
        reloaded = self._reload(modules)
        self._read(workflows)
        published = await self._publish_all(workflows)
        checked = self._together()
        for file in list(self._files.values()):
            if file.stands and (published & file.children() or (reloaded and file.is_calling_python())):
                await self._check(file, checked)

    def _read(self, paths: Iterable[Path]) -> None:
        """Take in workflow files and the modules that they call. The modules are watched before they are imported."""
        for path in paths:
            try:
                read_now = read(path)
            except UsageError as error:  # gone or closed to us since it was listed
                explain(error)
                continue
            if is_shared(read_now):  # the workflows that use it are read instead
                self._files.pop(path, None)
                continue
            source = include_files_of(str(path), read_now)
            file_before = self._files.get(path)
            if file_before is None or file_before.source != source:
                self._files[path] = _File(
                    path, source, _plan_of(source, str(path)), frozenset(used_files(path, read_now))
                )
        stamps = self._look()
        self._stamps = {path: stamps[path] for path in self._modules} | self._stamps

    def _reload(self, paths: Sequence[Path]) -> bool:
        """Import the changed modules anew; whether anything was."""
        if self._project is None or not paths:
            return False
        result = self._project.reload([self._modules[path] for path in paths])
        if result.fault:
            err().print(clean(f"{result.fault}\nThe code stays as it was before this was saved."), style="red")
        elif result.modules:
            say(f"{', '.join(map(_relative_path, paths))} saved; loaded anew: {', '.join(result.modules)}", "green")
        return bool(result.modules)

    # --- publishing

    async def _publish_all(self, saved: Collection[Path]) -> set[str]:
        """Publish the files that do not stand, children before their parents. Returns the names of those published."""
        self._unanswered = False
        published: set[str] = set()
        checked = self._together()
        for file in _sort_by_children([file for file in self._files.values() if not file.stands]):
            reference = await self._publish(file, checked)
            if reference is None:
                continue
            published.add(reference.partition("@")[0])
            if file.path in saved:
                say(f"{_relative_path(file.path)} is saved and published as {reference}", "green")
            elif file.complaint:
                say(f"{_relative_path(file.path)} can be loaded now: published as {reference}", "green")
            file.complaint = ""
        return published

    def _together(self) -> Workflows:
        """The files as `validate` reads them. It imports no modules for that: this process imports them itself."""
        sources = {str(path): file.source for path, file in self._files.items()}
        for file, source in [key for key in self._compiled if sources.get(key[0]) != key[1]]:
            del self._compiled[file, source]
        return Workflows(sources, ModuleFiles(sources, imports=False), cache=self._compiled)

    async def _publish(self, file: _File, checked: Workflows) -> str | None:
        """The reference of the published workflow. If it can't be published: None, and the reason is printed."""
        heading = f"{_relative_path(file.path)} is not loaded"
        try:
            findings = _find_no_error(checked.findings(str(file.path)))
        except DefinitionError as error:
            self._print_fault(file, heading, error)
            return None
        try:
            reference, warnings = await self._backend.publish(file.source, str(file.path), file.plan)
        except (*FAILURES, HaiFlowError) as error:
            if isinstance(error, DefinitionError) and not isinstance(error, RunnersMissing):
                error = DefinitionError(list(dict.fromkeys((*findings, *error.findings))))
            self._print_fault(file, heading, error)
            return None
        file.stands = True
        warnings = list(dict.fromkeys((*findings, *warnings)))  # of the file, and of what this server lacks
        if any(file.path.resolve().is_relative_to(folder) for folder in EXAMPLES):
            warnings = [each for each in warnings if _PLACEHOLDER.search(each.message) is None]
        if warnings:
            print_findings(warnings, read_texts(file.source, str(file.path)), err())
        assert file.plan is not None, "it was compiled"
        self._note(file.plan, reference)
        return reference

    async def _check(self, file: _File, checked: Workflows) -> None:
        """Print a message if a published workflow no longer fits the things that it calls, and when it fits again."""
        try:
            _find_no_error(checked.findings(str(file.path)))
            await self._backend.check(file.source, str(file.path))
        except (*FAILURES, HaiFlowError) as error:
            self._print_fault(
                file, f"{_relative_path(file.path)} is published, but no longer fits what it calls", error
            )
        else:
            if file.complaint:
                say(f"{_relative_path(file.path)} fits what it calls again.", "green")
            file.complaint = ""

    def _print_fault(self, file: _File, heading: str, error: Exception) -> None:
        """Print the fault of a file, unless it is the one that was printed last."""
        unanswered = isinstance(error, FAILURES) or type(error) is StoreError
        self._unanswered |= unanswered
        complaint = "unanswered" if unanswered else f"{heading}: {error}"
        if file.complaint == complaint:
            return
        file.complaint = complaint
        if unanswered:
            say(f"{heading} yet: the database failed ({error}). It is tried again.", "yellow")
        elif isinstance(error, RunnersMissing):  # the file is right; this server lacks the runner
            note(f"{heading}: this server has no runner for {', '.join(error.what)}.")
        elif isinstance(error, DefinitionError):
            err().print(f"{clean(heading)}:", style="red")
            print_findings(error.findings, read_texts(file.source, str(file.path)), err())
        else:
            say(f"{heading}: {error.detail if isinstance(error, Rejected) else error}", "red")

    def _note(self, plan: Plan, reference: str) -> None:
        """Remember a published workflow, and a sample input to start it with."""
        self.names[plan.name] = reference
        self.samples.pop(plan.name, None)
        sample = generate_input(plan.input)
        if sample is not None and any(isinstance(trigger, ApiTrigger) for trigger in plan.triggers):
            self.samples[plan.name] = sample


def _find_no_error(findings: list[Finding]) -> list[Finding]:
    """The findings. Raises DefinitionError if one of them is an error."""
    if any(each.severity == "error" for each in findings):
        raise DefinitionError(findings)
    return findings


def _plan_of(source: bytes, file: str) -> Plan | None:
    with contextlib.suppress(DefinitionError):
        return compile_workflow(source, file)
    return None


def _sort_by_children(files: Sequence[_File]) -> list[_File]:
    """`files` with those that others run before them; else in their order."""
    by_name: dict[str, list[_File]] = {}
    for file in files:
        if file.plan is not None:
            by_name.setdefault(file.plan.name, []).append(file)
    ordered: dict[Path, _File] = {}
    visited: set[Path] = set()

    def visit(file: _File) -> None:
        if file.path in visited:
            return
        visited.add(file.path)
        for name in sorted(file.children()):
            for child in by_name.get(name, ()):
                visit(child)
        ordered[file.path] = file

    for file in files:
        visit(file)
    return list(ordered.values())


def _is_file(path: Path) -> bool:
    """Whether the path is a file. False also if the system can't tell: the name is too long, or its folder is closed to
    us."""
    try:
        return path.is_file()
    except OSError:
        return False


def _relative_path(path: Path) -> str:
    """The path as people in this folder write it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
