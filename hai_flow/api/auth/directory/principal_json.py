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
    threads: tuple[str, ...] | None
    workflows: tuple[str, ...] | None
    key: str | None = None
    session: bytes | None = None
    session_version: int = 0
    behind: tuple[str, ...] = ()


def dump_principal(principal: Principal) -> str:
    """The principal as JSON, without their tenant."""
    record = _StoredPrincipal(
        principal.who,
        principal.credential,
        principal.expires_at,
        None if principal.threads is None else tuple(principal.threads),
        None if principal.workflows is None else tuple(principal.workflows),
        principal.key,
        principal.session,
        principal.session_version,
        principal.behind,
    )
    return msgspec.json.encode(record).decode()


def load_principal(tenant: UUID, text: str, way: Way) -> Principal:
    """The principal that `dump_principal` wrote; their request now comes by this `way`."""
    record = msgspec.json.decode(text, type=_StoredPrincipal)
    return Principal(
        record.who,
        tenant,
        way=way,
        credential=record.credential,
        expires_at=record.expires_at,
        threads=None if record.threads is None else frozenset(record.threads),
        workflows=None if record.workflows is None else frozenset(record.workflows),
        key=record.key,
        session=record.session,
        session_version=record.session_version,
        behind=record.behind,
    )
