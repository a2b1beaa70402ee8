"""Traced runs, as a collector sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from hai_flow.api.app import create_app
from hai_flow.engine.state.tracing import place_of
from hai_flow.runtime.base.trace_parent import TraceParent
from hai_flow.runtime.runtime import LOCAL_TENANT, Runtime
from hai_flow.settings import Settings, SettingsError
from hai_flow.telemetry.metrics import Metrics
from hai_flow.telemetry.otlp_exporter import Exporter
from hai_flow.telemetry.traces import EndedSpan, Traces
from hai_flow.telemetry.watching import Watching
from tests.runtime.conftest import ASKING, HEAD, TOOLS, Make, is_now, open_pending, start, state_of
from tests.runtime.test_models import ASK, catalogue
from tests.support.collector import Collector, attributes, collecting
from tests.support.mcp_lines import Script
from tests.support.mcp_lines import catalogue as servers
from tests.support.models import Answer, FakeModels, spoken
from tests.support.service import Received, Reply, Service
from tests.support.waiting import until

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WHERE = TOOLS + "steps:\n  - {id: s, call: fx.traced}\noutput: ${{ steps.s.output }}\n"


class Traced:
    """A runtime that sends its spans to a collector, and its API."""

    def __init__(self, runtime: Runtime, client: httpx2.AsyncClient, collector: Collector, exporter: Exporter) -> None:
        self.runtime = runtime
        self.client = client
        self.collector = collector
        self._exporter = exporter

    async def publish(self, body: str, name: str = "sample") -> None:
        await self.runtime.catalog.publish(LOCAL_TENANT, (HEAD.format(name=name) + body).encode())

    async def begin(self, name: str = "sample", **headers: str) -> Any:
        response = await self.client.post("/v1/runs", json={"workflow": name}, headers=headers)
        assert response.status_code in (200, 201, 202), response.text
        return response.json()["id"]

    async def ended(self, run_id: Any, *statuses: str) -> Any:
        await until(lambda: is_now(self.runtime, run_id, *(statuses or ("finished", "failed"))))
        return await state_of(self.runtime, run_id)

    async def spans(self, beginning: str, count: int = 1) -> list[Any]:
        """So many spans, once they have come."""

        async def come() -> bool:
            await self._exporter.flush()
            return len(self.collector.named(beginning)) >= count

        await until(come)
        found = self.collector.named(beginning)
        assert len(found) == count, [span.name for span in found]
        return found


@asynccontextmanager
async def tracing(make: Make, *, per_second: float = 1000.0, **settings: Any) -> AsyncIterator[Traced]:
    with collecting() as collector:
        metrics = Metrics()
        exporter = Exporter(collector.url, metrics)
        observers = [metrics, exporter, Traces(exporter.take, per_second)]
        runtime = await make(performs=True, observers=observers, **settings)
        transport = httpx2.ASGITransport(app=create_app(Settings(), runtime))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as client:
            yield Traced(runtime, client, collector, exporter)
        await runtime.stop()


async def test_a_run_is_in_the_trace_of_its_caller_from_the_request_to_the_tool(make: Make) -> None:
    async with tracing(make) as traced:
        await traced.publish(WHERE)
        run_id = await traced.begin(traceparent=CALLER)
        state = await traced.ended(run_id)
        (request,) = await traced.spans("POST /v1/runs")
        (turn,) = await traced.spans("invoke_workflow sample")
        (step,) = await traced.spans("step call")
        (tool,) = await traced.spans("execute_tool fx.traced")
        commits = traced.collector.named("commit")
        above = [CALLER[36:52], request.span_id.hex(), turn.span_id.hex(), step.span_id.hex()]
        assert [span.parent_span_id.hex() for span in (request, turn, step, tool)] == above
        assert {span.trace_id.hex() for span in (request, turn, step, tool, *commits)} == {CALLER[3:35]}
        assert {span.parent_span_id for span in commits} == {turn.span_id}
        assert state.output == [f"00-{CALLER[3:35]}-{tool.span_id.hex()}-01", tool.span_id.hex()]
        told = attributes(turn)
        assert told["hai_flow.run_id"] == told["gen_ai.conversation.id"] == run_id
        assert attributes(request)["http.route"] == "/v1/runs"
        assert turn.start_time_unix_nano <= step.start_time_unix_nano <= step.end_time_unix_nano
        assert traced.collector.resources[0]["service.name"] == "hai-flow"


async def test_a_waiting_run_continues_in_a_new_trace_linked_to_the_old(make: Make) -> None:
    async with tracing(make) as traced:
        await traced.publish(ASKING)
        run_id = await traced.begin(traceparent=CALLER)
        await traced.ended(run_id, "waiting")
        (asked,) = await traced.spans("step ask")
        (first,) = await traced.spans("invoke_workflow")
        assert attributes(asked)["hai_flow.step.open"]
        assert asked.end_time_unix_nano == first.end_time_unix_nano
        pending = await open_pending(traced.runtime, run_id)
        reply = await traced.client.post(
            f"/v1/pendings/{pending}/decide",
            json={"values": {"ok": True}},
            headers={"traceparent": CALLER, "Idempotency-Key": "k"},
        )
        assert reply.status_code == 200, reply.text
        await traced.ended(run_id)
        _, second = await traced.spans("invoke_workflow", 2)
        _, answered = await traced.spans("step ask", 2)
        (command,) = await traced.spans("command Answer")
        assert second.trace_id != first.trace_id
        assert not second.parent_span_id
        assert [(link.trace_id, link.span_id) for link in second.links] == [(first.trace_id, first.span_id)]
        assert [link.span_id for link in answered.links] == [asked.span_id]
        assert answered.trace_id == second.trace_id
        assert answered.start_time_unix_nano >= asked.end_time_unix_nano
        assert command.trace_id.hex() == CALLER[3:35]
        assert [link.span_id for link in command.links] == [second.span_id]


async def test_another_process_goes_on_with_the_trace(make: Make) -> None:
    with collecting() as collector:
        exporters, runtimes = [], []
        for performs in (False, True):
            metrics = Metrics()
            exporter = Exporter(collector.url, metrics)
            exporters.append(exporter)
            traces = Traces(exporter.take, 1000.0)
            runtimes.append(await make(performs=performs, observers=[metrics, exporter, traces]))
        server, worker = runtimes
        run_id = (await start(server, WHERE)).run_id
        await until(lambda: is_now(worker, run_id, "finished"))
        for runtime in runtimes:
            await runtime.stop()
        (alone,) = collector.named("start")
        (turn,) = collector.named("invoke_workflow")
        (tool,) = collector.named("execute_tool")
        assert alone.trace_id == turn.trace_id == tool.trace_id
        assert turn.parent_span_id == alone.span_id


async def test_a_child_run_is_in_the_trace_of_the_step_that_runs_it(make: Make) -> None:
    async with tracing(make) as traced:
        await traced.publish(WHERE, "inner")
        await traced.publish("steps:\n  - {id: sub, run: inner}\noutput: ${{ steps.sub.output }}\n")
        state = await traced.ended(await traced.begin(traceparent=CALLER))
        assert place_of(state.output[0]) is not None
        assert state.output[0][3:35] == CALLER[3:35]
        await traced.spans("invoke_workflow sample")
        await traced.spans("invoke_workflow inner")
        (tool,) = await traced.spans("execute_tool")
        assert tool.trace_id.hex() == CALLER[3:35]


async def test_the_same_start_with_another_trace_is_the_same_start(make: Make) -> None:
    async with tracing(make) as traced:
        await traced.publish(WHERE)
        other = CALLER.replace("4bf9", "abcd")
        begun = [await traced.begin(**{"Idempotency-Key": "k", "traceparent": each}) for each in (CALLER, other, "x")]
        assert len(set(begun)) == 1
        state = await traced.ended(begun[0])
        assert state.trace is not None
        assert state.trace[3:35] == CALLER[3:35]


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", "x" * 5000)],
        [("traceparent", CALLER), ("traceparent", CALLER)],
        [("traceparent", CALLER.replace("00-", "ff-", 1))],
        [("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-01")],
        [("traceparent", "\u00e9" * 55)],
    ],
)
async def test_a_header_that_names_no_place_is_ignored(make: Make, headers: list[tuple[str, str]]) -> None:
    async with tracing(make, per_second=0.0) as traced:
        await traced.publish(WHERE)
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        response = await traced.client.post("/v1/runs", json={"workflow": "sample"}, headers=raw)
        assert response.status_code in (200, 201, 202), response.text
        state = await traced.ended(response.json()["id"])
        assert state.trace is None
        assert state.output == [None, None]


async def test_what_a_caller_does_not_record_is_passed_on_and_not_recorded(make: Make) -> None:
    async with tracing(make) as traced:
        await traced.publish(WHERE)
        state = await traced.ended(await traced.begin(traceparent=CALLER[:-1] + "0"))
        assert state.output[0][3:35] == CALLER[3:35]
        assert state.output[0].endswith("-00")
        await traced._exporter.flush()
        assert not traced.collector.spans


async def test_a_process_that_records_nothing_passes_the_callers_place_on(make: Make) -> None:
    runtime = await make(performs=True)
    await runtime.catalog.publish(LOCAL_TENANT, (HEAD.format(name="sample") + WHERE).encode())
    transport = httpx2.ASGITransport(app=create_app(Settings(), runtime))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        begun = await client.post("/v1/runs", json={"workflow": "sample"}, headers={"traceparent": CALLER})
    run_id = begun.json()["id"]
    await until(lambda: is_now(runtime, run_id, "finished"))
    assert (await state_of(runtime, run_id)).output == [CALLER, CALLER[36:52]]


async def test_services_get_the_attempts_trace_and_nobody_behind_a_redirect(make: Make) -> None:
    async with Service(lambda received: Reply(body=b"{}")) as other:

        def lead_on(received: Received) -> Reply:
            return Reply(302, headers=(("Location", other.url("/there", host="localhost")),))

        async with Service(lead_on) as service, tracing(make, http_hosts=("127.0.0.1", "localhost")) as traced:
            await traced.publish(f"steps: [{{id: a, http: {{get: '{service.url()}'}}}}]\n")
            await traced.ended(await traced.begin(traceparent=CALLER))
            (span,) = await traced.spans("http")
            assert service.received[0].headers["traceparent"] == f"00-{CALLER[3:35]}-{span.span_id.hex()}-01"
            assert "traceparent" not in other.received[0].headers
            assert service.url() not in str(span)


async def test_a_server_of_mcp_is_told_the_place(make: Make, tmp_path: Path) -> None:
    said = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": TRACEPARENT}]}}'
    async with servers(tmp_path, Script(answers=(said,))) as file, tracing(make, mcp=file) as traced:
        body = "tools: {t: {mcp: {use: files}}}\nsteps: [{id: a, call: t.add}]\noutput: ${{ steps.a.output }}\n"
        await traced.publish(body)
        state = await traced.ended(await traced.begin(traceparent=CALLER))
        assert state.status == "finished", state.error
        assert state.output[3:35] == CALLER[3:35]


async def test_a_models_span_has_its_tokens_and_none_of_its_words(make: Make, tmp_path: Path) -> None:
    async with FakeModels(spoken(Answer(text="A cup of Darjeeling."))) as fake:
        settings = {"models": catalogue(tmp_path, fake), "secrets": {"K": "sk-1"}}
        async with tracing(make, **settings) as traced:
            await traced.publish(ASK)
            state = await traced.ended(await traced.begin())
            assert state.output == "A cup of Darjeeling."
            (chat,) = await traced.spans("chat")
            told = attributes(chat)
            assert told["gen_ai.operation.name"] == "chat"
            assert told["gen_ai.provider.name"] == "openai"
            (use,) = state.spent_on.values()
            assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (use.input, use.output)
            sent = "".join(map(str, traced.collector.spans))
            for secret in ("Darjeeling", "Tea?", "sk-1"):
                assert secret not in sent


async def test_a_step_that_fails_has_its_code_and_not_its_message(make: Make) -> None:
    async with tracing(make) as traced:
        await traced.publish("steps:\n  - {fail: {message: Ann has no money., code: luck}}\n")
        await traced.ended(await traced.begin())
        (turn,) = await traced.spans("invoke_workflow")
        assert turn.status.code == 2
        assert "Ann" not in "".join(map(str, traced.collector.spans))


async def test_metrics_are_sent_as_well(make: Make) -> None:
    async with tracing(make) as traced:
        await traced.publish(WHERE)
        await traced.ended(await traced.begin())
        await traced.spans("invoke_workflow")
        sent = traced.collector.metrics
        assert [point.as_double for point in sent["hai_flow.runs_started"].sum.data_points] == [1]
        assert sent["hai_flow.commit_seconds"].histogram.data_points[0].count >= 2
        assert sent["hai_flow.runs_held"].gauge.data_points


async def test_a_collector_that_is_away_costs_spans_and_nothing_else(make: Make) -> None:
    with collecting() as collector:
        metrics = Metrics()
        collector.status = 400
        exporter = Exporter(collector.url, metrics)
        runtime = await make(performs=True, observers=[metrics, exporter, Traces(exporter.take, 1000.0)])
        run_id = (await start(runtime, WHERE)).run_id
        await until(lambda: is_now(runtime, run_id, "finished"))
        with capture_logs():
            await exporter.flush()
        await until(lambda: exporter._dropped)
        assert not collector.spans


async def test_no_span_and_no_series_has_a_personal_value(make: Make) -> None:
    secret = "DE89-7715"
    marked = f"""state: {{iban: {{type: string, pii: true, default: {secret}}}}}
{TOOLS}steps:
  - {{id: told, say: "It is ${{{{ state.iban }}}}"}}
  - {{id: s, call: fx.echo, with: {{value: "${{{{ state.iban }}}}"}}}}
  - {{id: wrong, fail: {{code: pay.no_account, message: "No ${{{{ state.iban }}}}"}}}}
"""
    async with tracing(make) as traced:
        await traced.publish(marked)
        state = await traced.ended(await traced.begin(traceparent=CALLER))
        assert secret in state.error.message
        await traced.spans("execute_tool fx.echo")
        await traced.spans("invoke_workflow")
    assert "fx.echo" in str(traced.collector.spans)
    assert "pay.no_account" in str(traced.collector.spans)
    assert secret not in str(traced.collector.spans)
    assert traced.collector.metrics
    assert secret not in str(traced.collector.metrics)


def collect_spans() -> tuple[list[EndedSpan], Callable[[float], Traces]]:
    spans: list[EndedSpan] = []
    return spans, lambda per_second: Traces(spans.append, per_second)


def test_so_many_runs_a_second_are_traced_whatever_callers_want() -> None:
    _, make_traces = collect_spans()
    traces = make_traces(3.0)
    places = [traces.begin(TraceParent(place_of(CALLER))) for _ in range(20)]
    assert all(place is not None and place.trace_id == CALLER[3:35] for place in places)
    assert sum(place is not None and place.sampled for place in places) == 3
    assert traces.begin(None) is None
    assert [make_traces(0.0).begin(None) for _ in range(3)] == [None] * 3


def test_without_its_packages_the_setting_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "hai_flow.telemetry.otlp_exporter", None)
    with pytest.raises(SettingsError, match=r"pip install hai-flow\[otel\]"):
        Watching(Settings(otlp="http://127.0.0.1:4318"))


@pytest.mark.parametrize("url", ["collector:4318", "ftp://x", "http://x:y"])
def test_what_is_no_address_of_a_collector_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="HAI_FLOW_OTLP"):
        Settings(otlp=url)
