"""The holes `${{ ... }}` of a text: where each ends, the pieces between them, and what keeps YAML from their inside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

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


Pieces: TypeAlias = "Sequence[str | WrittenHole | ExpressionFault]"
"""A text in pieces; of one that can't be read its fault."""


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


def split_text(text: str) -> Pieces:
    """As `split_holes`; the fault of a text with an open hole."""
    try:
        return split_holes(text)
    except Faults as faults:
        return faults.faults


# -- in YAML -----------------------------------------------------------------------------------------------------------

# In `yes: ${{ a ? b : c }}` the inside of the hole is no YAML. Before YAML reads an unquoted text, the characters that
# mean something to it are replaced one for one, which keeps every line and column; the values that come out are
# translated back.
_IN_BLOCKS: Final = ":#"
_IN_FLOW: Final = ":#{}[],"
PRIVATE: Final = range(0xE000, 0x10FFFE)  # characters that nobody's text should have; those it has are not taken


class Masked(msgspec.Struct, frozen=True):
    """A text for YAML, as long as the original. `back` translates the values that YAML read; None: nothing was
    replaced."""

    text: str
    back: dict[int, str] | None = None


def mask_holes(text: str, *, flow: bool = False) -> Masked:
    """`text` with the `: ` and ` #` inside of its holes hidden from YAML; with `flow` also braces and commas."""
    if not flow and not _is_doubtful(text):
        return Masked(text)
    words = _IN_FLOW if flow else _IN_BLOCKS
    used = set(text)
    free = (chr(code) for code in PRIVATE if chr(code) not in used and not 0xF900 <= code < 0xF0000)
    masks = {mask: word for word, mask in zip(words, free, strict=False)}
    hide = {ord(word): mask for mask, word in masks.items()}
    pieces: list[str] = []
    done = 0
    for begin, end in _iter_holes(text):
        hole = text[begin:end]
        if flow or ": " in hole or " #" in hole:
            pieces += [text[done:begin], hole.translate(hide)]
            done = end
    if not pieces:
        return Masked(text)
    return Masked("".join([*pieces, text[done:]]), {ord(mask): word for mask, word in masks.items()})


def _is_doubtful(text: str) -> bool:
    """Whether `: ` or ` #` stands anywhere behind the beginning of a hole, on its line."""
    at = 0
    while (begin := text.find("${{", at)) >= 0:
        at = _end_of_line(text, begin)
        if text.find(": ", begin, at) >= 0 or text.find(" #", begin, at) >= 0:
            return True
    return False


def _iter_holes(text: str) -> Iterator[tuple[int, int]]:
    """[begin, end) of every hole that ends on its own line. `$${{` is no hole.

    Behind one that does not end, none of that line is looked for: the document is wrong, and each further look would
    read the line to its end."""
    at = 0
    while (begin := text.find("${{", at)) >= 0:
        at = begin + 3
        if begin and text[begin - 1] == "$":
            continue
        newline = _end_of_line(text, begin)
        end = end_of_hole(text, begin, newline)
        if end is None:
            at = newline
        else:
            at = end + 2
            yield begin, at


def _end_of_line(text: str, at: int) -> int:
    newline = text.find("\n", at)
    return newline if newline >= 0 else len(text)
