"""The SQL of a commit: one statement, with the parts that its entries need (docs/design/store.md#the-commit).

Its parts, in their order: the entries as rows, the update of runs that exist and the insert of those that start, then
the winners, and their rows: log, slots, and the rows of the child tables.

* Child rows take run, tenant, thread and seq from the run row that won, never from input
  (docs/design/store.md#tenants).
* Child arrays meet their winners by `array_position`, never by a join: with the pinned nested loops a join is quadratic
  in the batch.
* A plan that is pinned while the tables are empty must still be right when they are not, so nothing is left to choose:
  a tenant is compared by `(r.tenant = entries.tenant) IS TRUE`, which no index can serve. Else an index that begins
  with the tenant looks as good as the primary key, and reads all runs of the tenant for each entry.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from hai_flow.engine.events import ABI
from hai_flow.store.catalog.workflows import newer_than

# The parts that the entries of a commit may have beside their events; `moved`: some are of runs that exist; `ended`:
# some end their run; `asks`: some pendings are to stand in inboxes; `unasks`: some may leave inboxes; `births`: some
# start a run; `in_use`: some of those of a version that must not be retired, or must be the latest; `again`, only with
# births: some want a slot again, which locks their runs; `moves`: some go on with another version of their workflow;
# `branches`: some of those born leave their thread's line; `seats`: some begin with a slot that they were promised;
# `elsewhere`: some are of a queue that this process does not serve; `free`: some lose where somebody holds their run;
# `instigators`: other people than the requester are behind some; `summaries`: the line by which lists show some of them
# is another one; `holds`: freezes hold other steps; `heirs`: some end and leave their slots to others; `audit`: people
# asked for something. From `again` on all so seldom that no other commit carries the columns.
CHILDREN: Final = ("commands", "pendings", "votes", "outbox", "opened_turns", "ended_turns", "messages")
COMMON: Final = frozenset({*CHILDREN, "asks", "unasks", "moved", "ended"})  # big batches have them all
SELDOM: Final = frozenset({"again", "seats", "heirs"})  # about slots of others: never in the statement of a lone entry
SINGLE: Final = "single "
"""Before the name of a part that has one row: a mark beside the parts."""
_COMMAND: Final = {"i": "int", "run_id": "uuid", "command_id": "text", "body_sha": "bytea", "outcome": "bytea"}
ENDED: Final = ("finished", "failed", "stopped")
FREEZE_VERSION: Final = "coalesce((SELECT version FROM freeze_switch), 0)"  # none was ever made: there is no row
RAISE_FREEZE_VERSION: Final = """
INSERT INTO freeze_switch (version) VALUES (1)
ON CONFLICT (single) DO UPDATE SET version = freeze_switch.version + 1
"""
"""Has every process read again what is in force: freezes, and the tools with standing rules."""
PROMISE_SECONDS: Final = 60  # so long a slot is promised to a run that has not begun with it
_ENDED: Final = str(ENDED)


NO_DEADLINE: Final = "timestamptz '2286-11-20 17:46:39+00'"  # behind every deadline; a cursor can say it


def due(deadline: str) -> str:
    """A pending's place in the order of an inbox."""
    return f"least(coalesce({deadline}, {NO_DEADLINE}), {NO_DEADLINE})"


class _Parameters:
    """The parameters of one statement, numbered in order of appearance."""

    def __init__(self) -> None:
        self._number = itertools.count(1)

    def one(self, kind: str) -> str:
        return f"${next(self._number)}::{kind}"

    def rows(self, name: str, parts: frozenset[str], part: str, **columns: str) -> tuple[str, dict[str, str]]:
        """The rows of a part: as `arrays`, or the only one by plain parameters, which cost the driver a tenth of an
        array each."""
        if SINGLE + part not in parts:
            return self.arrays(name, ordinality="i" if part == "moved" else "", **columns)
        parameters = {column: self.one(kind.removeprefix("text::")) for column, kind in columns.items()}
        number, last = (", 1", ", i") if part == "moved" else ("", "")
        row = f"(VALUES ({', '.join(parameters.values())}{number})) AS {name}({', '.join(columns)}{last})"
        return row, parameters

    def arrays(self, name: str, *, ordinality: str = "", **columns: str) -> tuple[str, dict[str, str]]:
        """`unnest` of one array parameter per column, and those parameters by column.

        An array that is shorter than the others is filled up with NULLs, so a column that no row uses is not sent: one
        array element costs the driver 0.7 us. An array of the kind `text::int` comes as PostgreSQL writes it, as one
        text, which costs a quarter of that. `ordinality`: a last column that counts the rows from 1."""
        parameters = {column: self.one(f"{kind}[]") for column, kind in columns.items()}
        counted = " WITH ORDINALITY" if ordinality else ""
        names = [*columns, ordinality] if ordinality else list(columns)
        return f"unnest({', '.join(parameters.values())}){counted} AS {name}({', '.join(names)})", parameters


def is_lone(parts: frozenset[str]) -> bool:
    """Whether the commit has one entry, and nothing of what is seldom: its winner is then a row, not arrays of one
    element, and a subquery less for each look at it."""
    return SINGLE + "moved" in parts or SINGLE + "births" in parts


def _place(parts: frozenset[str]) -> str:
    """Behind a column of `winners`: which of its elements belongs to the child row."""
    return "" if is_lone(parts) else "[child.place]"


def _render_rows_of_winners(rows: str, parts: frozenset[str]) -> str:
    """The rows of a child array whose entry won; `place` is that of the entry in the arrays of `winners`."""
    if is_lone(parts):
        return f"won AS winners CROSS JOIN {rows}"
    return (
        "winners CROSS JOIN LATERAL ("
        f"SELECT child.*, array_position(winners.i, child.i) AS place FROM {rows} OFFSET 0) child "
        "WHERE child.place IS NOT NULL"
    )


class Write(NamedTuple):
    """One statement for the rows of a child table: `into` are the table and the columns of an INSERT, or nothing."""

    name: str
    into: str
    rest: str


class Children(NamedTuple):
    """The writes of a commit for one kind of child rows. `given`: subqueries that its statements share."""

    given: str
    writes: tuple[Write, ...]


class _Moving(NamedTuple):
    """Parts of the statement that updates runs: the parameters of the worker (`me`) and the time, the entries, their
    arrays, the subqueries before the update, the condition that no command is repeated, and further columns to set.
    Where only runs begin there is nothing to update: then it has the subqueries before the births, and nothing else."""

    me: str
    at: str
    entries: str
    arrays: dict[str, str]
    before: str
    unrepeated: str
    set_: str


def _build_moving(parameters: _Parameters, parts: frozenset[str]) -> _Moving:
    me, at = parameters.one("bigint"), parameters.one("timestamptz")
    # a worker whose lease is over takes no claim: it may count as dead already
    claimant = f"""claimant AS MATERIALIZED (
  SELECT id FROM workers WHERE id = {me} AND alive_until > now()
)"""
    if "moved" not in parts:
        return _Moving(me, at, "", {}, f"\nWITH {claimant}", "true", "")
    moves = {"workflow": "bytea", "workflow_version": "int", "dev": "bool", "queue": "text"} if "moves" in parts else {}
    seats = {"seat": "text"} if "seats" in parts else {}
    elsewhere = {"elsewhere": "bool"} if "elsewhere" in parts else {}
    free = {"free": "bool"} if "free" in parts else {}
    instigators = {"instigators": "text"} if "instigators" in parts else {}
    summaries = {"summary": "text"} if "summaries" in parts else {}
    holds = {"held": "text"} if "holds" in parts else {}
    heirs = {"heir": "uuid", "heir_slot": "text", "heir_key": "bool", "leaves": "bool"} if "heirs" in parts else {}
    lone = is_lone(parts)
    name = "entries" if lone else "entry"
    all_events = "" if lone else parameters.one("bytea")  # those of all entries, one behind the other
    events = {"events": "bytea"} if lone else {"begins": "text::int", "size": "text::int"}
    entries, arrays = parameters.rows(
        name, parts, "moved", id="text::uuid", tenant="uuid", n="text::int", **events, version="text::bigint",
        fence="text::int", status="text::text", busy="text::bool", wake_at="timestamptz", cut="bool", slot="text",
        result="bytea", created_at="text::timestamptz", **moves, **seats, **elsewhere, **free, **instigators,
        **summaries, **holds, **heirs,
    )  # fmt: skip
    read = "".join(
        f", {column}" for column in (*moves, *seats, *elsewhere, *free, *instigators, *summaries, *holds, *heirs)
    )
    kept = (*moves, *instigators, *summaries, *holds)
    set_ = "".join(f"\n    {column} = coalesce(entries.{column}, r.{column})," for column in kept)
    repeated, unrepeated = "", "true"
    if "commands" in parts:
        commands, _ = parameters.rows("command", parts, "commands", **_COMMAND)
        repeated = f""", given_commands AS MATERIALIZED (
  SELECT * FROM {commands}
), repeated AS MATERIALIZED (      -- entries with a command that was carried out before (its commit moved version)
  SELECT given.i FROM given_commands given
  JOIN commands known ON known.run_id = given.run_id AND known.command_id = given.command_id
)"""
        unrepeated = "NOT (entries.i IN (SELECT i FROM repeated))"
    if lone:
        return _Moving(me, at, entries, arrays, f"\nWITH {claimant}{repeated}", unrepeated, set_)
    before = f"""
WITH entries AS MATERIALIZED (     -- of runs that exist, one per run, sorted by id; i from 1
  SELECT id, coalesce(tenant, ({arrays["tenant"]})[1]) AS tenant, n,
    substring({all_events} FROM begins FOR size) AS events, version, fence, status, busy, wake_at, cut, slot, result,
    created_at, i::int{read} FROM {entries}
), """
    return _Moving(me, at, "entries", arrays, f"{before}{claimant}{repeated}", unrepeated, set_)


_UNMOVED: Final = """r.version = entries.version AND coalesce(r.created_at = entries.created_at, true)
    AND coalesce(r.fence = entries.fence, true)"""


def _update(moving: _Moving, parts: frozenset[str], seated: str) -> str:
    """The update of the runs of entries whose condition holds, and which are `seated`."""
    me, at, unrepeated, set_ = moving.me, moving.at, moving.unrepeated, moving.set_
    claimant = _render_claimant("entries", parts)
    free = "\n    AND (entries.free IS NOT TRUE OR r.worker IS NULL)" if "free" in parts else ""
    head = "head" if "audit" in parts else ""
    same_end = "CASE WHEN entries.result IS NULL THEN r.ended_at END"  # nothing of the entry ends the run anew
    return f"""
  UPDATE runs r SET
    seq = r.seq + entries.n, version = r.version + (entries.version IS NOT NULL)::int,
    status = coalesce(entries.status, r.status),
    head = sha256(r.head || entries.events), log_bytes = r.log_bytes + octet_length(entries.events),
    slot = coalesce(entries.slot, r.slot),{set_} abi = greatest(r.abi, {ABI}), given_back = 0, unreadable = NULL,
    older_seq = CASE WHEN r.abi < {ABI} THEN r.seq ELSE r.older_seq END,
    ended_at = CASE WHEN entries.status IS NULL THEN r.ended_at
                    WHEN entries.status IN {_ENDED} THEN coalesce({same_end}, greatest(r.created_at, {at})) END,
    result = CASE WHEN entries.status IS NULL THEN r.result
                  WHEN entries.status IN {_ENDED} THEN coalesce(entries.result, r.result) END,
    worker = CASE WHEN entries.busy IS NULL THEN r.worker
                  WHEN entries.busy THEN coalesce(r.worker, {claimant}) END,
    wake_at = CASE WHEN entries.busy IS NULL THEN r.wake_at WHEN NOT entries.busy THEN entries.wake_at
                   WHEN coalesce(r.worker, {claimant}) IS NULL THEN {at} END,
    fence = r.fence + (coalesce(entries.cut, false) OR (entries.busy IS FALSE AND r.worker IS NOT NULL)
                       OR (entries.busy IS TRUE AND r.worker IS NULL))::int
  FROM {moving.entries}
  WHERE r.id = entries.id AND (r.tenant = entries.tenant) IS TRUE
    AND CASE WHEN entries.version IS NOT NULL THEN {_UNMOVED}  -- a decision
             ELSE r.fence = entries.fence AND r.worker = {me} END              -- chunks of the holder
    AND {unrepeated}
    AND ({seated}){free}
  RETURNING entries.i, entries.n, entries.events, r.id, r.tenant, r.thread_id, r.seq, r.version, r.fence, r.worker,
    coalesce(entries.status IN {_ENDED}, false) AS ended{head and ", r.head"}
"""


@functools.cache
def commit_statement(parts: frozenset[str]) -> str:
    """The text of a commit whose entries have these parts.

    A lone commit is a person waiting, and the mere presence of a subquery costs it 30 us: it gets a statement with the
    parts that it has. Big batches share two statements, with all children, with births and without: fewer plans."""
    parameters = _Parameters()
    moving = _build_moving(parameters, parts)
    children = "".join(
        _as_subqueries(_CHILDREN[part](parameters, moving.at, parts)) for part in CHILDREN if part in parts
    )
    head = ""
    if "audit" in parts:
        children += _as_subqueries(_insert_audit(parameters, "clock_timestamp()", parts))
        head = ", head"
    born, seated, born_won = "", "entries.slot IS NULL", ""
    if "births" in parts:
        born, seated, born_won = _render_births(parameters, moving, parts)
    elif "seats" in parts:
        born = _render_slots_held("entries")
    if "seats" in parts:
        seated = f"({seated}) AND ({_render_holds('entries')})"
        children += _KEEP_SEATS
    if "heirs" in parts:
        children += _LEAVE_SLOTS
    began = ", now() AS created_at" if "births" in parts else ""
    freed = _render_freed_slots(parts) if "ended" in parts else ""
    name, winners = ("won", _LONE_WINNER) if is_lone(parts) else ("moved", "winners")
    moved = f", {name} AS ({_update(moving, parts, seated)})" if "moved" in parts else ""
    won = "" if is_lone(parts) else _render_winners(moved, born_won, head)
    return f"""{moving.before}{born}{moved}{won}, logged AS (
  INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)
  SELECT id, seq, seq - n + 1, tenant, version, clock_timestamp(), events FROM won
){freed}{children}
SELECT i, seq, version, fence, worker, clock_timestamp() AS db_now, {FREEZE_VERSION} AS freezes{began} FROM {winners}
"""


_LONE_WINNER: Final = "(VALUES (1)) AS always LEFT JOIN won ON true"  # a row also if it lost


def _render_winners(moved: str, born_won: str, head: str) -> str:
    """The winners of a commit as rows, and as arrays."""
    columns = f"i, n, events, id, tenant, thread_id, seq, version, fence, worker, ended{head}"
    moved_won = f"  SELECT {columns} FROM moved" if moved else ""
    won = "\n  UNION ALL\n".join(filter(None, (moved_won, born_won)))
    head_of_winners = ",\n    array_agg(head) AS head" if head else ""
    return f""", won AS MATERIALIZED (
{won}
), winners AS MATERIALIZED (       -- the same as arrays in one order
  SELECT array_agg(i) AS i, array_agg(id) AS id, array_agg(tenant) AS tenant, array_agg(thread_id) AS thread_id,
    array_agg(seq) AS seq, array_agg(n) AS n, array_agg(version) AS version, array_agg(fence) AS fence,
    array_agg(worker) AS worker{head_of_winners}
  FROM won
)"""


def _render_claimant(entries: str, parts: frozenset[str]) -> str:
    """The worker that takes the claim of a run without one: this process, unless it does not serve the run's queue."""
    me = "(SELECT id FROM claimant)"
    return f"CASE WHEN {entries}.elsewhere IS NOT TRUE THEN {me} END" if "elsewhere" in parts else me


def _render_slots_held(*entries: str) -> str:
    """The promised slots that are still those of the entries' runs. Locked: a transaction that wants to take one back
    waits, and then finds that its run has begun."""
    promises = " UNION ALL ".join(f"SELECT id, tenant, seat FROM {name} WHERE seat IS NOT NULL" for name in entries)
    if "births" in entries:
        promises += " UNION ALL SELECT id, tenant, slot FROM births WHERE was_left"
    return f""", held AS MATERIALIZED (
  SELECT slots.tenant, slots.slot, slots.run_id FROM ({promises}) asked
  JOIN slots ON slots.tenant = asked.tenant AND slots.slot = asked.seat AND slots.run_id = asked.id
  FOR NO KEY UPDATE OF slots
)"""


def _render_holds(entries: str) -> str:
    held = "ANY ((SELECT array_agg(run_id || slot) FROM held)::text[])"
    holds = f"({entries}.seat IS NULL OR {entries}.id || {entries}.seat = {held})"
    if entries == "births":
        holds += f" AND (births.was_left IS NOT TRUE OR births.id || births.slot = {held})"
    return holds


# Not those of runs that end in this very commit: it deletes them.
_KEEP_SEATS: Final = """, kept_seats AS (
  UPDATE slots SET promised_until = NULL, left_by = NULL FROM held
  WHERE slots.tenant = held.tenant AND slots.slot = held.slot
    AND held.run_id = ANY ((SELECT array_agg(id) FROM won WHERE NOT ended)::uuid[])
)"""


_HANDED: Final = "entries.heir IS NOT NULL AND (entries.heir_key OR slots.slot = entries.heir_slot)"
_SPARED: Final = f" AND NOT EXISTS (SELECT FROM entries WHERE entries.id = won.id AND {_HANDED})"
_LEAVE_SLOTS: Final = f""", left_slots AS (  -- promised to the heirs in the commit that would free them
  UPDATE slots SET run_id = entries.heir, promised_until = clock_timestamp() + interval '{PROMISE_SECONDS} s',
    left_by = CASE WHEN entries.leaves THEN entries.id END
  FROM entries WHERE {_HANDED} AND slots.run_id = entries.id
    AND entries.id = ANY ((SELECT array_agg(id) FROM won WHERE ended)::uuid[])
)"""


def _render_freed_slots(parts: frozenset[str]) -> str:
    spared = _SPARED if "heirs" in parts else ""
    return f""", freed_slots AS (
  DELETE FROM slots USING won WHERE won.ended AND slots.run_id = won.id{spared}
)"""


def _as_subqueries(children: Children) -> str:
    return children.given + "".join(f", {each.name} AS (\n  {each.into}{each.rest})" for each in children.writes)


def _insert_commands(rows: str, parts: frozenset[str]) -> Children:
    place = _place(parts)
    into = "INSERT INTO commands (run_id, command_id, tenant, last_seq, body_sha, outcome)"
    rest = f"""
  SELECT winners.id{place}, child.command_id, winners.tenant{place}, winners.seq{place},
    child.body_sha, child.outcome
  FROM {_render_rows_of_winners(rows, parts)}
"""
    return Children("", (Write("new_commands", into, rest),))


def _unless_born(parts: frozenset[str], on_conflict: str) -> str:
    """What becomes of a row that is there. Not asked where runs only begin, which have no rows yet: to ask costs each
    row one more look into the index, and one more record of the WAL."""
    return on_conflict if "moved" in parts else ""


def _render_upsert_pendings(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    rows, _ = parameters.rows(
        "child", parts, "pendings", i="int", id="text", status="text", path="text", digest="bytea",
        deadline="timestamptz", body="bytea", asks="text", kind="text", words="text",
    )  # fmt: skip
    place = _place(parts)
    source = f""", given_pendings AS {"NOT " if is_lone(parts) else ""}MATERIALIZED (
  SELECT winners.id{place} AS run_id, child.id, winners.tenant{place} AS tenant, child.status, child.path,
    child.digest, child.deadline, winners.seq{place} AS seq, child.body,
    child.kind, child.words, string_to_array(child.asks, ' ') AS asks, {due("child.deadline")} AS due
  FROM {_render_rows_of_winners(rows, parts)}
)"""
    into_pendings = (
        "INSERT INTO pendings (run_id, id, tenant, status, path, digest, deadline, opened_seq, opened_at, body, kind, "
        "words)"
    )
    replacement = """
  ON CONFLICT (run_id, id) DO UPDATE
    SET status = excluded.status, deadline = excluded.deadline, digest = excluded.digest, body = excluded.body,
      kind = excluded.kind, words = excluded.words"""
    pendings = f"""
  SELECT run_id, id, tenant, status, path, digest, deadline, seq, {at}, body, kind, words
  FROM given_pendings{_unless_born(parts, replacement)}
"""
    into_inbox = "INSERT INTO inbox (run_id, pending_id, selector, tenant, due)"
    postponed = """
  ON CONFLICT (run_id, pending_id, selector) DO UPDATE SET due = excluded.due WHERE inbox.due <> excluded.due"""
    inbox = f"""
  SELECT given.run_id, given.id, selector, given.tenant, given.due
  FROM given_pendings given, unnest(given.asks) selector{_unless_born(parts, postponed)}
"""
    # Never a row of new_inbox: one statement must not write a row twice.
    old = """
  DELETE FROM inbox USING given_pendings given
  WHERE inbox.run_id = given.run_id AND inbox.pending_id = given.id AND inbox.selector <> ALL (given.asks)
"""
    writes = [Write("new_pendings", into_pendings, pendings)]
    if "asks" in parts:
        writes.append(Write("new_inbox", into_inbox, inbox))
    if "unasks" in parts:
        writes.append(Write("old_inbox", "", old))
    return Children(source, tuple(writes))


def _insert_votes(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    rows, _ = parameters.rows(
        "child", parts, "votes", i="int", pending_id="text", principal="text", body="bytea", decision="text",
        on_behalf_of="text",
    )  # fmt: skip
    place = _place(parts)
    into = "INSERT INTO votes (run_id, pending_id, principal, tenant, last_seq, body, decision, on_behalf_of, at)"
    rest = f"""
  SELECT winners.id{place}, child.pending_id, child.principal, winners.tenant{place},
    winners.seq{place}, child.body, child.decision, child.on_behalf_of, {at}
  FROM {_render_rows_of_winners(rows, parts)}
"""
    return Children("", (Write("new_votes", into, rest),))


def _insert_outbox(parameters: _Parameters, at: str, parts: frozenset[str], *, due: bool = False) -> Children:
    rows, _ = parameters.rows("child", parts, "outbox", i="int", n="int", kind="text", target="text", body="bytea")
    place = _place(parts)
    into = f"INSERT INTO outbox (run_id, last_seq, n, tenant, kind, target, body{', due_at' if due else ''})"
    rest = f"""
  SELECT winners.id{place}, winners.seq{place}, child.n, winners.tenant{place}, child.kind,
    child.target, child.body{f", {at}" if due else ""}
  FROM {_render_rows_of_winners(rows, parts)}
"""
    return Children("", (Write("new_outbox", into, rest),))


def _seq_before(place: str) -> str:
    return f"winners.seq{place} - winners.n{place}"


def _open_turns(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    opened, _ = parameters.rows(
        "child", parts, "opened_turns", i="int", n="int", wire_run_id="text", body_sha="bytea", first="int", last="int"
    )
    place = _place(parts)
    before = _seq_before(place)
    into = "INSERT INTO turns (run_id, n, tenant, thread_id, wire_run_id, body_sha, first_seq, last_seq)"
    rest = f"""
  SELECT winners.id{place}, child.n, winners.tenant{place}, winners.thread_id{place},
    child.wire_run_id, child.body_sha, {before} + child.first, {before} + child.last
  FROM {_render_rows_of_winners(opened, parts)}
"""
    return Children("", (Write("opened_turns", into, rest),))


def _end_turns(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    ended, _ = parameters.rows("child", parts, "ended_turns", i="int", n="int", last="int")
    place = _place(parts)
    rest = f"""
  UPDATE turns SET last_seq = ended.last_seq
  FROM (SELECT winners.id{place} AS run_id, child.n, {_seq_before(place)} + child.last AS last_seq
        FROM {_render_rows_of_winners(ended, parts)}
        OFFSET 0) ended -- OFFSET 0: its run_id is there before turns is looked up
  WHERE turns.run_id = ended.run_id AND turns.n = ended.n
"""
    return Children("", (Write("ended_turns", "", rest),))


def _render_upsert_messages(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    rows, _ = parameters.rows(
        "child", parts, "messages", i="int", n="int", id="text", role="text", body="bytea", position="int"
    )
    place = _place(parts)
    rewritten = "\n  ON CONFLICT (run_id, n) DO UPDATE SET role = excluded.role, body = excluded.body"
    into = "INSERT INTO messages (run_id, n, tenant, thread_id, id, role, body, seq)"
    rest = f"""
  SELECT winners.id{place}, child.n, winners.tenant{place}, winners.thread_id{place}, child.id,
    child.role, child.body, {_seq_before(place)} + child.position
  FROM {_render_rows_of_winners(rows, parts)}{_unless_born(parts, rewritten)}
"""
    return Children("", (Write("new_messages", into, rest),))


def _insert_audit(parameters: _Parameters, clock: str, parts: frozenset[str]) -> Children:
    rows, _ = parameters.rows(
        "child", parts, "audit", i="int", id="uuid", act="text", subject="text", digest="bytea", commitment="bytea",
        principal="text", salt="bytea", body="bytea",
    )  # fmt: skip
    place = _place(parts)
    source = f""", given_audit AS MATERIALIZED (
  SELECT * FROM {rows}
)"""
    into_audit = "INSERT INTO audit (tenant, id, at, act, run_id, seq, head, subject, digest, commitment)"
    records = f"""
  SELECT winners.tenant{place}, child.id, {clock}, child.act, winners.id{place},
    winners.seq{place}, winners.head{place}, child.subject, child.digest, child.commitment
  FROM {_render_rows_of_winners("given_audit child", parts)}
"""
    into_details = "INSERT INTO audit_details (tenant, id, principal, salt, body)"
    details = f"""
  SELECT winners.tenant{place}, child.id, child.principal, child.salt, child.body
  FROM {_render_rows_of_winners("given_audit child", parts)}
"""
    return Children(
        source, (Write("new_audit", into_audit, records), Write("new_audit_details", into_details, details))
    )


def _insert_given_commands(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    """Of the commands that the statement has read, or reads here where only runs begin: nothing was repeated then."""
    if "moved" in parts:
        return _insert_commands("given_commands child", parts)
    return _commands(parameters, at, parts)


_CHILDREN: Final[Mapping[str, Callable[[_Parameters, str, frozenset[str]], Children]]] = {
    "commands": _insert_given_commands,
    "pendings": _render_upsert_pendings,
    "votes": _insert_votes,
    "outbox": _insert_outbox,
    "opened_turns": _open_turns,
    "ended_turns": _end_turns,
    "messages": _render_upsert_messages,
}


_BORN: Final = {
    "i": "int", "id": "uuid", "tenant": "uuid", "n": "int", "events": "bytea", "status": "text::text",
    "busy": "text::bool", "wake_at": "timestamptz", "result": "bytea", "workflow": "bytea", "workflow_name": "text",
    "workflow_version": "text::int", "dev": "text::bool", "thread_id": "text", "parent_id": "uuid",
    "parent_path": "text", "queue": "text", "slot": "text", "started_by": "text", "input": "bytea",
}  # fmt: skip


def _list_born_columns(parts: frozenset[str]) -> dict[str, str]:
    """The columns of entries that are the first of their run."""
    branch = {"branch_of": "uuid", "follows": "uuid", "copied": "bigint"} if "branches" in parts else {}
    in_use = {"in_use": "bool", "latest": "bool"} if "in_use" in parts else {}
    seats = {"seat": "text", "was_left": "bool"} if "seats" in parts else {}
    elsewhere = {"elsewhere": "bool"} if "elsewhere" in parts else {}
    instigators = {"instigators": "text"} if "instigators" in parts else {}
    summaries = {"summary": "text"} if "summaries" in parts else {}
    holds = {"held": "text"} if "holds" in parts else {}
    return {**_BORN, **branch, **in_use, **seats, **elsewhere, **instigators, **summaries, **holds}


def _insert_runs(
    parts: frozenset[str], at: str, names: str = "", values: str = "", returning: str = ""
) -> tuple[str, str, str]:
    """The insert of runs out of `births`: its INTO with the columns, its SELECT, and its ON CONFLICT with RETURNING."""
    if "branches" in parts:
        names += ", branch_of, follows, copied"
        values += ", branch_of, follows, coalesce(copied, 0)"
    if "instigators" in parts:
        names += ", instigators"
        values += ", instigators"
    if "summaries" in parts:
        names += ", summary"
        values += ", summary"
    if "holds" in parts:
        names += ", held"
        values += ", held"
    claimant = _render_claimant("births", parts)
    head = ", head" if "audit" in parts else ""
    ended = at if "created_at" in names else f"greatest(now(), {at})"  # `created_at` is now(): none ends before it
    into = f"""INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, dev, thread_id, parent_id,
    parent_path, queue, slot, status, seq, version, abi, head, log_bytes, worker, wake_at, started_by, input, result,
    ended_at{names})"""
    select = f"""
  SELECT id, tenant, workflow, workflow_name, workflow_version, dev, thread_id, parent_id, parent_path,
    queue, slot, status, n, 1, {ABI}, sha256(events), octet_length(events),
    CASE WHEN busy THEN {claimant} END,
    CASE WHEN NOT busy THEN wake_at WHEN {claimant} IS NULL THEN {at} END,
    started_by, input, CASE WHEN status IN {_ENDED} THEN result END,
    CASE WHEN status IN {_ENDED} THEN {ended} END{values}
"""
    once = f"""
  ON CONFLICT DO NOTHING           -- the same Start again: it loses
  RETURNING id, tenant, thread_id, seq, version, fence, worker, status{head}{returning}
"""
    return into, select, once


_IN_USE: Final = f"""
  WHERE (birth.in_use IS NOT TRUE OR EXISTS (  -- no slot is taken for a run that does not begin
    SELECT FROM workflows w
    WHERE w.tenant = birth.tenant AND w.sha256 = birth.workflow AND w.retired_at IS NULL
  )) AND (birth.latest IS NOT TRUE OR NOT EXISTS (
    {newer_than("birth", "workflow_version", "workflow_name")}
  ))"""


def _render_births(parameters: _Parameters, moving: _Moving, parts: frozenset[str]) -> tuple[str, str, str]:
    """The parts of a commit in which runs start and slots are taken: the subqueries before the update of runs, the
    condition under which an entry of an existing run has its slot, and the winners among the born."""
    head = ", head" if "audit" in parts else ""
    if is_lone(parts):
        return _render_lone_birth(parameters, moving, parts), "", ""
    held, holds = (
        (_render_slots_held("entries", "births"), f" AND ({_render_holds('births')})") if "seats" in parts else ("", "")
    )
    again = wanted_again = ""
    if "again" in parts:
        again = f""", again AS MATERIALIZED (  -- runs that want a slot again: locked first, so that to get it is to win
  SELECT r.id, r.tenant, entries.slot, entries.status FROM entries JOIN runs r ON r.id = entries.id
  WHERE entries.slot IS NOT NULL AND (r.tenant = entries.tenant) IS TRUE AND {_UNMOVED}
    AND {moving.unrepeated}
  ORDER BY r.id FOR NO KEY UPDATE OF r
)"""
        wanted_again = f"""
  UNION ALL SELECT id, tenant, slot, coalesce(status IN {_ENDED}, false) FROM again"""
    born, arrays = parameters.rows("birth", parts, "births", **_list_born_columns(parts))
    into, select, once = _insert_runs(parts, moving.at)
    before = f""", births AS MATERIALIZED (  -- entries that are the first of their run, by id; i goes on counting
  SELECT * FROM {born}{_IN_USE if "in_use" in parts else ""}
){held}{again}, wanted AS MATERIALIZED (        -- slots, for runs that do not exist yet and for those of "again"
  SELECT births.id, births.tenant, births.slot, births.status IN {_ENDED} AS ended FROM births
  WHERE births.slot IS NOT NULL
    AND NOT (births.id IN (SELECT r.id FROM runs r WHERE r.id = ANY({arrays["id"]}))){holds}{wanted_again}
), taken AS (                      -- in one order for all, else two batches that swap slots deadlock
  INSERT INTO slots (tenant, slot, run_id, promised_until)
  SELECT tenant, slot, id, NULL FROM wanted WHERE NOT ended ORDER BY tenant, slot
  ON CONFLICT DO NOTHING
  RETURNING run_id
), seated AS MATERIALIZED (        -- a run that ends in this very commit needs the slot to be free, but never holds it
  SELECT run_id FROM taken
  UNION ALL
  SELECT wanted.id FROM wanted LEFT JOIN slots ON slots.tenant = wanted.tenant AND slots.slot = wanted.slot
  WHERE CASE WHEN slots.run_id IS NULL THEN wanted.ended ELSE slots.run_id = wanted.id END
), born AS (
  {into}{select}
  FROM births WHERE (slot IS NULL OR id = ANY ((SELECT array_agg(run_id) FROM seated)::uuid[])){holds}{once}
)"""
    seated = "entries.slot IS NULL"
    if again:
        seated += " OR entries.id = ANY ((SELECT array_agg(run_id) FROM seated)::uuid[])"
    after = f"""  SELECT
    ({arrays["i"]})[place] AS i, ({arrays["n"]})[place] AS n, ({arrays["events"]})[place] AS events,
    id, tenant, thread_id, seq, version, fence, worker, status IN {_ENDED} AS ended{head}
  FROM (SELECT born.*, array_position({arrays["id"]}, born.id) AS place FROM born OFFSET 0) placed"""
    return before, seated, after


def _render_lone_birth(parameters: _Parameters, moving: _Moving, parts: frozenset[str]) -> str:
    """The only entry, in which a run starts, and its slot: as `_render_births`, without the arrays."""
    born, columns = parameters.rows("birth", parts, "births", **_list_born_columns(parts))
    given = ", ".join(f"{columns[column]} AS {column}" for column in ("i", "n", "events"))
    into, select, once = _insert_runs(parts, moving.at, returning=f", {given}, status IN {_ENDED} AS ended")
    in_use = f"{_IN_USE} AND" if "in_use" in parts else "\n  WHERE"
    return f""", births AS MATERIALIZED (
  SELECT *, status IN {_ENDED} AS ended FROM {born}{in_use}
    (slot IS NULL OR NOT EXISTS (SELECT FROM runs r WHERE r.id = birth.id))
), taken AS (
  INSERT INTO slots (tenant, slot, run_id, promised_until)
  SELECT tenant, slot, id, NULL FROM births WHERE slot IS NOT NULL AND NOT ended
  ON CONFLICT DO NOTHING
  RETURNING run_id
), won AS (
  {into}{select}
  FROM births WHERE slot IS NULL OR EXISTS (SELECT FROM taken) OR (
    SELECT CASE WHEN count(*) = 0 THEN births.ended ELSE bool_or(slots.run_id = births.id) END
    FROM slots WHERE slots.tenant = births.tenant AND slots.slot = births.slot){once}
)"""


# --- a commit in pieces ---------------------------------------------------------------------------------------------
# The same for Citus, which sends a statement as it is to the node that keeps the tables only if no INSERT is in a
# subquery of it, and an INSERT only if it reads one of them, without a sequence or a clock, also as a default (of such
# an INSERT Citus 13.0.3 makes no SQL). So these are statements of a transaction (`commit_pieces`), and each is given
# the answers of the ones before.


@functools.cache
def move_statement(parts: frozenset[str]) -> str:
    """The update of the runs of the entries, all of which have their slots: their rows are locked in the order of their
    ids, whatever plan the node makes of it. The updated rows come as arrays."""
    parameters = _Parameters()
    moving = _build_moving(parameters, parts)
    locked = f""", locked AS MATERIALIZED (
  SELECT id FROM runs WHERE id = ANY ({moving.arrays["id"]}) ORDER BY id FOR NO KEY UPDATE
)"""
    seated = "r.id = ANY ((SELECT array_agg(id) FROM locked)::uuid[])"
    return f"""{moving.before}{locked}, moved AS ({_update(moving, parts, seated)})
SELECT array_agg(i) AS i, array_agg(seq) AS seq, array_agg(version) AS version, array_agg(fence) AS fence,
  array_agg(worker) AS worker, array_agg(ended) AS ended, clock_timestamp() AS db_now
FROM moved
"""


@functools.cache
def render_birth(parts: frozenset[str]) -> str:
    """The insert of runs, by id, whose places are given, and which have the slots that they need. The parameters: the
    worker that sends it, and the time.

    Not of runs that are there, which ON CONFLICT would wait for while somebody moves them: of two who each move the run
    that the other one starts, none would get on."""
    parameters = _Parameters()
    me, at = parameters.one("bigint"), parameters.one("timestamptz")
    born, _ = parameters.arrays("births", **_list_born_columns(parts), place="bigint")
    into, select, once = _insert_runs(parts, at, ", place, created_at", f", place, {at}")
    return f"""{into}
  WITH claimant AS MATERIALIZED (
    SELECT id FROM workers WHERE id = {me} AND alive_until > {at}
  ){select}
  FROM {born} WHERE NOT EXISTS (SELECT FROM runs r WHERE r.id = births.id){once}
"""


@functools.cache
def render_children(part: str) -> tuple[str, ...]:
    """The statements for one kind of child rows, of `PIECES`. The parameters: the time, and the winners, whose run rows
    are read; the arrays of the part come behind them."""
    parameters = _Parameters()
    at = parameters.one("timestamptz")
    won, _ = parameters.arrays("won", i="int", id="uuid", n="int")
    winners = f"""WITH winners AS MATERIALIZED (
    SELECT array_agg(won.i) AS i, array_agg(r.id) AS id, array_agg(r.tenant) AS tenant,
      array_agg(r.thread_id) AS thread_id, array_agg(r.seq) AS seq, array_agg(won.n) AS n,
      array_agg(r.version) AS version, array_agg(r.head) AS head, {at} AS at
    FROM {won} JOIN runs r ON r.id = won.id
  )"""
    children = PIECES[part](parameters, at, COMMON)
    return tuple(f"{each.into}\n  {winners}{children.given}{each.rest}" for each in children.writes)


def _log(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    rows, _ = parameters.arrays("child", i="int", events="bytea")
    rest = f"""
  SELECT winners.id[child.place], winners.seq[child.place], winners.seq[child.place] - winners.n[child.place] + 1,
    winners.tenant[child.place], winners.version[child.place], {at}, child.events
  FROM {_render_rows_of_winners(rows, parts)}
"""
    into = "INSERT INTO log (run_id, last_seq, first_seq, tenant, version, at, events)"
    return Children("", (Write("logged", into, rest),))


def _commands(parameters: _Parameters, at: str, parts: frozenset[str]) -> Children:
    rows, _ = parameters.rows("child", parts, "commands", **_COMMAND)
    return _insert_commands(rows, parts)


PIECES: Final[Mapping[str, Callable[[_Parameters, str, frozenset[str]], Children]]] = {
    "log": _log,
    "commands": _commands,
    "pendings": _render_upsert_pendings,
    "votes": _insert_votes,
    "outbox": functools.partial(_insert_outbox, due=True),
    "opened_turns": _open_turns,
    "ended_turns": _end_turns,
    "messages": _render_upsert_messages,
    "audit": _insert_audit,
}
