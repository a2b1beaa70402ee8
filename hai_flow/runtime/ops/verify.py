"""Checks the invariants of one run, or of all (docs/design/promises.md). Nothing is changed.

Runs are read in pages, each in a snapshot of its own: a run is whole in it, so one that goes on meanwhile is looked at
as far as it was. Of a log no more is in memory than some of its rows and the state that they make."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.plan import Plan
from hai_flow.engine import events as e
from hai_flow.engine.state.bounds import DEFAULT_BOUNDS, Bounds
from hai_flow.errors import DefinitionError
from hai_flow.runtime.ops.run_checks import Commit, RunCheck, Violation
from hai_flow.store.catalog import workflows
from hai_flow.store.postgres.connections import Connection, Pool
from hai_flow.store.runs import run_bundle
from hai_flow.store.runs.run_bundle import Evidence

PLANS_MAX: Final = 64
VIOLATIONS_KEPT: Final = 10_000


class Verifying(msgspec.Struct, frozen=True):
    """How to verify. `late`: see `RunCheck`. `pace`: at most so many runs a second; None: as many as there is time for.
    `limits`: those of the deployment's engine; None: no decision is made again."""

    tenant: UUID | None = None
    run_id: UUID | None = None
    late: timedelta | None = None
    pace: float | None = None
    limits: Bounds | None = DEFAULT_BOUNDS


@dataclass(slots=True)
class VerifiedRuns:
    """The result: `reached` says of each rule how often it applied. `broken` counts all violations, the first
    `VIOLATIONS_KEPT` are in `violations`. `unread`: runs of a newer release, which this one can't fold. `undecided`:
    decisions whose inputs are not all in the log. `older`: rows that a release before wrote none of, and decisions that
    it made otherwise (docs/upgrades.md)."""

    runs: int = 0
    events: int = 0
    unread: int = 0
    undecided: int = 0
    older: int = 0
    broken: int = 0
    violations: list[Violation] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)

    def add(self, check: RunCheck, found: Sequence[Violation]) -> None:
        self.runs += 1
        self.events += check.state.seq
        self.undecided += check.undecided
        self.older += check.older
        self.broken += len(found)
        self.violations += found[: VIOLATIONS_KEPT - len(self.violations)]
        self.reached += check.reached

    def join(self, other: VerifiedRuns) -> None:
        """Add the result of another database."""
        self.runs += other.runs
        self.events += other.events
        self.unread += other.unread
        self.undecided += other.undecided
        self.older += other.older
        self.broken += other.broken
        self.violations += other.violations[: VIOLATIONS_KEPT - len(self.violations)]
        self.reached += other.reached


class Plans:
    """The plans that runs are pinned to, compiled as they are wanted. `beside` calls a function with its arguments
    beside the event loop; None: they are compiled on it."""

    def __init__(self, connection: Connection | Pool, beside: Callable[..., Awaitable[Any]] | None = None) -> None:
        self._connection = connection
        self._beside = beside
        self._known: OrderedDict[tuple[UUID, bytes], Plan | str] = OrderedDict()

    async def find(self, tenant: UUID, digest: bytes) -> Plan | str:
        """The plan, or why there is none."""
        plan = self._known.get((tenant, digest))
        if plan is None:
            plan = self._known[tenant, digest] = await self._compile(tenant, digest)
            while len(self._known) > PLANS_MAX:
                self._known.popitem(last=False)
        return plan

    async def _compile(self, tenant: UUID, digest: bytes) -> Plan | str:
        stored = await workflows.find_workflow_by_sha(self._connection, tenant, digest)
        if stored is None:
            return "it is not in the database"
        try:
            work = partial(compile_workflow, stored.source, f"{stored.name}@{stored.version}", stored=True)
            plan: Plan = work() if self._beside is None else await self._beside(work)
        except DefinitionError as error:
            return f"this release can't perform it: {error}"
        return plan if plan.sha256 == digest else "its bytes are not those of its digest"


async def verify(connection: Connection, verifying: Verifying) -> AsyncIterator[VerifiedRuns]:
    """Yields the result so far, after each page of runs. The connection must not be used for anything else
    meanwhile."""
    plans, verified, began = Plans(connection), VerifiedRuns(), time.monotonic()
    since = await run_bundle.find_vocabulary_start(connection, e.ABI)
    async for page in _pages(connection, verifying):
        async with run_bundle.snapshot(connection):
            for each in await run_bundle.evidence_of(connection, page):
                await _add(connection, each, plans, verifying, verified, since)
        yield verified
        if verifying.pace is not None:
            await asyncio.sleep(max(0.0, began + verified.runs / verifying.pace - time.monotonic()))


async def _pages(connection: Connection, verifying: Verifying) -> AsyncIterator[list[UUID]]:
    if verifying.run_id is not None:
        yield [verifying.run_id]
        return
    async for page in run_bundle.run_pages(connection, verifying.tenant):
        yield page


async def _add(
    connection: Connection,
    found: Evidence,
    plans: Plans,
    verifying: Verifying,
    verified: VerifiedRuns,
    since: datetime | None,
) -> None:
    if verifying.tenant is not None and found.run["tenant"] != verifying.tenant:
        return
    if found.run["abi"] > e.ABI:
        verified.unread += 1
        return
    check = await fold_and_check(connection, found, plans, verifying.late, verifying.limits, since)
    verified.add(check, check.end())


async def fold_and_check(
    connection: Connection,
    found: Evidence,
    plans: Plans,
    late: timedelta | None = None,
    limits: Bounds | None = None,
    since: datetime | None = None,
) -> RunCheck:
    """The run with its log folded; ask it for its `end`. Call it in the snapshot of the evidence. Arguments as of
    `RunCheck`."""
    check, tenant = RunCheck(found, late, limits, since), found.run["tenant"]
    try:
        async for row in run_bundle.log_rows(connection, found.run["id"]):
            commit = check.decode(row)
            if commit is None:
                break
            await _follow_version(check, commit, plans, tenant)
            check.feed(commit)
            if check.broken:
                break
    except ValueError as error:
        check.unreadable(str(error))
    if check.files:
        check.report_missing_files(await run_bundle.find_lost_files(connection, tenant, found.run["id"], check.files))
    return check


async def _follow_version(check: RunCheck, commit: Commit, plans: Plans, tenant: UUID) -> None:
    named: Any = [each.sha256 for each in commit.events if isinstance(each, e.RunStarted | e.Migrated)]
    if not named:
        return
    digest = bytes.fromhex(named[-1])
    plan = await plans.find(tenant, digest)
    if isinstance(plan, str):
        check.plan = None
        check.report_missing_workflow(digest, plan)
    else:
        check.plan = plan
        check.reached["workflow_is_there"] += 1
