"""Runs and what their commits write: the log, the claim, and everything that belongs to one commit
(docs/design/store.md).

Rules of this room:

* A commit is one statement and its own transaction (docs/design/store.md#locks). It holds at most one entry per run
  (docs/design/store.md#one-entry-per-run), sorted by run id, so that row locks are always taken in one order.
* `version` is what a decision compares, `fence` what the holder's chunks compare; `seq` is given out here
  (docs/design/store.md#decisions-and-chunks).
* A commit never takes a claim that somebody holds, nor for a worker that is dead (docs/design/store.md#claims). Perform
  a job only after a statement of this room said `worker` is you.
* Child rows take run, tenant, thread and seq from the run row that won, never from input
  (docs/design/store.md#tenants).
* Child arrays meet their winners by `array_position`, never by a join: with the pinned nested loops a join is
  quadratic in the batch.
* A plan that is pinned while the tables are empty must still be right when they are not, so nothing is left to choose:
  a tenant is compared by `(r.tenant = b.tenant) IS TRUE`, which no index can serve. Else an index that begins with the
  tenant looks as good as the primary key, and reads all runs of the tenant for each entry.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from uuid import UUID

import msgspec

from hai_flow.engine.events import ABI
from hai_flow.store.database import outcome_known

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool

ENTRIES_MAX: Final = 256
HINT_CHANNEL: Final = "hai_runs"
DUE: Final = "due"
HINT_IDS_MAX: Final = 200  # 256 ids exceed NOTIFY's 8,000 bytes: an error (docs/design/store.md#hints)
DEAD_AFTER: Final = "1 second"

# --- what a commit is given ---------------------------------------------------------------------------------------


class CommandRow(msgspec.Struct, frozen=True, gc=False):
    """A command that the entry carries out: its id is taken, and `outcome` answers whoever sends it again
    (docs/design/store.md#command-ids)."""

    command_id: str
    body_sha: bytes
    outcome: bytes


class PendingRow(msgspec.Struct, frozen=True, gc=False):
    """A pending that opens, or whose `status` or `deadline` changes. At most one row per pending in an entry
    (docs/design/store.md#one-entry-per-run)."""

    id: str
    status: str
    path: str
    digest: bytes
    deadline: datetime | None
    body: bytes


class VoteRow(msgspec.Struct, frozen=True, gc=False):
    pending_id: str
    principal: str
    body: bytes


class OutboxRow(msgspec.Struct, frozen=True, gc=False):
    """What this commit wants of another run (docs/design/store.md#outbox). Its number within the commit is its place in
    the entry."""

    kind: str
    target: str
    body: bytes


class TurnRow(msgspec.Struct, frozen=True, gc=False):
    """A turn that opens (`first`) or ends (`last`) in this entry, or both.

    `first` and `last` are positions of events in the entry, counted from 1; the commit makes them seqs.
    """

    n: int
    first: int | None = None
    last: int | None = None
    wire_run_id: str | None = None
    body_sha: bytes | None = None


class MessageRow(msgspec.Struct, frozen=True, gc=False):
    """Message `n` of the run, for the thread's transcript. The same `n` again replaces role and body.

    `position` is that of the message's event in the entry, counted from 1.
    """

    n: int
    id: str
    role: str
    body: bytes
    position: int


class Branch(msgspec.Struct, frozen=True, gc=False):
    """Where a run leaves its thread's line: it is born at a turn of the run `of`, not behind the newest one.

    `follows` is the run that comes before it in the thread now, None if none does; runs in between are abandoned. A
    fork has `copied` so many of its events, and stands in the place of `of`.
    """

    of: UUID
    follows: UUID | None
    copied: int = 0


class Born(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What only the first entry of a run says. `slot`: taken with it, or the entry loses. `input`: JSON text."""

    workflow: bytes
    workflow_name: str
    workflow_version: int
    thread_id: str
    started_by: str
    dev: bool = False
    parent_id: UUID | None = None
    parent_path: str | None = None
    queue: str = "default"
    slot: str | None = None
    input: bytes | None = None
    branch: Branch | None = None


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The version of its workflow that a run goes on with from this commit on."""

    workflow: bytes
    workflow_version: int
    dev: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run's part of a batch.

    Exactly one of `born` (the run starts here), `version` (a decision that expects this version) and neither (chunks of
    the holder, comparing `fence` and the worker id) says what it competes on.

    `events` is the JSON text of `n` events. `status` None: unchanged. `busy` None: chunks only; True: jobs are open or
    attempts in flight (takes the claim if it is free); False: nothing is in flight (gives the claim back, the run is
    due at `wake_at`, None = never by itself). `cut`: the decision closes an open attempt or message of the holder,
    whose late chunks must lose. `result` is written by the commit that ends the run; reopening clears it. `take_slot`:
    a run that ended needs this slot again, and loses without it. `seat`: the slot of its concurrency key that the run
    was promised and begins with; it loses if the slot is not its own any more. `moved`: the run's workflow has another
    version now.
    """

    run_id: UUID
    tenant: UUID
    n: int
    events: bytes
    born: Born | None = None
    version: int | None = None
    fence: int = 0
    status: str | None = None
    busy: bool | None = None
    wake_at: datetime | None = None
    cut: bool = False
    take_slot: str | None = None
    seat: str | None = None
    result: bytes | None = None
    moved: Moved | None = None
    commands: Sequence[CommandRow] = ()
    pendings: Sequence[PendingRow] = ()
    votes: Sequence[VoteRow] = ()
    outbox: Sequence[OutboxRow] = ()
    turns: Sequence[TurnRow] = ()
    messages: Sequence[MessageRow] = ()


class Won(msgspec.Struct, frozen=True, gc=False):
    """The run's row after the commit. `seq - n` is the seq before it: where it is not the one that was known, others'
    chunks lie between, and must be read before folding. `worker` is who holds the claim now (perhaps nobody).

    `worker` being you, on a run that you did not know you held, is yours with nothing begun only if this commit took
    it: you had loaded it free (`worker` None) and `fence` is one above the loaded one, or 0 at birth. Else it may be a
    claim whose answer was lost, of a dead worker's run: declare its open attempts lost (found by the torture).
    """

    seq: int
    version: int
    fence: int
    worker: int | None


class Committed(msgspec.Struct, frozen=True, gc=False):
    """`won` by the entry's number in the batch (from 0); an entry that is not in it lost: nothing of it happened.
    `db_now` is the database's clock."""

    won: dict[int, Won]
    db_now: datetime


# --- the commit ---------------------------------------------------------------------------------------------------

_ENDED: Final = "('finished', 'failed', 'stopped')"


class _Parameters:
    """The parameters of one statement, numbered in order of appearance."""

    def __init__(self) -> None:
        self._number = itertools.count(1)

    def one(self, kind: str) -> str:
        return f"${next(self._number)}::{kind}"

    def arrays(self, name: str, *, ordinality: str = "", **columns: str) -> tuple[str, dict[str, str]]:
        """`unnest` of one array parameter per column, and those parameters by column.

        An array that is shorter than the others is filled up with NULLs, so a column that no row uses is not sent: one
        array element costs the driver 0.7 us. `ordinality`: a last column that counts the rows from 1.
        """
        parameters = {column: self.one(f"{kind}[]") for column, kind in columns.items()}
        counted = " WITH ORDINALITY" if ordinality else ""
        names = [*columns, ordinality] if ordinality else list(columns)
        return f"unnest({', '.join(parameters.values())}){counted} AS {name}({', '.join(names)})", parameters


def _of_winners(rows: str) -> str:
    """The rows of a child array whose entry won; `p` is the place of that entry in the arrays of `w`."""
    return (
        f"w CROSS JOIN LATERAL (SELECT k.*, array_position(w.i, k.i) AS p FROM {rows} OFFSET 0) k WHERE k.p IS NOT NULL"
    )


# What entries may have beside their events; `births`: some start a run, or want a slot again; `moves`: some go on with
# another version of their workflow; `branches`: some of those born leave their thread's line; `seats`: some begin with
# a slot that they were promised. All so seldom that no other commit carries the columns.
_CHILDREN: Final = ("commands", "pendings", "votes", "outbox", "turns", "messages")
_LONE_ENTRIES_MAX: Final = 8


@functools.cache
def _commit_statement(parts: frozenset[str]) -> str:
    """The text of a commit whose entries have these parts.

    A lone commit is a person waiting, and the mere presence of a subquery costs it 30 us: it gets a statement with the
    parts that it has. Big batches share two statements, with all children, with births and without: fewer plans.
    """
    parameters = _Parameters()
    me, at = parameters.one("bigint"), parameters.one("timestamptz")
    moves = {"workflow": "bytea", "workflow_version": "int", "dev": "bool"} if "moves" in parts else {}
    seats = {"seat": "text"} if "seats" in parts else {}
    moved, _ = parameters.arrays(
        "b", ordinality="i", id="uuid", tenant="uuid", n="int", events="bytea", version="bigint", fence="int",
        status="text", busy="bool", wake_at="timestamptz", cut="bool", slot="text", result="bytea", **moves, **seats,
    )  # fmt: skip
    read = "".join(f", {column}" for column in (*moves, *seats))
    set_ = "".join(f"\n    {column} = coalesce(b.{column}, r.{column})," for column in moves)
    repeated, unrepeated = "", "true"
    if "commands" in parts:
        commands, _ = parameters.arrays(
            "k", i="int", run_id="uuid", command_id="text", body_sha="bytea", outcome="bytea"
        )
        repeated = f""", k AS MATERIALIZED (
  SELECT * FROM {commands}
), repeated AS MATERIALIZED (      -- entries with a command that was carried out before (whoever did it moved version)
  SELECT k.i FROM k JOIN commands c ON c.run_id = k.run_id AND c.command_id = k.command_id
)"""
        unrepeated = "NOT (b.i IN (SELECT i FROM repeated))"
    children = "".join(_CHILD_STATEMENTS[part](parameters, at) for part in _CHILDREN if part in parts)
    born, seated, born_won = "", "b.slot IS NULL", ""
    if "births" in parts:
        born, seated, born_won = _births(parameters, at, unrepeated, parts)
    elif seats:
        born = _held("b")
    if seats:
        seated = f"({seated}) AND ({_holds('b')})"
        children += _KEEP_SEATS
    return f"""
WITH b AS MATERIALIZED (           -- entries of runs that exist, one per run, sorted by id; i from 1
  SELECT id, tenant, n, events, version, fence, status, busy, wake_at, cut, slot, result, i::int{read} FROM {moved}
), me AS MATERIALIZED (            -- a worker whose lease is over takes no claim: others may have been told it is dead
  SELECT id FROM workers WHERE id = {me} AND alive_until > now()
){repeated}{born}, moved AS (
  UPDATE runs r SET
    seq = r.seq + b.n, version = r.version + (b.version IS NOT NULL)::int, status = coalesce(b.status, r.status),
    head = sha256(r.head || b.events), log_bytes = r.log_bytes + octet_length(b.events),
    slot = coalesce(b.slot, r.slot),{set_} abi = greatest(r.abi, {ABI}), given_back = 0, unreadable = NULL,
    ended_at = CASE WHEN b.status IS NULL THEN r.ended_at
                    WHEN b.status IN {_ENDED} THEN coalesce(r.ended_at, {at}) END,
    result = CASE WHEN b.status IS NULL THEN r.result
                  WHEN b.status IN {_ENDED} THEN coalesce(b.result, r.result) END,
    worker = CASE WHEN b.busy IS NULL THEN r.worker WHEN b.busy THEN coalesce(r.worker, (SELECT id FROM me)) END,
    wake_at = CASE WHEN b.busy IS NULL THEN r.wake_at WHEN NOT b.busy THEN b.wake_at
                   WHEN coalesce(r.worker, (SELECT id FROM me)) IS NULL THEN {at} END,
    fence = r.fence + (coalesce(b.cut, false) OR (b.busy IS FALSE AND r.worker IS NOT NULL)
                       OR (b.busy IS TRUE AND r.worker IS NULL))::int
  FROM b
  WHERE r.id = b.id AND (r.tenant = b.tenant) IS TRUE
    AND CASE WHEN b.version IS NOT NULL THEN r.version = b.version        -- a decision
             ELSE r.fence = b.fence AND r.worker = {me} END              -- chunks of the holder
    AND {unrepeated}
    AND ({seated})
  RETURNING b.i, b.n, b.events, r.id, r.tenant, r.thread_id, r.seq, r.version, r.fence, r.worker,
    coalesce(b.status IN {_ENDED}, false) AS ended
), won AS MATERIALIZED (
  SELECT i, n, events, id, tenant, thread_id, seq, version, fence, worker, ended FROM moved{born_won}
), w AS MATERIALIZED (             -- the winners as arrays in one order
  SELECT array_agg(i) AS i, array_agg(id) AS id, array_agg(tenant) AS tenant, array_agg(thread_id) AS thread_id,
    array_agg(seq) AS seq, array_agg(n) AS n, array_agg(version) AS version, array_agg(fence) AS fence,
    array_agg(worker) AS worker
  FROM won
), l AS (
  INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)
  SELECT id, seq, seq - n + 1, tenant, version, clock_timestamp(), events FROM won
), freed AS (
  DELETE FROM slots x USING won WHERE won.ended AND x.run_id = won.id
){children}
SELECT i, seq, version, fence, worker, clock_timestamp() AS db_now FROM w
"""


def _held(*entries: str) -> str:
    """The promised slots that are still those of the entries' runs. Locked: who wants to take one back waits, and then
    finds that its run has begun."""
    wanted = " UNION ALL ".join(f"SELECT id, tenant, seat FROM {name} WHERE seat IS NOT NULL" for name in entries)
    return f""", held AS MATERIALIZED (
  SELECT x.tenant, x.slot, x.run_id FROM ({wanted}) q
  JOIN slots x ON x.tenant = q.tenant AND x.slot = q.seat AND x.run_id = q.id FOR NO KEY UPDATE OF x
)"""


def _holds(entries: str) -> str:
    return f"{entries}.seat IS NULL OR {entries}.id = ANY ((SELECT array_agg(run_id) FROM held)::uuid[])"


# Not those of runs that end in this very commit: it deletes them.
_KEEP_SEATS: Final = """, kept AS (
  UPDATE slots x SET promised_until = NULL FROM held
  WHERE x.tenant = held.tenant AND x.slot = held.slot
    AND held.run_id = ANY ((SELECT array_agg(id) FROM won WHERE NOT ended)::uuid[])
)"""


def _insert_commands(parameters: _Parameters, at: str) -> str:
    return """, c AS (
  INSERT INTO commands (run_id, command_id, tenant, last_seq, body_sha, outcome)
  SELECT w.id[k.p], k.command_id, w.tenant[k.p], w.seq[k.p], k.body_sha, k.outcome
  FROM w CROSS JOIN LATERAL (SELECT k.*, array_position(w.i, k.i) AS p FROM k OFFSET 0) k WHERE k.p IS NOT NULL
)"""


def _upsert_pendings(parameters: _Parameters, at: str) -> str:
    rows, _ = parameters.arrays(
        "k", i="int", id="text", status="text", path="text", digest="bytea", deadline="timestamptz", body="bytea"
    )
    return f""", p AS (
  INSERT INTO pendings (run_id, id, tenant, status, path, digest, deadline, opened_seq, opened_at, body)
  SELECT w.id[k.p], k.id, w.tenant[k.p], k.status, k.path, k.digest, k.deadline, w.seq[k.p], {at}, k.body
  FROM {_of_winners(rows)}
  ON CONFLICT (run_id, id) DO UPDATE
    SET status = excluded.status, deadline = excluded.deadline, digest = excluded.digest, body = excluded.body
)"""


def _insert_votes(parameters: _Parameters, at: str) -> str:
    rows, _ = parameters.arrays("k", i="int", pending_id="text", principal="text", body="bytea")
    return f""", v AS (
  INSERT INTO votes (run_id, pending_id, principal, tenant, last_seq, body)
  SELECT w.id[k.p], k.pending_id, k.principal, w.tenant[k.p], w.seq[k.p], k.body
  FROM {_of_winners(rows)}
)"""


def _insert_outbox(parameters: _Parameters, at: str) -> str:
    rows, _ = parameters.arrays("k", i="int", n="int", kind="text", target="text", body="bytea")
    return f""", o AS (
  INSERT INTO outbox (run_id, last_seq, n, tenant, kind, target, body)
  SELECT w.id[k.p], w.seq[k.p], k.n, w.tenant[k.p], k.kind, k.target, k.body
  FROM {_of_winners(rows)}
)"""


def _write_turns(parameters: _Parameters, at: str) -> str:
    opened, _ = parameters.arrays("k", i="int", n="int", wire_run_id="text", body_sha="bytea", first="int", last="int")
    ended, _ = parameters.arrays("k", i="int", n="int", last="int")
    return f""", t AS (
  INSERT INTO turns (run_id, n, tenant, thread_id, wire_run_id, body_sha, first_seq, last_seq)
  SELECT w.id[k.p], k.n, w.tenant[k.p], w.thread_id[k.p], k.wire_run_id, k.body_sha,
    w.seq[k.p] - w.n[k.p] + k.first, w.seq[k.p] - w.n[k.p] + k.last
  FROM {_of_winners(opened)}
), e AS (
  UPDATE turns SET last_seq = k.last_seq
  FROM (SELECT w.id[k.p] AS run_id, k.n, w.seq[k.p] - w.n[k.p] + k.last AS last_seq
        FROM {_of_winners(ended)} OFFSET 0) k -- OFFSET 0: its run_id is there before turns is looked up
  WHERE turns.run_id = k.run_id AND turns.n = k.n
)"""


def _upsert_messages(parameters: _Parameters, at: str) -> str:
    rows, _ = parameters.arrays("k", i="int", n="int", id="text", role="text", body="bytea", position="int")
    return f""", m AS (
  INSERT INTO messages (run_id, n, tenant, thread_id, id, role, body, seq)
  SELECT w.id[k.p], k.n, w.tenant[k.p], w.thread_id[k.p], k.id, k.role, k.body, w.seq[k.p] - w.n[k.p] + k.position
  FROM {_of_winners(rows)}
  ON CONFLICT (run_id, n) DO UPDATE SET role = excluded.role, body = excluded.body
)"""


_CHILD_STATEMENTS: Final[Mapping[str, Callable[[_Parameters, str], str]]] = {
    "commands": _insert_commands,
    "pendings": _upsert_pendings,
    "votes": _insert_votes,
    "outbox": _insert_outbox,
    "turns": _write_turns,
    "messages": _upsert_messages,
}


def _births(parameters: _Parameters, at: str, unrepeated: str, parts: frozenset[str]) -> tuple[str, str, str]:
    """The parts of a commit in which runs start and slots are taken: the subqueries before the update of runs, the
    condition under which an entry of an existing run has its slot, and the winners among the born."""
    branch = {"branch_of": "uuid", "follows": "uuid", "copied": "bigint"} if "branches" in parts else {}
    names = "".join(f", {column}" for column in branch)
    values = ", branch_of, follows, coalesce(copied, 0)" if branch else ""
    seats = {"seat": "text"} if "seats" in parts else {}
    held, holds = (_held("b", "s"), f" AND ({_holds('s')})") if seats else ("", "")
    born, arrays = parameters.arrays(
        "s", i="int", id="uuid", tenant="uuid", n="int", events="bytea", status="text", busy="bool",
        wake_at="timestamptz", result="bytea", workflow="bytea", workflow_name="text", workflow_version="int",
        dev="bool", thread_id="text", parent_id="uuid", parent_path="text", queue="text", slot="text",
        started_by="text", input="bytea", **branch, **seats,
    )  # fmt: skip
    before = f""", s AS MATERIALIZED (  -- entries that are the first of their run, sorted by id; i goes on counting
  SELECT * FROM {born}
){held}, again AS MATERIALIZED (         -- runs that want a slot again: locked first, so that who gets one also wins
  SELECT r.id, r.tenant, b.slot, b.status FROM b JOIN runs r ON r.id = b.id
  WHERE b.slot IS NOT NULL AND (r.tenant = b.tenant) IS TRUE AND r.version = b.version
    AND {unrepeated}
  ORDER BY r.id FOR NO KEY UPDATE OF r
), wanted AS MATERIALIZED (        -- slots, for runs that do not exist yet and for those of "again"
  SELECT s.id, s.tenant, s.slot, s.status IN {_ENDED} AS ended FROM s
  WHERE s.slot IS NOT NULL AND NOT (s.id IN (SELECT r.id FROM runs r WHERE r.id = ANY({arrays["id"]}))){holds}
  UNION ALL SELECT id, tenant, slot, coalesce(status IN {_ENDED}, false) FROM again
), got AS (                        -- in one order for all, else two batches that swap slots deadlock
  INSERT INTO slots (tenant, slot, run_id, promised_until)
  SELECT tenant, slot, id, NULL FROM wanted WHERE NOT ended ORDER BY tenant, slot
  ON CONFLICT DO NOTHING
  RETURNING run_id
), seated AS MATERIALIZED (        -- a run that ends in this very commit needs the slot to be free, but never holds it
  SELECT run_id FROM got
  UNION ALL SELECT w.id FROM wanted w LEFT JOIN slots x ON x.tenant = w.tenant AND x.slot = w.slot
  WHERE CASE WHEN x.run_id IS NULL THEN w.ended ELSE x.run_id = w.id END
), born AS (
  INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, dev, thread_id, parent_id, parent_path,
    queue, slot, status, seq, version, abi, head, log_bytes, worker, wake_at, started_by, input, result,
    ended_at{names})
  SELECT id, tenant, workflow, workflow_name, workflow_version, dev, thread_id, parent_id, parent_path,
    queue, slot, status, n, 1, {ABI}, sha256(events), octet_length(events),
    CASE WHEN busy THEN (SELECT id FROM me) END,
    CASE WHEN NOT busy THEN wake_at WHEN (SELECT id FROM me) IS NULL THEN {at} END,
    started_by, input, CASE WHEN status IN {_ENDED} THEN result END, CASE WHEN status IN {_ENDED} THEN {at} END{values}
  FROM s WHERE (slot IS NULL OR id = ANY ((SELECT array_agg(run_id) FROM seated)::uuid[])){holds}
  ON CONFLICT DO NOTHING           -- the same Start again: it loses
  RETURNING id, tenant, thread_id, seq, version, fence, worker, status
)"""
    seated = "b.slot IS NULL OR b.id = ANY ((SELECT array_agg(run_id) FROM seated)::uuid[])"
    after = f"""
  UNION ALL
  SELECT ({arrays["i"]})[x.p] AS i, ({arrays["n"]})[x.p] AS n, ({arrays["events"]})[x.p] AS events,
    id, tenant, thread_id, seq, version, fence, worker, status IN {_ENDED} AS ended
  FROM (SELECT born.*, array_position({arrays["id"]}, born.id) AS p FROM born OFFSET 0) x"""
    return before, seated, after


_ALL: Final = frozenset(_CHILDREN)
_ALL_WITH_BIRTHS: Final = _ALL | {"births"}
_NONE: Final[frozenset[str]] = frozenset()


def _parts_of(entries: Sequence[Entry]) -> frozenset[str]:
    births = any(entry.born is not None or entry.take_slot is not None for entry in entries)
    seldom = {"moves"} if any(entry.moved is not None for entry in entries) else _NONE
    if any(entry.seat is not None for entry in entries):
        seldom = seldom | {"seats"}
    if births and any(entry.born is not None and entry.born.branch is not None for entry in entries):
        seldom = seldom | {"branches"}
    if len(entries) > _LONE_ENTRIES_MAX:
        return (_ALL_WITH_BIRTHS if births else _ALL) | seldom
    children = (part for part in _CHILDREN if any(getattr(entry, part) for entry in entries))
    return frozenset((*children, "births") if births else children) | seldom


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
    arguments = _arguments([entries[i] for i in moved], [entries[i] for i in born], parts)
    with outcome_known():
        row = await connection.fetchrow(_commit_statement(parts), worker_id, at, *arguments)
    assert row is not None, "aggregates return one row"
    places, seq, version, fence, worker, db_now = row
    if places is None:
        return Committed({}, db_now)
    won = map(Won, seq, version, fence, worker)
    return Committed({numbers[place - 1]: each for place, each in zip(places, won, strict=True)}, db_now)


def _arguments(moved: Sequence[Entry], born: Sequence[Entry], parts: frozenset[str]) -> Iterable[Sequence[Any] | None]:
    """The arrays of a commit with these parts, after worker and time. What no entry has costs (nearly) nothing."""
    yield [entry.run_id for entry in moved]
    yield [entry.tenant for entry in moved]
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
    if "seats" in parts:
        yield [entry.seat for entry in moved]
    rows = list(enumerate((*moved, *born), 1))
    for part in _CHILDREN:
        if part in parts:
            yield from _CHILD_ARRAYS[part](rows)
    if "births" in parts:
        yield from _born_arrays(born, len(moved) + 1)
    if "branches" in parts:
        branches = [entry.born.branch for entry in born if entry.born is not None]
        yield [None if branch is None else branch.of for branch in branches]
        yield [None if branch is None else branch.follows for branch in branches]
        yield [0 if branch is None else branch.copied for branch in branches]
    if "seats" in parts and "births" in parts:
        yield [entry.seat for entry in born]


_Rows: TypeAlias = Sequence[tuple[int, Entry]]
_Arrays: TypeAlias = Iterable[Sequence[Any] | None]


def _command_arrays(rows: _Rows) -> _Arrays:
    found = [(i, e.run_id, c.command_id, c.body_sha, c.outcome) for i, e in rows if e.commands for c in e.commands]
    return _columns(found, 5)


def _pending_arrays(rows: _Rows) -> _Arrays:
    found = [
        (i, p.id, p.status, p.path, p.digest, p.deadline, p.body) for i, e in rows if e.pendings for p in e.pendings
    ]
    return _columns(found, 7)


def _vote_arrays(rows: _Rows) -> _Arrays:
    return _columns([(i, v.pending_id, v.principal, v.body) for i, e in rows if e.votes for v in e.votes], 4)


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


async def notify(connection: Connection | Pool, run_ids: Collection[UUID | str]) -> None:
    """Hint that these runs have something new. A statement of its own: inside the commit it serialises all commits,
    3 to 8 times slower. A hint names at most 200 runs; more of them are several hints."""
    ids = list(map(str, run_ids))
    payloads = [",".join(ids[start : start + HINT_IDS_MAX]) for start in range(0, len(ids), HINT_IDS_MAX)]
    await connection.execute("SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p", HINT_CHANNEL, payloads)


async def notify_due(connection: Connection | Pool) -> None:
    """Hint that some run which nobody holds has something to perform: workers look what is due."""
    await connection.execute("SELECT pg_notify($1, $2)", HINT_CHANNEL, DUE)


async def read_clock(connection: Connection | Pool) -> datetime:
    """The database's clock."""
    return cast(datetime, await connection.fetchval("SELECT clock_timestamp()"))


# --- claims -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that is now ours. `lost`: it was a dead worker's, so each open attempt is first declared lost; else no open
    attempt has begun and all are performed at once (docs/design/store.md#lost-attempts)."""

    run_id: UUID
    version: int
    fence: int
    lost: bool
    db_now: datetime


_CLAIM: Final = f"""
WITH dead AS MATERIALIZED (
  SELECT id FROM workers WHERE alive_until < now() - interval '{DEAD_AFTER}'
), lost AS MATERIALIZED (
  SELECT r.id FROM dead JOIN runs r ON r.worker = dead.id AND r.abi <= {ABI}
  LIMIT $2 FOR NO KEY UPDATE OF r SKIP LOCKED
), due AS MATERIALIZED (
  SELECT d.id FROM unnest($3::text[]) q(name) CROSS JOIN LATERAL (
    SELECT id FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now() AND abi <= {ABI}
    ORDER BY wake_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) d LIMIT $2
)
UPDATE runs r SET worker = $1, wake_at = NULL, fence = fence + 1, unreadable = NULL
FROM (SELECT id, true AS lost FROM lost UNION ALL SELECT id, false FROM due) x WHERE r.id = x.id
  AND EXISTS (SELECT 1 FROM workers WHERE id = $1 AND alive_until > now())
RETURNING r.id, r.version, r.fence, x.lost, clock_timestamp() AS db_now
"""


async def claim_runs(connection: Connection, worker_id: int, limit: int, queues: Sequence[str]) -> list[Claimed]:
    """Take up to `limit` runs that are due in `queues`, and up to as many of dead workers (of any queue)
    (docs/design/store.md#claims).

    Runs that a newer release has written to are passed over: this one could not read them.
    Runs that somebody else is committing to are skipped, not waited for. A worker whose lease is over gets none.
    Raises `CommitUnknown`: the heartbeat then tells which runs became ours, but not that they were lost: see
    `refence_runs`.
    """
    with outcome_known():
        rows = await connection.fetch(_CLAIM, worker_id, limit, queues)
    return [Claimed(*row) for row in rows]


async def register_worker(connection: Connection | Pool, name: str, lease: timedelta) -> int:
    """A new worker id, alive for `lease`. A process takes a new one at each start and after it could not renew."""
    query = "INSERT INTO workers (name, alive_until) VALUES ($1, now() + $2) RETURNING id"
    return cast(int, await connection.fetchval(query, name, lease))


async def retire_worker(connection: Connection | Pool, worker_id: int) -> None:
    """The worker ends. What it still holds may be claimed at once, as lost."""
    await connection.execute("UPDATE workers SET alive_until = '-infinity' WHERE id = $1", worker_id)


async def living_workers(connection: Connection | Pool) -> list[tuple[int, str, float]]:
    """The workers whose runs nobody may take yet, as (id, name, seconds until then)."""
    query = f"""
    SELECT id, name, extract(epoch FROM alive_until + interval '{DEAD_AFTER}' - now())::float8
    FROM workers WHERE alive_until >= now() - interval '{DEAD_AFTER}' AND name NOT LIKE 'nobody:%' ORDER BY id
    """
    return [(row[0], row[1], row[2]) for row in await connection.fetch(query)]


class Attendance(NamedTuple):
    """How many workers give signs of life, and how many runs wait for one: due, and held by nobody who is alive."""

    alive: int
    waiting: int


WAITING_COUNTED_MAX: Final = 1000

_ATTENDANCE: Final = """
SELECT (SELECT count(*) FROM workers WHERE alive_until > now() AND name NOT LIKE 'nobody:%'),
  (SELECT count(*) FROM (
    SELECT FROM unnest($1::text[]) q(name) CROSS JOIN LATERAL (
      SELECT FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at <= now() LIMIT $2) due
    UNION ALL
    SELECT FROM workers w CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.worker = w.id LIMIT $2) held
    WHERE w.alive_until <= now()
    LIMIT $2) waiting)
"""


async def attendance(connection: Connection | Pool, queues: Sequence[str] = ("default",)) -> Attendance:
    """Who performs runs now, of all tenants. No more than `WAITING_COUNTED_MAX` runs are counted."""
    row = await connection.fetchrow(_ATTENDANCE, queues, WAITING_COUNTED_MAX)
    assert row is not None, "it counts"
    return Attendance(*row)


async def forget_workers(connection: Connection | Pool, dead_for: timedelta) -> int:
    """Delete the rows of workers that have been dead for so long and hold nothing; returns how many.

    The row of one that holds something stays: without it nobody would find its runs.
    """
    query = """
    DELETE FROM workers w WHERE w.alive_until < now() - $1::interval
      AND NOT EXISTS (SELECT FROM runs r WHERE r.worker = w.id)
    """
    return int((await connection.execute(query, dead_for)).rpartition(" ")[2])


@dataclass(frozen=True, slots=True)
class Held:
    run_id: UUID
    version: int
    fence: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`alive` False: the lease is over and can't be renewed; drop everything, take a new id
    (docs/design/store.md#leases). `held` is what the database says this worker holds: the poll of held runs
    (docs/design/store.md#held-runs)."""

    alive: bool
    held: list[Held]
    db_now: datetime


_HEARTBEAT: Final = """
WITH me AS (UPDATE workers SET alive_until = now() + $2 WHERE id = $1 AND alive_until > now() RETURNING id)
SELECT (SELECT count(*) FROM me) > 0, array_agg(r.id), array_agg(r.version), array_agg(r.fence), clock_timestamp()
FROM runs r WHERE r.worker = $1
"""


async def heartbeat(connection: Connection | Pool, worker_id: int, lease: timedelta) -> Heartbeat:
    """Renew the lease and poll the held runs (docs/design/store.md#held-runs). An aggregate, so that `alive` is known
    when nothing is held."""
    row = await connection.fetchrow(_HEARTBEAT, worker_id, lease)
    assert row is not None, "aggregates return one row"
    alive, ids, versions, fences, db_now = row
    return Heartbeat(alive, list(map(Held, ids or (), versions or (), fences or ())), db_now)


_REFENCE: Final = """
UPDATE runs SET fence = fence + 1 WHERE worker = $1 AND id = ANY($2::uuid[]) RETURNING id, version, fence
"""


async def refence_runs(connection: Connection, worker_id: int, run_ids: Collection[UUID]) -> list[Held]:
    """Raise the fence of those of `run_ids` that the worker holds; what it does not hold is not in the result.

    For a holder after `CommitUnknown`: its commit may still be running in the server, and chunks that land after the
    load that was to show them would be sent a second time under the same fence (found by the torture). Then load.

    Only a fence that is one above the expected one proves that the claim is the one known (or taken by the commit of
    unknown outcome, which raises it by one more; 0 at birth). Any other run that turns out to be held, here or in a
    heartbeat, may come from a claim whose answer was lost, of a dead worker's run: declare its open attempts lost.
    """
    with outcome_known():
        rows = await connection.fetch(_REFENCE, worker_id, sorted(run_ids))
    return [Held(*row) for row in rows]


_RELEASE: Final = """
UPDATE runs SET worker = NULL, wake_at = $3, fence = fence + 1 WHERE worker = $1 AND id = ANY($2::uuid[]) RETURNING id
"""


async def release_runs(connection: Connection, worker_id: int, run_ids: Collection[UUID], at: datetime) -> list[UUID]:
    """Hand runs back at shutdown, due at once. Only after each begun attempt was reported or declared lost
    (docs/design/store.md#lost-attempts): whoever claims them takes every open attempt for one that never began. Returns
    those that were still ours."""
    with outcome_known():
        rows = await connection.fetch(_RELEASE, worker_id, sorted(run_ids), at)
    return [row[0] for row in rows]


_GIVE_BACK: Final = """
WITH given AS MATERIALIZED (
  SELECT id, given_back + 1 AS times, least($6::interval * 2 ^ least(given_back, 16), $7::interval) AS pause
  FROM runs WHERE id = $2 AND worker = $1::bigint AND fence = coalesce($3::int, fence) FOR NO KEY UPDATE
), nobody AS (
  INSERT INTO workers (name, alive_until)
  SELECT 'nobody: given back by ' || $1::bigint, now() + pause FROM given WHERE $4::bool RETURNING id
)
UPDATE runs r SET worker = (SELECT id FROM nobody), wake_at = CASE WHEN NOT $4 THEN now() + given.pause END,
  fence = fence + 1, given_back = given.times, unreadable = $5::text
FROM given WHERE r.id = given.id RETURNING given.pause
"""
GIVE_BACK_PAUSE: Final = timedelta(seconds=1)
GIVE_BACK_PAUSE_MAX: Final = timedelta(minutes=5)


async def give_back(
    connection: Connection, worker_id: int, run_id: UUID, fence: int | None, *, begun: bool, reason: str
) -> timedelta | None:
    """Give back a run that this worker holds (under `fence`, if that is known) and can't go on with, for others to
    claim after a pause that doubles each time until somebody commits to it. Returns the pause; None: it was ours no
    more.

    `begun`: its open attempts may have been begun. Nobody here can write in its log that they are lost, so the run goes
    to a worker that does not exist and dies after the pause: whoever claims it from there declares them lost.
    """
    arguments = worker_id, run_id, fence, begun, reason, GIVE_BACK_PAUSE, GIVE_BACK_PAUSE_MAX
    with outcome_known():
        return cast("timedelta | None", await connection.fetchval(_GIVE_BACK, *arguments))


_NAME_NEWER: Final = f"""
UPDATE runs SET unreadable = 'a newer release wrote it, under ABI ' || abi || ', and none of its workers takes it'
WHERE id IN (SELECT id FROM runs
  WHERE queue = ANY($1::text[]) AND worker IS NULL AND wake_at < now() - $2::interval AND abi > {ABI}
    AND unreadable IS NULL
  LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED)
"""


async def name_newer(connection: Connection | Pool, queues: Sequence[str], overdue_by: timedelta) -> int:
    """Say of runs that this release passes over, and that have been due for so long, that nobody can read them;
    returns how many. A claim by somebody who can says otherwise."""
    return int((await connection.execute(_NAME_NEWER, queues, overdue_by)).rpartition(" ")[2])


_NEXT_WAKE: Final = f"""
SELECT min(d.wake_at) FROM unnest($1::text[]) q(name) CROSS JOIN LATERAL (
  SELECT wake_at FROM runs WHERE queue = q.name AND worker IS NULL AND wake_at IS NOT NULL AND abi <= {ABI}
  ORDER BY wake_at LIMIT 1) d
"""


async def next_wake(connection: Connection | Pool, queues: Sequence[str]) -> datetime | None:
    """When the next free run of `queues` that this release can read is due; None when none ever will by itself."""
    return await connection.fetchval(_NEXT_WAKE, queues)


# --- loading ------------------------------------------------------------------------------------------------------


class LogRow(msgspec.Struct, frozen=True, gc=False):
    """The events `first_seq` to `last_seq`, as committed together: JSON text of an array."""

    first_seq: int
    last_seq: int
    events: bytes


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """A run as of one moment. `state` is a snapshot at `snapshot_seq` when one newer than what the caller has exists;
    `rows` is the log after it (or after what the caller has), up to `seq`, without gaps."""

    run_id: UUID
    tenant: UUID
    workflow: bytes
    status: str
    seq: int
    version: int
    fence: int
    worker: int | None
    wake_at: datetime | None
    thread_id: str
    started_by: str
    log_bytes: int
    abi: int
    snapshot_seq: int | None
    state: bytes | None
    rows: list[LogRow]
    db_now: datetime


_LOADED: Final = """
  r.id, r.tenant, r.workflow, r.status, r.seq, r.version, r.fence, r.worker, r.wake_at, r.thread_id, r.started_by,
  r.log_bytes, r.abi, s.seq AS snapshot_seq, s.state, l.firsts, l.last_seqs, l.events, clock_timestamp() AS db_now
"""
_LOAD: Final = f"""
SELECT {_LOADED}
FROM unnest($1::uuid[], $2::bigint[], $3::int[]) AS w(id, have_seq, abi)
JOIN runs r ON r.id = w.id
LEFT JOIN LATERAL (
  SELECT seq, state FROM snapshots s WHERE s.run_id = r.id AND s.abi = w.abi AND s.seq > w.have_seq
  ORDER BY seq DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (
  SELECT array_agg(last_seq ORDER BY last_seq) AS last_seqs, array_agg(first_seq ORDER BY last_seq) AS firsts,
    array_agg(events ORDER BY last_seq) AS events
  FROM (SELECT last_seq, first_seq, events FROM log
    WHERE run_id = r.id AND last_seq > greatest(w.have_seq, coalesce(s.seq, 0)) AND last_seq <= r.seq
    ORDER BY last_seq LIMIT $4) AS x) l ON true
"""


async def load_runs(
    connection: Connection | Pool,
    run_ids: Sequence[UUID],
    have_seqs: Sequence[int],
    abi: int,
    rows_max: int | None = None,
) -> dict[UUID, Loaded]:
    """The runs, each from the seq that the caller has already (0: from the beginning) (docs/design/store.md#snapshots).

    One statement, one moment. A run that does not exist is not in the result. `abi` is the version of the state's
    encoding that the caller reads: snapshots of another are passed over. `rows_max`: of each run's log so many commits
    at most, its oldest; `read_log` has the others.
    """
    rows = await connection.fetch(_LOAD, run_ids, have_seqs, [abi] * len(run_ids), rows_max)
    return {row[0]: _loaded(row) for row in rows}


def _loaded(row: Any) -> Loaded:
    firsts, lasts, events = row[15] or (), row[16] or (), row[17] or ()
    log = list(map(LogRow, firsts, lasts, events))
    return Loaded(*row[:15], rows=log, db_now=row[18])


_LOAD_AT: Final = f"""
SELECT {_LOADED}
FROM runs r
LEFT JOIN LATERAL (
  SELECT seq, state FROM snapshots s WHERE s.run_id = r.id AND s.abi = $4 AND s.seq <= $3
  ORDER BY seq DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (
  SELECT array_agg(last_seq ORDER BY last_seq) AS last_seqs, array_agg(first_seq ORDER BY last_seq) AS firsts,
    array_agg(events ORDER BY last_seq) AS events
  FROM log WHERE run_id = r.id AND last_seq > coalesce(s.seq, 0) AND first_seq <= $3 AND last_seq <= r.seq) l ON true
WHERE r.tenant = $1 AND r.id = $2
"""


async def load_run_at(connection: Connection | Pool, tenant: UUID, run_id: UUID, seq: int, abi: int) -> Loaded | None:
    """What `state_at(seq)` needs: the nearest snapshot at or before `seq` and the log after it, as far as `seq`.

    The last row may go beyond `seq` (rows are commits): fold only its first events. None: no such run of the tenant.
    """
    row = await connection.fetchrow(_LOAD_AT, tenant, run_id, seq, abi)
    return None if row is None else _loaded(row)


_UNLOCKED: Final = "SELECT id FROM runs WHERE id = ANY($1::uuid[]) FOR NO KEY UPDATE SKIP LOCKED"


async def locked_runs(connection: Connection | Pool, run_ids: Collection[UUID]) -> set[UUID]:
    """Those of `run_ids` whose rows somebody holds locked in this moment (or that do not exist)."""
    return set(run_ids) - {row[0] for row in await connection.fetch(_UNLOCKED, run_ids)}


@contextlib.asynccontextmanager
async def lock_run(connection: Connection, run_id: UUID, have_seq: int, abi: int) -> AsyncGenerator[Loaded | None]:
    """Take one run alone: whoever lost three times decides on what this gives, and `commit`s inside
    (docs/design/store.md#decisions-and-chunks).

    The only place that holds a row's lock across round trips; `idle_in_transaction_session_timeout` ends it when the
    process is stopped. Raises `CommitUnknown` when the connection breaks, at the end of the block as well.
    """
    with outcome_known():
        async with connection.transaction():
            await connection.execute("SELECT FROM runs WHERE id = $1 FOR NO KEY UPDATE", run_id)
            # A statement of its own: the snapshot of the locking one is older than the lock.
            loaded = await load_runs(connection, [run_id], [have_seq], abi)
            yield loaded.get(run_id)


_COMMANDS_OF: Final = """
SELECT c.run_id, c.command_id, c.body_sha, c.outcome FROM unnest($1::uuid[], $2::text[]) AS k(run_id, command_id)
JOIN commands c ON c.run_id = k.run_id AND c.command_id = k.command_id
"""


async def commands_of(
    connection: Connection | Pool, commands: Collection[tuple[UUID, str]]
) -> dict[tuple[UUID, str], CommandRow]:
    """Which of these (run, command id) were carried out, and what was answered (docs/design/store.md#command-ids). The
    same id with the same `body_sha` gets the first outcome; with another it is 409."""
    rows = await connection.fetch(_COMMANDS_OF, [run for run, _ in commands], [id for _, id in commands])
    return {(row[0], row[1]): CommandRow(*row[1:]) for row in rows}


async def read_log(connection: Connection | Pool, run_id: UUID, after_seq: int, limit: int) -> list[LogRow]:
    """Up to `limit` commits of the log with an event after `after_seq`, in order. The first may begin before it."""
    query = """
    SELECT first_seq, last_seq, events FROM log WHERE run_id = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3
    """
    return [LogRow(*row) for row in await connection.fetch(query, run_id, after_seq, limit)]


@dataclass(frozen=True, slots=True)
class RunVersion:
    run_id: UUID
    seq: int
    version: int


async def poll_versions(connection: Connection | Pool, run_ids: Sequence[UUID]) -> list[RunVersion]:
    """How far these runs are: the poll of followed runs, for when hints are lost."""
    rows = await connection.fetch("SELECT id, seq, version FROM runs WHERE id = ANY($1::uuid[])", run_ids)
    return [RunVersion(*row) for row in rows]


# --- snapshots ----------------------------------------------------------------------------------------------------

_SAVE_SNAPSHOT: Final = """
WITH saved AS (
  INSERT INTO snapshots (run_id, seq, tenant, abi, state)
  SELECT id, $2, tenant, $3, $4 FROM runs WHERE id = $1 AND seq >= $2
  ON CONFLICT (run_id, seq) DO UPDATE SET abi = excluded.abi, state = excluded.state WHERE snapshots.abi < excluded.abi
  RETURNING run_id, seq
)
UPDATE runs r SET snapshot_seq = greatest(r.snapshot_seq, saved.seq) FROM saved WHERE r.id = saved.run_id
"""


async def save_snapshot(connection: Connection, run_id: UUID, seq: int, abi: int, state: bytes) -> None:
    """Keep the fold of the first `seq` events. Outside the commit; it may be lost or come late without harm."""
    await connection.execute(_SAVE_SNAPSHOT, run_id, seq, abi, state)


# --- slots --------------------------------------------------------------------------------------------------------


async def slot_holder(connection: Connection | Pool, tenant: UUID, slot: str) -> UUID | None:
    """The run that holds the slot."""
    return (await slot_holders(connection, [(tenant, slot)])).get((tenant, slot))


_SLOT_HOLDERS: Final = f"""
WITH found AS MATERIALIZED (
  SELECT s.tenant, s.slot, s.run_id FROM unnest($1::uuid[], $2::text[]) AS k(tenant, slot)
  JOIN slots s ON s.tenant = k.tenant AND s.slot = k.slot
), ended AS MATERIALIZED (
  SELECT f.tenant, f.slot, f.run_id FROM found f JOIN runs r ON r.id = f.run_id WHERE r.status IN {_ENDED}
  ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED
), freed AS (
  DELETE FROM slots s USING ended e WHERE s.tenant = e.tenant AND s.slot = e.slot AND s.run_id = e.run_id
  RETURNING s.tenant, s.slot
)
SELECT tenant, slot, run_id FROM found WHERE NOT ((tenant, slot) IN (SELECT tenant, slot FROM freed))
"""


async def slot_holders(
    connection: Connection | Pool, slots: Collection[tuple[UUID, str]]
) -> dict[tuple[UUID, str], UUID]:
    """The runs that hold these slots, or were promised them, by (tenant, slot); a slot that nobody holds is not in the
    result. A run that has ended holds none: its slot is freed by who asks.

    There is one way to such a slot: the same Start twice at once with two different free slots, the second's slot
    committed after the run had already ended. It harms nobody until somebody wants it, who then asks.
    """
    rows = await connection.fetch(_SLOT_HOLDERS, [tenant for tenant, _ in slots], [slot for _, slot in slots])
    return {(row[0], row[1]): row[2] for row in rows}


# --- what requests read -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as lists show it. `unreadable`: why nobody goes on with it, where workers could not read it."""

    id: UUID
    tenant: UUID
    workflow: bytes
    workflow_name: str
    workflow_version: int
    dev: bool
    thread_id: str
    parent_id: UUID | None
    parent_path: str | None
    queue: str
    slot: str | None
    status: str
    seq: int
    version: int
    started_by: str
    created_at: datetime
    ended_at: datetime | None
    branch_of: UUID | None
    follows: UUID | None
    copied: int
    unreadable: str | None


@dataclass(frozen=True, slots=True)
class RunRow(RunSummary):
    """A run with its input and, when it has ended, its `result`: JSON text of `{"output"}` or `{"error"}`."""

    input: bytes | None
    result: bytes | None


SUMMARY_COLUMNS: Final = (
    "id, tenant, workflow, workflow_name, workflow_version, dev, thread_id, parent_id, parent_path, queue, slot, "
    "status, seq, version, started_by, created_at, ended_at, branch_of, follows, copied, unreadable"
)


_OF_RUN: Final = ", ".join(f"r.{column}" for column in SUMMARY_COLUMNS.split(", "))


async def get_run(connection: Connection | Pool, tenant: UUID, run_id: UUID) -> RunRow | None:
    """The run, if it is the tenant's."""
    query = f"SELECT {SUMMARY_COLUMNS}, input, result FROM runs WHERE id = $1 AND tenant = $2"
    row = await connection.fetchrow(query, run_id, tenant)
    return None if row is None else RunRow(*row)


async def list_runs(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    limit: int,
    statuses: Sequence[str] | None = None,
    workflow: str | None = None,
    thread_id: str | None = None,
    before: tuple[datetime, UUID] | None = None,
) -> list[RunRow]:
    """The tenant's runs, newest first. `before` is the (created_at, id) of the last one of the page before.

    Of the status `needs_attention` are also runs that nobody can read, whatever their own status is.
    """
    arguments: list[Any] = [tenant, limit, None if statuses is None else sorted(set(statuses))]
    conditions = ["r.tenant = $1"]

    def demand(condition: str, *values: Any) -> None:
        numbers = range(len(arguments) + 1, len(arguments) + 1 + len(values))
        arguments.extend(values)
        conditions.append(condition.format(*(f"${number}" for number in numbers)))

    if workflow is not None:
        demand("r.workflow_name = {}", workflow)
    if thread_id is not None:
        demand("r.thread_id = {}", thread_id)
    if before is not None:
        demand("(r.created_at, r.id) < ({}, {})", *before)

    def page(*more: str) -> str:
        found = f"SELECT r.* FROM runs r WHERE {' AND '.join((*conditions, *more))}"
        return f"({found} ORDER BY r.created_at DESC, r.id DESC LIMIT $2)"

    if statuses is None:
        pages = page("$3::text[] IS NULL")
    else:
        # A page of each status, of which the newest are taken: looked for together, a page of few runs among many
        # others is a walk through all of those, and one of many among few a sort of them.
        of_each = page("r.status = wanted.status")
        pages = f"(SELECT r.* FROM unnest($3::text[]) AS wanted(status) CROSS JOIN LATERAL {of_each} r)"
        if "needs_attention" in statuses:
            pages += f" UNION ALL {page('r.unreadable IS NOT NULL', 'r.status <> ALL ($3)')}"
    query = f"""
    SELECT {_OF_RUN}, r.input, r.result FROM ({pages}) r ORDER BY r.created_at DESC, r.id DESC LIMIT $2
    """
    return [RunRow(*row) for row in await connection.fetch(query, *arguments)]


async def count_by_status(connection: Connection | Pool, tenant: UUID | None = None) -> dict[str, int]:
    """How many runs have each status, of one tenant or of all."""
    query = "SELECT status, count(*) FROM runs WHERE $1::uuid IS NULL OR tenant = $1 GROUP BY status"
    return dict(map(tuple, await connection.fetch(query, tenant)))
