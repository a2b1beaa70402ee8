"""Workflows as plans: the stored documents, compiled, by sha256. Plans never change, so nothing here ever expires."""

from __future__ import annotations

import asyncio
import copy
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID

from hai_flow.definition.checks import asked_people
from hai_flow.definition.checks.question_guards import find_questions_that_read
from hai_flow.definition.child_interface import Child, child_of
from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.names import name_forms
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.paths import plan_path
from hai_flow.definition.people.calendars import Calendars
from hai_flow.definition.plan import TRIGGER_KINDS, ApiTrigger, Plan, Run, WebhookTrigger
from hai_flow.definition.readiness import (
    RunnersMissing,
    lacking,
    list_missing_runners,
    list_unknown_calendars,
    list_unknown_channels,
    list_unlikely_roles,
)
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.include_keys import first_of
from hai_flow.engine.canaries import CANARY
from hai_flow.engine.events import Pin
from hai_flow.engine.runs.children import reference_of
from hai_flow.engine.state.state import RunState
from hai_flow.errors import DefinitionError, Finding, HaiFlowError, Rejected, Unreadable
from hai_flow.primitives.beside_loop import WORK_FOR
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.base.single_flight import Together
from hai_flow.runtime.catalog import compiling
from hai_flow.runtime.catalog.cycles import endless
from hai_flow.runtime.catalog.pins import PinBook
from hai_flow.runtime.catalog.publication_requirements import RehearsalDemand
from hai_flow.runtime.catalog.retirement import refuse_retirement
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.steps.pins import Looked
from hai_flow.steps.runner import Registry
from hai_flow.store.audit import audit
from hai_flow.store.catalog import rehearsals, workflows
from hai_flow.store.catalog.workflows import NamedVersion, Workflow, WorkflowSummary
from hai_flow.store.messaging import triggers
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.postgres.database import Database

PLANS_MAX: Final = 512
BUILT_IN: Final = "built_in"  # the way by which the server itself publishes
VERSION_NAMERS: Final = "operators, and workflows that were published with `run: name@version`,"
_REFERENCE = re.compile(rf"(?P<name>{name_forms.WORKFLOW})(@(?P<version>[0-9]{{1,9}})(\+(?P<sha>[0-9a-f]{{8}}))?)?")


class Catalog:
    """Finds, compiles and publishes the workflows of a server with the runners of `registry`.

    `on_publication` is called with (connection, tenant, name) in the transaction of every publication, also of a
    workflow that was published before, and where a version of it is retired or taken back into use; `on_published`
    behind it. `channels` gives the names of the channels over which people of a tenant, by its name, are notified;
    None: there is no file of them. `roles` gives the roles that people of a tenant are known to have. `is_on_disk`:
    whether a document that came over the network is a file of this machine, whose tools it may use."""

    def __init__(
        self, database: Database, registry: Registry, tool_pins: PinBook | None = None, tenants: Tenants | None = None
    ) -> None:
        self.database = database
        self.reads: Pool = database.api
        self.registry = registry
        self._tool_pins = tool_pins or PinBook(database)
        self._tenants = tenants or Tenants(database)
        # Apart for each tenant: one may have read a workflow from its disk that another has sent over the network.
        self._plans: OrderedDict[tuple[UUID, bytes], Plan] = OrderedDict()
        self._compiling: dict[tuple[UUID, bytes], asyncio.Future[Plan]] = {}
        self._runs: dict[bytes, tuple[Run, ...]] = {}
        self._recent: dict[tuple[UUID, str], WorkflowSummary] = {}  # of the references by which runs were started
        # Each start asks, and many start at once: a connection for each would be the most of what a start costs.
        self._retirements: Together[tuple[Pool, UUID, bytes], bool] = Together(lambda key: workflows.is_retired(*key))
        self.checks = compiling.Checks()
        self._webhooks = asyncio.Lock()  # so that all tasks that wait for one lock take one connection
        self.on_publication: Callable[[Connection, UUID, str], Awaitable[None]] | None = None
        self.on_published: Callable[[], Awaitable[None]] | None = None
        self.channels: Callable[[str], Collection[str] | None] | None = None
        self.roles: Callable[[UUID], Awaitable[Collection[str]]] | None = None
        self.calendars: Calendars = {}
        self.demand: RehearsalDemand | None = None
        self.is_on_disk: Callable[[bytes], bool] | None = None

    def reading(self, reads: Pool) -> Catalog:
        """The same catalog for a request, which reads with `reads`."""
        catalog = copy.copy(self)
        catalog.reads = reads
        return catalog

    async def plan(self, tenant: UUID, digest: bytes) -> Plan:
        """The plan that a run is pinned to. Raises Unreadable where this release can't read the document: a newer one
        wrote it; or if the document is gone, which must never happen."""
        cached = self._plans.get((tenant, digest))
        if cached is not None:
            self._plans.move_to_end((tenant, digest))
            return cached
        stored = await workflows.find_workflow_by_sha(self.reads, tenant, digest)
        if stored is None:
            raise Unreadable(f"the workflow {digest.hex()} that it is pinned to is not in the database")
        return await self.plan_of(tenant, stored)

    def recall_plan(self, tenant: UUID, digest: bytes) -> Plan | None:
        """As `plan`, if it is in memory."""
        return self._plans.get((tenant, digest))

    async def find_title(self, tenant: UUID, digest: bytes) -> str | None:
        """The title of the workflow that a run is pinned to, whether or not this release can read it; None: it has
        none."""
        plan = self._plans.get((tenant, digest))
        return await workflows.title_of(self.reads, tenant, digest) if plan is None else plan.title or None

    async def resolve(self, tenant: UUID, reference: str) -> tuple[WorkflowSummary, Plan]:
        """The workflow that `name`, `name@version` or `name@version+sha8` means now. Raises Rejected 404, and
        Unreadable as `plan` does."""
        name, version, sha8 = parse_reference(reference)
        if sha8 is not None and version is not None:
            stored = await self._find_dev_copy(tenant, name, version, sha8)
        else:
            stored = await workflows.find_summary(self.reads, tenant, name, version)
        if stored is None:
            names = [each.name for each in await workflows.list_workflows(self.reads, tenant)]
            hint = suggestion(reference.partition("@")[0], [name for name in names if f"{name}@" not in reference])
            raise Rejected(
                404, "workflow_unknown", f"there is no workflow {reference!r}{hint or '; publish it first.'}"
            )
        return stored, await self.plan(tenant, stored.sha256)

    async def resolve_startable(
        self,
        tenant: UUID,
        reference: str,
        summary: WorkflowSummary | None = None,
        *,
        latest_only: bool = False,
        at: datetime | None = None,
    ) -> tuple[WorkflowSummary, Plan]:
        """The same for a request that starts a run; `found`: the workflow, where it was read already.

        `latest_only`: the caller may name no version but the latest, or that of the moment `at`. Raises Rejected 404;
        403 `version_forbidden` for another version then; 409 `workflow_retired`; 409 `trigger_missing` where the
        workflow is started by its schedules and events alone."""
        self._recent.pop((tenant, reference), None)
        if latest_only and "@" in reference:
            summary = await self._find_latest_as(tenant, reference, at)
        if summary is None:
            stored, plan = await self.resolve(tenant, reference)
        else:
            stored, plan = summary, await self.plan(tenant, summary.sha256)
        if stored.retired_at is not None:
            raise refuse_retirement(plan)
        if not any(isinstance(trigger, ApiTrigger) for trigger in plan.triggers):
            kinds = sorted({TRIGGER_KINDS[type(each)] for each in plan.triggers})
            message = (
                f"workflow {plan.name}@{plan.version} is started by its {' and '.join(kinds)} triggers only; "
                "add `- api: {}` to its triggers to start it by request."
            )
            raise Rejected(409, "trigger_missing", message)
        if not (stored.dev or "+" in reference):
            if len(self._recent) >= PLANS_MAX:
                self._recent.clear()
            self._recent[tenant, reference] = stored
        return stored, plan

    def recall_startable(self, tenant: UUID, reference: str) -> tuple[WorkflowSummary, Plan] | None:
        """What `resolve_startable` has found for the reference before; None: nothing, or no published version. It may
        have been retired since, and a name may mean another version: the commit of the start has to ask for both
        (docs/decisions/0120)."""
        stored = self._recent.get((tenant, reference))
        key = (tenant, b"" if stored is None else stored.sha256)
        if stored is None or key not in self._plans:
            return None
        self._plans.move_to_end(key)
        return stored, self._plans[key]

    async def _find_latest_as(self, tenant: UUID, reference: str, at: datetime | None) -> WorkflowSummary:
        """The latest version, now or `at` a moment, if the reference, which names a version, means it. Raises Rejected
        404 where there is no such workflow at all, 403 for every other version, whether or not there is one."""
        name, version, sha8 = parse_reference(reference)
        latest = (await self.resolve(tenant, name or reference))[0]
        if at is not None and latest.version != version:
            stored = await workflows.list_versions_of_workflow(self.reads, tenant, latest.name)
            latest = next((each for each in stored if each.created_at <= at), latest)
        if latest.version != version or not latest.sha256.hex().startswith(sha8 or ""):
            raise Rejected(
                403,
                "version_forbidden",
                f"you may start the latest version of {name} only, and this names {reference}: leave the version out; "
                f"{VERSION_NAMERS} may start another one.",
            )
        return latest

    async def retirement(self, tenant: UUID, plan: Plan) -> Rejected | None:
        """The refusal of a run that would begin with the plan; None: its version is in use."""
        is_retired = await self._retirements.get((self.reads, tenant, plan.sha256))
        return refuse_retirement(plan) if is_retired else None

    async def retire(self, tenant: UUID, reference: str, *, retired: bool, asked: AuditActor) -> WorkflowSummary:
        """Retire `name@version`, so that no run, child or fork begins with it, or take it back into use. To do so again
        changes nothing.

        Raises Rejected 404; 422 where no version is named; 409 `webhook_path_taken` where the version that is the
        latest then has a webhook whose path another workflow has by now."""
        name, version, sha8 = parse_reference(reference)
        if not name or version is None or sha8 is not None:
            raise Rejected(422, "request.invalid", f"expected name@version, found {reference[:100]!r}.")
        stored = await workflows.find_summary(self.reads, tenant, name, version)  # readable or not
        if stored is None:
            stored, _ = await self.resolve(tenant, reference)
        act = "workflow.retired" if retired else "workflow.unretired"
        row = asked.row(act, subject=f"workflow:{name}@{version}", digest=stored.sha256)
        async with self._webhooks, triggers.lock_webhook_publication(self.database.api, tenant):
            async with self.database.api.acquire() as connection, connection.transaction():
                await rehearsals.lock_publication(connection, tenant, name)
                if await workflows.set_retired(connection, tenant, name, version, retired=retired):
                    await self._demand_paths_are_free(connection, tenant, name)
                    await audit.write(connection, tenant, [row])
                if self.on_publication is not None:
                    await self.on_publication(connection, tenant, name)
            if self.on_published is not None:
                await self.on_published()
        again = await workflows.find_workflow_by_sha(self.database.api, tenant, stored.sha256)
        return again or stored

    async def _demand_paths_are_free(self, connection: Connection, tenant: UUID, name: str) -> None:
        latest = await workflows.find_latest_workflow(connection, tenant, name)
        if latest is None or latest.retired_at is not None:
            return
        try:
            plan = await self.plan_of(tenant, latest)
        except Unreadable:
            return
        if conflicts := await self._find_path_conflicts(tenant, plan, f"{name}@{plan.version}"):
            raise Rejected(
                409,
                "webhook_path_taken",
                f"{name}@{plan.version} would be the latest version then, and {conflicts[0].message}: retire "
                f"{name}@{plan.version}, too, or first; or publish one with another path.",
            )

    async def _find_dev_copy(self, tenant: UUID, name: str, version: int, sha8: str) -> WorkflowSummary | None:
        copies = await workflows.list_versions_of_workflow(self.reads, tenant, name)
        return next((each for each in copies if each.version == version and each.sha256.hex().startswith(sha8)), None)

    async def publish(
        self,
        tenant: UUID,
        source: bytes,
        file: str = "<workflow>",
        *,
        dev: bool = False,
        from_disk: bool = False,
        asked: AuditActor | None = None,
        compiled: Plan | None = None,
        unrehearsed: str = "",
    ) -> tuple[Workflow, Plan]:
        """Check, compile and store a workflow. `from_disk`: it was read from a file of this machine. `asked`: the
        person who publishes it, for the audit. `compiled`: the plan of these bytes by this name, where the caller has
        made it already. `unrehearsed`: why no rehearsal is demanded this time.

        Raises as `check` does; and Rejected 409 if other bytes have its name and version, or without a rehearsal that
        is demanded. A dev copy needs none: where a version is published it is never the latest."""
        if not from_disk and self.is_on_disk is not None:
            from_disk = await compiling.make(self.is_on_disk, source)
        plan, looked = await self._check(tenant, source, file, from_disk=from_disk, compiled=compiled)
        if plan.name == CANARY and (asked is None or asked.way != BUILT_IN):
            message = (
                f"workflows of the name {CANARY} are written by this server alone (docs/oversight.md): take another."
            )
            raise Rejected(409, "workflow_reserved", message)
        stored, plan = await self._publish_guarded(
            tenant, plan, source, file, asked, dev=dev, from_disk=from_disk, unrehearsed=unrehearsed
        )
        if looked.pins and dev:
            await self._tool_pins.replace(tenant, plan.sha256, looked.pins)
        elif looked.pins:
            await self._tool_pins.add(tenant, plan.sha256, looked.pins)
        return stored, plan

    async def _publish_guarded(
        self,
        tenant: UUID,
        plan: Plan,
        source: bytes,
        file: str,
        asked: AuditActor | None,
        *,
        dev: bool,
        from_disk: bool,
        unrehearsed: str,
    ) -> tuple[Workflow, Plan]:
        publish = partial(
            self._publish, tenant, plan, source, asked, dev=dev, from_disk=from_disk, unrehearsed=unrehearsed
        )
        if not any(isinstance(trigger, WebhookTrigger) for trigger in plan.triggers):
            return await publish()
        async with self._webhooks, triggers.lock_webhook_publication(self.database.api, tenant):
            if conflicts := await self._find_path_conflicts(tenant, plan, file):  # since it was checked
                raise DefinitionError(_place_findings(conflicts, source))
            return await publish()

    async def _publish(
        self,
        tenant: UUID,
        plan: Plan,
        source: bytes,
        asked: AuditActor | None,
        *,
        dev: bool,
        from_disk: bool,
        unrehearsed: str,
    ) -> tuple[Workflow, Plan]:
        row = None
        if asked is not None:
            subject = f"workflow:{plan.name}@{plan.version}"
            row = asked.row(
                "workflow.published",
                subject=subject,
                digest=plan.sha256,
                dev=dev or None,
                unrehearsed=unrehearsed or None,
            )
        async with audit.record_act(self.database.api, tenant, row) as connection:
            await rehearsals.lock_publication(connection, tenant, plan.name)
            if self.demand is not None and not dev and not unrehearsed:
                await self.demand.check(connection, tenant, plan)
            stored = await workflows.publish_workflow(
                connection,
                tenant,
                name=plan.name,
                version=plan.version,
                source=source,
                title=plan.title or None,
                dev=dev,
                from_disk=from_disk,
                visibility=plan.visibility,
            )
            plan = self._keep(tenant, replace(plan, from_disk=stored.from_disk))
            if self.on_publication is not None:
                await self.on_publication(connection, tenant, plan.name)
        if self.on_published is not None:
            await self.on_published()
        return stored, plan

    async def demand_rehearsal(self, tenant: UUID, plan: Plan) -> None:
        """Raises Rejected 409 `rehearsal_required` where the deployment demands a rehearsal that is not there."""
        if self.demand is not None:
            await self.demand.check(self.database.api, tenant, plan)

    async def check(self, tenant: UUID, source: bytes, file: str = "<workflow>", *, from_disk: bool = False) -> Plan:
        """The plan of a workflow that could be published as things are now.

        Raises DefinitionError with every finding, also where this server has no way to perform a step."""
        return (await self._check(tenant, source, file, from_disk=from_disk))[0]

    async def _check(
        self, tenant: UUID, source: bytes, file: str, *, from_disk: bool, compiled: Plan | None = None
    ) -> tuple[Plan, Looked]:
        """The plan, and the tools of the servers that it uses, as they are now."""
        assert compiled is None or compiled.source == source, "it is the plan of these bytes"
        plan = replace(compiled or await compiling.make(compile_workflow, source, file), from_disk=from_disk)
        await self._check_children(tenant, plan, file)
        missing, faults = await compiling.make(self._find_obstacles, plan, file)
        faults += await self._find_unknown_children(tenant, plan, file)
        faults += await endless(self, tenant, plan, file)
        faults += await self._find_path_conflicts(tenant, plan, file)
        if faults:
            raise DefinitionError(_place_findings([*missing, *faults], source))
        if missing:
            raise RunnersMissing(_place_findings(missing, source), lacking(plan, self.registry.kinds))
        looked = await self.registry.look_at_servers(plan, await self._tenants.name(tenant))
        own_doubts = await compiling.make(self.registry.doubts, plan)
        all_doubts = [*own_doubts, *((plan.steps[path], doubt) for path, doubt in looked.doubts)]
        doubts = [
            Finding(file, step.line, 1, "warning", "step.unavailable", f"step {step.path}: {doubt}")
            for step, doubt in all_doubts
        ]
        doubts = [*_place_findings(doubts, source), *await self._list_unknown_names(tenant, plan, source, file)]
        return replace(plan, warnings=(*plan.warnings, *doubts)) if doubts else plan, looked

    async def _list_unknown_names(self, tenant: UUID, plan: Plan, source: bytes, file: str) -> list[Finding]:
        """A warning for each channel that the deployment does not have, and for each role that is nearly one of its."""
        findings: list[Finding] = []
        if self.channels is not None:
            channels = self.channels(await self._tenants.name(tenant))
            findings += await compiling.make(list_unknown_channels, source, channels, file)
        findings += list_unknown_calendars(source, plan.calendar, self.calendars, file)
        if self.roles is not None and b"role:" in source:
            roles = await self.roles(tenant)
            findings += await compiling.make(list_unlikely_roles, source, roles, tuple(plan.roles), file)
        return findings

    async def list_doubts(self, tenant: UUID, limit: int) -> AsyncIterator[tuple[str, Sequence[Finding]]]:
        """Up to `limit` workflows of the tenant by their latest references, each with what is doubtful about it, as its
        publication said it: what it names of the deployment may be gone. Those that are retired are left out."""
        for summary in await workflows.list_workflows(self.reads, tenant, limit=limit):
            if summary.retired_at is not None:
                continue
            reference = f"{summary.name}@{summary.version}"
            try:
                plan = await self.plan(tenant, summary.sha256)
            except HaiFlowError:
                continue  # of another release: who starts it is told
            steps = [
                Finding(reference, step.line, 1, "warning", "step.unavailable", f"step {step.path}: {doubt}")
                for step, doubt in await compiling.make(self.registry.doubts, plan)
            ]
            names = await self._list_unknown_names(tenant, plan, plan.source, reference)
            yield reference, (*plan.warnings, *steps, *names)

    def _find_obstacles(self, plan: Plan, file: str) -> tuple[list[Finding], list[Finding]]:
        """The steps for which this server has no runner, and those that its runners can't perform."""
        faults = [
            Finding(file, step.line, 1, "error", "step.unavailable", f"step {step.path}: {fault}")
            for step, fault in self.registry.faults(plan)
        ]
        return list(list_missing_runners(plan, self.registry.kinds, file)), faults

    async def plan_of(self, tenant: UUID, stored: Workflow) -> Plan:
        """The plan of a stored workflow of the tenant. Raises Unreadable."""
        try:
            plan = await self._compile(tenant, stored.source, f"{stored.name}@{stored.version}")
        except DefinitionError as error:
            raise Unreadable(f"its workflow is nothing that this release can perform: {error}") from error
        if plan.from_disk == stored.from_disk:
            return plan
        return self._keep(tenant, replace(plan, from_disk=stored.from_disk))

    async def pins(self, tenant: UUID, plan: Plan, *, of_new_run: bool = True) -> dict[str, Pin]:
        """The workflow that each `run: name` and `run: name@version` of the plan means now, and of the plans that they
        lead to.

        `of_new_run`: runs are going to begin with them. Raises Rejected 404 where one does not exist, and then 409
        `workflow_retired` where one is retired."""
        pins = {}
        async for reference, stored, child in self._below(tenant, plan):
            if of_new_run and stored.retired_at is not None:
                raise refuse_retirement(child, f", and {plan.name}@{plan.version} runs it")
            pins[reference] = Pin(stored.version, stored.sha256.hex(), stored.dev)
        return pins

    async def asks_below(self, tenant: UUID, state: RunState, path: str) -> bool:
        """Whether the runs that the step of a run (by its path or id), or a step inside it, waits for put something to
        people, in the versions that the run has pinned. A version that can't be read here counts as one that does."""
        plan = await self.plan(tenant, bytes.fromhex(state.sha256))
        waiting, visited = asked_people.collect_runs(plan, plan_path(plan.ids.get(path, path))), set[str]()
        while waiting:
            pin = state.pins.get(reference_of(waiting.pop()))
            if pin is None:
                return True
            if pin.sha256 in visited:
                continue
            visited.add(pin.sha256)
            try:
                child = await self.plan(tenant, bytes.fromhex(pin.sha256))
            except (Rejected, Unreadable):
                return True
            if asked_people.collect_asks(child, "") is not asked_people.Asks.NOBODY:
                return True
            waiting.extend(asked_people.collect_runs(child, ""))
        return False

    async def find_asking_by_input(self, tenant: UUID, plan: Plan, state: RunState) -> tuple[str, ...]:
        """The steps of the run's plan that wait for a run in which, or below which, what it is given decides whether
        people are asked, or whom, in the versions that the run has pinned. A version that can't be read here counts as
        one in which it does."""
        return tuple(sorted(await self._find_asking_by_input(tenant, plan, state, frozenset())))

    async def _find_asking_by_input(self, tenant: UUID, plan: Plan, state: RunState, above: frozenset[str]) -> set[str]:
        paths = set[str]()
        for step in plan.steps.values():
            if not isinstance(step.verb, Run) or step.verb.detach:
                continue
            pin = state.pins.get(reference_of(step.verb))
            if pin is not None and pin.sha256 in above:
                continue  # it runs itself: what it asks is found where it was looked at first
            try:
                child = None if pin is None else await self.plan(tenant, bytes.fromhex(pin.sha256))
            except (Rejected, Unreadable):
                child = None
            if child is not None and pin is not None:
                below = await self._find_asking_by_input(tenant, child, state, above | {pin.sha256})
                if next(find_questions_that_read(child, {"input"}, below), None) is None:
                    continue
            paths.add(step.path)
        return paths

    async def counts(self, tenant: UUID, plan: Plan) -> bool:
        """Whether runs of the plan, or runs below them, count with others of a concurrency key."""
        if plan.concurrency is not None:
            return True
        # A workflow that does not exist, or can't be read here, is refused where the run starts.
        async with aclosing(self._below(tenant, plan, missing=(Rejected, Unreadable))) as below:
            async for _, _, child in below:
                if child.concurrency is not None:
                    return True
        return False

    async def _below(
        self, tenant: UUID, plan: Plan, *, missing: tuple[type[HaiFlowError], ...] = ()
    ) -> AsyncGenerator[tuple[str, WorkflowSummary, Plan]]:
        """Each workflow that the plan, or one that it leads to, runs, once: its reference, and the workflow that the
        reference means now. `missing`: the errors of a reference that is passed over; others are raised."""
        references: set[str] = set()
        waiting = list(self.runs_of(plan))
        while waiting:
            reference = reference_of(waiting.pop())
            if reference in references:
                continue
            references.add(reference)
            try:
                stored, child = await self.resolve(tenant, reference)
            except missing:
                continue
            waiting.extend(self.runs_of(child))
            yield reference, stored, child

    async def load_plan_of_child(self, tenant: UUID, reference: str, digest: str | None) -> Plan:
        """The plan of a child run: the one that its parent pinned, else the one that the reference means now."""
        if digest is not None:
            return await self.plan(tenant, bytes.fromhex(digest))
        return (await self.resolve(tenant, reference))[1]

    async def _check_children(self, tenant: UUID, plan: Plan, file: str) -> None:
        """Check the inputs that the plan gives to the workflows that it runs, and the outputs that it reads, where they
        are published.

        Raises DefinitionError."""
        children_by_run: dict[tuple[str, int | None], Child] = {}
        for run in dict.fromkeys((run.workflow, run.version) for run in self.runs_of(plan)):
            with suppress(Rejected, Unreadable):  # one that only another release can read is not looked into
                reference = run[0] if run[1] is None else f"{run[0]}@{run[1]}"
                children_by_run[run] = child_of((await self.resolve(tenant, reference))[1])
        if children_by_run:
            children = partial(_get_child, children_by_run)
            await compiling.make(compile_workflow, plan.source, file, children=children)

    async def _find_unknown_children(self, tenant: UUID, plan: Plan, file: str) -> list[Finding]:
        """The child runs whose workflow is not published. A workflow may run itself."""
        faults = []
        for step in plan.steps.values():
            if not isinstance(step.verb, Run) or (step.verb.workflow, step.verb.version or plan.version) == (
                plan.name,
                plan.version,
            ):
                continue
            reference = reference_of(step.verb)
            try:
                if (await self.resolve(tenant, reference))[0].retired_at is not None:
                    message = f"step {step.path}: {reference} was retired, so nothing runs it; name a version in use"
                    faults.append(Finding(file, step.line, 1, "error", "run.retired", message))
            except Unreadable:  # it is published, by another release
                continue
            except Rejected:
                names = [each.name for each in await workflows.list_workflows(self.reads, tenant)]
                message = f"step {step.path}: there is no workflow {reference!r}{suggestion(step.verb.workflow, names)}"
                faults.append(Finding(file, step.line, 1, "error", "run.unknown", message))
        return faults

    async def _find_path_conflicts(self, tenant: UUID, plan: Plan, file: str) -> list[Finding]:
        """The webhooks whose path another workflow has."""
        faults = []
        for position, trigger in enumerate(plan.triggers):
            if not isinstance(trigger, WebhookTrigger):
                continue
            for row in await triggers.list_event_triggers(self.reads, tenant, trigger.path, "webhook"):
                if row.workflow_name != plan.name:
                    line, column = parse(first_of(plan.source), file).position(("triggers", position))
                    message = f"workflow {row.workflow_name} has the webhook `{trigger.path}` already; take another"
                    faults.append(Finding(file, line, column, "error", "webhook.path_taken", message))
        return faults

    def runs_of(self, plan: Plan) -> tuple[Run, ...]:
        runs = self._runs.get(plan.sha256)
        if runs is None:
            if len(self._runs) >= PLANS_MAX:
                self._runs.clear()
            runs = tuple(step.verb for step in plan.steps.values() if isinstance(step.verb, Run))
            self._runs[plan.sha256] = runs
        return runs

    async def _compile(self, tenant: UUID, source: bytes, file: str) -> Plan:
        key = (tenant, sha256(source).digest())
        plan = self._plans.get(key)
        if plan is not None:
            return plan
        work = self._compiling.get(key)
        if work is None:  # all who wait for it wait for the same
            WORK_FOR.set(tenant)
            work = self._compiling[key] = asyncio.ensure_future(
                compiling.make(compile_workflow, source, file, stored=True)
            )
            work.add_done_callback(lambda done: self._compiling.pop(key, None) and done.exception())
        return self._keep(tenant, await asyncio.shield(work))

    def _keep(self, tenant: UUID, plan: Plan) -> Plan:
        self._plans[tenant, plan.sha256] = plan
        while len(self._plans) > PLANS_MAX:
            self._plans.popitem(last=False)
        return plan


def _get_child(known: Mapping[tuple[str, int | None], Child], name: str, version: int | None) -> Child | None:
    return known.get((name, version))


def _place_findings(findings: Iterable[Finding], source: bytes) -> list[Finding]:
    """Findings about steps, in the document's order, each at the step's own first character."""
    lines = source.decode(errors="replace").splitlines()

    def place(finding: Finding) -> Finding:
        line = lines[finding.line - 1] if 0 < finding.line <= len(lines) else ""
        return replace(finding, column=len(line) - len(line.lstrip(" -")) + 1)

    return sorted(map(place, findings), key=lambda finding: finding.line)


def parse_reference(reference: str) -> NamedVersion:
    """The parts of a reference. A text that can't be one (it may have characters that the database refuses) names
    nothing."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return NamedVersion("")
    return NamedVersion(match["name"], int(match["version"]) if match["version"] else None, match["sha"])
