"""Takes deposits: the starts and events that other programs have committed with transactions of their own.

A deposit's run has the deposit's id, and its event an id made of it, so what is done twice because a process died
between the effect and the removal of the row happens once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
import structlog

from hai_flow import values
from hai_flow.cells import place_id
from hai_flow.engine import commands as c
from hai_flow.engine.canaries import demand_unreserved
from hai_flow.errors import HaiFlowError, Rejected
from hai_flow.runtime.base.pulse import PulsedService
from hai_flow.runtime.catalog.catalog import Catalog
from hai_flow.runtime.files.files import Files
from hai_flow.runtime.messaging.outbox import Delivery
from hai_flow.runtime.messaging.triggers import Triggers
from hai_flow.runtime.runs.starts import Starts
from hai_flow.store.messaging import deposits
from hai_flow.store.messaging.deposits import Deposit
from hai_flow.store.postgres.database import Database
from hai_flow.store.runs.viewers import Viewer

log = structlog.get_logger(__name__)

BATCH_MAX: Final = 64
LEASE: Final = timedelta(seconds=5)
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class _Start(msgspec.Struct, forbid_unknown_fields=True):
    workflow: _Text
    input: dict[str, Any] = {}
    thread_id: _Text | None = None


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    type: _Text
    data: Any = None
    run_id: UUID | None = None


class Deposits(PulsedService):
    """Takes them, in every process that performs."""

    DUE, TASK, FAILURE = "deposits", "deposits", "deposits_not_taken"

    def __init__(
        self, database: Database, catalog: Catalog, files: Files, starts: Starts, delivery: Delivery, triggers: Triggers
    ) -> None:
        super().__init__()
        self._database = database
        self._catalog = catalog
        self._files = files
        self._starts = starts
        self._delivery = delivery
        self._triggers = triggers

    async def _start(self) -> None:
        self._due.set()
        await super()._start()

    def hint(self, payload: str) -> None:
        """A transaction with a deposit was committed."""
        if payload == deposits.HINT:
            self._due.set()

    async def take_due(self) -> None:
        while deposit := await deposits.take(self._database.api, BATCH_MAX, LEASE):
            await asyncio.gather(*map(self._deal_with, deposit))
        await deposits.forget(self._database.api)

    async def _deal_with(self, deposit: Deposit) -> None:
        """Let the deposit take effect; one that can't, now or ever, keeps no other from it."""
        try:
            await self._perform(deposit)
        except HaiFlowError as error:
            status = getattr(error, "status", 500)
            reason = f"{getattr(error, 'code', type(error).__name__)}: {error}"
            passing = status in (408, 429, 503) or status >= 500
            log.warning("deposit_not_taken", id=str(deposit.id), reason=reason, again=passing)
            if not passing:
                await deposits.refuse(self._database.api, deposit, reason[:2000])
            return
        except Exception as error:
            log.warning("deposit_not_taken", id=str(deposit.id), reason=str(error) or repr(error), again=True)
            return
        await deposits.remove(self._database.api, deposit)

    async def _perform(self, deposit: Deposit) -> None:
        if deposit.kind == "start":
            await self._begin(deposit, _read(deposit, _Start))
            return
        event = _read(deposit, _Event)
        id, data = f"deposit:{deposit.id}", values.dumps(event.data)
        if event.run_id is None:
            await self._files.demand(deposit.tenant, deposit.principal, data, _viewer_of(deposit))
        else:
            await self._files.use(deposit.tenant, deposit.principal, event.run_id, data, _viewer_of(deposit))
        if event.run_id is None:
            await self._triggers.receive_event(deposit.tenant, id, event.type, event.data, sender=deposit.principal)
        else:
            await self._delivery.send(
                deposit.tenant, id, event.type, event.data, event.run_id, sender=deposit.principal
            )

    async def _begin(self, deposit: Deposit, start: _Start) -> None:
        _, plan = await self._catalog.resolve_startable(deposit.tenant, start.workflow, latest_only=True, at=deposit.at)
        demand_unreserved(plan.name)
        run_id = place_id(deposit.id, self._starts.cell)
        command = c.Start(
            run_id=run_id, thread_id=start.thread_id or str(run_id), requester=deposit.principal, input=start.input
        )
        await self._files.use_all(deposit.tenant, deposit.principal, run_id, command, _viewer_of(deposit))
        await self._starts.start(
            deposit.tenant,
            plan,
            command,
            command_id=f"deposit:{deposit.id}",
            body_sha=sha256(deposit.body.encode()).digest(),
            owners=(deposit.principal,),
        )


def _viewer_of(deposit: Deposit) -> Viewer:
    """The depositor has no roles here: it sees its own runs, and those that its tenant or its principal may see."""
    return Viewer((deposit.principal,), ("tenant", deposit.principal))


def _read(deposit: Deposit, shape: type[Any]) -> Any:
    """The body in this shape, by the one strict reader of JSON. Raises Rejected 422."""
    try:
        return msgspec.convert(values.loads(deposit.body), shape)
    except (values.NotJson, msgspec.ValidationError) as error:
        raise Rejected(
            422, "request.invalid", f"the body of the deposit is not what a {deposit.kind} has: {error}."
        ) from None
