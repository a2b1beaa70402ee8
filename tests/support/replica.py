"""A database of a test's own with a streaming replica of it, both real."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from hai_flow.embedded import EmbeddedPostgres, find_binaries
from hai_flow.settings import Settings
from hai_flow.store.postgres import migrations
from tests.support.postgres import run_apart


class Pair:
    """`with Pair() as pair`: `pair.primary` and `pair.replica` are DSNs of one database with the current schema."""

    def __enter__(self) -> Pair:
        self._directory = tempfile.TemporaryDirectory(prefix="hai-flow-pair-", ignore_cleanup_errors=True)
        place, binaries = Path(self._directory.name), Settings.from_environment().pg_bin
        self._first = EmbeddedPostgres(place / "a", binaries=binaries)
        self._first.start()
        self._first.ensure_database()
        self.primary = self._first.dsn()
        run_apart(migrations.upgrade(self.primary))
        (place / "b").mkdir(mode=0o700)
        program = find_binaries(binaries).path("pg_basebackup")
        socket = str(self._first.socket_dir)
        command = [program, "-h", socket, "-p", "5432", "-U", "postgres", "-D", str(place / "b" / "data")]
        subprocess.run([*command, "-R", "-c", "fast", "-X", "stream"], check=True, capture_output=True, timeout=60)
        self._second = EmbeddedPostgres(place / "b", binaries=binaries)
        self.start_replica()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._second.stop()
        self._first.stop()
        self._directory.cleanup()

    @property
    def replica(self) -> str:
        return self._second.dsn()

    @property
    def primary_pid(self) -> int | None:
        return self._first.pid

    def start_replica(self) -> None:
        self._second.start()

    def stop_replica(self) -> None:
        self._second.stop()
