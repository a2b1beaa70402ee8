"""Decisions are found by their number: each has one of its own, and its title says it."""

from __future__ import annotations

from pathlib import Path

DECISIONS = Path(__file__).resolve().parents[1] / "docs" / "decisions"


def test_every_decision_has_a_number_of_its_own_which_its_title_says() -> None:
    found = sorted(path.name for path in DECISIONS.glob("*.md"))
    assert [name[:4] for name in found] == [f"{n:04}" for n in range(1, len(found) + 1)]
    for name in found:
        title = (DECISIONS / name).read_text().partition("\n")[0]
        assert title.startswith(f"# {int(name[:4])}. "), name
