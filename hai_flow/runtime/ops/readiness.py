"""Whether a process, `serve` or a worker, can do its work just now; `/readyz` answers with it."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import TYPE_CHECKING, Final, Literal

import structlog

from hai_flow.errors import Rejected
from hai_flow.runtime.base.single_flight import SingleFlightCache
from hai_flow.store.ops import health
from hai_flow.store.postgres import revisions
from hai_flow.store.postgres.error_classes import is_not_stored
from hai_flow.store.runs import leases

if TYPE_CHECKING:
    from hai_flow.runtime.runtime import Runtime


log = structlog.get_logger(__name__)

ATTENDANCE_SECONDS: Final = 1.0
SCHEMA_SECONDS: Final = 1.0  # a look at the schema opens a connection: one look answers every request within this time
BELIEVED_SECONDS: Final = 30.0  # a refusal counts for so long where nobody may try whether something is stored again
SPACE_SECONDS: Final = 5.0  # a look at whether the database stores anything writes a megabyte


class Refusals:
    """When the database last refused to store something of this process, for want of space or of the right to write
    (monotonic). None: it never did, or stores again."""

    def __init__(self) -> None:
        self.at: float | None = None

    def note(self, error: Exception) -> None:
        if is_not_stored(error):
            self.at = time.monotonic()

    def is_recent(self) -> bool:
        return self.at is not None and time.monotonic() - self.at < BELIEVED_SECONDS


class Readiness:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._behind = SingleFlightCache(lambda: revisions.is_behind(runtime.dsn, runtime.deadlines), SCHEMA_SECONDS)
        self._fault_of_space = SingleFlightCache(self._find_space_fault, SPACE_SECONDS)

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
        if runtime.refusals.at is not None and await self._fault_of_space.get():
            raise Rejected(503, "impaired", NOT_STORED)

    async def _find_space_fault(self) -> bool:
        """Whether the database still stores nothing, since it refused to store something of this process. What a role
        may not try out is believed for a while."""
        refusals = self._runtime.refusals
        try:
            async with self._runtime.database.api.acquire() as connection:
                fault = await health.find_space_fault(connection)
        except Exception as error:
            log.warning("space_unknown", error=str(error) or type(error).__name__)
            return True
        if not fault and (fault is None or not refusals.is_recent()):
            refusals.at = None
        return refusals.at is not None

    async def demand_hands(self) -> None:
        """The same, and of a worker that it has a lease, without which it performs nothing."""
        await self.demand()
        worker = self._runtime.worker
        if worker is not None and worker.id is None:
            raise Rejected(503, "impaired", "this worker has no lease, so it performs nothing; see its log.")

    def hints(self) -> Literal["good", "away"]:
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


NOT_STORED: Final = (
    "the database stores nothing, because its disk is full or it is read-only; this process's log says more."
)
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
