"""Hints that runs have something new: NOTIFY, and the payloads (docs/design/store.md#hints)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from hai_flow.store.database import Connection, Pool


HINT_CHANNEL: Final = "hai_runs"
DUE: Final = "due"
HINT_IDS_MAX: Final = 200  # 256 ids exceed NOTIFY's 8,000 bytes: an error (docs/design/store.md#hints)


async def notify(connection: Connection | Pool, run_ids: Collection[UUID | str]) -> None:
    """Hint that these runs have something new. A statement of its own: inside the commit it serialises all commits,
    3 to 8 times slower. A hint names at most 200 runs; more of them are several hints."""
    ids = list(map(str, run_ids))
    payloads = [",".join(ids[start : start + HINT_IDS_MAX]) for start in range(0, len(ids), HINT_IDS_MAX)]
    await connection.execute("SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p", HINT_CHANNEL, payloads)


async def notify_due(connection: Connection | Pool) -> None:
    """Hint that a run without a holder has something to perform: workers look for due runs."""
    await connection.execute("SELECT pg_notify($1, $2)", HINT_CHANNEL, DUE)
