"""Markdown as plain text, for readers without pages: letters, terminals, the page of a link. Headings and emphasis lose
their marks, a link says its address, a table has its columns below each other; every word is kept. The result is as
little to be trusted as its source. Takes some 2 us a character of the text that is wanted. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(?=\S)")
_FENCE: Final = re.compile(r" {0,3}(```+|~~~+)([^`]*)$")
_RULE: Final = re.compile(r" {0,3}([*\-_])(?:[ \t]*\1){2,}[ \t]*$")
_ITEM: Final = re.compile(r"^( *)[*+](?= +\S)")
_DIVIDER: Final = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?$")
_CODE: Final = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{1,1000})(?<!`)\1(?!`)")
_LINK: Final = re.compile(r"!?\[([^\[\]\n]{1,500})\]\(([^()\s]{1,2000})\)")
_PAIRS: Final = (
    re.compile(r"\*\*(?=[^\s*])([^*\n]{1,1000})(?<=\S)\*\*"),
    re.compile(r"(?<!\w)__(?=[^\s_])([^_\n]{1,1000})(?<=\S)__(?!\w)"),
    re.compile(r"~~(?=[^\s~])([^~\n]{1,1000})(?<=\S)~~"),
    re.compile(r"(?<![*\w])\*(?=[^\s*])([^*\n]{1,1000})(?<=\S)\*(?![*\w])"),
    re.compile(r"(?<!\w)_(?=[^\s_])([^_\n]{1,1000})(?<=\S)_(?!\w)"),
)
_ESCAPED: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
_MARK: Final = re.compile(r"[`*_~\\\[]")
_LINE_CHARS_MAX: Final = 10_000
_TABLE_CHARS_MAX: Final = 10_000
_COLUMN_CHARS_MAX: Final = 40


def to_text(markdown: str, enough: int | None = None) -> str:
    """`markdown` without its marks, line by line. `enough`: a reader who cuts the text at so many characters gets the
    lines that hold them, and no more is worked on."""
    lines: list[str] = []
    size = 0
    for line in _lines(markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n")):
        lines.append(line)
        size += len(line) + 1
        if enough is not None and size > enough + 1:
            break
    return "\n".join(lines)


def _lines(lines: list[str]) -> Iterator[str]:
    fence, at = "", 0
    while at < len(lines):
        line, at = lines[at], at + 1
        opened = _FENCE.match(line)
        if fence:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            else:
                yield f"    {line}"
        elif opened is not None:
            fence = opened[1]
            if named := opened[2].strip():
                yield f"    {named}"
        elif _is_table(line, lines[at] if at < len(lines) else ""):
            end = at + 1
            room = _TABLE_CHARS_MAX - len(line) - len(lines[at])
            while end < len(lines) and "|" in lines[end] and (room := room - len(lines[end])) >= 0:
                end += 1
            yield from _table([_cells(line), *map(_cells, lines[at + 1 : end])])
            at = end
        elif _RULE.match(line):
            yield "-" * 20
        else:
            yield _ITEM.sub(r"\1-", _spans(_HEADING.sub("", line, count=1)), count=1)


def _is_table(line: str, divider: str) -> bool:
    """Whether a table begins, which is short enough for its columns to stand below each other."""
    if "|" not in line or "|" not in divider or len(line) + len(divider) > _TABLE_CHARS_MAX:
        return False
    return _DIVIDER.match(divider.strip()) is not None


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [_spans(cell.strip().replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", inner)]


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [0] * max(map(len, rows))
    for row in rows:
        for n, cell in enumerate(row):
            widths[n] = max(widths[n], min(_COLUMN_CHARS_MAX, _width(cell)))
    for row in rows:
        padded = (cell + " " * max(0, width - _width(cell)) for cell, width in zip(row, widths, strict=False))
        yield "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """The columns that a text takes in a terminal."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _spans(line: str) -> str:
    if len(line) > _LINE_CHARS_MAX or _MARK.search(line) is None:
        return line
    # Code is kept aside: the marks in it are meant.
    parts = _CODE.split(line)
    return "".join(part if n % 3 == 2 else _words(part) for n, part in enumerate(parts) if n % 3 != 1)


def _words(text: str) -> str:
    text = _LINK.sub(lambda found: found[2] if found[1] == found[2] else f"{found[1]} ({found[2]})", text)
    for pair in _PAIRS:
        text = pair.sub(r"\1", text)
    return _ESCAPED.sub(r"\1", text)
