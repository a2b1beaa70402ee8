"""People that were forgotten a short while ago. A credential with a row of ours ends with that row, but two kinds of
token have none: those that a key has signed, and those of an issuer. They are refused if they were made before then."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from hai_flow.api.permissions.principals import reject_credential
from hai_flow.runtime.base.single_flight import SingleFlightCache
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.identity import credential_checks

SECONDS: Final = 1.0  # a token of a forgotten person is taken for no longer


class ErasedPeople:
    """The forgotten people. They are few, so all are read at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._recently: SingleFlightCache[Mapping[bytes, datetime]] = SingleFlightCache(self._find, SECONDS)

    async def refuse(self, tenant: UUID, person: str, made_at: float) -> None:
        """Raises Rejected 401 if the person was forgotten since `made_at` (ms since 1970)."""
        recently = await self._recently.get()
        at = recently.get(credential_checks.hash_person(tenant, person)) if recently else None
        if at is not None and made_at <= at.timestamp() * 1000:
            raise reject_credential()

    async def _find(self) -> Mapping[bytes, datetime]:
        return await credential_checks.list_recently_erased(self._runtime.database.api)
