"""The embedded PostgreSQL against real processes, real signals and real leftovers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai_flow import postgres_programs
from hai_flow.embedded import EmbeddedPostgres, find_binaries
from hai_flow.errors import StoreError
from hai_flow.postgres_programs import reachable_directory
from tests.support.postgres import fetch_value
from tests.support.waiting import wait_for

pytestmark = pytest.mark.costly

ROOT = Path(__file__).resolve().parents[1]
DEBIAN = Path("/usr/lib/postgresql/15/bin")
UNPRIVILEGED = 1000

# A process that starts or attaches, says what it became, and lives until it is told to end.
PROCESS = """
import json, sys
from hai_flow.embedded import EmbeddedPostgres
options = json.loads(sys.argv[2])
postgres = EmbeddedPostgres(sys.argv[1], **options)
postgres.start()
postgres.ensure_database()
print("owner" if postgres.owner else "attached", postgres.pid, flush=True)
if sys.stdin.readline():
    postgres.stop()
"""


class Process:
    """A child that runs PROCESS on `directory`. `role` waits until it has a server."""

    def __init__(
        self,
        directory: Path,
        options: str = '{"durable": false}',
        *,
        python: str = sys.executable,
        cwd: Path | str = ROOT,
        uid: int | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-c", PROCESS, str(directory), options],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )

    def role(self) -> tuple[str, int]:
        assert self.process.stdout is not None
        role, _, pid = self.process.stdout.readline().strip().partition(" ")
        assert role, "the process ended without a server"
        return role, int(pid)

    def end(self) -> None:
        if self.process.poll() is None and self.process.stdin is not None:
            self.process.stdin.write("stop\n")
            self.process.stdin.flush()
        with self.process:
            self.process.wait(30)

    def kill(self) -> None:
        with self.process:
            self.process.kill()
            self.process.wait(30)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path (sockets) for one server; nothing may still run in it at the end."""
    with tempfile.TemporaryDirectory(prefix="hai-", ignore_cleanup_errors=True) as parent:
        path = Path(parent) / "pg"
        yield path
        wait_for(lambda: not processes_in(path / "data"))


def processes_in(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(directory):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def everything_in(directory: Path) -> list[Path]:
    return list(directory.rglob("*"))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def embedded(directory: Path, **options: object) -> EmbeddedPostgres:
    return EmbeddedPostgres(directory, **{"durable": False, **options})  # type: ignore[arg-type]


async def execute(postgres: EmbeddedPostgres, statement: str) -> object:
    return await fetch_value(postgres.dsn(), statement)


async def test_a_fresh_directory_gets_a_server_and_a_second_start_finds_its_rows(directory: Path) -> None:
    with embedded(directory) as postgres:
        assert postgres.owner
        postgres.ensure_database()
        postgres.ensure_database()
        await execute(postgres, "CREATE TABLE t AS SELECT 7 AS n")
        assert await execute(postgres, "SHOW listen_addresses") == ""
    assert not postgres.owner
    assert postgres.pid is None
    with embedded(directory) as postgres:
        assert await execute(postgres, "SELECT n FROM t") == 7
        assert mode_of(directory) == 0o700
        assert mode_of(postgres.socket_dir) == 0o700


async def test_it_is_durable_unless_told_otherwise(directory: Path) -> None:
    with EmbeddedPostgres(directory) as postgres:
        postgres.ensure_database()
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await execute(postgres, f"SHOW {setting}") == "on"


async def test_the_environment_of_other_servers_does_not_confuse_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere", "PGDATA": "/nowhere", "PGOPTIONS": "-x"}.items():
        monkeypatch.setenv(name, value)
    with embedded(directory) as postgres:
        postgres.ensure_database()
        monkeypatch.delenv("PGOPTIONS")  # asyncpg's own reading, not ours to change
        assert await execute(postgres, "SELECT 1") == 1


def test_several_processes_at_once_on_a_fresh_directory_share_one_server(directory: Path) -> None:
    processes = [Process(directory) for _ in range(4)]
    roles = [process.role() for process in processes]
    assert sorted(role for role, _ in roles) == ["attached", "attached", "attached", "owner"]
    assert len({pid for _, pid in roles}) == 1
    for process in processes:
        process.end()


def test_killing_the_owner_leaves_no_server_and_an_attached_one_takes_over(directory: Path) -> None:
    owner = Process(directory)
    _, first = owner.role()
    attached = embedded(directory)
    attached.start()
    assert not attached.owner
    owner.kill()
    wait_for(lambda: first not in processes_in(directory / "data"))
    attached.ensure_running()
    try:
        assert attached.owner
        assert attached.pid not in (None, first)
    finally:
        attached.stop()


async def test_killing_the_server_loses_nothing_committed(directory: Path) -> None:
    with EmbeddedPostgres(directory) as postgres:
        postgres.ensure_database()
        await execute(postgres, "CREATE TABLE t (n int)")
        await execute(postgres, "INSERT INTO t SELECT generate_series(1, 300)")
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)
        wait_for(lambda: not processes_in(directory / "data"))
        postgres.ensure_running()
        assert await execute(postgres, "SELECT count(*) FROM t") == 300


async def test_killing_server_and_owner_together_loses_nothing_committed(directory: Path) -> None:
    owner = Process(directory, "{}")
    _, pid = owner.role()
    attached = EmbeddedPostgres(directory)
    attached.start()
    await execute(attached, "CREATE TABLE t AS SELECT generate_series(1, 300) AS n")
    owner.process.send_signal(signal.SIGSTOP)  # so that it cannot reap: the dead server stays as a zombie
    os.kill(pid, signal.SIGKILL)
    owner.kill()
    attached.ensure_running()
    try:
        assert attached.owner
        assert await execute(attached, "SELECT count(*) FROM t") == 300
    finally:
        attached.stop()


def test_a_kill_during_initdb_does_not_spoil_the_next_start(directory: Path) -> None:
    killed = Process(directory)
    wait_for(lambda: any(directory.glob("data.tmp-*/base")))
    killed.kill()
    with embedded(directory) as postgres:
        assert postgres.pid is not None
        assert not list(directory.glob("data.tmp-*"))


def test_leftovers_that_name_a_living_process_are_not_believed(directory: Path) -> None:
    with embedded(directory) as postgres:
        leftover = (directory / "data" / "postmaster.pid").read_text().splitlines()
    leftover[0] = str(os.getppid())
    text = "\n".join(leftover) + "\n"
    (directory / "data" / "postmaster.pid").write_text(text)
    (directory / "socket" / ".s.PGSQL.5432.lock").write_text(text)
    with postgres:
        assert postgres.pid not in (None, os.getppid())


def test_a_server_without_an_owner_is_replaced(directory: Path) -> None:
    postgres = embedded(directory)
    postgres.start()
    orphan, postgres._server = postgres._server, None
    postgres.stop()  # lets go of the lock only, as if the system had no signal at a parent's death
    assert orphan is not None
    with embedded(directory) as successor:
        assert successor.owner
        assert successor.pid != orphan.pid
    assert orphan.wait(10) == 0


async def test_a_directory_too_deep_for_a_socket_has_it_elsewhere(directory: Path) -> None:
    deep = directory / ("d" * 60) / ("e" * 60)
    with embedded(deep) as postgres, embedded(deep) as attached:
        postgres.ensure_database()
        assert not postgres.socket_dir.is_relative_to(deep)
        assert mode_of(postgres.socket_dir) == 0o700
        assert await execute(attached, "SELECT 1") == 1
    shutil.rmtree(postgres.socket_dir)


def test_a_socket_directory_that_others_can_enter_is_refused(directory: Path) -> None:
    deep = directory / ("d" * 60) / ("e" * 60)
    postgres = embedded(deep)
    planted = postgres.socket_dir
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    try:
        with pytest.raises(StoreError, match="mode 0700"):
            postgres.start()
    finally:
        planted.rmdir()
    assert not postgres.owner


@pytest.mark.skipif(not DEBIAN.exists(), reason="there is no second PostgreSQL on this machine")
def test_without_the_wheel_the_server_on_path_is_used(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{DEBIAN}:{os.environ['PATH']}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find_binaries().directory == DEBIAN
    with embedded(directory) as postgres:
        postgres.ensure_database()
    assert (directory / "data" / "PG_VERSION").read_text().strip() == "15"
    # From now on the cluster decides: the wheel's newer server comes first, but cannot read it.
    monkeypatch.undo()
    assert find_binaries().major > 15
    with embedded(directory) as postgres:
        assert postgres.pid is not None


def test_a_cluster_of_an_absent_version_is_refused_with_a_sentence(directory: Path) -> None:
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "PG_VERSION").write_text("99\n")
    with pytest.raises(StoreError, match=r"Expected the programs of PostgreSQL 99 .*HAI_FLOW_PG_BIN"):
        embedded(directory).start()


def test_a_directory_without_a_server_is_refused_with_a_sentence(directory: Path) -> None:
    with pytest.raises(StoreError, match="found none"):
        embedded(directory, binaries=Path("/nowhere")).start()


def test_a_server_that_does_not_start_says_why(directory: Path) -> None:
    with embedded(directory):
        pass
    (directory / "data" / "postgresql.conf").write_text("nonsense = 1\n")
    with pytest.raises(StoreError, match="nonsense"):
        embedded(directory).start()


def test_only_the_main_thread_may_start_it(directory: Path) -> None:
    refused: list[BaseException] = []

    def start() -> None:
        try:
            embedded(directory).start()
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(refused[0])


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs another identity")
def test_root_without_user_namespaces_runs_it_as_nobody_in_private_folders(directory: Path) -> None:
    directory.parent.chmod(0o700)
    with embedded(directory, user_namespace=False) as postgres:
        postgres.ensure_database()
        assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0
    assert mode_of(directory.parent) == 0o700
    with embedded(directory) as postgres:  # the cluster stays nobody's, namespaces or not
        assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """PostgreSQL's programs in a wheel's layout below a folder that only root may enter."""
    wheel = find_binaries().directory.parent
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    shutil.copytree(wheel, root / wheel.parent.name / wheel.name)
    libraries = wheel.parent.parent / f"{wheel.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, root / libraries.name)
    return root / wheel.parent.name / wheel.name / "bin"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The first place for copies of programs. The next one is `second` beside it."""
    with tempfile.TemporaryDirectory(prefix="hai-") as parent:
        first, second = Path(parent, "first"), Path(parent, "second")
        for each in (Path(parent), first, second):
            each.mkdir(exist_ok=True)
            each.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", str(first))
        monkeypatch.setattr(postgres_programs, "PLACES", (str(second),))
        yield first


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs another identity")
async def test_root_without_user_namespaces_runs_programs_only_root_reaches(
    directory: Path, private: Path, place: Path
) -> None:
    modes = {path: mode_of(path) for path in (private, *private.parents)}
    with embedded(directory, user_namespace=False, binaries=private) as postgres:
        postgres.ensure_database()
        assert await execute(postgres, "SELECT 1") == 1
        program = Path(os.readlink(f"/proc/{postgres.pid}/exe"))
        assert program.is_relative_to(place)
    assert {path: mode_of(path) for path in modes} == modes
    assert {(path.stat().st_uid, mode_of(path) & 0o022) for path in everything_in(place)} == {(0, 0)}


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs another identity")
def test_a_copy_of_the_programs_is_reused_until_it_changes(private: Path, place: Path) -> None:
    first = reachable_directory(private, UNPRIVILEGED, UNPRIVILEGED)
    made = first.stat().st_ino
    assert reachable_directory(private, UNPRIVILEGED, UNPRIVILEGED).stat().st_ino == made
    for spoil in (
        lambda: (first / "postgres").write_text("#!/bin/sh\n"),
        lambda: (first / "postgres").unlink(),
        lambda: (first / "postgres").chmod(0o777),
        lambda: os.chown(first / "postgres", UNPRIVILEGED, UNPRIVILEGED),
        lambda: first.chmod(0o777),
    ):
        spoil()
        assert reachable_directory(private, UNPRIVILEGED, UNPRIVILEGED) == first
        assert first.stat().st_ino != made
        assert (first / "postgres").read_bytes() == (private / "postgres").read_bytes()
        assert (first.stat().st_uid, mode_of(first / "postgres")) == (0, 0o755)
        made = first.stat().st_ino
    assert len(list(place.iterdir())) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs another identity")
def test_a_copy_that_somebody_else_planted_is_not_used(private: Path, place: Path) -> None:
    copy = reachable_directory(private, UNPRIVILEGED, UNPRIVILEGED)
    planted = next(place.iterdir())
    os.chown(planted, UNPRIVILEGED, UNPRIVILEGED)
    assert copy.is_relative_to(planted)
    elsewhere = reachable_directory(private, UNPRIVILEGED, UNPRIVILEGED)
    assert elsewhere.is_relative_to(place.with_name("second"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs another identity")
def test_a_place_where_others_could_replace_the_copy_is_not_used(private: Path, place: Path) -> None:
    place.chmod(0o777)
    elsewhere = reachable_directory(private, UNPRIVILEGED, UNPRIVILEGED)
    assert elsewhere.is_relative_to(place.with_name("second"))
    assert not list(place.iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else; as a normal user all tests are it")
def test_a_normal_user_has_one_too_and_root_may_stand_in(directory: Path) -> None:
    python = next((path for path in (sys.executable, "/usr/bin/python3") if runs_unprivileged(path)), None)
    if python is None:
        pytest.skip("an unprivileged user can reach no suitable Python here")
    binaries = find_binaries().directory
    if not runs_unprivileged(str(binaries / "postgres")):
        pytest.skip("an unprivileged user cannot reach the PostgreSQL of this environment")
    directory.mkdir()
    for path in (directory.parent, directory):
        os.chown(path, UNPRIVILEGED, UNPRIVILEGED)
    process = Process(
        directory, json.dumps({"durable": False, "binaries": str(binaries)}), python=python, cwd="/", uid=UNPRIVILEGED
    )
    role, pid = process.role()
    assert role == "owner"
    assert Path(f"/proc/{pid}").stat().st_uid == UNPRIVILEGED
    process.end()
    with embedded(directory) as postgres:
        assert Path(f"/proc/{postgres.pid}").stat().st_uid == UNPRIVILEGED
        assert (directory / "data").stat().st_uid == UNPRIVILEGED


def runs_unprivileged(program: str) -> bool:
    try:
        answer = subprocess.run(
            [program, "--version"], user=UNPRIVILEGED, group=UNPRIVILEGED, extra_groups=[], cwd="/", capture_output=True
        )
    except OSError:
        return False
    return answer.returncode == 0
