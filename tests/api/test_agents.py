"""An agent as frontends see it: its text, its calls with their results, and what it asks, in every protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.support.agent_client import AgentClient, approval, say
from tests.support.agui_client import AguiClient, resolved
from tests.support.hai_client import HaiClient, user
from tests.support.models import Answer, FakeModels, spoken
from tests.support.postgres import Server
from tests.support.server import YAML, serving

FLOW = """\
hai: flow/v1
name: asking
version: 1
models: {smart: {use: smart}}
tools:
  free: {python: "tests.support.effects:echo", effect: read}
  asked: {python: "tests.support.effects:echo", effect: write}
steps:
  - id: chat
    agent: {model: smart, prompt: "${{ thread.message }}", tools: [free, asked]}
output: ${{ steps.chat.output }}
"""
CALLS = (("free", '{"value": 7}'), ("asked", '{"value": 8}'))


@pytest.fixture
async def url(postgres_server: Server, tmp_path: Path) -> AsyncIterator[str]:
    said = (Answer("I do.", calls=CALLS), Answer("Done."))
    async with FakeModels(*map(spoken, said)) as fake:
        models = tmp_path / "models.yaml"
        models.write_text(
            f"hai: models/v1\nmodels:\n  smart: {{provider: vllm, base_url: '{fake.url}', model: small}}\n"
        )
        with postgres_server.database() as dsn, serving(dsn, environment={"HAI_FLOW_MODELS": str(models)}) as server:
            published = await asyncio.to_thread(httpx2.post, f"{server.url}/v1/workflows", content=FLOW, headers=YAML)
            assert published.status_code == 201, published.text
            yield server.url


async def test_in_ag_ui_a_gated_call_is_an_interrupt_and_the_others_have_results(url: str) -> None:
    client = AguiClient(url, workflow="asking")
    first = await asyncio.to_thread(client.post, user("Do it."))
    assert first.text() == "I do."
    shown = {event["toolCallName"]: event for event in first.all("TOOL_CALL_START")}
    assert shown.keys() == {"free", "asked"}
    message = first.one("TEXT_MESSAGE_START")["messageId"]
    assert shown["free"]["parentMessageId"] == message
    (result,) = first.all("TOOL_CALL_RESULT")
    assert (result["toolCallId"], result["content"]) == (shown["free"]["toolCallId"], "7")
    (interrupt,) = first.interrupts()
    second = await asyncio.to_thread(client.post, resume=[resolved(interrupt, {"approved": True})])
    assert (second.text(), second.interrupts()) == ("Done.", [])
    assert second.one("TOOL_CALL_RESULT")["content"] == "8"


@pytest.mark.parametrize("kind", [AguiClient, HaiClient])
async def test_a_call_comes_piece_by_piece_as_one_call(url: str, kind: type[AguiClient | HaiClient]) -> None:
    first = await asyncio.to_thread(kind(url, workflow="asking").post, user("Do it."))
    free, asked = (each["toolCallId"] for each in first.all("TOOL_CALL_START"))
    pieces = {id: [each["delta"] for each in first.all("TOOL_CALL_ARGS") if each["toolCallId"] == id]
              for id in (free, asked)}  # fmt: skip
    assert ["".join(each) for each in pieces.values()] == [args for _, args in CALLS]
    assert len(first.all("TOOL_CALL_END")) == 2
    assert [each["toolCallId"] for each in first.all("TOOL_CALL_RESULT")] == [free]


async def test_in_the_agent_api_it_is_a_request_for_approval(url: str) -> None:
    client = AgentClient(url, workflow="asking")
    first = await asyncio.to_thread(client.post, say("Do it."))
    assert first.last["status"] == "incomplete"
    (request,) = [message["content"][0]["data"] for message in first.messages("mcp_approval_request")]
    assert first.data("plugin_call_output")["output"] == "7"
    second = await asyncio.to_thread(client.post, approval(request["id"], approve=False, reason="no"))
    assert (second.last["status"], second.text()) == ("completed", "Done.")


async def test_a_hai_stream_shows_text_and_call_and_the_question_has_its_path(url: str) -> None:
    client = HaiClient(url, workflow="asking")
    first = await asyncio.to_thread(client.post, user("Do it."))
    assert "I do." in first.text()
    assert [event["toolCallName"] for event in first.all("TOOL_CALL_START")][:1] == ["free"]
    pendings = (await asyncio.to_thread(httpx2.get, f"{url}/v1/pendings")).json()["items"]
    (asked,) = [each for each in pendings if each["path"] == "chat[0]/call[asked-1]/asked"]
    assert asked["path"] == "chat[0]/call[asked-1]/asked"
