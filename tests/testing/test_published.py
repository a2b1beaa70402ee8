"""A test may name a published version: it is read from the database that holds it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from hai_flow.cli import app
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.catalog import workflows
from tests.support.postgres import connecting
from tests.testing.support import EXPENSE, HEAD


async def publish(dsn: str) -> None:
    async with connecting(dsn) as connection:
        await workflows.publish_workflow(
            connection, LOCAL_TENANT, name="expense", version=1, source=EXPENSE.encode(), title=None
        )


def test_a_published_version_is_read_from_its_database(database_url: str, tmp_path: Path) -> None:
    asyncio.run(publish(database_url))
    path = tmp_path / "expense.test.yaml"
    cases = "cases: [{name: a, input: {amount: 1}, expect: {pending: [account]}}]\n"
    path.write_text(HEAD.replace("expense.flow.yaml", "expense@1") + cases)
    played = CliRunner().invoke(app, ["test", str(path), "--database", database_url])
    assert played.exit_code == 0, played.output
    path.write_text(HEAD.replace("expense.flow.yaml", "expense@7") + cases)
    refused = CliRunner().invoke(app, ["test", str(path), "--database", database_url])
    assert refused.exit_code == 2
    assert "there is no workflow `expense@7` in the PostgreSQL database" in refused.output
