"""`/v1/keys`: the API keys of the caller's tenant. A key's secret is in the answer that makes it, and nowhere else."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from fastapi import Request
from pydantic import Field

from hai_flow.api.base.id_patterns import NO_CONTROL_CHARACTERS, Names, PrincipalId, PrincipalPattern
from hai_flow.api.http.bodies import Body
from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests import schemas
from hai_flow.api.requests.dependencies import CommandKey, CurrentAccess
from hai_flow.api.requests.pagination import PageCursor, PageLimit, cut, decode_cursor, encode_cursor
from hai_flow.api.requests.views import render_key
from hai_flow.api.routes import Routes
from hai_flow.errors import Rejected
from hai_flow.store.identity import keys
from hai_flow.store.people import delegations

router = Routes(prefix="/v1/keys", tags=["identity"])

SECONDS_MAX: Final = 10 * 366 * 86400


class KeyBody(Body):
    """The principal that calls with the key, with their roles and groups. `name` is for people. `expires_in` is in
    seconds; None: never. `speaks_for`: the principals as whom tokens of the key may decide, like `user:shop-*`; those
    for others answer what asks the requester or anyone, and have one vote together."""

    principal: PrincipalId
    name: str = Field(default="", max_length=200, pattern=NO_CONTROL_CHARACTERS)
    roles: Names = Field(default=[])
    groups: Names = Field(default=[])
    expires_in: int | None = Field(default=None, ge=1, le=SECONDS_MAX)
    speaks_for: list[PrincipalPattern] = Field(default=[], max_length=100)


@router.post("", Right.MANAGE_KEYS, status_code=201, refusals=(409,))
async def create_key(body: KeyBody, access: CurrentAccess, key_of_command: CommandKey) -> schemas.NewKey:
    """Make a key. `key` is shown this once: send it as `Authorization: Bearer`. The same Idempotency-Key again makes
    none: 409 `key_exists` names the key that it has made, to be revoked where its answer was lost."""
    admin = access.principal.id
    id = None if key_of_command is None else keys.derive_key_id("key", str(access.tenant), admin, key_of_command)
    lasts = None if body.expires_in is None else timedelta(seconds=body.expires_in)
    home = access.at_home
    async with home.act() as connection:
        key, text = await keys.create_key(
            connection,
            access.tenant,
            body.principal,
            name=body.name,
            roles=list(dict.fromkeys(body.roles)),
            groups=list(dict.fromkeys(body.groups)),
            created_by=admin,
            expires_at=None if lasts is None else home.runtime.committer.now() + lasts,
            speaks_for=list(dict.fromkeys(body.speaks_for)),
            id=id,
        )
        await home.record(
            connection,
            "key.created",
            subject=f"key:{key.id}",
            principal=key.principal,
            given_roles=key.roles,
            speaks_for=key.speaks_for,
        )
    return {**render_key(key), "key": text}


@router.get("", Right.MANAGE_KEYS)
async def list_keys(access: CurrentAccess, limit: PageLimit = 50, cursor: PageCursor = None) -> schemas.KeyPage:
    """All keys, newest first; also those that were revoked or have expired."""
    listed = await keys.list_keys(access.at_home.reads, access.tenant, limit=limit + 1, before=decode_cursor(cursor))
    rows, following = cut(listed, limit, lambda row: encode_cursor(row.created_at, row.id))
    return {"items": [render_key(each) for each in rows], "next_cursor": following}


@router.post("/{key_id}/revoke", Right.MANAGE_KEYS, refusals=(404,))
async def revoke_key(key_id: str, access: CurrentAccess, request: Request) -> schemas.Key:
    """Revoke a key: it is refused from now on, by other processes within a second. Doing it twice is harmless."""
    home, is_last, all_ids = access.at_home, False, access.principal.people.all_of
    async with home.act() as connection:
        is_id = keys.ID.fullmatch(key_id) is not None
        revoked = await keys.revoke_key(connection, access.tenant, key_id, all_ids) if is_id else None
        if revoked is not None:
            await home.record(connection, "key.revoked", subject=f"key:{key_id}", principal=revoked.principal)
            is_last = not await keys.has_others(connection, revoked, all_ids(revoked.principal))
    if revoked is None:
        raise Rejected(404, "key_unknown", f"there is no key {key_id[:60]!r}.")
    seat = access.at_seat
    if seat.cell != home.cell:
        ids = all_ids(revoked.principal)
        await delegations.end_of_key(seat.pool, access.tenant, key_id, ids, is_last=is_last)
    await access.repeat()
    access.hint_lists()  # its delegations are over
    request.app.state.identity.forget(key_id)
    access.terms.look()
    return render_key(revoked)
