"""Everything that watches one process, as its settings say. A part of the composition root."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from hai_flow.runtime import Observer, Runtime
from hai_flow.runtime.readiness import Readiness
from hai_flow.settings import Settings, metrics_place
from hai_flow.telemetry.census import Census
from hai_flow.telemetry.instruments import Family
from hai_flow.telemetry.listener import listening
from hai_flow.telemetry.metrics import Metrics


class Watching:
    """`observers` are given to the runtime, which is then `shown`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place = None if settings.metrics is None else metrics_place(settings.metrics)
        self.metrics: Metrics | None = None
        self.observers: Sequence[Observer] = ()
        if self._place is not None:
            self.metrics = Metrics()
            self.observers = (self.metrics, Census(self.metrics))

    @contextlib.asynccontextmanager
    async def shown(self, runtime: Runtime) -> AsyncIterator[str | None]:
        """Show the runtime on the port of the settings from before it starts until after it has stopped; yields the
        URL. Raises HaiFlowError when the port can't be opened."""
        if self._place is None or self.metrics is None:
            yield None
            return
        async with listening(self._place, self._settings.metrics_token, _Shown(runtime, self.metrics)) as url:
            yield url


class _Shown:
    def __init__(self, runtime: Runtime, metrics: Metrics) -> None:
        self._metrics = metrics
        self._readiness = Readiness(runtime)

    def metrics(self) -> Iterable[Family]:
        return self._metrics.collect()

    async def ready(self) -> dict[str, Any]:
        await self._readiness.demand_hands()
        return {}
