"""To OpenTelemetry: our spans and families as its SDK has them, sent by OTLP over HTTP, from a thread.

The event loop only puts a span into a queue. Once a second all of them are made into spans of the SDK and sent, in a
thread; once every fifteen seconds so are the metrics. A collector that is away costs spans, which are counted, and
nothing else."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from hai_flow import __version__
from hai_flow.engine.state.tracing import TracePosition
from hai_flow.runtime.base.service import Service
from hai_flow.runtime.runtime import Runtime
from hai_flow.telemetry.instruments import Distribution, Family, Labels
from hai_flow.telemetry.metrics import Metrics
from hai_flow.telemetry.traces import EndedSpan

log = structlog.get_logger(__name__)

SPANS_MAX: Final = 8192  # that wait
SPANS_AT_ONCE: Final = 512
SPANS_SECONDS: Final = 1.0
METRICS_SECONDS: Final = 15.0
LAST_SECONDS: Final = 5.0  # for the rest when the process ends
SEND_SECONDS: Final = 10.0

_KINDS: Final = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
}
_SCOPE: Final = InstrumentationScope("hai_flow", __version__)
_GOOD, _BAD = Status(StatusCode.UNSET), StatusCode.ERROR


class Exporter(Service):
    """Sends spans that it is given, and the metrics, to the collector at `url`."""

    def __init__(self, url: str, metrics: Metrics) -> None:
        super().__init__()
        self._base = url.rstrip("/")
        self._resource = _resource()
        self._metrics = metrics
        self._waiting: deque[EndedSpan] = deque()
        self._began_ns = time.time_ns()
        self._dropped = 0
        metrics.reads("spans_dropped_total", "Spans that the collector did not take, or not in time.", self._count)

    def _count(self) -> float:
        return self._dropped

    def attach(self, runtime: Runtime) -> Sequence[Service]:
        """Live as long as the runtime does."""
        return (self,)

    def take(self, span: EndedSpan) -> None:
        if len(self._waiting) >= SPANS_MAX:
            self._dropped += 1
        else:
            self._waiting.append(span)

    async def _start(self) -> None:
        self._spans = OTLPSpanExporter(endpoint=f"{self._base}/v1/traces", timeout=SEND_SECONDS)
        self._sums = OTLPMetricExporter(endpoint=f"{self._base}/v1/metrics", timeout=SEND_SECONDS)
        self._keep(self._send_spans, "spans")
        self._keep(self._send_metrics, "metrics")

    async def _stop(self) -> None:
        await self._end_tasks()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self.flush()
        except TimeoutError:
            log.warning("spans_not_sent", spans=len(self._waiting), error="the collector takes too long")
        finally:  # it tries no more, so its thread ends
            self._spans.shutdown()
            self._sums.shutdown()

    async def flush(self) -> None:
        """Send all spans that wait, and the metrics as they are now."""
        while self._waiting:
            await self._send_some()
        await self._send_all_metrics()

    async def _send_spans(self) -> None:
        while True:
            await asyncio.sleep(SPANS_SECONDS)
            while self._waiting:
                await self._send_some()

    async def _send_some(self) -> None:
        spans = [self._waiting.popleft() for _ in range(min(SPANS_AT_ONCE, len(self._waiting)))]
        if not await asyncio.to_thread(self._export, spans):
            self._dropped += len(spans)

    def _export(self, spans: Sequence[EndedSpan]) -> bool:
        try:
            is_exported = self._spans.export([self._as_theirs(span) for span in spans]) is SpanExportResult.SUCCESS
        except Exception as error:
            log.warning("spans_not_sent", spans=len(spans), error=str(error) or repr(error))
            return False
        if not is_exported:
            log.warning("spans_not_sent", spans=len(spans), error="the collector did not take them")
        return is_exported

    async def _send_metrics(self) -> None:
        while True:
            await asyncio.sleep(METRICS_SECONDS)
            await self._send_all_metrics()

    async def _send_all_metrics(self) -> None:
        data = self._data_of(self._metrics.collect())  # on the loop, where all of it is counted
        try:
            await asyncio.to_thread(self._sums.export, data)
        except Exception as error:
            log.warning("metrics_not_sent", error=str(error) or repr(error))

    # --- spans --------------------------------------------------------------------------------------------------------

    def _as_theirs(self, span: EndedSpan) -> ReadableSpan:
        parent = None if span.parent is None else _context(span.place._replace(span_id=span.parent), remote=False)
        attributes = span.attributes if span.error is None else {**span.attributes, "error.type": span.error}
        return ReadableSpan(
            name=span.name,
            context=_context(span.place, remote=False),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            links=[Link(_context(place, remote=True)) for place in span.links],
            kind=_KINDS[span.kind],
            status=_GOOD if span.error is None else Status(_BAD, span.error),
            start_time=int(span.began * 1_000_000),
            end_time=int(max(span.began, span.ended) * 1_000_000),
            instrumentation_scope=_SCOPE,
        )

    # --- metrics ------------------------------------------------------------------------------------------------------

    def _data_of(self, families: Sequence[Family]) -> sdk.MetricsData:
        now = time.time_ns()
        metrics = [self._metric(family, now) for family in families if family.series]
        scope = sdk.ScopeMetrics(_SCOPE, metrics, "")
        return sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, family: Family, now: int) -> sdk.Metric:
        name = family.name.removesuffix("_total").replace("hai_flow_", "hai_flow.", 1)
        unit = "s" if name.endswith("_seconds") else "By" if name.endswith("_bytes") else "1"
        if isinstance(family, Distribution):
            return sdk.Metric(name, family.meaning, unit, self._histogram(family, now))
        points = [
            sdk.NumberDataPoint(_label(family.names, labels), self._began_ns, now, value)
            for labels, value in family.series.items()
        ]
        if family.kind == "gauge":
            return sdk.Metric(name, family.meaning, unit, sdk.Gauge(points))
        cumulative = sdk.AggregationTemporality.CUMULATIVE
        return sdk.Metric(name, family.meaning, unit, sdk.Sum(points, cumulative, is_monotonic=True))

    def _histogram(self, family: Distribution, now: int) -> sdk.Histogram:
        points = [
            sdk.HistogramDataPoint(
                attributes=_label(family.names, labels),
                start_time_unix_nano=self._began_ns,
                time_unix_nano=now,
                count=sum(counts),
                sum=family.sums[labels],
                bucket_counts=list(counts),
                explicit_bounds=list(family.bounds),
                min=0.0,
                max=0.0,
            )
            for labels, counts in family.series.items()
        ]
        return sdk.Histogram(points, sdk.AggregationTemporality.CUMULATIVE)


def _resource() -> Resource:
    """The resource that the SDK reads from OTEL_RESOURCE_ATTRIBUTES and its like; with our name, if these give none."""
    resource = Resource.create({"service.version": __version__})
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: "hai-flow"}))
    return resource


def _label(names: Labels, labels: Labels) -> dict[str, Any]:
    return dict(zip(names, labels, strict=True))


def _context(place: TracePosition, *, remote: bool) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=remote, trace_flags=flags)
