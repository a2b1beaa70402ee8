"""API keys as credentials of requests."""

from __future__ import annotations

from typing import Final

from hai_flow.api.auth.directory.people import People
from hai_flow.api.auth.directory.row_cache import Book
from hai_flow.api.permissions.principals import Principal, Unproven, reject_credential
from hai_flow.engine import commands as c
from hai_flow.engine.pendings.selectors import is_agent
from hai_flow.runtime.people.delegates import list_people_of_agent
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import keys
from hai_flow.store.identity.keys import Key

SECONDS: Final = 1.0  # a key that another process revoked is taken for no longer
USE_SECONDS: Final = 60.0  # how exactly it is known when a key was used


class Keys:
    """The keys of the database. `people`: whose ids are one person's."""

    def __init__(self, runtime: Runtime, people: People) -> None:
        self._people = people
        self._runtime = runtime
        self._known: Book[Key | None] = Book(self._find, SECONDS)
        self._used: Book[None] = Book(self._note_use, USE_SECONDS)

    async def principal(self, text: str, now: int) -> Principal:
        """The caller with this key. Raises Rejected 401, with the same text for a key that is unknown, wrong or
        revoked."""
        parts = keys.split_key(text)
        key = None if parts is None else await self.find(parts.id)
        if parts is None or key is None:
            raise reject_credential()
        if not key.proves(parts) or key.revoked_at is not None:
            raise reject_credential().of(key.tenant, key.id)
        expires_at = ends_at(key)
        if expires_at is not None and expires_at <= now:
            raise Unproven(401, "auth.expired", "this key has expired; ask for a new one.").of(key.tenant, key.id)
        await self._used.get(key.id)
        id = await self._people.one(key.tenant, key.principal)
        behind = list_people_of_agent(key.principal, key.speaks_for)
        who = c.Principal(id, tuple(key.roles), tuple(key.groups), through=behind)
        return Principal(
            who, key.tenant, way="key", credential=key.id, expires_at=expires_at, key=key.id, behind=behind,
            speaks_for=tuple(key.speaks_for or ()) if is_agent(who) else (),
        )  # fmt: skip

    async def find(self, id: str) -> Key | None:
        """The key of this id, as it was a moment ago."""
        return await self._known.get(id)

    def forget(self, id: str) -> None:
        """Read the key anew the next time: it was changed by this process."""
        self._known.forget(id)

    async def _find(self, id: str) -> Key | None:
        return await keys.find_key(self._runtime.database.api, id)

    async def _note_use(self, id: str) -> None:
        await keys.note_use(self._runtime.database.api, id)


def ends_at(key: Key) -> int | None:
    """When the key expires (ms since 1970); None: never."""
    return None if key.expires_at is None else int(key.expires_at.timestamp() * 1000)
