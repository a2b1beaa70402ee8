"""`/v1/inbox/accounts`: the caller's accounts in chats, by which they decide there."""

from __future__ import annotations

from datetime import timedelta
from secrets import token_urlsafe
from typing import Final
from uuid import uuid4

from pydantic import Field

from hai_flow.api.base.id_patterns import read_uuid
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import CurrentAccess
from hai_flow.api.requests.views import render
from hai_flow.api.routes import Routes
from hai_flow.engine.pendings.selectors import is_agent
from hai_flow.errors import Rejected
from hai_flow.primitives.secret_digests import hash_secret
from hai_flow.runtime.people.chat_cards import as_delegation
from hai_flow.store.people import chat
from hai_flow.store.people.chat import Account

router = Routes(prefix="/v1/inbox/accounts", tags=["inbox"], dependencies=[requires(Right.SEE_INBOX)])

GOOD_FOR: Final = timedelta(days=365)
"""The longest time of an account whose proof has no end of its own."""


class AccountBody(Body):
    channel: str = Field(min_length=1, max_length=100, description="the channel of the deployment, like `slack`")


@router.get("")
async def list_chat_accounts(access: CurrentAccess) -> schemas.ChatAccounts:
    """Your accounts in chats that hold now, and codes that were not sent yet."""
    home = access.at_home
    rows = await chat.list_accounts(home.reads, access.tenant, access.ids)
    holding = {each.id for each in await home.inbox.in_force(access.tenant, [as_delegation(row) for row in rows])}
    return {"items": [render(schemas.ChatAccount, each) for each in rows if each.id in holding]}


@router.post("", Right.DECIDE, status_code=201, refusals=(404, 409))
async def connect_chat_account(body: AccountBody, access: CurrentAccess) -> schemas.ChatCode:
    """Get a code that connects your account in a chat to you: send it there, to the app, within ten minutes. It is good
    once, for this channel. The account decides with the roles that your API key, session or token has at that moment,
    and ends with it. Whoever sends the code decides as you: show it to nobody."""
    if is_agent(access.principal.who):
        raise Rejected(
            403, "account_forbidden", "an agent has no account in a chat: it is a person's, who connects it themselves."
        )
    access.demand_own_credential(
        "account_forbidden", "only you can connect an account: sign in yourself, with a key or a token."
    )
    channel = await _demand_channel(access, body.channel)
    principal, committer = access.principal, access.runtime.committer
    now, seconds_left = committer.now(), principal.seconds_left(committer.now_ms())
    lasts = GOOD_FOR if seconds_left is None else min(GOOD_FOR, timedelta(seconds=seconds_left))
    code = token_urlsafe(32)
    account = Account(
        uuid4(), channel, None, principal.id, principal.who.roles, principal.who.groups, now + lasts, now,
        principal.key, principal.session, principal.credential if principal.way == "jwt" else None,
    )  # fmt: skip
    home = access.at_home
    async with home.act() as connection:
        if not await chat.add_account(connection, access.tenant, account, hash_secret(code)):
            message = f"{principal.id} has {chat.ACCOUNTS_MAX} accounts and codes; disconnect one first."
            raise Rejected(409, "accounts_many", message)
        await home.record(connection, "chat.code_given", subject=f"chat:{channel}")
    return render(schemas.ChatCode, account, code=code, send=f"connect {code}")


@router.delete("/{account_id}", Right.DECIDE, status_code=204, refusals=(404,))
async def disconnect_chat_account(account_id: str, access: CurrentAccess) -> None:
    """Disconnect an account of yours at once."""
    id, home = read_uuid(account_id), access.at_home
    async with home.act() as connection:
        if id is None or not await chat.remove_account(connection, access.tenant, id, access.ids):
            raise Rejected(404, "account_unknown", f"there is no account {account_id[:60]!r} of yours.")
        await home.record(connection, "chat.disconnected", subject=f"account:{id}")


async def _demand_channel(access: Access, name: str) -> str:
    """Raises Rejected 404."""
    chats = access.runtime.chats
    tenant = await access.runtime.tenants.name(access.tenant)
    if chats is None or chats.channel(tenant, name) is None:
        raise Rejected(404, "channel_unknown", f"the deployment has no app in a chat that is called {name[:60]!r}.")
    return name
