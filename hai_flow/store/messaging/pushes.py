"""The addresses that clients of A2A want to be called at when a run changes, and how far each was told."""

from __future__ import annotations

import hmac
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


PUSHES_MAX: Final = 10
"""Of one caller for one run."""


class Push(msgspec.Struct, frozen=True):
    """An address (`config`: JSON of a `PushConfig`, sealed) of a caller (`who`: JSON of a `PushCaller`; `may`:
    whether they may answer questions). `sent`: the state that it was told last. `tries`: those of this change, with
    this one."""

    tenant: UUID
    run_id: UUID
    principal: str
    id: str
    config: bytes
    who: bytes
    may: bool
    sent: str | None
    tries: int


def seal_config(key: bytes, run_id: UUID, principal: str, config: bytes) -> bytes:
    """The configuration, which holds tokens of others, encrypted: for this row of this database (`hints.seal_of`)
    alone."""
    nonce = os.urandom(_NONCE)
    return nonce + _cipher(key).encrypt(nonce, config, f"{run_id} {principal}".encode())


def open_config(key: bytes, push: Push) -> bytes | None:
    """The configuration of a row. None: it is of another database, or was changed."""
    from cryptography.exceptions import InvalidTag

    try:
        about = f"{push.run_id} {push.principal}".encode()
        return _cipher(key).decrypt(push.config[:_NONCE], push.config[_NONCE:], about)
    except (InvalidTag, ValueError):
        return None


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only who has such rows pays for its import

    return AESGCM(hmac.digest(key, b"push config v1", "sha256"))


_NONCE: Final = 12
_COLUMNS: Final = "tenant, run_id, principal, id, config, who, may, sent, tries"
_STORE: Final = """
INSERT INTO pushes (tenant, run_id, principal, id, config, who, may)
SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (
  SELECT count(*) FROM pushes WHERE tenant = $1 AND run_id = $2 AND principal = $3 AND id <> $4
) < $8
ON CONFLICT (run_id, principal, id) DO UPDATE SET
  config = excluded.config, who = excluded.who, may = excluded.may, seen = 0, sent = NULL, tries = 0, error = NULL,
  due_at = now()
"""


async def store_push(connection: Connection | Pool, push: Push) -> bool:
    """Store it, or put it in the place of the one with its id; it is then told how the run stands. False: the caller
    has too many."""
    row = push.tenant, push.run_id, push.principal, push.id, push.config, push.who, push.may
    return (await connection.execute(_STORE, *row, PUSHES_MAX)).endswith(" 1")


async def list_pushes(connection: Connection | Pool, tenant: UUID, run_id: UUID, principal: str) -> list[Push]:
    """Those of the caller, by their ids."""
    query = f"SELECT {_COLUMNS} FROM pushes WHERE tenant = $1 AND run_id = $2 AND principal = $3 ORDER BY id"
    return [Push(*row) for row in await connection.fetch(query, tenant, run_id, principal)]


async def delete_push(connection: Connection | Pool, tenant: UUID, run_id: UUID, principal: str, id: str) -> bool:
    """Forget it; False: there is none."""
    query = "DELETE FROM pushes WHERE tenant = $1 AND run_id = $2 AND principal = $3 AND id = $4"
    return (await connection.execute(query, tenant, run_id, principal, id)).endswith(" 1")


ANY_DUE: Final = """
EXISTS (SELECT FROM pushes p JOIN runs r ON r.id = p.run_id WHERE p.due_at <= now() AND r.seq > p.seen)
"""
_TAKE: Final = f"""
WITH due AS MATERIALIZED (
  SELECT p.run_id AS of_run, p.principal AS of_whom, p.id AS of_id FROM pushes p JOIN runs r ON r.id = p.run_id
  WHERE p.due_at <= now() AND r.seq > p.seen ORDER BY p.due_at LIMIT $1 FOR UPDATE OF p SKIP LOCKED
)
UPDATE pushes SET due_at = now() + $2, tries = tries + 1 FROM due
WHERE run_id = of_run AND principal = of_whom AND id = of_id RETURNING {_COLUMNS}
"""
_OF_ONE: Final = "WHERE run_id = $1 AND principal = $2 AND id = $3 AND config = $4"


async def take_pushes(connection: Connection | Pool, limit: int, lease: timedelta) -> list[Push]:
    """Up to `limit` whose run has changed. One that is not dealt with by then is given out again."""
    return [Push(*row) for row in await connection.fetch(_TAKE, limit, lease)]


async def mark_told(
    connection: Connection | Pool, push: Push, seen: int, sent: str | None, error: str | None, wait: timedelta | None
) -> None:
    """It was dealt with up to the event `seen`, and told the state `sent`, or given up (`error`). The next change is
    told after `wait` at the earliest; None: there will be none."""
    query = f"UPDATE pushes SET seen = $5, sent = $6, error = $7, tries = 0, due_at = now() + $8 {_OF_ONE}"
    await connection.execute(query, *_key(push), seen, sent, error, wait)


async def put_off_push(connection: Connection | Pool, push: Push, wait: timedelta, error: str) -> None:
    """Try it again after a while."""
    await connection.execute(f"UPDATE pushes SET due_at = now() + $5, error = $6 {_OF_ONE}", *_key(push), wait, error)


def _key(push: Push) -> tuple[UUID, str, str, bytes]:
    return push.run_id, push.principal, push.id, push.config
