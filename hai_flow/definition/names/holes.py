"""The holes `${{ ... }}` of a text: where each ends, and the pieces between them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from hai_flow.definition.expressions.expression_error import ExpressionFault, Faults
from hai_flow.values import Json

_LEXEME: Final = re.compile(
    r"[rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|\"[^\"\n]*\"|'[^'\n]*')"  # raw strings have no escapes
    r"|\"\"\"(?:\\.|.)*?\"\"\"|'''(?:\\.|.)*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    r"|[A-Za-z_]\w*|\}\}|[{}]|.",
    re.DOTALL,
)
_SIMPLE: Final = re.compile(r"\$\{\{[^{}'\"]*\}\}")  # without quotes and braces inside


def end_of_hole(text: str, begin: int, until: int | None = None) -> int | None:
    """The index of the `}}` that ends the hole at `begin` (its `$`), before `until`: the first outside quotes and inner
    braces."""
    until = len(text) if until is None else until
    simple = _SIMPLE.match(text, begin, until)
    if simple:
        return simple.end() - 2
    at, depth = begin + 3, 0
    while at < until:
        match = _LEXEME.match(text, at, until)
        assert match is not None, "the last alternative matches any character"
        token = match.group()
        if token == "}}" and depth == 0:
            return at
        if token == "{":
            depth += 1
        elif token in ("}", "}}") and depth > 0:
            depth -= 1
            at += 1
            continue
        at = match.end()
    return None


class WrittenHole(msgspec.Struct, frozen=True):
    """A hole of a text."""

    source: str
    offset: int  # of the source inside the text


def find_only_hole(value: Json) -> WrittenHole | None:
    """The hole that `value` consists of, or None."""
    return _find_only_hole(value) if isinstance(value, str) and "${{" in value else None


@lru_cache(1024)  # several checks ask it of each text
def _find_only_hole(text: str) -> WrittenHole | None:
    try:
        pieces = split_holes(text)
    except Faults:
        return None
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], WrittenHole) else None


def split_holes(text: str) -> list[str | WrittenHole]:
    """`text` as literal pieces and holes, in order. `$${{` is a literal `${{`. Raises `Faults` for an open hole."""
    if _SIMPLE.fullmatch(text):  # most are one hole and nothing beside it
        return [WrittenHole(text[3:-2], 3)]
    pieces: list[str | WrittenHole] = []
    literal: list[str] = []
    at = 0
    while True:
        begin = text.find("${{", at)
        if begin < 0:
            literal.append(text[at:])
            break
        if begin > at and text[begin - 1] == "$":
            literal.append(text[at : begin - 1] + "${{")
            at = begin + 3
            continue
        literal.append(text[at:begin])
        end = end_of_hole(text, begin)
        if end is None:
            message = "the hole that begins here has no end `}}`; a ` #` cuts unquoted text off, so quote it or use `|`"
            raise Faults([ExpressionFault(begin, "expression.open_hole", message)])
        if "".join(literal):
            pieces.append("".join(literal))
        literal = []
        pieces.append(WrittenHole(text[begin + 3 : end], begin + 3))
        at = end + 2
    if "".join(literal) or not pieces:
        pieces.append("".join(literal))
    return pieces
