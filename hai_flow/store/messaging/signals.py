"""Events from outside, and which runs wait for which. No wake-up is lost, as both sides look after their own commit: a
signal is stored, then offered; a subscription is written behind the commit of its `wait_for`, then the stored signals
are offered to it. Being offered a signal twice changes nothing. Signals of a type for everybody, and those for one run,
become visible in the order of their *places*, by a lock held from before the place is taken until the commit: who has
read up to a place has read all up to there. A subscription that outlives its step is removed at the next offer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.errors import Rejected
from hai_flow.store.commit.entries import AuditRow
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.orphan_cleanup import PAGE_ROWS, Page, build_page


class Signal(msgspec.Struct, frozen=True):
    """An event from outside. `run_id`: the one run that it is for; None: every run of the tenant that waits for its
    type. `data` is JSON text. `sent_at` is when it was stored, by the database's clock. `undelivered`: it was offered
    to all but these receivers, which could not be reached, `tries` times so far. `sender`: the person that sent it, if
    one did, and those for whom it was sent, with spaces between."""

    tenant: UUID
    id: str
    type: str
    run_id: UUID | None
    data: bytes
    sent_at: datetime
    place: int
    tries: int = 0
    undelivered: list[str] | None = None
    sender: str | None = None


class Subscriber(msgspec.Struct, frozen=True):
    """A run that waits for a type, as of the commit that ended with the event `opened_seq`. `offered` was written with
    the subscription: how far the run had been offered stored signals."""

    run_id: UUID
    opened_seq: int
    offered: bytes | None = None


class Reach(msgspec.Struct, frozen=True):
    """How far a run has read the stored signals of a type: the places up to which it has read those for all runs (None:
    it has yet to begin) and those for it alone."""

    type: str
    to_all: int | None = None
    own: int = 0


_SIGNAL: Final = "tenant, id, type, run_id, data, sent_at, place, tries, undelivered, sender"


# The record of its sender, if the signal is new.
_AUDITED: Final = """, new_audit AS (
  INSERT INTO audit (tenant, id, at, act, run_id, subject, digest, commitment)
  SELECT $1, $8, clock_timestamp(), $9, $4, $10, $11, $12 FROM new
), new_details AS (
  INSERT INTO audit_details (tenant, id, principal, salt, body) SELECT $1, $8, $13, $14, $15 FROM new
)"""
_PLACES: Final = 0x5349_474E_414C  # "SIGNAL": tells these advisory locks from others


async def store_signal(
    connection: Connection | Pool,
    tenant: UUID,
    id: str,
    type: str,
    data: bytes,
    run_id: UUID | None = None,
    *,
    due_after: timedelta = timedelta(0),
    sent: AuditRow | None = None,
    sent_at: datetime | None = None,
    sender: str | None = None,
) -> tuple[Signal, bool]:
    """Keep a signal; returns it, and whether it was there already (the same id again changes nothing).

    It is due at once: the process that stores it offers it, or the next one that looks. A caller that offers and
    settles it itself gives in `due_after` how long others leave that to it. Raises `Rejected` 409 `signal_exists` when
    another signal has its id. `sent` is the audit record of its `sender`, a person. `sent_at`: where another cell had
    it first, when that was."""
    when = f"${8 if sent is None else 16}::timestamptz"
    insert = f"""
    WITH turn AS MATERIALIZED (
      SELECT pg_advisory_xact_lock(hashtextextended(concat_ws('/', $1::uuid, $4::uuid, $3::text), {_PLACES}))
    ), new AS (
      INSERT INTO signals (tenant, id, type, run_id, data, due_at, sender, place, sent_at)
      SELECT $1, $2, $3, $4, $5, now() + $6, $7, nextval('signals_place'), coalesce({when}, clock_timestamp()) FROM turn
      ON CONFLICT DO NOTHING RETURNING {_SIGNAL}
    ){"" if sent is None else _AUDITED} SELECT {_SIGNAL} FROM new
    """
    record = () if sent is None else (
        sent.id, sent.act, sent.subject, sent.digest, sent.commitment, sent.principal, sent.salt, sent.body
    )  # fmt: skip
    row = await connection.fetchrow(insert, tenant, id, type, run_id, data, due_after, sender, *record, sent_at)
    if row is not None:
        return Signal(*row), False
    stored = await get_signal(connection, tenant, id)
    assert stored is not None, "signals are kept for longer than a request takes"
    if (stored.type, stored.run_id, stored.data) != (type, run_id, data):
        raise reject_foreign_id(id, stored.type)
    return stored, True


def reject_foreign_id(id: str, type: str) -> Rejected:
    """The refusal of a signal whose id another one has, which is of this type."""
    detail = f"another signal has the id {id!r}; give this one an id of its own."
    return Rejected(409, "signal_exists", detail, winner={"id": id, "type": type})


async def get_signal(connection: Connection | Pool, tenant: UUID, id: str) -> Signal | None:
    """The signal, if it is the tenant's."""
    row = await connection.fetchrow(f"SELECT {_SIGNAL} FROM signals WHERE tenant = $1 AND id = $2", tenant, id)
    return None if row is None else Signal(*row)


_DUE: Final = f"""
WITH due AS MATERIALIZED (
  SELECT tenant AS t, id AS i FROM signals WHERE due_at <= now() ORDER BY due_at, place LIMIT $1
  FOR UPDATE SKIP LOCKED
)
UPDATE signals SET due_at = now() + $2 FROM due WHERE tenant = due.t AND id = due.i RETURNING {_SIGNAL}
"""


LEASE: Final = timedelta(seconds=5)
"""So long a process is left alone with a signal that it was given, or since it has said that it is still at it."""


async def due_signals(connection: Connection | Pool, limit: int, again_after: timedelta = LEASE) -> list[Signal]:
    """Up to `limit` signals that are to be offered, oldest first.

    One that is not settled within `again_after` is given out again, so that a process that dies in between loses
    nothing."""
    signals = [Signal(*row) for row in await connection.fetch(_DUE, limit, again_after)]
    return sorted(signals, key=lambda signal: signal.place)


async def keep_signal(connection: Connection | Pool, signal: Signal) -> None:
    """This process is still at it: it is given to no other one for another `LEASE`."""
    query = "UPDATE signals SET due_at = now() + $3 WHERE tenant = $1 AND id = $2 AND due_at IS NOT NULL"
    await connection.execute(query, signal.tenant, signal.id, LEASE)


_UNSETTLED_BEFORE: Final = f"""
SELECT {_SIGNAL} FROM signals
WHERE tenant = $1 AND type = $2 AND due_at IS NOT NULL AND undelivered IS NULL AND place < $3 ORDER BY place
"""


async def find_unsettled_before(connection: Connection | Pool, signal: Signal) -> list[Signal]:
    """The signals of the same type that were stored before and that are not offered yet, oldest first."""
    rows = await connection.fetch(_UNSETTLED_BEFORE, signal.tenant, signal.type, signal.place)
    return [Signal(*row) for row in rows]


async def settle_signal(connection: Connection | Pool, signal: Signal) -> None:
    """Every run that waited for the signal has been offered it. Settling twice is harmless."""
    query = "UPDATE signals SET due_at = NULL, undelivered = NULL WHERE tenant = $1 AND id = $2"
    await connection.execute(query, signal.tenant, signal.id)


async def put_off_signal(
    connection: Connection | Pool, signal: Signal, undelivered: Sequence[str], again_after: timedelta | None
) -> None:
    """The signal was offered to all but these. It is given out for them `again_after`, or (None) never again; its row
    goes on saying so."""
    query = """
    UPDATE signals SET due_at = now() + $4, undelivered = $3, tries = tries + 1 WHERE tenant = $1 AND id = $2
    """
    await connection.execute(query, signal.tenant, signal.id, list(undelivered), again_after)


# `IS TRUE`: so no index that begins with the tenant looks as good as the one that begins with the run.
_ITS_SUBSCRIBERS: Final = """
SELECT run_id, opened_seq, offered FROM subscriptions WHERE run_id = $3 AND type = $2 AND (tenant = $1) IS TRUE
ORDER BY opened_seq DESC LIMIT 1
"""
_ALL_SUBSCRIBERS: Final = """
SELECT DISTINCT ON (run_id) run_id, opened_seq, offered FROM subscriptions
WHERE tenant = $1 AND type = $2 AND $3::uuid IS NULL ORDER BY run_id, opened_seq DESC
"""


async def subscribers(connection: Connection | Pool, signal: Signal) -> list[Subscriber]:
    """The runs that wait for the signal's type now, or only its addressee, if that does. To be asked after the
    signal's own commit."""
    query = _ALL_SUBSCRIBERS if signal.run_id is None else _ITS_SUBSCRIBERS
    rows = await connection.fetch(query, signal.tenant, signal.type, signal.run_id)
    return [Subscriber(*row) for row in rows]


async def subscribe(
    connection: Connection | Pool,
    tenant: UUID,
    run_id: UUID,
    path: str,
    types: Mapping[str, bytes | None],
    opened_seq: int,
) -> None:
    """The step `path` of the run waits for signals of these types; with each, how far it was offered them. Twice is
    harmless, and so is an older one late."""
    query = """
    INSERT INTO subscriptions (run_id, path, type, tenant, opened_seq, offered)
    SELECT $2, $3, type, $1, $6, offered FROM unnest($4::text[], $5::bytea[]) AS each(type, offered)
    ON CONFLICT (run_id, path, type) DO UPDATE
      SET opened_seq = excluded.opened_seq, offered = excluded.offered
      WHERE subscriptions.opened_seq <= excluded.opened_seq
    """
    await connection.execute(query, tenant, run_id, path, list(types), list(types.values()), opened_seq)


async def unsubscribe(connection: Connection | Pool, run_id: UUID, type: str, opened_seq: int) -> None:
    """The run waits for the type no more. Subscriptions that it opened after the event `opened_seq` stay."""
    query = "DELETE FROM subscriptions WHERE run_id = $1 AND type = $2 AND opened_seq <= $3"
    await connection.execute(query, run_id, type, opened_seq)


# Each branch ends at an index of its own, in the order of places; where to begin is looked up by time once only.
_FOR_RUN: Final = f"""
SELECT s.* FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS w(type, to_all, own) CROSS JOIN LATERAL (
  (SELECT {_SIGNAL} FROM signals x
   WHERE x.tenant = $1 AND x.type = w.type AND x.run_id IS NULL AND x.place > coalesce(w.to_all, (
     SELECT min(y.place) - 1 FROM signals y
     WHERE y.tenant = $1 AND y.type = w.type AND y.run_id IS NULL AND y.sent_at >= $6))
   ORDER BY x.place LIMIT $7)
  UNION ALL
  (SELECT {_SIGNAL} FROM signals x
   WHERE x.run_id = $2 AND x.type = w.type AND (x.tenant = $1) IS TRUE AND x.place > w.own ORDER BY x.place LIMIT $7)
) s ORDER BY s.place LIMIT $7
"""


async def signals_for(
    connection: Connection | Pool,
    tenant: UUID,
    run_id: UUID,
    reaches: Collection[Reach],
    *,
    since: datetime,
    limit: int,
) -> list[Signal]:
    """Up to `limit` of the signals that the run has not read yet, oldest first: of these types, to it or to all.

    Of a type of which it has read nothing, those are passed over that were sent before `since`, but not always all."""
    types, to_all, own = (
        [each.type for each in reaches],
        [each.to_all for each in reaches],
        [each.own for each in reaches],
    )
    rows = await connection.fetch(_FOR_RUN, tenant, run_id, types, to_all, own, since, limit)
    return [Signal(*row) for row in rows]


async def signals_by_id(
    connection: Connection | Pool, tenant: UUID, run_id: UUID, ids: Collection[str]
) -> list[Signal]:
    """Those of the signals `ids` that are kept and that the run may take, oldest first."""
    query = f"""
    SELECT {_SIGNAL} FROM signals
    WHERE tenant = $1 AND id = ANY($3::text[]) AND (run_id IS NULL OR run_id = $2) ORDER BY place
    """
    return [Signal(*row) for row in await connection.fetch(query, tenant, run_id, list(ids))]


_ENDED: Final = "('finished', 'failed', 'stopped')"
LIVING: Final = ("queued", "running", "waiting", "paused", "stopping", "needs_attention")
# A row that was written since is another version, which the DELETE does not find: a run that was retried in this very
# moment may have subscribed again, and a signal may be due again.
_FORGET_SUBSCRIPTIONS: Final = f"""
WITH page AS MATERIALIZED (
  SELECT ctid AS place, run_id, path, type, opened_seq FROM subscriptions
  WHERE (run_id, path, type) > ($1, $2, $3) ORDER BY run_id, path, type LIMIT $4
), gone AS (
  DELETE FROM subscriptions WHERE ctid = ANY (ARRAY(
    SELECT place FROM page p
    WHERE (SELECT r.status IN {_ENDED} AND p.opened_seq <= r.seq FROM runs r WHERE r.id = p.run_id)))
  RETURNING true
)
SELECT count(*) OVER (), (SELECT count(*) FROM gone), run_id::text, path, type FROM page
ORDER BY page.run_id DESC, page.path DESC, page.type DESC LIMIT 1
"""
# No run that waits now, or will, could take them: they were sent before the oldest of the tenant's runs started.
# The files that the others name are kept, as if they had just been uploaded: no run refers to them yet.
_FORGET_SIGNALS: Final = """
WITH page AS MATERIALIZED (
  SELECT ctid AS place, tenant, id, sent_at, due_at,
    CASE WHEN position('file_'::bytea IN data) > 0 THEN convert_from(data, 'UTF8') END AS naming FROM signals
  WHERE (tenant, id) > ($1, $2) ORDER BY tenant, id LIMIT $3
), touched AS (
  UPDATE files f SET touched_at = now() FROM (
    SELECT DISTINCT tenant, decode(digest[1], 'hex') AS sha256 FROM page
    CROSS JOIN LATERAL regexp_matches(naming, 'file_([0-9a-f]{64})', 'g') AS digest) n
  WHERE f.tenant = n.tenant AND f.sha256 = n.sha256
), live AS MATERIALIZED (
  SELECT t.tenant, (
    SELECT min(o.created_at) FROM unnest($5::text[]) l(status) CROSS JOIN LATERAL (
      SELECT r.created_at FROM runs r WHERE r.tenant = t.tenant AND r.status = l.status
      ORDER BY r.created_at LIMIT 1) o) AS oldest
  FROM (SELECT DISTINCT tenant FROM page) t
), gone AS (
  DELETE FROM signals WHERE ctid = ANY (ARRAY(
    SELECT p.place FROM page p JOIN live ON live.tenant = p.tenant
    WHERE p.due_at IS NULL AND p.sent_at < now() - $4::interval AND (live.oldest IS NULL OR p.sent_at < live.oldest)))
  RETURNING true
)
SELECT count(*) OVER (), (SELECT count(*) FROM gone), tenant::text, id FROM page
ORDER BY page.tenant DESC, page.id DESC LIMIT 1
"""
_NIL: Final = UUID(int=0)


async def forget_subscriptions(connection: Connection | Pool, after: list[Any] | None = None) -> Page:
    """Remove subscriptions of runs that have ended, of a page of them."""
    run_id, path, type = after or (_NIL, "", "")
    row = await connection.fetchrow(_FORGET_SUBSCRIPTIONS, UUID(str(run_id)), path, type, PAGE_ROWS)
    return build_page(row)


async def delete_old_signals(
    connection: Connection | Pool, after: list[Any] | None = None, kept_for: timedelta = timedelta(days=1)
) -> Page:
    """Remove signals that no run can take any more, of a page of them.

    A signal's id is known for at least `kept_for`: so long the same one again is recognised. A file that a signal names
    stays with it, where all pages come by more often than unused files are removed."""
    tenant, id = after or (_NIL, "")
    row = await connection.fetchrow(_FORGET_SIGNALS, UUID(str(tenant)), id, PAGE_ROWS, kept_for, LIVING)
    return build_page(row)
