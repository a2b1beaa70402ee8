"""Keeps YAML from reading the inside of holes, as in `yes: ${{ a ? b : c }}`. Before YAML reads an unquoted text, the
characters that mean something to it are replaced one for one, which keeps every line and column; the values that come
out are translated back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from hai_flow.definition.names.holes import end_of_hole

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
