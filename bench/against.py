"""This tree and another commit of it, measured in turns: `python -m bench --against COMMIT`.

A number means little on a machine that others use, and a ratio of two runs on different days not much more. So the
commit is checked out beside this tree, and both are measured again and again, one after the other; the median of each
and the ratio are printed. Both run in the environment that this process has. A further round begins only if it can
end in time; `SIGTERM` ends the measuring process and removes the checkout, as `SIGINT` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
ROUNDS: Final = 3
QUICK_SECONDS_MAX: Final = 1200.0
SECONDS_MAX: Final = 3600.0
_ENDING_SECONDS_MAX: Final = 30.0  # until a measuring process has stopped its servers


def against(commit: str, *, quick: bool, rounds: int = ROUNDS) -> str:
    """Measure both; the table. Raises CalledProcessError where `commit` is none, or a tree can't be measured, and
    TimeoutExpired where even one round takes too long."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    seconds_max = QUICK_SECONDS_MAX if quick else SECONDS_MAX
    begun = time.monotonic()
    with checked_out(ROOT, commit) as other:
        for number in range(1, rounds + 1):
            for tree, side in ((ROOT, ours), (other, theirs)):
                side.append(numbers(_measured(tree, quick=quick, seconds_max=begun + seconds_max - time.monotonic())))
            if (time.monotonic() - begun) * (number + 1) / number > seconds_max:
                break
    return comparison(ours, theirs, commit)


def exit_on_sigterm() -> None:
    """From here on `SIGTERM` raises SystemExit, once, so that what this process has made is removed."""

    def leave(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


@contextlib.contextmanager
def checked_out(repository: Path, commit: str) -> Iterator[Path]:
    """The files of a commit, in a worktree that goes away."""
    with tempfile.TemporaryDirectory(prefix="hai-flow-bench-") as directory:
        tree = Path(directory) / "tree"
        try:
            _git(repository, "worktree", "add", "--quiet", "--detach", str(tree), commit)
            yield tree
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            _git(repository, "worktree", "prune")


def _git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True, text=True)


def _measured(tree: Path, *, quick: bool, seconds_max: float) -> dict[str, Any]:
    """The report of the bench as the tree has it. However this ends, the measuring process has ended before."""
    command = [sys.executable, "-m", "bench", *(["--quick"] if quick else [])]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            code = process.wait(seconds_max)
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_SECONDS_MAX)
            process.kill()
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)
    report: dict[str, Any] = json.loads((tree / "bench" / "latest.json").read_text())
    return report


def numbers(report: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """All numbers of a report, nested ones included, by the keys on the way to them, joined by dots."""
    found: dict[str, float] = {}
    for name, value in report.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{name}".removeprefix("details.")] = float(value)
    return found


def comparison(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]], commit: str) -> str:
    """A line for each number that both have: the medians, and ours to theirs."""
    names = [name for name in ours[0] if all(name in each for each in (*ours, *theirs))]
    lines = [f"{'':<52}{'here':>12}{commit[:12]:>14}{'ratio':>9}"]
    for name in names:
        here, there = (statistics.median(each[name] for each in side) for side in (ours, theirs))
        ratio = f"{here / there:.3f}" if there else "-"
        lines.append(f"{name:<52}{here:>12,.3f}{there:>14,.3f}{ratio:>9}")
    return "\n".join(lines)
