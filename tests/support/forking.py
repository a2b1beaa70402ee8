"""Python processes that start at once: a *nursery* imports the modules of most of them, and forks one for each request.
All processes of pytest-xdist share it.

    with piped("tests.support.server", dsn, stderr=log.fileno()) as process: ...

The process behaves like `python -m MODULE`, except for the imports. Where a test is about these (how a command starts,
which modules it loads), start a real one."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

ROOT = Path(__file__).resolve().parents[2]
RUNTIME: Final = ("alembic.command", "hai_flow.runtime.runtime", "tests.support.effects", "uvloop")
SERVER: Final = (
    *RUNTIME, "hai_flow.api.app", "hai_flow.api.http.server", "hai_flow.cli.runs.control", "hai_flow.cli.people.decide",
    "hai_flow.cli.serve.dev", "hai_flow.cli.runs.show", "hai_flow.embedded", "tests.support.rehearsed",
    "tests.support.warmed",
    # What a server imports when it is first needed: a second of a processor's, of each server that is asked by MCP.
    "apscheduler.schedulers.asyncio", "cryptography.hazmat.primitives.serialization", "hai_flow.api.mcp.server",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)  # fmt: skip
_LENGTH_BYTES: Final = 4
_POLL_SECONDS: Final = 0.01
_END_SECONDS_MAX: Final = 1200
_LISTEN_SECONDS_MAX: Final = 30
_USERS_MAX: Final = 128
_RUN: Final = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
_PLACES: Final = str(Path(tempfile.gettempdir()) / f"hai-flow-nursery-{_RUN[:12]}")


class Process:
    """A process of the nursery, as `subprocess.Popen` shows one."""

    def __init__(self, nursery: _Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it lives."""
        if self.returncode is None:
            self.returncode = self._nursery.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code, once there is one. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(_POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # until it is asked for, the nursery keeps a dead process' number from being another's
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Piped(Process):
    """One that is talked to through pipes. Use as `with`: it is killed at the end if it lives."""

    def __init__(self, process: Process, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        super().__init__(process._nursery, process.pid)
        self.stdin = stdin
        self.stdout = stdout

    def __enter__(self) -> Piped:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.wait(10)
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()


def fork(
    module: str,
    arguments: Sequence[str],
    files: tuple[int, int, int],
    environment: Mapping[str, str] = os.environ,
    *,
    folder: Path | str = ROOT,
    descriptors: int | None = None,
    session: bool = False,
    preloaded: Sequence[str] = SERVER,
) -> Process:
    """`python -m module arguments` in `folder`. `files`: the descriptors that become its standard input, output and
    error; `descriptors`: how many files it may open; `session`: whether it begins one of its own; `preloaded`: the
    modules that are imported before it begins."""
    request = {"module": module, "arguments": arguments, "environment": dict(environment), "folder": str(folder)}
    nursery = _nursery(tuple(preloaded))
    return Process(nursery, nursery.ask(request | {"descriptors": descriptors, "session": session}, files))


def piped(module: str, *arguments: str, stderr: int, **more: Any) -> Piped:
    """The same with pipes at its standard input and output."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    try:
        process = fork(module, arguments, (in_read, out_write, stderr), **more)
    except BaseException:
        os.close(in_write)
        os.close(out_read)
        raise
    finally:
        os.close(in_read)
        os.close(out_write)
    return Piped(process, os.fdopen(in_write, "wb"), os.fdopen(out_read, "rb"))


class _Nursery:
    """A nursery as a pytest process sees it. The processes of a run share it, and it ends with the last of them,
    however that ends."""

    def __init__(self, preloaded: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._process = self._connect(preloaded)
        except BaseException:
            self._socket.close()
            raise

    def _connect(self, preloaded: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """Connect with the nursery. The process of a new one; None: there was one."""
        place = f"{_PLACES}-{zlib.crc32(' '.join((str(ROOT), *preloaded)).encode())}"
        deadline = time.monotonic() + _LISTEN_SECONDS_MAX
        while True:
            with suppress(FileNotFoundError, ConnectionRefusedError):
                self._socket.connect(place)
                return None
            with socket.socket(socket.AF_UNIX) as listener:
                try:
                    listener.bind(place)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL_SECONDS)  # it is about to listen
                    continue
                try:
                    listener.listen(_USERS_MAX)
                    self._socket.connect(place)
                    command = [sys.executable, "-m", __name__, *preloaded]
                    return subprocess.Popen(command, stdin=listener.fileno(), cwd=ROOT)
                except BaseException:  # `--quick` starts none: nobody shall wait for this one to listen
                    os.unlink(place)
                    raise

    def ask(self, request: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> Any:
        with self._lock:
            _send(self._socket, request, descriptors)
            return _receive(self._socket)[0]

    def close(self) -> None:
        self._socket.close()
        if self._process is not None:
            self._process.wait(_END_SECONDS_MAX)


@cache
def _nursery(preloaded: tuple[str, ...]) -> _Nursery:
    made = _Nursery(preloaded)
    atexit.register(made.close)
    return made


# --- programs that others start ---------------------------------------------------------------------------------------

_RELAY: Final = Path(__file__).with_name("relay.py")
_PLACE: Final = str(Path(tempfile.gettempdir()) / f"hai-flow-nursery-{os.getpid()}")
MCP: Final = ("mcp.server.mcpserver", "tests.support.mcp_server", "tests.support.company")


def relayed(module: str) -> list[str]:
    """The command of `python -m module` for those that start programs themselves: it is forked by the nursery that
    `nurse_relayed` starts, and is a process of its own where none was started."""
    return [sys.executable, "-I", "-S", str(_RELAY), _PLACE, module]


@cache
def nurse_relayed() -> None:
    """Start the nursery of `relayed`; it ends with this process."""
    ours, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, "--at", _PLACE, *MCP], stdin=ours, stdout=subprocess.PIPE, cwd=ROOT
    )
    os.close(ours)
    with process.stdout as ready:  # type: ignore[union-attr]
        assert ready.readline() == b"ready\n"

    def close() -> None:
        os.close(theirs)
        process.wait(30)

    atexit.register(close)


def _preload(modules: Sequence[str]) -> None:
    """Import what all processes of a nursery have in common; of that nothing is garbage."""
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def nurse_at(place: str, preloaded: Sequence[str]) -> None:
    """Fork a process for each relay that connects, until standard input ends."""
    _preload(preloaded)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for their exit codes
    with socket.socket(socket.AF_UNIX) as listener:
        Path(place).unlink(missing_ok=True)
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        while listener in select.select([listener, 0], [], [])[0]:
            connection, _ = listener.accept()
            with connection, suppress(EOFError, ConnectionError):
                request, descriptors = _receive(connection)
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    threading.Thread(target=_die_with, args=(connection.dup(),), daemon=True).start()
                    connection.close()
                    _become(request, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
    Path(place).unlink()


def _die_with(relay: socket.socket) -> None:
    """Who kills the relay means this process."""
    with suppress(ConnectionError):
        relay.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _send(connection: socket.socket, message: Any, descriptors: tuple[int, ...] = ()) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(connection, [len(data).to_bytes(_LENGTH_BYTES)], descriptors)
    connection.sendall(data)


def _receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """A message and the descriptors that came with it. Raises EOFError."""
    length, descriptors, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 3)
    wanted = int.from_bytes(length)
    data = b""
    while len(data) < wanted and (more := connection.recv(wanted - len(data))):
        data += more
    if not data:
        raise EOFError
    return json.loads(data), descriptors


# --- the nursery itself -----------------------------------------------------------------------------------------------


def nurse(preloaded: Sequence[str]) -> None:
    """Fork a process for each request of those who connect, until the last of them is gone."""
    _preload(preloaded)
    users: dict[socket.socket, set[int]] = {}
    with socket.socket(fileno=0) as listener:
        place: str | None = listener.getsockname()
        while users or _is_asked(listener) or place:
            if place and not users and not _is_asked(listener):
                os.unlink(place)  # who comes now makes another one; who has connected by now is served
                place = None
                continue
            for connection in select.select([listener, *users], [], [])[0]:
                if connection is listener:
                    users[listener.accept()[0]] = set()
                elif not _serve(connection, users):
                    connection.close()
                    _bury(users.pop(connection))


def _is_asked(listener: socket.socket) -> bool:
    return bool(select.select([listener], [], [], 0)[0])


def _serve(connection: socket.socket, users: dict[socket.socket, set[int]]) -> bool:
    """Do what one of the users asks for; returns whether it is still there."""
    try:
        request, descriptors = _receive(connection)
        if pid := request.get("poll"):
            _send(connection, _exit_code(pid, users[connection]))
            return True
        pid = os.fork()
        if not pid:
            for each in users:
                each.close()
            _become(request, descriptors)
        users[connection].add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        _send(connection, pid)
    except (EOFError, ConnectionError):
        return False
    return True


def _bury(children: set[int]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _exit_code(pid: int, children: set[int]) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        return None
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)


def _become(request: Mapping[str, Any], descriptors: list[int]) -> None:
    """In the forked process: be `python -m` of the requested module. Does not return."""
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):  # the first takes the place of the nursery's socket
            os.dup2(descriptor, number)
            os.close(descriptor)
        if request["session"]:
            os.setsid()
        if (most := request["descriptors"]) is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ |= request["environment"]
        sys.argv[1:] = request["arguments"]
        sys.path[0] = request["folder"]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        with suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--at"]:
        nurse_at(sys.argv[2], sys.argv[3:])
    else:
        nurse(sys.argv[1:])
