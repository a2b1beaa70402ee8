"""Hints that runs have something new: NOTIFY, the payloads, and the seal of those that go another way
(docs/design/store.md#hints)."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.store.postgres.connections import Connection, Pool

HINT_CHANNEL: Final = "hai_runs"
DUE: Final = "due"
OWN: Final = "own"
"""What a process makes of its own hint of runs: something was committed, of which it need read nothing."""
_UNHURRIED: Final = "set_config('synchronous_commit', 'off', true)"
"""A transaction with NOTIFY waits for the disk as any commit does, and the commits behind it wait with it. What a lost
hint would have told is found by the poll."""
HINT_IDS_MAX: Final = 200  # 256 ids exceed NOTIFY's 8,000 bytes: an error (docs/design/store.md#hints)


_BY: Final = "by:"


async def notify(
    connection: Connection | Pool, run_ids: Collection[UUID | str], *, by: str = "", words: Collection[str] = ()
) -> None:
    """Hint that these runs have something new, and give the payloads `words`, which name no run: DUE: a run without a
    holder has something to perform, so workers look for due runs.

    One statement of its own: inside the commit it serialises all commits, 3 to 8 times slower. A hint names at most 200
    runs; more of them are several hints. `by`: a name of the sender, for `is_by`; releases before pass it over, because
    it is no id of a run."""
    ids, name = list(map(str, run_ids)), [_BY + by] if by else []
    payloads = [",".join([*ids[start : start + HINT_IDS_MAX], *name]) for start in range(0, len(ids), HINT_IDS_MAX)]
    await connection.execute(
        f"SELECT {_UNHURRIED}, pg_notify($1, p) FROM unnest($2::text[]) AS p", HINT_CHANNEL, [*payloads, *words]
    )


def is_by(payload: str, sender: str) -> bool:
    """Whether the hint names runs, and the sender of this name gave it."""
    return payload.endswith(f",{_BY}{sender}")


def due(queue: str) -> str:
    """The payload that says so. That of the default queue is the one that releases before there were queues know."""
    return DUE if queue == "default" else f"{DUE}:{queue}"


def parse_due_queue(payload: str) -> str | None:
    """The queue in which a run is due by this payload; None: it says something else."""
    if payload == DUE:
        return "default"
    word, _, queue = payload.partition(":")
    return queue if word == DUE and queue else None


_OF_TENANTS: Final = "tenants:"


def build_tenant_payloads(tenants: Collection[UUID]) -> list[str]:
    """The payloads that say that runs of these tenants have something new. Releases before pass them over, because they
    are no ids of runs."""
    ids = sorted(map(str, tenants))
    pages = (ids[start : start + HINT_IDS_MAX] for start in range(0, len(ids), HINT_IDS_MAX))
    return [_OF_TENANTS + ",".join(page) for page in pages]


def parse_tenants(payload: str) -> frozenset[UUID] | None:
    """The tenants that the payload names; None: it says something else."""
    if not payload.startswith(_OF_TENANTS):
        return None
    try:
        return frozenset(map(UUID, payload.removeprefix(_OF_TENANTS).split(",")))
    except ValueError:
        return None


_PUT_OFF: Final = "put-off:"


def build_put_off_payload(question: str) -> str:
    """The payload that says that whoever was asked over a connection answers this question later, or elsewhere."""
    return _PUT_OFF + question


def parse_put_off(payload: str) -> str | None:
    """The question that the payload says it of; None: it says something else."""
    return payload.removeprefix(_PUT_OFF) if payload.startswith(_PUT_OFF) else None


class HintSecret(NamedTuple):
    """A secret that only the processes over one database share: the `place` at which they leave hints for each other
    outside of it, and the `key` by which they know their own."""

    place: str
    key: bytes


async def seal_of(connection: Connection | Pool) -> HintSecret:
    """The database's own. It is made of a secret row and of the identity of this database (and schema), so a copy of it
    on another server, or beside it, has another one."""
    await connection.execute("INSERT INTO hint_keys (key) VALUES ($1) ON CONFLICT DO NOTHING", secrets.token_bytes(32))
    row = await connection.fetchrow("""
    SELECT key, concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), d.oid, current_schema()) AS which
    FROM hint_keys, pg_database d WHERE d.datname = current_database()
    """)
    assert row is not None, "the row was made, or was there"
    which = str(row["which"]).encode()
    place, key = (hmac.digest(row["key"], what + which, "sha256") for what in (b"place ", b"key "))
    return HintSecret(place.hex()[:16], key)
