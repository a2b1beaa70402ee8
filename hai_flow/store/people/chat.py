"""Questions in chats: the cards that show them, the buttons of the cards, and the accounts of people.

A card has the id of the notification that it is the message of, so a notification that is sent again finds its card. A
button's id is known to its card alone; here is its digest. A press takes the button, decides, and then uses it up or
gives it back; one that was taken by a process that died is given back after a minute."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import astuple

from hai_flow.store.people.notifications import Notification
from hai_flow.store.postgres.connections import Connection, Pool

GOOD_FOR: Final = timedelta(days=30)  # a button
CODE_GOOD_FOR: Final = timedelta(minutes=10)
ACCOUNTS_MAX: Final = 20
"""Of one person, with the codes that were not sent yet."""


class CardRow(msgspec.Struct, frozen=True):
    """`person`: its only reader, None: it stands in a room. `place`: the room or the account. `message`: the platform's
    name of the message, None: it is not known to be there. `content`: the digest of its content. `tries`: those of this
    change, with this one. `what`: why it was sent, as its notification says, None: that is forgotten, as the card
    changes no more or an earlier release sent it."""

    id: str
    tenant: UUID
    run_id: UUID
    pending_id: str
    channel: str
    person: str | None
    place: str
    message: str | None
    content: bytes | None
    tries: int
    what: str | None


_CARD: Final = """id, tenant, run_id, pending_id, channel, person, place, message, shown, tries,
  (SELECT what FROM notifications n WHERE n.id = chat_cards.id)"""


async def begin_card(connection: Connection | Pool, of: Notification, person: str | None) -> CardRow:
    """Store the card of a notification before it is sent. The one that is there under its id, if this is not the first
    try."""
    query = f"""
    INSERT INTO chat_cards (id, tenant, run_id, pending_id, channel, person, place)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (id) DO UPDATE SET tries = chat_cards.tries + 1 RETURNING {_CARD}
    """
    row = await connection.fetchrow(query, of.id, of.tenant, of.run_id, of.pending_id, of.channel, person, of.whom)
    assert row is not None, "an upsert returns its row"
    return CardRow(*row)


async def find_card(connection: Connection | Pool, id: str) -> CardRow | None:
    row = await connection.fetchrow(f"SELECT {_CARD} FROM chat_cards WHERE id = $1", id)
    return None if row is None else CardRow(*row)


async def mark_shown(
    connection: Connection | Pool, card: CardRow, message: str, shown: bytes, seen: int, wait: timedelta | None
) -> None:
    """The card is there as `message`, and right up to the event `seen`; what a press has added to its name meanwhile
    stays. It is looked at again after `wait` at the
    earliest, once the run has changed; None: it changes no more. Buttons of an earlier content are void."""
    query = """
    WITH marked AS (
      UPDATE chat_cards SET message = CASE WHEN message IS NOT DISTINCT FROM $6 THEN $2 ELSE message END, shown = $3,
        seen = greatest(seen, $4), tries = 0, error = NULL, due_at = now() + $5
      WHERE id = $1
    )
    DELETE FROM chat_buttons WHERE card = $1 AND content <> $3 AND used_at IS NULL AND account IS NULL
    """
    await connection.execute(query, card.id, message, shown, seen, wait, card.message)


async def put_off_card(connection: Connection | Pool, id: str, wait: timedelta | None, error: str) -> None:
    """Bring the card up to date later; None: it is given up."""
    await connection.execute("UPDATE chat_cards SET due_at = now() + $2, error = $3 WHERE id = $1", id, wait, error)


async def adopt_message(connection: Connection | Pool, id: str, message: str) -> None:
    """A press shows that the card is there as `message`, though no answer of the platform has said so."""
    await connection.execute(
        "UPDATE chat_cards SET message = $2, due_at = now() WHERE id = $1 AND message IS NULL", id, message
    )


async def add_to_name(connection: Connection | Pool, id: str, more: str) -> None:
    """A press has added something to the platform's name of the message."""
    query = "UPDATE chat_cards SET message = message || ' ' || $2 WHERE id = $1 AND length(message) < 2000"
    await connection.execute(query, id, more)


async def hurry_cards(connection: Connection | Pool, run_id: UUID) -> None:
    """Look at the cards of the run at once: somebody has decided."""
    query = "UPDATE chat_cards SET due_at = least(due_at, now()) WHERE run_id = $1 AND due_at IS NOT NULL"
    await connection.execute(query, run_id)


_CHANGED: Final = "FROM chat_cards c JOIN runs r ON r.id = c.run_id WHERE c.due_at <= now() AND r.seq > c.seen"
ANY_CARD_DUE: Final = f"EXISTS (SELECT {_CHANGED})"
_TAKE: Final = f"""
WITH due AS MATERIALIZED (SELECT c.id AS due_id {_CHANGED} ORDER BY c.due_at LIMIT $1 FOR UPDATE OF c SKIP LOCKED)
UPDATE chat_cards SET due_at = now() + $2, tries = tries + 1 FROM due WHERE id = due_id RETURNING {_CARD}
"""


async def take_cards(connection: Connection | Pool, limit: int, lease: timedelta) -> list[CardRow]:
    """Up to `limit` whose run has changed. One that is not dealt with by then is given out again."""
    return [CardRow(*row) for row in await connection.fetch(_TAKE, limit, lease)]


# --- buttons ----------------------------------------------------------------------------------------------------------


class ButtonRow(msgspec.Struct, frozen=True):
    """`question`: the digest of the pending as it was shown, `content` that of the card. `account`: the only one that
    may use it, None: whoever sees the card. `is_used`: somebody has decided by it; `is_taken`: somebody else is about
    to."""

    digest: bytes
    tenant: UUID
    run_id: UUID
    card: str
    option: str
    question: bytes
    content: bytes
    account: str | None = None
    is_used: bool = False
    is_taken: bool = False


async def add_buttons(connection: Connection | Pool, buttons: Sequence[ButtonRow]) -> None:
    """Store buttons, before they are shown."""
    query = """
    INSERT INTO chat_buttons (digest, tenant, run_id, card, option, question, content, account, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now() + $9)
    """
    # the first eight fields are these columns, in this order; the others are read alone
    await connection.executemany(query, [(*astuple(each)[:8], GOOD_FOR) for each in buttons])


_TAKEN: Final = "(taken_by <> $2 AND taken_at > now() - interval '1 minute')"


async def find_button(connection: Connection | Pool, digest: bytes, account: str) -> ButtonRow | None:
    """The button as it is for the account; None: it is unknown, or too old."""
    query = f"""
    SELECT digest, tenant, run_id, card, option, question, content, account, used_at IS NOT NULL,
      coalesce({_TAKEN}, false)
    FROM chat_buttons WHERE digest = $1 AND expires_at > now()
    """
    row = await connection.fetchrow(query, digest, account)
    return None if row is None else ButtonRow(*row)


async def take_button(connection: Connection | Pool, digest: bytes, account: str) -> bool:
    """Take the button for the account. False: it was used, or another account has it."""
    query = f"""
    UPDATE chat_buttons SET taken_by = $2, taken_at = now()
    WHERE digest = $1 AND used_at IS NULL AND expires_at > now() AND {_TAKEN} IS NOT TRUE
      AND (account IS NULL OR account = $2)
    """
    return (await connection.execute(query, digest, account)).endswith(" 1")


async def use_button(connection: Connection | Pool, digest: bytes) -> None:
    """The button has decided: it is good for nothing more, and does not say any more whose account it was."""
    query = "UPDATE chat_buttons SET used_at = now(), taken_by = NULL, account = NULL WHERE digest = $1"
    await connection.execute(query, digest)


async def give_back_button(connection: Connection | Pool, digest: bytes, account: str) -> None:
    """The press was refused: others may press it."""
    query = "UPDATE chat_buttons SET taken_by = NULL, taken_at = NULL WHERE digest = $1 AND taken_by = $2"
    await connection.execute(query, digest, account)


async def delete_old_buttons(connection: Connection | Pool, limit: int) -> None:
    """Remove some buttons whose time is over, and codes that nobody has sent."""
    query = """
    DELETE FROM chat_buttons WHERE digest IN (
      SELECT digest FROM chat_buttons WHERE expires_at < now() - interval '1 day' ORDER BY expires_at LIMIT $1)
    """
    await connection.execute(query, limit)
    await connection.execute("DELETE FROM chat_accounts WHERE account IS NULL AND code_until < now()")


# --- accounts ---------------------------------------------------------------------------------------------------------


class Account(msgspec.Struct, frozen=True):
    """A person's account on the platform of a channel. It rests on what the person proved themselves by, as a
    delegation does. `account` None: its code was not sent yet."""

    id: UUID
    channel: str
    account: str | None
    principal: str
    roles: Sequence[str]
    groups: Sequence[str]
    until: datetime
    created_at: datetime
    key: str | None = None
    session: bytes | None = None
    token: str | None = None


_ACCOUNT: Final = "id, channel, account, principal, roles, groups, until, created_at, key, session, token"


async def add_account(connection: Connection | Pool, tenant: UUID, account: Account, code: bytes | None) -> bool:
    """Store an account that is connected, or one that `code` connects. False: the person has too many."""
    query = """
    INSERT INTO chat_accounts
      (id, tenant, channel, account, code, code_until, principal, roles, groups, until, key, session, token)
    SELECT $1, $2, $3, $4, $5, now() + $6, $7, $8, $9, $10, $11, $12, $13
    WHERE (SELECT count(*) FROM chat_accounts WHERE tenant = $2 AND principal = $7) < $14
    ON CONFLICT (tenant, channel, account) DO UPDATE SET principal = excluded.principal, roles = excluded.roles,
      groups = excluded.groups, until = excluded.until, key = excluded.key, session = excluded.session,
      token = excluded.token
    """
    done = await connection.execute(
        query, account.id, tenant, account.channel, account.account, code, CODE_GOOD_FOR, account.principal,
        list(account.roles), list(account.groups), account.until, account.key, account.session, account.token,
        ACCOUNTS_MAX,
    )  # fmt: skip
    return done.endswith(" 1")


async def connect_account(
    connection: Connection | Pool, tenant: UUID, channel: str, account: str, code: bytes
) -> Account | None:
    """Connect the account to the person that was given the code, in one transaction of the caller; whoever had it
    before has it no more. None: there is no such code of this channel, or its time is over, or it was sent before."""
    query = """
    SELECT id FROM chat_accounts
    WHERE code = $1 AND tenant = $2 AND channel = $3 AND account IS NULL AND code_until > now() AND until > now()
    FOR UPDATE
    """
    id = await connection.fetchval(query, code, tenant, channel)
    if id is None:
        return None
    await connection.execute(
        "DELETE FROM chat_accounts WHERE tenant = $1 AND channel = $2 AND account = $3", tenant, channel, account
    )
    query = f"UPDATE chat_accounts SET account = $2, code = NULL, code_until = NULL WHERE id = $1 RETURNING {_ACCOUNT}"
    row = await connection.fetchrow(query, id, account)
    return None if row is None else Account(*row)


async def find_accounts(
    connection: Connection | Pool, tenant: UUID, channel: str, account: str | None = None
) -> list[Account]:
    query = f"""
    SELECT {_ACCOUNT} FROM chat_accounts
    WHERE tenant = $1 AND channel = $2 AND account IS NOT NULL AND ($3::text IS NULL OR account = $3) AND until > now()
    ORDER BY created_at, id
    """
    return [Account(*row) for row in await connection.fetch(query, tenant, channel, account)]


async def list_accounts(connection: Connection | Pool, tenant: UUID, person: Sequence[str]) -> list[Account]:
    """The accounts of the person of these ids that have not ended."""
    query = f"""
    SELECT {_ACCOUNT} FROM chat_accounts
    WHERE tenant = $1 AND principal = ANY ($2::text[]) AND until > now() AND (account IS NOT NULL OR code_until > now())
    ORDER BY created_at, id
    """
    return [Account(*row) for row in await connection.fetch(query, tenant, list(person))]


async def remove_account(connection: Connection | Pool, tenant: UUID, id: UUID, person: Sequence[str]) -> bool:
    """Disconnect an account of the person of these ids at once. False: the id is unknown."""
    query = "DELETE FROM chat_accounts WHERE id = $1 AND tenant = $2 AND principal = ANY ($3::text[])"
    return (await connection.execute(query, id, tenant, list(person))).endswith(" 1")
