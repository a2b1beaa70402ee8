"""Commands as processes: without a terminal, in the checkout, with no settings but those that are given."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hai_flow.cli", *arguments]


def environment(**settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAI_FLOW_")}
    return {**kept, "PYTHONPATH": str(ROOT), **settings}


def run(*arguments: str, folder: Path | str = ROOT, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself. It has no terminal."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


class Process:
    """A command that goes on until it is told to end. `output` is everything that it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
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

    def end(self, number: signal.Signals) -> int:
        """Send the signal; the exit code."""
        self._process.send_signal(number)
        return self._process.wait(SECONDS_MAX)


@contextmanager
def started(log: Path, *arguments: str, folder: Path | str = ROOT, **settings: str) -> Iterator[Process]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(*arguments),
            cwd=folder,
            env=environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Process(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS_MAX)
