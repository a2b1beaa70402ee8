"""How text is shown to people: tables, styles, and what a pipe gets."""

from __future__ import annotations

import io

import pytest

from hai_flow.cli.console import Cell, Console, Styled


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that has no styles, unless a test says otherwise."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "dumb")


def table(*rows: tuple[Cell, ...], heads: tuple[str, ...] = (), stream: io.StringIO | None = None) -> list[str]:
    stream = stream or Terminal()
    Console(stream).table(rows, heads=heads)
    return stream.getvalue().splitlines()


def test_columns_stand_below_each_other_and_no_line_ends_with_spaces() -> None:
    lines = table(("a", "finished", "1"), ("bcd", "x", ""), ("", "", ""), heads=("step", "status", "attempt"))
    assert lines == ["step  status    attempt", "a     finished  1", "bcd   x", ""]


def test_a_pipe_gets_a_tab_between_columns_and_no_padding() -> None:
    lines = table(("a", "finished", "1"), ("bcd", "x", ""), heads=("step", "status", "n"), stream=io.StringIO())
    assert lines == ["step\tstatus\tn", "a\tfinished\t1", "bcd\tx"]


def test_a_wide_character_takes_two_columns() -> None:
    assert table(("删除", "x"), ("ab", "y")) == ["删除  x", "ab    y"]


def test_what_somebody_wrote_stays_one_line_and_steers_nothing() -> None:
    assert table(("a\nb\tc", "\x1b[31mred")) == ["a b c  \ufffd[31mred"]


def test_styles_are_for_terminals_that_can_and_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table((Styled("failed", "bold red"), "x")) == ["failed  x"]
    monkeypatch.setenv("TERM", "xterm")
    assert table((Styled("failed", "red"), "x")) == ["\x1b[31mfailed\x1b[0m  x"]
    assert table((Styled("failed", "red"), "x"), stream=io.StringIO()) == ["failed\tx"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert table((Styled("failed", "bold red"), "x"), ("ok", "y")) == ["\x1b[1;31mfailed\x1b[0m  x", "ok      y"]
    monkeypatch.setenv("NO_COLOR", "1")
    assert table((Styled("failed", "bold red"), "x")) == ["failed  x"]
