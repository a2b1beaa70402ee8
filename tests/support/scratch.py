"""Where tests write: in memory, where there is room for it.

Databases are emptied file by file, thousands of times, and each new file of a disk's file system passes over those that
were just deleted: two thirds of the processor's time that a TRUNCATE took."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
FREE_MIN: Final = 4 << 30  # bytes; a container's own has 64 MB, in which no database lives


def is_roomy(place: Path) -> bool:
    """Whether this user can write there, run programs from there, and has enough room."""
    try:
        about = os.statvfs(place)
    except OSError:
        return False
    runs = not about.f_flag & getattr(os, "ST_NOEXEC", 0)
    return runs and about.f_bavail * about.f_frsize >= FREE_MIN and os.access(place, os.W_OK | os.X_OK)


def use_memory(place: Path = MEMORY) -> None:
    """Let this process and all that it starts keep their temporary files at `place`, unless TMPDIR says where."""
    if "TMPDIR" not in os.environ and is_roomy(place):
        os.environ["TMPDIR"] = tempfile.tempdir = str(place)
