"""Addresses of callers that are called when a run changes: judged before they are taken, and stored sealed."""

from __future__ import annotations

from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from hai_flow.api.permissions.rights import Right
from hai_flow.api.requests.access import Access
from hai_flow.errors import StepError
from hai_flow.settings import Settings
from hai_flow.steps.http.egress import EgressGuard
from hai_flow.store.messaging import hints, pushes
from hai_flow.store.messaging.pushes import Push
from hai_flow.wire.a2a.pushes import PushConfig


async def find_obstacle(settings: Settings, url: str) -> str | None:
    """Why this server does not connect to the address. Each call is judged again, and an address whose name leads
    nowhere now is tried then."""
    parts, guard, address = urlsplit(url), EgressGuard(settings.http_hosts), ""
    host = parts.hostname or ""
    if settings.http_proxy is None:  # which judges it otherwise
        try:
            address = await guard.address(host, parts.port or 443)
        except StepError as error:
            if not error.retriable:
                return error.message
    if parts.scheme != "https" and not guard.is_named(host, address):
        return "expected https://...; without TLS only hosts in HAI_FLOW_HTTP_HOSTS are called"
    return None


async def store_push(access: Access, run_id: UUID, config: PushConfig) -> bool:
    """Store the caller's configuration for the run. False: they have too many."""
    principal = access.principal
    may = principal.may(Right.ANSWER) or principal.may(Right.DECIDE)
    encode = msgspec.json.encode
    sealed = pushes.seal_config(await key_of(access), run_id, principal.id, encode(config))
    push = Push(access.tenant, run_id, principal.id, config.id, sealed, encode(principal.who), may, None, 0)
    return await pushes.store_push(access.runtime.database.api, push)


async def key_of(access: Access) -> bytes:
    """By which this database seals configurations."""
    return (await hints.seal_of(access.runtime.database.api)).key
