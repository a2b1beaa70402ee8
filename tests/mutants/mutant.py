"""A mutant: a bug with a name, as an edit of one source file, and the tests that should notice it."""

from __future__ import annotations

import ast
import bisect
import functools
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]


class DoesNotApply(Exception):
    """The mutant does not fit the source as it is today. The message says which edit, and what to do."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` says what goes wrong. `edits` are pairs (old, new) in `file`: each old text stands there exactly once.

    `tests` are what pytest is given: files, or `file::name`; the first that fails ends the run, so the test that is
    meant to notice comes first."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """The file's source with the bug in it. Raises `DoesNotApply`."""
        original, before, behind = source, len(source), len(source)
        for old, new in self.edits:
            found = source.count(old)
            if found != 1:
                raise DoesNotApply(
                    f"{self.name!r} expects this text exactly once in {self.file}, found {found} times; write the "
                    f"mutant for the source as it is now, or take it out:\n{old}"
                )
            at = source.index(old)
            before, behind = min(before, at), min(behind, len(source) - at - len(old))
            source = source.replace(old, new)
        first, last = _statements_around(original, before, len(original) - behind)
        try:
            ast.parse(source[first : len(source) - (len(original) - last)])
        except SyntaxError as error:
            raise DoesNotApply(f"{self.name!r} makes {self.file} unreadable: {error}") from None
        return source


def _statements_around(source: str, start: int, end: int) -> tuple[int, int]:
    """Where the statements of the module begin and end that hold what stands from `start` to `end`. To parse them is a
    tenth of the work of parsing the whole file."""
    places = _begins(source)
    first = places[max(bisect.bisect_right(places, start) - 1, 0)]
    behind = bisect.bisect_left(places, end)
    return first, places[behind] if behind < len(places) else len(source)


@functools.cache
def _begins(source: str) -> list[int]:
    """Where each line begins in which a statement of the module does; the first is that of the file."""
    lines = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    statements = ast.parse(source).body
    firsts = {
        min([each.lineno, *(above.lineno for above in getattr(each, "decorator_list", ()))]) for each in statements
    }
    return [0, *(lines[number - 1] for number in sorted(firsts) if number > 1)]


class Bug:
    """A mutant in the making, which is noticed by the tests of its room."""

    def __init__(self, name: str, tests: tuple[str, ...]) -> None:
        self.name = name
        self.tests = tests
        self.edits: tuple[tuple[str, str], ...] = ()

    def edit(self, old: str, new: str) -> Self:
        """Replace `old` in the room's file by `new`. A further edit finds the text as this one leaves it."""
        self.edits += ((old, new),)
        return self

    def by(self, *tests: str) -> Self:
        """Name what notices it, in place of the room's tests."""
        self.tests = tests
        return self


class Room:
    """The mutants of a file that are noticed by the same tests, if they don't say otherwise."""

    def __init__(self, file: str, *tests: str) -> None:
        self.file = file
        self.tests = tests
        self._bugs: list[Bug] = []

    def bug(self, name: str) -> Bug:
        """One bug more."""
        self._bugs.append(Bug(name, self.tests))
        return self._bugs[-1]

    @property
    def mutants(self) -> list[Mutant]:
        return [Mutant(each.name, self.file, each.edits, each.tests) for each in self._bugs]
