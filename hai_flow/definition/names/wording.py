"""The wording of findings: the kind of a value, a text cut short, and the name that was perhaps meant."""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hai_flow.values import Json

_ODD_DASH: Final = re.compile(r" *(?:- +)*([\u2010-\u2015\u2212\uff0d]) +\S")
_ODD_COLON: Final = re.compile(r" *(?:- +)*[A-Za-z_][\w-]*([\uff1a\ufe55\u2236\ua789])")


def describe_odd_sign(line: str) -> str | None:
    """The message about a dash of an item or a colon of a key that only looks like YAML's; None: it is none."""
    for pattern, remedy in ((_ODD_DASH, "`- `"), (_ODD_COLON, "`: `")):
        if (match := pattern.match(line)) is not None:
            return f"{name_sign(match[1])} is plain text; write {remedy}"
    return None


def name_sign(sign: str) -> str:
    """A sign as it stands, and outside of ASCII its code point and its name in Unicode."""
    return f"`{sign}`" if sign.isascii() else f"`{sign}` (U+{ord(sign):04X}, {unicodedata.name(sign, '?').lower()})"


def suggestion(word: str, known: Sequence[str] | Mapping[str, Any] | frozenset[str], *, likeness: float = 0.6) -> str:
    """`; did you mean x?` for the nearest known word, or nothing. `likeness`: from 0 to 1, the least that counts."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return f"; did you mean `{near[0]}`?" if near else ""


def kind_of(value: Json) -> str:
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


_PLAIN: Final = re.compile(r"(\.{1,2}/)?[A-Za-z][\w ./@-]*(:[\w./@-]+)*")
_VOWEL_FIRST: Final = ("http", "llm", "mcp")  # spelt out, they begin with a vowel


def article(word: str) -> str:
    """`word` in backticks behind its article: a `call`, an `approve`, an `llm`."""
    an = word[:1] in "aeiou" or word in _VOWEL_FIRST
    return f"{'an' if an else 'a'} `{word}`"


def as_yaml(text: str) -> str:
    """A short text as it may stand between the braces of a remedy: in quotes, where it needs them."""
    text = shorten(text)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def shorten(text: str, limit: int = 40) -> str:
    """`text` short enough to stand in a sentence."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
