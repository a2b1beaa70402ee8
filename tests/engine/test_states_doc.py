"""The published table of states is the one that the engine obeys."""

from __future__ import annotations

from pathlib import Path

from docs.states_page import document


def test_docs_run_states_is_up_to_date() -> None:
    written = Path(__file__).parents[2] / "docs" / "run-states.md"
    assert written.read_text() == document(), "run `make docs`"
