"""Records of the audit come with what they are about, a sealer chains them, and what is changed later is found."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import (
    ChainLink,
    ChainRecord,
    Details,
    Fault,
    Seal,
    Verifier,
    commitment,
    genesis,
    hash_seal,
    new_row,
)
from hai_flow.store.commit.entries import AuditRow
from hai_flow.store.identity import erasure
from hai_flow.store.postgres.database import Database
from tests.store.conftest import STRANGER, TENANT, birth, commit, decision, win
from tests.support.examples import examples
from tests.support.waiting import until

Connection = asyncpg.Connection


@pytest.fixture
async def eye(database_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


def row(act: str = "run.paused", who: str = "user:ann", **details: Any) -> AuditRow:
    return new_row(act, who, {"reason": "because", **details}, subject="pending:p1", digest=b"d" * 32)


async def written(db: Database, count: int, tenant: UUID = TENANT) -> None:
    """So many records, sealed."""
    await audit.write(db.api, tenant, [row(n=n) for n in range(count)])
    while await audit.seal(db.api):
        pass


async def found(db: Database, tenant: UUID = TENANT, **how: Any) -> list[str]:
    return [fault.code for fault in (await audit.verify(db.api, tenant, **how)).faults]


# --- writing ------------------------------------------------------------------------------------------------------


async def test_a_record_is_written_by_its_acts_commit_with_the_runs_head(db: Database, eye: Any) -> None:
    run_id = uuid4()
    await win(db, birth(run_id, audit=[row("run.started")]))
    await win(db, decision(run_id, 1, n=2, audit=[row("run.paused"), row("run.resumed", "user:bob")]))
    head = await eye.fetchval("SELECT head FROM runs WHERE id = $1", run_id)
    records = await eye.fetch("SELECT act, run_id, seq, head, subject FROM audit ORDER BY id")
    assert [(each["act"], each["seq"]) for each in records] == [
        ("run.started", 1),
        ("run.paused", 3),
        ("run.resumed", 3),
    ]
    assert {each["run_id"] for each in records} == {run_id}
    assert records[2]["head"] == records[1]["head"] == head != records[0]["head"]
    assert await eye.fetchval("SELECT count(*) FROM audit_unsealed") == 3
    assert await audit.seal(db.api) == 3
    assert await audit.seal(db.api) == 0
    assert (await audit.verify(db.api, TENANT)).end.n == 3
    assert await found(db) == []


async def test_an_entry_that_loses_leaves_no_record(db: Database, eye: Any) -> None:
    run_id, other = uuid4(), uuid4()
    await win(db, birth(run_id), birth(other))
    outcomes = await commit(
        db, decision(run_id, 7, audit=[row("run.stopped")]), decision(other, 1, audit=[row("run.paused")])
    )
    assert [each is None for each in outcomes] == [True, False]
    assert [tuple(each) for each in await eye.fetch("SELECT act, run_id FROM audit")] == [("run.paused", other)]
    assert await eye.fetchval("SELECT count(*) FROM audit_details") == 1


async def test_a_big_batch_writes_the_records_of_each_of_its_runs(db: Database, eye: Any) -> None:
    ids = [uuid4() for _ in range(40)]
    await win(db, *(birth(id, audit=[row(who=f"user:{n}")] if n % 3 else []) for n, id in enumerate(ids)))
    stored = await eye.fetch("SELECT run_id, principal FROM audit JOIN audit_details USING (tenant, id)")
    assert {tuple(each) for each in stored} == {(id, f"user:{n}") for n, id in enumerate(ids) if n % 3}


APPEND_ONLY = [
    "UPDATE audit SET act = 'x'",
    "DELETE FROM audit",
    "TRUNCATE audit",
    "UPDATE audit_seals SET hash = ''",
    "DELETE FROM audit_seals",
    "TRUNCATE audit_seals",
    "DELETE FROM audit_details",
    "TRUNCATE audit_details",
    "UPDATE audit_details SET body = '{}'",
    "UPDATE audit_details SET id = gen_random_uuid(), erased_at = now()",
]


@pytest.mark.parametrize("statement", APPEND_ONLY)
async def test_the_database_refuses_to_change_or_remove_what_is_written(db: Database, eye: Any, statement: str) -> None:
    await written(db, 2)
    with pytest.raises(asyncpg.RestrictViolationError):
        await eye.execute(statement)
    assert await found(db) == []


# --- sealing ------------------------------------------------------------------------------------------------------


async def test_each_tenant_has_a_chain_of_its_own(db: Database) -> None:
    await audit.write(db.api, TENANT, [row()])
    await audit.write(db.api, STRANGER, [row(), row()])
    assert await audit.seal(db.api) == 3
    await written(db, 2)
    assert [(await audit.verify(db.api, each)).end.n for each in (TENANT, STRANGER)] == [3, 2]
    assert await audit.tenants(db.api) == [TENANT, STRANGER]
    assert await found(db) == await found(db, STRANGER) == []


async def test_a_late_visible_record_is_sealed_after_those_behind_it(db: Database, eye: Any) -> None:
    late = row()
    transaction = eye.transaction()
    await transaction.start()
    await audit.write(eye, TENANT, [late])
    await written(db, 2)
    await transaction.commit()
    assert await audit.seal(db.api) == 1
    ids = [link.seal.id for link in await audit.links(db.api, TENANT, after=0, limit=9)]
    assert ids[2] == late.id < min(ids[:2])
    assert await found(db) == []


async def test_two_sealers_make_one_chain(db: Database) -> None:
    await audit.write(db.api, TENANT, [row() for _ in range(2500)])

    async def sealer() -> int:
        count = 0
        while await db.api.fetchval("SELECT count(*) FROM audit_unsealed"):
            count += await audit.seal(db.api) or 0
        return count

    assert sum(await asyncio.gather(sealer(), sealer(), sealer())) == 2500
    verified = await audit.verify(db.api, TENANT)
    assert (verified.end.n, verified.waiting, verified.faults) == (2500, 0, [])


class Killed(Exception):
    pass


class Dying:
    """A pool whose connection is lost before its n-th statement."""

    def __init__(self, dsn: str, after: int) -> None:
        self.dsn, self.left = dsn, after

    def acquire(self) -> Any:
        return self

    async def __aenter__(self) -> Any:
        self.connection = await asyncpg.connect(self.dsn)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.connection.terminate()

    def transaction(self) -> Any:
        return self.connection.transaction()

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any) -> Any:
            if self.left == 0:
                self.connection.terminate()
                raise Killed
            self.left -= 1
            return await getattr(self.connection, name)(*given)

        return call


@pytest.mark.parametrize("after", range(4))
async def test_a_sealer_that_is_killed_at_any_point_leaves_nothing_half_done(
    db: Database, database_url: str, after: int
) -> None:
    await written(db, 2)
    await audit.write(db.api, TENANT, [row() for _ in range(3)])
    with pytest.raises((Killed, asyncpg.InterfaceError, OSError)):
        await audit.seal(Dying(database_url, after))  # type: ignore[arg-type]
    verified = await audit.verify(db.api, TENANT)
    assert (verified.end.n, verified.waiting, verified.faults) == (2, 3, [])

    async def sealed() -> bool:  # the server has yet to notice that the line is gone
        return await audit.seal(db.api) == 3

    await until(sealed)
    assert await found(db) == []


async def test_a_place_in_the_queue_that_comes_back_is_not_sealed_twice(db: Database, eye: Any) -> None:
    await written(db, 2)
    await eye.execute("INSERT INTO audit_unsealed (tenant, id) SELECT tenant, id FROM audit")
    assert await audit.seal(db.api) == 2
    assert (await audit.verify(db.api, TENANT)).end.n == 2


# --- tampering ----------------------------------------------------------------------------------------------------

BYTES: Final = {"audit": ("head", "digest", "commitment"), "audit_details": ("salt", "body"), "audit_seals": ("hash",)}
TEXTS: Final = {"audit": ("act", "subject"), "audit_details": ("principal",)}
IDS: Final = {"audit": ("id", "tenant", "run_id"), "audit_details": ("id", "tenant"), "audit_seals": ("id", "tenant")}
OTHERS: Final = [
    "UPDATE audit SET at = at + interval '1 microsecond' {where}",
    "UPDATE audit SET at = 'infinity' {where}",
    "UPDATE audit SET at = '200000-01-01' {where}",
    "UPDATE audit SET seq = coalesce(seq, 0) + 1 {where}",
    "UPDATE audit SET run_id = NULL {where}",
    "UPDATE audit SET subject = NULL {where}",
    "UPDATE audit_details SET erased_at = now() {where}",
    "UPDATE audit_seals SET n = n + 1000 {where}",
    "DELETE FROM audit {where}",
    "DELETE FROM audit_details {where}",
    "DELETE FROM audit_seals {where}",
]
COUNT: Final = 30


def flip(chance: random.Random, value: bytes) -> bytes:
    place = chance.randrange(len(value))
    return value[:place] + bytes([value[place] ^ 1 << chance.randrange(8)]) + value[place + 1 :]


async def tamper(eye: Connection, chance: random.Random) -> str:
    """Change, remove or swap something at random; returns what. As a superuser, whom no trigger stops."""
    ids = [each["id"] for each in await eye.fetch("SELECT id FROM audit_seals WHERE tenant = $1 ORDER BY n", TENANT)]
    id = chance.choice(ids)
    where = f"WHERE tenant = '{TENANT}' AND id = '{id}'"
    kind = chance.choice(["bytes", "bytes", "bytes", "text", "id", "other", "other", "swap", "cut"])
    if kind in ("bytes", "text", "id"):
        columns = {"bytes": BYTES, "text": TEXTS, "id": IDS}[kind]
        table = chance.choice(list(columns))
        column = chance.choice(columns[table])
        value = await eye.fetchval(f"SELECT {column} FROM {table} {where}")
        if kind == "bytes":
            changed: Any = flip(chance, value)
        elif kind == "id":
            changed = uuid4()
        else:
            place = chance.randrange(len(value))
            changed = value[:place] + chr(ord(value[place]) ^ 1) + value[place + 1 :]
        await eye.execute(f"UPDATE {table} SET {column} = $1 {where}", changed)
        return f"{table}.{column}"
    if kind == "swap":
        one, other = chance.sample(range(1, len(ids) + 1), 2)
        swap = "UPDATE audit_seals SET id = $3 WHERE tenant = $1 AND n = $2"
        await eye.execute("DROP INDEX audit_seals_by_record")
        await eye.execute(swap, TENANT, one, ids[other - 1])
        await eye.execute(swap, TENANT, other, ids[one - 1])
        return f"swap {one} {other}"
    if kind == "cut":
        n = chance.randint(1, len(ids))
        for table in ("audit", "audit_details"):
            await eye.execute(
                f"DELETE FROM {table} USING audit_seals s WHERE {table}.tenant = s.tenant AND {table}.id = s.id "
                "AND s.tenant = $1 AND s.n >= $2",
                TENANT,
                n,
            )
        await eye.execute("DELETE FROM audit_seals WHERE tenant = $1 AND n >= $2", TENANT, n)
        return f"cut at {n}"
    statement = chance.choice(OTHERS).format(where=where)
    await eye.execute(statement)
    return statement


@pytest.mark.costly
async def test_of_a_thousand_random_changes_a_thousand_are_found(db: Database, eye: Any) -> None:
    run_id = uuid4()
    await win(db, birth(run_id, audit=[row() for _ in range(COUNT)]))
    await audit.write(db.api, STRANGER, [row()])
    await audit.seal(db.api)
    (anchor,) = await audit.anchors(db.api, [TENANT])
    assert await found(db, anchors=[anchor]) == []
    await eye.execute("SET session_replication_role = replica")
    chance = random.Random(15)
    for number in range(1000):
        transaction = eye.transaction()
        await transaction.start()
        what = await tamper(eye, chance)
        verified = await audit.verify(_Pooled(eye), TENANT, [anchor])  # type: ignore[arg-type]
        await transaction.rollback()
        assert verified.faults, f"change {number} was not found: {what}"
    assert await found(db, anchors=[anchor]) == []


class _Pooled:
    """The statements of a connection in a transaction, as those of a pool."""

    def __init__(self, connection: Connection) -> None:
        self.fetch, self.fetchval = connection.fetch, connection.fetchval


async def after(eye: Any, *statements: str) -> None:
    await eye.execute("SET session_replication_role = replica")
    for statement in statements:
        await eye.execute(statement)


async def faults(db: Database, **how: Any) -> list[tuple[int | None, str]]:
    return [(fault.n, fault.code) for fault in (await audit.verify(db.api, TENANT, **how)).faults]


async def test_a_changed_byte_is_named_at_its_place(db: Database, eye: Any) -> None:
    await written(db, 6)
    await after(eye, "UPDATE audit a SET act = 'run.Paused' FROM audit_seals s WHERE s.id = a.id AND s.n = 3")
    assert await faults(db) == [(3, "changed")]


async def test_a_removed_row_is_named_at_its_place(db: Database, eye: Any) -> None:
    await written(db, 6)
    await after(eye, "DELETE FROM audit a USING audit_seals s WHERE s.id = a.id AND s.n = 3")
    assert await faults(db) == [(3, "removed")]


async def test_a_row_that_is_removed_with_its_seal_is_named_at_its_place(db: Database, eye: Any) -> None:
    await written(db, 6)
    await after(
        eye,
        "DELETE FROM audit a USING audit_seals s WHERE s.id = a.id AND s.n IN (3, 4)",
        "DELETE FROM audit_details a USING audit_seals s WHERE s.id = a.id AND s.n IN (3, 4)",
        "DELETE FROM audit_seals WHERE n IN (3, 4)",
    )
    (fault,) = (await audit.verify(db.api, TENANT)).faults
    assert (fault.n, fault.code) == (3, "removed")
    assert "3 to 4" in fault.message


async def test_a_reordered_pair_is_named_as_such(db: Database, eye: Any) -> None:
    await written(db, 6)
    ids = [link.seal.id for link in await audit.links(db.api, TENANT, after=0, limit=9)]
    await after(
        eye,
        "DROP INDEX audit_seals_by_record",
        f"UPDATE audit_seals SET id = '{ids[3]}' WHERE n = 3",
        f"UPDATE audit_seals SET id = '{ids[2]}' WHERE n = 4",
    )
    assert await faults(db) == [(3, "reordered")]


async def test_changed_details_are_named_at_their_place(db: Database, eye: Any) -> None:
    await written(db, 3)
    await after(eye, "UPDATE audit_details d SET principal = 'user:eve' FROM audit_seals s WHERE s.id = d.id AND n = 2")
    assert await faults(db) == [(2, "details_changed")]


async def test_an_end_that_was_cut_off_is_found_with_an_anchor_and_only_so(db: Database, eye: Any) -> None:
    await written(db, 6)
    anchors = await audit.anchors(db.api, [TENANT])
    await after(
        eye,
        "DELETE FROM audit a USING audit_seals s WHERE s.id = a.id AND s.n > 4",
        "DELETE FROM audit_details a USING audit_seals s WHERE s.id = a.id AND s.n > 4",
        "DELETE FROM audit_seals WHERE n > 4",
    )
    assert await faults(db) == []
    assert await faults(db, anchors=anchors) == [(4, "cut_off")]


async def test_a_chain_that_was_made_anew_is_found_with_an_anchor(db: Database, eye: Any) -> None:
    await written(db, 6)
    anchors = await audit.anchors(db.api, [TENANT])
    await after(
        eye,
        "UPDATE audit SET act = 'run.resumed'",
        "INSERT INTO audit_unsealed SELECT tenant, id FROM audit_seals",
        "DELETE FROM audit_seals",
    )
    assert await audit.seal(db.api) == 6
    assert await faults(db) == []
    assert await faults(db, anchors=anchors) == [(6, "rewritten")]


async def test_a_record_that_was_taken_out_of_the_queue_is_named(db: Database, eye: Any) -> None:
    await audit.write(db.api, TENANT, [row(), row()])
    assert (await audit.verify(db.api, TENANT)).waiting == 2
    await after(eye, "DELETE FROM audit_unsealed WHERE id = (SELECT id FROM audit ORDER BY id LIMIT 1)")
    verified = await audit.verify(db.api, TENANT)
    assert (verified.waiting, [each.code for each in verified.faults]) == (1, ["unsealed"])


# --- the chain by itself -------------------------------------------------------------------------------------------


def chain(count: int, tenant: UUID = TENANT) -> list[ChainLink]:
    links, hash = [], genesis(tenant)
    for n in range(1, count + 1):
        details = Details(f"user:{n % 7}", b"s" * 16, b"{}")
        record = ChainRecord(tenant=tenant, id=UUID(int=n), at=n, act="run.paused", commitment=commitment(details))
        hash = hash_seal(hash, n, record)
        links.append(ChainLink(Seal(n, record.id, hash), record, details))
    return links


def check(links: list[ChainLink]) -> list[Fault]:
    verifier = Verifier(TENANT, {})
    return [*(fault for link in links for fault in verifier.check(link)), *verifier.finish()]


FIELDS = [name for name in ChainRecord.__struct_fields__ if name != "at"]
CHANGES: dict[str, Callable[[Any], Any]] = {
    "act": lambda act: act + "x",
    "run_id": lambda _: UUID(int=9),
    "seq": lambda _: 0,
    "head": lambda _: b"",
    "subject": lambda _: "",
    "digest": lambda _: b"",
    "commitment": lambda digest: digest[1:] + b"\0",
    "id": lambda _: UUID(int=10**9),
    "tenant": lambda _: STRANGER,
    "at": lambda at: at + 1,
}


@given(st.integers(1, 12), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_any_field_of_any_record_is_part_of_the_chain(count: int, data: st.DataObject) -> None:
    links = chain(count)
    assert check(links) == []
    place = data.draw(st.integers(0, count - 1))
    field = data.draw(st.sampled_from(sorted(CHANGES)))
    record = links[place].record
    assert record is not None
    changed = msgspec.structs.replace(record, **{field: CHANGES[field](getattr(record, field))})
    links[place] = msgspec.structs.replace(links[place], record=changed)
    assert [(fault.n, fault.code) for fault in check(links)][:1] == [(place + 1, "changed")]


@given(st.lists(st.binary(max_size=6), min_size=2, max_size=4), st.integers(0, 3))
def test_no_two_records_have_the_same_bytes(parts: list[bytes], cut: int) -> None:
    whole = b"".join(parts)
    for at in range(len(whole)):
        one = ChainRecord(tenant=TENANT, id=TENANT, at=0, act="x", head=whole[:at], digest=whole[at:])
        other = ChainRecord(tenant=TENANT, id=TENANT, at=0, act="x", head=whole[: at + 1], digest=whole[at + 1 :])
        assert hash_seal(b"", 1, one) != hash_seal(b"", 1, other)


@pytest.mark.costly
def test_a_hundred_thousand_records_are_checked_in_linear_time() -> None:
    links = chain(100_000)

    def seconds(count: int) -> float:
        began = time.process_time()
        assert check(links[:count]) == []
        return time.process_time() - began

    seconds(1000)
    ratio = seconds(100_000) / max(min(seconds(10_000) for _ in range(3)), 1e-6)
    print(f"a chain ten times as long took {ratio:.1f} times as long")


async def test_verify_finds_nothing_wrong_while_somebody_is_forgotten(
    db: Database, eye: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their details are erased between the page that accounts for erasures and the one with the details."""
    await written(db, 3)
    erased = audit.read_erased

    async def forgotten_meanwhile(connection: Any, tenant: UUID) -> Any:
        accounted = await erased(connection, tenant)
        assert (await erasure.forget(eye, TENANT, "user:ann", by="user:op")).records == 3
        await audit.seal(db.api)
        return accounted

    monkeypatch.setattr(audit, "read_erased", forgotten_meanwhile)
    assert await found(db) == []
    monkeypatch.setattr(audit, "read_erased", erased)
    assert await found(db) == []
