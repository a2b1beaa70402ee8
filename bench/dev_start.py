"""How much of a processor `dev` takes until it is ready, to what it took before its start was made shorter.

`dev_start_vs_before`: the processor time of the process from its beginning until `/readyz` says 200, on a database that
is there and at its newest schema, to that of the commit BEFORE. Both start in turns, in the environment that this
process has. PostgreSQL's own processes are not counted. NaN where the history of this checkout does not reach so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.against import ROOT, checked_out

BEFORE: Final = "816c0e8b"
"""The last commit whose `dev` imported all of itself, of Alembic and of its models' packages at its start."""
READY_SECONDS_MAX: Final = 300.0
_URL: Final = re.compile(r"Serving (http://\S+)")
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Start:
    """One start: processor seconds, and resident MiB, when it is ready."""

    seconds: float
    mebibytes: float


async def measure(rounds: int, *, before: str = BEFORE) -> dict[str, Any]:
    """Medians of `rounds` starts of both, in turns, behind one of each that makes the database and the bytecode."""
    with contextlib.ExitStack() as stack:
        try:
            tree = stack.enter_context(checked_out(ROOT, before))
        except subprocess.CalledProcessError:  # a copy without the history
            return {"dev_start_vs_before": nan}
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="hai-flow-bench-"))
        ours, theirs = Path(directory, "ours"), Path(directory, "theirs")
        await start(ROOT, ours)
        await start(tree, theirs)
        starts = [(await start(ROOT, ours), await start(tree, theirs)) for _ in range(rounds)]
    here, there = zip(*starts, strict=True)
    return {
        "dev_start_vs_before": median(one.seconds / other.seconds for one, other in starts),
        "dev_memory_vs_before": median(one.mebibytes / other.mebibytes for one, other in starts),
        "dev_start_seconds": {side: median(each.seconds for each in of) for side, of in _sides(here, there)},
        "dev_start_mebibytes": {side: median(each.mebibytes for each in of) for side, of in _sides(here, there)},
    }


def _sides(here: tuple[Start, ...], there: tuple[Start, ...]) -> Iterator[tuple[str, tuple[Start, ...]]]:
    yield from (("here", here), ("before", there))


async def start(tree: Path, directory: Path) -> Start:
    """Start `dev` of the tree over the database in the directory, and stop it when it is ready."""
    async with _running(tree, directory) as process:
        await _readiness(process)
        return Start(_processor_seconds(process.pid), _resident_mebibytes(process.pid))


@contextlib.asynccontextmanager
async def _running(tree: Path, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = ("-m", "hai_flow.cli", "dev", "--no-open", "--port", "0", "--data-dir", str(directory))
    unset = ("PYTHONDONTWRITEBYTECODE",)  # as installed: compiled
    environment = {name: value for name, value in os.environ.items() if name not in unset} | {"PYTHONPATH": str(tree)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=directory.parent, env=environment, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        await process.stdout.read()
        await process.wait()


async def _readiness(process: asyncio.subprocess.Process) -> None:
    """Return when the server that the process tells of is ready."""
    assert process.stdout is not None
    async with asyncio.timeout(READY_SECONDS_MAX):
        served, lines = None, []
        while served is None:
            lines.append((await process.stdout.readline()).decode())
            assert lines[-1], f"`dev` has ended before it was ready:\n{''.join(lines)}"
            served = _URL.search(lines[-1])
        while not await asyncio.to_thread(_is_ready, f"{served[1]}/readyz"):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=READY_SECONDS_MAX) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_mebibytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
