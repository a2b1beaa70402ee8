"""Notifications to people and systems: those to be sent, those that were sent, and those that could not be.

A commit writes into the outbox that a question was opened, escalated or is to be remembered; delivery makes that a row
here, under the id of the outbox's row: once, however often it is delivered. The row is then divided into one for each
receiver, each of which is tried by itself until it was sent, is not needed any more, or is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, cast
from uuid import UUID

import msgspec

from hai_flow.store.postgres.connections import Connection, Pool

KEPT: Final = timedelta(days=30)
FORGOTTEN_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Notification:
    """`channel` None: it is yet to be divided; `notify` are the channels that the document names. `person`: the only
    reader of the channel, if there is one; of one that is yet to be divided, the person for whose seat alone it is.
    `what`: opened, escalated, reminded, reseated or stranded. `tries`: those begun so far, with
    this one."""

    id: str
    tenant: UUID
    run_id: UUID
    pending_id: str
    what: str
    notify: Sequence[str]
    channel: str | None
    person: str | None
    whom: str
    tries: int
    created_at: datetime


_COLUMNS: Final = "id, tenant, run_id, pending_id, what, notify, channel, person, whom, tries, created_at"


def derive_notification_id(text: str) -> str:
    """The id of the notification that the text names: the same each time, so a receiver recognises a repetition."""
    return f"msg_{sha256(text.encode()).hexdigest()[:32]}"


async def queue(
    connection: Connection | Pool,
    id: str,
    tenant: UUID,
    run_id: UUID,
    pending_id: str,
    what: str,
    notify: Sequence[str],
    person: str | None = None,
) -> None:
    """Store a notification. The same id again changes nothing. `person`: it is for the seat of this person alone."""
    query = """
    INSERT INTO notifications (id, tenant, run_id, pending_id, what, notify, status, due_at, person)
    VALUES ($1, $2, $3, $4, $5, $6, 'queued', now(), $7) ON CONFLICT DO NOTHING
    """
    await connection.execute(query, id, tenant, run_id, pending_id, what, list(notify), person)


_DUE: Final = f"""
WITH due AS MATERIALIZED (
  SELECT id AS due_id FROM notifications WHERE due_at <= now() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE notifications SET due_at = now() + $2, tries = tries + 1 FROM due WHERE id = due_id RETURNING {_COLUMNS}
"""


async def due(connection: Connection | Pool, limit: int, again_after: timedelta) -> list[Notification]:
    """Up to `limit` to try now. One that is neither ended nor put off by then is given out again."""
    return [Notification(*row) for row in await connection.fetch(_DUE, limit, again_after)]


_DIVIDE: Final = """
WITH ended AS (
  UPDATE notifications SET status = 'divided', due_at = NULL WHERE id = $1 AND status = 'queued'
  RETURNING tenant, run_id, pending_id, what, notify
)
INSERT INTO notifications (id, tenant, run_id, pending_id, what, notify, channel, person, whom, status, due_at)
SELECT given.id, tenant, run_id, pending_id, what, notify, given.channel, given.person, given.whom, 'due', now()
FROM ended, unnest($2::text[], $3::text[], $4::text[], $5::text[]) given(id, channel, person, whom)
ON CONFLICT DO NOTHING
"""


async def divide(connection: Connection | Pool, id: str, parts: Sequence[tuple[str, str, str | None, str]]) -> None:
    """Put one for each receiver in the place of `id`: (id, channel, person, whom)."""
    columns = [list(column) for column in zip(*parts, strict=True)] if parts else [[], [], [], []]
    await connection.execute(_DIVIDE, id, *columns)


async def end(connection: Connection | Pool, id: str, status: str, error: str | None = None) -> None:
    """`sent`; `dropped`: it is not needed any more; `dead`: given up, and why."""
    query = "UPDATE notifications SET status = $2, error = $3, due_at = NULL, ended_at = now() WHERE id = $1"
    await connection.execute(query, id, status, error)


async def is_followed(connection: Connection | Pool, given: Notification) -> bool:
    """Whether everybody whom the question asks was, or will be, notified of it again since, over the same channels."""
    query = """
    SELECT EXISTS (SELECT FROM notifications WHERE run_id = $1 AND tenant = $2 AND pending_id = $3 AND channel IS NULL
      AND person IS NULL AND what IN ('opened', 'escalated', 'reminded') AND created_at > $4 AND id <> $5
      AND notify @> $6)
    """
    arguments = given.run_id, given.tenant, given.pending_id, given.created_at, given.id, list(given.notify)
    return cast("bool", await connection.fetchval(query, *arguments))


async def put_off(connection: Connection | Pool, id: str, wait: timedelta, error: str) -> None:
    """Try it again after a while."""
    query = "UPDATE notifications SET due_at = now() + $2, error = $3 WHERE id = $1 AND due_at IS NOT NULL"
    await connection.execute(query, id, wait, error)


class NotificationSummary(msgspec.Struct, frozen=True):
    """A notification as it is shown. `status`: queued, divided, due, sent, dropped or dead."""

    id: str
    run_id: UUID
    pending_id: str
    what: str
    channel: str | None
    person: str | None
    status: str
    tries: int
    error: str | None
    created_at: datetime
    due_at: datetime | None

    @property
    def cursor_id(self) -> str:
        """Its id, in the form that cursors have."""
        return self.id.replace("/", "_")


async def list_notifications(
    connection: Connection | Pool,
    tenant: UUID,
    *,
    limit: int,
    status: str | None = None,
    run_id: UUID | None = None,
    before: tuple[datetime, str] | None = None,
) -> list[NotificationSummary]:
    """The tenant's notifications, the newest first."""
    query = """
    SELECT id, run_id, pending_id, what, channel, person, status, tries, error, created_at, due_at FROM notifications
    WHERE tenant = $1 AND ($2::text IS NULL OR status = $2) AND ($3::uuid IS NULL OR run_id = $3)
      AND ($4::timestamptz IS NULL OR (created_at, translate(id, '/', '_')) < ($4, $5)) AND status <> 'divided'
    ORDER BY created_at DESC, translate(id, '/', '_') DESC LIMIT $6
    """
    at, id = before or (None, "")
    return [NotificationSummary(*row) for row in await connection.fetch(query, tenant, status, run_id, at, id, limit)]


async def forget(connection: Connection | Pool) -> None:
    """Remove some notifications that are older than `KEPT`. That of a card which may change still says why it came."""
    query = """
    DELETE FROM notifications WHERE id IN (
      SELECT id FROM notifications n WHERE created_at < now() - $1::interval
        AND NOT EXISTS (SELECT FROM chat_cards c WHERE c.id = n.id AND c.due_at IS NOT NULL)
      ORDER BY created_at LIMIT $2)
    """
    await connection.execute(query, KEPT, FORGOTTEN_AT_ONCE)


# --- links ------------------------------------------------------------------------------------------------------------


class Link(msgspec.Struct, frozen=True):
    """An address at which one person may decide one question, once. `roles` and `groups` are those of the person."""

    digest: bytes
    tenant: UUID
    run_id: UUID
    pending_id: str
    principal: str
    roles: Sequence[str]
    groups: Sequence[str]
    expires_at: datetime
    used_at: datetime | None


async def add_link(connection: Connection | Pool, link: Link) -> None:
    """Store a link, before it is sent."""
    query = """
    INSERT INTO links (digest, tenant, run_id, pending_id, principal, roles, groups, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    """
    await connection.execute(
        query, link.digest, link.tenant, link.run_id, link.pending_id, link.principal, list(link.roles),
        list(link.groups), link.expires_at,
    )  # fmt: skip


async def find_link(connection: Connection | Pool, digest: bytes) -> Link | None:
    """The link, unless its time is over."""
    query = """
    SELECT digest, tenant, run_id, pending_id, principal, roles, groups, expires_at, used_at FROM links
    WHERE digest = $1 AND expires_at > now()
    """
    row = await connection.fetchrow(query, digest)
    return None if row is None else Link(*row)


async def use_link(connection: Connection | Pool, digest: bytes) -> None:
    """Mark the link as used: it can't be used again."""
    await connection.execute("UPDATE links SET used_at = coalesce(used_at, now()) WHERE digest = $1", digest)


async def delete_old_links(connection: Connection | Pool) -> None:
    """Remove some links whose time is over."""
    query = """
    DELETE FROM links WHERE digest IN (
      SELECT digest FROM links WHERE expires_at < now() - interval '1 day' ORDER BY expires_at LIMIT $1)
    """
    await connection.execute(query, FORGOTTEN_AT_ONCE)
