"""Snapshots: folds of a log that are kept, so that a load need not fold it all (docs/design/store.md#snapshots)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias
from uuid import UUID

import structlog

from hai_flow.engine.state.snapshot import ABI, encode_state
from hai_flow.runtime.commit.run_cache import Cache, CachedRun
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import logs

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, Any], str], object]
"""Begins a task that ends with the service, under a name."""
log = structlog.get_logger(__name__)

SNAPSHOT_BYTES_MIN: Final = 64 * 1024


class Snapshots:
    """Saves them beside the commits; one may be lost."""

    def __init__(self, database: Database, cache: Cache, spawn: Spawn) -> None:
        self._database = database
        self._cache = cache
        self._spawn = spawn

    def save_if_due(self, run: CachedRun) -> None:
        """Save a snapshot when the log since the last one exceeds its size: so the cost per event stays the same
        (docs/design/store.md#snapshots)."""
        if run.log_bytes > max(SNAPSHOT_BYTES_MIN, run.snapshot_bytes):
            stored = encode_state(run.state)
            run.log_bytes, run.snapshot_bytes = 0, len(stored)
            self._cache.weigh(run)
            self._spawn(self._save(run.id, run.state.seq, stored), "snapshot")

    async def _save(self, run_id: UUID, seq: int, stored: bytes) -> None:
        try:
            async with self._database.api.acquire() as connection:
                await logs.save_snapshot(connection, run_id, seq, ABI, stored)
        except Exception as error:  # a snapshot may be lost: the log is the truth
            log.warning("snapshot_lost", run_id=str(run_id), error=str(error))
