"""The PostgreSQL of a test session: one embedded server for all of pytest's processes, one database per test.

The server belongs to a *keeper*, a small process that lives exactly as long as any pytest process uses the
server: each holds a shared flock on `tests`, and the keeper waits for the exclusive one. So a killed worker
neither takes the server along nor leaves one behind, and it does not matter which worker ends last.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from hai_flow.embedded import EmbeddedPostgres
from hai_flow.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """Where tests make their databases. `prefix` keeps the names of one pytest process from those of others."""

    def __init__(self, admin_dsn: str, directory: Path, session: str, prefix: str) -> None:
        self._admin_dsn = admin_dsn
        self._directory = directory
        self._template = f"hai_flow_template_{session}"
        self._prefix = f"t_{session}_{prefix}"
        self._count = 0

    def dsn(self, database: str) -> str:
        """How to connect to `database`."""
        parts = urlsplit(self._admin_dsn)
        # urlunsplit would leave out the empty host of a socket's DSN, and with it the slashes.
        if not parts.hostname:
            return f"{parts.scheme}://{parts.netloc}/{database}?{parts.query}"
        return urlunsplit(parts._replace(path=f"/{database}"))

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """The DSN of a database of one's own: with the current schema, or empty. Dropped at the end."""
        template = self._migrated_template() if migrated else "template0"
        self._count += 1
        name = f"{self._prefix}_{self._count}"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        try:
            yield self.dsn(name)
        finally:
            self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _migrated_template(self) -> str:
        done = self._directory / "template"
        with (self._directory / "template.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                from hai_flow.store import migrations

                self._execute(f'DROP DATABASE IF EXISTS "{self._template}" WITH (FORCE)')
                self._execute(f'CREATE DATABASE "{self._template}"')
                run_apart(migrations.upgrade(self.dsn(self._template)))
                done.touch()
        return self._template

    def drop_template(self) -> None:
        """Leave nothing behind on a server that outlives the session."""
        self._execute(f'DROP DATABASE IF EXISTS "{self._template}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self._admin_dsn)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        run_apart(execute())


def run_apart(work: Coroutine[Any, Any, Any]) -> None:
    """Run `work` in a loop of its own in a thread of its own: the test's loop and what is current stay
    untouched.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


@contextmanager
def serve(session: str, prefix: str, dsn: str | None = None) -> Iterator[Server]:
    """The server of the test run `session`, as the pytest process `prefix` uses it; `dsn` names one that runs
    already.
    """
    directory = Path(tempfile.gettempdir()) / f"hai-flow-tests-{os.getuid()}-{session}"
    directory.mkdir(mode=0o700, exist_ok=True)
    users = os.open(directory / "tests", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(users, fcntl.LOCK_SH)
    if dsn is not None:
        yield from _serve_foreign(Server(dsn, directory, session, prefix), directory, users)
        return
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.postgres", str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,  # a Ctrl-C for pytest must not end the server before the tests are torn down
    )
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == b"ready\n", "the keeper of the test server did not start one"
        yield Server(EmbeddedPostgres(directory).dsn("postgres"), directory, session, prefix)
    finally:
        os.close(users)
        with keeper:
            keeper.wait(120)


def _serve_foreign(server: Server, directory: Path, users: int) -> Iterator[Server]:
    try:
        yield server
    finally:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            server.drop_template()
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            pass  # another process of this session still needs the template; the last one drops it
        os.close(users)


def keep(directory: Path) -> None:
    """Own the server in `directory` until nobody uses it, then remove everything. Returns at once if one is
    kept.
    """
    server = EmbeddedPostgres(directory, durable=False, binaries=Settings.from_environment().pg_bin)
    server.start()
    print("ready", flush=True)
    if not server.owner:
        return
    with (directory / "tests").open("r+") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
