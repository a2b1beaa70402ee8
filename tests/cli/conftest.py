"""Commands over a database of the test."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from hai_flow.engine import commands as c
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that commands find in the environment."""
    monkeypatch.setenv("HAI_FLOW_DATABASE_URL", database_url)
    return database_url


async def start_run(dsn: str, source: bytes) -> UUID:
    """Start a run of the workflow, by a process that performs nothing, and is gone when this returns."""
    runtime = Runtime(dsn, Settings(), performs=False)
    async with runtime.lifespan():
        _, plan = await runtime.catalog.publish(LOCAL_TENANT, source)
        run_id = uuid4()
        start = c.Start(run_id=run_id, thread_id=str(run_id), requester="user:local", input={})
        return (await runtime.starts.start(LOCAL_TENANT, plan, start)).run_id
