"""When a process looks anew in which cells a tenant lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from uuid import UUID, uuid4

import pytest

from hai_flow.cells import HOME, TenantCells, place_id
from hai_flow.runtime.tenancy.placement import ThreadPlacement
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.store.postgres.database import Database


class _Known:
    """A tenant in the cell 1, which has got the cell 2 as well; that is known once it is looked up anew."""

    def __init__(self) -> None:
        self.looked = 0

    async def living(self, tenant: UUID) -> TenantCells:
        return TenantCells((1, 2), (1,)) if self.looked else TenantCells.in_one(1)

    def forget(self, tenant: UUID) -> None:
        self.looked += 1


def _none(number: int) -> Database:
    raise AssertionError(f"cell {number} is not asked")


def _there() -> Mapping[int, Database]:
    return {}


@pytest.mark.parametrize(
    ("said", "looked"), [(HOME, 0), (1, 0), (2, 1), (9, 0)], ids=["none", "its own", "another", "one that is not known"]
)
async def test_a_tenant_is_looked_up_anew_for_an_id_of_another_cell_alone(said: int, looked: int) -> None:
    known = _Known()
    places = ThreadPlacement(lambda: cast("Tenants", known), _none, _there, (HOME, 1, 2))
    assert await places.of_run(uuid4(), place_id(uuid4(), said)) == (2 if looked else 1)
    assert known.looked == looked
    await places.living(uuid4(), said)
    assert known.looked == looked
