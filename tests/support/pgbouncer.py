"""A real PgBouncer in transaction mode, in front of the PostgreSQL of the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.proxy import Upstream

START_SECONDS_MAX: Final = 30.0
# It refuses to be root's. In a namespace of its own root is somebody else, and its files and sockets are still root's.
_LAUNCHER: Final = """
import ctypes, os, sys
if os.getuid() == 0:
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):
        sys.exit("no user namespaces")
    with open("/proc/self/uid_map", "w") as uid_map:
        uid_map.write("65534 0 1")
os.execv(sys.argv[1], sys.argv[1:])
"""


def find_pgbouncer() -> str | None:
    """The program. None: this machine has none, or can't run it."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        return None
    tried = subprocess.run([sys.executable, "-c", _LAUNCHER, program, "--version"], capture_output=True, check=False)
    return program if not tried.returncode else None


@pytest.fixture
def pgbouncer_program() -> str:
    """The program; the test is skipped where there is none."""
    found = find_pgbouncer()
    if found is None:
        pytest.skip("no pgbouncer on PATH (a Debian package; no wheel has it), or nobody but root to run it")
    return found


class PgBouncer:
    """`with PgBouncer(program, dsn) as pooler`: clients connect to `pooler.dsn`. Few sessions of the server, each
    given to another client after each transaction."""

    def __init__(self, program: str, dsn: str, *, sessions: int = 3, role: str | None = None) -> None:
        """`role`: another login that may come."""
        self._program = program
        self._directory = tempfile.TemporaryDirectory(prefix="hai-flow-pgbouncer-")
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        upstream = Upstream(dsn)
        self.dsn = upstream.dsn_by_way_of(self._port)
        place = Path(self._directory.name)
        users = {upstream.user: upstream.password or "", **({} if role is None else {role: ""})}
        (place / "users").write_text("".join(f'"{name}" "{password}"\n' for name, password in users.items()))
        self._settings = place / "pgbouncer.ini"
        self._settings.write_text(f"""
[databases]
* = host={upstream.host} port={upstream.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self._port}
unix_socket_dir =
auth_type = trust
auth_file = {place}/users
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 500
server_round_robin = 1
server_login_retry = 0.1
logfile = {place}/log
""")

    def __enter__(self) -> PgBouncer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._directory.cleanup()

    def start(self) -> None:
        """Returns when it takes connections."""
        command = [sys.executable, "-c", _LAUNCHER, self._program, "-q", str(self._settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS_MAX
        while not self._listens():
            assert self._process.poll() is None, (self._settings.parent / "log").read_text()
            assert time.monotonic() < end, "pgbouncer did not listen in time"
            time.sleep(0.01)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1.0):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ignore(self, *parameters: str) -> None:
        """Begin again as one that takes these settings from its clients, and forgets them."""
        self.kill()
        with self._settings.open("a") as settings:
            settings.write(f"ignore_startup_parameters = {','.join(parameters)}\n")
        self.start()
