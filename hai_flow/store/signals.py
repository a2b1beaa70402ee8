"""Events from outside, and which runs wait for which (STORE H6).

No wake-up is lost, because both sides look *after* their own commit: a signal is stored first, then offered to those
who wait for its type; a `wait_for` is committed first, then its subscription is written, then what was stored before is
offered to it. Being offered a signal twice changes nothing: the run knows which ones it has taken.

A subscription may outlive the step that opened it. Whoever offers something to such a run is told so and removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from hai_flow.errors import Rejected

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool


@dataclass(frozen=True, slots=True)
class Signal:
    """An event from outside. `run_id`: the one run that it is for; None: every run of the tenant that waits for its
    type. `data` is JSON text. `sent_at` is when it was stored, by the database's clock."""

    tenant: UUID
    id: str
    type: str
    run_id: UUID | None
    data: bytes
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A run that waits for a type, as of the commit that ended with the event `opened_seq`."""

    run_id: UUID
    opened_seq: int


_SIGNAL: Final = "tenant, id, type, run_id, data, sent_at"


async def store_signal(
    connection: Connection | Pool,
    tenant: UUID,
    id: str,
    type: str,
    data: bytes,
    run_id: UUID | None = None,
    *,
    due_after: timedelta = timedelta(0),
) -> tuple[Signal, bool]:
    """Keep a signal; returns it, and whether it was there already (the same id again changes nothing).

    It is due at once: who stores it offers it, or whoever looks next. Who offers it itself, and settles it, says in
    `due_after` how long others leave that to it. Raises `Rejected` 409 `signal_exists` when another signal has its id.
    """
    insert = f"""
    INSERT INTO signals (tenant, id, type, run_id, data, due_at) VALUES ($1, $2, $3, $4, $5, now() + $6)
    ON CONFLICT DO NOTHING RETURNING {_SIGNAL}
    """
    row = await connection.fetchrow(insert, tenant, id, type, run_id, data, due_after)
    if row is not None:
        return Signal(*row), False
    stored = await get_signal(connection, tenant, id)
    assert stored is not None, "signals are kept for longer than a request takes"
    if (stored.type, stored.run_id, stored.data) != (type, run_id, data):
        raise Rejected(
            409,
            "signal_exists",
            f"another signal has the id {id!r}; give this one an id of its own.",
            winner={"id": id, "type": stored.type},
        )
    return stored, True


async def get_signal(connection: Connection | Pool, tenant: UUID, id: str) -> Signal | None:
    """The signal, if it is the tenant's."""
    row = await connection.fetchrow(f"SELECT {_SIGNAL} FROM signals WHERE tenant = $1 AND id = $2", tenant, id)
    return None if row is None else Signal(*row)


_DUE: Final = f"""
WITH due AS MATERIALIZED (
  SELECT tenant AS t, id AS i FROM signals WHERE due_at <= now() ORDER BY due_at, sent_at, id LIMIT $1
  FOR UPDATE SKIP LOCKED
)
UPDATE signals SET due_at = now() + $2 FROM due WHERE tenant = due.t AND id = due.i RETURNING {_SIGNAL}
"""


async def due_signals(
    connection: Connection | Pool, limit: int, again_after: timedelta = timedelta(seconds=5)
) -> list[Signal]:
    """Up to `limit` signals that are to be offered to those who wait, oldest first.

    One that is not settled within `again_after` is given out again, so that whoever dies in between loses nothing.
    """
    found = [Signal(*row) for row in await connection.fetch(_DUE, limit, again_after)]
    return sorted(found, key=lambda signal: (signal.sent_at, signal.id))


async def unsettled_before(connection: Connection | Pool, signal: Signal) -> list[Signal]:
    """The signals of the same type that were sent before and that somebody is yet to offer, oldest first."""
    query = f"""
    SELECT {_SIGNAL} FROM signals
    WHERE tenant = $1 AND type = $2 AND due_at IS NOT NULL AND (sent_at, id) < ($3, $4) ORDER BY sent_at, id
    """
    return [
        Signal(*row) for row in await connection.fetch(query, signal.tenant, signal.type, signal.sent_at, signal.id)
    ]


async def settle_signal(connection: Connection | Pool, signal: Signal) -> None:
    """Everyone who waited for the signal has been offered it. Settling twice is harmless."""
    await connection.execute("UPDATE signals SET due_at = NULL WHERE tenant = $1 AND id = $2", signal.tenant, signal.id)


async def subscribers(connection: Connection | Pool, signal: Signal) -> list[Subscriber]:
    """The runs that wait for the signal's type now, or only its addressee, if that does. To be asked after the
    signal's own commit."""
    query = """
    SELECT run_id, max(opened_seq) FROM subscriptions
    WHERE tenant = $1 AND type = $2 AND ($3::uuid IS NULL OR run_id = $3) GROUP BY run_id ORDER BY run_id
    """
    rows = await connection.fetch(query, signal.tenant, signal.type, signal.run_id)
    return [Subscriber(*row) for row in rows]


async def subscribe(
    connection: Connection | Pool, tenant: UUID, run_id: UUID, path: str, types: Sequence[str], opened_seq: int
) -> None:
    """The step `path` of the run waits for signals of these types. Twice is harmless, and so is an older one late."""
    query = """
    INSERT INTO subscriptions (run_id, path, type, tenant, opened_seq)
    SELECT $2, $3, type, $1, $5 FROM unnest($4::text[]) AS type
    ON CONFLICT (run_id, path, type) DO UPDATE SET opened_seq = greatest(subscriptions.opened_seq, excluded.opened_seq)
    """
    await connection.execute(query, tenant, run_id, path, list(types), opened_seq)


async def unsubscribe(connection: Connection | Pool, run_id: UUID, type: str, opened_seq: int) -> None:
    """The run said that it waits for the type no more. What it opened after the event `opened_seq` stays."""
    query = "DELETE FROM subscriptions WHERE run_id = $1 AND type = $2 AND opened_seq <= $3"
    await connection.execute(query, run_id, type, opened_seq)


async def signals_for(
    connection: Connection | Pool,
    tenant: UUID,
    run_id: UUID,
    types: Sequence[str],
    *,
    since: datetime,
    without: Collection[str],
    limit: int,
    after: Signal | None = None,
) -> list[Signal]:
    """Up to `limit` of the signals that the run may take: of these types, sent since `since`, to it or to all, and not
    among the ids `without`; oldest first, those behind `after`."""
    query = f"""
    SELECT {_SIGNAL} FROM signals
    WHERE tenant = $1 AND type = ANY($3::text[]) AND sent_at >= $4 AND (run_id IS NULL OR run_id = $2)
      AND id <> ALL($5::text[]) AND ($7::timestamptz IS NULL OR (sent_at, id) > ($7, $8))
    ORDER BY sent_at, id LIMIT $6
    """
    arguments: list[Any] = [tenant, run_id, list(types), since, list(without), limit]
    arguments += [None, ""] if after is None else [after.sent_at, after.id]
    return [Signal(*row) for row in await connection.fetch(query, *arguments)]


_ENDED: Final = "('finished', 'failed', 'stopped')"
# opened_seq: a run that was retried in this very moment may have opened it again.
_FORGET_SUBSCRIPTIONS: Final = f"""
DELETE FROM subscriptions s USING runs r WHERE r.id = s.run_id AND r.status IN {_ENDED} AND s.opened_seq <= r.seq
"""
# Nobody who waits now, or will, could take them: they were sent before the oldest of the tenant's runs started.
_FORGET_SIGNALS: Final = f"""
DELETE FROM signals s USING (
  SELECT t.tenant, (
    SELECT min(r.created_at) FROM runs r WHERE r.tenant = t.tenant AND r.status NOT IN {_ENDED}) AS oldest
  FROM (SELECT DISTINCT tenant FROM signals) t) live
WHERE s.tenant = live.tenant AND s.due_at IS NULL AND s.sent_at < now() - $1::interval
  AND (live.oldest IS NULL OR s.sent_at < live.oldest)
"""


async def forget(connection: Connection | Pool, kept_for: timedelta = timedelta(days=1)) -> None:
    """Remove subscriptions of runs that have ended, and signals that no run can take any more.

    A signal's id is known for at least `kept_for`: so long the same one again is recognised.
    """
    await connection.execute(_FORGET_SUBSCRIPTIONS)
    await connection.execute(_FORGET_SIGNALS, kept_for)
