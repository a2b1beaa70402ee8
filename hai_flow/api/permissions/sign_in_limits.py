"""Refused credentials and forbidden acts: how many there may be, and which are recorded. An address with many wrong
credentials gets 429 in place of 401; a good credential still passes, so others behind the same address are not locked
out. The audit has at most one record a minute for an address and tenant, or a principal, which counts the refusals
since the one before."""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

import structlog
from starlette.requests import HTTPConnection

from hai_flow.api.base import peers
from hai_flow.api.permissions.principals import NOBODY, Principal, Unproven
from hai_flow.api.permissions.rate_limits import NAMES_MAX, Rate, too_often
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings
from hai_flow.store.audit import audit

log = structlog.get_logger(__name__)

REFUSED: Final = "sign_in.refused"
DENIED: Final = "access.denied"
RECORDS_MAX: Final = 60
_UNKNOWN: Final = c.Principal("unknown")
_BEYOND: Final = frozenset(("right_missing", "credential_limited", "token.exceeds", "token.issuer"))


class SignIns:
    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rate = Rate(settings.refusals_peer_max)
        self._records_of = Rate(1)
        self._records = Rate(RECORDS_MAX)
        self._unrecorded: Counter[str] = Counter()

    async def record_refusal(self, connection: HTTPConnection, refusal: Rejected) -> Rejected:
        """The answer to a refused credential: the refusal, or 429 where one address has had too many."""
        if refusal.status != 401 or refusal.code == "auth.missing":
            return refusal
        peer = peers.find_peer(connection.scope)
        seconds = self._rate.take(peer)
        tenant, credential = LOCAL_TENANT, None
        if isinstance(refusal, Unproven) and refusal.tenant is not None:
            tenant, credential = refusal.tenant, refusal.credential
        actor = self._actor(connection, NOBODY, who=_UNKNOWN, credential=credential)
        await self._note(f"{peer} {tenant}", tenant, actor, REFUSED, refusal.code)
        if seconds:
            return too_often("auth.too_often", "your address has sent too many credentials that were refused.", seconds)
        return refusal

    async def record_denial(self, connection: HTTPConnection, principal: Principal, refusal: Rejected) -> None:
        """Record that a known caller tried an act that their roles, or the limits of their credential, do not allow."""
        if refusal.status != 403 or refusal.code not in _BEYOND or principal.is_anybody:
            return
        actor = self._actor(connection, principal, who=principal.who, credential=principal.credential)
        name = f"{principal.tenant} {principal.id} {principal.credential}"
        await self._note(name, principal.tenant, actor, DENIED, refusal.code)

    def _actor(
        self, connection: HTTPConnection, principal: Principal, *, who: c.Principal, credential: str | None
    ) -> AuditActor:
        route = getattr(connection.scope.get("route"), "path", None)
        address = None if connection.client is None else connection.client.host
        return AuditActor(who=who, way=principal.way, credential=credential, address=address, via=route)

    async def _note(self, name: str, tenant: UUID, asked: AuditActor, act: str, code: str) -> None:
        self._unrecorded[name] += 1
        if len(self._unrecorded) > NAMES_MAX:
            self._unrecorded.clear()
            self._unrecorded[name] = 1
        if self._records_of.take(name) or self._records.take(""):
            return
        row = asked.row(act, code=code, times=self._unrecorded.pop(name))
        try:
            await audit.write(self._runtime.database.api, tenant, [row])
        except Exception as error:  # the refusal itself stands, whether or not the database answers
            log.warning("refusal_not_recorded", error=str(error) or type(error).__name__)
