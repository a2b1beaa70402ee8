"""People who were forgotten a short while ago. What was made for them before then, and no row of ours can end, is
refused: a token that a key has signed, and a token of an issuer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from hai_flow.api.identity.keys import invalid
from hai_flow.runtime import Runtime
from hai_flow.runtime.recent import Recent
from hai_flow.store import proofs

SECONDS: Final = 1.0  # a token of who was forgotten is taken for no longer


class Forgotten:
    """Who was forgotten. There are few, so all are read at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._recently: Recent[Mapping[bytes, datetime]] = Recent(self._find, SECONDS)

    async def refuse(self, tenant: UUID, person: str, made_at: float) -> None:
        """Raises Rejected 401 if the person was forgotten since `made_at` (ms since 1970)."""
        recently = await self._recently.get()
        at = recently.get(proofs.person_digest(tenant, person)) if recently else None
        if at is not None and made_at <= at.timestamp() * 1000:
            raise invalid()

    async def _find(self) -> Mapping[bytes, datetime]:
        return await proofs.forgotten(self._runtime.database.api)
