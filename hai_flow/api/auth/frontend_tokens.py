"""Tokens for frontends: a backend asks for one with its API key, and its page calls with the token.

The key that signs a token is derived from the API key's secret; the database has only the key that verifies it. So a
token can be made only during a call with the API key: reading the database is not enough. And the token ends when its
API key is revoked or expires."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from hai_flow.api.auth.directory.erased_people import ErasedPeople
from hai_flow.api.auth.directory.people import People
from hai_flow.api.auth.keys import Keys, ends_at
from hai_flow.api.permissions.principals import Principal, Unproven, demand_own_name, reject_credential
from hai_flow.api.permissions.rights import REQUESTER, Right, rights_of
from hai_flow.engine import commands as c
from hai_flow.engine.pendings.selectors import KEY
from hai_flow.errors import Rejected
from hai_flow.primitives import uuids
from hai_flow.runtime.people.delegates import list_people_of_agent
from hai_flow.signing import decode, encode
from hai_flow.store.identity import keys
from hai_flow.store.identity.keys import KeyParts

PREFIX: Final = "hait_"
_FORM: Final = re.compile(r"hait_([A-Za-z0-9_-]{20,7000})\.([A-Za-z0-9_-]{86})", re.ASCII)
SERVICE: Final = "service:"  # how the ids of programs begin that relay people, and do not act by themselves
_NEVER: Final = frozenset((Right.MANAGE_KEYS, Right.ISSUE_TOKENS))  # a page manages nothing, and gives nothing on


class TokenClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The claims of a token. `key` is the API key that signed it; `exp` is in ms since 1970; `jti` names the token, and
    begins with the time at which it was made (a UUID of version 7; those of earlier releases are random)."""

    key: str
    jti: str
    exp: int
    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    threads: tuple[str, ...] | None = None
    workflows: tuple[str, ...] | None = None


_decode: Final = msgspec.json.Decoder(TokenClaims).decode


def issue(issuer: Principal, credential: str, claims: TokenClaims) -> str:
    """The token with these claims. `credential` is the API key with which the issuer calls. Raises Rejected 403 where
    they hold less themselves, or call in another way."""
    parts = keys.split_key(credential)
    if issuer.way != "key" or parts is None:
        raise Rejected(403, "token.issuer", "tokens are issued to who calls with an API key of this server.")
    _demand_held(issuer.who.roles, issuer.who.groups, claims)
    payload = encode(msgspec.json.encode(claims))
    return f"{PREFIX}{payload}.{encode(keys.sign(parts, payload.encode()))}"


def new_claims(parts: KeyParts, now_ms: int, exp: int, principal: str, **limits: object) -> TokenClaims:
    return msgspec.convert(
        {"key": parts.id, "jti": uuids.uuid7(now_ms).hex, "exp": exp, "id": principal, **limits}, TokenClaims
    )


def _demand_held(roles: Sequence[str], groups: Sequence[str], claims: TokenClaims) -> None:
    held, claimed = rights_of(roles), rights_of(claims.roles)
    more = [f"right {right}" for right in sorted(claimed - held)]
    more += [f"role {role}" for role in claims.roles if role not in (*roles, REQUESTER)]
    more += [f"group {group}" for group in claims.groups if group not in groups]
    if more:
        raise Rejected(403, "token.exceeds", f"your key does not hold what the token would: {', '.join(more)}.")
    if forbidden := sorted(claimed & _NEVER):
        raise Rejected(403, "token.exceeds", f"a token never has the right {' or '.join(forbidden)}.")


class FrontendTokens:
    """The tokens that keys have signed. `people`: whose ids are one person's."""

    def __init__(self, known: Keys, forgotten: ErasedPeople, people: People) -> None:
        self._keys = known
        self._forgotten = forgotten
        self._people = people

    async def principal(self, token: str, now: int) -> Principal:
        """The caller with this token. Raises Rejected 401."""
        form = _FORM.fullmatch(token)
        if form is None:
            raise reject_credential()
        try:
            claims, signature = _decode(decode(form[1])), decode(form[2])
        except (msgspec.MsgspecError, ValueError):
            raise reject_credential() from None
        if not keys.is_principal(claims.id):
            raise reject_credential()
        key = await self._keys.find(claims.key) if keys.ID.fullmatch(claims.key) else None
        if key is None:
            raise reject_credential()
        if key.revoked_at is not None or not key.verify(form[1].encode(), signature):
            raise reject_credential().of(key.tenant, key.id)
        end = ends_at(key)
        expires_at = claims.exp if end is None else min(claims.exp, end)
        if expires_at <= now:
            expired = Unproven(401, "auth.expired", "this token has expired; ask who gave it for a new one.")
            raise expired.of(key.tenant, f"{key.id}/{claims.jti}")
        try:  # who has the key can sign whatever they like, without asking this server
            _demand_held(key.roles, key.groups, claims)
        except Rejected:
            raise reject_credential().of(key.tenant, f"{key.id}/{claims.jti}") from None
        id = await self._people.one(key.tenant, claims.id)
        if id != key.principal:
            demand_own_name(id)
        await self._forgotten.refuse(key.tenant, id, _read_time_made(claims))
        who, behind = c.Principal(id, claims.roles, claims.groups), list_people_of_agent(key.principal, key.speaks_for)
        holder, is_vouched = await self._people.one(key.tenant, key.principal), key.can_vouch_for(id)
        if not is_vouched or (holder != id and not holder.startswith(SERVICE)):  # the holder of the key acts
            behind = (holder, *behind)
            who = msgspec.structs.replace(who, issuer=holder if is_vouched else f"{KEY}{key.id}", through=behind)
        return Principal(
            who,
            key.tenant,
            way="token",
            credential=f"{key.id}/{claims.jti}",
            expires_at=expires_at,
            threads=None if claims.threads is None else frozenset(claims.threads),
            workflows=None if claims.workflows is None else frozenset(claims.workflows),
            key=key.id,
            behind=tuple(each for each in behind if each != id),
        )


def _read_time_made(claims: TokenClaims) -> int:
    """The time at which a token was made, in ms since 1970; 0: unknown, perhaps long ago."""
    return int(claims.jti[:12], 16) if re.fullmatch("[0-9a-f]{32}", claims.jti) else 0
