"""How a command ends: the exit codes, and the errors of commands, told as sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from hai_flow.cli.console import TextConsole, cells, clean, join_lines
from hai_flow.cli.decisions import approval, is_envelope
from hai_flow.cli.terminal import compact, err, program
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
    """A server's refusal (problem+json): `body` as it came. `page`: the page of its console that helps, or nothing.
    `advice`: what the command says besides, as it knows more than the server. `options`: those of the command, by the
    names of their parameters in REST."""

    def __init__(self, body: dict[str, Json], page: str = "", advice: str = "") -> None:
        super().__init__(str(body.get("detail") or body.get("title") or "The server refused without saying why."))
        self.body = body
        self.page = page
        self.advice = advice
        self.options: Mapping[str, str] = {}

    @property
    def code(self) -> str:
        return str(self.body.get("code", ""))

    def name_options(self, text: str) -> str:
        """`text` with an option of the command in place of the parameter to which the server objects."""
        if self.code != "request.invalid":
            return text
        return _PARAMETER.sub(lambda found: self.options.get(found[1].removesuffix("_id"), found[0]), text)


_PARAMETER: Final = re.compile(r"(?:^|(?<=; ))/?(?:query/)?(\w+)(?:/\d+)?(?=: )")


class Unreachable(HaiFlowError):
    """No server answers. The sentence says how to start one."""


class UsageError(HaiFlowError):
    """The command line makes no sense."""


def exit_code_of(error: HaiFlowError) -> int:
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
        _explain_problem(
            console, str(error), error.body.get("findings") or (), error.body.get("winner"), error.name_options
        )
        if error.code == "auth.missing":
            console.print(f"  The command line takes it from HAI_FLOW_KEY; `{program()} keys create` makes one.")
        if error.advice:
            console.print(clean(f"  {error.advice}"))
        if error.page:
            console.print(f"  In a browser: {error.page}", style="dim")
    elif isinstance(error, Rejected):
        _explain_problem(console, error.detail, error.findings, error.winner)
    else:
        console.print(f"hai-flow: {clean(str(error))}", style="red")


def _explain_problem(
    console: TextConsole,
    detail: str,
    findings: Sequence[dict[str, Json]],
    winner: Json,
    translate: Callable[[str], str] = str,
) -> None:
    console.print(f"hai-flow: {clean(translate(detail))}", style="red")
    for finding in findings:
        place = finding.get("path") or _place(finding)
        line = f"{place or 'the value'}: {finding.get('message', '')}"
        if line not in detail and finding.get("message") != detail:
            console.print(clean(f"  {line}"))
    if winner is not None:
        console.print("  As it is now:")
        for line in _lines(winner):
            console.print(clean(f"    {line}"))
        if isinstance(winner, dict) and winner.get("run_id"):
            console.print(f"  To look at that run: {program()} show {winner['run_id']}")


def _lines(value: Json) -> Iterator[str]:
    """A value as lines: of an object `name: value` for each field that has one."""
    if not isinstance(value, dict):
        yield _word(value)
        return
    for name, each in value.items():
        if each is not None:
            yield f"{name}: {_word(each)}"


def _word(value: Json) -> str:
    if isinstance(value, str):
        return join_lines(value)
    return approval(value) if is_envelope(value) else compact(value, 500)


def _place(finding: dict[str, Json]) -> str:
    line = finding.get("line")
    return f"{finding.get('file', '')}:{line}:{finding.get('column', 1)}" if line else str(finding.get("file", ""))


def print_findings(findings: Sequence[Finding], sources: dict[str, str], console: TextConsole) -> None:
    """Each finding with its place and, where the source is at hand, the line and a caret under the place."""
    for finding in findings:
        style = "yellow" if finding.severity == "warning" else "red"
        console.print(clean(f"{finding} [{finding.code}]"), style=style)
        source = sources.get(finding.file)
        if source is not None and finding.line:
            _print_line(source, finding, console, style)


def _print_line(source: str, finding: Finding, console: TextConsole, style: str) -> None:
    lines = source.splitlines()
    if finding.line > len(lines):
        return
    line = clean(lines[finding.line - 1])
    before = line[: max(0, finding.column - 1)].expandtabs(4)
    number = f"{finding.line:5} | "
    console.print(number + line.expandtabs(4), style="dim")
    console.print(" " * (len(number) + cells(before)) + "^", style=style)


def print_definition_error(findings: Iterable[Finding], path: str, source: bytes) -> None:
    """Print the mistakes of one file, with the lines that they are in."""
    from hai_flow.definition.yaml.include_keys import read_texts

    print_findings(list(findings), read_texts(source, path), err())
