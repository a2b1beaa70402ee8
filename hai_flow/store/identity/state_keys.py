"""The ring of keys that seal what clients carry for the server, shared by all processes over one database.

The first key is derived from the database's secret, so none has to be made. Keys are only added, by the owner of the
database (`hai-flow keys rotate-states`)."""

from __future__ import annotations

import base64
import hmac
import secrets
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import msgspec

from hai_flow.store.messaging import hints
from hai_flow.store.postgres.connections import Connection, Pool

STATE_SECONDS: Final = 7 * 86400.0
"""How long a sealed state is good. It opens nothing by itself; whoever comes later uses `get_run` and `answer`."""
_SPARE_SECONDS: Final = 60.0  # processes seal with the key before for some seconds more
_SEPARATION: Final = b"mcp request state v1"
_RING: Final = """
SELECT k.key, (
  SELECT extract(epoch FROM min(later.created_at + CASE WHEN later.at_once THEN '0 s' ELSE $1 * interval '1 s' END))
  FROM state_keys AS later WHERE later.n > k.n
)::float8 AS until
FROM (SELECT 0 AS n, NULL AS key UNION ALL SELECT n, key FROM state_keys) AS k ORDER BY k.n DESC
"""


class StateKey(msgspec.Struct, frozen=True):
    """A key: its `id`, which a state names; and `until` when it opens states, in seconds since 1970, or None for the
    key that seals now. `is_first`: it is derived, and states under it name no key."""

    id: str
    key: bytes
    until: float | None
    is_first: bool

    @property
    def until_text(self) -> str:
        """The time as people read it, in UTC."""
        return "" if self.until is None else datetime.fromtimestamp(self.until, UTC).isoformat(timespec="seconds")


async def read_ring(connection: Connection | Pool) -> tuple[StateKey, ...]:
    """All keys, the sealing one first; those that open nothing any more are there for their ids."""
    seal = await hints.seal_of(connection)
    rows = await connection.fetch(_RING, STATE_SECONDS + _SPARE_SECONDS)
    return tuple(_build(seal.key, row["key"], row["until"]) for row in rows)


async def rotate(connection: Connection, *, at_once: bool) -> None:
    """Add a key, which seals from now on. `at_once`: the keys before it open nothing any more; else they open the
    states that they have sealed, until these expire."""
    query = "INSERT INTO state_keys (n, key, at_once) SELECT coalesce(max(n), 0) + 1, $1, $2 FROM state_keys"
    async with connection.transaction():
        await connection.execute("LOCK TABLE state_keys IN SHARE ROW EXCLUSIVE MODE")  # of two at once, one is later
        await connection.execute(query, secrets.token_bytes(32), at_once)


def _build(seal: bytes, key: bytes | None, until: float | None) -> StateKey:
    derived = hmac.digest(seal, _SEPARATION if key is None else _SEPARATION + key, "sha256")
    id = base64.urlsafe_b64encode(sha256(b"id " + derived).digest()[:9]).decode()
    return StateKey(id, derived, until, key is None)
