"""What waits in the database to be done, of every kind, in one statement: so that a process asks once for all of its
loops, and each of these asks for its own only when there is some."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.store.commit.commit_sql import FREEZE_VERSION
from hai_flow.store.messaging.pushes import ANY_DUE
from hai_flow.store.ops.freezes import ANY_TO_RELEASE
from hai_flow.store.people.absences import ANY_ABSENCE_DUE
from hai_flow.store.people.chat import ANY_CARD_DUE
from hai_flow.store.postgres.connections import Connection
from hai_flow.store.runs.leases import EARLIEST_WAKE, LOST_RUN, WAITING_QUEUES


class DueWork(NamedTuple):
    """Whether there are due `messages` between runs, `signals` that are to be offered, records of the audit without a
    seal, `promises` of slots that are over, runs of a dead worker, `deposits` of other programs, and `pushes` and
    `cards` (of chats) whose run has changed, and `absences` that begin or end; when the next free run and the next
    schedule are to be looked at, None: there is none. `watched`: the workflows of whose ends others are told, each
    behind its tenant. `freezes`: the version of the freezes; `to_release`: whether a freeze that is over still holds
    steps; `now`: the database's clock.

    A process that performs nothing asks for these alone up to here."""

    messages: bool
    signals: bool
    watched: frozenset[tuple[UUID, str]]
    freezes: int = 0
    to_release: bool = False
    now: datetime | None = None
    records: bool = False
    promises: bool = False
    lost: bool = False
    runs: datetime | None = None
    schedules: datetime | None = None
    deposits: bool = False
    pushes: bool = False
    cards: bool = False
    absences: bool = False


_OF_ALL: Final = f"""
  EXISTS (SELECT FROM outbox WHERE due_at <= now()),
  EXISTS (SELECT FROM signals WHERE due_at <= now()),
  ARRAY(SELECT DISTINCT tenant::text || ' ' || type FROM event_triggers WHERE kind = 'run'),
  {FREEZE_VERSION},
  {ANY_TO_RELEASE},
  clock_timestamp()
"""
_OF_PERFORMERS: Final = f"""{_OF_ALL},
  EXISTS (SELECT FROM audit_unsealed),
  EXISTS (SELECT FROM slots WHERE promised_until <= now()),
  EXISTS ({LOST_RUN}),
  ({EARLIEST_WAKE}),
  (SELECT wake_at FROM schedules WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1),
  EXISTS (SELECT FROM deposits WHERE due_at <= now()),
  {ANY_DUE},
  {ANY_CARD_DUE},
  {ANY_ABSENCE_DUE}
"""
_NAMED: Final = f"WITH q(name) AS (SELECT unnest($1::text[])) SELECT {_OF_PERFORMERS}"
_EVERY: Final = f"""
WITH RECURSIVE {WAITING_QUEUES}, q(name) AS (SELECT name FROM waiting_queues WHERE name IS NOT NULL)
SELECT {_OF_PERFORMERS}
"""


async def due_work(connection: Connection, queues: Sequence[str] | None, *, performs: bool) -> DueWork:
    """What is due for a process; `queues`: those whose runs it performs, None: all."""
    if not performs:
        row = await connection.fetchrow(f"SELECT {_OF_ALL}")
    elif queues is None:
        row = await connection.fetchrow(_EVERY)
    else:
        row = await connection.fetchrow(_NAMED, queues)
    assert row is not None, "it is one row of values"
    messages, signals, watched, *others = row
    return DueWork(messages, signals, frozenset(map(_watched, watched)), *others)


def _watched(text: str) -> tuple[UUID, str]:
    tenant, _, workflow = text.partition(" ")
    return UUID(tenant), workflow
