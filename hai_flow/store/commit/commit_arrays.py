"""The parameters of a commit, in the order in which its statements have them: an array for each column of a part, or
the values of its only row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, TypeAlias

from hai_flow.store.commit.commit_sql import CHILDREN, SINGLE
from hai_flow.store.commit.entries import Entry

# A column that no row uses: NULL instead of an array, which unnest takes for an empty one, and the driver for nothing.
_NO: Final = None

Rows: TypeAlias = Sequence[tuple[int, Entry]]
Arrays: TypeAlias = Iterable[Any]
Records: TypeAlias = Sequence[tuple[Any, ...]]


def arguments(moved: Sequence[Entry], born: Sequence[Entry], parts: frozenset[str]) -> Arrays:
    """The parameters of a commit with these parts, after worker and time. A column that no entry has costs (nearly)
    nothing."""
    if "moved" in parts:
        yield from (
            _build_single_move(moved[0], parts) if SINGLE + "moved" in parts else _build_moved_arrays(moved, parts)
        )
    rows = list(enumerate((*moved, *born), 1))
    for part in (*CHILDREN, "audit"):
        if part in parts:
            records, count = _CHILDREN[part]
            yield from records(rows)[0] if SINGLE + part in parts else _columns(records(rows), count)
    if "births" in parts:
        build = _build_single_birth if SINGLE + "births" in parts else build_born_arrays
        yield from build(born, len(moved) + 1, parts)


def _build_single_move(entry: Entry, parts: frozenset[str]) -> Arrays:
    yield from (
        entry.run_id, entry.tenant, entry.n, entry.events, entry.version, entry.fence, entry.status, entry.busy,
        entry.wake_at, entry.cut or None, entry.take_slot, entry.result, entry.created_at,
    )  # fmt: skip
    yield from (array[0] for array in _list_seldom_columns([entry], parts))


def _build_moved_arrays(moved: Sequence[Entry], parts: frozenset[str]) -> Arrays:
    if moved:
        ids, tenants, counts, events, versions, fences, statuses, busy, wakes, cuts, slots, results, births = zip(
            *map(_read_move, moved), strict=True
        )
        sizes = list(map(len, events))
        yield b"".join(events)  # each element of an array of bytes takes the driver as long as all else of the entry
        yield _join(ids)
        yield _merge_column(tenants)
        yield _join(counts)
        yield _join(accumulate([1, *sizes[:-1]]))
        yield _join(sizes)
        yield _encode_array(versions)
        yield _encode_array(fences)
        yield _encode_array(statuses)
        yield _encode_array(busy)
        yield _sparse(wakes)
        yield cuts if True in cuts else _NO
        yield _sparse(slots)
        yield _sparse(results)
        yield _join(["NULL" if each is None else _format_instant(each) for each in births])
    else:
        yield from (_NO,) * (len(_MOVE) + 2)
    yield from _list_seldom_columns(moved, parts)


_MOVE: Final = (
    "run_id", "tenant", "n", "events", "version", "fence", "status", "busy", "wake_at", "cut", "take_slot", "result",
    "created_at",
)  # fmt: skip
_read_move: Final = attrgetter(*_MOVE)
_format_instant: Final = lru_cache(maxsize=1024)(str)
"""To write an instant takes longer than all else here. Runs that begin in one commit share theirs."""


def _list_seldom_columns(moved: Sequence[Entry], parts: frozenset[str]) -> Iterable[list[Any]]:
    if "moves" in parts:
        yield [None if entry.moved is None else entry.moved.workflow for entry in moved]
        yield [None if entry.moved is None else entry.moved.workflow_version for entry in moved]
        yield [None if entry.moved is None else entry.moved.dev for entry in moved]
        yield [None if entry.moved is None else entry.moved.queue for entry in moved]
    if "seats" in parts:
        yield [entry.seat for entry in moved]
    if "elsewhere" in parts:
        yield [entry.elsewhere for entry in moved]
    if "free" in parts:
        yield [entry.free for entry in moved]
    if "instigators" in parts:
        yield [entry.instigators for entry in moved]
    if "summaries" in parts:
        yield [entry.summary for entry in moved]
    if "holds" in parts:
        yield [entry.held for entry in moved]
    if "heirs" in parts:
        heirs = [entry.heir for entry in moved]
        yield [None if heir is None else heir.run_id for heir in heirs]
        yield [None if heir is None else heir.slot for heir in heirs]
        yield [None if heir is None else heir.key for heir in heirs]
        yield [None if heir is None else heir.leaves for heir in heirs]


def _list_commands(rows: Rows) -> Records:
    return [(i, e.run_id, c.command_id, c.body_sha, c.outcome) for i, e in rows if e.commands for c in e.commands]


def _list_pendings(rows: Rows) -> Records:
    return [
        (i, p.id, p.status, p.path, p.digest, p.deadline, p.body, p.asks, p.kind, p.words)
        for i, e in rows
        if e.pendings
        for p in e.pendings
    ]


def _list_votes(rows: Rows) -> Records:
    return [
        (i, v.pending_id, v.principal, v.body, v.decision, v.on_behalf_of) for i, e in rows if e.votes for v in e.votes
    ]


def _list_outbox(rows: Rows) -> Records:
    return [(i, n, o.kind, o.target, o.body) for i, e in rows if e.outbox for n, o in enumerate(e.outbox)]


def _list_turn_starts(rows: Rows) -> Records:
    turns = [(i, t) for i, e in rows if e.turns for t in e.turns if t.first is not None]
    return [(i, t.n, t.wire_run_id, t.body_sha, t.first, t.last) for i, t in turns]


def _list_turn_ends(rows: Rows) -> Records:
    return [(i, t.n, t.last) for i, e in rows if e.turns for t in e.turns if t.first is None]


def _list_messages(rows: Rows) -> Records:
    return [(i, m.n, m.id, m.role, m.body, m.position) for i, e in rows if e.messages for m in e.messages]


def _list_audit(rows: Rows) -> Records:
    return [
        (i, a.id, a.act, a.subject, a.digest, a.commitment, a.principal, a.salt, a.body)
        for i, e in rows if e.audit for a in e.audit
    ]  # fmt: skip


_CHILDREN: Final[Mapping[str, tuple[Callable[[Rows], Records], int]]] = {
    "commands": (_list_commands, 5),
    "pendings": (_list_pendings, 10),
    "votes": (_list_votes, 6),
    "outbox": (_list_outbox, 5),
    "opened_turns": (_list_turn_starts, 6),
    "ended_turns": (_list_turn_ends, 3),
    "messages": (_list_messages, 6),
    "audit": (_list_audit, 9),
    "log": (lambda rows: [(i, e.events) for i, e in rows], 2),
}
"""The rows of each part of a commit that has some beside the runs, and how many columns they have."""


def build_piece_arrays(part: str, rows: Rows) -> Arrays:
    """The arrays of a commit in pieces (`commit_statement.PIECES`), for the part."""
    records, count = _CHILDREN[part]
    return _columns(records(rows), count)


def _sparse(column: Sequence[Any]) -> Sequence[Any] | None:
    return _NO if column.count(None) == len(column) else column


def _encode_array(column: Sequence[Any]) -> str | None:
    """The array as PostgreSQL writes it, of values that need no quotes."""
    unused = column.count(None)
    if unused == len(column):
        return _NO
    return _join(["NULL" if each is None else each for each in column] if unused else column)


def _join(column: Iterable[Any]) -> str:
    return f"{{{','.join(map(str, column))}}}"


def _merge_column(column: Sequence[Any]) -> Sequence[Any]:
    """A column in which every row has the same value is sent as that one value."""
    return column[:1] if column.count(column[0] if column else None) == len(column) else column


def build_born_arrays(born: Sequence[Entry], first: int, parts: frozenset[str]) -> Arrays:
    """The arrays of entries that are the first of their run; the first of them is number `first`."""
    columns = _columns([_build_birth(i, entry) for i, entry in enumerate(born, first)], len(_BIRTH))
    for name, column in zip(_BIRTH, columns, strict=True):
        yield column if column is None or name not in _BIRTH_AS_TEXT else _encode_array(column)
    yield from _list_seldom_birth_columns(born, parts)


def _build_single_birth(born: Sequence[Entry], number: int, parts: frozenset[str]) -> Arrays:
    yield from _build_birth(number, born[0])
    yield from (array[0] for array in _list_seldom_birth_columns(born, parts))


_BIRTH: Final = (
    "i", "id", "tenant", "n", "events", "status", "busy", "wake_at", "result", "workflow", "workflow_name",
    "workflow_version", "dev", "thread_id", "parent_id", "parent_path", "queue", "slot", "started_by", "input",
)  # fmt: skip
_BIRTH_AS_TEXT: Final = frozenset({"status", "busy", "workflow_version", "dev"})


def _build_birth(i: int, e: Entry) -> tuple[Any, ...]:
    """The columns of `_BIRTH`."""
    b = e.born
    assert b is not None, "the caller chose those that are born"
    assert e.version is None, "a run that starts has no version to expect"
    assert e.status is not None, "the first entry of a run says its status"
    assert e.busy is not None, "the first entry of a run says whether it is busy"
    return (
        i, e.run_id, e.tenant, e.n, e.events, e.status, e.busy, e.wake_at, e.result, b.workflow, b.workflow_name,
        b.workflow_version, b.dev, b.thread_id, b.parent_id, b.parent_path, b.queue, b.slot, b.started_by, b.input,
    )  # fmt: skip


def _list_seldom_birth_columns(born: Sequence[Entry], parts: frozenset[str]) -> Iterable[list[Any]]:
    if "branches" in parts:
        branches = [entry.born.branch for entry in born if entry.born is not None]
        yield [None if branch is None else branch.of for branch in branches]
        yield [None if branch is None else branch.follows for branch in branches]
        yield [0 if branch is None else branch.copied for branch in branches]
    if "in_use" in parts:
        yield [entry.born is not None and entry.born.in_use for entry in born]
        yield [entry.born is not None and entry.born.latest for entry in born]
    if "seats" in parts:
        yield [entry.seat for entry in born]
        yield [entry.born is not None and entry.born.left for entry in born]
    if "elsewhere" in parts:
        yield [entry.elsewhere for entry in born]
    if "instigators" in parts:
        yield [entry.instigators for entry in born]
    if "summaries" in parts:
        yield [entry.summary for entry in born]
    if "holds" in parts:
        yield [entry.held for entry in born]


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Arrays:
    return map(_sparse, zip(*rows, strict=True)) if rows else (_NO,) * count
