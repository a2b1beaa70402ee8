"""What a commit writes into the rows beside the log, in which order it takes their locks, and whom it hints at."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from hai_flow.store.commit import commits
from hai_flow.store.commit.entries import CommandRow, MessageRow, OutboxRow, PendingRow, TurnRow, VoteRow
from hai_flow.store.messaging import concurrency_slots, hints
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import logs, run_lists
from tests.store.conftest import TENANT, birth, commit, decision, load, now, somebody_waits, win
from tests.support.postgres import connecting
from tests.support.waiting import until


async def test_slots_are_taken_by_name_whatever_the_order_of_runs(db: Database) -> None:
    low, high = UUID(int=1), UUID(int=2)
    async with db.lane() as blocker, db.lane() as rival, blocker.transaction():
        await blocker.execute("INSERT INTO slots VALUES ($1, 'a', $2)", TENANT, uuid4())
        batch = asyncio.create_task(commit(db, birth(low, slot="b"), birth(high, slot="a")))
        await until(lambda: somebody_waits(db))
        async with rival.transaction():  # it waits for slot a, so it has not taken slot b
            await rival.execute("SET LOCAL lock_timeout = '200ms'")
            await rival.execute("INSERT INTO slots VALUES ($1, 'b', $2)", TENANT, uuid4())
            await rival.execute("DELETE FROM slots WHERE slot = 'b'")
        await blocker.execute("DELETE FROM slots WHERE slot = 'a'")
    assert None not in await batch


async def test_the_end_of_a_turn_is_that_of_this_turn(db: Database) -> None:
    start = birth(turns=[TurnRow(1, first=1, last=1)])
    await commit(db, start)
    await commit(db, decision(start.run_id, 1, turns=[TurnRow(2, first=1)]))
    await commit(db, decision(start.run_id, 2, turns=[TurnRow(2, last=1)]))
    turns = await db.api.fetch("SELECT n, first_seq, last_seq FROM turns ORDER BY n")
    assert list(map(tuple, turns)) == [(1, 1, 1), (2, 2, 3)]


async def test_a_slot_stays_taken_until_its_run_ends(db: Database) -> None:
    start = birth(slot="thread:1")
    await commit(db, start)
    await win(db, decision(start.run_id, 1, status="waiting", busy=False), birth(status="finished", busy=False))
    assert await concurrency_slots.slot_holder(db.api, TENANT, "thread:1") == start.run_id


async def test_a_commit_behind_the_end_of_a_run_leaves_its_time_and_result(db: Database) -> None:
    start = birth()
    await commit(db, start)
    async with db.lane() as connection:
        ending = decision(start.run_id, 1, status="failed", busy=False, result=b'{"error":1}')
        await commits.commit(connection, [ending], None, now() - timedelta(days=1))
    first = await run_lists.get_run(db.api, TENANT, start.run_id)
    await commit(db, decision(start.run_id, 2, status="failed", busy=False))
    again = await run_lists.get_run(db.api, TENANT, start.run_id)
    assert first is not None
    assert again is not None
    assert first.ended_at is not None
    assert (again.ended_at, again.result) == (first.ended_at, b'{"error":1}')


async def test_a_pending_whose_deadline_is_put_off_says_so(db: Database) -> None:
    start = birth()
    await commit(db, start)
    for version, deadline in ((1, now()), (2, now() + timedelta(days=2))):
        row = PendingRow("p", "open", "a", b"d", deadline, b"{}")
        await commit(db, decision(start.run_id, version, pendings=[row]))
    assert await db.api.fetchval("SELECT deadline FROM pendings") == deadline


async def test_entries_may_differ_in_everything_that_they_say(db: Database) -> None:
    """A column is sent if any entry needs it, and is empty for the others."""
    plain, chatty = birth(), birth()
    await commit(db, plain, chatty)
    wake = now() + timedelta(hours=1)
    more = decision(chatty.run_id, 1, status="waiting", busy=False, wake_at=wake, turns=[TurnRow(1, first=1)])
    assert None not in await commit(db, decision(plain.run_id, 1), more)
    loaded = await load(db, chatty.run_id)
    assert (loaded.status, loaded.wake_at) == ("waiting", wake)
    assert (await load(db, plain.run_id)).status == "running"


async def test_an_entry_writes_the_same_rows_alone_and_beside_another(db: Database) -> None:
    """The one row of a part comes by other parameters than several, and so does that of a run."""
    alone, beside = [birth(slot=f"thread:{number}", input=b"{}", **_RELATED) for number in range(2)]
    await win(db, alone)
    await win(db, beside, birth())
    for start, others in ((alone, ()), (beside, (birth(),))):
        change = decision(start.run_id, 1, status="failed", busy=False, result=b"{}", votes=[_VOTE], summary="Done")
        await win(db, change, *others)
    for table, column in _TABLES_OF_RUNS.items():
        query = f"SELECT to_jsonb(t) - $1::text[] FROM {table} t WHERE {column} = $2"
        rows = [await db.api.fetch(query, _OF_ITS_OWN, start.run_id) for start in (alone, beside)]
        assert rows[0] == rows[1] != [], table


_RELATED: Final[dict[str, Any]] = {
    "commands": [CommandRow("c", b"sha", b"{}")],
    "pendings": [PendingRow("p", "open", "a", b"d", now() + timedelta(days=1), b"{}", "user:a", "tool", "words")],
    "outbox": [OutboxRow("child_started", "x", b"{}")],
    "turns": [TurnRow(1, first=1, last=1)],
    "messages": [MessageRow(0, "m", "user", b"{}", 1)],
}
_VOTE: Final = VoteRow("p", "user:b", b"{}", "approve", "user:c")
_TABLES_OF_RUNS: Final = {
    "runs": "id", "log": "run_id", "commands": "run_id", "pendings": "run_id", "inbox": "run_id", "votes": "run_id",
    "outbox": "run_id", "turns": "run_id", "messages": "run_id",
}  # fmt: skip
_OF_ITS_OWN: Final = ["id", "run_id", "slot", "place", "at", "created_at", "ended_at", "opened_at", "due_at"]


async def test_an_older_release_does_not_overwrite_a_newer_snapshot(db: Database) -> None:
    start = birth()
    await commit(db, start)
    async with db.lane() as connection:
        for abi, state in ((2, b"newer"), (1, b"older"), (3, b"newest")):
            await logs.save_snapshot(connection, start.run_id, 1, abi, state)
            (kept,) = await db.api.fetch("SELECT abi, state FROM snapshots")
            assert tuple(kept) == ((2, b"newer") if abi < 3 else (3, b"newest"))


async def test_hints_for_many_runs_are_split_to_what_the_server_takes(db: Database) -> None:
    heard: list[str] = []
    async with connecting(db.dsn) as connection:
        await connection.add_listener(hints.HINT_CHANNEL, lambda *given: heard.append(str(given[3])))
        ids = [UUID(int=number) for number in range(450)]
        await hints.notify(db.api, ids)
        await until(lambda: sum(each.count(",") + 1 for each in heard) >= len(ids))
    assert [UUID(text) for each in heard for text in each.split(",")] == ids
