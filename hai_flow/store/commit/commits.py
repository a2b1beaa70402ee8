"""The commit: log, run rows and everything that belongs to them, of up to 256 runs in one statement and transaction
(docs/design/store.md#locks), with at most one entry for a run (docs/design/store.md#one-entry-per-run), sorted by id.
Perform a job only after a statement returned you as its `worker` (docs/design/store.md#claims). Behind a transaction
pooler that transaction also pins the plan. Columns that no entry has are not sent: one array element costs the driver
0.7 us. Where Citus keeps the schema, it is several statements (`commit_citus`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from hai_flow.store.commit.commit_arrays import arguments
from hai_flow.store.commit.commit_citus import commit_in_pieces
from hai_flow.store.commit.commit_sql import COMMON, ENDED, SELDOM, SINGLE, commit_statement
from hai_flow.store.commit.entries import BatchResult, CommitResult, Entry
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import PIN, transaction
from hai_flow.store.postgres.error_classes import raise_outcome_unknown

if TYPE_CHECKING:
    from asyncpg import Record


ENTRIES_MAX: Final = 256
_LONE_ENTRIES_MAX: Final = 8


async def commit(connection: Connection, entries: Sequence[Entry], worker_id: int | None, at: datetime) -> BatchResult:
    """Commit a batch: log, run rows, commands, pendings, votes, outbox, turns, messages, slots
    (docs/design/store.md#the-commit).

    One statement; entries win or lose each for itself. `entries` has at most 256, at most one per run, in any order
    (they are sorted here, so that locks are). `worker_id` is None in a process that performs nothing. `at` is the
    database's clock as last seen: a lower bound of it.

    Raises `CommitUnknown` when the connection broke; other errors as `faults.classify` reads them."""
    assert 0 < len(entries) <= ENTRIES_MAX, f"a batch has 1 to {ENTRIES_MAX} entries, not {len(entries)}"
    keys = [entry.run_id.bytes for entry in entries]
    # A run twice in one batch corrupts its log for ever (docs/design/store.md#one-entry-per-run).
    assert len(set(keys)) == len(keys), "a run is in a batch at most once"
    numbers = sorted(range(len(entries)), key=keys.__getitem__)
    moved = [number for number in numbers if entries[number].born is None]
    born = [number for number in numbers if entries[number].born is not None] if len(moved) < len(numbers) else []
    numbers = moved + born
    parts = _parts_of(entries)
    those_moved, those_born = [entries[i] for i in moved], [entries[i] for i in born]
    with raise_outcome_unknown():
        if getattr(connection, "sharded", False):
            won, db_now = await commit_in_pieces(connection, those_moved, those_born, parts, worker_id, at)
            freezes, created_at = None, db_now
        else:
            columns = arguments(those_moved, those_born, parts)
            won, row = await _execute_commit(connection, commit_statement(parts), worker_id, at, *columns)
            db_now, freezes, created_at = row["db_now"], row["freezes"], row.get("created_at")
    return BatchResult({numbers[place - 1]: each for place, each in won.items()}, db_now, freezes, created_at)


async def _execute_commit(connection: Connection, query: str, *given: Any) -> tuple[Mapping[int, CommitResult], Record]:
    """The winners by their number from 1, and the row that says them."""
    if connection.is_in_transaction() or getattr(connection, "pinned", True):
        row = await connection.fetchrow(query, *given)
    else:  # behind a pooler its settings say how the commit is to be planned: the session is nobody's in particular
        async with transaction(connection, PIN):
            row = await connection.fetchrow(query, *given)
    assert row is not None, "aggregates return one row"
    places, seq, version, fence, worker, *_ = row
    if places is None:
        return {}, row
    if isinstance(places, int):
        return {places: CommitResult(seq, version, fence, worker)}, row
    return dict(zip(places, map(CommitResult, seq, version, fence, worker), strict=True)), row


def _parts_of(entries: Sequence[Entry]) -> frozenset[str]:
    """The parts of the statement that these entries need."""
    parts: set[str] = set()
    for entry in entries:
        if entry.status in ENDED:
            parts.add("ended")
        if _read_seldom(entry) == _NOTHING_SELDOM:  # as most entries, which are of a step behind a step
            parts.add("moved")
            continue
        born = entry.born
        if born is None:
            parts.add("moved")
        else:
            parts.add("births")
            if born.left:
                parts.update(("moved", "seats"))
            if born.in_use:
                parts.add("in_use")
            if born.branch is not None:
                parts.add("branches")
        if entry.take_slot is not None:
            parts.update(("births", "again"))
        if entry.moved is not None:
            parts.add("moves")
        if entry.seat is not None:
            parts.update(("moved", "seats"))
        if entry.heir is not None:
            parts.add("heirs")
        if entry.elsewhere:
            parts.add("elsewhere")
        if entry.free:
            parts.add("free")
        if entry.instigators is not None:
            parts.add("instigators")
        if entry.summary is not None:
            parts.add("summaries")
        if entry.held is not None:
            parts.add("holds")
        if entry.audit:
            parts.add("audit")
    if len(entries) > _LONE_ENTRIES_MAX:
        return COMMON | parts
    for entry in entries:
        parts.update(_children_of(entry))
    if len(entries) == 1 and parts.isdisjoint(SELDOM):
        parts.update(_list_single_parts(entries[0]))
    return frozenset(parts)


_SELDOM: Final = (
    "born", "take_slot", "moved", "seat", "heir", "elsewhere", "free", "instigators", "summary", "held", "audit",
)  # fmt: skip
"""The fields of an entry for which its statement has a part."""
_read_seldom: Final = attrgetter(*_SELDOM)
_NOTHING_SELDOM: Final = _read_seldom(Entry(run_id=UUID(int=0), tenant=UUID(int=0), n=0, events=b""))


def _list_single_parts(entry: Entry) -> Iterator[str]:
    """The marks of the parts of which the only entry has no more than one row."""
    yield SINGLE + ("moved" if entry.born is None else "births")
    for part, rows in (
        ("commands", entry.commands), ("pendings", entry.pendings), ("votes", entry.votes), ("outbox", entry.outbox),
        ("opened_turns", entry.turns), ("ended_turns", entry.turns), ("messages", entry.messages),
        ("audit", entry.audit),
    ):  # fmt: skip
        if len(rows) == 1:
            yield SINGLE + part


def _children_of(entry: Entry) -> Iterator[str]:
    """The parts of the statement that the child rows of an entry need."""
    if entry.commands:
        yield "commands"
    if entry.pendings:
        yield "pendings"
        if entry.born is None:  # who asked before is asked no more, or by others
            yield "unasks"
        if any(each.asks for each in entry.pendings):
            yield "asks"
    if entry.votes:
        yield "votes"
    if entry.outbox:
        yield "outbox"
    for turn in entry.turns:
        yield "ended_turns" if turn.first is None else "opened_turns"
    if entry.messages:
        yield "messages"
