"""All mutants: those made by hand, room by room, and those made by rule."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants import (
    agents,
    assurance,
    authoring,
    backtest,
    border,
    cells,
    chats,
    doubts,
    engine,
    freezes,
    heirs,
    masking,
    minds,
    models,
    neighbours,
    oversight,
    picks,
    readers,
    rules,
    runtime,
    still,
    store,
    terms,
    trust,
)
from tests.mutants.mutant import Mutant, Room
from tests.mutants.operators import Target, mutants_of

SURVIVORS: Final = Path(__file__).with_name("survivors.toml")

MODULES: Final = (
    engine, backtest, rules, still, freezes, chats, store, runtime, masking, models, cells, authoring, border,
    neighbours, picks, trust, heirs, agents, assurance, oversight, readers, terms, doubts, minds,
)  # fmt: skip
BY_HAND: Final = tuple(each for module in MODULES for each in vars(module).values() if isinstance(each, Room))
BY_RULE: Final = (*engine.TARGETS, *store.TARGETS)


def all_mutants() -> list[Mutant]:
    """Every mutant, in the order of the rooms."""
    made = [mutant for room in BY_HAND for mutant in room.mutants]
    return made + [mutant for target in BY_RULE for mutant in mutants_of(target)]


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test notices. `why`: why none can, or need."""

    mutant: str
    why: str


def survivors() -> list[Survivor]:
    """Those that are known to survive, as `survivors.toml` lists them."""
    return [Survivor(**each) for each in tomllib.loads(SURVIVORS.read_text()).get("survivor", ())]


__all__ = ["BY_HAND", "BY_RULE", "MODULES", "SURVIVORS", "Survivor", "Target", "all_mutants", "survivors"]
