"""Cells that Citus keeps, each whole on one of its nodes: `make test-citus` (`HAI_FLOW_TEST_CITUS`: the coordinator).

`HAI_FLOW_TEST_CITUS_NODE`: a command with `{port}` in it, behind which comes `stop` (at once) or `start`; without it no
node is killed. `HAI_FLOW_TEST_CITUS_RUNS`: how many runs, 500 if it is not set."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.cells import Cells
from hai_flow.runtime.ops.verify import Verifying, verify
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.cells.cells import Cell
from tests.support import cells as support
from tests.support import citus, effects
from tests.support.postgres import Server, connecting
from tests.support.waiting import until

pytestmark = [
    pytest.mark.skipif(citus.CITUS is None, reason="needs HAI_FLOW_TEST_CITUS, the coordinator of a Citus"),
    pytest.mark.timeout(1800),
]

RUNS = int(os.environ.get("HAI_FLOW_TEST_CITUS_RUNS", "500"))
NODE = os.environ.get("HAI_FLOW_TEST_CITUS_NODE")
PATIENCE = 600.0
STEPS = ("one", "two", "three")
SOURCE = b"""
hai: flow/v1
name: shifting
version: 1
tools:
  fx: {python: tests.support.effects, effect: write}
steps:
  - {id: one, call: fx.note, with: {n: 1}}
  - {id: two, call: fx.note, with: {n: "${{ steps.one.output }}"}}
  - {id: three, call: fx.note, with: {n: "${{ steps.two.output }}"}}
output: ${{ steps.three.output }}
"""


class Four:
    """A process with a home of its own, and four cells on two nodes of a Citus. What its runs do is in a ledger."""

    def __init__(self, cells: Cells, places: list[Cell], home: str) -> None:
        self.cells = cells
        self.places = places
        self.home = home
        self.started: dict[int, list[UUID]] = {place.number: [] for place in places}

    async def start(self, place: Cell, count: int) -> None:
        """Start so many runs in the cell, all at once; each is tried again until it is begun."""
        runtime = self.cells.at(place.number)
        _, plan = await runtime.catalog.resolve_startable(LOCAL_TENANT, "shifting")

        async def one() -> None:
            id = runtime.starts.new_id()
            self.started[place.number].append(id)
            command = c.Start(run_id=id, thread_id=str(id), requester="user:local", input={})

            async def begun() -> bool:
                try:
                    await runtime.starts.start(LOCAL_TENANT, plan, command, command_id=f"start:{id}")
                except Exception:  # the node is away, or the cell on its way: the same start again is the same run
                    return False
                return True

            await until(begun, PATIENCE, every=0.5)

        await asyncio.gather(*(one() for _ in range(count)))

    async def finished(self, place: Cell) -> int:
        """How many runs of the cell have finished; 0 while it does not answer."""
        try:
            return int(await _ask(place.dsn, "SELECT count(*) FROM runs WHERE status = 'finished'"))
        except (TimeoutError, OSError, asyncpg.PostgresError):
            return 0

    async def goes_on(self, place: Cell) -> bool:
        """Whether a run of the cell has begun and has not finished."""
        return bool(await _ask(place.dsn, "SELECT count(*) FROM runs WHERE status = 'running'"))

    async def all_finished(self, place: Cell) -> bool:
        return await self.finished(place) == len(self.started[place.number])

    async def demand_whole(self) -> None:
        """Every run that was started is there and agrees with its log, and each of its steps was performed once."""
        for place in self.places:
            async with connecting(place.dsn) as connection:
                found = [each async for each in verify(connection, Verifying(limits=None))][-1]
                ids = {row[0] for row in await connection.fetch("SELECT id FROM runs")}
            assert [str(each) for each in found.violations] == []
            assert ids == set(self.started[place.number])
        async with connecting(self.home) as ledger:
            rows = await ledger.fetch("SELECT run_id, path FROM effects")
        performed = Counter((row[0], row[1]) for row in rows)
        assert performed == Counter((id, step) for ids in self.started.values() for id in ids for step in STEPS)

    async def nodes(self) -> dict[int, int]:
        """The port of the node that keeps each cell."""
        assert citus.CITUS is not None
        async with connecting(citus.CITUS) as connection:
            rows = await connection.fetch(_NODES)
        numbers = {place.schema: place.number for place in self.places}
        return {numbers[row[0]]: row[1] for row in rows if row[0] in numbers}


_NODES = """
SELECT DISTINCT s.schema_name::text, n.nodeport FROM citus_schemas s
JOIN pg_dist_partition t ON t.colocationid = s.colocation_id
JOIN pg_dist_shard sh ON sh.logicalrelid = t.logicalrelid
JOIN pg_dist_placement p ON p.shardid = sh.shardid JOIN pg_dist_node n ON n.groupid = p.groupid
"""


@pytest.fixture
async def four(postgres_server: Server) -> AsyncIterator[Four]:
    assert citus.CITUS is not None
    with postgres_server.database() as home:
        await _ask(home, effects.LEDGER)
        effects.write_to(home)
        async with citus.cells(4) as schemas:
            places = [support.cell(number, citus.CITUS, schema) for number, schema in enumerate(schemas, 1)]
            settings = Settings(
                tools=effects.MODULES, lanes=1, poll_seconds=2.0, lease_seconds=600, heartbeat_seconds=20
            )
            cells = Cells(Runtime(home, settings, performs=True), places)
            async with cells.lifespan():
                await until(lambda: not cells.away, PATIENCE)
                for place in places:
                    await cells.at(place.number).catalog.publish(LOCAL_TENANT, SOURCE)
                yield Four(cells, places, home)
                await effects.close()


async def _ask(dsn: str, query: str, *given: Any) -> Any:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        return await connection.fetchval(query, *given, timeout=PATIENCE)
    finally:
        connection.terminate()


async def test_all_runs_finish_once_in_four_cells_through_a_move_and_a_kill(four: Four) -> None:
    cells, places = four.cells, four.places
    before = await four.nodes()
    assert len(set(before.values())) == 2, "four cells are on two nodes"
    half = RUNS // len(places) // 2
    starting = [asyncio.create_task(four.start(place, half)) for place in places]
    await until(lambda: four.finished(places[0]), PATIENCE, every=0.2)
    await _move(places[0], (set(before.values()) - {before[1]}).pop())
    where = await four.nodes()
    assert where[1] != before[1]
    starting += [asyncio.create_task(four.start(place, RUNS // len(places) - half)) for place in places]
    if NODE is not None:
        dead = before[1]  # of the cells that have not moved, one half is there
        lost = [place for place in places if where[place.number] == dead]
        well = [place for place in places if where[place.number] != dead]
        assert lost
        assert well
        await until(lambda: four.goes_on(lost[0]), PATIENCE)
        _node(dead, "stop")
        try:
            await until(lambda: set(cells.away) == {place.name for place in lost}, PATIENCE)
            await _demand_goes_on(four, lost, well)
        finally:
            _node(dead, "start")
        await until(lambda: not cells.away, PATIENCE)
        await asyncio.gather(*(four.start(place, 5) for place in lost))
    await asyncio.gather(*starting)
    for place in places:
        await until(lambda place=place: four.all_finished(place), PATIENCE, every=0.5)
    await four.demand_whole()


async def _demand_goes_on(four: Four, lost: Sequence[Cell], well: Sequence[Cell]) -> None:
    """The cells that are away are refused with 503, and runs that begin in the others finish."""
    for place in lost:
        with pytest.raises(Rejected) as refused:
            four.cells.at(place.number)
        assert (refused.value.status, refused.value.code) == (503, "cell_away")
    finished = {place.number: await four.finished(place) for place in well}
    await asyncio.gather(*(four.start(place, 5) for place in well))
    for place in well:
        await until(lambda place=place: _has(four, place, finished[place.number] + 5), PATIENCE, every=0.5)


async def _has(four: Four, place: Cell, count: int) -> bool:
    return await four.finished(place) >= count


async def _move(place: Cell, port: int) -> None:
    assert citus.CITUS is not None
    query = "SELECT citus_schema_move($1::text::regnamespace, '127.0.0.1'::text, $2::int)"
    await _ask(citus.CITUS, query, place.schema, port)


def _node(port: int, what: str) -> None:
    assert NODE is not None
    subprocess.run(f"{NODE.format(port=port)} {what}", shell=True, check=True, timeout=120)
