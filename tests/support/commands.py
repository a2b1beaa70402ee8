"""Commands as processes: without a terminal, in the checkout, with no settings but those that are given.

They are forked (`tests.support.forking`), but for those with settings of Python's own: these start anew."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.support import forking

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hai_flow.cli", *arguments]


def environment(**settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAI_FLOW_")}
    return {**kept, "PYTHONPATH": str(ROOT), **settings}


def run(*arguments: str, folder: Path | str = ROOT, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself. It has no terminal."""
    return run_over(b"", *arguments, folder=folder, **settings)


def run_over(
    stdin: bytes, *arguments: str, folder: Path | str = ROOT, **settings: str
) -> subprocess.CompletedProcess[str]:
    """The same, with this as its standard input."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        process = _start(arguments, out, err, folder, settings, stdin=given)
        try:
            code = process.wait(SECONDS_MAX)
        finally:
            _end(process)
        return subprocess.CompletedProcess(arguments, code, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _start(
    arguments: Sequence[str],
    out: IO[bytes],
    err: IO[bytes],
    folder: Path | str,
    settings: Mapping[str, str],
    *,
    stdin: IO[bytes] | None = None,
    session: bool = False,
) -> subprocess.Popen[bytes] | forking.Process:
    env = environment(**settings)
    if any(name.startswith("PYTHON") for name in settings):
        return subprocess.Popen(
            command(*arguments),
            cwd=folder,
            env=env,
            stdin=stdin or subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=session,
        )
    with open(os.devnull, "rb") as nothing:
        files = ((stdin or nothing).fileno(), out.fileno(), err.fileno())
        return forking.fork("hai_flow.cli", arguments, files, env, folder=folder, session=session)


def _end(process: subprocess.Popen[bytes] | forking.Process) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(SECONDS_MAX)


class Process:
    """A command that runs until it gets a signal to end. `output` is everything that it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes] | forking.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match of `pattern` in the output, as soon as it is there."""
        deadline = time.monotonic() + SECONDS_MAX
        while (match := re.search(pattern, self.output)) is None:
            assert self._process.poll() is None, f"ended with {self._process.returncode}:\n{self.output}"
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.output}"
            time.sleep(0.05)
        return match

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        """Send the signal; the exit code."""
        self.send(number)
        return self._process.wait(SECONDS_MAX)


@contextmanager
def started(log: Path, *arguments: str, folder: Path | str = ROOT, **settings: str) -> Iterator[Process]:
    with log.open("wb") as out:
        process = _start(arguments, out, out, folder, settings, session=True)
    try:
        yield Process(process, log)
    finally:
        _end(process)
