"""A principal as JSON, for the rows of tickets, links and browser sessions."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hai_flow.api.permissions.principals import Principal, Way
from hai_flow.engine import commands as c


class _Kept(msgspec.Struct, frozen=True):
    """The principal, but for their tenant."""

    who: c.Principal
    credential: str | None
    expires_at: int | None
    threads: tuple[str, ...] | None
    workflows: tuple[str, ...] | None
    key: str | None = None
    session: bytes | None = None
    session_version: int = 0


def dumped(principal: Principal) -> str:
    """The principal as JSON, without their tenant."""
    kept = _Kept(
        principal.who,
        principal.credential,
        principal.expires_at,
        None if principal.threads is None else tuple(principal.threads),
        None if principal.workflows is None else tuple(principal.workflows),
        principal.key,
        principal.session,
        principal.session_version,
    )
    return msgspec.json.encode(kept).decode()


def loaded(tenant: UUID, text: str, way: Way) -> Principal:
    """The principal that `dumped` wrote; their request now comes by this `way`."""
    kept = msgspec.json.decode(text, type=_Kept)
    return Principal(
        kept.who,
        tenant,
        way=way,
        credential=kept.credential,
        expires_at=kept.expires_at,
        threads=None if kept.threads is None else frozenset(kept.threads),
        workflows=None if kept.workflows is None else frozenset(kept.workflows),
        key=kept.key,
        session=kept.session,
        session_version=kept.session_version,
    )
