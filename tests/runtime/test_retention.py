"""What has ended long ago is merged, archived, removed and restored; whoever waits, or is referred to, stays."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.runs.fork import obstacle
from hai_flow.engine.state.snapshot import ABI, encode_state
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.commit.states import state_at
from hai_flow.runtime.ops.verify import VerifiedRuns, Verifying, verify
from hai_flow.runtime.retention import archive as archives
from hai_flow.runtime.retention.archive import Archive, Damaged, Restored, restore
from hai_flow.runtime.retention.policy import Retention, Rule, read_retention
from hai_flow.runtime.retention.prune import Pruned, Pruning
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.audit import audit, log_chain
from hai_flow.store.identity import erasure
from hai_flow.store.messaging import pushes
from hai_flow.store.messaging.pushes import Push
from hai_flow.store.ops import retention
from hai_flow.store.people import feedback
from hai_flow.store.runs import files, log_compaction, logs
from tests.runtime.conftest import ASKING, TEXT, TOOLS, Connection, Make, answer, is_now, open_pending, start, state_of
from tests.support.postgres import connecting
from tests.support.waiting import until

BY = "user:op"
ELSEWHERE = "01900000-0000-7000-8000-00000000eeee"
ELSEWHERE_SHA = "\\x" + "ee" * 32
REMOVED = Retention(hai="retention/v1", remove="30d", pack="1d")
TABLES = (*retention.ARCHIVED,)
FAILING = "steps:\n  - {id: no, fail: {code: my.error, message: No.}}\n"


# --- merging ----------------------------------------------------------------------------------------------------------

_json = st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@given(st.lists(st.lists(_json, min_size=1, max_size=4), min_size=1, max_size=8))
def test_merged_commits_come_apart_byte_for_byte(batches: list[list[Any]]) -> None:
    rows, seq = [], 0
    for version, batch in enumerate(batches, 1):
        at = datetime(2026, 3, 2, tzinfo=UTC) + timedelta(microseconds=version)
        events = json.dumps(batch, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        rows.append(
            {"first_seq": seq + 1, "last_seq": seq + len(batch), "version": version, "at": at, "events": events}
        )
        seq += len(batch)
    events, parts = log_compaction.merge_commits(rows)
    assert len(json.loads(events)) == seq
    row = rows[-1] | {"first_seq": 1, "events": events, "parts": parts}
    assert list(log_compaction.iter_commits(row)) == [each | {"parts": None} for each in rows]


@pytest.mark.parametrize("parts", [b"{}", b"[]", b"[[7,3,1,0]]", b"[[1,3,1,0]]"])
def test_parts_that_are_not_those_of_the_events_are_refused(parts: bytes) -> None:
    row = {"first_seq": 1, "last_seq": 1, "version": 1, "events": b"[1,2]", "parts": parts}
    with pytest.raises(ValueError, match="its parts"):
        list(log_compaction.iter_commits(row))


async def test_a_merged_log_gives_every_reader_what_it_gave(make: Make, eye: Connection, database_url: str) -> None:
    runtime = await make(performs=True, chunk_flush_seconds=0.001)
    run_id = (await start(runtime, TEXT)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    seq = (await state_of(runtime, run_id)).seq
    before = await everything_read(runtime, run_id, seq)
    rows = await eye.fetchval("SELECT count(*) FROM log WHERE run_id = $1", run_id)
    packed = await log_compaction.merge_log(eye, run_id)
    assert packed.before == rows
    assert packed.after < rows
    assert await eye.fetchval("SELECT count(*) FROM log WHERE run_id = $1", run_id) == packed.after
    assert await everything_read(runtime, run_id, seq) == before
    assert await log_compaction.merge_log(eye, run_id) == (packed.after, packed.after)
    assert (await verify_runs(database_url)).violations == []
    other = await make()  # it knows nothing of the run, and loads it
    with pytest.raises(Rejected, match="can't retry"):
        await other.committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))


RETRIED = (
    TOOLS
    + """
steps:
  - {id: a, call: fx.echo, with: {value: x}}
  - {id: no, call: fx.breaks, with: {}, retry: {max: 2, every: 300ms}}
"""
)


async def test_behind_a_merge_a_run_is_forked_where_it_could_be_before(make: Make, eye: Connection) -> None:
    """Also where a commit ended within the merged row, as the one behind which a retry waited."""
    runtime = await make(performs=True)
    run_id = (await start(runtime, RETRIED)).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    before, marks = await obstacles(runtime, run_id), await runtime.moments.marks(LOCAL_TENANT, run_id, ())
    assert None in before
    assert "fork_unsettled" in before
    assert (await log_compaction.merge_log(eye, run_id)).after == 1
    assert await obstacles(runtime, run_id) == before
    assert [each.seq for each in await runtime.moments.marks(LOCAL_TENANT, run_id, ())] == [each.seq for each in marks]


async def obstacles(runtime: Runtime, run_id: UUID) -> list[str | None]:
    """Why the run can't be forked behind each of its events; None: it can."""
    state, found = await state_of(runtime, run_id), []
    plan = await runtime.catalog.plan(LOCAL_TENANT, bytes.fromhex(state.sha256))
    for seq in range(1, state.seq + 1):
        moment = await runtime.moments.moment(run_id, seq)
        why = obstacle(plan, moment.state, moment.following)
        found.append(None if why is None else why.code)
    return found


async def test_who_stands_in_the_middle_of_a_merged_row_goes_on_from_there(make: Make, eye: Connection) -> None:
    runtime, behind = await make(), await make()
    run_id = (await start(runtime, ASKING)).run_id
    half = await state_of(runtime, run_id)
    again = await behind.committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))  # so it knows the run as it waits
    assert again.already
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(runtime, run_id)))
    await log_compaction.merge_log(eye, run_id)
    assert await eye.fetchval("SELECT count(*) FROM log WHERE run_id = $1", run_id) == 1
    with pytest.raises(Rejected, match="can't retry a run that is finished"):
        await behind.committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))
    whole = await state_of(runtime, run_id)
    await logs.save_snapshot(eye, run_id, half.seq, ABI, encode_state(half))  # it came late, and stands within the row
    assert await state_of(runtime, run_id) == whole


async def everything_read(runtime: Runtime, run_id: UUID, seq: int) -> list[Any]:
    """What every cursor reads, and every state."""
    found: list[Any] = []
    for at in range(seq + 1):
        rows = await logs.read_log(runtime.database.api, run_id, at, 1000)
        events = [event for row in rows for event in e.decode_events(row.events)[max(0, at + 1 - row.first_seq) :]]
        found.append((events, await state_at(runtime.database, LOCAL_TENANT, run_id, at)))
    return found


# --- archiving, removing, restoring -----------------------------------------------------------------------------------


async def decided(runtime: Runtime, thread: str | None = None) -> UUID:
    """A run that has ended, because a person answered; the audit has it."""
    run_id = (await start(runtime, ASKING, thread=thread)).run_id
    pending = await open_pending(runtime, run_id)
    asked = AuditActor(who=c.LOCAL_PRINCIPAL, way="local")
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(pending), asked=asked)
    await until(lambda: is_now(runtime, run_id, "finished"))
    return run_id


async def grown_old(eye: Connection, days: int = 100) -> None:
    await eye.execute("UPDATE runs SET ended_at = ended_at - $1::interval WHERE ended_at IS NOT NULL", timedelta(days))


async def prune(eye: Connection, policy: Retention = REMOVED, archive: Archive | None = None, **more: Any) -> Pruned:
    pruning = Pruning(policy, {LOCAL_TENANT: "default"}, archive, BY, rest=0, **more)
    return [each async for each in pruning.run(eye)][-1]


async def rows_of(eye: Connection, run_id: UUID) -> dict[str, list[str]]:
    """The rows of a run, as they are stored."""
    found = {}
    for table in TABLES:
        condition, order = retention.ARCHIVED[table]
        query = f"SELECT t::text FROM {table} t WHERE {condition} ORDER BY {order}"
        found[table] = [row[0] for row in await eye.fetch(query, [run_id])]
    return found


async def verify_runs(database_url: str) -> VerifiedRuns:
    async with connecting(database_url) as connection:
        return [VerifiedRuns(), *[each async for each in verify(connection, Verifying())]][-1]


async def audited(database_url: str) -> list[str]:
    """What the audit finds wrong with itself and with the logs."""
    async with asyncpg.create_pool(database_url, min_size=1, max_size=2) as pool:
        await audit.seal(pool)
        found = await audit.verify(pool, LOCAL_TENANT)
        return [each.code for each in (*found.faults, *(await log_chain.verify_logs(pool, LOCAL_TENANT)).faults)]


async def test_a_run_retried_long_after_its_end_that_fails_at_once_stays(make: Make, eye: Connection) -> None:
    """It has ended anew, in the commit of the retry."""
    runtime = await make()
    run_id = (await start(runtime, FAILING)).run_id
    await eye.execute("UPDATE runs SET ended_at = now() - interval '100 days' WHERE id = $1", run_id)
    outcome = await runtime.committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))
    assert (outcome.status, outcome.already) == ("failed", False)
    assert (await prune(eye)).removed == 0
    assert await eye.fetchval("SELECT now() - ended_at < interval '1 minute' FROM runs WHERE id = $1", run_id)


async def test_removed_threads_return_byte_for_byte_and_the_audit_always_fits(
    make: Make, eye: Connection, database_url: str, tmp_path: Path
) -> None:
    runtime = await make(performs=True)
    run_id = await decided(runtime)
    await grown_old(eye)
    await log_compaction.merge_log(eye, run_id)
    before = await rows_of(eye, run_id)
    archive = Archive(str(tmp_path))
    tried = await prune(eye, archive=archive, do=False)
    assert (tried.archived, tried.removed, await rows_of(eye, run_id)) == (1, 1, before)
    assert archive.places() == []
    done = await prune(eye, archive=archive)
    assert (done.archived, done.removed, done.runs, done.kept) == (1, 1, 1, {})
    assert await audited(database_url) == []
    left = {table: rows for table, rows in (await rows_of(eye, run_id)).items() if rows}
    assert left == {"pendings": before["pendings"], "votes": before["votes"]}, "a decision stays explainable"
    with pytest.raises(Rejected, match="there is no run"):
        await (await make()).committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))
    (place,) = archive.places()
    tried_back = await restore(eye, archive, place, BY, store=False)
    assert not await rows_of_run(eye, run_id)
    assert await restore(eye, archive, place, BY) == tried_back
    assert await rows_of(eye, run_id) == before
    assert await audited(database_url) == []
    assert (await verify_runs(database_url)).violations == []
    assert (await state_of(await make(), run_id)).status == "finished"
    with pytest.raises(Damaged, match=f"the run {run_id} is there already"):
        await restore(eye, archive, place, BY)
    again = await prune(eye, archive=archive)
    assert (again.archived, again.removed) == (0, 1), "the archive that there is has it as it is"


async def rows_of_run(eye: Connection, run_id: UUID) -> int:
    count: int = await eye.fetchval("SELECT count(*) FROM runs WHERE id = $1", run_id)
    return count


async def test_a_failed_run_that_is_restored_can_be_retried(make: Make, eye: Connection, tmp_path: Path) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, FAILING)).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    await grown_old(eye)
    archive = Archive(str(tmp_path))
    assert (await prune(eye, archive=archive)).removed == 1
    await restore(eye, archive, archive.places()[0], BY)
    await (await make(performs=True)).committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))
    assert (await state_of(runtime, run_id)).retried == 1


async def test_a_run_that_went_on_since_it_was_archived_is_archived_anew(
    make: Make, eye: Connection, tmp_path: Path
) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, FAILING)).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    await grown_old(eye)
    archive = Archive(str(tmp_path))
    assert (await prune(eye, archive=archive, archives_only=True)).archived == 1
    assert await rows_of_run(eye, run_id) == 1
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))
    await until(lambda: is_now(runtime, run_id, "failed"))
    await grown_old(eye)
    done = await prune(eye, archive=archive)
    assert (done.archived, done.removed) == (1, 1)
    seq = await eye.fetchval("SELECT seq FROM retired_runs WHERE run_id = $1", run_id)
    assert (await restore(eye, archive, await place_of(eye, run_id), BY)).events == seq


async def place_of(eye: Connection, run_id: UUID) -> str:
    place: str = await eye.fetchval("SELECT place FROM retired_runs WHERE run_id = $1", run_id)
    return place


# --- what stays -------------------------------------------------------------------------------------------------------


async def test_whoever_waits_keeps_all_that_hangs_together_with_it(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    waiting = (await start(runtime, ASKING)).run_id
    earlier = await decided(runtime, thread="talk")
    later = (await start(runtime, ASKING, thread="talk")).run_id
    await runtime.catalog.publish(
        LOCAL_TENANT, ("hai: flow/v1\nname: below\nversion: 1\n" + "steps:\n  - say: Hello\n").encode()
    )
    body = "steps:\n  - {id: child, run: below}\n" + ASKING.removeprefix("steps:\n")
    parent = (await start(runtime, body)).run_id
    await until(lambda: is_now(runtime, parent, "waiting"))
    await grown_old(eye)
    ids = {row[0] for row in await eye.fetch("SELECT id FROM runs")}
    assert {waiting, earlier, later, parent} < ids, "and the child, which has ended"
    done = await prune(eye)
    assert (done.removed, {row[0] for row in await eye.fetch("SELECT id FROM runs")}) == (0, ids)


async def test_a_decision_that_the_audit_names_is_not_removed_unarchived(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = await decided(runtime)
    await grown_old(eye)
    done = await prune(eye)
    assert done.removed == 0
    assert list(done.kept) == ["people decided in it, the audit refers to that, and there is no archive"]
    assert await rows_of_run(eye, run_id) == 1


async def test_what_something_else_refers_to_stays(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, "steps:\n  - say: Hello\n")).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    await grown_old(eye)
    await eye.execute(
        "INSERT INTO outbox (run_id, last_seq, n, tenant, kind, target, body, due_at) "
        "VALUES ($1, 1, 0, $2, 'none', $3, '', now() + interval '1 day')",
        UUID(int=7), LOCAL_TENANT, str(run_id),
    )  # fmt: skip
    done = await prune(eye)
    assert (done.removed, list(done.kept)) == (0, ["a message, a schedule or a slot refers to it"])
    await eye.execute("DELETE FROM outbox")
    assert (await prune(eye)).removed == 1


async def test_rules_are_the_workflows_in_its_tenant_and_the_longest_of_a_thread(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, "steps:\n  - say: Hello\n")).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    name = await eye.fetchval("SELECT workflow_name FROM runs WHERE id = $1", run_id)
    await grown_old(eye, 50)
    assert (await prune(eye, Retention(hai="retention/v1", remove="60d"))).removed == 0
    assert (
        await prune(eye, Retention(hai="retention/v1", remove="7d", workflows={name: Rule(remove="never")}))
    ).removed == 0
    assert (await prune(eye, Retention(hai="retention/v1"))).removed == 0
    assert (await prune(eye, Retention(hai="retention/v1", workflows={name: Rule(remove="7d")}))).removed == 1


async def test_what_a_process_that_died_has_left_is_removed_by_the_next(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, TEXT)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    push = Push(LOCAL_TENANT, run_id, "user:ann", "one", b"{}", b"{}", False, None, 0)
    assert await pushes.store_push(eye, push)
    unit = await retention.list_unit(eye, LOCAL_TENANT, str(run_id))
    assert await retention.remove(eye, unit, None, BY)
    assert await retention.clear(eye, [run_id], 1) == 1
    assert await eye.fetchval("SELECT count(*) FROM log") > 0
    await prune(eye, Retention(hai="retention/v1"))
    for table in ("log", "commands", "messages", "turns", "snapshots", "pendings", "votes", "slots", "pushes"):
        assert not await eye.fetchval(f"SELECT count(*) FROM {table}"), table
    assert await eye.fetchval("SELECT cleared_at FROM retired_runs") is not None


async def test_no_table_is_read_through_for_the_rows_of_a_removed_run(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, TEXT)).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    async with eye.transaction():
        while await retention.clear(eye, [run_id], 1):
            pass
        through = "SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0 AND schemaname = current_schema()"
        assert {row[0] for row in await eye.fetch(through)} == set()


async def test_nobody_is_removed_who_went_on_since_it_was_looked_at(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, FAILING)).run_id
    await until(lambda: is_now(runtime, run_id, "failed"))
    unit = await retention.list_unit(eye, LOCAL_TENANT, str(run_id))
    await runtime.committer.submit(run_id, LOCAL_TENANT, c.Retry(by=BY))
    assert not await retention.remove(eye, unit, None, BY)
    assert await rows_of_run(eye, run_id) == 1
    assert not await eye.fetchval("SELECT count(*) FROM slots WHERE run_id = $1", UUID(int=0))


async def test_files_of_an_archived_run_stay_and_those_of_a_removed_one_go(
    make: Make, eye: Connection, tmp_path: Path
) -> None:
    runtime = await make(performs=True)
    kept_for = timedelta(0)
    for name, archive in (("archived", Archive(str(tmp_path))), ("removed", None)):
        run_id = (await start(runtime, f"steps:\n  - say: {name}\n")).run_id
        await until(lambda run_id=run_id: is_now(runtime, run_id, "finished"))
        digest = hashlib.sha256(name.encode()).digest()
        await eye.execute(
            "INSERT INTO files VALUES ($1, $2, $3, 1, now() - interval '1 day')", LOCAL_TENANT, digest, name
        )
        await eye.execute("INSERT INTO file_uses VALUES ($1, $2, $3)", LOCAL_TENANT, digest, run_id)
        await grown_old(eye)
        assert (await prune(eye, archive=archive)).removed == 1
        await files.delete_unused_files(eye, kept_for)
        assert bool(await eye.fetchval("SELECT count(*) FROM files WHERE sha256 = $1", digest)) is (archive is not None)


# --- archives that are refused ----------------------------------------------------------------------------------------


def rewritten(file: Path, change: Callable[[list[Any]], Iterable[Any]]) -> None:
    """Change the lines of an archive and digest them again: only what they say is wrong."""
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()][:-1]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in change(lines))
    end = {"lines": data.count(b"\n"), "sha256": hashlib.sha256(data).hexdigest()}
    file.write_bytes(gzip.compress(data + json.dumps(end).encode() + b"\n"))


def flipped(file: Path) -> None:
    lines = gzip.decompress(file.read_bytes()).replace(b'"finished"', b'"Finished"', 1)
    file.write_bytes(gzip.compress(lines))


def another(table: str, **changes: Any) -> Callable[[list[Any]], Iterable[Any]]:
    return lambda lines: [
        line | {"row": line["row"] | changes} if line.get("table") == table else line for line in lines
    ]


def newer(lines: list[Any]) -> Iterable[Any]:
    columns = {**lines[0]["columns"], "log": [*lines[0]["columns"]["log"], "of_next_year"]}
    return [lines[0] | {"columns": columns}, *lines[1:]]


def rewritten_log(lines: list[Any]) -> Iterable[Any]:
    """Another log of the same length, with the head that it has."""
    lines, head = [json.loads(json.dumps(line)) for line in lines], b""
    for line in lines:
        if line.get("table") == "log":
            events = bytes.fromhex(line["row"]["events"][2:]).replace(b"user:local", b"user:other")
            head = hashlib.sha256(head + events).digest()
            line["row"]["events"] = "\\x" + events.hex()
    for line in lines:
        if line.get("table") == "runs":
            line["row"]["head"] = "\\x" + head.hex()
    return json.loads(json.dumps(lines).replace("user:local", "user:other"))


def beside(table: str, value: str = ELSEWHERE) -> Callable[[list[Any]], Iterable[Any]]:
    """With a row of the table as well that is of another run, or another workflow."""
    column = {"runs": "id", "workflows": "sha256"}.get(table, "run_id")

    def added(lines: list[Any]) -> Iterable[Any]:
        (line, *_) = (line for line in lines if line.get("table") == table)
        return [*lines, line | {"row": line["row"] | {column: value}}]

    return added


DAMAGES: list[tuple[str, Callable[[Path], object]]] = [
    ("behind line .*: it is cut off or damaged", lambda file: file.write_bytes(file.read_bytes()[:-30])),
    ("it is cut off or damaged", lambda file: file.write_bytes(b"no gzip at all")),
    ("line .*: expected the digest of the .* lines before", flipped),
    ("line 1: expected an archive of form 1", lambda file: rewritten(file, lambda lines: lines[1:])),
    ("line 1: log has of_next_year, which this database does not have", lambda file: rewritten(file, newer)),
    (
        "line 2: expected a row of",
        lambda file: rewritten(file, lambda lines: [lines[0], {"table": "keys"}, *lines[1:]]),
    ),
    ("line 3: expected a row of", lambda file: rewritten(file, another("runs", more=1))),
    ("lines .*: the database refuses what stands there", lambda file: rewritten(file, another("runs", version=10**9))),
    (
        "run .*, event .*: row_is_made: its status is failed",
        lambda file: rewritten(file, another("runs", status="failed")),
    ),
    ("log_chained", lambda file: rewritten(file, another("runs", head="\\x" + "00" * 32))),
    ("log_audited: .* not those that the audit vouches for", lambda file: rewritten(file, rewritten_log)),
    ("line .*: expected a workflow of these runs", lambda file: rewritten(file, beside("workflows", ELSEWHERE_SHA))),
    *(
        ("line .*: expected a row of a run that line 1 names, found .*eeee", partial(rewritten, change=beside(table)))
        for table in ("runs", "log", "pendings", "votes", "turns")
    ),
    ("expected 1 runs, found 0", lambda file: rewritten(file, lambda lines: lines[:1])),
    ("there is no such archive", lambda file: file.unlink()),
]


async def test_a_damaged_archive_is_refused_whole_with_the_place(make: Make, eye: Connection, tmp_path: Path) -> None:
    runtime = await make(performs=True)
    await decided(runtime)
    await grown_old(eye)
    archive = Archive(str(tmp_path))
    await prune(eye, archive=archive)
    (place,) = archive.places()
    good, before = (tmp_path / place).read_bytes(), await rows_everywhere(eye)
    for reason, damage in DAMAGES:
        (tmp_path / place).write_bytes(good)
        damage(tmp_path / place)
        with pytest.raises(Damaged, match=reason) as refused:
            await restore(eye, archive, place, BY)
        assert str(refused.value).startswith(place)
        assert await rows_everywhere(eye) == before, reason
    (tmp_path / place).write_bytes(good)
    assert isinstance(await restore(eye, archive, place, BY), Restored)


async def rows_everywhere(eye: Connection) -> list[int]:
    return [await eye.fetchval(f"SELECT count(*) FROM {table}") for table in (*TABLES, "audit", "retired_runs")]


async def give(eye: Connection, run_id: UUID, who: str = "user:ann", comment: str = "It was wrong.") -> None:
    thread = await eye.fetchval("SELECT thread_id FROM runs WHERE id = $1", run_id)
    subject = feedback.Subject(LOCAL_TENANT, thread, "message", "m1")
    await feedback.give_feedback(eye, subject, run_id, who, "rest", feedback.Opinion("down", comment, ["tone"]))


async def opinions(eye: Connection) -> list[tuple[str, str | None]]:
    return [(row[0], row[1]) for row in await eye.fetch("SELECT principal, comment FROM feedback ORDER BY 1")]


@pytest.fixture
async def archive(make: Make, tmp_path: Path) -> Archive:
    return Archive(str(tmp_path))


@pytest.mark.parametrize("behind", ["an archive", "a restore"])
async def test_feedback_after_an_archive_is_in_the_next_one_and_comes_back(
    make: Make, eye: Connection, archive: Archive, behind: str
) -> None:
    run_id = await decided(await make(performs=True))
    await grown_old(eye)
    await prune(eye, archive=archive, archives_only=behind == "an archive")
    if behind == "a restore":
        await restore(eye, archive, await place_of(eye, run_id), BY)
    await give(eye, run_id)
    done = await prune(eye, archive=archive)
    assert (done.archived, done.removed) == (1, 1), "it is archived anew"
    assert await opinions(eye) == []
    await restore(eye, archive, await place_of(eye, run_id), BY)
    assert await opinions(eye) == [("user:ann", "It was wrong.")]


async def test_feedback_between_archive_and_removal_keeps_the_run(
    make: Make, eye: Connection, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await decided(await make(performs=True))
    await grown_old(eye)
    write = archives.write

    async def slowly(*given: Any) -> Any:
        done = await write(*given)
        await give(eye, run_id)
        return done

    monkeypatch.setattr(archives, "write", slowly)
    done = await prune(eye, archive=archive)
    assert (done.removed, done.kept) == (0, {"it went on meanwhile": 1})
    assert await opinions(eye) == [("user:ann", "It was wrong.")]


async def test_a_person_forgotten_after_an_archive_stays_forgotten_when_restored(
    make: Make, eye: Connection, archive: Archive
) -> None:
    run_id = await decided(await make(performs=True))
    await grown_old(eye)
    await give(eye, run_id)
    await give(eye, run_id, "user:bob", "Mine.")
    assert (await prune(eye, archive=archive)).removed == 1
    assert (await erasure.forget(eye, LOCAL_TENANT, "user:ann", by=BY)).opinions == 0, "there is nothing any more"
    await restore(eye, archive, await place_of(eye, run_id), BY)
    (other, said), (bob, mine) = sorted(await opinions(eye), key=lambda each: each[0] == "user:bob")
    assert (bob, mine) == ("user:bob", "Mine.")
    assert other.startswith("person:")
    assert said is None
    await give(eye, run_id, comment="I am back.")
    assert (await prune(eye, archive=archive)).removed == 1
    await restore(eye, archive, await place_of(eye, run_id), BY)
    assert ("user:ann", "I am back.") in await opinions(eye), "what somebody says later is theirs"


async def test_what_could_not_be_restored_is_not_removed(make: Make, eye: Connection, archive: Archive) -> None:
    runtime = await make(performs=True)
    bad, good = await decided(runtime), await decided(runtime)
    await grown_old(eye)
    await eye.execute("DELETE FROM turns WHERE run_id = $1", bad)
    done = await prune(eye, archive=archive)
    assert (done.archived, done.removed) == (1, 1)
    assert list(done.kept.values()) == [1]
    assert await rows_of_run(eye, bad)
    assert not await rows_of_run(eye, good)


async def test_a_thread_that_fails_keeps_no_other_from_being_removed(
    make: Make, eye: Connection, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(performs=True)
    bad, good = sorted([await decided(runtime), await decided(runtime)])
    await grown_old(eye)
    write = archives.write

    async def refuse(connection: Any, archive: Any, unit: Any) -> Any:
        if unit[0].id == bad:
            raise Damaged("what was stored is not what was written.")
        return await write(connection, archive, unit)

    monkeypatch.setattr(archives, "write", refuse)
    done = await prune(eye, archive=archive)
    assert (done.removed, list(done.kept.values())) == (1, [1])
    assert await rows_of_run(eye, bad)
    assert not await rows_of_run(eye, good)


# --- as a release left it that had no inbox, and kept no answers beside votes -----------------------------------------

_AS_OF_0016 = """
UPDATE pendings SET kind = NULL, words = NULL;
DELETE FROM inbox;
DELETE FROM votes WHERE convert_from(body, 'UTF8') LIKE '{"type":"pending_decided"%';
"""


async def test_a_database_without_inbox_is_verified_filled_pruned_and_restored(
    make: Make, eye: Connection, database_url: str, archive: Archive
) -> None:
    runtime = await make(performs=True)
    run_id = await decided(runtime)
    waiting = (await start(runtime, ASKING)).run_id
    await eye.execute(_AS_OF_0016)
    before = await verify_runs(database_url)
    assert (before.violations, before.older) == ([], 2), "a question that is in no inbox yet, and an answer"
    await runtime.inbox.fill()
    asked = await eye.fetch("SELECT run_id FROM inbox")
    assert {row[0] for row in asked} == {waiting}
    filled = await verify_runs(database_url)
    assert (filled.violations, filled.older) == ([], 1)
    await grown_old(eye)
    done = await prune(eye, archive=archive)
    assert (done.archived, done.removed, done.kept) == (1, 1, {})
    await restore(eye, archive, await place_of(eye, run_id), BY)
    assert (await verify_runs(database_url)).violations == []
    await eye.execute("UPDATE pendings SET words = 'sure' WHERE run_id = $1", run_id)
    lost = await verify_runs(database_url)
    assert [each.rule for each in lost.violations] == ["votes_are_made"], "a row that this release wrote is missed"


async def test_another_archive_in_the_place_of_the_written_one_removes_nothing(
    make: Make, eye: Connection, tmp_path: Path
) -> None:
    """A store that answers with something else, which is whole in itself."""
    runtime = await make(performs=True)
    other, run_id = await decided(runtime), await decided(runtime)
    await grown_old(eye)

    class Confused(Archive):
        def get(self, place: str, file: Path) -> None:
            super().get(min(self.places()), file)

    members = {id: await retention.members(eye, [id]) for id in (other, run_id)}
    unit, archive = members[max(members)], Confused(str(tmp_path))
    await archives.write(eye, Archive(str(tmp_path)), members[min(members)])
    with pytest.raises(Damaged, match="what was stored is not what was written"):
        await archives.write(eye, archive, unit)
    assert await rows_of_run(eye, unit[0].id)


async def test_an_archive_may_be_any_store_that_fsspec_knows(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    run_id = (await start(runtime, "steps:\n  - say: Hello\n")).run_id
    await until(lambda: is_now(runtime, run_id, "finished"))
    await grown_old(eye)
    archive = Archive(f"memory://archive-{run_id}")
    assert (await prune(eye, archive=archive)).removed == 1
    assert (await restore(eye, archive, archive.places()[0], BY)).runs == 1


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_nearest_word_counts() -> None:
    text = b"""
hai: retention/v1
archive: /srv/archive
remove: 90d
workflows: {chat: {remove: 30d}, payout: {remove: never, pack: never}}
tenants: {acme: {remove: 52w, workflows: {chat: {remove: 7d}}}}
"""
    found, faults = read_retention(text, "retention.yaml")
    assert faults == []
    days = {
        (tenant, workflow): None if (time := found.remove_after(tenant, workflow)) is None else time.days
        for tenant in ("default", "acme")
        for workflow in ("chat", "payout", "other")
    }
    assert days == {
        ("default", "chat"): 30, ("default", "payout"): None, ("default", "other"): 90,
        ("acme", "chat"): 7, ("acme", "payout"): 364, ("acme", "other"): 364,
    }  # fmt: skip
    assert (found.pack_after("default", "chat"), found.pack_after("default", "payout")) == (timedelta(days=1), None)
    assert found.shortest == timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hai: retention/v2", "Invalid enum value"),
        ("hai: retention/v1\nremove: soon", "remove: expected a duration"),
        ("hai: retention/v1\nkeep: 7d", "keep"),
        ("hai: retention/v1\ntenants: {acme: {workflows: {chat: {pack: 1}}}}", "pack"),
    ],
)
def test_mistakes_of_the_file_are_named(text: str, said: str) -> None:
    assert said in str(read_retention(text.encode(), "retention.yaml")[1][0])
