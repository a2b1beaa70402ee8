"""The report about tests, as lines of text: the same words in the terminal and in pytest."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from hai_flow.testing.failures import Failure
from hai_flow.testing.runner import Result
from hai_flow.testing.suite import ABSENT
from hai_flow.values import Json

Tone: TypeAlias = Literal["plain", "dim", "bold", "good", "bad"]

WIDTH: Final = 100  # a value that is written in less stays on its line


class ReportLine(NamedTuple):
    """A line, and how it is meant; the terminal colours it."""

    text: str
    tone: Tone = "plain"


def describe(result: Result) -> Iterator[ReportLine]:
    """Everything that is wrong with a case that failed, each thing with its place."""
    source = result.suite.document.text.split("\n")
    last_line = 0
    for failure in result.failures:
        if failure.line != last_line:
            place = f"{result.suite.file}:{failure.line}:{failure.column}:"
            heading = "not as expected" if failure.expected is not ABSENT else failure.message
            yield ReportLine(f"{place} {heading}", "bad")
            yield from _source_line(source, failure)
            last_line = failure.line
        elif failure.expected is ABSENT:
            yield ReportLine(f"      {failure.message}", "bad")
        if failure.expected is not ABSENT:
            yield from _comparison(failure)
    yield ReportLine(f"      {result.run}", "dim")


def _source_line(source: Sequence[str], failure: Failure) -> Iterator[ReportLine]:
    if failure.line <= len(source):
        yield ReportLine(f"{failure.line:5} | {source[failure.line - 1]}", "dim")


def _comparison(failure: Failure) -> Iterator[ReportLine]:
    yield ReportLine(f"      {failure.message}", "bold")
    mine, other = _json_lines(failure.expected), _json_lines(failure.actual)
    if len(mine) == len(other) == 1:
        yield ReportLine(f"        expected  {mine[0]}", "good")
        yield ReportLine(f"        found     {other[0]}", "bad")
        return
    tones: dict[str, Tone] = {"-": "good", "+": "bad"}
    yield ReportLine("        - expected, + found", "dim")
    for line in difflib.ndiff(mine, other):
        if not line.startswith("?"):
            yield ReportLine(f"        {line}", tones.get(line[0], "plain"))


def _json_lines(value: Json) -> list[str]:
    """A value as JSON, on one line if it is short."""
    if value is ABSENT:
        return ["nothing"]
    short = json.dumps(value, ensure_ascii=False)
    if len(short) <= WIDTH or not isinstance(value, (dict, list)):
        return [short]
    return json.dumps(value, ensure_ascii=False, indent=2).split("\n")


def first_words(result: Result) -> str:
    """A failed case in a line: its place, its name, and the first thing that is wrong."""
    failure = result.failures[0]
    message = failure.message
    if failure.expected is not ABSENT:
        expected, actual = (" ".join(_json_lines(value)) for value in (failure.expected, failure.actual))
        message += f": expected {expected}, found {actual}"
    return f"{result.suite.file}:{failure.line} {result.case.name} - {message}"


def closing(results: Sequence[Result], findings: int, deselected: int, seconds: float) -> str:
    """The last line: `12 passed, 1 failed in 0.31s`."""
    passed = sum(result.passed for result in results)
    failed = len(results) - passed
    counts = [f"{passed} passed"] if passed or not (failed or findings) else []
    counts += [f"{failed} failed"] if failed else []
    counts += [f"{findings} finding{'' if findings == 1 else 's'}"] if findings else []
    counts += [f"{deselected} deselected"] if deselected else []
    return f"{', '.join(counts)} in {seconds:.2f}s"
