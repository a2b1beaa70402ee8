"""The database's clock."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from hai_flow.store.postgres.database import Connection, Pool


async def read_clock(connection: Connection | Pool) -> datetime:
    """The time by it, now: not that at which a transaction began."""
    return cast("datetime", await connection.fetchval("SELECT clock_timestamp()"))
