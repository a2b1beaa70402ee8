"""Whether a process, `serve` or a worker, can do its work just now; `/readyz` answers with it."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

import structlog

from hai_flow.errors import Rejected
from hai_flow.runtime.base.single_flight import SingleFlightCache
from hai_flow.store.postgres import revisions
from hai_flow.store.runs import leases

if TYPE_CHECKING:
    from hai_flow.runtime.runtime import Runtime


log = structlog.get_logger(__name__)

ATTENDANCE_SECONDS: Final = 1.0
SCHEMA_SECONDS: Final = 1.0  # a look at the schema opens a connection: one look answers every request within this time


class Readiness:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._behind = SingleFlightCache(lambda: revisions.is_behind(runtime.dsn, runtime.deadlines), SCHEMA_SECONDS)

    async def demand(self) -> None:
        """The database answers, its schema is ours, and all that must run does. Raises `Rejected` 503 otherwise."""
        runtime = self._runtime
        if not runtime.running:
            raise Rejected(503, "starting", "the process is about to start, or has stopped.")
        if runtime.closing:
            raise Rejected(503, "closing", "the server is shutting down.")
        try:
            behind = await self._behind.get()
        except Exception as error:
            if is_out_of_files(error):
                log.warning("too_many_open_files", error=str(error), remedy=MORE_FILES)
                raise Rejected(503, "too_many_open_files", TOO_MANY_FILES) from None
            log.warning("database_unavailable", error=str(error))
            raise Rejected(
                503, "database_unavailable", "the database does not answer; the server's log says more."
            ) from None
        if behind:
            detail = "the database's schema is older than this server: run hai-flow migrate."
            raise Rejected(503, "schema_behind", detail)
        if faults := runtime.faults():
            detail = f"this process does not work as it should: {', '.join(faults)}; see its log."
            raise Rejected(503, "impaired", detail)

    async def demand_hands(self) -> None:
        """The same, and of a worker that it has a lease, without which it performs nothing."""
        await self.demand()
        worker = self._runtime.worker
        if worker is not None and worker.id is None:
            raise Rejected(503, "impaired", "this worker has no lease, so it performs nothing; see its log.")

    def hints(self) -> str:
        """`good`, or `away` where other processes' commits are found by polls alone. A process is ready all the same:
        it is slower. The log of the process says why; callers of this port need not know."""
        return "good" if self._runtime.carrier.fault is None else "away"

    async def attendance(self) -> leases.Attendance | None:
        """How many processes perform runs, and how many runs wait. None: the database did not answer within a second;
        readiness waits no longer for it."""
        try:
            async with asyncio.timeout(ATTENDANCE_SECONDS):
                return await leases.attendance(self._runtime.database.api)
        except Exception as error:
            log.warning("attendance_unknown", error=str(error) or type(error).__name__)
            return None


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
