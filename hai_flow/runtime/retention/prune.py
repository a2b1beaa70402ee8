"""Merges, archives and removes ended runs by the file of retention, a little at a time.

After every batch it rests as long as it has worked: the runs that go on have the database for themselves at least half
of the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec
import structlog

from hai_flow.runtime.retention import archive as archives
from hai_flow.runtime.retention.archive import Archive
from hai_flow.runtime.retention.policy import Retention
from hai_flow.store.ops import retention as retiring
from hai_flow.store.ops.retention import Member
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.postgres.error_classes import passing
from hai_flow.store.runs import log_compaction

log = structlog.get_logger(__name__)
BATCH_ROWS: Final = 1000
_WENT_ON: Final = "it went on meanwhile"
VACUUM_ROWS: Final = 1_000_000  # removed; PostgreSQL's own comes by its own rule meanwhile


@dataclass(slots=True)
class Pruned:
    """Counts of the things that were done, or are to be done. Threads are `kept` for a reason, counted by it. `rows` of
    removed runs are gone; of the logs that were merged there were `merged` rows more."""

    threads: int = 0
    archived: int = 0
    removed: int = 0
    runs: int = 0
    merged: int = 0
    rows: int = 0
    kept: dict[str, int] = field(default_factory=dict)

    def keep(self, reason: str) -> None:
        self.kept[reason] = self.kept.get(reason, 0) + 1

    def join(self, other: Pruned) -> None:
        """Add the counts of another database."""
        self.threads += other.threads
        self.archived += other.archived
        self.removed += other.removed
        self.runs += other.runs
        self.merged += other.merged
        self.rows += other.rows
        for reason, count in other.kept.items():
            self.kept[reason] = self.kept.get(reason, 0) + count


class Pruning(msgspec.Struct, frozen=True):
    """`tenants` are names by id. `do`: whether to do it, and not only to count it. `archives_only`: nothing is removed
    or merged. `rest`: how long to rest, in shares of the time that was worked."""

    retention: Retention
    tenants: Mapping[UUID, str]
    archive: Archive | None
    by: str
    tenant: UUID | None = None
    do: bool = True
    archives_only: bool = False
    rest: float = 1.0

    async def run(self, connection: Connection) -> AsyncIterator[Pruned]:
        """Go through all threads; yields how far it has got after each."""
        done, vacuumed = Pruned(), 0
        async for rows in self._clear_rows(connection):
            done.rows += rows
            yield done
        shortest = self.retention.shortest
        if shortest is not None:
            async for ended in retiring.list_old_threads(connection, self.tenant, shortest):
                began = time.monotonic()
                done.threads += 1
                await self._process_thread(connection, ended.tenant, ended.thread_id, done)
                yield done
                await self._rest(began)
                async for rows in self._clear_rows(connection):
                    done.rows += rows
                    yield done
                if done.rows - vacuumed >= VACUUM_ROWS:
                    await retiring.vacuum(connection)
                    vacuumed = done.rows
        if done.rows > vacuumed:
            await retiring.vacuum(connection)
        yield done

    async def _process_thread(self, connection: Connection, tenant: UUID, thread_id: str, done: Pruned) -> None:
        """One thread that can't be dealt with keeps no other."""
        try:
            await self._thread(connection, tenant, thread_id, done)
        except Exception as error:
            if passing(error) or connection.is_closed():
                raise
            log.error("not_pruned", thread=thread_id, tenant=str(tenant), error=f"{type(error).__name__}: {error}")
            done.keep("it can't be dealt with: the log says why")

    async def _thread(self, connection: Connection, tenant: UUID, thread_id: str, done: Pruned) -> None:
        unit = await retiring.list_unit(connection, tenant, thread_id)
        if len(unit) > retiring.UNIT_RUNS_MAX:
            done.keep(f"more than {retiring.UNIT_RUNS_MAX} runs hang together")
            return
        if not unit:  # it was removed with another thread
            return
        now = await connection.fetchval("SELECT now()")
        if self._is_due(unit, now):
            await self._retire(connection, unit, done)
        elif not self.archives_only:
            await self._pack(connection, unit, now, done)

    def _is_due(self, unit: Sequence[Member], now: datetime) -> bool:
        """Whether all of them have ended so long ago as the most patient of their rules wants."""
        last, longest = None, timedelta(0)
        for each in unit:
            after = self.retention.remove_after(self._name(each.tenant), each.workflow_name)
            if each.ended_at is None or after is None:
                return False
            last = each.ended_at if last is None else max(last, each.ended_at)
            longest = max(longest, after)
        return last is not None and last + longest <= now

    async def _retire(self, connection: Connection, unit: Sequence[Member], done: Pruned) -> None:
        if await retiring.is_wanted(connection, unit):
            done.keep("a message, a schedule or a slot refers to it")
            return
        if self.archive is not None and (fault := await archives.refusal(connection, unit)) is not None:
            log.error("not_archived", thread=unit[0].thread_id, tenant=str(unit[0].tenant), reason=fault)
            done.keep("an archive of it could not be restored: hai-flow verify says why")
            return
        archived = await retiring.archive_of(connection, unit)
        if archived is None and self.archive is None and await retiring.has_decisions(connection, unit):
            done.keep("people decided in it, the audit refers to that, and there is no archive")
            return
        if archived is None and self.archive is not None:
            if self.do:
                archived = await archives.write(connection, self.archive, unit)
                if archived is None:
                    done.keep(_WENT_ON)
                    return
            done.archived += 1
        if self.archives_only:
            return
        if self.do and not await retiring.remove(connection, unit, archived, self.by):
            done.keep(_WENT_ON)
            return
        done.removed += 1
        done.runs += len(unit)

    async def _pack(self, connection: Connection, unit: Sequence[Member], now: datetime, done: Pruned) -> None:
        for each in unit:
            after = self.retention.pack_after(self._name(each.tenant), each.workflow_name)
            if each.ended_at is None or after is None or each.ended_at + after > now or not self.do:
                continue
            packed = await log_compaction.merge_log(connection, each.id)
            done.merged += packed.before - packed.after

    async def _clear_rows(self, connection: Connection) -> AsyncIterator[int]:
        """Remove the rows of removed runs, batch by batch; of those, too, that another process has left."""
        while self.do and not self.archives_only and (uncleared := await retiring.find_uncleared(connection)):
            began = time.monotonic()
            rows = await retiring.clear(connection, uncleared, BATCH_ROWS)
            yield rows
            await self._rest(began)

    async def _rest(self, began: float) -> None:
        await asyncio.sleep((time.monotonic() - began) * self.rest)

    def _name(self, tenant: UUID) -> str:
        return self.tenants.get(tenant, str(tenant))
