"""Facts that must be true of every run, however the processes ended: the oracle of the tests that kill."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import fold
from hai_flow.engine.state.state import RunState

if TYPE_CHECKING:
    from hai_flow.store.postgres.connections import Connection, Pool


async def log_of(connection: Connection | Pool, run_id: UUID) -> list[e.Event]:
    """The run's events in order; fails on a gap, on an overlap, and where the log and the row of the run end at
    different events."""
    query = """
    SELECT seq, first_seq, last_seq, events FROM runs LEFT JOIN log ON run_id = id WHERE id = $1 ORDER BY last_seq
    """  # one statement, for the run may go on
    rows = await connection.fetch(query, run_id)
    found: list[e.Event] = []
    for _, first, last, events in rows:
        assert first == len(found) + 1, f"run {run_id}: {first} follows {len(found)}"
        found.extend(e.decode_events(events))
        assert last == len(found), f"run {run_id}: the row ends at {last}, its events at {len(found)}"
    seq = rows[0]["seq"] if rows else None
    assert seq == len(found), f"run {run_id}: the row says {seq}, the log {len(found)}"
    return found


def check_log(run_id: UUID, events: list[e.Event]) -> RunState:
    """One result per step, attempts that only grow, time that never goes back, and nothing after the terminal event."""
    times = [event.at for event in events]
    assert times == sorted(times), f"run {run_id}: its time goes back"
    finished = Counter(event.path for event in events if isinstance(event, e.StepFinished))
    assert not [path for path, times in finished.items() if times > 1], f"run {run_id}: a step has two results"
    attempts: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if isinstance(event, e.AttemptStarted):
            attempts[event.path].append(event.attempt)
    for path, numbers in attempts.items():
        assert numbers == sorted(set(numbers)), f"run {run_id}: attempts of {path} are {numbers}"
    assert not any(isinstance(event, e.TERMINAL) for event in events[:-1]), f"run {run_id}: it goes on after its end"
    return fold(RunState(str(run_id)), events)


async def check_effects(connection: asyncpg.Connection[asyncpg.Record]) -> int:
    """Never two performs of one attempt; returns how many effects happened."""
    twice = await connection.fetch(
        "SELECT run_id, path, attempt, count(*) FROM effects GROUP BY 1, 2, 3 HAVING count(*) > 1"
    )
    assert not twice, f"performed twice: {twice}"
    return int(await connection.fetchval("SELECT count(*) FROM effects"))


async def check_all(connection: asyncpg.Connection[asyncpg.Record]) -> list[RunState]:
    """Every run of the database against every rule."""
    await check_effects(connection)
    ids = [row[0] for row in await connection.fetch("SELECT id FROM runs ORDER BY id")]
    return [check_log(run_id, await log_of(connection, run_id)) for run_id in ids]
