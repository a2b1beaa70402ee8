"""A PostgreSQL of a test's own whose clock the test sets, as a wrong NTP server or a restored machine would.

No setting of PostgreSQL moves `now()`. So a few lines of C (in hai-flow-chaos) stand between the server and the
C library, and nothing that is tested knows of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import hai_flow_chaos

from hai_flow.embedded import EmbeddedPostgres
from hai_flow.store.postgres import migrations
from tests.support.postgres import run_apart

SOURCE = Path(hai_flow_chaos.__file__).with_name("skewed.c")


class SkewedServer:
    """The server: `dsn` is a migrated database in it."""

    def __init__(self, dsn: str, file: Path) -> None:
        self.dsn = dsn
        self._file = file

    def skew(self, seconds: float) -> None:
        """From now on the server's clock is wrong by so much; 0: it is right again."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(int(seconds * 1_000_000).to_bytes(8, "little", signed=True))


def compiler() -> str | None:
    """The path of the C compiler that the server needs; None: there is none."""
    return shutil.which("cc")


@contextmanager
def skewed_server() -> Iterator[SkewedServer]:
    """A server with a right clock, for now. It ends with the context."""
    with tempfile.TemporaryDirectory(prefix="hai-flow-skewed-") as directory:
        os.chmod(directory, 0o755)  # a server that root starts belongs to somebody else
        library, file = Path(directory, "skewed.so"), Path(directory, "offset")
        subprocess.run([compiler() or "cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
        file.write_bytes(bytes(8))
        file.chmod(0o644)
        embedded = EmbeddedPostgres(Path(directory, "server"), durable=False)
        with mock.patch.dict(os.environ, {"LD_PRELOAD": str(library), "SKEWED_BY": str(file)}):
            embedded.start()
        try:
            embedded.ensure_database("skewed")
            run_apart(migrations.upgrade(embedded.dsn("skewed")))
            yield SkewedServer(embedded.dsn("skewed"), file)
        finally:
            embedded.stop()
