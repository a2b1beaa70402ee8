"""How many tokens a text has, more or less: as many as its script needs. Pure.

A token is about four characters of Latin script, two of most other alphabets and of signs, and one of Chinese,
Japanese and Korean."""

from __future__ import annotations

from typing import Final

from hai_flow.primitives.late_patterns import compile_late

CHARS_PER_TOKEN: Final = 4  # of Latin script
_WIDE: Final = compile_late("[\u1100-\u11ff\u2e80-\U0010ffff]+")
_OTHER: Final = compile_late("[\u0250-\u10ff\u1200-\u2e7f]+")


def tokens_of(text: str) -> int:
    """The tokens of a text, rounded up."""
    if text.isascii():
        return -(-len(text) // CHARS_PER_TOKEN)
    wide = sum(len(run) for run in _WIDE.findall(text))
    other = sum(len(run) for run in _OTHER.findall(text))
    return wide + -(-other // 2) + -(-(len(text) - wide - other) // CHARS_PER_TOKEN)


def cut_to(text: str, tokens: int) -> str:
    """The beginning of a text, of about so many tokens at most."""
    size = tokens_of(text)
    return text if size <= tokens else text[: len(text) * tokens // size]
