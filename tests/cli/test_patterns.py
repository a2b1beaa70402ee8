"""Texts for patterns: those that are given match, and no pattern takes long."""

from __future__ import annotations

import random
import time

import pytest

from hai_flow.cli.client.patterns import LONGEST, matching
from hai_flow.definition.schemas.schemas import JsonSchema

SIMPLE = [
    ("^v[0-9]$", "v0"),
    ("^CC-[0-9]{4}$", "CC-0000"),
    (r"^\d{5}(-\d{4})?$", "11111"),
    ("^(red|green)$", "red"),
    ("^[a-z][a-z0-9_]*$", "a"),
    ("^(?:a|b)+c{2,3}$", "acc"),
    ("^(?<year>[0-9]{4})-[0-9]{2}$", "0000-00"),
    (r"^[\w.+-]+@[\w-]+\.[a-z]{2,}$", "a@a.aa"),
    ("^[^a-z]$", "A"),
    ("^[]$", None),
    ("[-a]", "-"),
    ("^$", ""),
    (r"^\+[1-9]\d{1,14}$", "+11"),
    ("^[A-Z]{3}[0-9]+?$", "AAA0"),
]
UNKNOWN = [
    "(?=a)b",
    r"(a)\1",
    r"\p{L}",
    "(?i)a",
    "a{9999999}",
    "(",
    "a)",
    "[",
    "*a",
    "a{2",
    "[[a]]",
    r"\u0041",
    "a" * 5000,
]


@pytest.mark.parametrize(("pattern", "text"), SIMPLE)
def test_the_text_of_a_simple_pattern_is_short_and_matches(pattern: str, text: str | None) -> None:
    assert matching(pattern) == text
    if text is not None:
        assert JsonSchema({"pattern": pattern}).findings(text) == []


@pytest.mark.parametrize("pattern", UNKNOWN)
def test_what_the_grammar_does_not_have_has_no_text(pattern: str) -> None:
    assert matching(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(" * 500, "(a|" * 300 + "b", "^" * 900, "(a{99}){99}" * 20, "((a{9}){9}){9}"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    begun = time.process_time()
    for more in range(40):
        text = matching(pattern, more)
        assert text is None or len(text) <= LONGEST * 2
    assert time.process_time() - begun < 5


def test_no_pattern_ends_the_program() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        pattern = "".join(chance.choices("ab01()[]{}|*+?^$.-,\\dw<>:=! ", k=chance.randint(0, 12)))
        text = matching(pattern, chance.randint(0, 3))
        assert text is None or len(text) <= LONGEST * 2
