"""`/v1/inbox/delegations`: who answers the questions that ask the caller, while they are away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final, TypeAlias
from uuid import uuid4

from pydantic import Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, PERSON, Instant, Visible, read_uuid
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.principals import requires
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.access import Access
from hai_flow.api.requests.dependencies import KEY_REUSED, CommandKey, CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, cut, decode_id_cursor, encode_cursor
from hai_flow.api.requests.views import render_delegation
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.primitives.uuids import derive_uuid
from hai_flow.store.people import delegations
from hai_flow.store.people.delegations import Delegation

router = Routes(prefix="/v1/inbox/delegations", tags=["inbox"], dependencies=[requires(Right.SEE_INBOX)])

of_all = Routes(prefix="/v1/delegations", tags=["inbox"], dependencies=[requires(Right.MANAGE_KEYS)])

_Instant: TypeAlias = Annotated[Instant, Field(strict=False)]  # JSON has no times, only texts
_DELEGATION_MAX: Final = timedelta(days=92)
_SKEW: Final = timedelta(minutes=1)
_PROOFS: Final = {"key": "API key", "session": "session", "jwt": "token"}


class DelegationBody(Body):
    """`to` may answer the questions that ask you, from `since` (null: now) until `until`, with the roles and groups
    that you have now."""

    to: Annotated[str, Field(pattern=PERSON), Visible]
    since: _Instant | None = None
    until: _Instant
    note: str | None = Field(default=None, max_length=500, pattern=NO_CONTROL_CHARACTERS)


@router.get("")
async def list_delegations(access: CurrentAccess) -> schemas.Delegations:
    """Those from you and to you that have not ended."""
    return {"items": [render_delegation(each) for each in await _list_of_caller(access)]}


@router.post("", Right.DECIDE, status_code=201, refusals=(409,))
async def delegate(body: DelegationBody, access: CurrentAccess, key: CommandKey) -> schemas.Delegation:
    """Let somebody answer the questions that ask you, while you are away. Their decisions are recorded with both names.
    They can't pass the delegation on, and get no question that you or they may not decide. It ends with the API key,
    the browser session and the issuer's token by which you make it, and has no role or group that this has no more.
    The same Idempotency-Key again is the same delegation; after its end, 409 `delegation_over`."""
    who, now = access.principal.who, access.runtime.committer.now()
    to = access.principal.people.one(body.to)
    since = max(body.since or now, now)
    access.demand_own_credential(
        "delegation_forbidden", "only you can delegate: sign in yourself, with a key or a token."
    )
    if to == who.id:
        raise Rejected(422, "delegation.invalid", "to: expected somebody else than you.")
    if not since < body.until <= since + _DELEGATION_MAX:
        raise Rejected(422, "delegation.invalid", "until: expected a time behind `since`, within 92 days of it.")
    seconds_left = access.principal.seconds_left(access.runtime.committer.now_ms())
    ends_at = None if seconds_left is None else now + timedelta(seconds=seconds_left)
    id = uuid4() if key is None else derive_uuid("delegation", str(access.tenant), who.id, key)
    before = None if key is None else await delegations.find(access.pool, access.tenant, id)
    if before is not None and (before.until <= now or not await access.inbox.in_force(access.tenant, [before])):
        message = f"the delegation {id}, which this Idempotency-Key has made, has ended: make another with a new key."
        raise Rejected(409, "delegation_over", message)
    if before is not None:
        return _repeat(before, body, to, ends_at)
    granted = await delegations.list_of_person(access.reads, access.tenant, access.ids)
    holding = {each.id for each in await access.inbox.in_force(access.tenant, granted)}
    if len(holding) >= delegations.SHOWN_MAX:
        raise Rejected(409, "delegations_many", f"{who.id} has {delegations.SHOWN_MAX} delegations; end one first.")
    principal = access.principal
    if ends_at is not None and ends_at <= since:
        message = f"since: expected a time before {ends_at.isoformat()}, when your {_PROOFS[principal.way]} ends: a "
        message += "delegation ends with it. One that begins later is made with an API key (`hai-flow delegate`)."
        raise Rejected(422, "delegation.invalid", message)
    until = body.until if ends_at is None else min(body.until, ends_at)  # it can't outlive what it rests on
    delegation = Delegation(
        id, who.id, to, who.roles, who.groups, since, until, body.note, now,
        principal.key, principal.session, principal.credential if principal.way == "jwt" else None,
    )  # fmt: skip
    async with access.act() as connection:
        over = [each.id for each in granted if each.id not in holding and each.from_id in access.ids]
        await delegations.end_all(connection, access.tenant, over)
        is_new = await delegations.create(connection, access.tenant, delegation)
        if is_new:
            subject = f"delegation:{id}"
            await access.record(connection, "delegation.created", subject=subject, to=to, until=until.isoformat())
        else:  # by another request with the same key, at the same time
            before = await delegations.find(connection, access.tenant, id)
    if not is_new:
        return _repeat(before, body, to, ends_at)
    await access.repeat()
    access.hint_lists()
    return render_delegation(delegation)


def _repeat(before: Delegation | None, body: DelegationBody, to: str, ends_at: datetime | None) -> schemas.Delegation:
    """The delegation that a request with the same key has made. Raises Rejected 409 where that one had another body.
    `ends_at`: when what the caller signed in by ends, by clocks that may differ a little."""
    if (
        before is None  # another request has ended it at the same moment
        or (before.to_id, before.note) != (to, body.note)
        or not (body.since is None or body.since == before.since or body.since < before.since <= before.created_at)
        or not (before.until == body.until or (ends_at is not None and abs(before.until - ends_at) < _SKEW))
        or before.until > body.until
    ):
        raise Rejected(409, "command_id_reused", KEY_REUSED)
    return render_delegation(before)


async def _list_of_caller(access: Access) -> list[Delegation]:
    """Those from and to the caller that hold now."""
    granted = await delegations.list_of_person(access.reads, access.tenant, access.ids)
    return await access.inbox.in_force(access.tenant, granted)


@of_all.get("")
async def list_all_delegations(
    access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None
) -> schemas.DelegationPage:
    """All delegations of the tenant that have not ended, newest first. A page may be short, though there is more."""
    before = decode_id_cursor(cursor)
    rows_found = await delegations.list_of_tenant(access.reads, access.tenant, limit=limit + 1, before=before)
    rows, following = cut(rows_found, limit, lambda row: encode_cursor(row.created_at, row.id))
    holding = await access.inbox.in_force(access.tenant, rows)
    return {"items": [render_delegation(each) for each in holding], "next_cursor": following}


@of_all.delete("/{delegation_id}", status_code=204, refusals=(404,))
async def end_any_delegation(delegation_id: str, access: CurrentAccess) -> None:
    """End somebody's delegation at once."""
    await _end(access, delegation_id, None)


@router.delete("/{delegation_id}", Right.DECIDE, status_code=204, refusals=(404,))
async def end_delegation(delegation_id: str, access: CurrentAccess) -> None:
    """End a delegation from you, or to you, at once."""
    await _end(access, delegation_id, access.ids)


async def _end(access: Access, delegation_id: str, person: Sequence[str] | None) -> None:
    id = read_uuid(delegation_id)
    async with access.act() as connection:
        if id is None or not await delegations.end(connection, access.tenant, id, person):
            of_whom = "" if person is None else " of yours"
            raise Rejected(404, "delegation_unknown", f"there is no delegation {delegation_id[:60]!r}{of_whom}.")
        await access.record(connection, "delegation.ended", subject=f"delegation:{id}")
    await access.repeat()
    access.hint_lists()
