"""The heartbeat of a process that performs: it renews the lease for as long as the process gets its work done
(docs/design/store.md#leases)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

import structlog

from hai_flow.store.postgres.database import SETTINGS, Session
from hai_flow.store.runs import leases
from hai_flow.store.runs.leases import Heartbeat, Load

log = structlog.get_logger(__name__)

HEART_SETTINGS: Final = {**SETTINGS, "application_name": "hai-flow heartbeat"}


class HeartbeatLoop:
    """Renews the lease from a thread and a connection of its own, as long as the process that it beats for works.

    A loop that is stuck performs nothing useful, nor does one whose commits or loads get no answer: so the lease should
    end, and others go on with the runs. A process that is only busy should keep it. `worked_at` says, in the loop,
    since which monotonic time something has been waiting to be done, or that it is now if nothing has; `load` the
    process's load, for people to see.

    It beats from its making to `stop`. `registered` is the monotonic time at which the lease was asked for."""

    def __init__(
        self,
        connect: Callable[[], Coroutine[Any, Any, Session]],
        worker: int,
        registered: float,
        worked_at: Callable[[], float],
        notify: Callable[[HeartbeatLoop, Heartbeat | None], None],
        load: Callable[[], Load],
        *,
        lease_seconds: float,
        heartbeat_seconds: float,
    ) -> None:
        self._connect = connect
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._worked_at = worked_at
        self._notify = notify
        self._load_now, self._load = load, Load()
        self._owner = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._worked = time.monotonic()
        self._lease_until = registered + lease_seconds
        self._connection: Session | None = None
        self._own = asyncio.new_event_loop()
        self._main = self._own.create_task(self._beat_for_ever())
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def safe(self) -> bool:
        """Whether the lease surely still runs: a margin of one heartbeat before its end, by our own clock
        (docs/design/promises.md#fencing)."""
        return time.monotonic() < self._lease_until - self._heartbeat_seconds

    async def stop(self) -> None:
        """Returns when thread and connection are gone."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._own.call_soon_threadsafe(self._main.cancel)
        await self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._own.run_until_complete(self._main)
        finally:
            self._own.close()
            self._to_owner(self._ended.set)

    def _to_owner(self, call: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is everything that this heart beats for
            self._owner.call_soon_threadsafe(call, *arguments)

    async def _beat_for_ever(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._heartbeat_seconds)
                self._to_owner(self._ask)
                sent = time.monotonic()
                stuck = sent - self._worked > self._lease_seconds / 2
                beat = None if stuck else await self._beat()
                if beat is not None and beat.alive:
                    self._lease_until = sent + self._lease_seconds
                elif beat is None and time.monotonic() < self._lease_until:
                    continue
                self._to_owner(self._notify, self, beat)
                if beat is None or not beat.alive:
                    return
        finally:
            self._hang_up()

    async def _beat(self) -> Heartbeat | None:
        """One renewal. None: it failed, and the next one takes a new connection."""
        limit = self._lease_seconds / 3
        try:
            if self._connection is None or self._connection.is_closed():
                async with asyncio.timeout(limit):
                    self._connection = await self._connect()
            lease = timedelta(seconds=self._lease_seconds)
            async with asyncio.timeout(limit):
                return await leases.heartbeat(self._connection, self._worker, lease, self._load)
        except Exception as error:  # of any kind: this thread must go on, or the end of the lease is not noticed
            log.warning("heartbeat_failed", error=str(error) or repr(error))
            self._hang_up()
            return None

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _ask(self) -> None:
        self._worked, self._load = self._worked_at(), self._load_now()
