"""Workflows whose runs would start each other for ever, as far as that can be seen when one of them is published."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Protocol, TypeAlias
from uuid import UUID

from hai_flow.definition.plan import Plan, Run, RunTrigger
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.include_keys import first_of
from hai_flow.errors import Finding, Rejected, Unreadable
from hai_flow.store.catalog.workflows import WorkflowSummary
from hai_flow.store.messaging import triggers
from hai_flow.store.postgres.connections import Pool


class Published(Protocol):
    """The workflows that are published: a catalog, which reads with `reads`."""

    reads: Pool

    async def resolve(self, tenant: UUID, reference: str) -> tuple[WorkflowSummary, Plan]:
        """The workflow that the reference means now. Raises Rejected 404."""
        ...

    def runs_of(self, plan: Plan) -> tuple[Run, ...]: ...


_Visited: TypeAlias = tuple[str, "Plan | None", bool, tuple[str, ...]]
"""A workflow on the way, its plan, whether some end was passed, and the way in words."""


async def endless(catalog: Published, tenant: UUID, plan: Plan, file: str) -> list[Finding]:
    """A finding if a run of the plan would lead to another one by way of some run's end, over workflows that are
    published. Whether their conditions ever end that can't be known; so it is refused."""
    circle = await _find_circle(catalog, tenant, plan)
    if not circle:
        return []
    position = next((n for n, each in enumerate(plan.triggers) if isinstance(each, RunTrigger)), None)
    at = ("name",) if position is None else ("triggers", position)
    line, column = parse(first_of(plan.source), file).position(at)
    message = f"runs would start each other for ever: {', '.join(circle)}; take one of these out"
    return [Finding(file, line, column, "error", "trigger.circle", message)]


async def _find_circle(catalog: Published, tenant: UUID, plan: Plan) -> tuple[str, ...]:
    """The way from the workflow to itself, on which some run's end starts another one; () if there is none."""
    watchers = await _map_watchers(catalog, tenant, plan)
    if not watchers:
        return ()
    waiting: deque[_Visited] = deque([(plan.name, plan, False, ())])
    visited = {(plan.name, False)}
    while waiting:
        name, plan_there, over_an_end, way = waiting.popleft()
        following = [(each, True, f"the end of {name} starts {each}") for each in watchers.get(name, ())]
        if plan_there is not None:
            for run in catalog.runs_of(plan_there):
                following.append((run.workflow, over_an_end, f"{name} runs {run.workflow}"))
        for each, ended, words in following:
            reached = over_an_end or ended
            if each == plan.name and reached:
                return (*way, words)
            if (each, reached) not in visited:
                visited.add((each, reached))
                waiting.append((each, await _plan_of(catalog, tenant, each), reached, (*way, words)))
    return ()


async def _plan_of(catalog: Published, tenant: UUID, name: str) -> Plan | None:
    with suppress(Rejected, Unreadable):
        return (await catalog.resolve(tenant, name))[1]
    return None


async def _map_watchers(catalog: Published, tenant: UUID, plan: Plan) -> dict[str, list[str]]:
    """Which workflows the end of a run of each workflow starts, once the plan counts."""
    rows = await triggers.run_triggers(catalog.reads, tenant)
    pairs = [(row.type, row.workflow_name) for row in rows if row.workflow_name != plan.name]
    pairs += [(each.workflow, plan.name) for each in plan.triggers if isinstance(each, RunTrigger)]
    watchers: dict[str, list[str]] = {}
    for watched, name in pairs:
        watchers.setdefault(watched, []).append(name)
    return watchers
