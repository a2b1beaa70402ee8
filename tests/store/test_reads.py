"""What requests, followers and the engine read back."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from hai_flow.errors import Rejected
from hai_flow.store import outbox, pendings, runs, threads, workflows
from hai_flow.store.database import Database
from hai_flow.store.runs import Branch, Entry, MessageRow, OutboxRow, PendingRow, TurnRow, VoteRow
from tests.store.conftest import STRANGER, TENANT, birth, commit, decision, load


async def test_runs_are_listed_newest_first_in_pages_and_by_filter(db: Database) -> None:
    starts = [birth(workflow_name=f"w{i % 2}", thread_id=f"t{i % 3}") for i in range(6)]
    for start in starts:
        await commit(db, start)
    await commit(db, decision(starts[0].run_id, 1, status="finished", busy=False))
    newest = [start.run_id for start in reversed(starts)]
    first = await runs.list_runs(db.api, TENANT, limit=4)
    rest = await runs.list_runs(db.api, TENANT, limit=4, before=(first[-1].created_at, first[-1].id))
    assert [run.id for run in [*first, *rest]] == newest
    assert [run.id for run in await runs.list_runs(db.api, TENANT, limit=9, workflow="w1")] == newest[::2]
    assert [run.id for run in await runs.list_runs(db.api, TENANT, limit=9, thread_id="t0")] == [newest[2], newest[5]]
    ended = await runs.list_runs(db.api, TENANT, limit=9, statuses=["finished", "failed"])
    assert [run.id for run in ended] == newest[-1:]
    assert await runs.list_runs(db.api, STRANGER, limit=9) == []
    assert await runs.count_by_status(db.api) == {"running": 5, "finished": 1}
    assert await runs.count_by_status(db.api, STRANGER) == {}


async def test_a_load_gives_the_snapshot_and_the_tail_and_a_tail_alone(db: Database) -> None:
    start = birth(n=2, events=b"[1,2]")
    await commit(db, start)
    for version in (1, 2):
        await commit(db, decision(start.run_id, version, events=b"[%d]" % version))
    async with db.lane() as connection:
        await runs.save_snapshot(connection, start.run_id, 3, 1, b"state at 3")
        await runs.save_snapshot(connection, start.run_id, 99, 1, b"beyond the log")
    cold = await load(db, start.run_id)
    assert (cold.snapshot_seq, cold.state, [row.last_seq for row in cold.rows]) == (3, b"state at 3", [4])
    tail = await load(db, start.run_id, have=3)
    assert (tail.state, [row.last_seq for row in tail.rows]) == (None, [4])
    other_abi = (await runs.load_runs(db.engine, [start.run_id], [0], 2))[start.run_id]
    assert (other_abi.state, [row.last_seq for row in other_abi.rows]) == (None, [2, 3, 4])


async def test_the_state_at_a_seq_needs_the_snapshot_before_it_and_the_rows_up_to_it(db: Database) -> None:
    start = birth(n=2, events=b"[1,2]")
    await commit(db, start)
    await commit(db, decision(start.run_id, 1, n=3, events=b"[3,4,5]"))
    async with db.lane() as connection:
        await runs.save_snapshot(connection, start.run_id, 2, 1, b"state at 2")
    for seq, state, rows in ((1, None, [2]), (2, b"state at 2", []), (4, b"state at 2", [5]), (9, b"state at 2", [5])):
        loaded = await runs.load_run_at(db.api, TENANT, start.run_id, seq, 1)
        assert loaded is not None
        assert (loaded.state, [row.last_seq for row in loaded.rows]) == (state, rows), seq
    assert await runs.load_run_at(db.api, STRANGER, start.run_id, 1, 1) is None


async def test_the_log_is_read_from_any_seq(db: Database) -> None:
    start = birth(n=2)
    await commit(db, start)
    await commit(db, decision(start.run_id, 1, n=3))
    firsts = {
        after: [row.first_seq for row in await runs.read_log(db.api, start.run_id, after, 10)] for after in (0, 1, 2, 5)
    }
    assert firsts == {0: [1, 3], 1: [1, 3], 2: [3], 5: []}
    assert len(await runs.read_log(db.api, start.run_id, 0, 1)) == 1
    assert await runs.poll_versions(db.api, [start.run_id, uuid4()]) == [runs.RunVersion(start.run_id, 5, 2)]
    text = await db.api.fetchval("SELECT events FROM log_text WHERE first_seq = 1")
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
    (newest, oldest) = await pendings.open_pendings(db.api, TENANT, limit=9)
    assert (newest.id, oldest.id) == ("b", "a")
    page = await pendings.open_pendings(db.api, TENANT, limit=9, before=(newest.opened_at, newest.id))
    assert [pending.id for pending in page] == ["a"]
    await commit(db, voted)
    assert [pending.id for pending in await pendings.open_pendings(db.api, TENANT, limit=9)] == ["b"]
    assert await pendings.open_pendings(db.api, STRANGER, limit=9) == []
    assert await pendings.get_pending(db.api, STRANGER, first.run_id, "a") is None
    pending = await pendings.get_pending(db.api, TENANT, first.run_id, "a")
    assert pending is not None
    assert pending.status == "approve"
    assert [each.id for each in await pendings.pendings_of_run(db.api, TENANT, first.run_id)] == ["a", "b"]
    votes = await pendings.votes_of(db.api, TENANT, first.run_id, "a")
    assert [vote.principal for vote in votes] == ["user:x", "user:y"]


async def test_a_child_run_is_of_the_thread_but_never_its_last_run(db: Database) -> None:
    parent = birth(thread_id="t")
    child = birth(thread_id="t", parent_id=parent.run_id, parent_path="sub")
    for entry in (parent, child):
        await commit(db, entry)
    assert [run.id for run in await threads.runs_of_thread(db.api, TENANT, "t")] == [parent.run_id, child.run_id]
    last = await threads.last_run(db.api, TENANT, "t")
    assert last is not None
    assert last.id == parent.run_id


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
    assert [run.id for run in await threads.runs_of_thread(db.api, TENANT, "t")] == [e.run_id for e in entries]
    last = await threads.last_run(db.api, TENANT, "t")
    assert last is not None
    assert last.id == entries[1].run_id
    assert await threads.last_run(db.api, TENANT, "nothing") is None
    assert [message.id for message in await threads.transcript(db.api, TENANT, "t")] == ["m00", "m01", "m10", "m11"]
    assert await threads.unseen(db.api, TENANT, "t", ["m00", "x", "new"]) == {"x", "new"}
    turn = threads.Turn(entries[1].run_id, 1, "w1", b"sha", 1, 2)
    assert await threads.turn_of_wire_run(db.api, TENANT, "t", "w1") == turn
    assert await threads.turn_of_wire_run(db.api, STRANGER, "t", "w1") is None
    assert await threads.turns_of_run(db.api, TENANT, entries[1].run_id) == [turn]


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
    assert await shown() == "abcg"
    assert await threads.line(db.api, TENANT, "t", back.run_id) == [first.run_id, second.run_id, back.run_id]
    assert await threads.message_ids(db.api, TENANT, "t", second.run_id) == [(m, "user") for m in "abc"]
    assert await threads.unseen(db.api, TENANT, "t", ["a", "d", "f", "z"]) == {"z"}
    assert await threads.unseen(db.api, TENANT, "t", ["a", "b", "d"], behind=(second.run_id, 1)) == {"d"}
    assert await threads.unseen(db.api, TENANT, "t", ["a", "b"], behind=(second.run_id, 0)) == {"b"}
    row = await runs.get_run(db.api, TENANT, fork.run_id)
    assert row is not None
    assert (row.branch_of, row.follows, row.copied) == (first.run_id, None, 1)


async def test_the_outbox_gives_each_target_its_messages_in_order_and_again_until_deleted(db: Database) -> None:
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
    latest = await workflows.latest_workflow(db.api, TENANT, "w")
    assert latest is not None
    assert latest.source == b"dev 7, edited"
    await publish(7, b"dev 7", dev=True)
    latest = await workflows.latest_workflow(db.api, TENANT, "w")
    assert latest is not None
    assert latest.source == b"dev 7", "saved again, it is the newest again"

    await publish(2, b"two")
    await publish(1, b"one")
    assert (await publish(1, b"one")).sha256 == hashlib.sha256(b"one").digest()
    with pytest.raises(Rejected, match="w@1 is published with other content") as refusal:
        await publish(1, b"uno")
    assert refusal.value.status == 409
    latest = await workflows.latest_workflow(db.api, TENANT, "w")
    assert latest is not None
    assert (latest.version, latest.dev) == (2, False)
    assert not (await publish(7, b"dev 7")).dev, "publishing a dev copy makes it the version"
    seven = await workflows.workflow_version(db.api, TENANT, "w", 7)
    assert seven is not None
    assert (seven.source, seven.dev) == (b"dev 7", False)
    versions = await workflows.versions_of_workflow(db.api, TENANT, "w")
    assert [(each.version, each.dev) for each in versions] == [(7, False), (2, False), (1, False), (7, True)]
    assert [each.version for each in await workflows.list_workflows(db.api, TENANT)] == [7]
    assert await workflows.workflow_by_sha(db.api, TENANT, seven.sha256) == seven
    assert await workflows.workflow_by_sha(db.api, STRANGER, seven.sha256) is None
    assert await workflows.latest_workflow(db.api, TENANT, "x") is None


async def test_the_same_workflow_published_by_many_at_once_is_one_workflow(db: Database) -> None:
    for number in range(20):
        one = {"name": f"w{number}", "version": 1, "source": b"x%d" % number}
        await asyncio.gather(*(workflows.publish_workflow(db.api, TENANT, **one) for _ in range(8)))


async def test_blobs_are_known_by_their_sha_and_their_tenant(db: Database) -> None:
    sha = await workflows.put_blob(db.api, TENANT, b"large")
    assert await workflows.put_blob(db.api, TENANT, b"large") == sha == hashlib.sha256(b"large").digest()
    assert await workflows.get_blob(db.api, TENANT, sha) == b"large"
    assert await workflows.get_blob(db.api, STRANGER, sha) is None
