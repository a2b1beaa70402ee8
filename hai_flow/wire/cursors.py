"""Cursors: places in a stream, which bring a follower back to it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LAST_FRAME: Final = 999_999_999
"""A cursor's frame that stands behind all frames of its event."""


class Cursor(NamedTuple):
    """A place in a stream: frame `frame` (from 0) of event `seq` of a run, as the encoding `encoding` writes it."""

    run_id: str
    encoding: str
    seq: int
    frame: int

    def __str__(self) -> str:
        return f"{self.run_id}.{self.encoding}.{self.seq}.{self.frame}"


# 15 digits: more events than any run may have, and a number that JavaScript keeps exactly.
_CURSOR = re.compile(
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"\.([a-z0-9-]{1,32})\.(0|[1-9][0-9]{0,14})\.(0|[1-9][0-9]{0,14})"
)


def parse_cursor(text: str) -> Cursor:
    """The cursor written as `text` (Last-Event-ID). Raises `ValueError` for any spelling that `str` of a cursor does
    not give."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a cursor <run_id>.<encoding>.<seq>.<frame>, found {text[:120]!r}")
    run_id, encoding, seq, frame = match.groups()
    return Cursor(run_id, encoding, int(seq), int(frame))
