"""Copies between the cells of a large tenant: its seat passes an event on to each cell, and the others repeat the
seat's workflows and delegations (`store/cells/replication`).

A process does so right away; where a cell was away, any process does it when the cell is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from hai_flow import values
from hai_flow.cells import TenantCells
from hai_flow.errors import Rejected, StoreError
from hai_flow.runtime.base.sweep_isolation import Sweep
from hai_flow.runtime.runtime import Runtime
from hai_flow.store.audit import audit
from hai_flow.store.cells import event_relays, replication
from hai_flow.store.cells.event_relays import Relay
from hai_flow.store.commit.entries import AuditRow
from hai_flow.store.identity import tenants
from hai_flow.store.messaging import signals
from hai_flow.store.messaging.signals import Signal
from hai_flow.store.postgres import orphan_cleanup
from hai_flow.store.postgres.error_classes import FAILURES
from hai_flow.store.postgres.orphan_cleanup import Page
from hai_flow.values import Json

log = structlog.get_logger(__name__)

RELAYED_AT_ONCE: Final = 100
MIRRORED_EVERY: Final = timedelta(seconds=2)


class Taken(NamedTuple):
    """An event that is taken for all cells: whether it was `already`, and the copies that are on their way, if any
    are."""

    already: bool
    relay: Relay | None


class Spreading:
    """Brings these copies. `at` gives the runtime of a cell, or raises Rejected 503 where it is away; `there` those of
    all cells that are not."""

    def __init__(self, home: Runtime, at: Callable[[int], Runtime], there: Callable[[], list[Runtime]]) -> None:
        self._home = home
        self._at = at
        self._there = there

    # --- events to all ------------------------------------------------------------------------------------------------

    async def take(
        self, tenant: UUID, living: TenantCells, id: str, type: str, data: Json, sent: AuditRow, sender: str
    ) -> Taken:
        """Take an event for every cell of the tenant, with the audit record of its `sender`: from then on each gets it,
        once. The caller gives it to the seat (`Delivery.send`, `Triggers.receive_event`). Raises Rejected 503 where the
        seat is away, 409 where another event has its id."""
        seat, body = self._at(living.seat), values.dumps(data)
        stored = await signals.get_signal(seat.database.api, tenant, id)
        if stored is not None:
            if (stored.type, stored.run_id, stored.data) != (type, None, body):
                raise signals.reject_foreign_id(id, stored.type)
            return Taken(True, None)
        async with seat.database.api.acquire() as connection, connection.transaction():
            relay, already = await event_relays.add(connection, tenant, id, type, body, living.cells, sender)
            if (relay.type, relay.data) != (type, body):
                raise signals.reject_foreign_id(id, relay.type)
            if not already:
                await audit.write(connection, tenant, [sent])
        return Taken(already, relay)

    async def record_refusal(self, seat: Runtime, relay: Relay) -> None:
        """The seat has not taken it: no cell gets it."""
        await event_relays.drop(seat.database.api, relay)

    async def bring(self, seat: Runtime, relay: Relay, *, seat_has_it: bool = False) -> None:
        """Give the event to each of its cells, the seat first: an event that the seat refuses goes no further."""
        cells = sorted(relay.cells, key=lambda cell: cell != seat.cell)
        for cell in cells:
            if cell != seat.cell or not seat_has_it:
                try:
                    await self._give(cell, relay)
                except Rejected as rejected:
                    if rejected.code == "cell_away":
                        continue
                    log.error("event_not_relayed", relay=relay.id, cell=cell, reason=rejected.detail)
                    if cell == seat.cell:
                        await event_relays.drop(seat.database.api, relay)
                        return
                except (StoreError, *FAILURES) as error:
                    log.warning("event_waits_for_cell", relay=relay.id, cell=cell, error=str(error) or repr(error))
                    if cell == seat.cell:
                        return
                    continue
            await event_relays.record_arrival(seat.database.api, relay, cell)

    async def _give(self, cell: int, relay: Relay) -> Signal:
        delivery = self._at(cell).delivery
        data = values.loads(relay.data)
        sent, _ = await delivery.send(
            relay.tenant, relay.id, relay.type, data, sent_at=relay.sent_at, sender=relay.sender
        )
        return sent

    async def send_due_relays(self) -> None:
        """Bring the events that another process could not bring to every cell."""
        rows = self._home.rows

        async def look(seat: Runtime) -> None:
            due = await event_relays.due(seat.database.api, RELAYED_AT_ONCE)
            await rows.go_through(
                Sweep.RELAYS, due, lambda each: f"event {each.id} of {each.tenant}", partial(self.bring, seat)
            )

        for seat in self._there():
            await rows.deal(Sweep.RELAYS, f"cell {seat.cell}", partial(look, seat))

    # --- workflows and delegations ------------------------------------------------------------------------------------

    async def repeat(self, tenant: UUID, living: TenantCells) -> None:
        """Make the tenant's other cells like the seat (`store/cells/replication`), as far as they can be reached."""
        if not living.is_large:
            return
        seat = self._at(living.seat).database.api
        fingerprint = await replication.print_of(seat, tenant)
        for runtime in self._there():
            if runtime.cell == living.seat or runtime.cell not in living.cells:
                continue
            try:
                if await replication.print_of(runtime.database.api, tenant) != fingerprint:
                    async with runtime.database.api.acquire() as connection:
                        await replication.repeat(seat, connection, tenant)
            except (StoreError, *FAILURES) as error:
                log.warning("cell_not_repeated", cell=runtime.cell, error=str(error) or repr(error))

    async def send_due_again(self) -> None:
        """The same for all large tenants, unless another process just did."""

        async def look(after: list[object] | None) -> Page:
            large = await tenants.large_tenants(self._home.database.api)
            for each in large:
                repeat = partial(self.repeat, each.id, each.living)
                await self._home.rows.deal(Sweep.MIRRORS, f"tenant {each.name}", repeat)
            return Page(len(large), 0, None)

        await orphan_cleanup.sweep(self._home.database.api, "cells", MIRRORED_EVERY, look)

    async def run(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Bring events and repeat workflows, again and again."""
        while True:
            try:
                await work()
            except Exception as error:  # whatever it is: the next time may do
                log.warning("spreading_failed", error=str(error) or repr(error))
            await asyncio.sleep(seconds)
