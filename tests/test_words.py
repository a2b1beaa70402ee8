"""Docstrings name the things that they speak of.

"What stands there", "who may answer", "as nobody else does": a sentence with such a subject makes its reader open the
code to learn which thing or person is meant. English needs these words now and then, so their share is bounded, and
none is forbidden."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hai_flow"
RIDDLES = frozenset(("who", "whom", "whoever", "what", "nobody", "such", "told", "said"))
SHARE_MAX = 0.7  # of 100 words in the docstrings of a package; other projects have 0.1 to 0.4
WORST = 5  # modules that a failure names
_WORD = re.compile(r"[a-z']+")


class Count(NamedTuple):
    """The words of some docstrings, and how many of them are riddles."""

    words: int = 0
    riddles: int = 0

    @property
    def share(self) -> float:
        """Riddles of 100 words."""
        return 100 * self.riddles / max(self.words, 1)


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, and of the classes and functions in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def counted(texts: Iterable[str]) -> Count:
    words = Counter(word for text in texts for word in _WORD.findall(text.lower()))
    return Count(words.total(), sum(words[each] for each in RIDDLES))


def fault(package: str, modules: dict[str, Count]) -> str | None:
    """A sentence where the share of the package is too large, with the modules that have most of it."""
    whole = Count(sum(each.words for each in modules.values()), sum(each.riddles for each in modules.values()))
    if whole.share <= SHARE_MAX:
        return None
    worst = sorted((name for name in modules if modules[name].riddles), key=lambda name: -modules[name].riddles)
    named = ", ".join(f"{name} ({modules[name].riddles} of {modules[name].words} words)" for name in worst[:WORST])
    return (
        f"The docstrings of {package} have {whole.share:.2f} of {', '.join(sorted(RIDDLES))} in 100 words, and "
        f"{SHARE_MAX} are allowed: name the thing or the person instead. Worst are {named}."
    )


@pytest.mark.parametrize("package", ["hai_flow", *sorted(each.parent.name for each in PACKAGE.glob("*/__init__.py"))])
@pytest.mark.slow
def test_the_docstrings_of_a_package_are_no_riddles(package: str) -> None:
    paths = PACKAGE.glob("*.py") if package == "hai_flow" else (PACKAGE / package).rglob("*.py")
    modules = {str(path.relative_to(ROOT)): counted(docstrings(path.read_text("utf-8"))) for path in sorted(paths)}
    found = fault(package if package == "hai_flow" else f"hai_flow/{package}", modules)
    assert found is None, found


def test_riddles_are_counted_in_docstrings_alone() -> None:
    source = '''
"""What is told."""

who = "nobody"  # said


class Told:
    """Such a thing."""

    async def what(self) -> None:
        """The notification, whatever it is."""
'''
    assert counted(docstrings(source)) == Count(words=11, riddles=3)


def test_a_fault_names_the_package_its_share_and_its_worst_modules() -> None:
    modules = {"a.py": Count(100, 1), "b.py": Count(100, 3), "c.py": Count(100, 0)}
    found = fault("hai_flow/steps", modules)
    assert found is not None
    assert found.startswith("The docstrings of hai_flow/steps have 1.33 of ")
    assert found.endswith("Worst are b.py (3 of 100 words), a.py (1 of 100 words).")
    assert fault("hai_flow/steps", {"a.py": Count(1000, 7)}) is None
