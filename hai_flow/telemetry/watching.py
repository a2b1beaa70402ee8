"""Everything that watches one process, as its settings say. A part of the composition root."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hai_flow.primitives.hosts import host_and_port
from hai_flow.runtime.ops.readiness import Readiness
from hai_flow.runtime.runtime import Observer, Runtime
from hai_flow.settings import Settings, SettingsError, variable
from hai_flow.store.cells.cells import HOME_NAME, Cell
from hai_flow.telemetry.database_gauges import Census
from hai_flow.telemetry.exposition import render_cells, render_families
from hai_flow.telemetry.listener import listening
from hai_flow.telemetry.loop_watch import LoopWatch
from hai_flow.telemetry.metrics import Metrics
from hai_flow.telemetry.traces import Traces

if TYPE_CHECKING:
    from hai_flow.runtime.cells import Cells
    from hai_flow.telemetry.otlp_exporter import Exporter

CELLS_MAX: Final = 64
"""Further cells of which a process shows numbers; of all others it shows whether it answers."""
CELL_SERIES_MAX: Final = 50  # of a family of a further cell


class Watching:
    """`observers` are given to the runtime over home, those `observers_of` to the one over each further cell; both are
    then `serve`. Raises SettingsError where spans are to be sent and the package for it is not installed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._place = None if settings.metrics is None else host_and_port(settings.metrics)
        self.metrics: Metrics | None = None
        self.observers: list[Observer] = []
        self._cells: dict[str, Metrics] = {}
        if self._place is None and settings.otlp is None:
            return
        self.metrics = Metrics()
        self.observers += [self.metrics, Census(self.metrics), LoopWatch(self.metrics)]
        if settings.otlp is not None:
            exporter = _exporter(settings.otlp, self.metrics)
            self.observers += [exporter, Traces(exporter.take, settings.traces_per_second)]

    def observers_of(self, cell: Cell) -> Sequence[Observer]:
        """The observers of a further cell: its metrics are shown, with its name."""
        if self._place is None or len(self._cells) >= CELLS_MAX:
            return ()
        metrics = self._cells[cell.name] = Metrics(CELL_SERIES_MAX)
        return (metrics, Census(metrics))

    @contextlib.asynccontextmanager
    async def serve(self, runtime: Runtime, cells: Cells | None = None) -> AsyncIterator[str | None]:
        """Show the runtime on the port of the settings from before it starts until after it has stopped; yields the
        URL. `cells`: all of the process. Raises HaiFlowError when the port can't be opened."""
        if self._place is None or self.metrics is None:
            yield None
            return
        page = _Shown(runtime, cells, self.metrics, self._cells)
        async with listening(self._place, self._settings.metrics_token, page) as url:
            yield url


def _exporter(url: str, metrics: Metrics) -> Exporter:
    try:
        from hai_flow.telemetry.otlp_exporter import Exporter
    except ImportError:
        raise SettingsError([f"{variable('otlp')}: install its packages: pip install hai-flow[otel]."]) from None
    return Exporter(url, metrics)


class _Shown:
    def __init__(
        self, runtime: Runtime, cells: Cells | None, metrics: Metrics, of_cells: Mapping[str, Metrics]
    ) -> None:
        self._metrics = metrics
        self._cells = cells
        self._of_cells = of_cells
        self._readiness = Readiness(runtime)

    def metrics(self) -> bytes:
        cells = self._cells
        if cells is None or not cells.several:
            return render_families(self._metrics.collect())
        away = cells.away
        for name in cells.names[1:]:
            self._metrics.cell_up.put(float(name not in away), (name,))
        reached = {name: metrics.collect() for name, metrics in self._of_cells.items() if metrics.attached}
        return render_cells({HOME_NAME: self._metrics.collect(), **reached})

    async def ready(self) -> dict[str, Any]:
        await self._readiness.demand_hands()
        return {"hints": self._readiness.hints()}
