"""Everything that watches one process, as its settings say. A part of the composition root."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from hai_flow.runtime import Observer, Runtime
from hai_flow.runtime.readiness import Readiness
from hai_flow.settings import Settings, SettingsError, metrics_place, variable
from hai_flow.telemetry.census import Census
from hai_flow.telemetry.instruments import Family
from hai_flow.telemetry.listener import listening
from hai_flow.telemetry.metrics import Metrics
from hai_flow.telemetry.traces import Traces

if TYPE_CHECKING:
    from hai_flow.telemetry.otel import Exporter


class Watching:
    """`observers` are given to the runtime, which is then `shown`. Raises SettingsError where spans are to be sent and
    what sends them is not installed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place = None if settings.metrics is None else metrics_place(settings.metrics)
        self.metrics: Metrics | None = None
        self.observers: list[Observer] = []
        if self._place is None and settings.otlp is None:
            return
        self.metrics = Metrics()
        self.observers += [self.metrics, Census(self.metrics)]
        if settings.otlp is not None:
            exporter = _exporter(settings.otlp, self.metrics)
            self.observers += [exporter, Traces(exporter.take, settings.traces_per_second)]

    @contextlib.asynccontextmanager
    async def shown(self, runtime: Runtime) -> AsyncIterator[str | None]:
        """Show the runtime on the port of the settings from before it starts until after it has stopped; yields the
        URL. Raises HaiFlowError when the port can't be opened."""
        if self._place is None or self.metrics is None:
            yield None
            return
        async with listening(self._place, self._settings.metrics_token, _Shown(runtime, self.metrics)) as url:
            yield url


def _exporter(url: str, metrics: Metrics) -> Exporter:
    try:
        from hai_flow.telemetry.otel import Exporter
    except ImportError:
        raise SettingsError([f"{variable('otlp')}: install its packages: pip install hai-flow[otel]."]) from None
    return Exporter(url, metrics)


class _Shown:
    def __init__(self, runtime: Runtime, metrics: Metrics) -> None:
        self._metrics = metrics
        self._readiness = Readiness(runtime)

    def metrics(self) -> Iterable[Family]:
        return self._metrics.collect()

    async def ready(self) -> dict[str, Any]:
        await self._readiness.demand_hands()
        return {}
