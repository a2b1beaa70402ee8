"""What was changed in the result of a tool, so that a run can hold it, stands in the run for good: in its events, in
its steps, and where its author reads what it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hai_flow.cli.runs.history import build_lines
from hai_flow.engine import events as e
from hai_flow.wire.timeline import Spans
from tests.foreign.test_mcp import GOOD, TEXT, Odd
from tests.runtime.conftest import Connection, Make, is_now, start
from tests.runtime.conftest import eye as eye
from tests.runtime.conftest import make as make
from tests.support.ledger import log_of
from tests.support.mcp_lines import Script, Way, catalogue
from tests.support.mcp_lines import result as result_text
from tests.support.service import Service
from tests.support.waiting import until

BIG = 1234567890123456789
KEPT = "an integer beyond 2^53 is kept as text"


async def finished_in(make: Make, eye: Connection, body: str, **settings: Any) -> tuple[e.StepFinished, list[e.Event]]:
    runtime = await make(performs=True, **settings)
    run_id = (await start(runtime, body)).run_id
    await until(lambda: is_now(runtime, run_id, "finished", "failed"))
    log = await log_of(eye, run_id)
    (event,) = [each for each in log if isinstance(each, e.StepFinished) and each.path == "a"]
    return event, log


async def test_digits_of_a_python_tool_s_integer_are_noted(make: Make, eye: Connection) -> None:
    body = "tools: {fx: {python: tests.support.effects}}\nsteps: [{id: a, call: fx.order}]\n"
    event, log = await finished_in(make, eye, body)
    assert event.output == {"id": str(BIG), "lines": [{"id": str(BIG + 1)}]}
    assert event.notes == (f"/id: {KEPT}", f"/lines/0/id: {KEPT}")
    spans = Spans()
    for seq, each in enumerate(log, 1):
        spans.take(seq, each)
    assert [each.notes for each in spans.all if each.path == "a"] == [event.notes]
    events = [{**json.loads(e.encode_events([each]))[0], "at": "2026-01-01T00:00:00.000Z"} for each in log]
    shown = [each.note for each in build_lines(events, {})]
    assert any(f"changed: /id: {KEPT}" in each for each in shown)


@pytest.mark.parametrize(
    ("result", "notes"),
    [
        ({"content": [], "structuredContent": {"id": BIG}}, (f"/id: {KEPT}",)),
        ({"content": [TEXT, {"type": "json"}]}, ("part 2 of the result is not one that the protocol has",)),
        ({"content": [TEXT, None, "plain"]}, ("part 2 of the result",)),
        ({"content": [TEXT], "more": 1}, ()),
    ],
)
async def test_what_became_of_an_odd_result_of_a_server_is_noted(
    result: Any, notes: tuple[str, ...], make: Make, eye: Connection
) -> None:
    async with Service(Odd([{**GOOD, "name": "t"}], result)) as service:
        body = f"tools: {{s: {{mcp: {{url: '{service.url('/mcp')}'}}}}}}\nsteps: [{{id: a, call: s.t}}]\n"
        event, _ = await finished_in(make, eye, body, http_hosts=("127.0.0.1",))
    assert len(event.notes) == len(notes)
    assert all(each.startswith(note) for each, note in zip(event.notes, notes, strict=True))


@pytest.mark.parametrize("way", ["stdio", "events", "json"])
@pytest.mark.parametrize(
    ("text", "output", "note"),
    [
        ("a\\u0000b", "a\ufffdb", "/content/0/text: characters that can't be stored became U+FFFD"),
        ("\\ud83d", "\ufffd", "/content/0/text: characters that can't be stored became U+FFFD"),
        ("gr\udcfcn", "gr\ufffdn", "the result has U+FFFD where its bytes are no UTF-8"),
        ("\ufffd", "\ufffd", None),
        ("\\ud83d\\ude00", "\U0001f600", None),
    ],
)
async def test_characters_of_a_server_that_were_replaced_are_noted(
    way: Way, text: str, output: str, note: str | None, make: Make, eye: Connection, tmp_path: Path
) -> None:
    script = Script(("t",), (result_text('{"content": [{"type": "text", "text": "' + text + '"}]}'),))
    async with catalogue(tmp_path, script, way) as file:
        body = "tools: {s: {mcp: {use: files}}}\nsteps: [{id: a, call: s.t}]\n"
        event, _ = await finished_in(make, eye, body, http_hosts=("127.0.0.1",), mcp=file)
    assert event.output == output
    assert event.notes == (() if note is None else (note,))
