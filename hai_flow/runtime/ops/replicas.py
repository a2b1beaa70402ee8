"""Looks now and then whether the replica of the database can be asked for history (`store/ops/replicas`)."""

from __future__ import annotations

import asyncio
from typing import Final

from hai_flow.runtime.base.service import Service
from hai_flow.store.ops.replicas import Replica

LOOK_SECONDS: Final = 1.0


class Replicas(Service):
    """Looks at a replica again and again while it runs, so that its delay is known."""

    def __init__(self, replica: Replica) -> None:
        super().__init__()
        self._replica = replica

    async def _start(self) -> None:
        self._keep(self._run, "looking at the replica")

    async def _stop(self) -> None:
        await self._end_tasks()
        await self._replica.close()

    async def _run(self) -> None:
        while True:
            await self._replica.look()
            await asyncio.sleep(LOOK_SECONDS)
