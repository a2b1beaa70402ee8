"""Whether an error means that a process may open no more files, and what is said of it."""

from __future__ import annotations

import errno
from typing import Final

MORE_FILES: Final = "raise this process's limit of open files (ulimit -n)"
TOO_MANY_FILES: Final = (
    "this server has too many open files, so it can't reach its database; repeat the request with the same command id."
)


def is_out_of_files(error: BaseException) -> bool:
    """Whether it failed because the process, or the machine, may open no more files and connections."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return True
    if f"[Errno {errno.EMFILE}]" in str(error):  # asyncio's one error for several addresses that could not be reached
        return True
    return error.__cause__ is not None and is_out_of_files(error.__cause__)
