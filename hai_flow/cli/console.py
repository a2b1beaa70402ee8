"""Text for people at a terminal, and for pipes: styles, and tables. No library, because each makes commands slower."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TextIO, TypeAlias

from hai_flow.primitives.invisible_characters import escape_json, reveal

_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
}  # fmt: skip
_GAP: Final = "  "


class Styled(NamedTuple):
    """A text and how it looks: words of `TextConsole`, like "bold red"."""

    text: str
    style: str


Cell: TypeAlias = str | Styled


def clean(text: str) -> str:
    """`text` with hidden, turning and look-alike signs as their codes (`invisible_characters`).

    The text of a workflow or a person must not control the terminal, nor look like another text."""
    return reveal(text.replace("\r\n", "\n"))


def join_lines(text: str) -> str:
    """The same without line ends: a text from outside must not look like a line of the program's own."""
    return " ".join(clean(text).split())


def json_text(value: Any, indent: int | None = None) -> str:
    """`value` as JSON that is safe to show: the same value for programs, with such signs escaped."""
    return escape_json(json.dumps(value, ensure_ascii=False, indent=indent))


class TextConsole:
    """A stream that people read. It shows styles where it is a terminal that can, and never wraps or cuts a line.

    NO_COLOR and FORCE_COLOR are heeded as they are elsewhere."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.aligns = file.isatty()
        self.styles = shows_styles(file)

    def print(self, text: object = "", style: str | None = None, end: str = "\n") -> None:
        """Write `text`. `style`: words like "bold red"."""
        self.file.write(self._style(str(text), style) + end)

    def table(self, rows: Iterable[Sequence[Cell]], *, heads: Sequence[str] = ()) -> None:
        """Rows: on a terminal their columns stand below each other, elsewhere a tab is between them.

        A line ends with its last text, without padding. The text of a cell is put into one line."""
        table = [[_cell(cell) for cell in row] for row in ([Styled(head, "dim") for head in heads], *rows) if row]
        columns = zip(*[[each.text for each in row] for row in table], strict=True)
        widths = [max(map(cells, column)) for column in columns]
        for row in table:
            while row and not row[-1].text:
                row.pop()
            line = ""
            for cell, width in zip(row, widths, strict=False):
                line += self._style(cell.text, cell.style)
                if cell is not row[-1]:  # each is an object of its own
                    line += " " * (width - cells(cell.text)) + _GAP if self.aligns else "\t"
            self.print(line)

    def _style(self, text: str, style: str | None) -> str:
        codes = ";".join(_CODES[word] for word in (style or "").split() if word in _CODES)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes and text and self.styles else text


def _cell(cell: Cell) -> Styled:
    text, style = cell if isinstance(cell, Styled) else Styled(cell, "")
    return Styled(clean(text).replace("\n", " ").replace("\t", " "), style)


def cells(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shows_styles(file: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return file.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
