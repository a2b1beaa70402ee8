"""After a restore to an earlier time: which runs may repeat effects, and how a person goes on. Effects performed after
the backup have happened, but the runs do not know of them. So a run that has not ended is *held for review* (paused)
with the names of its steps that are not safe to repeat. Safe are calls that only read, a GET, an answer of a model, and
a step with an `idempotency_key` of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple
from uuid import UUID

from hai_flow.definition import plan as p
from hai_flow.engine import commands as c
from hai_flow.errors import Rejected, Unreadable
from hai_flow.runtime.base.audit_records import AuditActor
from hai_flow.runtime.ops.verify import Plans
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.ops import database_history
from hai_flow.store.ops.database_history import Beat, Era
from hai_flow.store.postgres.connections import Connection
from hai_flow.wire.approvals import CONSUME

DELIVERY_SECONDS_MAX: Final = 60.0
AT_ONCE: Final = 64
NAMED_MAX: Final = 5  # steps of one run


class Doubt(NamedTuple):
    """A run that has not ended. `steps`: those that may do something again; empty: all it does is safe to repeat. Of a
    workflow that can't be read all may be, and `steps` says so."""

    run_id: UUID
    tenant: UUID
    workflow: str
    status: str
    steps: tuple[str, ...]


class HoldResult(NamedTuple):
    """The result for a run: `refused` says why it could not be held; None: it is paused."""

    doubt: Doubt
    refused: str | None


class State(NamedTuple):
    """The era of a database, and its last beats. `seen`: the last beat that the witness knows of, `last` that of the
    database."""

    era: Era
    last: Beat | None
    seen: Beat | None


async def state_of(connection: Connection, seen: Beat | None) -> State:
    """The era of the database, held if the witness has seen a beat that is not there. `seen`: the witness's last
    beat."""
    era = await database_history.current(connection)
    if era.held is None and seen is not None and await database_history.lacks(connection, era, seen):
        await database_history.hold(
            connection, era, f"the witness has seen a beat of {seen.at:%Y-%m-%d %H:%M:%S}, which is not here"
        )
        era = await database_history.current(connection)
    return State(era, await database_history.find_last_beat(connection), seen)


def may_repeat(plan: p.Plan) -> tuple[str, ...]:
    """The paths of the steps that may repeat an effect that is not declared safe to repeat."""
    return tuple(path for path, step in plan.steps.items() if not _is_safe(step))


def _is_safe(step: p.Step) -> bool:
    verb = step.verb
    if isinstance(verb, p.AgentTurn):
        return all(_reads(tool) for _, tool in verb.tools)
    if step.idempotency_key is not None:
        return True
    if isinstance(verb, p.Call):
        return _reads(verb.tool, verb.function)
    if isinstance(verb, p.Http):
        arguments = verb.arguments.written
        return isinstance(arguments, dict) and arguments.get("method") in ("GET", "HEAD")
    return True


def _reads(tool: p.Tool, function: str = "") -> bool:
    if isinstance(tool, p.FrontendTool):
        # else its client shows it to somebody once more; an agent acts on what it consumes
        return not tool.writes and tool.name != CONSUME
    if isinstance(tool, p.HttpTool) and tool.effect is None and function and tool.service is not None:
        try:
            return tool.service.find(function).effect == "read"
        except (KeyError, ValueError):
            return False
    return tool.effect == "read"


async def doubts(connection: Connection, tenants: dict[UUID, str] | None = None) -> AsyncIterator[list[Doubt]]:
    """All runs that have not ended, a page at a time. `tenants`: filled with the names of theirs, if given."""
    plans = Plans(connection)
    async for page in database_history.open_runs(connection):
        doubtful: list[Doubt] = []
        for id, tenant, digest, name, status in page:
            plan = await plans.find(tenant, digest)
            steps = (f"all: {plan}",) if isinstance(plan, str) else may_repeat(plan)
            doubtful.append(Doubt(id, tenant, name, status, steps))
        yield doubtful


async def deliver(runtime: Runtime, connection: Connection) -> int:
    """Wait until all messages between runs have arrived: else a child run that is yet to be born could not be held.
    Returns how many messages can't be delivered now. The runtime performs nothing."""
    until, remaining = time.monotonic() + DELIVERY_SECONDS_MAX, await database_history.count_undelivered(connection)
    while remaining and time.monotonic() < until:
        await asyncio.sleep(0.1)
        now = await database_history.count_undelivered(connection)
        if now != remaining:
            until, remaining = time.monotonic() + DELIVERY_SECONDS_MAX, now
    return remaining


async def hold(runtime: Runtime, connection: Connection, era: Era, by: str) -> AsyncIterator[list[HoldResult]]:
    """Pause every run that may repeat an effect. Yields the results, a page at a time. Calling it twice is harmless."""
    some = asyncio.Semaphore(AT_ONCE)
    actor = AuditActor(who=c.Principal(id=by), way="database", via="restored")

    async def one(doubt: Doubt) -> HoldResult:
        named = ", ".join(doubt.steps[:NAMED_MAX]) + (" and more" if len(doubt.steps) > NAMED_MAX else "")
        command = c.Pause(by=by, reason=f"the database was restored to an earlier time; this may be repeated: {named}")
        async with some:
            try:
                await runtime.committer.submit(
                    doubt.run_id, doubt.tenant, command, command_id=f"restored:{era.n}", asked=actor
                )
            except Rejected as rejected:
                return HoldResult(doubt, rejected.detail)
            except Unreadable as unreadable:
                return HoldResult(doubt, str(unreadable))
        return HoldResult(doubt, None)

    async for page in doubts(connection):
        yield await asyncio.gather(*(one(doubt) for doubt in page if doubt.steps and doubt.status != "paused"))
