"""Who was erased is found by index, also among a hundred thousand others, whichever release erased them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from hai_flow.store.identity import proofs
from hai_flow.store.identity.erasure import forget
from tests.support.identities import People

if TYPE_CHECKING:
    from hai_flow.store.postgres.connections import Connection

OTHERS: Final = 20_000
ASKED: Final = [f"user:p{i}" for i in range(300)]
# As erasures of an older release: a salt of its own for each.
OF_OLDER_RELEASE: Final = """
INSERT INTO erased_people (tenant, salt, sha256)
SELECT $1, salt, sha256(salt || convert_to(id, 'UTF8'))
FROM unnest($2::text[]) AS id, decode(md5(id), 'hex') AS salt
"""
AS_NOW: Final = """
INSERT INTO erased_people (tenant, salt, sha256)
SELECT $1, salt, sha256(salt || convert_to('user:x' || i, 'UTF8'))
FROM (SELECT substring(salt FOR 16) AS begin FROM erased_people WHERE tenant = $1 AND length(salt) = 32) AS one,
  generate_series(1, $2::int) AS i, convert_to('user:x' || i, 'UTF8') AS name, sha256(begin || name) AS digest,
  LATERAL (SELECT begin || substring(digest FOR 16) AS salt) AS salts
"""


async def _erased(connection: Connection, tenant: UUID, ids: list[str]) -> set[str]:
    holders = await proofs.find_key_holders(connection, tenant, ids)
    assert not any(holders.values())
    return set(holders)


def test_who_was_erased_is_found_among_many_without_a_comparison_with_each(dsn: str) -> None:
    tenant = uuid4()

    async def look(connection: Connection) -> None:
        await forget(connection, tenant, "user:p7", by="user:root")
        await connection.execute(AS_NOW, tenant, OTHERS)
        await connection.execute("ANALYZE erased_people")
        await connection.execute("SET statement_timeout = '1s'")  # each with each takes 7 s
        assert await _erased(connection, tenant, ASKED) == {"user:p7"}
        assert await _erased(connection, tenant, ["user:x1", f"user:x{OTHERS}", "user:y"]) == {
            "user:x1", f"user:x{OTHERS}",
        }  # fmt: skip
        assert await _erased(connection, uuid4(), ["user:x1", "user:p7"]) == set()

    People(dsn).do(look)


def test_who_was_erased_by_any_release_is_found_and_is_erased_once(dsn: str) -> None:
    tenant = uuid4()

    async def look(connection: Connection) -> None:
        assert await _erased(connection, tenant, ["user:a"]) == set()
        await connection.execute(OF_OLDER_RELEASE, tenant, ["user:a", "user:b", "user:c"])
        for id in ("user:d", "user:ä", "user:d"):
            await forget(connection, tenant, id, by="user:root")
        erased = {"user:a", "user:b", "user:c", "user:d", "user:ä"}
        assert await _erased(connection, tenant, [*erased, "user:e"]) == erased
        assert await connection.fetchval("SELECT count(*) FROM erased_people WHERE tenant = $1", tenant) == 5

    People(dsn).do(look)
