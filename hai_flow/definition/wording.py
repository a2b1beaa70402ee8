"""The wording of findings: the kind of a value, a text cut short, and the name that was perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from hai_flow.values import Json


def suggestion(word: str, known: Sequence[str] | Mapping[str, Any] | frozenset[str]) -> str:
    """`; did you mean x?` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


def kind_of(value: Json) -> str:
    """The kind of a value, in words for people."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"{str(value).lower()} (a boolean)"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {shorten(value)!r}"
        case list():
            return "a list"
        case _:
            return "a mapping"


def shorten(text: str, limit: int = 40) -> str:
    """`text` short enough to stand in a sentence."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
