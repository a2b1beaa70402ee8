"""Workflows as plans: the stored documents, compiled, by sha256. Plans never change, so nothing here ever expires."""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import sha256
from typing import Final
from uuid import UUID

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Plan
from hai_flow.errors import DefinitionError, Finding, Rejected, StoreError
from hai_flow.steps.runner import Registry
from hai_flow.store import workflows
from hai_flow.store.database import Database
from hai_flow.store.workflows import Workflow

PLANS_MAX: Final = 512
_REFERENCE = re.compile(r"(?P<name>[a-z][a-z0-9_]{0,62})(@(?P<version>[0-9]{1,9})(\+(?P<sha>[0-9a-f]{8}))?)?")


class Catalog:
    """Finds, compiles and publishes the workflows of a server that can perform what `registry` can."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self.database = database
        self.registry = registry
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()

    async def plan(self, tenant: UUID, digest: bytes) -> Plan:
        """The plan that a run is pinned to. Raises StoreError if its document is gone: that must never happen."""
        known = self._plans.get(digest)
        if known is not None:
            self._plans.move_to_end(digest)
            return known
        stored = await workflows.workflow_by_sha(self.database.api, tenant, digest)
        if stored is None:
            raise StoreError(f"the workflow {digest.hex()} that a run is pinned to is not in the database")
        return self._compiled(stored.source, f"{stored.name}@{stored.version}")

    async def resolve(self, tenant: UUID, reference: str) -> tuple[Workflow, Plan]:
        """The workflow that `name`, `name@version` or `name@version+sha8` means now. Raises Rejected 404."""
        match = _REFERENCE.fullmatch(reference)
        stored: Workflow | None = None
        if match is not None:
            name, version = match["name"], match["version"]
            if match["sha"]:
                stored = await self._dev_copy(tenant, name, int(version), match["sha"])
            elif version:
                stored = await workflows.workflow_version(self.database.api, tenant, name, int(version))
            else:
                stored = await workflows.latest_workflow(self.database.api, tenant, name)
        if stored is None:
            raise Rejected(404, "workflow_unknown", f"there is no workflow {reference!r}; publish it first.")
        return stored, await self.plan(tenant, stored.sha256)

    async def _dev_copy(self, tenant: UUID, name: str, version: int, sha8: str) -> Workflow | None:
        for each in await workflows.versions_of_workflow(self.database.api, tenant, name):
            if each.version == version and each.sha256.hex().startswith(sha8):
                return await workflows.workflow_by_sha(self.database.api, tenant, each.sha256)
        return None

    async def publish(
        self, tenant: UUID, source: bytes, file: str = "<workflow>", *, dev: bool = False
    ) -> tuple[Workflow, Plan]:
        """Check, compile and store a workflow.

        Raises DefinitionError with every finding, also where this server has no way to perform a step; Rejected 409
        if other bytes have its name and version.
        """
        plan = compile_workflow(source, file)
        faults = [
            Finding(file, step.line, 1, "error", "step.unavailable", f"step {step.path}: {fault}")
            for step, fault in self.registry.faults(plan)
        ]
        if faults:
            raise DefinitionError(faults)
        stored = await workflows.publish_workflow(
            self.database.api,
            tenant,
            name=plan.name,
            version=plan.version,
            source=source,
            title=plan.title or None,
            dev=dev,
        )
        self._keep(plan)
        return stored, plan

    def _compiled(self, source: bytes, file: str) -> Plan:
        plan = self._plans.get(sha256(source).digest())
        return plan or self._keep(compile_workflow(source, file))

    def _keep(self, plan: Plan) -> Plan:
        self._plans[plan.sha256] = plan
        while len(self._plans) > PLANS_MAX:
            self._plans.popitem(last=False)
        return plan


def version_text(workflow: str, version: int, sha256: str, *, dev: bool) -> str:
    """How people read a version: `chat@1`, or `chat@1+3f2a9c11` for a copy that was loaded while it is edited."""
    return f"{workflow}@{version}" + (f"+{sha256[:8]}" if dev else "")
