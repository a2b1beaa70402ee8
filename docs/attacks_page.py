"""Writes the table of attacks into docs/security.md (`make docs`), from the registry of those that the tests try."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.attacks.registry import ATTACKS, INAPPLICABLE, table

PAGE: Final = Path(__file__).parent / "security.md"
BEGIN, END = "<!-- attacks: written by `make docs` -->\n", "<!-- end of attacks -->\n"


def section() -> str:
    """The table, as Markdown, and why cells of it are empty."""
    counted = table()
    doors = list(next(iter(counted.values())))
    lines = [f"| of {len(ATTACKS)} | {' | '.join(doors)} |", "|---" * (1 + len(doors)) + "|"]
    for kind, by_door in counted.items():
        lines.append(f"| {kind} | {' | '.join(str(by_door[door] or '') for door in doors)} |")
    reasons: dict[str, list[str]] = {}
    for (kind, door), reason in INAPPLICABLE.items():
        reasons.setdefault(f"{kind}: {reason}", []).append(door)
    told = [f"{reason} ({', '.join(where)})" for reason, where in reasons.items()]
    return "\n".join([*lines, "", f"Not there: {'; '.join(told)}.", ""])


def page(text: str) -> str:
    """The page `text` with the table as it is now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + section() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
