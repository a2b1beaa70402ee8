"""The process that keeps the campaign's PostgreSQL: it begins it, begins it again when it is gone, and crashes it.

    python -m hai_flow_chaos.keeper DIRECTORY

Says `up PATH` on stdout, the path of its socket, whenever the server runs (again). Takes `crash SECONDS` on stdin: all
of its processes are killed, and it stays away that long. When stdin ends, so does the server. A process of its own,
because a server that is recovering must not hold up the faults, and a server ends with the process that began it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

from hai_flow.embedded import PORT, EmbeddedPostgres
from hai_flow.errors import StoreError

LOOK_SECONDS: Final = 0.2
DATABASE: Final = "chaos"


def crash(postmaster: int) -> None:
    """kill -9 of the server and all that it has begun, at once."""
    for pid in [postmaster, *_children(postmaster)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int((entry / "stat").read_text().rpartition(") ")[2].split()[1]) == parent:
                    found.append(int(entry.name))
    return found


def keep(directory: Path) -> None:
    """Run the PostgreSQL in `directory`, and obey commands on stdin, until that ends."""
    postgres = EmbeddedPostgres(directory)
    away, known = 0.0, None
    try:
        while True:
            if time.monotonic() >= away:
                with contextlib.suppress(StoreError):  # no room to recover, say: it is tried again
                    postgres.ensure_running()
                    if postgres.pid not in (None, known):
                        postgres.ensure_database(DATABASE)
                        known = postgres.pid
                        print(f"up {postgres.socket_dir}/.s.PGSQL.{PORT}", flush=True)
            if select.select([0], [], [], LOOK_SECONDS)[0]:
                asked = os.read(0, 4096).decode().split()
                if not asked:
                    return
                if postgres.pid is not None:
                    crash(postgres.pid)
                away = time.monotonic() + float(asked[-1])
    finally:
        postgres.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the campaign, which then ends us
    keep(Path(sys.argv[1]))
