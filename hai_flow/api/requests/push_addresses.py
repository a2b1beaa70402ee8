"""Addresses of callers that are called when a run changes: judged before they are taken, and stored sealed."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.access import Access
from hai_flow.runtime.messaging.pushes import PushCaller
from hai_flow.settings import Settings
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.store.messaging import hints, pushes
from hai_flow.store.messaging.pushes import Push
from hai_flow.wire.a2a.pushes import PushConfig


async def find_obstacle(settings: Settings, url: str) -> str | None:
    """Why this server does not connect to the address. Each call is judged again."""
    return await EgressGuard(settings.http_hosts).find_obstacle(url, by_proxy=settings.http_proxy is not None)


async def store_push(access: Access, run_id: UUID, config: PushConfig) -> bool:
    """Store the caller's configuration for the run. False: they have too many."""
    principal = access.principal
    may = principal.may(Right.ANSWER) or principal.may(Right.DECIDE)
    encode = msgspec.json.encode
    sealed = pushes.seal_config(await key_of(access), run_id, principal.id, encode(config))
    caller = PushCaller(*msgspec.structs.astuple(principal.who), key=principal.key)
    push = Push(access.tenant, run_id, principal.id, config.id, sealed, encode(caller), may, None, 0)
    return await pushes.store_push(access.runtime.database.api, push)


async def key_of(access: Access) -> bytes:
    """By which this database seals configurations."""
    return (await hints.seal_of(access.runtime.database.api)).key
