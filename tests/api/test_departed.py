"""Whose keys were revoked was let go, where keys alone let people sign in, and so was who was erased: no link and no
chat proves them any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from hai_flow.api.auth.authenticate import KnownIdentity
from hai_flow.api.auth.issuers.jwt import Issuer
from hai_flow.api.auth.sessions import Limits
from hai_flow.api.permissions.principals import Principal, Way
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.identity.erasure import forget
from tests.support.hai_client import unique
from tests.support.identities import People

LIMITS: Final = Limits(*(timedelta(hours=1),) * 4)
ISSUER: Final = Issuer(name="corp", issuer="https://login.example.com", audience=("hai-flow",), jwks_file=Path("keys"))


@pytest.mark.parametrize("was_other_id", [False, True])
@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("issuers", [(), (ISSUER,)])
@pytest.mark.parametrize("way", ["link", "chat"])
async def test_links_and_chats_prove_nobody_who_was_erased_until_they_have_a_key(
    dsn: str, way: Way, issuers: Sequence[Issuer], has_key: bool, was_other_id: bool
) -> None:
    """The file of channels may name them still; their revoked keys are those of a pseudonym."""
    people, one, other = People(dsn), f"user:{unique('ann')}", f"user:{unique('annie')}"
    if has_key:
        people.revoke(people.key(one)[0])
    erased = other if was_other_id else one
    people.do(lambda connection: forget(connection, LOCAL_TENANT, erased, by="user:root"))
    runtime = Runtime(dsn, Settings(database_url=dsn), performs=False)
    async with runtime.lifespan():
        identity = KnownIdentity(runtime, LIMITS, issuers, {"default": {other: one}})
        caller = Principal(c.Principal(one), LOCAL_TENANT, way=way)
        with pytest.raises(Rejected, match="or they were erased") as refused:
            await identity.known(caller)
        assert (refused.value.status, refused.value.code) == (401, "auth.expired")
        people.key(other)
        assert (await identity.known(caller)).id == one
        assert (await identity.known(Principal(c.Principal("user:somebody"), LOCAL_TENANT, way=way))).id


@pytest.mark.parametrize("way", ["link", "chat", "key"])
@pytest.mark.parametrize(
    ("further", "issuers", "holds"),
    [(None, (), False), ("good", (), True), ("expired", (), False), (None, (ISSUER,), True)],
)
async def test_a_link_and_a_chat_end_with_the_last_good_key_of_their_person(
    dsn: str, way: Way, further: str | None, issuers: Sequence[Issuer], holds: bool
) -> None:
    """`further`: a key of another id of the person."""
    people, one, other = People(dsn), f"user:{unique('ann')}", f"user:{unique('annie')}"
    people.revoke(people.key(one)[0])
    if further is not None:
        key, _ = people.key(other)
        if further == "expired":
            people.do(lambda connection: connection.execute("UPDATE keys SET expires_at = now() WHERE id = $1", key.id))
    runtime = Runtime(dsn, Settings(database_url=dsn), performs=False)
    async with runtime.lifespan():
        identity = KnownIdentity(runtime, LIMITS, issuers, {"default": {other: one}})
        caller = Principal(c.Principal(one), LOCAL_TENANT, way=way)
        if holds or way == "key":
            assert (await identity.known(caller)).id == one
        else:
            with pytest.raises(Rejected, match=f"the keys of {one} were revoked") as refused:
                await identity.known(caller)
            assert (refused.value.status, refused.value.code) == (401, "auth.expired")
