"""`hai-flow audit`: the chain is verified on the database or on an export, against anchors that were kept elsewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner, Result

from hai_flow.cli import app
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.audit import audit
from hai_flow.store.audit.audit_chain import new_row
from tests.support.postgres import fetch

pytestmark = pytest.mark.usefixtures("database")


def do(dsn: str, *statements: str, records: int = 0) -> None:
    """Write so many records and seal them; then execute the statements as a superuser, whom no trigger stops."""

    async def work() -> None:
        async with asyncpg.create_pool(dsn, min_size=1, max_size=2) as pool:
            if records:
                rows = [new_row("run.paused", "user:ann", {"reason": f"no {n}"}) for n in range(records)]
                await audit.write(pool, LOCAL_TENANT, rows)
                await audit.seal(pool)
            async with pool.acquire() as connection:
                await connection.execute("SET session_replication_role = replica")
                for statement in statements:
                    await connection.execute(statement)

    asyncio.run(work())


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])


CUT = (
    "DELETE FROM audit a USING audit_seals s WHERE s.id = a.id AND s.n > 3",
    "DELETE FROM audit_details a USING audit_seals s WHERE s.id = a.id AND s.n > 3",
    "DELETE FROM audit_seals WHERE n > 3",
)


def test_verify_names_the_tenant_the_end_of_its_chain_and_what_was_changed(database: str) -> None:
    assert called("verify").output == "Nothing is recorded.\n"
    do(database, records=4)
    good = called("verify")
    assert good.exit_code == 0
    assert good.output.startswith("default: 4 records, the chain ends with ")
    do(database, "UPDATE audit SET act = 'run.resumed' WHERE id = (SELECT id FROM audit_seals WHERE n = 2)")
    bad = called("verify", "--tenant", "default")
    assert bad.exit_code == 1
    assert "changed: the record 2 (" in bad.output
    shown = json.loads(called("verify", "--json").output)
    assert [(fault["n"], fault["code"]) for fault in shown["faults"]] == [(2, "changed")]


def test_an_anchor_that_was_kept_finds_an_end_that_was_cut_off(database: str, tmp_path: Path) -> None:
    kept = tmp_path / "anchors.jsonl"
    do(database, records=4)
    assert called("anchor", "--to", str(kept)).output == f"1 anchor added to {kept}.\n"
    assert called("verify", "--anchors", str(kept)).exit_code == 0
    do(database, *CUT)
    assert called("verify").exit_code == 0
    found = called("verify", "--anchors", str(kept))
    assert found.exit_code == 1
    assert "cut_off: an anchor knows 4 records, and the chain ends with 3" in found.output


def test_a_chain_of_which_nothing_is_left_is_found_by_its_anchor(database: str, tmp_path: Path) -> None:
    kept = tmp_path / "anchors.jsonl"
    do(database, records=4)
    kept.write_text(called("anchor").output)
    do(database, "DELETE FROM audit", "DELETE FROM audit_details", "DELETE FROM audit_seals")
    assert called("verify", "--anchors", str(kept)).exit_code == 1


def test_an_export_verifies_without_the_database(database: str, tmp_path: Path) -> None:
    do(database, records=4)
    kept, anchors = tmp_path / "audit.jsonl", tmp_path / "anchors.jsonl"
    kept.write_text(called("export").output)
    anchors.write_text(called("anchor").output)
    do(database, "DELETE FROM audit")
    good = called("verify", "--file", str(kept), "--anchors", str(anchors))
    assert (good.exit_code, "4 records" in good.output) == (0, True)
    lines = kept.read_text().splitlines()
    assert json.loads(lines[0])["details"]["principal"] == "user:ann"
    kept.write_text("\n".join(lines[:3]) + "\n")
    assert "cut_off" in called("verify", "--file", str(kept), "--anchors", str(anchors)).output
    for changed, code in (
        (lines[1].replace("run.paused", "run.Paused"), "changed"),
        (lines[1].replace("no 1", "no 9"), "details"),
    ):
        kept.write_text("\n".join([lines[0], changed, *lines[2:]]) + "\n")
        found = called("verify", "--file", str(kept))
        assert (found.exit_code, code in found.output) == (1, True)


def test_what_can_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("hello\n")
    for arguments in (
        ["verify", "--file", str(other)],
        ["verify", "--anchors", str(other)],
        ["verify", "--file", str(tmp_path / "absent")],
        ["verify", "--tenant", "nobody"],
    ):
        refused = called(*arguments)
        assert (refused.exit_code, "Traceback" in refused.output) == (2, False), refused.output


def test_forget_erases_and_says_what_stays(database: str) -> None:
    do(database, records=4)
    assert CliRunner().invoke(app, ["forget", "user:ann"], input="n\n").exit_code == 1
    done = CliRunner().invoke(app, ["forget", "user:ann", "--yes"])
    assert done.exit_code == 0, done.output
    assert "user:ann is person:" in done.output
    assert "4 records" in done.output
    assert called("verify").exit_code == 0
    assert "user:ann" not in called("export").output


def test_the_audit_of_a_tenant_begins_with_who_made_it(database: str) -> None:
    assert CliRunner().invoke(app, ["tenants", "create", "acme"]).exit_code == 0
    assert CliRunner().invoke(app, ["tenants", "create", "acme"]).exit_code == 1
    query = """
    SELECT t.name, a.act, a.subject, d.principal FROM audit a JOIN tenants t ON t.id = a.tenant
    JOIN audit_details d ON d.tenant = a.tenant AND d.id = a.id
    """
    assert [tuple(row) for row in asyncio.run(fetch(database, query))] == [
        ("acme", "tenant.created", "tenant:acme", "service:cli")
    ]
