"""Forgetting a person leaves the audit verifiable, and nothing else that says who it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import FORGOTTEN, Details, commitment, new_row
from hai_flow.store.commit.entries import PendingRow
from hai_flow.store.identity import erasure, keys
from hai_flow.store.identity.tenants import create_tenant
from hai_flow.store.people import delegations, feedback, inbox, notifications
from hai_flow.store.people.delegations import Delegation
from hai_flow.store.people.feedback import Opinion, Subject
from hai_flow.store.postgres.database import Database
from tests.store.conftest import birth, win
from tests.support.postgres import connecting
from tests.support.values import require

ANN, BOB, EVE = "user:ann", "user:bob", "user:eve"


@pytest.fixture
async def eye(database_url: str) -> AsyncIterator[Any]:
    async with connecting(database_url) as connection:
        yield connection


@pytest.fixture
async def tenant(db: Database) -> UUID:
    return require(await create_tenant(db.api, "acme")).id


async def acts(db: Database, tenant: UUID, *who: str) -> None:
    """Each of them has paused something, and said why; and Bob has made a key for Ann."""
    rows = [
        new_row("run.paused", each, {"reason": f"{each} wants it", "address": "192.0.2.9", "way": "key"})
        for each in who
    ]
    rows.append(new_row("key.created", BOB, {"principal": ANN, "roles": ["boss"]}, subject="key:k1"))
    await audit.write(db.api, tenant, rows)
    await audit.seal(db.api)


async def forget(eye: Any, tenant: UUID, principal: str, by: str = EVE) -> erasure.Forgotten:
    return await erasure.forget(eye, tenant, principal, by=by)


async def everything(eye: Any) -> str:
    """All that the database holds, as text."""
    tables = await eye.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = [await eye.fetch(f"SELECT t::text FROM {table[0]} t") for table in tables]
    found = "\n".join(row[0] for table in rows for row in table)
    bodies = await eye.fetch("SELECT convert_from(body, 'UTF8') FROM audit_details")
    return found + "\n".join(row[0] for row in bodies)


async def faults(db: Database, tenant: UUID) -> list[str]:
    return [fault.code for fault in (await audit.verify(db.api, tenant)).faults]


async def test_a_pseudonym_stands_where_the_person_stood_and_the_chain_verifies(
    db: Database, eye: Any, tenant: UUID
) -> None:
    await acts(db, tenant, ANN, BOB)
    done = await forget(eye, tenant, ANN)
    assert done.records == 2
    text = await everything(eye)
    assert ANN not in text
    assert "192.0.2.9" in text  # Bob's
    assert text.count("wants it") == 1
    assert await faults(db, tenant) == []
    assert await audit.seal(db.api) == 1
    assert await faults(db, tenant) == []
    listed = await audit.list_records(db.api, tenant, audit.AuditFilter(principal=done.pseudonym), limit=9)
    (own,) = listed
    assert own.details is not None
    assert own.details.erased_at is not None
    assert msgspec.json.decode(own.details.body) == {"way": "key"}
    (key,) = await audit.list_records(db.api, tenant, audit.AuditFilter(act="key.created"), limit=9)
    assert key.details is not None
    assert msgspec.json.decode(key.details.body) == {"principal": done.pseudonym, "roles": ["boss"]}


async def test_who_was_forgotten_can_not_be_found_by_trying_names(db: Database, eye: Any, tenant: UUID) -> None:
    await acts(db, tenant, ANN)
    before = await eye.fetchval("SELECT salt FROM audit_details WHERE principal = $1", ANN)
    first = await forget(eye, tenant, ANN)
    await acts(db, tenant, ANN)
    second = await forget(eye, tenant, ANN)
    assert first.pseudonym != second.pseudonym
    assert before not in [row["salt"] for row in await eye.fetch("SELECT salt FROM audit_details")]


async def test_what_is_changed_after_it_was_erased_is_found(db: Database, eye: Any, tenant: UUID) -> None:
    await acts(db, tenant, ANN, BOB)
    done = await forget(eye, tenant, ANN)
    await audit.seal(db.api)
    await eye.execute(
        "UPDATE audit_details SET body = $1 WHERE principal = $2", b'{"way":"session"}', done.pseudonym
    )  # no trigger refuses this: it says that it is erased
    assert await faults(db, tenant) == ["details_changed"]


async def test_a_record_of_erasing_that_was_changed_accounts_for_nothing(db: Database, eye: Any, tenant: UUID) -> None:
    await acts(db, tenant, ANN)
    await forget(eye, tenant, ANN)
    await audit.seal(db.api)
    await eye.execute("UPDATE audit_details SET body = '{}', erased_at = now() WHERE principal = $1", ANN)
    forged: dict[str, Any] = {"pseudonym": "x", "erased": {}}
    rows = await eye.fetch("SELECT * FROM audit_details WHERE erased_at IS NOT NULL")
    for row in rows:
        at = (row["erased_at"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        changed = Details("user:mallory", row["salt"], row["body"], at)
        forged["erased"] |= {str(row["id"]): commitment(changed).hex()}
        await eye.execute("UPDATE audit_details SET principal = 'user:mallory' WHERE id = $1", row["id"])
    await eye.execute("SET session_replication_role = replica")
    body = "UPDATE audit_details d SET body = $1 FROM audit a WHERE a.id = d.id AND a.act = $2"
    await eye.execute(body, msgspec.json.encode(forged), FORGOTTEN)
    found = (await audit.verify(db.api, tenant)).faults
    assert {fault.code for fault in found} == {"details_changed"}
    assert len(found) == len(rows) + 1


async def test_what_is_erased_without_a_record_is_found(db: Database, eye: Any, tenant: UUID) -> None:
    await acts(db, tenant, ANN, BOB)
    await eye.execute("UPDATE audit_details SET principal = 'x', erased_at = now() WHERE principal = $1", ANN)
    assert await faults(db, tenant) == ["details_changed"]


async def test_several_people_in_one_record_are_forgotten_one_after_the_other(
    db: Database, eye: Any, tenant: UUID
) -> None:
    await acts(db, tenant, ANN, BOB)
    for each in (BOB, ANN):
        await forget(eye, tenant, each)
        assert await faults(db, tenant) == []
    await audit.seal(db.api)
    assert await faults(db, tenant) == []
    text = await everything(eye)
    assert ANN not in text
    assert BOB not in text


async def test_who_forgot_others_is_forgotten_and_still_accounts_for_it(db: Database, eye: Any, tenant: UUID) -> None:
    await acts(db, tenant, ANN)
    await forget(eye, tenant, ANN, by=EVE)
    await audit.seal(db.api)
    await forget(eye, tenant, EVE, by=EVE)
    await audit.seal(db.api)
    assert await faults(db, tenant) == []
    assert EVE not in await everything(eye)
    assert len(await audit.list_records(db.api, tenant, audit.AuditFilter(act=FORGOTTEN), limit=9)) == 2


async def test_more_records_than_one_may_list_are_erased_in_several(
    db: Database, eye: Any, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    await audit.write(db.api, tenant, [new_row("run.paused", ANN, {}) for _ in range(2300)])
    while await audit.seal(db.api):
        pass
    assert (await forget(eye, tenant, ANN)).records == 2300
    assert len(await audit.list_records(db.api, tenant, audit.AuditFilter(act=FORGOTTEN), limit=9)) == 3
    assert await faults(db, tenant) == []


async def test_opinions_and_keys_are_erased_and_what_runs_hold_is_counted(db: Database, eye: Any, tenant: UUID) -> None:
    run_id = uuid4()
    await win(db, birth(run_id, tenant=tenant, started_by=ANN))
    for n, opinion in enumerate((Opinion("up", "says Ann", ["mine"]), Opinion(None, "words of Ann", []))):
        subject = Subject(tenant, "thread", "message", f"m{n}")
        await feedback.give_feedback(db.api, subject, run_id, ANN, "rest", opinion)
    made, text = await keys.create_key(db.api, tenant, ANN, name="Ann's laptop", created_by=BOB)
    now = datetime.now(UTC)
    day = timedelta(days=1)
    for one, other in ((ANN, BOB), (BOB, ANN), (BOB, EVE)):
        given = Delegation(uuid4(), one, other, ("boss",), (), now, now + day, "a note", now)
        await delegations.create(db.api, tenant, given)
    done = await forget(eye, tenant, ANN)
    assert (done.opinions, done.keys, done.runs) == (2, 1, 1)
    assert [tuple(each) for each in await eye.fetch("SELECT from_id, to_id FROM delegations")] == [(BOB, EVE)]
    (left,) = await feedback.list_feedback(db.api, tenant, "thread", limit=9)
    assert (left.principal, left.comment, left.labels, left.rating) == (done.pseudonym, None, [], "up")
    key = require(await keys.find_key(db.api, made.id))
    assert (key.principal, key.name) == (done.pseudonym, "")
    assert key.revoked_at is not None
    found = await audit.list_records(db.api, tenant, audit.AuditFilter(act=FORGOTTEN), limit=9)
    assert len(found) == 1
    assert (await forget(eye, tenant, ANN))[1:] == (0, 0, 0, 0, 1)
    assert text.startswith("hai_")


async def test_delegations_links_claims_and_notifications_name_nobody_any_more(
    db: Database, eye: Any, tenant: UUID
) -> None:
    run = birth(tenant=tenant, started_by=BOB, pendings=[PendingRow("p", "open", "s", b"d", None, b"{}", "role:boss")])
    await win(db, run)
    soon = datetime.now(UTC) + timedelta(hours=1)
    for of, to in ((ANN, BOB), (BOB, ANN)):
        given = delegations.Delegation(uuid4(), of, to, [], [], datetime.now(UTC), soon, "of Ann", soon)
        await delegations.create(db.api, tenant, given)
    await notifications.add_link(db.api, notifications.Link(b"d", tenant, run.run_id, "p", ANN, [], [], soon, None))
    assert await inbox.claim(db.api, tenant, run.run_id, "p", ANN, timedelta(hours=1))
    await notifications.queue(db.api, "n", tenant, run.run_id, "p", "opened", ["email"])
    await notifications.divide(db.api, "n", [("msg", "email", ANN, "")])
    await forget(eye, tenant, ANN)
    assert ANN not in await everything(eye)
