"""Samples of mutants, and what one of them says about all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import sqrt
from random import Random
from typing import Final

from tests.mutants.mutant import Mutant

_DEVIATIONS: Final = 1.96  # within which 95 of 100 samples lie


def shuffle(mutants: Sequence[Mutant], seed: int) -> list[Mutant]:
    """Put the mutants into an order of which each beginning is a sample with the same share of every file.

    The order within a file depends on nothing but the seed and the file's own mutants."""
    by_file: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_file[mutant.file].append(mutant)
    placed: list[tuple[float, str, Mutant]] = []
    for file, those in by_file.items():
        chance = Random(f"{seed} {file}")
        chance.shuffle(those)
        placed += [((i + chance.random()) / len(those), mutant.name, mutant) for i, mutant in enumerate(those)]
    return [mutant for _, _, mutant in sorted(placed, key=lambda each: each[:2])]


def estimate(killed: int, tried: int, all_: int) -> tuple[float, float, float]:
    """Return the share of those tried that are killed, and the bounds of the share of all: Wilson's interval of 95 %.

    It is that of a simple sample, and so a little wider than one of equal shares of the files needs."""
    if not tried:
        return 1.0, 0.0, 1.0
    share = killed / tried
    if tried == all_:
        return share, share, share
    size = tried * (all_ - 1) / (all_ - tried)  # the fewer are left, the less is open
    squared = _DEVIATIONS**2 / size
    middle = (share + squared / 2) / (1 + squared)
    width = _DEVIATIONS * sqrt(share * (1 - share) / size + squared / size / 4) / (1 + squared)
    return share, max(middle - width, 0.0), min(middle + width, 1.0)
