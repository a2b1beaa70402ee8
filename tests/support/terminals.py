"""Commands on a terminal: a person types, and reads what is shown."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.commands import ROOT, SECONDS_MAX, environment


@contextmanager
def on_a_terminal(
    arguments: list[str], folder: Path | str = ROOT, **settings: str
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A process whose input and output is a terminal: the near end of that, and the process. It is gone at the end."""
    near, far = pty.openpty()
    process = subprocess.Popen(arguments, cwd=folder, env=environment(**settings), stdin=far, stdout=far, stderr=far)
    os.close(far)
    try:
        yield near, process
    finally:
        process.kill()
        process.wait()
        os.close(near)


def read_until(terminal: int, text: str) -> str:
    """What the terminal shows up to `text`."""
    deadline = time.monotonic() + SECONDS_MAX
    shown = b""
    while text.encode() not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"no {text!r} in:\n{shown.decode()}"
        try:
            shown += os.read(terminal, 1)  # a byte at a time: what comes after is the next reader's
        except OSError:
            raise AssertionError(f"it ended without {text!r}:\n{shown.decode()}") from None
    return shown.decode()
