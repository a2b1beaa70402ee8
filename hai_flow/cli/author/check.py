"""Commands that need no server and no database: `validate` and `version`."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from hai_flow.cli.author.sources import FilesArgument, include_files_of, read_sources
from hai_flow.cli.errors import FAILED, UsageError, print_findings
from hai_flow.cli.terminal import note, out, plural, print_json, program, say
from hai_flow.errors import Finding

UNREAD_SHOWN: Final = 5
MANY_FILES: Final = 500


def validate(
    files: FilesArgument,
    as_json: Annotated[bool, typer.Option("--json", help='Print {"findings": [...]}.')] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Apply certain fixes, as of misspellings, to files.")] = False,
    no_import: Annotated[bool, typer.Option("--no-import", help="Run no project code; only read its source.")] = False,
) -> None:
    """Check workflows offline: every mistake at once, with file, line and column."""
    from hai_flow.checking.modules import ModuleFiles
    from hai_flow.checking.workflows import Workflows
    from hai_flow.definition.yaml.include_keys import read_texts

    sources = dict(read_sources(files))
    if len(sources) > MANY_FILES and not as_json:
        note(f"{len(sources)} files are checked, some hundred in a second.")
    if fix:
        sources = {name: _fix(name, source) for name, source in sources.items()}
    sources = {name: include_files_of(name, source) for name, source in sources.items()}
    modules = ModuleFiles(sources, imports=not no_import)
    workflows = Workflows(sources, modules)
    by_file = {name: workflows.findings(name) for name in sources}
    findings = list(dict.fromkeys(finding for each in by_file.values() for finding in each))  # of a shared file: once
    if as_json:
        unread = [{"tool": name, "reason": reason} for name, reason in sorted(modules.unread.items())]
        notes = [
            {"file": name, "line": line, "column": column, "message": message}
            for name, line, column, message in _unused(sources, by_file)
        ]
        print_json({"findings": [finding.as_dict() for finding in findings], "unread": unread, "notes": notes})
    else:
        texts = {name: text for file, source in sources.items() for name, text in read_texts(source, file).items()}
        print_findings(findings, texts, out())
        say(_summary(by_file, findings), "green" if not findings else None)
        if not any(finding.severity == "error" for finding in findings):
            _tell_unread(modules.unread)
        for name, line, column, message in _unused(sources, by_file):
            say(f"{name}:{line}:{column}: {message}")
        for name, line in _list_unlike_yaml(sources):
            say(f"{name}: editors that know only YAML can't read line {line}; `{program()} fmt` quotes it.")
        if left_out := workflows.count_unread():
            say(f"{plural(left_out, 'file')} beside these, in folders of thousands, were not looked at.")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(FAILED)


def _unused(sources: Mapping[str, bytes], found: Mapping[str, list[Finding]]) -> Iterator[tuple[str, int, int, str]]:
    """What files without errors declare and don't use: each with its file, line and column."""
    from hai_flow.definition.checks.unused_declarations import list_notes

    for name, source in sources.items():
        if not any(finding.severity == "error" for finding in found[name]):
            for line, column, message in list_notes(source):
                yield name, line, column, message


def _list_unlike_yaml(sources: Mapping[str, bytes]) -> Iterator[tuple[str, int]]:
    """The files that YAML alone can't read, for their holes without quotes: each with its first such line."""
    from hai_flow.definition.yaml.document import parse
    from hai_flow.definition.yaml.include_keys import first_of

    for name, source in sources.items():
        own = first_of(source)
        if b"${{" in own and (faults := parse(own, name, strict=True).findings) and not parse(own, name).findings:
            yield name, faults[0].line


def _tell_unread(unread: Mapping[str, str]) -> None:
    """Say which tools were not looked at, and how to let that be done."""
    if unread:
        tools = "; ".join(f"{name} ({reason})" for name, reason in sorted(unread.items())[:UNREAD_SHOWN])
        more = f"; and {len(unread) - UNREAD_SHOWN} more" if len(unread) > UNREAD_SHOWN else ""
        say(f"{plural(len(unread), 'tool')} {'was' if len(unread) == 1 else 'were'} not looked at: {tools}{more}")


_ROUNDS_MAX: Final = 20  # a part that could not be read before may need an edit, too


def _fix(name: str, source: bytes) -> bytes:
    """The document with the edits of its findings made, in its file too. Raises UsageError where that can't be."""
    from hai_flow.definition.compiler import check_workflow
    from hai_flow.definition.yaml.fixes import apply_fixes

    if name == "<stdin>":
        raise UsageError("--fix needs files: what comes from standard input has no place to be written to.")
    before = source
    for _ in range(_ROUNDS_MAX):
        own = [finding for finding in check_workflow(include_files_of(name, source), name) if finding.file == name]
        if not any(finding.fix for finding in own):
            break
        source = apply_fixes(source.decode("utf-8-sig"), own).encode()
    if source != before:
        try:
            Path(name).write_bytes(source)
        except OSError as error:
            raise UsageError(f"{name}: expected a file that can be written: {error.strerror}.") from None
        say(f"{name}: changed")
    return source


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
