"""Somebody is let go by their last good key, by whichever of their ids, in whatever order and however often it is
revoked: then the links that sign them in, and the sessions that these began, are over; and only those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from hai_flow.api.auth.sessions import sign_link_token
from hai_flow.runtime.runtime import LOCAL_TENANT
from hai_flow.store.identity import keys
from hai_flow.store.people import delegations
from hai_flow.store.people.delegations import Delegation
from tests.support.identities import KEYS, People
from tests.support.postgres import Server, connecting
from tests.support.server import ServerProcess, expect, serving
from tests.support.waiting import until, wait_for

ONE, FURTHER = "user:ann", "user:a.smith"


class Place:
    """A server with an admin. Each person has two ids."""

    def __init__(self, server: ServerProcess, dsn: str, people: list[tuple[str, str]]) -> None:
        self.url, self.dsn, self.people = server.url, dsn, People(dsn)
        self.admin = self.people.person("user:root", roles=["admin"])
        self._free = iter(people)

    def person(self) -> tuple[str, str]:
        """Somebody who was in no test before, by both ids."""
        return next(self._free)

    def key(self, id: str) -> str:
        return self.people.key(id, roles=["decider"])[0].id

    def link(self, id: str) -> str:
        return self.people.do(lambda connection: sign_link_token(connection, LOCAL_TENANT, id, ["decider"], []))

    def sign_in(self, link: str) -> dict[str, str] | None:
        """The cookie of a session that the link begins; None: the link is over."""
        answer = httpx2.post(f"{self.url}/sign-in/link/{link}")
        cookie = answer.headers.get("set-cookie")
        return None if cookie is None else {"Cookie": cookie.partition(";")[0]}

    def is_signed_in(self, session: dict[str, str] | None) -> bool:
        return session is not None and httpx2.get(f"{self.url}/v1/session", headers=session).status_code == 200

    def revoke(self, key: str) -> None:
        expect(httpx2.post(f"{self.url}/v1/keys/{key}/revoke", headers=self.admin), 200)


@pytest.fixture(scope="module")
def place(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    people = [(f"{ONE}{number}", f"{FURTHER}{number}") for number in range(20)]
    lines = "".join(f"    {one}: [{further}]\n" for one, further in people)
    file: Path = tmp_path_factory.mktemp("identity") / "identity.yaml"
    file.write_text(f"hai: identity/v1\npeople:\n  default:\n{lines}")
    with (
        postgres_server.database() as dsn,
        serving(dsn, environment={**KEYS, "HAI_FLOW_IDENTITY": str(file)}) as server,
    ):
        yield Place(server, dsn, people)


@pytest.mark.parametrize("of_link", [0, 1], ids=["one id", "further id"])
@pytest.mark.parametrize("of_key", [0, 1], ids=["one id", "further id"])
def test_links_and_their_sessions_end_with_the_last_key_by_any_id(place: Place, of_key: int, of_link: int) -> None:
    ids = place.person()
    key, link, session = place.key(ids[of_key]), place.link(ids[of_link]), place.sign_in(place.link(ids[of_link]))
    assert place.is_signed_in(session)
    place.revoke(key)
    wait_for(lambda: not place.is_signed_in(session))
    assert place.sign_in(link) is None


@pytest.mark.parametrize("of_key", [0, 1], ids=["one id", "further id"])
def test_a_key_by_another_id_is_a_key(place: Place, of_key: int) -> None:
    ids = place.person()
    key, other = place.key(ids[of_key]), place.key(ids[1 - of_key])
    session = place.sign_in(place.link(ids[of_key]))
    place.revoke(key)
    assert place.is_signed_in(session)
    place.revoke(other)
    wait_for(lambda: not place.is_signed_in(session))


def test_a_key_that_is_revoked_again_ends_no_link_that_was_made_since(place: Place) -> None:
    id, _ = place.person()
    key = place.key(id)
    place.revoke(key)
    link, session = place.link(id), place.sign_in(place.link(id))
    place.revoke(key)
    assert place.is_signed_in(session)
    assert place.is_signed_in(place.sign_in(link))


@pytest.mark.parametrize("of_delegation", [0, 1], ids=["one id", "further id"])
@pytest.mark.parametrize("of_key", [0, 1], ids=["one id", "further id"])
def test_delegations_without_a_known_proof_end_with_the_last_key_by_any_id(
    place: Place, of_key: int, of_delegation: int
) -> None:
    ids = place.person()
    first, last = place.key(ids[of_key]), place.key(ids[1 - of_key])
    since, until = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
    given = Delegation(uuid4(), ids[of_delegation], "user:eve", [], [], since, until, None, since)
    assert place.people.do(lambda connection: delegations.create(connection, LOCAL_TENANT, given))

    def holds() -> bool:
        kept = place.people.do(lambda connection: delegations.find(connection, LOCAL_TENANT, given.id))
        return kept is not None and kept.until == until

    place.revoke(first)
    assert holds()
    place.revoke(last)
    assert not holds()


def test_of_two_keys_that_are_revoked_at_once_one_is_the_last(place: Place) -> None:
    ids = place.person()
    session = place.sign_in(place.link(ids[0]))
    asyncio.run(_revoke_at_once(place.dsn, [place.key(id) for id in ids], lambda _: ids))
    wait_for(lambda: not place.is_signed_in(session))


_WAITS: Final = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = $1)"


async def _revoke_at_once(dsn: str, ids: list[str], all_ids: Callable[[str], tuple[str, str]]) -> None:
    async with connecting(dsn) as first, connecting(dsn) as second, connecting(dsn) as eye:
        database = await eye.fetchval("SELECT current_database()")

        async def revoke(connection: asyncpg.Connection, id: str) -> None:
            async with connection.transaction():
                await keys.revoke_key(connection, LOCAL_TENANT, id, all_ids)

        async with first.transaction():
            await keys.revoke_key(first, LOCAL_TENANT, ids[0], all_ids)
            other = asyncio.create_task(revoke(second, ids[1]))

            async def is_under_way() -> Any:
                return other.done() or await eye.fetchval(_WAITS, database)

            await until(is_under_way)
        await other
