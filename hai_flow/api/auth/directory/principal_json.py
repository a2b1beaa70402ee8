"""A principal as JSON, for the rows of tickets, links and browser sessions."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hai_flow.api.permissions.principals import Principal, Way
from hai_flow.engine import commands as c


class _StoredPrincipal(msgspec.Struct, frozen=True):
    who: c.Principal
    credential: str | None
    expires_at: int | None
    threads: frozenset[str] | None
    workflows: frozenset[str] | None
    key: str | None = None
    session: bytes | None = None
    session_version: int = 0
    behind: tuple[str, ...] = ()


def dump_principal(principal: Principal) -> str:
    """The principal as JSON, without their tenant."""
    record = msgspec.convert(principal, _StoredPrincipal, from_attributes=True)
    return msgspec.json.encode(record).decode()


def load_principal(tenant: UUID, text: str, way: Way) -> Principal:
    """The principal that `dump_principal` wrote; their request now comes by this `way`."""
    record = msgspec.json.decode(text, type=_StoredPrincipal)
    return Principal(tenant=tenant, way=way, **msgspec.structs.asdict(record))
