"""The digests by which a published workflow knows the functions of servers. They never change, so they are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

from hai_flow.store.catalog import workflows
from hai_flow.store.postgres.database import Database

KEPT_MAX: Final = 512


class PinBook:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[tuple[UUID, bytes], dict[str, str]] = OrderedDict()

    def of(self, tenant: UUID, workflow: bytes) -> WorkflowPins:
        """The pins of the workflow with this sha256 (`steps.pins.Pins`)."""
        return WorkflowPins(self, tenant, workflow)

    async def known(self, tenant: UUID, workflow: bytes) -> Mapping[str, str]:
        pins = self._kept.get((tenant, workflow))
        return await self._read(tenant, workflow) if pins is None else pins

    async def add(self, tenant: UUID, workflow: bytes, found: Mapping[str, str]) -> Mapping[str, str]:
        """Add the pins that are not there yet. Returns all that are stored."""
        await workflows.add_pins(self._database.api, tenant, workflow, found)
        return await self._read(tenant, workflow)

    async def replace(self, tenant: UUID, workflow: bytes, found: Mapping[str, str]) -> None:
        await workflows.replace_pins(self._database.api, tenant, workflow, found)
        self._kept.pop((tenant, workflow), None)

    async def _read(self, tenant: UUID, workflow: bytes) -> Mapping[str, str]:
        pins = await workflows.list_pins(self._database.api, tenant, workflow)
        self._kept[tenant, workflow] = pins
        self._kept.move_to_end((tenant, workflow))
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return pins


class WorkflowPins(msgspec.Struct, frozen=True):
    book: PinBook
    tenant: UUID
    workflow: bytes

    async def known(self) -> Mapping[str, str]:
        return await self.book.known(self.tenant, self.workflow)

    async def add(self, found: Mapping[str, str]) -> Mapping[str, str]:
        return await self.book.add(self.tenant, self.workflow, found)
