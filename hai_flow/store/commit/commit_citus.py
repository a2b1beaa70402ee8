"""The commit as a transaction of several statements, for a schema that Citus keeps. Citus sends a statement whole to
the node of the schema unless it has an INSERT in a subquery, as the commit of one statement has (`commit_sql`). Each
piece gets the answers of the ones before: an entry that has lost is in none of the later ones. All take locks in one
order: promised slots, rows of runs by id, slots by name, runs that begin."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from hai_flow.store.commit.commit_arrays import arguments, build_born_arrays, build_piece_arrays
from hai_flow.store.commit.commit_sql import (
    ENDED,
    PIECES,
    PROMISE_SECONDS,
    move_statement,
    render_birth,
    render_children,
)
from hai_flow.store.commit.entries import CommitResult, Entry
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.database import ON_THE_NODE, read_clock, transaction

_OF_A_MOVE: Final = frozenset({"moved", "commands", "moves", "elsewhere", "free", "instigators", "summaries", "holds"})
_OF_A_BIRTH: Final = frozenset({"branches", "elsewhere", "instigators", "summaries", "holds"})

_NOBODY: Final = 0  # not NULL: of an INSERT whose only table is compared with that, Citus sends nothing at all

_LOCK_SEATS: Final = """
SELECT tenant, slot, run_id FROM slots WHERE run_id = ANY ($1::uuid[]) ORDER BY tenant, slot FOR NO KEY UPDATE
"""
_LOCK_RUNS: Final = """
SELECT id, tenant, version, created_at FROM runs WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""
_REPEATED: Final = """
SELECT DISTINCT known.run_id FROM unnest($1::uuid[], $2::text[]) AS given(run_id, command_id)
JOIN commands known ON known.run_id = given.run_id AND known.command_id = given.command_id
"""
# A start of a run that is there takes no other slot.
_TAKE: Final = """
INSERT INTO slots (tenant, slot, run_id, taken_at, promised_until)
SELECT wanted.tenant, wanted.slot, wanted.id, $5::timestamptz, NULL::timestamptz
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bool[]) AS wanted(tenant, slot, id, again)
LEFT JOIN runs r ON r.id = wanted.id WHERE wanted.again OR r.id IS NULL
ORDER BY wanted.tenant, wanted.slot
ON CONFLICT DO NOTHING
RETURNING run_id
"""
# A run that ends in this very commit needs the slot to be free, but never holds it.
_SEATED: Final = """
SELECT wanted.id FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bool[]) AS wanted(tenant, slot, id, ended)
LEFT JOIN slots ON slots.tenant = wanted.tenant AND slots.slot = wanted.slot
WHERE CASE WHEN slots.run_id IS NULL THEN wanted.ended ELSE slots.run_id = wanted.id END
"""
# Behind the slots: the places of runs in their thread are in the order in which they had its slot.
_PLACES: Final = """
SELECT array_agg(nextval('runs_place')) AS places, clock_timestamp() AS db_now FROM generate_series(1, $1)
"""
_KEEP_SEATS: Final = """
UPDATE slots SET promised_until = NULL, left_by = NULL
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS kept(tenant, slot, id)
WHERE slots.tenant = kept.tenant AND slots.slot = kept.slot AND slots.run_id = kept.id
"""
_LEAVE: Final = """
UPDATE slots SET run_id = heirs.heir, promised_until = $6::timestamptz, left_by = heirs.left_by
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bool[], $5::uuid[]) AS heirs(id, heir, slot, key, left_by)
WHERE slots.run_id = heirs.id AND (heirs.key OR slots.slot = heirs.slot)
"""
_FREE: Final = "DELETE FROM slots WHERE run_id = ANY ($1::uuid[])"


async def commit_in_pieces(
    connection: Connection,
    moved: Sequence[Entry],
    born: Sequence[Entry],
    parts: frozenset[str],
    worker_id: int | None,
    at: datetime,
) -> tuple[Mapping[int, CommitResult], datetime]:
    """Commit entries of runs that exist and of runs that begin, both sorted by the ids of their runs. Returns the
    winners by their number from 1, the born ones behind the others, and the database's clock."""
    inside = connection.is_in_transaction()
    pieces = _Pieces(connection, parts, worker_id, at)
    rows = list(enumerate((*moved, *born), 1))
    async with contextlib.nullcontext() if inside else transaction(connection, ON_THE_NODE):
        await pieces.commit(rows[: len(moved)], rows[len(moved) :])
        return pieces.won, pieces.db_now


_Row: TypeAlias = tuple[int, Entry]  # an entry with its number


class _WantedSlot(NamedTuple):
    """A slot that an entry needs. `ends`: its run ends in this very commit; `again`: it had the slot before."""

    tenant: UUID
    slot: str
    run_id: UUID
    ends: bool
    again: bool


class _Pieces:
    """One commit on its way."""

    def __init__(self, connection: Connection, parts: frozenset[str], worker_id: int | None, at: datetime) -> None:
        self._connection = connection
        self._parts = parts
        self._worker_id = worker_id
        self._at = at
        self.db_now = at
        self.won: dict[int, CommitResult] = {}
        self._ended: set[int] = set()

    async def commit(self, moved: list[_Row], born: list[_Row]) -> None:
        if "seats" in self._parts:
            moved, born = await self._holding(moved, born)
        if "again" in self._parts:  # locked first, so that to get a slot again is to win
            slots = await self._lock(moved)
            moved, born = await self._keep_with_slots(slots, moved, born)
            await self._move(moved)
        else:
            await self._move(moved)
            _, born = await self._keep_with_slots([], [], born)
        await self._bear(born)
        if rows := [(i, entry) for i, entry in (*moved, *born) if i in self.won]:
            await self._write(rows)

    # --- slots that the entries need

    async def _holding(self, moved: list[_Row], born: list[_Row]) -> tuple[list[_Row], list[_Row]]:
        """The entries without those whose promised slot is not their run's any more. Locked: a transaction that wants
        to take one back waits, and then finds that its run has begun."""
        runs = [entry.run_id for _, entry in (*moved, *born) if _list_slots_promised(entry)]
        held = set(map(tuple, await self._connection.fetch(_LOCK_SEATS, runs)))

        def holds(entry: Entry) -> bool:
            return all((entry.tenant, slot, entry.run_id) in held for slot in _list_slots_promised(entry))

        return [row for row in moved if holds(row[1])], [row for row in born if holds(row[1])]

    async def _lock(self, moved: list[_Row]) -> list[_WantedSlot]:
        """Lock the rows of the runs. Returns the slots that some of them want again, and may have if they are free."""
        rows = await self._connection.fetch(_LOCK_RUNS, [entry.run_id for _, entry in moved])
        locked = {row[0]: (row[1], row[2]) for row in rows}
        births = {row[0]: row[3] for row in rows}
        commands = [(entry.run_id, command.command_id) for _, entry in moved for command in entry.commands]
        repeated = {row[0] for row in await self._connection.fetch(_REPEATED, *_columns(commands, 2))}

        def fresh(entry: Entry) -> bool:
            if entry.created_at not in (None, births.get(entry.run_id)):
                return False
            return locked.get(entry.run_id) == (entry.tenant, entry.version) and entry.run_id not in repeated

        return [
            _WantedSlot(entry.tenant, entry.take_slot, entry.run_id, entry.status in ENDED, again=True)
            for _, entry in moved
            if entry.take_slot is not None and fresh(entry)
        ]

    async def _keep_with_slots(
        self, wanted: list[_WantedSlot], moved: list[_Row], born: list[_Row]
    ) -> tuple[list[_Row], list[_Row]]:
        """The entries without those that do not get the slot which they want again, or begin with. All are taken at
        once, in one order."""
        for _, entry in born:
            if entry.born is not None and entry.born.slot is not None:
                ends = entry.status in ENDED
                wanted.append(_WantedSlot(entry.tenant, entry.born.slot, entry.run_id, ends, again=False))
        seated = await self._take(wanted) if wanted else set()

        def sits(entry: Entry) -> bool:
            slot = entry.take_slot if entry.born is None else entry.born.slot
            return slot is None or entry.run_id in seated

        return [row for row in moved if sits(row[1])], [row for row in born if sits(row[1])]

    async def _take(self, wanted: list[_WantedSlot]) -> set[UUID]:
        held = [(each.tenant, each.slot, each.run_id, each.again) for each in wanted if not each.ends]
        seated: set[UUID] = set()
        if held:
            now = await read_clock(self._connection)
            seated = {row[0] for row in await self._connection.fetch(_TAKE, *_columns(held, 4), now)}
        if len(seated) == len(wanted):
            return seated
        promises = [(each.tenant, each.slot, each.run_id, each.ends) for each in wanted]
        return {row[0] for row in await self._connection.fetch(_SEATED, *_columns(promises, 4))}

    # --- runs

    async def _move(self, moved: list[_Row]) -> None:
        if not moved:
            return
        parts = self._parts & _OF_A_MOVE
        columns = arguments([entry for _, entry in moved], (), parts)
        row = await self._connection.fetchrow(move_statement(parts), self._worker_id, self._at, *columns)
        assert row is not None, "aggregates return one row"
        places, seq, version, fence, worker, ended, self.db_now = row
        if places is None:
            return
        numbers = [moved[place - 1][0] for place in places]
        self.won.update(zip(numbers, map(CommitResult, seq, version, fence, worker), strict=True))
        self._ended.update(number for number, over in zip(numbers, ended, strict=True) if over)

    async def _bear(self, born: list[_Row]) -> None:
        if not born:
            return
        row = await self._connection.fetchrow(_PLACES, len(born))
        assert row is not None, "aggregates return one row"
        places, self.db_now = row
        parts = self._parts & _OF_A_BIRTH
        columns = build_born_arrays([entry for _, entry in born], 1, parts)
        parameters = self._worker_id or _NOBODY, self.db_now, *columns, places
        rows = await self._connection.fetch(render_birth(parts), *parameters)
        numbers = {entry.run_id: i for i, entry in born}
        for row in rows:
            number = numbers[row["id"]]
            self.won[number] = CommitResult(row["seq"], row["version"], row["fence"], row["worker"])
            if row["status"] in ENDED:
                self._ended.add(number)

    # --- child rows of the winners

    async def _write(self, rows: list[_Row]) -> None:
        winners = _columns([(i, entry.run_id, entry.n) for i, entry in rows], 3)
        for part in PIECES:
            columns = list(build_piece_arrays(part, rows))
            if any(columns):
                for statement in render_children(part):
                    await self._connection.execute(statement, self.db_now, *winners, *columns)
        keeping = [
            (entry.tenant, slot, entry.run_id)
            for i, entry in rows
            if i not in self._ended
            for slot in _list_slots_promised(entry)
        ]
        if keeping:
            await self._connection.execute(_KEEP_SEATS, *_columns(keeping, 3))
        leaving = [
            (entry.run_id, heir.run_id, heir.slot, heir.key, entry.run_id if heir.leaves else None)
            for i, entry in rows
            if i in self._ended and (heir := entry.heir) is not None
        ]
        if leaving:
            until = self.db_now + timedelta(seconds=PROMISE_SECONDS)
            await self._connection.execute(_LEAVE, *_columns(leaving, 5), until)
        if freed := [entry.run_id for i, entry in rows if i in self._ended]:
            await self._connection.execute(_FREE, freed)


def _list_slots_promised(entry: Entry) -> list[str]:
    """The slots that the entry's run was promised and begins with."""
    promised = [entry.born.slot] if entry.born is not None and entry.born.left and entry.born.slot is not None else []
    return promised if entry.seat is None else [*promised, entry.seat]


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[Sequence[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * count
