"""What requests, followers and the engine read back."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from hai_flow.errors import Rejected
from hai_flow.store.catalog import workflows
from hai_flow.store.commit.entries import Branch, Entry, MessageRow, OutboxRow, PendingRow, TurnRow, VoteRow
from hai_flow.store.messaging import outbox
from hai_flow.store.ops import retention
from hai_flow.store.people import pendings
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import logs, post_context, run_bundle, run_lists, thread_lists, threads
from hai_flow.store.runs.logs import RunVersion
from tests.store.conftest import STRANGER, TENANT, as_owner, birth, commit, decision, load, somebody_waits
from tests.support.values import require
from tests.support.waiting import until


async def test_runs_are_listed_newest_first_in_pages_and_by_filter(db: Database) -> None:
    starts = [birth(workflow_name=f"w{i % 2}", thread_id=f"t{i % 3}") for i in range(6)]
    for start in starts:
        await commit(db, start)
    await commit(db, decision(starts[0].run_id, 1, status="finished", busy=False))
    newest = [start.run_id for start in reversed(starts)]
    first = await run_lists.list_runs(db.api, TENANT, limit=4)
    rest = await run_lists.list_runs(db.api, TENANT, limit=4, before=(first[-1].created_at, first[-1].id))
    assert [run.id for run in [*first, *rest]] == newest
    assert [run.id for run in await run_lists.list_runs(db.api, TENANT, limit=9, workflow="w1")] == newest[::2]
    assert [run.id for run in await run_lists.list_runs(db.api, TENANT, limit=9, thread_id="t0")] == [
        newest[2],
        newest[5],
    ]
    ended = await run_lists.list_runs(db.api, TENANT, limit=9, statuses=["finished", "failed"])
    assert [run.id for run in ended] == newest[-1:]
    assert await run_lists.list_runs(db.api, STRANGER, limit=9) == []


async def test_a_load_gives_the_snapshot_and_the_tail_and_a_tail_alone(db: Database) -> None:
    start = birth(n=2, events=b"[1,2]")
    await commit(db, start)
    for version in (1, 2):
        await commit(db, decision(start.run_id, version, events=b"[%d]" % version))
    async with db.lane() as connection:
        await logs.save_snapshot(connection, start.run_id, 3, 1, b"state at 3")
        await logs.save_snapshot(connection, start.run_id, 99, 1, b"beyond the log")
    cold = await load(db, start.run_id)
    assert (cold.snapshot_seq, cold.state, [row.last_seq for row in cold.rows]) == (3, b"state at 3", [4])
    tail = await load(db, start.run_id, have=3)
    assert (tail.state, [row.last_seq for row in tail.rows]) == (None, [4])
    other_abi = (await logs.load_runs(db.engine, [start.run_id], [0], 2))[start.run_id]
    assert (other_abi.state, [row.last_seq for row in other_abi.rows]) == (None, [2, 3, 4])


async def test_the_state_at_a_seq_needs_an_earlier_snapshot_and_later_rows(db: Database) -> None:
    start = birth(n=2, events=b"[1,2]")
    await commit(db, start)
    await commit(db, decision(start.run_id, 1, n=3, events=b"[3,4,5]"))
    async with db.lane() as connection:
        await logs.save_snapshot(connection, start.run_id, 2, 1, b"state at 2")
    for seq, state, rows in ((1, None, [2]), (2, b"state at 2", []), (4, b"state at 2", [5]), (9, b"state at 2", [5])):
        loaded = require(await logs.load_run_at(db.api, TENANT, start.run_id, seq, 1))
        assert (loaded.state, [row.last_seq for row in loaded.rows]) == (state, rows), seq
    assert await logs.load_run_at(db.api, STRANGER, start.run_id, 1, 1) is None


async def test_the_log_is_read_from_any_seq(db: Database) -> None:
    start = birth(n=2)
    await commit(db, start)
    await commit(db, decision(start.run_id, 1, n=3))
    firsts = {
        after: [row.first_seq for row in await logs.read_log(db.api, start.run_id, after, 10)] for after in (0, 1, 2, 5)
    }
    assert firsts == {0: [1, 3], 1: [1, 3], 2: [3], 5: []}
    assert len(await logs.read_log(db.api, start.run_id, 0, 1)) == 1
    assert await logs.poll_versions(db.api, [start.run_id, uuid4()]) == [RunVersion(start.run_id, 5, 2)]
    text = await as_owner(db, "SELECT events FROM log_text WHERE first_seq = 1")
    assert text == '["start"]'


async def test_open_pendings_are_the_tenant_s_and_come_newest_first(db: Database) -> None:
    first, second = birth(), birth(tenant=STRANGER)
    await commit(db, first, second)
    for version, name in ((1, "a"), (2, "b")):
        row = PendingRow(name, "open", "step", b"d", None, b"{}")
        await commit(db, decision(first.run_id, version, pendings=[row]))
    voted = decision(
        first.run_id, 3, pendings=[PendingRow("a", "approve", "step", b"d", None, b"{}")],
        votes=[VoteRow("a", "user:x", b"{}"), VoteRow("a", "user:y", b"{}"), VoteRow("b", "user:z", b"{}")],
    )  # fmt: skip
    (newest, oldest) = (await pendings.open_pendings(db.api, TENANT, limit=9)).rows
    assert (newest.id, oldest.id) == ("b", "a")
    page = await pendings.open_pendings(db.api, TENANT, limit=9, before=(newest.opened_at, newest.id))
    assert [pending.id for pending in page.rows] == ["a"]
    await commit(db, voted)
    assert [pending.id for pending in (await pendings.open_pendings(db.api, TENANT, limit=9)).rows] == ["b"]
    assert (await pendings.open_pendings(db.api, STRANGER, limit=9)).rows == []
    assert await pendings.get_pending(db.api, STRANGER, first.run_id, "a") is None
    pending = require(await pendings.get_pending(db.api, TENANT, first.run_id, "a"))
    assert pending.status == "approve"
    there = await db.api.fetch("SELECT id FROM pendings WHERE run_id = $1 ORDER BY opened_seq, id", first.run_id)
    assert [each["id"] for each in there] == ["a", "b"]
    query = "SELECT principal FROM votes WHERE run_id = $1 AND pending_id = 'a' ORDER BY last_seq, principal"
    votes = await db.api.fetch(query, first.run_id)
    assert [vote["principal"] for vote in votes] == ["user:x", "user:y"]


async def test_a_child_run_is_of_the_thread_but_never_its_last_run(db: Database) -> None:
    parent = birth(thread_id="t")
    child = birth(thread_id="t", parent_id=parent.run_id, parent_path="sub")
    for entry in (parent, child):
        await commit(db, entry)
    of_thread = await run_lists.list_runs(db.api, TENANT, limit=9, thread_id="t")
    assert [run.id for run in of_thread] == [child.run_id, parent.run_id]
    assert require(await threads.last_run(db.api, TENANT, "t")).id == parent.run_id
    assert (await threads.newest_positions(db.api, [(TENANT, "t")]))[TENANT, "t"].run_id == parent.run_id


async def test_a_thread_is_its_runs_in_order_with_their_messages(db: Database) -> None:
    entries = [
        birth(
            thread_id="t",
            n=2,
            turns=[TurnRow(1, first=1, last=2, wire_run_id=f"w{i}", body_sha=b"sha")],
            messages=[MessageRow(n, f"m{i}{n}", "user", b"{}", 2) for n in (0, 1)],
        )
        for i in range(2)
    ]
    for entry in entries:
        await commit(db, entry)
    await commit(db, birth(thread_id="t", tenant=STRANGER, messages=[MessageRow(0, "x", "user", b"", 1)]))
    assert await threads.line(db.api, TENANT, "t", entries[1].run_id) == [e.run_id for e in entries]
    assert require(await threads.last_run(db.api, TENANT, "t")).id == entries[1].run_id
    assert await threads.last_run(db.api, TENANT, "nothing") is None
    assert [message.id for message in await threads.transcript(db.api, TENANT, "t")] == ["m00", "m01", "m10", "m11"]
    assert await threads.find_unseen(db.api, TENANT, "t", ["m00", "x", "new"]) == {"x", "new"}
    turn = threads.Turn(entries[1].run_id, 1, "w1", b"sha", 1, 2)
    assert await threads.find_turn_of_wire_run(db.api, TENANT, "t", "w1") == turn
    assert await threads.find_turn_of_wire_run(db.api, STRANGER, "t", "w1") is None
    assert await threads.find_turn_of_run(db.api, TENANT, "t", entries[1].run_id, 1) == turn


async def test_of_turns_with_one_client_id_the_equal_body_or_the_newest_counts(db: Database) -> None:
    entries = [
        birth(thread_id="t", turns=[TurnRow(1, first=1, last=1, wire_run_id="w", body_sha=body)])
        for body in (b"a", b"b", None)
    ]
    for entry in entries:
        await commit(db, entry)
    a, b, newest = (entry.run_id for entry in entries)
    for body, found in ((b"a", a), (b"b", b), (b"c", newest), (None, newest)):
        turn = require(await threads.find_turn_of_wire_run(db.api, TENANT, "t", "w", body))
        assert turn.run_id == found, body


async def test_a_posts_joint_read_of_its_thread_equals_the_single_reads(db: Database) -> None:
    for name, version, source, dev in (("w", 1, b"one", False), ("w", 2, b"two", False), ("x", 7, b"copy", True)):
        await workflows.publish_workflow(db.api, TENANT, name=name, version=version, source=source, dev=dev)
    turn, message = TurnRow(1, first=1, last=1, wire_run_id="r", body_sha=b"a"), MessageRow(1, "m1", "user", b"{}", 1)
    await commit(db, birth(thread_id="t", workflow_name="w", turns=[turn], messages=[message]))
    await commit(db, birth(thread_id="t", workflow_name="w", turns=[TurnRow(1, first=1, last=1, wire_run_id="r")]))
    sha8 = hashlib.sha256(b"copy").hexdigest()[:8]
    Named = workflows.NamedVersion
    for tenant in (TENANT, STRANGER):
        for thread, wire_run_id, body_sha in (("t", "r", b"a"), ("t", "r", b"b"), ("t", "s", b"a"), ("u", "r", b"a")):
            last = await threads.last_run(db.api, tenant, thread)
            for wanted, default, meant in (
                (None, None, None if last is None else Named("w")),
                (None, Named("x"), Named("x") if last is None else Named("w")),
                (Named("w", 1), Named("x"), Named("w", 1)),
                (Named("x", 7, sha8), None, Named("x", 7)),
                (Named("x", 7, "0" * 8), Named("w"), None),
                (Named("", None), Named("w"), None),
            ):
                given = (tenant, thread, wire_run_id, body_sha, ["m1", "m2"])
                known = await post_context.load_context(db.api, *given, wanted=wanted, default=default)
                assert known.last == last
                assert known.turn == await threads.find_turn_of_wire_run(db.api, *given[:4])
                assert {"m1", "m2"} - known.seen == await threads.find_unseen(db.api, tenant, thread, ["m1", "m2"])
                found = None
                if meant is not None and meant.version is not None:
                    found = await workflows.workflow_version(db.api, tenant, meant.name, meant.version)
                elif meant is not None:
                    found = await workflows.find_latest_workflow(db.api, tenant, meant.name)
                assert (known.workflow and known.workflow.sha256) == (found and found.sha256)
    assert (await post_context.load_context(db.api, *given, wanted=None, default=None)).seen == set()


async def test_a_thread_that_was_branched_leaves_out_what_came_after_the_branch(db: Database) -> None:
    def run(name: str, **born: Any) -> Entry:
        return birth(thread_id="t", messages=[MessageRow(0, name, "user", b"{}", 1)], **born)

    async def shown(tip: Entry | None = None) -> str:
        found = await threads.transcript(db.api, TENANT, "t", before=None if tip is None else tip.run_id)
        return "".join(message.id for message in found)

    first, second = run("a"), run("b")
    for entry in (first, second):
        await commit(db, entry)
    child = run("c", parent_id=second.run_id, parent_path="x")
    await commit(db, child)
    assert await shown() == "abc"
    grandchild = run("x", parent_id=child.run_id, parent_path="x")
    await commit(db, grandchild)
    assert await shown() == "abcx"
    assert await shown(grandchild) == "a"
    behind = run("d", branch=Branch(first.run_id, first.run_id))
    await commit(db, behind, birth())  # one that is no branch, in the same statement
    assert await shown() == "ad"
    assert await shown(second) == await shown(child) == "a"
    fork = run("e", branch=Branch(first.run_id, None, 1))
    after = run("f")
    for entry in (fork, after):
        await commit(db, entry)
    assert await shown() == "ef"
    assert await shown(fork) == ""
    back = run("g", branch=Branch(second.run_id, second.run_id))
    await commit(db, back)
    assert await shown() == "abcxg"
    assert await threads.line(db.api, TENANT, "t", back.run_id) == [first.run_id, second.run_id, back.run_id]
    assert await threads.message_ids(db.api, TENANT, "t", second.run_id) == [(m, "user") for m in "abcx"]
    assert await threads.find_unseen(db.api, TENANT, "t", ["a", "d", "f", "z"]) == {"z"}
    assert await threads.find_unseen(db.api, TENANT, "t", ["a", "b", "d"], behind=(second.run_id, 1)) == {"d"}
    assert await threads.find_unseen(db.api, TENANT, "t", ["a", "b"], behind=(second.run_id, 0)) == {"b"}
    row = require(await run_lists.get_run(db.api, TENANT, fork.run_id))
    assert (row.branch_of, row.follows, row.copied) == (first.run_id, None, 1)


async def test_the_outbox_gives_each_target_messages_in_order_until_deleted(db: Database) -> None:
    start = birth(outbox=[OutboxRow("k", "x", b"1"), OutboxRow("k", "y", b"2"), OutboxRow("k", "x", b"3")])
    await commit(db, start)
    due = await outbox.due_messages(db.engine, 10, timedelta(0))
    assert [(message.target, message.body) for message in due] == [("x", b"1"), ("y", b"2")]
    assert due[0].command_id == f"{start.run_id}/1/0"
    assert await outbox.due_messages(db.engine, 10, timedelta(hours=1)) == due
    assert await outbox.due_messages(db.engine, 10) == [], "somebody is delivering them"
    for message in (*due, due[0]):
        await outbox.delete_message(db.engine, message)
    assert [message.body for message in await outbox.due_messages(db.engine, 10)] == [b"3"]


async def test_a_published_workflow_never_changes_and_the_highest_is_the_latest(db: Database) -> None:
    async def publish(version: int, source: bytes, *, dev: bool = False) -> workflows.Workflow:
        return await workflows.publish_workflow(
            db.api, TENANT, name="w", version=version, source=source, title="W", dev=dev
        )

    await publish(7, b"dev 7", dev=True)
    await publish(7, b"dev 7, edited", dev=True)
    latest = require(await workflows.find_latest_workflow(db.api, TENANT, "w"))
    assert latest.source == b"dev 7, edited"
    await publish(7, b"dev 7", dev=True)
    latest = require(await workflows.find_latest_workflow(db.api, TENANT, "w"))
    assert latest.source == b"dev 7", "saved again, it is the newest again"

    await publish(2, b"two")
    await publish(1, b"one")
    assert (await publish(1, b"one")).sha256 == hashlib.sha256(b"one").digest()
    with pytest.raises(Rejected, match="w@1 is published with other content") as refusal:
        await publish(1, b"uno")
    assert refusal.value.status == 409
    latest = require(await workflows.find_latest_workflow(db.api, TENANT, "w"))
    assert (latest.version, latest.dev) == (2, False)
    assert not (await publish(7, b"dev 7")).dev, "publishing a dev copy makes it the version"
    seven = require(await workflows.workflow_version(db.api, TENANT, "w", 7))
    assert (seven.source, seven.dev) == (b"dev 7", False)
    again = await publish(7, b"dev 7", dev=True)
    assert not again.dev, "loading from disk what is published makes no dev copy of it"
    versions = await workflows.list_versions_of_workflow(db.api, TENANT, "w")
    assert [(each.version, each.dev) for each in versions] == [(7, False), (2, False), (1, False), (7, True)]
    assert [each.version for each in await workflows.list_workflows(db.api, TENANT)] == [7]
    assert await workflows.find_workflow_by_sha(db.api, TENANT, seven.sha256) == seven
    assert await workflows.find_workflow_by_sha(db.api, STRANGER, seven.sha256) is None
    assert await workflows.find_latest_workflow(db.api, TENANT, "x") is None


async def test_the_same_workflow_published_by_many_at_once_is_one_workflow(db: Database) -> None:
    for number in range(20):
        one = {"name": f"w{number}", "version": 1, "source": b"x%d" % number}
        await asyncio.gather(*(workflows.publish_workflow(db.api, TENANT, **one) for _ in range(8)))


LONG = """
WITH r AS (
  INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version, head,
    started_by)
  SELECT gen_random_uuid(), $1, 'w', 'w', 1, $2, 'finished', 1, 1, 'h', 'user:a' FROM generate_series(1, $3)
  RETURNING id, tenant, thread_id, place
), t AS (
  INSERT INTO turns (run_id, n, tenant, thread_id, wire_run_id, first_seq)
  SELECT id, 1, tenant, thread_id, place, 1 FROM r
)
INSERT INTO messages (run_id, n, tenant, thread_id, id, role, body, seq)
SELECT id, n, tenant, thread_id, place || '/' || n, 'user', '{}', 1 FROM r, generate_series(0, 1) AS n
"""


class Explained:
    """A connection that counts the rows which its statements read from tables."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.rows = 0.0

    async def fetch(self, query: str, *given: Any) -> Any:
        plan = json.loads(await self._connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *given))
        self.rows += rows_read(plan[0]["Plan"])
        return await self._connection.fetch(query, *given)

    async def fetchrow(self, query: str, *given: Any) -> Any:
        found = await self.fetch(query, *given)
        return found[0] if found else None


def rows_read(plan: dict[str, Any]) -> float:
    """The rows that the scans of tables touched, given back or not."""
    read = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return (read if "Relation Name" in plan else 0) + sum(rows_read(below) for below in plan.get("Plans", ()))


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of a plan that read a table."""
    found = [scan for below in plan.get("Plans", ()) for scan in scans(below)]
    return [*found, plan] if "Relation Name" in plan else found


async def test_what_verify_and_prune_read_of_runs_is_found_by_indexes(db: Database) -> None:
    """Of a million runs a page of them is read in the time of a page."""
    parent = birth(status="finished", busy=False)
    await commit(db, parent)
    child = birth(parent_id=parent.run_id, parent_path="s", status="finished", busy=False)
    await commit(db, child)
    asked: list[tuple[str, tuple[Any, ...]]] = []
    async with db.api.acquire() as connection:
        connection.add_query_logger(lambda query: asked.append((query.query, query.args)))
        found = {each.run["id"]: each for each in await run_bundle.evidence_of(connection, [parent.run_id])}
        assert list(found[parent.run_id].below) == [child.run_id]
        (found_child,) = await run_bundle.evidence_of(connection, [child.run_id])
        assert require(found_child.above).id == parent.run_id
        unit = await retention.list_unit(connection, TENANT, "thread")
        assert not await retention.is_wanted(connection, unit)
        await asyncio.sleep(0)  # the driver tells of a statement a moment later
        looked = [(query, args) for query, args in asked if "FROM" in query]
        assert len(looked) > 15
        await connection.execute("SET enable_seqscan = off")
        for query, args in looked:
            (answer,) = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {query}", *args))
            for scan in scans(answer["Plan"]):
                table, condition = scan["Relation Name"], scan.get("Index Cond", "")
                few = table in ("outbox", "schedules")  # what is on its way, and what people have written
                assert scan["Node Type"] != "Seq Scan" or few, query
                # Only PostgreSQL 18 skips the first column of an index.
                assert "tenant" in condition or table != "audit", query
                assert table != "slot_waiters" or scan["Index Name"] == "slot_waiters_of_run", query
        await connection.execute("RESET enable_seqscan")


async def test_what_a_post_reads_of_a_thread_does_not_depend_on_its_length(db: Database) -> None:
    async def read(thread: str) -> dict[str, float]:
        last = require(await threads.last_run(db.api, TENANT, thread))
        ids = [id for id, _ in await threads.message_ids(db.api, TENANT, thread, last.id)]
        rows: dict[str, float] = {}
        for name, ask in {
            "last run": lambda c: threads.last_run(c, TENANT, thread),
            "next run": lambda c: threads.next_run(c, TENANT, thread, last.id),
            "place": lambda c: threads.newest_positions(c, [(TENANT, thread)]),
            "turn": lambda c: threads.find_turn_of_wire_run(c, TENANT, thread, "none"),
            "line": lambda c: threads.line(c, TENANT, thread, last.id, 2),
            "unseen": lambda c: threads.find_unseen(c, TENANT, thread, ["new", ids[-1]]),
            "unseen behind": lambda c: threads.find_unseen(c, TENANT, thread, ["new", ids[-9]], behind=(last.id, 1)),
            "history": lambda c: threads.message_ids(c, TENANT, thread, last.id),
            "snapshot": lambda c: threads.transcript(c, TENANT, thread, before=last.id, window=threads.WINDOW),
        }.items():
            connection = Explained(db.api)
            await ask(connection)
            rows[name] = connection.rows
        return rows

    for thread, length in (("short", 300), ("long", 10_000), ("other", 1000)):
        await db.api.execute(LONG, TENANT, thread, length)
    await as_owner(db, "ANALYZE runs, turns, messages")  # as autovacuum does
    short, long = await read("short"), await read("long")
    assert {name: rows for name, rows in long.items() if rows > 2 * short[name] + 10} == {}
    assert max(long.values()) <= 10 * threads.WINDOW.runs
    assert max(long[name] for name in long if name not in ("history", "snapshot")) <= 50


async def test_a_snapshot_begins_with_the_window_and_shows_the_newest_messages(db: Database) -> None:
    await db.api.execute(LONG, TENANT, "t", 5)
    whole = [message.id for message in await threads.transcript(db.api, TENANT, "t")]
    assert len(whole) == 10
    last = require(await threads.last_run(db.api, TENANT, "t"))
    for window, shown in ((threads.Window(2, 99), whole[-4:]), (threads.Window(9, 3), whole[-3:])):
        assert [m.id for m in await threads.transcript(db.api, TENANT, "t", window=window)] == shown
        assert [id for id, _ in await threads.message_ids(db.api, TENANT, "t", last.id, window)] == shown
    before = await threads.transcript(db.api, TENANT, "t", before=last.id, window=threads.Window(2, 99))
    assert [message.id for message in before] == whole[-6:-2]


async def test_a_clock_that_steps_back_does_not_change_the_order_of_a_thread(db: Database) -> None:
    entries = [
        birth(
            thread_id="t",
            messages=[MessageRow(0, name, "user", b"{}", 1)],
            turns=[TurnRow(1, first=1, last=1, wire_run_id="w", body_sha=b"sha")],
        )
        for name in "abc"
    ]
    for hours, entry in zip((9, 5, 1), entries, strict=True):
        await commit(db, entry)
        await db.api.execute(
            "UPDATE runs SET created_at = now() + make_interval(hours => $2) WHERE id = $1", entry.run_id, hours
        )
    ids = [entry.run_id for entry in entries]
    assert require(await threads.last_run(db.api, TENANT, "t")).id == ids[-1]
    assert (await threads.newest_positions(db.api, [(TENANT, "t")]))[TENANT, "t"].run_id == ids[-1]
    assert await threads.line(db.api, TENANT, "t", ids[-1]) == ids
    assert [message.id for message in await threads.transcript(db.api, TENANT, "t")] == ["a", "b", "c"]
    assert await threads.find_unseen(db.api, TENANT, "t", ["a", "c"], behind=(ids[1], 1)) == {"c"}
    assert require(await threads.find_turn_of_wire_run(db.api, TENANT, "t", "w")).run_id == ids[-1]
    thread = require(await thread_lists.get_thread(db.api, TENANT, "t"))
    assert thread.run_id == ids[-1]
    assert [thread.run_id for thread in await thread_lists.list_threads(db.api, TENANT, limit=9)] == [ids[-1]]
    for index, following in enumerate([*ids[1:], None]):
        found = await threads.next_run(db.api, TENANT, "t", ids[index])
        assert (found and found.id) == following
    assert require(await threads.next_run(db.api, TENANT, "t")).id == ids[0]


async def test_a_run_takes_its_place_when_it_has_its_slot(db: Database) -> None:
    """A statement that began before another run of the thread was born must not give the place of before that."""
    late, others = birth(thread_id="t", slot="thread:t"), [birth(), birth()]
    async with db.api.acquire() as holder:
        transaction = holder.transaction()
        await transaction.start()
        query = "INSERT INTO slots (tenant, slot, run_id) VALUES ($1, 'thread:t', $2)"
        await holder.execute(query, TENANT, others[0].run_id)
        coming = asyncio.create_task(commit(db, late))
        await until(lambda: somebody_waits(db))
        for other in others:
            await commit(db, other)
        await transaction.rollback()
    await coming
    places = {row["id"]: row["place"] for row in await db.api.fetch("SELECT id, place FROM runs")}
    assert places[late.run_id] > max(places[other.run_id] for other in others)


async def test_a_filter_of_runs_reads_a_page_and_not_all_runs(db: Database) -> None:
    await as_owner(
        db,
        """
            INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version,
              head, started_by, created_at, result)
            SELECT gen_random_uuid(), $1, 'w', 'w' || n % 50, n % 3, 't' || n,
              CASE WHEN n % 500 = 0 THEN 'failed' ELSE 'finished' END, 1, 1, 'h', 'user:' || n % 100,
              now() - n * interval '1 minute',
              convert_to(CASE WHEN n % 1000 = 0 THEN '{"error":{"code":"tool.failed","message":"x"}}'
                ELSE '{"error":{"code":"tool.failed_badly","message":"x"}}' END, 'UTF8')
            FROM generate_series(1, 20000) AS n
            """,
        TENANT,
    )
    await as_owner(db, "ANALYZE runs")
    middle = (await run_lists.list_runs(db.api, TENANT, limit=1))[0].created_at - timedelta(minutes=10_000)
    few = {
        "error": run_lists.Filter(error="tool.failed"),
        "starter": run_lists.Filter(started_by="user:7"),
        "workflow": run_lists.Filter(workflow="w3", statuses=["finished"]),
        "range": run_lists.Filter(since=middle - timedelta(minutes=50), until=middle),
        "version": run_lists.Filter(workflow="w3", version=1),
        "parts": run_lists.Filter(workflows=["w3", "w4"], statuses=["failed", "finished"]),
        "many parts": run_lists.Filter(workflows=[f"w{n}" for n in range(40)]),
    }
    for name, wanted in few.items():
        explained = Explained(db.api)
        found = await run_lists.find_runs(explained, TENANT, wanted, limit=20)  # type: ignore[arg-type]
        assert len(found) == 20, name
        assert explained.rows < 3000, f"{name} reads {explained.rows} rows"
