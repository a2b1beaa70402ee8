"""Databases as earlier releases have left them: migrated, their runs go on to the end, and every rule of them holds."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import asyncpg
import httpx2
import msgspec
import pytest

from hai_flow import values
from hai_flow.embedded import find_binaries
from hai_flow.engine.events import Event, PendingEdited, PendingOpened, PendingRestamped, decode_events
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.evolve.pendings import as_edited
from hai_flow.engine.pendings.answers import digest
from hai_flow.engine.state.ids import call_prefix
from hai_flow.engine.state.state import RunState
from hai_flow.primitives import instants
from hai_flow.runtime.ops.verify import Verifying, verify
from hai_flow.runtime.retention.archive import Archive, restore
from hai_flow.runtime.retention.policy import Retention
from hai_flow.runtime.retention.prune import Pruning
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.commit.projection import rows_of
from hai_flow.store.postgres import revisions
from tests.corpus import kept
from tests.support.commands import SECONDS_MAX, environment, run, started
from tests.support.postgres import Server, execute, run_apart
from tests.support.waiting import until

pytestmark = pytest.mark.costly

ENDED = ("finished", "failed", "stopped")
HERE = Path(__file__).parent
OLDEST = HERE / "schema-0005.sql.gz"
"""Of before the first release: the answers of frontends' tools have no rows there, nor is there an inbox."""
GROW_OLD = "UPDATE runs SET ended_at = ended_at - interval '100 days' WHERE ended_at IS NOT NULL"
RECORDED = sorted(path for path in HERE.glob("schema-*.sql.gz") if path != OLDEST)


@contextmanager
def old_database(recorded: Path, postgres_server: Server) -> Iterator[str]:
    """A database with what was recorded, as it was."""
    with postgres_server.database(), postgres_server.database(migrated=False) as dsn:  # the first makes the roles
        sql = gzip.decompress(recorded.read_bytes())
        psql = [find_binaries().path("psql"), dsn, "-qv", "ON_ERROR_STOP=1"]
        filled = subprocess.run(psql, input=sql, env=environment(), capture_output=True)
        assert filled.returncode == 0, filled.stderr
        yield dsn


@pytest.mark.timeout(300)
@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_an_earlier_releases_database_is_migrated_and_its_runs_go_on(
    recorded: Path, postgres_server: Server, tmp_path: Path
) -> None:
    with old_database(recorded, postgres_server) as dsn:
        there = {"HAI_FLOW_DATABASE_URL": dsn}
        assert "does not have the schema of this release" in run("serve", **there).stderr, (
            "an older schema is not served"
        )
        assert run("migrate", **there).returncode == 0
        told = run("verify", "--json", **there)
        assert told.returncode == 0, told.stdout
        assert json.loads(told.stdout)["violations"] == []
        assert run_apart(revisions.current(dsn)) == revisions.head()
        with (
            started(tmp_path / "serve", "serve", "--port", "0", **there) as serve,
            started(tmp_path / "worker", "worker", **there),
        ):
            url = serve.wait_for(r"Serving (http://\S+)")[1]
            refunds = listed(f"{url}/v1/runs?workflow=refund")
            assert len(refunds) == 2
            for pending in listed(f"{url}/v1/pendings?workflow=refund"):  # none once their deadline is over, in days
                here = f"{url}/v1/pendings/{pending['id']}/decide"
                httpx2.post(here, json={"decision": "approve"}).raise_for_status()
            for each in refunds:
                run_apart(until(lambda each=each: status(url, each["id"]) in ENDED, SECONDS_MAX))
            others = [each for each in listed(f"{url}/v1/runs") if each["workflow"] in ("cleanup", "release")]
            assert len(others) == 2
        verified = run("verify", "--json", **there)
        assert verified.returncode == 0, verified.stdout
        runs = json.loads(verified.stdout)["runs"]
        assert runs >= 5
        _pruned_and_restored(dsn, tmp_path, there, runs)


@pytest.mark.timeout(300)
def test_what_another_release_decided_behind_the_migration_is_older(postgres_server: Server, tmp_path: Path) -> None:
    with old_database(OLDEST, postgres_server) as dsn:
        there = {"HAI_FLOW_DATABASE_URL": dsn}
        assert run("migrate", **there).returncode == 0
        run_apart(execute(dsn, "UPDATE vocabularies SET since = '2000-01-01'"))
        with started(tmp_path / "serve", "serve", "--port", "0", **there) as serve:
            url = serve.wait_for(r"Serving (http://\S+)")[1]
            for each in listed(f"{url}/v1/runs?limit=100"):
                if each["status"] not in ENDED:
                    stopped = httpx2.post(f"{url}/v1/runs/{each['id']}/stop", json={})
                    assert stopped.is_success or stopped.status_code == 409, stopped.text  # it has ended meanwhile
        verified = json.loads(run("verify", "--json", **there).stdout)
        assert (verified["violations"], verified["older"] > 0) == ([], True)


@pytest.mark.timeout(300)
def test_an_old_database_and_old_logs_are_migrated_archived_and_restored(
    postgres_server: Server, tmp_path: Path
) -> None:
    with old_database(OLDEST, postgres_server) as dsn:
        there = {"HAI_FLOW_DATABASE_URL": dsn}
        run_apart(_add_logs(dsn))
        assert run("migrate", **there).returncode == 0
        run_apart(execute(dsn, GROW_OLD))
        run_apart(_archive_and_restore(dsn, tmp_path))


async def _add_logs(dsn: str) -> None:
    """Put the runs of the corpus that have ended into the old schema, with the rows that their releases had made of
    their logs. Of each release a few, and those that have a kind of event which none before has."""
    connection = await asyncpg.connect(dsn)
    kinds = set[str]()
    try:
        for path in kept.files():
            copied = 0
            for run in kept.read(path, kept.Kept):
                last = run.batches[-1][1]
                if last["status"] not in ENDED or "parent" in run.batches[0][0][0]:
                    continue
                new = {each["type"] for batch, _ in run.batches for each in batch} - kinds
                if new or copied < 4:
                    kinds, copied = kinds | new, copied + 1
                    await _add_log(connection, run, path.name)
    finally:
        await connection.close()


async def _archive_and_restore(dsn: str, folder: Path) -> None:
    connection, archive = await asyncpg.connect(dsn), Archive(str(folder))
    try:
        before = [each async for each in verify(connection, Verifying())][-1]
        assert before.violations == []
        assert (before.runs > 80, before.older > 50) == (True, True)
        pruning = Pruning(
            Retention(hai="retention/v1", remove="30d"), {LOCAL_TENANT: "default"}, archive, "user:op", rest=0
        )
        pruned = [each async for each in pruning.run(connection)][-1]
        assert pruned.kept == {}
        assert pruned.removed > 60
        for place in archive.places():
            await restore(connection, archive, place, "user:op")
        after = [each async for each in verify(connection, Verifying())][-1]
        assert (after.violations, after.runs, after.events) == ([], before.runs, before.events)
    finally:
        await connection.close()


async def _add_log(connection: asyncpg.Connection, run: kept.Kept, name: str) -> None:
    """One run, under an id and in a thread of its own: in the corpus all have the same."""
    id = uuid5(UUID(run.run_id), f"{name} {run.name}")
    renamed = {call_prefix(run.run_id): call_prefix(str(id)), run.run_id: str(id), '"t-1"': f'"{id}"'}
    state, rows, log, head = RunState(str(id)), dict[str, dict[Any, Any]](), list[tuple[Any, ...]](), b""
    for number, (batch, _) in enumerate(run.batches, 1):
        before, texts, events = state.seq, list[str](), list[Event]()
        for each in batch:
            texts.append(_rename(json.dumps(each, ensure_ascii=False, separators=(",", ":")), renamed))
            event = _decode(texts[-1])
            if (bound := _digest_of(state, event)) is not None:  # it binds the run's id
                renamed[event.digest] = bound
                texts[-1] = _rename(texts[-1], renamed)
                event = _decode(texts[-1])
            events.append(event)
            state = evolve(state, event)
        text = f"[{','.join(texts)}]"
        at = instants.instant(state.at)
        log.append((id, state.seq, before + 1, LOCAL_TENANT, number, at, text.encode()))
        head = sha256(head + text.encode()).digest()
        made = rows_of(events, state)
        for row in made.get("pendings", ()):
            opened, opened_at = rows.setdefault("pendings", {}).get(row.id, (state.seq, at))[:2]
            rows["pendings"][row.id] = (
                opened,
                opened_at,
                row.id,
                row.status,
                row.path,
                row.digest,
                row.deadline,
                row.body,
            )
        for row in made.get("votes", ()):
            if (
                json.loads(row.body)["type"] == "vote_cast"
            ):  # releases before the twentieth schema kept no other answers
                rows.setdefault("votes", {})[row.pending_id, row.principal] = (state.seq, row.body)
        for row in made.get("turns", ()):
            first, last, wire = rows.setdefault("turns", {}).get(row.n, (None, None, None))
            if row.first is not None:
                first, wire = before + row.first, row.wire_run_id
            rows["turns"][row.n] = first, last if row.last is None else before + row.last, wire
        for row in made.get("messages", ()):
            rows.setdefault("messages", {})[row.n] = (row.id, row.role, row.body, before + row.position)
    digest, result = bytes.fromhex(state.sha256), {"output": state.output}
    if state.error is not None:
        result = {"error": msgspec.to_builtins(state.error)}
    columns = {
        "id": id, "tenant": LOCAL_TENANT, "workflow": digest, "workflow_name": state.workflow,
        "workflow_version": state.version, "thread_id": state.thread_id, "status": state.status, "seq": state.seq,
        "version": len(log), "head": head, "log_bytes": sum(len(row[-1]) for row in log), "started_by": state.requester,
        "ended_at": log[-1][5], "input": values.dumps(state.input), "result": values.dumps(result),
    }  # fmt: skip
    await connection.execute(
        "INSERT INTO workflows (tenant, sha256, name, version, dev, source) VALUES ($1, $2, $3, $4, true, $5) "
        "ON CONFLICT DO NOTHING",
        LOCAL_TENANT, digest, state.workflow, state.version, run.document.encode(),
    )  # fmt: skip
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    await connection.execute(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({places})", *columns.values())
    await _copy(connection, "log", "run_id last_seq first_seq tenant version at events", log)
    of_run = (id, LOCAL_TENANT)
    await _copy(
        connection, "pendings", "run_id tenant opened_seq opened_at id status path digest deadline body",
        [(*of_run, *row) for row in rows.get("pendings", {}).values()],
    )  # fmt: skip
    await _copy(
        connection, "votes", "run_id tenant pending_id principal last_seq body",
        [(*of_run, *key, *row) for key, row in rows.get("votes", {}).items()],
    )  # fmt: skip
    await _copy(
        connection, "turns", "run_id tenant thread_id n first_seq last_seq wire_run_id",
        [(*of_run, state.thread_id, n, *row) for n, row in rows.get("turns", {}).items()],
    )  # fmt: skip
    await _copy(
        connection, "messages", "run_id tenant thread_id n id role body seq",
        [(*of_run, state.thread_id, n, *row) for n, row in rows.get("messages", {}).items()],
    )  # fmt: skip


def _rename(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def _decode(text: str) -> Any:
    (event,) = decode_events(f"[{text}]".encode())
    return event


def _digest_of(state: RunState, event: Event) -> str | None:
    """The digest of the question that the event shows in this run."""
    if isinstance(event, PendingOpened):
        return digest(state.sha256, state.run_id, event)
    if isinstance(event, PendingEdited | PendingRestamped):
        opened = state.pendings[event.id].opened
        return digest(
            state.sha256, state.run_id, as_edited(opened, event) if isinstance(event, PendingEdited) else opened
        )
    return None


async def _copy(connection: asyncpg.Connection, table: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    await connection.copy_records_to_table(table, columns=columns.split(), records=rows)


def _pruned_and_restored(dsn: str, tmp_path: Path, there: dict[str, str], runs: int) -> None:
    """What has ended goes into archives and comes back, and every rule of it holds."""
    run_apart(execute(dsn, GROW_OLD))
    retention = tmp_path / "retention.yaml"
    retention.write_text("hai: retention/v1\nremove: 30d\n")
    archive = tmp_path / "archive"
    pruned = run("prune", "--retention", str(retention), "--archive", str(archive), **there)
    assert pruned.returncode == 0, pruned.stderr
    left = json.loads(run("verify", "--json", **there).stdout)
    assert left["violations"] == []
    assert left["runs"] < runs
    for place in sorted(str(file.relative_to(archive)) for file in archive.rglob("*.jsonl.gz")):
        back = run("restore", place, "--archive", str(archive), **there)
        assert back.returncode == 0, back.stderr
    whole = json.loads(run("verify", "--json", **there).stdout)
    assert (whole["violations"], whole["runs"]) == ([], runs)


def listed(url: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = httpx2.get(url).raise_for_status().json()["items"]
    return items


def status(url: str, id: str) -> str:
    return str(httpx2.get(f"{url}/v1/runs/{id}").json()["status"])
