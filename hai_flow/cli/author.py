"""Commands that need no server and no database: `validate` and `version`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hai_flow.cli.errors import FAILED, UsageError, print_findings
from hai_flow.cli.sources import FilesArgument, read_whole, sources_of, whole
from hai_flow.cli.terminal import out, plural, print_json, say
from hai_flow.errors import DefinitionError, Finding

if TYPE_CHECKING:
    from hai_flow.definition.children import Child


def validate(
    files: FilesArgument,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"findings": [...]}.')] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Mend in the files what is only misspelt.")] = False,
) -> None:
    """Check workflows offline: every mistake at once, with file, line and column."""
    from hai_flow.cli.modules import ModuleFiles
    from hai_flow.definition.compiler import check_workflow
    from hai_flow.definition.uses import texts_of

    sources = dict(sources_of(files))
    if fix:
        sources = {name: _fixed(name, source) for name, source in sources.items()}
    sources = {name: whole(name, source) for name, source in sources.items()}
    children = _Neighbours(sources)
    modules = ModuleFiles(sources)
    found = {
        name: check_workflow(source, name, children=children.find, modules=modules.find)
        for name, source in sources.items()
    }
    for name, more in _doubles(sources).items():
        found[name] = [*found[name], *more]
    findings = list(dict.fromkeys(finding for each in found.values() for finding in each))  # of a shared file: once
    if as_json:
        print_json({"findings": [finding.as_dict() for finding in findings]})
    else:
        texts = {name: text for file, source in sources.items() for name, text in texts_of(source, file).items()}
        print_findings(findings, texts, out())
        say(_summary(found, findings), "green" if not findings else None)
        if modules.unread and not any(finding.severity == "error" for finding in findings):
            names = ", ".join(sorted(modules.unread))
            say(f"Not looked at: {names}; validate where these Python modules lie, or are installed.")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(FAILED)


def _doubles(sources: dict[str, bytes]) -> dict[str, list[Finding]]:
    """A finding in each of the files of a folder that have one name and version, or one path of a webhook: only one of
    them can be published."""
    from hai_flow.definition.compiler import compile_workflow
    from hai_flow.definition.plan import WebhookTrigger

    places: dict[tuple[Path, str], list[tuple[str, str]]] = {}
    for file, source in sources.items():
        with suppress(DefinitionError):
            plan = compile_workflow(source, file)
            folder = Path(file).parent
            places.setdefault((folder, f"the name `{plan.name}@{plan.version}`"), []).append((file, "name:"))
            for path in dict.fromkeys(each.path for each in plan.triggers if isinstance(each, WebhookTrigger)):
                places.setdefault((folder, f"the webhook path `{path}`"), []).append((file, path))
    found: dict[str, list[Finding]] = {}
    for (_, what), each in places.items():
        for file, word in each if len(each) > 1 else ():
            others = ", ".join(Path(other).name for other, _ in each if other != file)
            message = f"{others} has {what} too: only one of them can be published; change it in one of them"
            found.setdefault(file, []).append(
                Finding(file, _line_of(sources[file], word), 1, "error", "file.double", message)
            )
    return found


def _line_of(source: bytes, word: str) -> int:
    """The first line with `word`, from 1; the first line of all where none has it."""
    lines = source.decode("utf-8", "replace").splitlines()
    return next((number for number, line in enumerate(lines, 1) if word in line), 1)


_ROUNDS_MAX: Final = 20  # a part that could not be read before may need an edit, too


def _fixed(name: str, source: bytes) -> bytes:
    """The document with the edits of its findings made, in its file too. Raises UsageError where that can't be."""
    from hai_flow.definition.compiler import check_workflow
    from hai_flow.definition.fixes import fixed

    if name == "<stdin>":
        raise UsageError("--fix needs files: what comes from standard input has no place to be written to.")
    before = source
    for _ in range(_ROUNDS_MAX):
        own = [finding for finding in check_workflow(whole(name, source), name) if finding.file == name]
        if not any(finding.fix for finding in own):
            break
        source = fixed(source.decode("utf-8-sig"), own).encode()
    if source != before:
        try:
            Path(name).write_bytes(source)
        except OSError as error:
            raise UsageError(f"{name}: expected a file that can be written: {error.strerror}.") from None
        say(f"{name}: changed")
    return source


class _Neighbours:
    """The workflows that are checked together, and those beside them in their folders. Any of them may be a child.

    The folders are read when a child is first asked for.
    """

    def __init__(self, sources: dict[str, bytes]) -> None:
        self._sources = sources
        self._known: dict[tuple[str, int], Child] | None = None

    def find(self, name: str, version: int | None) -> Child | None:
        """The child of that name and version, or of its highest."""
        if self._known is None:
            self._known = dict(self._read())
        if version is None:
            version = max((number for known, number in self._known if known == name), default=0)
        return self._known.get((name, version))

    def _read(self) -> Iterator[tuple[tuple[str, int], Child]]:
        from hai_flow.definition.children import child_of
        from hai_flow.definition.compiler import compile_workflow

        folders = {Path(name).parent for name in self._sources if name != "<stdin>"}
        beside = {
            str(path): path for folder in folders for path in sorted(folder.glob("*.flow.y*ml")) if path.is_file()
        }
        for name in {**dict.fromkeys(self._sources), **beside}:
            with suppress(DefinitionError, UsageError):
                plan = compile_workflow(self._sources.get(name) or read_whole(beside[name]), name)
                yield (plan.name, plan.version), child_of(plan)


def _summary(found: dict[str, list[Finding]], findings: list[Finding]) -> str:
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
