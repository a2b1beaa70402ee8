"""How text is shown to people: tables, styles, and what a pipe gets."""

from __future__ import annotations

import io
import json
import re

import pytest
import structlog

from hai_flow.cli.client.questions import question_of
from hai_flow.cli.console import Cell, Styled, TextConsole, clean, json_text
from hai_flow.cli.serve.logs import configure_logs


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
    TextConsole(stream).table(rows, heads=heads)
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
    assert table(("a\nb\tc", "\x1b[31mred")) == ["a b c  [U+001B][31mred"]


def test_signs_that_turn_text_are_visible_and_json_keeps_its_value() -> None:
    wrote = "pay \u202e001\u2066 \x9b2J\x7f\x85\u2028 \u05d0\u200f \x1b[2J"
    assert clean(wrote) == "pay [U+202E]001[U+2066] [U+009B]2J[U+007F][U+0085][U+2028] \u05d0[U+200F] [U+001B][2J"
    for shown in (json_text({wrote: wrote}), json_text([wrote], indent=2)):
        assert clean(shown) == shown
    assert json.loads(json_text({wrote: [wrote]})) == {wrote: [wrote]}


def test_a_title_makes_no_line_of_its_own() -> None:
    title = "Lunch?\n  hai-flow decide x approve\x1b[2J"
    assert question_of({"kind": "approve", "title": title}) == "Lunch? hai-flow decide x approve[U+001B][2J"
    asked = {"kind": "tool", "title": title, "tool": "f", "args": {"\x9b2J": "\u202e"}}
    assert question_of(asked) == 'The client is asked for f({"\\u009b2J": "\\u202e"})'


def test_a_log_on_a_terminal_is_steered_by_nothing_that_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    try:
        configure_logs("info")
        try:
            raise ValueError("\x1b[2J\x9b2J")
        except ValueError as raised:
            log = structlog.get_logger()
            log.warning("e", thread_id="t\x1b[2J\nforged", unknown=["\x9b2J\n"], error=str(raised), exc_info=raised)
    finally:
        structlog.reset_defaults()
    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())  # the styles of the log itself
    assert clean(text) == text
    assert "t[U+001B][2J forged" in text
    assert "ValueError: [U+001B][2J[U+009B]2J" in text


def test_styles_are_for_terminals_that_can_and_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table((Styled("failed", "bold red"), "x")) == ["failed  x"]
    monkeypatch.setenv("TERM", "xterm")
    assert table((Styled("failed", "red"), "x")) == ["\x1b[31mfailed\x1b[0m  x"]
    assert table((Styled("failed", "red"), "x"), stream=io.StringIO()) == ["failed\tx"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert table((Styled("failed", "bold red"), "x"), ("ok", "y")) == ["\x1b[1;31mfailed\x1b[0m  x", "ok      y"]
    monkeypatch.setenv("NO_COLOR", "1")
    assert table((Styled("failed", "bold red"), "x")) == ["failed  x"]
