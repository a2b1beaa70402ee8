"""Several commits of a log as one row, and back, byte for byte.

A run that streamed has thousands of rows of a few dozen bytes each, and every row and its place in the index cost more
than that. Once the run has ended its rows are merged. A merged row is a row like any other for readers of events: the
JSON text of an array, from `first_seq` to `last_seq`; so cursors, replays and folds give the same as before. Beside it
`parts` says where each commit ends, for the chain goes over the commits' own bytes and must still fit.

No merged row goes on behind the event of a snapshot: a reader that begins at a snapshot begins with a row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from hai_flow.primitives import instants
from hai_flow.store.postgres.connections import Connection

Row: TypeAlias = Mapping[str, Any]

BYTES_MAX: Final = 64 * 1024  # of the events of a merged row: no more than a decision may have written at once
_EPOCH: Final = instants.instant(0)
_MICROSECOND: Final = timedelta(microseconds=1)


class _MergedCommit(NamedTuple):
    """A commit within a merged row: `size` is that of its events in bytes, `at` in microseconds since 1970."""

    last_seq: int
    size: int
    version: int
    at: int


_parts: Final = msgspec.json.Decoder(list[_MergedCommit])


def merge_commits(rows: Sequence[Row]) -> tuple[bytes, bytes]:
    """The events and the parts of the row that stands for these commits, which follow each other."""
    events = b"[" + b",".join(row["events"][1:-1] for row in rows) + b"]"
    parts = [
        _MergedCommit(row["last_seq"], len(row["events"]), row["version"], (row["at"] - _EPOCH) // _MICROSECOND)
        for row in rows
    ]
    return events, msgspec.json.encode(parts)


def iter_commits(row: Row) -> Iterator[Row]:
    """The commits that a row of the log holds, each as the row that it was. Raises ValueError where the parts are not
    those of its events."""
    if row["parts"] is None:
        yield row
        return
    first, start = row["first_seq"], 1
    try:
        parts = _parts.decode(row["parts"])
    except msgspec.DecodeError as error:
        raise ValueError(f"its parts can't be read: {error}") from None
    if (
        not parts
        or parts[-1].last_seq != row["last_seq"]
        or sum(each.size - 1 for each in parts) + 1 != len(row["events"])
    ):
        raise ValueError("its parts are not those of its events")
    for part in parts:
        inner = row["events"][start : start + part.size - 2]
        yield {
            **row,
            "first_seq": first,
            "last_seq": part.last_seq,
            "version": part.version,
            "at": _EPOCH + part.at * _MICROSECOND,
            "events": b"[" + inner + b"]",
            "parts": None,
        }
        first, start = part.last_seq + 1, start + part.size - 1


def list_ends(parts: bytes) -> list[int]:
    """The last event of each commit that a merged row stands for. Raises ValueError where the parts can't be read."""
    try:
        return [part.last_seq for part in _parts.decode(parts)]
    except msgspec.DecodeError as error:
        raise ValueError(f"its parts can't be read: {error}") from None


# --- in the database --------------------------------------------------------------------------------------------------


class Packed(NamedTuple):
    """How many rows of the log there were before, and are now."""

    before: int
    after: int


_SIZES: Final = """
SELECT last_seq, octet_length(events) + 512 AS size, parts IS NOT NULL AS merged FROM log WHERE run_id = $1
ORDER BY last_seq
"""
# One statement: no reader sees a log with a hole in it, or with an event twice.
_MERGE: Final = """
WITH gone AS (DELETE FROM log WHERE run_id = $1 AND last_seq = ANY($2::bigint[]))
UPDATE log SET first_seq = $4, events = $5, parts = $6 WHERE run_id = $1 AND last_seq = $3 AND parts IS NULL
"""


async def merge_log(connection: Connection, run_id: UUID) -> Packed:
    """Merge the rows of an ended run's log. Cut off in the middle, it has merged some; it may be repeated."""
    sizes = await connection.fetch(_SIZES, run_id)
    stops = {row[0] for row in await connection.fetch("SELECT seq FROM snapshots WHERE run_id = $1", run_id)}
    after = len(sizes)
    for group in _iter_groups(sizes, stops):
        query = "SELECT * FROM log WHERE run_id = $1 AND last_seq = ANY($2::bigint[]) ORDER BY last_seq"
        rows = [dict(row) for row in await connection.fetch(query, run_id, group)]
        events, parts = merge_commits(rows)
        await connection.execute(_MERGE, run_id, group[:-1], group[-1], rows[0]["first_seq"], events, parts)
        after -= len(group) - 1
    return Packed(len(sizes), after)


def _iter_groups(sizes: Sequence[Any], stops: Collection[int]) -> Iterator[list[int]]:
    """The rows that become one, by their last seqs: some that follow each other, two at least."""
    group: list[int] = []
    total = 0
    for last_seq, size, is_merged in sizes:
        if is_merged or total + size > BYTES_MAX:
            if len(group) > 1:
                yield group
            group, total = [], 0
        if not is_merged:
            group.append(last_seq)
            total += size
        if last_seq in stops:
            if len(group) > 1:
                yield group
            group, total = [], 0
    if len(group) > 1:
        yield group
