"""Events on their way to the cells of a tenant: which of them is taken back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hai_flow.store.cells import event_relays
from hai_flow.store.postgres.database import Database
from tests.store.conftest import TENANT


@pytest.mark.parametrize("other", [{"type": "another"}, {"data": b"[2]"}])
async def test_an_event_that_is_refused_leaves_the_first_one_of_its_id(db: Database, other: dict[str, object]) -> None:
    first, already = await event_relays.add(db.api, TENANT, "e1", "note", b"[1]", [1, 2])
    assert not already
    await event_relays.drop(db.api, replace(first, **other))  # type: ignore[arg-type]
    assert await event_relays.add(db.api, TENANT, "e1", "note", b"[1]", [1, 2]) == (first, True)
    await event_relays.drop(db.api, first)
    assert not (await event_relays.add(db.api, TENANT, "e1", "note", b"[1]", [1, 2]))[1]
