"""`/v1/workers`: who performs runs, and who did."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta

import asyncpg
from hai_flow_client import Client

from hai_flow.store.runs import leases
from tests.support.commands import run
from tests.support.postgres import Server
from tests.support.server import serving


def test_workers_are_listed_with_queues_and_load_and_dead_ones_with_leases(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn) as server:

        async def others() -> None:
            connection = await asyncpg.connect(dsn)
            lease, lost = timedelta(minutes=1), timedelta(seconds=-60)
            drains = await leases.register_worker(connection, "drains", lease, queues=["gpu"], release="9.9", places=4)
            await leases.begin_draining(connection, drains)
            dead = await leases.register_worker(connection, "dead", lost)
            await leases.retire_worker(connection, await leases.register_worker(connection, "ended", lease))
            await connection.execute("INSERT INTO workers (name, alive_until) VALUES ('older', now() + $1)", lease)
            await connection.execute("INSERT INTO workers (name, alive_until) VALUES ('nobody: 1', now())")
            await connection.execute(
                "INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, "
                "version, head, started_by, queue, worker) VALUES "
                "(gen_random_uuid(), gen_random_uuid(), 'w', 'w', 1, 't', 'running', 1, 1, 'h', 'user:a', 'lost', $1)",
                dead,
            )
            await connection.close()

        asyncio.run(others())
        with Client(server.url) as client:
            found = {each.name: each for each in client.workers.list().items}
        states = {name.partition(":")[0]: each.state for name, each in found.items()}
        mine = next(name for name in found if name.endswith(f":{server.process.pid}"))
        del states[mine.partition(":")[0]]
        assert states == {"drains": "draining", "dead": "dead", "ended": "ended", "older": "alive"}
        drains, older = found["drains"], found["older"]
        assert (drains.queues, drains.release, drains.places) == (["gpu"], "9.9", 4)
        assert (older.queues, older.release, older.attempts) == (["default"], None, None)
        assert found["dead"].holds == 1, "of a queue that nobody here serves"
        assert found[mine].cell == "home"
        assert found[mine].beat_at is not None
        shown = json.loads(run("worker", "--status", "--json", HAI_FLOW_URL=server.url).stdout)["items"]
        assert {each["name"] for each in shown} == set(found), "one that lost its lease stands there twice"
        lines = run("worker", "--status", HAI_FLOW_URL=server.url).stdout.splitlines()
        assert len(lines) == 1 + len(found)
        assert any(re.search(r"drains\tdraining\tgpu\t0\t", line) for line in lines)
