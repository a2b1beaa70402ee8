"""Loads the messages of a thread before a run, which an agent's model gets, once for a run. Nothing can change them
meanwhile: the run holds the slot of its thread until it ends (docs/design/store.md#slots). A run that was retried has
ended before, and reads them again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.engine.state.state import MessageState, RunState
from hai_flow.engine.steps.agents import ModelMessage, build_model_message
from hai_flow.runtime.commit.cached_run import CachedRun
from hai_flow.store.commit.projection import read_thread_entry
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import threads

RUNS_MAX: Final = 50
MESSAGES_MAX: Final = 200
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024  # of all runs; of messages as they are stored
ENTRY_BYTES: Final = 512  # that a run without a message counts


class _KeptMessages(msgspec.Struct, frozen=True):
    """The messages before a run that had been retried so many times when they were read."""

    retried: int
    said: Sequence[ModelMessage]
    bytes: int


class ThreadMessages:
    """Reads the messages before runs; keeps those of the runs that asked last, up to `bytes_max`."""

    def __init__(self, database: Database, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._database = database
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[UUID, _KeptMessages] = OrderedDict()

    async def before(self, run: CachedRun) -> Sequence[ModelMessage]:
        """The newest messages of the thread's line before the run, the oldest first; none of a run beside it."""
        state = run.state
        if state.parent is None and state.thread_id == state.run_id:
            return ()  # a thread that began with this run
        if not _is_thread_held(state):
            return (await self._read(run))[0]
        entry = self._kept.get(run.id)
        if entry is None or entry.retried != state.retried:
            messages, size = await self._read(run)
            entry = _KeptMessages(state.retried, messages, size)
            self._keep(run.id, entry)
        else:
            self._kept.move_to_end(run.id)
        return entry.said

    async def _read(self, run: CachedRun) -> tuple[Sequence[ModelMessage], int]:
        window = threads.Window(RUNS_MAX, MESSAGES_MAX)
        async with self._database.api.acquire() as connection:
            rows = await threads.transcript(connection, run.tenant, run.state.thread_id, before=run.id, window=window)
        entries = (read_thread_entry(row.role, row.body) for row in rows)
        messages = [
            messages
            for each in entries
            if isinstance(each, MessageState) and (messages := build_model_message(each)) is not None
        ]
        return messages, sum(len(row.body) for row in rows)

    def _keep(self, run_id: UUID, kept: _KeptMessages) -> None:
        self._forget(run_id)
        self._kept[run_id] = kept
        self._bytes += kept.bytes + ENTRY_BYTES
        while self._bytes > self._bytes_max:
            self._forget(next(iter(self._kept)))

    def _forget(self, run_id: UUID) -> None:
        entry = self._kept.pop(run_id, None)
        if entry is not None:
            self._bytes -= entry.bytes + ENTRY_BYTES


def _is_thread_held(state: RunState) -> bool:
    """Whether the slot of the thread is surely the run's: one that is being stopped may leave it to another."""
    return state.status in ("running", "waiting", "paused")
