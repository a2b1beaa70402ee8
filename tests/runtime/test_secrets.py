"""A secret that a tool reads is told nowhere, however the tool tells it: a canary in every sink."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import structlog

from hai_flow.cli.serve.logs import configure_logs
from hai_flow.runtime.runtime import LOCAL_TENANT
from tests.runtime.conftest import Connection, Make, is_now, start, state_of
from tests.runtime.test_models import catalogue
from tests.support import effects
from tests.support.models import Answer, FakeModels, spoken
from tests.support.waiting import until

CANARY = "canary/9d41 +e"
FORMS = (CANARY, base64.b64encode(CANARY.encode()).decode().rstrip("="), "canary%2F9d41%20%2Be")
TOOLS = "tools: {leaks: {python: tests.support.leaks, effect: read}}\nmodels: {smart: {use: smart}}\n"
FLOW = (
    TOOLS
    + """
input: {type: object, properties: {typed: {type: string}}}
steps:
  - {id: told, call: leaks.told}
  - {id: streamed, call: leaks.streamed, stream: text}
  - id: fails
    try: [{id: raised, call: leaks.raised}]
    catch: [{steps: [{id: caught, say: "${{ error.message }}"}]}]
  - id: asked
    llm:
      model: smart
      messages: [{role: user, content: [{type: text, text: "I typed it: ${{ input.typed }}"}]}]
output: {told: "${{ steps.told.output }}", streamed: "${{ steps.streamed.output }}"}
"""
)


async def test_what_a_tool_tells_of_a_secret_is_in_no_sink(
    make: Make, eye: Connection, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    configure_logs("debug")
    try:
        async with FakeModels(spoken(Answer("Yes."))) as fake:
            runtime = await make(
                performs=True,
                models=catalogue(tmp_path, fake),
                secrets={"TOKEN": CANARY, "K": "sk-1"},
                tools=(*effects.MODULES, "tests.support.leaks"),
            )
            run_id = (await start(runtime, FLOW, input={"typed": "a word"})).run_id
            await until(lambda: is_now(runtime, run_id, "finished", "failed"))
            state: Any = await state_of(runtime, run_id)
            assert state.status == "finished", state.error
            files = runtime.files.run_files(LOCAL_TENANT, run_id)
            await files.put(b"x", name=f"{CANARY}.txt")
            typed = (await start(runtime, FLOW, input={"typed": CANARY})).run_id
            await until(lambda: is_now(runtime, typed, "finished", "failed"))
            prompts = repr([asked.body for asked in fake.asked])
    finally:
        structlog.reset_defaults()
    assert state.output["told"]["plain"] == "it is [secret]"
    assert state.output["streamed"] == "it is [secret]"
    assert "I typed it: [secret]" in prompts
    assert CANARY not in prompts
    rows = repr([await eye.fetch(f'SELECT t::text FROM "{table}" t') for table in await _tables(eye)])
    typed_input = rows.count(CANARY.encode().hex())
    assert "[secret].txt" in rows
    seen = repr(state)
    for form in FORMS:
        assert form not in seen
    told = capfd.readouterr()
    assert "[secret]" in told.err
    for form in FORMS:
        assert form not in told.err + told.out
    mine = await eye.fetch("SELECT events FROM log WHERE run_id = $1", run_id)
    assert typed_input > 0, "what a person types into the input is the run's own value"
    for form in FORMS:
        assert form.encode() not in b"".join(row["events"] for row in mine)


async def _tables(eye: Connection) -> list[str]:
    return [row["tablename"] for row in await eye.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
