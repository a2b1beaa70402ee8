"""The classes of attacks around a gate, the tests that try each, and where its rule is told.

`docs/attacks_page.py` counts the attempts, each a test with one set of parameters, and prints them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from tests.attacks.work import ATTEMPTS

FOLDER: Final = Path(__file__).parent


class Class(NamedTuple):
    """A class: its tests (names of modules here), and the rule that holds against it."""

    modules: tuple[str, ...]
    rule: str


CLASSES: Final[dict[str, Class]] = {
    "triggers": Class(
        ("test_triggers",),
        "everybody who caused a run, by an event, a schedule, the end of a run or a fork, counts as its requester",
    ),
    "skip and its kin": Class(
        ("test_skip_and_its_kin", "test_two_acts_at_once"),
        "those behind a run can't pass its questions by a skip, retry, fork, migration or jump",
    ),
    "versions": Class(("test_versions",), "requesters start the latest version; nothing begins with a retired one"),
    "aliases": Class(("test_aliases", "test_second_identity"), "all ids of a person of a tenant are that person"),
    "delegations": Class(
        ("test_delegations", "test_absences"),
        "they end with the key, session or person, and lend only rights that the giver still has",
    ),
    "tokens": Class(
        ("test_tokens",), "a token decides only for the people of its key, and opens only its threads and workflows"
    ),
    "agents": Class(
        ("test_people_of_agents",), "an agent, and a token of its key, passes no question of those for whom it acts"
    ),
    "chats": Class(
        ("test_chat",),
        "a platform proves its call; a button decides once, from its own card, as the person of the account",
    ),
    "forks": Class(("test_forks",), "a refused fork stops nothing, and no work is lost between two runs"),
    "schemas": Class(("test_work_of_servers",), "their work, and that of values, is estimated before it is done"),
    "documents": Class(("test_bombs", "test_publishing"), "they are bounded, and checked beside the event loop"),
    "expressions": Class((), "they are bounded and linear, and stopped at their budget"),
}
"""The attempts of `work.ATTEMPTS` count for the last three as well."""


def counted() -> dict[str, int]:
    """How many attempts there are in each class."""
    files = [str(FOLDER / f"{module}.py") for each in CLASSES.values() for module in each.modules]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "-q", *files]
    found = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, check=True).stdout
    of_modules = Counter(Path(line.partition("::")[0]).stem for line in found.splitlines() if "::" in line)
    of_kinds = Counter(attempt.kind for attempt in ATTEMPTS)
    return {name: sum(of_modules[module] for module in each.modules) + of_kinds[name] for name, each in CLASSES.items()}
