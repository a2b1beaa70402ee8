"""The doctor names what is bad or doubtful in a deployment, each with a remedy; else nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from hai_flow.runtime.ops.doctor import DoctorFacts, examine
from hai_flow.runtime.ops.examination import examine_database
from hai_flow.runtime.people.receipts import make_key
from hai_flow.settings import Settings
from hai_flow.store.ops.health import AUDIT_TRIGGERS, Facts, find_space_fault, read_facts
from tests.support.postgres import connecting

GOOD = Facts(
    settings={
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "max_connections": "100",
        "server_version": "17.2",
    },
    version=170002,
    role="app",
    superuser=False,
    bypasses=False,
    ahead_ms=12.0,
    within_ms=1.0,
    tables=30,
    works_as="hai_engine",
    audit_triggers=AUDIT_TRIGGERS,
    keys=3,
    workers=2,
)
PLACE = DoctorFacts(embedded=False, schema="0020", newest="0020", known=True, descriptors=20_000)
SETTINGS = Settings(
    identity="keys",
    host="0.0.0.0",
    allow_remote=True,
    allowed_hosts=("flow.example.com",),
    database_url="postgresql:///x",
    receipt_keys=Path("keys.json"),
    tenant_runs_per_minute=600,
)


def list_findings(facts: Facts = GOOD, place: DoctorFacts = PLACE, settings: Settings = SETTINGS) -> dict[str, str]:
    """What is not good, with its verdict."""
    checks = examine(settings, facts, place)
    assert all(bool(check.remedy) == (check.verdict != "good") for check in checks)
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check.verdict for check in checks if check.verdict != "good"}


def test_a_deployment_that_is_as_it_should_be_gets_no_remedies() -> None:
    assert list_findings() == {}


OF_FACTS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"settings": {**GOOD.settings, "fsync": "off"}}, {"database.fsync": "bad"}),
    ({"settings": {**GOOD.settings, "synchronous_commit": "off"}}, {"database.synchronous_commit": "bad"}),
    ({"settings": {**GOOD.settings, "synchronous_commit": "local"}}, {"database.synchronous_commit": "doubtful"}),
    ({"settings": {**GOOD.settings, "full_page_writes": "off"}}, {"database.full_page_writes": "bad"}),
    ({"settings": {**GOOD.settings, "max_connections": "20"}}, {"limits.connections": "doubtful"}),
    ({"no_space": "No space left on device"}, {"database.space": "bad"}),
    ({"version": 140009}, {"database.version": "bad"}),
    ({"superuser": True}, {"database.role": "bad"}),
    ({"bypasses": True}, {"database.role": "bad"}),
    ({"works_as": "app", "no_role": "it owns the tables"}, {"database.works_as": "doubtful"}),
    ({"no_wall": "the role is not there"}, {"database.row_security": "doubtful"}),
    ({"ahead_ms": 5000.0}, {"clock": "doubtful"}),
    ({"ahead_ms": -5000.0}, {"clock": "doubtful"}),
    ({"ahead_ms": 5000.0, "within_ms": 4000.0}, {}),
    ({"keys": 0}, {"identity.keys": "bad"}),
    ({"workers": 0}, {"workers": "doubtful"}),
    ({"unserved": ["gpu"]}, {"workers.queues": "doubtful"}),
    ({"audit_triggers": AUDIT_TRIGGERS - {"audit_append_only"}}, {"audit.triggers": "bad"}),
    ({"may_change_audit": True}, {"audit.grants": "doubtful"}),
    ({"unsealed_seconds": 90.0}, {"audit.seals": "bad"}),
]


@pytest.mark.parametrize(("changes", "expected"), OF_FACTS)
def test_each_fault_of_the_database_is_named(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert list_findings(msgspec.structs.replace(GOOD, **changes)) == expected


OF_PLACE: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"schema": None}, {"schema": "bad"}),
    ({"schema": "0001"}, {"schema": "bad"}),
    ({"schema": "9999", "known": False}, {"schema": "doubtful"}),
    ({"descriptors": 1024}, {"limits.files": "doubtful"}),
]


@pytest.mark.parametrize(("changes", "expected"), OF_PLACE)
def test_each_fault_of_the_place_is_named(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert list_findings(place=msgspec.structs.replace(PLACE, **changes)) == expected


def test_an_empty_database_is_migrated_and_not_suspected() -> None:
    empty = msgspec.structs.replace(PLACE, schema=None)
    facts = msgspec.structs.replace(GOOD, works_as="", audit_triggers=frozenset(), tables=0)
    assert list_findings(facts, empty) == {"schema": "bad"}
    names = {check.name for check in examine(SETTINGS, facts, empty)}
    assert names.isdisjoint(
        {"database.works_as", "database.row_security", "audit.triggers", "audit.grants", "audit.seals"}
    )


def test_settings_that_believe_everybody_or_trust_the_way_are_named() -> None:
    local = Settings(database_url="postgresql:///x")
    assert list_findings(settings=local) == {"identity": "doubtful", "receipts.keys": "doubtful"}
    plain = dataclasses.replace(
        SETTINGS, allowed_origins=("http://app.example.com",), public_url="http://flow.example.com"
    )
    assert list_findings(settings=plain) == {"origins": "doubtful", "public_url": "doubtful"}


OF_ASSURANCE: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({"receipt_keys": None}, {}, {"receipts.keys": "doubtful"}),
    ({"receipt_keys": None}, {"embedded": True}, {}),  # which makes a key
    ({}, {"key_fault": "keys.json: the keys can't be read: no such file."}, {"receipts.keys": "bad"}),
    ({}, {"exposed": ("HAI_FLOW_RECEIPT_KEYS",)}, {"receipts.keys": "bad"}),
    ({}, {"exposed": ("HAI_FLOW_MCP",)}, {"mcp.catalogue": "bad"}),
    ({}, {"programs": ("files",)}, {}),
    ({}, {"plain_servers": ("tools.example.com",)}, {"mcp.tls": "doubtful"}),
    ({"identity": __file__}, {}, {"mcp.tokens": "doubtful"}),
    ({"identity": __file__, "client_certificate": "Client-Cert"}, {}, {}),
    ({"http_hosts": ("10.0.0.0/8", "db.internal")}, {}, {"http.hosts": "doubtful"}),
    ({"http_hosts": ("*",)}, {}, {"http.hosts": "doubtful"}),
    ({"http_hosts": ("10.0.0.0/16", "*.internal", "fd00::1")}, {}, {}),
    ({"tenant_runs_per_minute": 0}, {}, {"limits.runs": "doubtful"}),
    ({"tenant_runs_per_minute": 0, "tenant_open_runs_max": 9}, {}, {}),
]


@pytest.mark.parametrize(("changes", "facts", "expected"), OF_ASSURANCE)
def test_each_setting_that_rule_books_leave_to_deployments_is_judged(
    changes: dict[str, Any], facts: dict[str, Any], expected: dict[str, str]
) -> None:
    place = msgspec.structs.replace(PLACE, **facts)
    assert list_findings(place=place, settings=dataclasses.replace(SETTINGS, **changes)) == expected


async def test_a_full_disk_is_found_and_nothing_stays(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connecting(database_url) as connection:
        assert await find_space_fault(connection) is None
        assert await connection.fetchval("SELECT to_regclass('pg_temp.space')") is None
        await connection.execute("SET default_transaction_read_only = on")
        assert await find_space_fault(connection) == "it is read-only", (
            "a standby, or a service's database that is full"
        )
        await connection.execute("SET default_transaction_read_only = off")
        away = connection.transaction()
        await away.start()
        await connection.execute(
            "DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$"
        )
        await connection.execute("SET LOCAL ROLE pg_monitor")
        assert await find_space_fault(connection) == "", "a role that may make no such table has proved nothing"
        await away.rollback()
        unproven = examine(SETTINGS, msgspec.structs.replace(GOOD, no_space=""), PLACE)
        assert "database.space" not in {check.name for check in unproven}
        execute = connection.execute

        async def fill(query: str) -> str:
            if "space" in query:
                raise asyncpg.DiskFullError(
                    "could not extend file: No space left on device\nHINT:  Check free disk space."
                )
            return await execute(query)

        monkeypatch.setattr(asyncpg.Connection, "execute", lambda self, query: fill(query))
        assert await find_space_fault(connection) == "could not extend file: No space left on device"


async def test_files_that_others_can_read_or_write_are_seen(database_url: str, tmp_path: Path) -> None:
    keys, catalogue = tmp_path / "keys.json", tmp_path / "mcp.yaml"
    make_key(keys)
    catalogue.write_text(
        "hai: mcp/v1\nservers:\n  plain: {url: 'http://tools.example.com/mcp'}\n  near: {url: 'http://127.0.0.1:1/mcp'}\n"
        "  files: {command: [files]}\n"
    )
    catalogue.chmod(0o644)
    settings = dataclasses.replace(SETTINGS, receipt_keys=keys, mcp=catalogue)

    async def look() -> dict[str, tuple[str, str]]:
        return {each.name: (each.verdict, each.found) for each in await examine_database(settings, database_url)}

    checks = await look()
    assert (checks["receipts.keys"][0], checks["mcp.catalogue"][0]) == ("good", "good")
    assert checks["mcp.catalogue"][1].endswith("files")
    assert checks["mcp.tls"][1].endswith(": tools.example.com")
    assert checks["mcp.states"][1].endswith("open older ones: none")
    keys.chmod(0o640)
    catalogue.chmod(0o664)
    checks = await look()
    assert (checks["receipts.keys"][0], checks["mcp.catalogue"][0]) == ("bad", "bad")
    keys.write_text("{}")
    assert "expected" in (await look())["receipts.keys"][1]


def test_poolers_that_are_not_known_or_are_in_the_way_are_named() -> None:
    pooled = dataclasses.replace(SETTINGS, database_pooled=True)
    direct = dataclasses.replace(pooled, database_direct_url="postgresql:///x")
    there = msgspec.structs.replace(PLACE, pooler=True)
    assert list_findings(settings=pooled) == {"pooler": "doubtful"}
    assert list_findings(settings=dataclasses.replace(pooled, hints="redis://h:1")) == {"pooler": "doubtful"}
    assert list_findings(place=there) == {"pooler": "bad"}
    assert list_findings(place=there, settings=direct) == {}
    assert list_findings(settings=direct) == {"pooler": "doubtful"}
    twice = msgspec.structs.replace(there, direct_pooler=True)
    assert list_findings(place=twice, settings=direct) == {"pooler.direct": "bad"}


def test_redis_that_does_not_answer_or_is_asked_in_clear_is_named() -> None:
    settings = dataclasses.replace(SETTINGS, hints="redis://:password@redis.example.com:6379/0")
    away = msgspec.structs.replace(PLACE, hints="Redis does not answer: refused")
    assert list_findings(place=away, settings=settings) == {"hints": "doubtful", "hints.tls": "doubtful"}
    well = msgspec.structs.replace(PLACE, hints=0.001)
    assert list_findings(place=well, settings=settings) == {"hints.tls": "doubtful"}
    assert (
        list_findings(place=well, settings=dataclasses.replace(settings, hints="rediss://:p@redis.example.com:1")) == {}
    )


def test_an_embedded_database_is_for_trying_out() -> None:
    place = msgspec.structs.replace(PLACE, embedded=True)
    assert list_findings(msgspec.structs.replace(GOOD, superuser=True), place) == {"database.role": "doubtful"}


async def test_the_facts_are_those_of_the_database(database_url: str) -> None:
    async with connecting(database_url) as connection:
        facts = await read_facts(connection, pooled=True)
        assert (facts.superuser, facts.may_change_audit, facts.works_as) == (True, True, facts.role)
        assert "hai_engine" in (facts.no_role or "")
        assert facts.audit_triggers == AUDIT_TRIGGERS
        taken = await read_facts(connection)
        assert (taken.superuser, taken.may_change_audit, taken.works_as) == (True, False, "hai_engine")
        assert taken.no_role is None
        await connection.execute("RESET ROLE")
        assert facts.tables > 20
        assert abs(facts.ahead_ms) < 60_000
        assert facts.within_ms < 60_000
        await connection.execute("ALTER TABLE audit DISABLE TRIGGER audit_append_only")
        assert AUDIT_TRIGGERS - (await read_facts(connection, pooled=True)).audit_triggers == {"audit_append_only"}
        await connection.execute("ALTER TABLE audit ENABLE TRIGGER audit_append_only")
        patient = f"patient_{uuid4().hex}"  # roles are the whole server's
        await connection.execute(f"CREATE ROLE {patient}")
        try:
            await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {patient}")
            await connection.execute(f"GRANT INSERT ON audit, audit_seals TO {patient}")
            await connection.execute(f"SET ROLE {patient}")
            humble = await read_facts(connection, pooled=True)
            await connection.execute("RESET ROLE")
            assert (humble.role, humble.superuser, humble.may_change_audit) == (patient, False, False)
        finally:
            await connection.execute("RESET ROLE")
            await connection.execute(f"DROP OWNED BY {patient}")
            await connection.execute(f"DROP ROLE {patient}")


async def test_an_empty_database_is_looked_at_as_well(empty_database_url: str) -> None:
    async with connecting(empty_database_url) as connection:
        facts = await read_facts(connection)
    assert facts.tables == 0
    assert facts.settings["server_version"]
