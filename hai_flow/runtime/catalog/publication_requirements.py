"""What a deployment demands of the publication of a workflow that has runs: a rehearsal of exactly that text."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import msgspec

from hai_flow.definition.plan import Plan
from hai_flow.errors import Rejected
from hai_flow.store.catalog import rehearsals, workflows
from hai_flow.store.catalog.workflows import Workflow
from hai_flow.store.postgres.connections import Connection, Pool


class RehearsalDemand(msgspec.Struct, frozen=True):
    """A rehearsal over the runs of the last `days` that is at most `hours` old and shows at most `differences` runs
    that would go otherwise. `everywhere`: whether or not there are runs in this database, since others hold some."""

    hours: int
    differences: int
    days: int
    everywhere: bool = False

    async def check(self, connection: Connection | Pool, tenant: UUID, plan: Plan) -> None:
        """Raises Rejected 409 `rehearsal_required` unless the plan's text may be published now."""
        latest = await workflows.find_latest_workflow(connection, tenant, plan.name)
        if latest is None or (latest.sha256 == plan.sha256 and not latest.dev):
            return
        stored = await workflows.find_workflow_by_sha(connection, tenant, plan.sha256)
        if stored is not None and not stored.dev:
            return  # it is published, and nothing changes
        if not self.everywhere and not await rehearsals.has_runs(connection, tenant, plan.name):
            return
        fault = await self._find_fault(connection, tenant, plan, latest)
        if fault:
            raise Rejected(
                409,
                "rehearsal_required",
                f"{plan.name}@{plan.version} is not published: {fault}. Run `hai-flow backtest FILE --since "
                f"{self.days}d --keep` with this file and publish it then; an admin may publish it without, with a "
                "reason (`--unrehearsed`).",
            )

    async def _find_fault(self, connection: Connection | Pool, tenant: UUID, plan: Plan, latest: Workflow) -> str:
        entry = await rehearsals.find_rehearsal(connection, tenant, plan.name, plan.sha256, latest.sha256)
        if entry is None:
            return (
                "exactly this text was not rehearsed on the recorded runs of the workflow, as this deployment demands"
            )
        rehearsal, age = entry
        if rehearsal.base != latest.sha256:
            return (
                f"its rehearsal was held against another version than {latest.name}@{latest.version}, which is the "
                "latest one now"
            )
        if age > timedelta(hours=self.hours):
            return f"its rehearsal is {age // timedelta(hours=1)} hours old, and {self.hours} are allowed"
        if not rehearsal.complete:
            return f"its rehearsal took {rehearsal.runs} runs, and there were more"
        if rehearsal.age < timedelta(days=self.days):
            hours = rehearsal.age / timedelta(hours=1)
            return f"its rehearsal took the runs of {hours:g} hours, and those of {self.days} days are demanded"
        if rehearsal.differences > self.differences:
            return (
                f"{rehearsal.differences} of the {rehearsal.runs} runs of its rehearsal would go otherwise or could "
                f"not be decided again, and {self.differences} may"
            )
        return ""
