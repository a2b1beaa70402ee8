"""The commit: log, run rows and everything that belongs to them, of up to 256 runs in one statement.

* A commit is one statement and its own transaction (docs/design/store.md#locks). It holds at most one entry per run
  (docs/design/store.md#one-entry-per-run), sorted by run id, so that row locks are always taken in one order.
* A commit never takes a claim that another worker holds, nor for a worker that is dead (docs/design/store.md#claims).
  Perform a job only after a statement returned you as its `worker`.
* Behind a transaction pooler that transaction also pins the plan, which a session of our own has from its start.
* Columns that no entry has are not sent: one array element costs the driver 0.7 us.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hai_flow.store.commit_statement import CHILDREN, commit_statement
from hai_flow.store.database import PIN, outcome_known
from hai_flow.store.entries import Committed, Entry, Won

if TYPE_CHECKING:
    from hai_flow.store.database import Connection


ENTRIES_MAX: Final = 256
_LONE_ENTRIES_MAX: Final = 8
_ALL: Final = frozenset(CHILDREN)
_ALL_WITH_BIRTHS: Final = _ALL | {"births"}
_NONE: Final[frozenset[str]] = frozenset()
# A column that no row uses: NULL instead of an array, which unnest takes for an empty one, and the driver for nothing.
_NO: Final = None


async def commit(connection: Connection, entries: Sequence[Entry], worker_id: int | None, at: datetime) -> Committed:
    """Commit a batch: log, run rows, commands, pendings, votes, outbox, turns, messages, slots
    (docs/design/store.md#the-commit).

    One statement; entries win or lose each for itself. `entries` has at most 256, at most one per run, in any order
    (they are sorted here, so that locks are). `worker_id` is None in a process that performs nothing. `at` is the
    database's clock as last seen: a lower bound of it.

    Raises `CommitUnknown` when the connection broke; other errors as `database.classify` reads them.
    """
    assert 0 < len(entries) <= ENTRIES_MAX, f"a batch has 1 to {ENTRIES_MAX} entries, not {len(entries)}"
    keys = [entry.run_id.int for entry in entries]
    # A run twice in one batch corrupts its log for ever (docs/design/store.md#one-entry-per-run).
    assert len(set(keys)) == len(keys), "a run is in a batch at most once"
    numbers = sorted(range(len(entries)), key=keys.__getitem__)
    moved = [number for number in numbers if entries[number].born is None]
    born = [number for number in numbers if entries[number].born is not None] if len(moved) < len(numbers) else []
    numbers = moved + born
    parts = _parts_of(entries)
    if lock_first := getattr(connection, "sharded", False) and not parts.isdisjoint(_LOCKING):
        parts |= {"locked"}
    arguments = _arguments([entries[i] for i in moved], [entries[i] for i in born], parts)
    with outcome_known():
        if lock_first:
            row = await _locked_first(connection, entries, commit_statement(parts), worker_id, at, *arguments)
        elif connection.is_in_transaction() or getattr(connection, "pinned", True):
            row = await connection.fetchrow(commit_statement(parts), worker_id, at, *arguments)
        else:
            async with _transaction(connection, PIN):
                row = await connection.fetchrow(commit_statement(parts), worker_id, at, *arguments)
    assert row is not None, "aggregates return one row"
    places, seq, version, fence, worker, db_now = row
    if places is None:
        return Committed({}, db_now)
    won = map(Won, seq, version, fence, worker)
    return Committed({numbers[place - 1]: each for place, each in zip(places, won, strict=True)}, db_now)


@contextlib.asynccontextmanager
async def _transaction(connection: Connection, settings: str = "") -> AsyncGenerator[None]:
    """A transaction of the commit's own. Behind a pooler its settings say how the commit is to be planned: its rows are
    locked in the order of run ids only by nested loops, and the session that it gets is nobody's in particular."""
    await connection.execute(f"BEGIN; {settings}")
    try:
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


# What a statement locks before it writes. Citus cuts a commit into a statement for each subquery, and mistakes the rows
# of one that locks: so they are locked by statements of their own.
_LOCKING: Final = frozenset({"again", "seats"})
_LOCK_RUNS: Final = "SELECT id FROM runs WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE"
_LOCK_SLOTS: Final = "SELECT slot FROM slots WHERE run_id = ANY ($1::uuid[]) ORDER BY tenant, slot FOR NO KEY UPDATE"


async def _locked_first(connection: Connection, entries: Sequence[Entry], query: str, *given: Any) -> Any:
    """The commit on Citus, behind the locks that it needs, in one transaction."""
    again = [entry.run_id for entry in entries if entry.take_slot is not None]
    seated = [entry.run_id for entry in entries if entry.seat is not None]
    own = contextlib.nullcontext() if connection.is_in_transaction() else _transaction(connection)
    async with own:
        if seated:
            await connection.fetch(_LOCK_SLOTS, seated)
        if again:
            await connection.fetch(_LOCK_RUNS, again)
        return await connection.fetchrow(query, *given)


def _parts_of(entries: Sequence[Entry]) -> frozenset[str]:
    again = any(entry.take_slot is not None for entry in entries)
    births = again or any(entry.born is not None for entry in entries)
    seldom = {"moves"} if any(entry.moved is not None for entry in entries) else _NONE
    if again:
        seldom = seldom | {"again"}
    if any(entry.seat is not None for entry in entries):
        seldom = seldom | {"seats"}
    if any(entry.elsewhere for entry in entries):
        seldom = seldom | {"elsewhere"}
    if any(entry.audit for entry in entries):
        seldom = seldom | {"audit"}
    if births and any(entry.born is not None and entry.born.branch is not None for entry in entries):
        seldom = seldom | {"branches"}
    if len(entries) > _LONE_ENTRIES_MAX:
        return (_ALL_WITH_BIRTHS if births else _ALL) | seldom
    children = (part for part in CHILDREN if any(getattr(entry, part) for entry in entries))
    return frozenset((*children, "births") if births else children) | seldom


_Rows: TypeAlias = Sequence[tuple[int, Entry]]
_Arrays: TypeAlias = Iterable[Sequence[Any] | None]


def _arguments(moved: Sequence[Entry], born: Sequence[Entry], parts: frozenset[str]) -> Iterable[Sequence[Any] | None]:
    """The arrays of a commit with these parts, after worker and time. A column that no entry has costs (nearly)
    nothing."""
    yield [entry.run_id for entry in moved]
    yield _shared([entry.tenant for entry in moved])
    yield [entry.n for entry in moved]
    yield [entry.events for entry in moved]
    versions = [entry.version for entry in moved]
    yield _sparse(versions)
    yield [entry.fence for entry in moved] if None in versions else _NO
    yield _sparse([entry.status for entry in moved])
    yield _sparse([entry.busy for entry in moved])
    yield _sparse([entry.wake_at for entry in moved])
    yield _sparse([entry.cut or None for entry in moved])
    yield _sparse([entry.take_slot for entry in moved])
    yield _sparse([entry.result for entry in moved])
    if "moves" in parts:
        yield [None if entry.moved is None else entry.moved.workflow for entry in moved]
        yield [None if entry.moved is None else entry.moved.workflow_version for entry in moved]
        yield [None if entry.moved is None else entry.moved.dev for entry in moved]
        yield [None if entry.moved is None else entry.moved.queue for entry in moved]
    if "seats" in parts:
        yield [entry.seat for entry in moved]
    if "elsewhere" in parts:
        yield [entry.elsewhere for entry in moved]
    rows = list(enumerate((*moved, *born), 1))
    for part in CHILDREN:
        if part in parts:
            yield from _CHILD_ARRAYS[part](rows)
    if "audit" in parts:
        yield from _audit_arrays(rows)
    if "births" in parts:
        yield from _born_arrays(born, len(moved) + 1)
    if "branches" in parts:
        branches = [entry.born.branch for entry in born if entry.born is not None]
        yield [None if branch is None else branch.of for branch in branches]
        yield [None if branch is None else branch.follows for branch in branches]
        yield [0 if branch is None else branch.copied for branch in branches]
    if "seats" in parts and "births" in parts:
        yield [entry.seat for entry in born]
    if "elsewhere" in parts and "births" in parts:
        yield [entry.elsewhere for entry in born]


def _command_arrays(rows: _Rows) -> _Arrays:
    found = [(i, e.run_id, c.command_id, c.body_sha, c.outcome) for i, e in rows if e.commands for c in e.commands]
    return _columns(found, 5)


def _pending_arrays(rows: _Rows) -> _Arrays:
    found = [
        (i, p.id, p.status, p.path, p.digest, p.deadline, p.body, p.asks, p.kind, p.words)
        for i, e in rows
        if e.pendings
        for p in e.pendings
    ]
    return _columns(found, 10)


def _vote_arrays(rows: _Rows) -> _Arrays:
    found = [
        (i, v.pending_id, v.principal, v.body, v.decision, v.on_behalf_of) for i, e in rows if e.votes for v in e.votes
    ]
    return _columns(found, 6)


def _outbox_arrays(rows: _Rows) -> _Arrays:
    found = [(i, n, o.kind, o.target, o.body) for i, e in rows if e.outbox for n, o in enumerate(e.outbox)]
    return _columns(found, 5)


def _turn_arrays(rows: _Rows) -> _Arrays:
    turns = [(i, turn) for i, e in rows if e.turns for turn in e.turns]
    opened = [(i, t.n, t.wire_run_id, t.body_sha, t.first, t.last) for i, t in turns if t.first is not None]
    yield from _columns(opened, 6)
    yield from _columns([(i, t.n, t.last) for i, t in turns if t.first is None], 3)


def _message_arrays(rows: _Rows) -> _Arrays:
    return _columns([(i, m.n, m.id, m.role, m.body, m.position) for i, e in rows if e.messages for m in e.messages], 6)


def _audit_arrays(rows: _Rows) -> _Arrays:
    found = [
        (i, a.id, a.act, a.subject, a.digest, a.commitment, a.principal, a.salt, a.body)
        for i, e in rows if e.audit for a in e.audit
    ]  # fmt: skip
    return _columns(found, 9)


_CHILD_ARRAYS: Final[Mapping[str, Callable[[_Rows], _Arrays]]] = {
    "commands": _command_arrays,
    "pendings": _pending_arrays,
    "votes": _vote_arrays,
    "outbox": _outbox_arrays,
    "turns": _turn_arrays,
    "messages": _message_arrays,
}


def _sparse(column: list[Any]) -> list[Any] | None:
    return _NO if column.count(None) == len(column) else column


def _shared(column: list[Any]) -> list[Any]:
    """A column in which every row has the same value is sent as that one value."""
    return column[:1] if column.count(column[0] if column else None) == len(column) else column


def _born_arrays(born: Sequence[Entry], first: int) -> Iterable[Sequence[Any] | None]:
    rows: list[tuple[Any, ...]] = []
    for i, e in enumerate(born, first):
        b = e.born
        assert b is not None, "the caller chose those that are born"
        assert e.version is None, "a run that starts has no version to expect"
        assert e.status is not None, "the first entry of a run says its status"
        assert e.busy is not None, "the first entry of a run says whether it is busy"
        rows.append(
            (
                i, e.run_id, e.tenant, e.n, e.events, e.status, e.busy, e.wake_at, e.result, b.workflow,
                b.workflow_name, b.workflow_version, b.dev, b.thread_id, b.parent_id, b.parent_path, b.queue, b.slot,
                b.started_by, b.input,
            )
        )  # fmt: skip
    return _columns(rows, 20)


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> _Arrays:
    return zip(*rows, strict=True) if rows else (_NO,) * count
