"""The output that all commands share: consoles, exit codes, and errors as sentences."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hai_flow.cli.console import Console, cells, clean, json_text
from hai_flow.definition.durations import spell
from hai_flow.errors import DefinitionError, Finding, HaiFlowError, Rejected
from hai_flow.settings import SettingsError
from hai_flow.values import Json

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
WAITS: Final = 3
UNREACHABLE: Final = 4
INTERRUPTED: Final = 130
TERMINATED: Final = 143

EPILOG: Final = (
    "Exit codes: 0 done; 1 refused, failed or findings; 2 wrong usage or settings; 3 the run waits for a person; "
    "4 no server answers; 130 interrupted; 143 terminated."
)


class Problem(HaiFlowError):
    """A server's refusal (problem+json): `body` as it came. `page`: the page of its console that helps, or nothing."""

    def __init__(self, body: dict[str, Json], page: str = "") -> None:
        super().__init__(str(body.get("detail") or body.get("title") or "The server refused without saying why."))
        self.body = body
        self.page = page

    @property
    def code(self) -> str:
        return str(self.body.get("code", ""))


class Unreachable(HaiFlowError):
    """No server answers. The sentence says how to start one."""


class UsageError(HaiFlowError):
    """The command line makes no sense."""


def out() -> Console:
    """Standard output. Made when it is used: tests and pipes replace the stream."""
    return Console(sys.stdout)


def err() -> Console:
    """Standard error: progress and complaints go here, so that the output of a command stays usable in a pipe."""
    return Console(sys.stderr)


def say(text: str, style: str | None = None) -> None:
    """One line for the person at the terminal. It is visible at once, also in a pipe."""
    out().print(clean(text), style=style)
    sys.stdout.flush()


def note(text: str) -> None:
    """One line of progress, beside the output."""
    err().print(clean(text), style="dim")


def print_json(value: Json) -> None:
    """`value` for programs: one JSON document, not coloured and not wrapped."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def write_line(event: Json) -> None:
    """One event as a line of JSON, at once."""
    sys.stdout.write(json_text(event) + "\n")
    sys.stdout.flush()


def compact(value: Json, length: int = 160) -> str:
    """`value` as one line of JSON, cut to `length` characters."""
    text = json_text(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def moment(text: str | None) -> str:
    """A time of REST as commands show it: to the second, UTC."""
    return "" if text is None else text[:19].replace("T", " ") + "Z"


# --- errors -------------------------------------------------------------------------------------------------------


def exit_code_of(error: HaiFlowError) -> int:
    """The exit code for this kind of error."""
    if isinstance(error, (UsageError, SettingsError)):
        return USAGE
    return UNREACHABLE if isinstance(error, Unreachable) else FAILED


def explain(error: HaiFlowError) -> None:
    """Print the error on standard error: its sentence, every finding, and the answer that stands instead, if any."""
    console = err()
    if isinstance(error, DefinitionError):
        print_findings(error.findings, {}, console)
        return
    if isinstance(error, Problem):
        _explain_problem(console, str(error), error.body.get("findings") or (), error.body.get("winner"))
        if error.page:
            console.print(f"  In a browser: {error.page}", style="dim")
    elif isinstance(error, Rejected):
        _explain_problem(console, error.detail, error.findings, error.winner)
    else:
        console.print(f"hai-flow: {clean(str(error))}", style="red")


def _explain_problem(console: Console, detail: str, findings: Sequence[dict[str, Json]], winner: Json) -> None:
    console.print(f"hai-flow: {clean(detail)}", style="red")
    for finding in findings:
        place = finding.get("path") or _place(finding)
        console.print(clean(f"  {place or 'the value'}: {finding.get('message', '')}"))
    if winner is not None:
        console.print(clean(f"  What stands: {compact(winner, 500)}"))


def _place(finding: dict[str, Json]) -> str:
    line = finding.get("line")
    return f"{finding.get('file', '')}:{line}:{finding.get('column', 1)}" if line else str(finding.get("file", ""))


def print_findings(findings: Sequence[Finding], sources: dict[str, str], console: Console) -> None:
    """Each finding with its place and, where the source is at hand, the line and a caret under the place."""
    for finding in findings:
        style = "yellow" if finding.severity == "warning" else "red"
        console.print(clean(f"{finding} [{finding.code}]"), style=style)
        source = sources.get(finding.file)
        if source is not None and finding.line:
            _print_line(source, finding, console, style)


def _print_line(source: str, finding: Finding, console: Console, style: str) -> None:
    lines = source.splitlines()
    if finding.line > len(lines):
        return
    line = clean(lines[finding.line - 1])
    before = line[: max(0, finding.column - 1)].expandtabs(4)
    number = f"{finding.line:5} | "
    console.print(number + line.expandtabs(4), style="dim")
    console.print(" " * (len(number) + cells(before)) + "^", style=style)


def roughly(ms: int) -> str:
    """A duration as people say it: one of hours has no seconds."""
    unit = 60_000 if ms >= 3_600_000 else 1_000 if ms >= 10_000 else 1
    return spell((ms + unit // 2) // unit * unit)


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


# --- how to go on -------------------------------------------------------------------------------------------------


def program() -> str:
    """The command by which this person starts `hai-flow`: its name, or the checkout's `cli.py`."""
    if shutil.which("hai-flow"):
        return "hai-flow"
    bootstrap = Path(__file__).resolve().parents[2] / "cli.py"
    if bootstrap.is_file():
        relative = os.path.relpath(bootstrap)
        return f"python3 {shlex.quote(min(relative, str(bootstrap), key=len))}"
    return f"{shlex.quote(sys.executable)} -m hai_flow.cli"


def indented(text: str) -> str:
    """`text` as lines under a question."""
    return "\n".join(f"  {line}".rstrip() for line in text.rstrip().splitlines())
