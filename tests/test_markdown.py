"""Markdown as plain text: its marks are gone, and every word is left."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.primitives.markdown import to_text


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("## What changes", "What changes"),
        ("The **new** price is *lower*, ~~100~~ `a_b`", "The new price is lower, 100 a_b"),
        ("* one\n  + two\n- three", "- one\n  - two\n- three"),
        ("see [the contract](https://a.example/b)", "see the contract (https://a.example/b)"),
        ("![pixel](https://a.example/p.png)", "pixel (https://a.example/p.png)"),
        ("| part | old |\n|---|--:|\n| A | 1 |\n| longer | 2 |", "part    old\nA       1\nlonger  2"),
        ("```python\nprint(**x**)\n```", "    python\n    print(**x**)"),
        ("2 * 3 * 4, snake_case_name, **open", "2 * 3 * 4, snake_case_name, **open"),
        ("- - -", "-" * 20),
        ("<b>as it is</b>", "<b>as it is</b>"),
        ("", ""),
    ],
)
def test_markdown_loses_its_marks_and_keeps_its_words(markdown: str, text: str) -> None:
    assert to_text(markdown) == text


@given(st.text(alphabet="ab1 *_`#[]()|>-~!\\\n", max_size=200))
def test_no_word_of_any_text_is_lost(markdown: str) -> None:
    letters = re.compile(r"[ab1]")
    assert letters.findall(to_text(markdown)) == letters.findall(markdown)


@pytest.mark.parametrize("text", ["*a ", "[", "[a](", "`", "> ", "- ", "_a*b~~", "|", " ", "\t|", "- -", "```\n", "|-"])
def test_hostile_text_takes_no_long_time(text: str) -> None:
    began = time.process_time()
    to_text(text * 20_000)
    to_text(f"a|b\n{text * 20_000}")
    assert time.process_time() - began < 3
