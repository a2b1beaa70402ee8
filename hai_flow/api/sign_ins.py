"""Credentials that were refused: how many of one address, and what of them is recorded.

Who tries many gets 429 instead of 401, with nothing said about the credential; a good one is taken all the same, so
that nobody is locked out by others behind the same address. A refusal is recorded in the audit of the tenant
`default`, because whose tenant a wrong credential was meant for is not known: one record an address and a minute, and
in all no more than `RECORDS_MAX` a minute, each with how many there were since the last one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import structlog
from starlette.requests import HTTPConnection

from hai_flow.api import peers
from hai_flow.api.rates import NAMES_MAX, Rate, too_often
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime import LOCAL_TENANT, Runtime
from hai_flow.runtime.auditing import Asked
from hai_flow.settings import Settings
from hai_flow.store import audit

log = structlog.get_logger(__name__)

REFUSED: Final = "sign_in.refused"
RECORDS_MAX: Final = 60
_UNKNOWN: Final = c.Principal("unknown")


class SignIns:
    """The refused credentials of one process."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rate = Rate(settings.refusals_peer_max)
        self._records_of = Rate(1)
        self._records = Rate(RECORDS_MAX)
        self._unrecorded: Counter[str] = Counter()

    async def refused(self, connection: HTTPConnection, refusal: Rejected) -> Rejected:
        """The answer to a refused credential: the refusal, or 429 where one address has had too many."""
        if refusal.status != 401 or refusal.code == "auth.missing":
            return refusal
        peer = peers.peer_of(connection.scope)
        seconds = self._rate.take(peer)
        await self._note(connection, peer, refusal.code)
        if seconds:
            return too_often("auth.too_often", "your address has sent too many credentials that were refused.", seconds)
        return refusal

    async def _note(self, connection: HTTPConnection, peer: str, code: str) -> None:
        self._unrecorded[peer] += 1
        if len(self._unrecorded) > NAMES_MAX:
            self._unrecorded.clear()
            self._unrecorded[peer] = 1
        if self._records_of.take(peer) or self._records.take(""):
            return
        times = self._unrecorded.pop(peer)
        route = getattr(connection.scope.get("route"), "path", None)
        address = None if connection.client is None else connection.client.host
        row = Asked(who=_UNKNOWN, way="nobody", address=address, via=route).row(REFUSED, code=code, times=times)
        try:
            await audit.write(self._runtime.database.api, LOCAL_TENANT, [row])
        except Exception as error:  # the refusal itself stands, whether or not the database answers
            log.warning("refusal_not_recorded", error=str(error) or type(error).__name__)
