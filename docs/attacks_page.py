"""Writes the tables of attacks into docs/security.md (`make docs`), from the registries of those that the tests try."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.attacks import classes, work
from tests.attacks.registry import ATTACKS, INAPPLICABLE, table

PAGE: Final = Path(__file__).parent / "security.md"
WORK_BEGIN, WORK_END = "<!-- attempts at work: written by `make docs` -->\n", "<!-- end of attempts at work -->\n"
CLASSES_BEGIN, CLASSES_END = (
    "<!-- classes of attacks: written by `make docs` -->\n",
    "<!-- end of classes of attacks -->\n",
)
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


def section_of_work() -> str:
    """The table of attempts to make a process work for long, as Markdown."""
    counted = work.table()
    places = list(next(iter(counted.values())))
    lines = [f"| of {len(work.ATTEMPTS)} | {' | '.join(places)} |", "|---" * (1 + len(places)) + "|"]
    for kind, by_place in counted.items():
        lines.append(f"| {kind} | {' | '.join(str(by_place[place] or '') for place in places)} |")
    return "\n".join([*lines, ""])


def section_of_classes() -> str:
    """How many attempts there are in each class, in full tens, and the rule that holds against it, as Markdown.

    One attempt more or less does not make the page untrue, so no test fails for it.
    """
    tens = {name: count // 10 * 10 for name, count in classes.counted().items()}
    lines = [f"| of {sum(tens.values())} | attempts at least | the rule |", "|---" * 3 + "|"]
    lines += [f"| {name} | {tens[name]} | {each.rule} |" for name, each in classes.CLASSES.items()]
    return "\n".join([*lines, ""])


def page(text: str) -> str:
    """The page `text` with the tables as they are now."""
    sections = (
        (BEGIN, section(), END),
        (CLASSES_BEGIN, section_of_classes(), CLASSES_END),
        (WORK_BEGIN, section_of_work(), WORK_END),
    )
    for begin, written, end in sections:
        before, rest = text.split(begin)
        text = before + begin + written + end + rest.split(end)[1]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
