"""Cells that Citus keeps, each whole on one of its nodes: `make test-citus` (`HAI_FLOW_TEST_CITUS`: the coordinator).

`HAI_FLOW_TEST_CITUS_NODE`: a command with `{port}` in it, behind which comes `stop` (at once) or `start`; without it no
node is killed. `HAI_FLOW_TEST_CITUS_RUNS`: how many runs, 500 if it is not set.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.cells import Cells
from hai_flow.runtime.verifying import Verifying, verify
from hai_flow.settings import Settings
from hai_flow.store.cells import Cell
from tests.support import cells as support
from tests.support import citus, effects
from tests.support.waiting import until

pytestmark = [
    pytest.mark.skipif(citus.CITUS is None, reason="needs HAI_FLOW_TEST_CITUS, the coordinator of a Citus"),
    pytest.mark.timeout(1800),
]

RUNS = int(os.environ.get("HAI_FLOW_TEST_CITUS_RUNS", "500"))
SOURCE = b"""
hai: flow/v1
name: shifting
version: 1
tools:
  fx: {python: tests.support.effects, effect: read}
steps:
  - {id: one, call: fx.echo, with: {value: 1}}
  - {id: two, call: fx.echo, with: {value: "${{ steps.one.output }}"}}
  - {id: three, call: fx.echo, with: {value: "${{ steps.two.output }}"}}
output: ${{ steps.three.output }}
"""
PATIENCE = 300.0
NODE = os.environ.get("HAI_FLOW_TEST_CITUS_NODE")


@pytest.fixture
async def four(database_url: str) -> AsyncIterator[tuple[Cells, list[Cell]]]:
    """A process with four cells, whose home is on Citus, too."""
    assert citus.CITUS is not None
    async with citus.cells(4) as schemas:
        places = [support.cell(number, citus.CITUS, schema) for number, schema in enumerate(schemas, 1)]
        settings = Settings(tools=effects.MODULES, lanes=1, poll_seconds=2.0, lease_seconds=120, heartbeat_seconds=20)
        cells = Cells(Runtime(database_url, settings, performs=True), places)
        async with cells.lifespan():
            await until(lambda: not cells.away, 120)
            for place in places:
                await cells.at(place.number).catalog.publish(LOCAL_TENANT, SOURCE)
            yield cells, places


async def start(runtime: Runtime, count: int) -> list[UUID]:
    """Start so many runs, all at once; each is tried until it is begun."""
    _, plan = await runtime.catalog.resolve_startable(LOCAL_TENANT, "shifting")

    async def one() -> UUID:
        id = runtime.starts.new_id()
        command = c.Start(run_id=id, thread_id=str(id), requester="user:local", input={})

        async def begun() -> bool:
            try:
                await runtime.starts.start(LOCAL_TENANT, plan, command, command_id=f"start:{id}")
            except Exception:  # the node is away, or the cell on its way: the same start again is the same run
                return False
            return True

        await until(begun, PATIENCE, every=0.5)
        return id

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def finished(place: Cell) -> int:
    """How many runs of the cell have finished."""
    try:
        connection = await asyncpg.connect(place.dsn, timeout=10)
    except (OSError, asyncpg.PostgresError):
        return 0
    try:
        return int(await connection.fetchval("SELECT count(*) FROM runs WHERE status = 'finished'", timeout=10))
    except (TimeoutError, OSError, asyncpg.PostgresError):
        return 0
    finally:
        connection.terminate()


async def demand_whole(place: Cell, runs: int) -> None:
    """Every run of the cell agrees with its log, and none is there that nobody started."""
    connection = await asyncpg.connect(place.dsn)
    try:
        found = [each async for each in verify(connection, Verifying(limits=None))][-1]
    finally:
        await connection.close()
    assert [str(each) for each in found.violations] == []
    assert found.runs == runs


async def nodes_of(places: Sequence[Cell]) -> dict[str, int]:
    """The port of the node that keeps each schema."""
    rows = await _ask(
        """
        SELECT DISTINCT s.schema_name::text, n.nodeport FROM citus_schemas s
        JOIN pg_dist_partition t ON t.colocationid = s.colocation_id
        JOIN pg_dist_shard sh ON sh.logicalrelid = t.logicalrelid
        JOIN pg_dist_placement p ON p.shardid = sh.shardid JOIN pg_dist_node n ON n.groupid = p.groupid
        """
    )
    return {row[0]: row[1] for row in rows if row[0] in {place.schema for place in places}}


async def _ask(query: str, *given: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(citus.CITUS)
    try:
        return list(await connection.fetch(query, *given))
    finally:
        await connection.close()


async def test_all_runs_finish_in_four_cells_while_one_moves_to_the_other_node(
    four: tuple[Cells, list[Cell]],
) -> None:
    cells, places = four
    before = await nodes_of(places)
    assert len(set(before.values())) == 2, "four cells are on two nodes"
    starting = [asyncio.create_task(start(cells.at(place.number), RUNS // 4)) for place in places]
    await until(lambda: finished(places[0]), PATIENCE, every=0.5)
    schema = places[0].schema
    (other,) = set(before.values()) - {before[str(schema)]}
    await _ask("SELECT citus_schema_move($1, '127.0.0.1', $2)", schema, other)
    assert (await nodes_of(places))[str(schema)] == other
    started = [await task for task in starting]
    for place, ids in zip(places, started, strict=True):

        async def all_finished(place: Cell = place, ids: list[UUID] = ids) -> bool:
            return await finished(place) == len(ids)

        await until(all_finished, PATIENCE, every=0.5)
        await demand_whole(place, len(ids))


@pytest.mark.skipif(NODE is None, reason="needs HAI_FLOW_TEST_CITUS_NODE, which stops and starts a node")
async def test_the_cells_of_a_node_that_is_killed_are_away_and_lose_nothing_and_the_others_go_on(
    four: tuple[Cells, list[Cell]],
) -> None:
    cells, places = four
    where = await nodes_of(places)
    dead = where[str(places[0].schema)]
    lost = [place for place in places if where[str(place.schema)] == dead]
    well = [place for place in places if where[str(place.schema)] != dead]
    assert lost
    assert well
    await asyncio.gather(*(start(cells.at(place.number), 5) for place in places))
    _node(dead, "stop")
    try:
        await until(lambda: set(cells.away) == {place.name for place in lost}, PATIENCE)
        await asyncio.gather(*(start(cells.at(place.number), 5) for place in well))
        for place in well:
            await until(lambda place=place: _has(place, 10), PATIENCE, every=0.5)
    finally:
        _node(dead, "start")
    await until(lambda: not cells.away, PATIENCE)
    await asyncio.gather(*(start(cells.at(place.number), 5) for place in lost))
    for place in places:
        await until(lambda place=place: _has(place, 10), PATIENCE, every=0.5)
        await demand_whole(place, 10)


async def _has(place: Cell, count: int) -> bool:
    return await finished(place) == count


def _node(port: int, what: str) -> None:
    assert NODE is not None
    subprocess.run(f"{NODE.format(port=port)} {what}", shell=True, check=True, timeout=60)
