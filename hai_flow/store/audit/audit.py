"""The audit in the database (`audit_chain` has the meaning of its rows). A record is a row of the transaction of the
act itself, only inserted, so no act waits for another one. The *sealer* chains committed records without a seal, one
process at a time. It finds them in a queue, never behind a watermark: commits do not become visible in the order of
their ids."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from hai_flow.primitives import instants, uuids
from hai_flow.store.audit.audit_chain import (
    FORGOTTEN,
    Anchor,
    ChainLink,
    ChainRecord,
    Details,
    Fault,
    Seal,
    Verifier,
    genesis,
    hash_seal,
    read_erased_commitments,
)
from hai_flow.store.commit.entries import AuditRow
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs.run_bundle import snapshot

LOCK_KEY: Final = 0x4841_4941_5544_4954  # "HAIAUDIT"
SEALED_AT_ONCE: Final = 1000
READ_AT_ONCE: Final = 1000

# Exact: a datetime of Python's can't hold all that a timestamp of PostgreSQL's can.
_AT: Final = "CASE WHEN isfinite({0}) THEN (extract(epoch FROM {0}) * 1000000)::bigint ELSE -1 END"
_RECORD: Final = (
    f"a.tenant, a.id, {_AT.format('a.at')}, a.act, a.run_id, a.seq, a.head, a.subject, a.digest, a.commitment"
)
_DETAILS: Final = f"d.principal, d.salt, d.body, CASE WHEN d.erased_at IS NOT NULL THEN {_AT.format('d.erased_at')} END"
_JOINED: Final = "LEFT JOIN audit_details d ON d.tenant = a.tenant AND d.id = a.id"


def _record(row: Sequence[Any]) -> ChainRecord | None:
    tenant, id, at, act, run_id, seq, head, subject, digest, commitment = row
    if id is None:
        return None
    return ChainRecord(
        tenant=tenant, id=id, at=at, act=act, run_id=run_id, seq=seq, head=head, subject=subject, digest=digest,
        commitment=commitment,
    )  # fmt: skip


def _details(row: Sequence[Any]) -> Details | None:
    return None if row[0] is None else Details(*row)


# --- writing ------------------------------------------------------------------------------------------------------

_WRITE: Final = """
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::text[], $8::bytea[],
    $9::bytea[]) AS given(id, act, subject, digest, commitment, principal, salt, body)
), new_audit AS (
  INSERT INTO audit (tenant, id, at, act, run_id, subject, digest, commitment)
  SELECT $1, id, clock_timestamp(), act, $10, subject, digest, commitment FROM given
)
INSERT INTO audit_details (tenant, id, principal, salt, body) SELECT $1, id, principal, salt, body FROM given
"""


async def write(
    connection: Connection | Pool, tenant: UUID, rows: Sequence[AuditRow], *, run_id: UUID | None = None
) -> None:
    """Write records, in the transaction of their acts."""
    columns = zip(
        *((a.id, a.act, a.subject, a.digest, a.commitment, a.principal, a.salt, a.body) for a in rows), strict=True
    )
    await connection.execute(_WRITE, tenant, *columns, run_id)


@asynccontextmanager
async def record_act(pool: Pool, tenant: UUID, row: AuditRow | None) -> AsyncGenerator[Connection]:
    """The transaction of an act. It ends with the record `row`; None: no person did the act, so there is no record."""
    async with pool.acquire() as connection, connection.transaction():
        yield connection
        if row is not None:
            await write(connection, tenant, [row])


# --- sealing ------------------------------------------------------------------------------------------------------

_UNSEALED: Final = f"""
SELECT {_RECORD}, s.n IS NOT NULL FROM audit_unsealed u
JOIN audit a ON a.tenant = u.tenant AND a.id = u.id
LEFT JOIN audit_seals s ON s.tenant = u.tenant AND s.id = u.id
ORDER BY u.tenant, u.id LIMIT {SEALED_AT_ONCE}
"""
_ENDS: Final = """
SELECT given.tenant, newest.n, newest.hash FROM unnest($1::uuid[]) AS given(tenant)
CROSS JOIN LATERAL (
  SELECT n, hash FROM audit_seals s WHERE s.tenant = given.tenant ORDER BY n DESC LIMIT 1
) newest
"""
_SEAL: Final = """
WITH sealed AS (
  INSERT INTO audit_seals (tenant, n, id, hash) SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[])
)
DELETE FROM audit_unsealed u USING unnest($5::uuid[], $6::uuid[]) AS done(tenant, id)
WHERE u.tenant = done.tenant AND u.id = done.id
"""


_QUEUES: Final = """
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('audit') AND tgname = 'audit_queued')
"""
_QUEUE: Final = """
INSERT INTO audit_unsealed (tenant, id)
SELECT found.tenant, found.id FROM tenants t CROSS JOIN LATERAL (
  SELECT a.tenant, a.id FROM audit a LEFT JOIN audit_seals s ON s.tenant = a.tenant AND s.id = a.id
  WHERE a.tenant = t.id AND a.id >= $1 AND s.id IS NULL) found
ON CONFLICT DO NOTHING
"""


async def is_self_queued(pool: Pool) -> bool:
    """Whether a record queues itself to be sealed. Not where Citus keeps the schema: it has no triggers."""
    return bool(await pool.fetchval(_QUEUES))


async def queue(pool: Pool, since_ms: int) -> None:
    """Queue the records from then on that have no seal. Earlier ones are in their tenant's chain already."""
    await pool.execute(_QUEUE, uuids.uuid7(max(0, since_ms), 0))


async def seal(pool: Pool) -> int | None:
    """Chain up to `SEALED_AT_ONCE` records that are committed and have no seal, each behind the end of its tenant's
    chain; returns how many there were. None: another process is sealing."""
    async with pool.acquire() as connection, connection.transaction():
        if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", LOCK_KEY):
            return None
        rows = await connection.fetch(_UNSEALED)
        unsealed = [(record, row[10]) for row in rows if (record := _record(row[:10])) is not None]
        if not unsealed:
            return 0
        tenants = sorted({record.tenant for record, _ in unsealed})
        ends = {tenant: (n, hash) for tenant, n, hash in await connection.fetch(_ENDS, tenants)}
        seals: list[tuple[UUID, int, UUID, bytes]] = []
        for tenant, of_tenant in groupby(unsealed, key=lambda each: each[0].tenant):
            n, hash = ends.get(tenant, (0, genesis(tenant)))
            for record, sealed in of_tenant:
                if not sealed:
                    n, hash = n + 1, hash_seal(hash, n + 1, record)
                    seals.append((tenant, n, record.id, hash))
        columns = zip(*seals, strict=True) if seals else ([], [], [], [])
        done = zip(*((record.tenant, record.id) for record, _ in unsealed), strict=True)
        await connection.execute(_SEAL, *columns, *done)
        return len(unsealed)


# --- reading ------------------------------------------------------------------------------------------------------


async def tenants(pool: Pool) -> list[UUID]:
    query = """
    SELECT tenant FROM audit_seals UNION SELECT tenant FROM audit UNION SELECT tenant FROM audit_unsealed
    UNION SELECT tenant FROM audit_details ORDER BY tenant
    """
    return [tenant for (tenant,) in await pool.fetch(query)]


async def anchors(pool: Pool, of: Sequence[UUID]) -> list[Anchor]:
    """The ends of these tenants' chains, as far as they have one."""
    return [Anchor(tenant, n, hash.hex()) for tenant, n, hash in await pool.fetch(_ENDS, list(of))]


async def links(pool: Connection | Pool, tenant: UUID, *, after: int, limit: int) -> list[ChainLink]:
    """The links of a chain behind the place `after`, in their order."""
    query = f"""
    SELECT s.n, s.id, s.hash, {_RECORD}, {_DETAILS} FROM audit_seals s
    LEFT JOIN audit a ON a.tenant = s.tenant AND a.id = s.id {_JOINED}
    WHERE s.tenant = $1 AND s.n > $2 ORDER BY s.n LIMIT $3
    """
    rows = await pool.fetch(query, tenant, after, limit)
    return [ChainLink(Seal(row[0], row[1], row[2]), _record(row[3:13]), _details(row[13:])) for row in rows]


async def read_erased(pool: Connection | Pool, tenant: UUID) -> dict[UUID, bytes]:
    """The details that were erased, as the records of erasing account for them."""
    return await _read_erased(pool, tenant)


async def _read_erased(pool: Connection | Pool, tenant: UUID) -> dict[UUID, bytes]:
    query = f"""
    SELECT {_RECORD}, {_DETAILS} FROM audit a {_JOINED} LEFT JOIN audit_seals s ON s.tenant = a.tenant AND s.id = a.id
    WHERE a.tenant = $1 AND a.act = $2 ORDER BY s.n DESC NULLS FIRST, a.id DESC
    """
    rows = await pool.fetch(query, tenant, FORGOTTEN)
    return read_erased_commitments(
        (record, _details(row[10:])) for row in rows if (record := _record(row[:10])) is not None
    )


class AuditFilter(NamedTuple):
    """Which records a list shows: None wants all. `until` is the first moment that is too late, `before` the id of the
    last record of the page before."""

    principal: str | None = None
    act: str | None = None
    run_id: UUID | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: UUID | None = None


class ListedRecord(NamedTuple):
    """A record of a list; `n` is its place in the chain, None while it has none."""

    record: ChainRecord
    details: Details | None
    n: int | None


# Ids begin with a time of the process that made them, which is not the database's: so much may lie between.
_SKEW: Final = timedelta(hours=1)


async def list_records(pool: Pool, tenant: UUID, wanted: AuditFilter, *, limit: int) -> list[ListedRecord]:
    """A tenant's records, newest first."""
    conditions, arguments = ["a.tenant = $1"], [tenant]

    def where(condition: str, argument: Any) -> None:
        arguments.append(argument)
        conditions.append(condition.format(f"${len(arguments)}"))

    for column, value in (("d.principal", wanted.principal), ("a.act", wanted.act), ("a.run_id", wanted.run_id)):
        if value is not None:
            where(column + " = {}", value)
    if wanted.principal is not None:
        conditions.append("d.tenant = $1")
    if wanted.subject is not None:
        where("a.subject = {}", wanted.subject)
    if wanted.since is not None:
        where("a.at >= {}", wanted.since)
        where("a.id >= {}", uuids.uuid7(max(0, instants.milliseconds(wanted.since - _SKEW)), 0))
    if wanted.until is not None:
        where("a.at < {}", wanted.until)
        where("a.id < {}", uuids.uuid7(max(0, instants.milliseconds(wanted.until + _SKEW)), 0))
    if wanted.before is not None:
        where("a.id < {}", wanted.before)
    query = f"""
    SELECT {_RECORD}, {_DETAILS}, s.n FROM audit a {_JOINED}
    LEFT JOIN audit_seals s ON s.tenant = a.tenant AND s.id = a.id
    WHERE {" AND ".join(conditions)} ORDER BY a.id DESC LIMIT {int(limit)}
    """
    rows = await pool.fetch(query, *arguments)
    return [
        ListedRecord(record, _details(row[10:14]), row[14]) for row in rows if (record := _record(row[:10])) is not None
    ]


async def list_seals(pool: Connection | Pool, tenant: UUID, run_id: UUID, subject: str) -> list[dict[str, Any] | None]:
    """The seal of each record of the run about `subject`, oldest first: `n`, its place in the tenant's chain, and
    `hash`, in hexadecimal. None: it is not sealed yet."""
    query = """
    SELECT s.n, s.hash FROM audit a LEFT JOIN audit_seals s ON s.tenant = a.tenant AND s.id = a.id
    WHERE a.tenant = $1 AND a.run_id = $2 AND a.subject = $3 ORDER BY a.id
    """
    rows = await pool.fetch(query, tenant, run_id, subject)
    return [None if n is None else {"n": n, "hash": hash.hex()} for n, hash in rows]


class Loose(NamedTuple):
    """Rows that are in no chain: `waiting` for the sealer; the others are faults. `unqueued` records have no seal and
    will get none, of `recordless` only a place in the queue or the details are left."""

    waiting: int
    unqueued: Sequence[UUID]
    recordless: Sequence[UUID]


async def loose(pool: Connection | Pool, tenant: UUID) -> Loose:
    """The rows of a tenant's audit that are in no chain; of the lists the first hundred."""
    waiting = await pool.fetchval(
        "SELECT count(*) FROM audit_unsealed u JOIN audit a ON a.tenant = u.tenant AND a.id = u.id WHERE u.tenant = $1",
        tenant,
    )
    unqueued = """
    SELECT a.id FROM audit a
    LEFT JOIN audit_seals s ON s.tenant = a.tenant AND s.id = a.id
    LEFT JOIN audit_unsealed u ON u.tenant = a.tenant AND u.id = a.id
    WHERE a.tenant = $1 AND s.id IS NULL AND u.id IS NULL ORDER BY a.id LIMIT 100
    """
    recordless = """
    SELECT left_over.id FROM (
      SELECT tenant, id FROM audit_details UNION SELECT tenant, id FROM audit_unsealed
    ) left_over
    LEFT JOIN audit a ON a.tenant = left_over.tenant AND a.id = left_over.id
    LEFT JOIN audit_seals s ON s.tenant = left_over.tenant AND s.id = left_over.id
    WHERE left_over.tenant = $1 AND a.id IS NULL AND s.id IS NULL ORDER BY left_over.id LIMIT 100
    """
    return Loose(
        waiting,
        [id for (id,) in await pool.fetch(unqueued, tenant)],
        [id for (id,) in await pool.fetch(recordless, tenant)],
    )


class Verified(NamedTuple):
    """The result of verifying a tenant's audit: how far the chain goes, and where it ends; `waiting` records that the
    sealer will chain, which nothing proves yet; and every fault."""

    end: Anchor
    waiting: int
    faults: Sequence[Fault]


async def verify(pool: Connection | Pool, tenant: UUID, anchors: Iterable[Anchor] = ()) -> Verified:
    """Check a tenant's whole audit, against the anchors that are there, in pages. (With a connection, of the caller's
    transaction.) Somebody may be forgotten meanwhile: then details that are erased already stand beside records that do
    not say so yet. So faults are believed only if one snapshot of the whole audit has them, too; an audit without
    faults holds no snapshot open, which would keep the database from tidying up."""
    anchors = tuple(anchors)
    verified = await _verify(pool, tenant, await read_erased(pool, tenant), anchors)
    if not verified.faults or not isinstance(pool, asyncpg.Pool):
        return verified
    async with pool.acquire() as connection, snapshot(connection):
        return await _verify(connection, tenant, await _read_erased(connection, tenant), anchors)


async def _verify(
    connection: Connection | Pool, tenant: UUID, erased_records: Mapping[UUID, bytes], anchors: Iterable[Anchor]
) -> Verified:
    verifier = Verifier(tenant, erased_records, anchors)
    faults: list[Fault] = []
    after = 0
    while page := await links(connection, tenant, after=after, limit=READ_AT_ONCE):
        for link in page:
            faults += verifier.check(link)
        after = page[-1].seal.n
    faults += verifier.finish()
    unsealed = await loose(connection, tenant)
    for id in unsealed.unqueued:
        why = f"the record {id} is in no chain, and does not wait for its place: its seal, or its wait, was removed"
        faults.append(Fault(tenant, None, "unsealed", why))
    for id in unsealed.recordless:
        faults.append(Fault(tenant, None, "removed", f"the record {id} is gone; other rows of it are there"))
    return Verified(Anchor(tenant, verifier.n, verifier.hash.hex()), unsealed.waiting, faults)
