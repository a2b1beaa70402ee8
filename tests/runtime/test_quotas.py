"""Limits of tenants: how often the database is asked for what they use."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from hai_flow.errors import StoreError
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity import tenants
from tests.runtime.conftest import Make


async def test_a_hundred_starts_at_once_look_once_how_large_the_logs_are(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make(tenant_log_bytes_max=10**12)
    looks, log_bytes = 0, tenants.log_bytes

    async def counted(connection: Any, tenant: Any) -> int:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return await log_bytes(connection, tenant)

    monkeypatch.setattr(tenants, "log_bytes", counted)
    asked = runtime.starts._quotas
    assert set(await asyncio.gather(*(asked.excess(LOCAL_TENANT) for _ in range(100)))) == {None}
    assert looks == 1


@pytest.mark.parametrize("cells", [1, 3])
async def test_a_tenant_over_its_limit_on_bytes_is_told_both_numbers(
    make: Make, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    runtime = await make(tenant_log_bytes_max=100)
    others = AsyncMock(return_value=[runtime.database] * (cells - 1))
    monkeypatch.setattr(runtime.starts._quotas, "others", others if cells > 1 else None)

    async def large(connection: Any, tenant: Any) -> int:
        return 4711

    monkeypatch.setattr(tenants, "log_bytes", large)
    refused = await runtime.starts._quotas.excess(LOCAL_TENANT)
    assert refused is not None
    told = (str(4711 * cells) in refused.detail, "100" in refused.detail)
    assert (refused.code, *told) == ("tenant_log_bytes", True, True), refused.detail


async def test_a_look_that_fails_is_not_believed_by_the_next_start(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await make(tenant_log_bytes_max=100)

    async def away(connection: Any, tenant: Any) -> int:
        raise StoreError("away")

    async def there(connection: Any, tenant: Any) -> int:
        return 1

    monkeypatch.setattr(tenants, "log_bytes", away)
    with pytest.raises(StoreError):
        await runtime.starts._quotas.excess(LOCAL_TENANT)
    monkeypatch.setattr(tenants, "log_bytes", there)
    assert await runtime.starts._quotas.excess(LOCAL_TENANT) is None
