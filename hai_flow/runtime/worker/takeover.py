"""Taking over at once from workers that are proven dead, where a lease would have to run out else.

A lease is all that is known of a worker on another machine. One over an embedded PostgreSQL is a process of this one: a
process that started the server while no other used it, and sees no process of the worker's, knows that it has ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs import leases


class Doubtful(NamedTuple):
    """A worker that may be alive, and the seconds after which others take its runs if it is not."""

    name: str
    seconds: float


def build_worker_name() -> str:
    """The name of this process's worker: its machine and its process."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def take_over(connection: Connection | Pool, *, unused: bool) -> list[Doubtful]:
    """End the leases of workers that are proven dead, before this process has a worker of its own; returns the others.

    `unused`: the database was started by this process while no other used it."""
    doubtful = []
    for id, name, seconds in await leases.list_living_workers(connection):
        if unused and is_gone(name):
            await leases.retire_worker(connection, id)
        else:
            doubtful.append(Doubtful(name, seconds))
    return doubtful


def is_gone(name: str) -> bool:
    """Whether the worker of that name was of this machine and has no process any more. A process of the same number may
    be another one: then nothing is known, unless it is this one, which has no worker yet."""
    host, _, pid = name.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return int(pid) == os.getpid() or not _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # no /proc on this system, or gone in this very moment: not proven
        return True
    return not stat.rpartition(") ")[2].startswith("Z")  # ended, and its parent did not look yet
