"""Cancels the tasks at agents of others that no step waits for any more (`engine/steps/remote_tasks`).

The message stays in the outbox until the agent has answered, so it outlives every process; a second delivery finds the
task cancelled and asks for nothing."""

from __future__ import annotations

from functools import partial

import msgspec
import structlog

from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.steps.remote_tasks import CANCEL, find_last_inquiry
from hai_flow.errors import Rejected, StepError
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.commit.committer import Committer
from hai_flow.runtime.commit.states import HEAD, state_at
from hai_flow.runtime.tenancy.tenants import Tenants
from hai_flow.runtime.worker.attempt import evaluate_for_step
from hai_flow.steps.a2a.runner import A2ARunner, is_passing, read_task_id
from hai_flow.steps.runner import Attempt, Registry
from hai_flow.store.messaging.outbox import OutboxMessage
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs import threads

log = structlog.get_logger(__name__)


class _Cancellation(msgspec.Struct):
    """The body of the message, as `leave_task` writes it."""

    path: str
    key: str | None
    until: int
    inquiry: str | None


class RemoteTasks:
    """Tells agents that their tasks are wanted no more. `handlers` are for the outbox."""

    def __init__(
        self, database: Database, committer: Committer, catalog: Catalog, registry: Registry, tenants: Tenants,
        *, performs: bool,
    ) -> None:  # fmt: skip
        self._database = database
        self._committer = committer
        self._catalog = catalog
        self._registry = registry
        self._tenants = tenants
        self._performs = performs
        self.handlers = {CANCEL: self._cancel}

    async def _cancel(self, message: OutboxMessage) -> None:
        """Raises an error where it is to be tried again: the agent is away."""
        if not self._performs:
            raise Rejected(503, "unavailable", "this process performs nothing; one that does tells the agent.")
        body = msgspec.json.decode(message.body, type=_Cancellation)
        state = await state_at(self._database, message.tenant, message.run_id, HEAD)
        step_state = None if state is None else state.steps.get(body.path)
        if state is None or (step_state is not None and step_state.is_open):  # a retry goes on with the task
            return
        if body.inquiry is not None and await self._is_anothers(message, read_task_id(body.inquiry)):
            return
        plan = await self._catalog.plan(message.tenant, bytes.fromhex(state.sha256))
        now = self._committer.now_ms()
        try:
            step = resolve_step(plan, body.path)
            runner = self._registry.runner_of(step)
            if not isinstance(runner, A2ARunner):
                raise StepError("the step calls no agent in the version to which the run was moved", retriable=False)
            attempt = Attempt(
                str(message.run_id), body.path, 1, "{}", step, body.key, plan.from_disk, plan.name,
                partial(evaluate_for_step, plan, state, step, now), tenant=await self._tenants.name(message.tenant),
            )  # fmt: skip
            await runner.leave(attempt, body.inquiry)
        except (KeyError, StepError, TimeoutError) as error:
            if now < body.until and _may_be_back(error):
                raise
            reason = str(error) or repr(error)
            log.error("remote_task_not_cancelled", run_id=str(message.run_id), path=body.path, reason=reason)

    async def _is_anothers(self, message: OutboxMessage, task_id: str) -> bool:
        """Whether a fork of the run, or another one with the same beginning, goes on with the task."""
        for relative in await threads.relatives(self._database.api, message.tenant, message.run_id):
            state = await state_at(self._database, message.tenant, relative.run_id, HEAD)
            if state is None:
                continue
            inquiries = [find_last_inquiry(state, path) for path, each in state.steps.items() if each.is_open]
            if any(each is not None and read_task_id(each) == task_id for each in inquiries):
                return True
        return False


def _may_be_back(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (isinstance(error, StepError) and is_passing(error))
