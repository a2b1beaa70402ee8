"""Where a named thread lives is decided once, by its anchor: whoever asks, and whatever else goes on with it."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.cells import CELLS_MAX
from hai_flow.primitives import uuids
from hai_flow.store.cells import thread_locations
from hai_flow.store.messaging import concurrency_slots
from hai_flow.store.postgres.database import Database
from tests.store.conftest import TENANT

THREAD = "a thread"
RUN = """
INSERT INTO runs (id, tenant, workflow, workflow_name, workflow_version, thread_id, status, seq, version, head,
  started_by)
VALUES ($1, $2, 'w', 'w', 1, $3, 'finished', 1, 1, 'h', 'user:a')
"""


async def point(db: Database, cell: int, tenant: UUID = TENANT) -> int | None:
    async with db.api.acquire() as connection:
        return await thread_locations.point(connection, tenant, THREAD, cell)


async def known(db: Database) -> tuple[bool, int | None]:
    return await thread_locations.locate(db.api, TENANT, THREAD)


async def test_of_all_who_point_the_first_is_right(db: Database) -> None:
    assert await known(db) == (False, None)
    assert await point(db, 2) == 2
    assert await point(db, 3) == 2
    assert await known(db) == (False, 2)
    assert await point(db, 3, uuid4()) == 3, "another tenant's thread of this name is another thread"


async def test_of_many_who_point_at_once_one_is_right(db: Database) -> None:
    for _ in range(5):
        await db.api.execute("DELETE FROM slots")
        found = await asyncio.gather(*(point(db, cell) for cell in range(1, 7)))
        assert len(set(found)) == 1
        assert await known(db) == (False, found[0])


async def test_a_cell_does_not_point_elsewhere_from_a_thread_that_it_has(db: Database) -> None:
    """Its run has ended, so nothing holds the thread's slot."""
    await db.api.execute(RUN, uuid4(), TENANT, THREAD)
    assert await point(db, 2) is None
    assert await known(db) == (True, None)
    assert await db.api.fetchval("SELECT count(*) FROM slots") == 0


async def test_a_cell_does_not_redirect_a_thread_that_is_beginning_there(db: Database) -> None:
    run = uuid4()
    assert await concurrency_slots.promise_slot(db.api, TENANT, concurrency_slots.derive_thread_slot(THREAD), run)
    assert await point(db, 2) is None
    assert await concurrency_slots.slot_holder(db.api, TENANT, concurrency_slots.derive_thread_slot(THREAD)) == run


async def test_nothing_begins_in_a_cell_that_points_elsewhere(db: Database) -> None:
    assert await point(db, 2) == 2
    assert not await concurrency_slots.promise_slot(
        db.api, TENANT, concurrency_slots.derive_thread_slot(THREAD), uuid4()
    )
    assert await concurrency_slots.overdue_promises(db.api) == []


@given(st.integers(0, CELLS_MAX), st.integers(0, 2**128 - 1), st.sampled_from([4, 6, 7, 8]))
def test_a_pointer_is_taken_for_no_run(cell: int, bits: int, version: int) -> None:
    assert thread_locations.cell_pointed_to(thread_locations.make_pointer(cell)) == cell
    assert thread_locations.cell_pointed_to(uuids.uuid_of(bits, version)) is None


@pytest.mark.parametrize("id", [UUID(int=0), UUID(int=2**128 - 1)])
def test_ids_at_the_ends_are_no_pointers(id: UUID) -> None:
    assert thread_locations.cell_pointed_to(id) is None
