"""The classes of attacks around a gate, the tests that try each, and where its rule is told.

`docs/attacks_page.py` counts the attempts, each a test with one set of parameters, and prints them.
"""

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
        "whoever caused a run, by an event, a schedule, a run that ended or a fork, counts as its requester",
    ),
    "skip and its kin": Class(
        ("test_skip_and_its_kin", "test_two_acts_at_once"),
        "what people decide is not skipped, retried, forked, migrated or jumped around by those behind the run",
    ),
    "versions": Class(
        ("test_versions",), "requesters start the latest version; nothing begins with one that was retired"
    ),
    "aliases": Class(("test_aliases", "test_second_identity"), "all ids of a person of a tenant are that person"),
    "delegations": Class(
        ("test_delegations", "test_absences"),
        "they end with the key, session or person, and lend no more than the giver holds now",
    ),
    "tokens": Class(
        ("test_tokens",), "a token decides as those its key speaks for, and opens its threads and workflows alone"
    ),
    "chats": Class(
        ("test_chat",), "a platform proves its call, and a button decides once, from its card, as the account's person"
    ),
    "forks": Class(("test_forks",), "a fork that is refused stops nothing, and its work is somebody's"),
    "schemas": Class(("test_work_of_servers",), "their work, and that of values, is counted before it is done"),
    "documents": Class(("test_bombs", "test_publishing"), "they are bounded, and checked beside the loop"),
    "expressions": Class((), "they are bounded, linear, and given up within their budget"),
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
