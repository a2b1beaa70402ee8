"""A mutant: a bug with a name, as an edit of one source file, and the tests that should notice it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


class DoesNotApply(Exception):
    """The mutant does not fit the source as it is today. The message says which edit, and what to do."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` says what goes wrong. `edits` are pairs (old, new) in `file`: each old text stands there exactly once.

    `tests` are what pytest is given: files, or `file::name`; the first that fails ends the run, so the test that is
    meant to notice comes first.
    """

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """The file's source with the bug in it. Raises `DoesNotApply`."""
        for old, new in self.edits:
            found = source.count(old)
            if found != 1:
                raise DoesNotApply(
                    f"{self.name!r} expects this text exactly once in {self.file}, found {found} times; write the "
                    f"mutant for the source as it is now, or take it out:\n{old}"
                )
            source = source.replace(old, new)
        try:
            ast.parse(source)
        except SyntaxError as error:
            raise DoesNotApply(f"{self.name!r} makes {self.file} unreadable: {error}") from None
        return source


class Room:
    """The mutants of some files that are noticed by the same tests, if they don't say otherwise."""

    def __init__(self, file: str, *tests: str) -> None:
        self.file = file
        self.tests = tests
        self.mutants: list[Mutant] = []

    def bug(self, name: str, *edits: tuple[str, str], by: str | tuple[str, ...] = ()) -> None:
        """One bug more. `by`: what notices it, in place of the room's tests."""
        tests = (by,) if isinstance(by, str) else by
        self.mutants.append(Mutant(name, self.file, edits, tests or self.tests))
