"""A database that was restored to an earlier time, by PostgreSQL's own means: nothing is performed over it until a
person has seen what would be repeated, and then only what is safe to repeat."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from hai_flow.cli.admin import recover
from hai_flow.cli.errors import UsageError
from hai_flow.embedded import EmbeddedPostgres, find_binaries
from hai_flow.errors import StoreError
from hai_flow.runtime.ops import rollback_guard
from hai_flow.runtime.ops.external_heartbeat import Witness
from hai_flow.runtime.ops.rollback_guard import Continuity, WentBack
from hai_flow.runtime.restore import may_repeat
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.store.ops import database_history
from hai_flow.store.postgres import migrations
from tests.runtime.conftest import TOOLS, Connection, Make, answer, is_now, open_pending, start
from tests.support.commands import environment, run
from tests.support.postgres import Server, connecting, execute, fetch_value
from tests.support.waiting import until

SURE: Final = "  - {id: sure, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}\n"
PAYS: Final = TOOLS + "steps:\n" + SURE + "  - {id: pay, call: fx.note, with: {n: 1}}\n"
PAYS_BY_KEY: Final = (
    TOOLS + "steps:\n" + SURE + '  - {id: pay, call: fx.note, with: {n: 1}, idempotency_key: "pay-${{ run.id }}"}\n'
)


def dumped(from_dsn: str, to_dsn: str, folder: Path) -> None:
    """The one database as the other was, by pg_dump and pg_restore."""
    programs = find_binaries().directory
    for command in (
        ("pg_dump", "--enable-row-security", "--format=custom", f"--file={folder / 'dump'}", from_dsn),
        ("pg_restore", "--no-owner", f"--dbname={to_dsn}", str(folder / "dump")),
    ):
        done = subprocess.run(
            [str(programs / command[0]), *command[1:]], env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def restored(dsn: str, *options: str, code: int, **settings: str) -> dict[str, Any]:
    """What the command says, as JSON."""
    tools = "hai_flow.examples,tests.support.effects"
    done = run("recover", "--json", *options, HAI_FLOW_DATABASE_URL=dsn, HAI_FLOW_TOOLS=tools, **settings)
    assert done.returncode == code, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


async def effects_of(eye: Connection, run_id: UUID) -> int:
    count: int = await eye.fetchval("SELECT count(*) FROM effects WHERE run_id = $1", run_id)
    return count


async def agree(runtime: Runtime, run_id: UUID) -> None:
    await runtime.committer.submit(run_id, LOCAL_TENANT, answer(await open_pending(runtime, run_id)))


@pytest.mark.costly
async def test_after_pg_restore_nothing_is_performed_before_repeats_are_held(
    make: Make, eye: Connection, database_url: str, postgres_server: Server, tmp_path: Path
) -> None:
    runtime = await make(performs=True)
    paid, keyed = [await start(runtime, body) for body in (PAYS, PAYS_BY_KEY)]
    for each in (paid, keyed):
        await until(lambda each=each: is_now(runtime, each.run_id, "waiting"))
    with postgres_server.database(migrated=False) as there:
        dumped(database_url, there, tmp_path)
        for each in (paid, keyed):
            await agree(runtime, each.run_id)
            await until(lambda each=each: is_now(runtime, each.run_id, "finished"))
            assert await effects_of(eye, each.run_id) == 1
        await runtime.stop()

        for performs in (False, True):
            with pytest.raises(WentBack, match="restored from a dump"):
                await make(performs=performs, dsn=there)
        worker = run("worker", HAI_FLOW_DATABASE_URL=there)
        assert worker.returncode == 1
        assert "may have gone back in time" in worker.stderr
        assert "hai-flow recover" in worker.stderr

        seen = restored(there, code=1)
        assert [(each["id"], each["steps"]) for each in seen["may_repeat"]] == [(str(paid.run_id), ["pay"])]
        assert seen["safe"] == 1
        assert restored(there, code=1)["era"] == 1, "to look changes nothing"

        done = restored(there, "--confirm", code=0)
        assert [each["id"] for each in done["paused"]] == [str(paid.run_id)]
        assert (done["not_paused"], done["undelivered"], done["schedules"]) == ([], 0, [])
        assert restored(there, code=0)["held"] is None

        again = await make(performs=True, dsn=there)
        assert await is_now(again, paid.run_id, "paused")
        await agree(again, keyed.run_id)
        await until(lambda: is_now(again, keyed.run_id, "finished"))
        await agree(again, paid.run_id)
        assert await is_now(again, paid.run_id, "paused")
        assert await effects_of(eye, keyed.run_id) == 2, "the world was asked once more, by the same key"
        assert await effects_of(eye, paid.run_id) == 1, "it is not repeated while a person looks"
        await again.stop()


@pytest.mark.costly
async def test_what_was_only_moved_goes_on_as_it_was(
    make: Make, database_url: str, postgres_server: Server, tmp_path: Path
) -> None:
    runtime = await make()
    paid = await start(runtime, PAYS)
    await runtime.stop()
    with postgres_server.database(migrated=False) as there:
        dumped(database_url, there, tmp_path)
        assert restored(there, "--nothing-lost", code=0)["moved"] is True
        again = await make(performs=True, dsn=there)
        assert await is_now(again, paid.run_id, "waiting")
        await again.stop()


async def test_a_schedule_whose_instant_has_passed_is_paused_with_the_runs(
    make: Make, eye: Connection, database_url: str, postgres_server: Server, tmp_path: Path
) -> None:
    runtime = await make()
    nightly = "triggers: [{schedule: {cron: '0 3 * * *', timezone: UTC}}]\nsteps: [{say: night}]\n"
    body = "hai: flow/v1\nname: nightly\nversion: 1\n" + nightly
    await runtime.catalog.publish(LOCAL_TENANT, body.encode())
    await runtime.stop()
    await eye.execute("UPDATE schedules SET next_fire_at = now() - interval '1 hour'")
    with postgres_server.database(migrated=False) as there:
        dumped(database_url, there, tmp_path)
        assert restored(there, "--confirm", code=0)["schedules"] == ["nightly"]
        async with connecting(there) as found:
            assert await found.fetchval("SELECT paused AND next_fire_at IS NULL FROM schedules")


async def test_a_process_that_saw_vanished_data_ends_with_all_its_leases(make: Make, eye: Connection) -> None:
    runtime = await make(performs=True)
    told: list[WentBack] = []
    runtime.went_back.append(told.append)
    await runtime.continuity.demand()
    await eye.execute("DELETE FROM beats")  # as a copy of files of a moment before it looks to who has lived on
    with pytest.raises(WentBack, match=r"a beat of .* was seen, and is not in it any more"):
        await runtime.continuity.demand()
    assert await eye.fetchval("SELECT bool_and(alive_until = '-infinity') FROM workers")
    assert await eye.fetchval("SELECT held_why IS NOT NULL FROM eras")
    await until(lambda: bool(told), 30)
    assert runtime.faults() != []
    with pytest.raises(WentBack):
        await make()


async def test_beats_are_written_by_one_process_and_kept_for_a_day(make: Make, eye: Connection) -> None:
    first, second = await make(), await make()
    for runtime in (first, second):
        await runtime.continuity.demand()
    assert await eye.fetchval("SELECT count(*) FROM beats") == 1
    await eye.execute("SELECT setval('beats_n_seq', $1)", database_history.KEPT_BEATS)
    await eye.execute("UPDATE sweeps SET due_at = now() WHERE name = 'beats'")
    await first.continuity.demand()
    assert await eye.fetchval("SELECT array_agg(n) FROM beats") == [database_history.KEPT_BEATS + 1]
    await second.continuity.demand()  # what it has seen is older than all that is kept: that proves nothing


# --- copies of files, which look like nothing but themselves -------------------------------------------------------


async def recovered(dsn: str) -> bool:
    return not await fetch_value(dsn, "SELECT pg_is_in_recovery()")


class Cluster:
    """A PostgreSQL of its own in a directory, which is copied as a snapshot of a disk is, or by pg_basebackup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedPostgres(folder)

    @asynccontextmanager
    async def runs(self, *, migrate: bool = False) -> AsyncIterator[str]:
        self.server = EmbeddedPostgres(self.folder)
        self.server.start()
        try:
            self.server.ensure_database()
            if migrate:
                await migrations.upgrade(self.server.dsn())
            await until(lambda: recovered(self.server.dsn()), 60)
            yield self.server.dsn()
        finally:
            self.server.stop()

    @property
    def data(self) -> Path:
        return self.server.data

    def save(self, to: Path) -> None:
        shutil.copytree(self.data, to, ignore=shutil.ignore_patterns("postmaster.pid"))

    def back_up(self, to: Path) -> None:
        """A base backup of the server, which runs."""
        program = find_binaries().directory / "pg_basebackup"
        command = [str(program), "-d", self.server.dsn("postgres"), "-D", str(to), "--checkpoint=fast"]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    @property
    def archived(self) -> Path:
        return self.folder / "archived"

    def archives(self) -> None:
        """From its next start on the server keeps each file of its log in a directory."""
        self.archived.mkdir()
        self._own(self.archived)
        copy = f'test ! -f "{self.archived}/%f" && cp "%p" "{self.archived}/%f"'
        self._set(archive_mode="on", archive_command=copy)

    def bring_back(self, saved: Path, *, recovery: bool = False, instant: str | None = None) -> None:
        """The files as they were saved; `recovery`: from them alone; to an `instant`: with the archived log."""
        owner = self.data.stat()
        shutil.rmtree(self.data)
        shutil.copytree(saved, self.data)
        if instant is not None:
            copy = f'cp "{self.archived}/%f" "%p"'
            self._set(restore_command=copy, recovery_target_time=instant, recovery_target_action="promote")
        elif recovery:
            self._set(restore_command="false")
        if recovery or instant is not None:
            (self.data / "recovery.signal").touch()
        for path in (self.data, *self.data.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)

    def _set(self, **settings: str) -> None:
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _own(self, path: Path) -> None:
        owner = self.data.stat()
        shutil.chown(path, owner.st_uid, owner.st_gid)


async def lived(make: Make, dsn: str, **settings: Any) -> None:
    """A process has lived over the database for a beat, and noted it."""
    await execute(dsn, "UPDATE sweeps SET due_at = now() WHERE name = 'beats'")
    runtime = await make(dsn=dsn, **settings)
    await runtime.stop()


@pytest.mark.costly
@pytest.mark.timeout(300)
async def test_a_copy_of_files_is_noticed_by_the_witness_and_by_nobody_else(make: Make, tmp_path: Path) -> None:
    cluster, witness = Cluster(tmp_path / "pg"), str(tmp_path / "witness")
    async with cluster.runs(migrate=True) as dsn:
        await lived(make, dsn, witness=witness)
    cluster.save(tmp_path / "saved")
    async with cluster.runs() as dsn:
        await lived(make, dsn, witness=witness)
    cluster.bring_back(tmp_path / "saved")
    async with cluster.runs() as dsn:
        await lived(make, dsn)  # without a witness there is nothing that could tell
        with pytest.raises(WentBack, match="a beat of"):
            await make(dsn=dsn, witness=witness)
        with pytest.raises(WentBack, match="a beat of"):
            await make(dsn=dsn)  # it is the database's from then on
        assert restored(dsn, code=1, HAI_FLOW_WITNESS=witness)["seen_at"] is not None
        assert restored(dsn, "--confirm", code=0, HAI_FLOW_WITNESS=witness)["paused"] == []
        await lived(make, dsn, witness=witness)  # what the witness has seen of the era before counts no more


@pytest.mark.costly
@pytest.mark.timeout(300)
async def test_recovery_from_a_base_backup_needs_the_last_beat(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, witness = Cluster(tmp_path / "pg"), str(tmp_path / "witness")
    async with cluster.runs(migrate=True) as dsn:
        await lived(make, dsn, witness=witness)
        cluster.back_up(tmp_path / "saved")
    cluster.bring_back(tmp_path / "saved", recovery=True)
    monkeypatch.setattr(rollback_guard, "SURVIVOR_SECONDS", 0.1)
    async with cluster.runs() as dsn:
        with pytest.raises(WentBack, match="another timeline"):
            await make(dsn=dsn)
        assert restored(dsn, "--nothing-lost", code=0)["moved"] is True
    cluster.bring_back(tmp_path / "saved", recovery=True)
    async with cluster.runs() as dsn:
        await lived(make, dsn, witness=witness)  # all that was seen is there
        await lived(make, dsn)  # and how it is now is how it is
    async with cluster.runs() as dsn:
        await lived(make, dsn, witness=witness)
    cluster.bring_back(tmp_path / "saved", recovery=True)
    async with cluster.runs() as dsn:
        with pytest.raises(WentBack, match="a beat of"):
            await make(dsn=dsn, witness=witness)


@pytest.mark.costly
@pytest.mark.timeout(300)
async def test_recovery_from_the_log_stops_in_time_and_holds_later_effects(
    make: Make, eye: Connection, tmp_path: Path
) -> None:
    cluster, witness = Cluster(tmp_path / "pg"), str(tmp_path / "witness")
    async with cluster.runs(migrate=True):
        pass
    cluster.archives()
    async with cluster.runs() as dsn:
        cluster.back_up(tmp_path / "saved")
        runtime = await make(performs=True, dsn=dsn)
        paid = await start(runtime, PAYS)
        await until(lambda: is_now(runtime, paid.run_id, "waiting"))
        instant = await fetch_value(dsn, "SELECT clock_timestamp()::text")
        await agree(runtime, paid.run_id)
        await until(lambda: is_now(runtime, paid.run_id, "finished"))
        late = await start(runtime, PAYS)
        await runtime.stop()
        await lived(make, dsn, witness=witness)
        last = await fetch_value(dsn, "SELECT pg_walfile_name(pg_switch_wal())")
        await until(lambda: (cluster.archived / last).exists(), 60)
    cluster.bring_back(tmp_path / "saved", instant=instant)
    async with cluster.runs() as dsn:
        with pytest.raises(WentBack, match="a beat of"):
            await make(dsn=dsn, witness=witness)
        seen = restored(dsn, code=1, HAI_FLOW_WITNESS=witness)
        assert [(each["id"], each["status"]) for each in seen["may_repeat"]] == [(str(paid.run_id), "waiting")]
        assert seen["seen_at"] is not None
        done = restored(dsn, "--confirm", code=0, HAI_FLOW_WITNESS=witness)
        assert [each["id"] for each in done["paused"]] == [str(paid.run_id)]
        again = await make(performs=True, dsn=dsn, witness=witness)
        assert await is_now(again, paid.run_id, "paused"), "its question is open again, and it does not go on by itself"
        assert await fetch_value(dsn, f"SELECT count(*) FROM runs WHERE id = '{late.run_id}'") == 0, (
            "it was begun behind it"
        )
        assert await effects_of(eye, paid.run_id) == 1
        await again.stop()


async def test_an_unreadable_witness_stops_the_start_an_unwritable_one_does_not(
    make: Make, eye: Connection, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    runtime = await make(witness=f"memory://{tmp_path.name}")
    database = await eye.fetchval("SELECT database FROM eras")
    assert await Witness(f"memory://{tmp_path.name}").read(database) is not None
    await runtime.stop()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / f"{database}.json").write_text("{")
    with pytest.raises(StoreError, match="HAI_FLOW_WITNESS"):
        await make(witness=str(damaged))
    (damaged / f"{database}.json").unlink()
    damaged.chmod(0o500)
    again = await make(witness=str(damaged))
    await asyncio.wait_for(again.continuity.demand(), 10)


def test_safe_to_repeat_is_what_its_author_has_declared() -> None:
    from hai_flow.definition.compiler import compile_workflow

    source = """
    hai: flow/v1
    name: w
    version: 1
    tools:
      reads: {python: tests.support.effects, effect: read}
      writes: {python: tests.support.effects, effect: write}
      pick: {frontend: {description: Pick., parameters: {type: object}}}
      consume: {frontend: {description: An agent acts., parameters: {type: object}}}
    steps:
      - {id: look, call: reads.echo, with: {value: x}}
      - {id: get, http: {get: "https://a.example/b"}}
      - {id: post, http: {post: "https://a.example/b"}}
      - {id: keyed, http: {post: "https://a.example/b"}, idempotency_key: k}
      - {id: write, call: writes.echo, with: {value: x}, undo: {call: writes.echo, with: {value: y}}}
      - {id: sure, approve: {title: Sure?, from: anyone}}
      - {id: pick, call: pick}
      - {id: act, call: consume}
      - {say: done}
    """
    lines = [line[4:] for line in source.strip("\n").splitlines()]
    plan = compile_workflow("\n".join(lines).encode(), "w.flow.yaml")
    assert may_repeat(plan) == ("post", "write", "write/~undo", "act")


PROMOTED: Final = "UPDATE eras SET timeline = timeline + 1, written = pg_current_xact_id()::text::bigint"


async def test_one_that_begins_at_a_failover_waits_for_one_that_remembers(make: Make, eye: Connection) -> None:
    survivor = await make()
    await survivor.continuity.demand()
    await eye.execute(PROMOTED)
    with capture_logs() as told:
        starting = asyncio.ensure_future(make(performs=True))
        await until(lambda: any(each["event"] == "timeline_unknown" for each in told))
        await survivor.continuity.demand()
        runtime = await asyncio.wait_for(starting, 30)
    assert [each["event"] for each in told if each["event"].startswith("timeline")] == [
        "timeline_unknown",
        "timeline_moved",
    ]
    assert await eye.fetchval("SELECT held_at IS NULL FROM eras")
    await start(runtime, PAYS)
    assert (survivor.continuity.fault, runtime.continuity.fault) == (None, None)


async def test_one_that_begins_at_a_failover_that_lost_a_beat_ends_with_others(make: Make, eye: Connection) -> None:
    survivor = await make()
    await survivor.continuity.demand()
    await eye.execute(PROMOTED)
    with capture_logs() as told:
        starting = asyncio.ensure_future(make())
        await until(lambda: any(each["event"] == "timeline_unknown" for each in told))
        await eye.execute("DELETE FROM beats")
        with pytest.raises(WentBack, match="a beat of"):
            await survivor.continuity.demand()
        with pytest.raises(WentBack, match="a beat of"):
            await asyncio.wait_for(starting, 30)


async def test_where_nobody_remembers_the_first_after_a_failover_holds_the_era(
    make: Make, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollback_guard, "SURVIVOR_SECONDS", 0.1)
    await (await make()).stop()
    await eye.execute(PROMOTED)
    with pytest.raises(WentBack, match="nobody here remembers"):
        await make()
    assert await eye.fetchval("SELECT held_why IS NOT NULL FROM eras")


async def test_a_database_that_goes_away_and_comes_back_is_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback_guard, "BEAT_SECONDS", 0.001)
    beats = iter([None, OSError("no connection"), OSError("no connection"), None, None, OSError("gone"), None])
    seen = asyncio.Event()

    class Away(Continuity):
        async def demand(self, *, from_outside: bool = False) -> None:
            fault = next(beats, seen)
            if fault is seen:
                seen.set()
            elif isinstance(fault, OSError):
                raise fault

    with capture_logs() as told:
        task = asyncio.create_task(Away(cast(Any, None), None)._run())
        await asyncio.wait_for(seen.wait(), 20)
        task.cancel()
    assert [(each["event"], each.get("error")) for each in told] == [
        ("database_unavailable", "no connection"),
        ("database_answers", None),
        ("database_unavailable", "gone"),
        ("database_answers", None),
    ]


@pytest.mark.parametrize("report", [{"may_repeat": [], "safe": 0}, {"paused": [], "not_paused": [], "schedules": []}])
def test_recover_says_that_what_was_revoked_is_valid_again(
    report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for held in ("restored from a dump", None):
        state = {"era": 2, "held": held, "stands_at": None, "seen_at": None, "undelivered": 0}
        recover._tell({**report, **state}, "")
        is_said = "is valid again" in " ".join(capsys.readouterr().out.split())
        assert is_said == (held is not None or "paused" in report)


async def test_only_the_owner_of_the_tables_confirms(database_url: str) -> None:
    async with connecting(database_url) as connection:
        await recover._demand_owner(connection)
        await connection.execute("SET ROLE hai_engine")
        with pytest.raises(UsageError, match=r"the owner of the tables, \w+, .*URL, found hai_engine\.$"):
            await recover._demand_owner(connection)
