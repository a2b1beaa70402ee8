"""Workflows that the server brings along. A tenant that has none of the name gets the built-in one when it is first
needed, as a version like any other: to see, to retire, or to replace by publishing a higher one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final
from uuid import UUID

from hai_flow.engine.commands import Principal
from hai_flow.errors import Rejected
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.catalog.catalog import BUILT_IN, Catalog

AGENT_APPROVAL: Final = "agent_approval"
RULE_APPROVAL: Final = "rule_approval"
PUBLISHER: Final = AuditActor(who=Principal("service:hai-flow"), way=BUILT_IN)


async def ensure(catalog: Catalog, tenant: UUID, name: str) -> bool:
    """Publish the built-in workflow unless the tenant has one of its name. Returns whether it was published now."""
    try:
        await catalog.resolve(tenant, name)
    except Rejected as rejected:
        if rejected.code != "workflow_unknown":
            raise
        await catalog.publish(tenant, source_of(name), f"{name}.flow.yaml", asked=PUBLISHER)
        return True
    return False


@cache
def source_of(name: str) -> bytes:
    return Path(__file__).with_name(f"{name}.flow.yaml").read_bytes()
