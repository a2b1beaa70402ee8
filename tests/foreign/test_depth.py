"""JSON of a hundred thousand levels, at each door by which others' JSON comes: a performed step keeps what it can read,
nothing fails without saying what came, and nobody else notices."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from hai_flow.definition.compiler import check_workflow
from hai_flow.definition.schemas.schemas import JsonSchema
from hai_flow.definition.yaml.include_keys import include_files
from hai_flow.errors import StepError
from hai_flow.models.chat import ChatReader
from hai_flow.models.event_stream import StreamReader
from hai_flow.models.responses import ResponsesReader
from hai_flow.models.structured import read_answer
from hai_flow.models.turn import Turn
from hai_flow.models.vocabulary import CallArgs, CallStart, Finish
from hai_flow.notify.chat.contract import UnprovenCall
from hai_flow.notify.chat.reading import read_json
from hai_flow.steps.python.signatures import plain
from tests.foreign.reading import messages_reader
from tests.foreign.test_hostile import Written, events, http_response, serving
from tests.steps.test_http import perform
from tests.steps.test_http_tools import flow
from tests.support.service import Reply, Service

LEVELS: Final = 100_000
BOMB: Final = b"[" * LEVELS + b"1" + b"]" * LEVELS
OBJECTS: Final = b'{"a":' * LEVELS + b"1" + b"}" * LEVELS


@pytest.mark.parametrize("bomb", [BOMB, OBJECTS], ids=["lists", "objects"])
async def test_deep_parts_of_an_answer_over_http_are_text_and_the_rest_is_there(bomb: bytes) -> None:
    async with Service(lambda _: Reply(201, b'{"paid": true, "more": ' + bomb + b"}")) as service:
        output = await perform({"post": service.url("/pay"), "body": {}})
    assert (output["status"], output["json"]["paid"]) == (201, True)
    assert "deeper than 64" in output["notes"][0]


@pytest.mark.parametrize("in_events", [True, False])
@pytest.mark.parametrize(
    "part", ['"structuredContent": {"a": %s}', '"content": [{"type": "text", "text": "ok"}, %s]', '"_meta": {"a": %s}']
)
async def test_deep_parts_of_a_result_over_mcp_are_text_and_the_rest_is_there(part: str, in_events: bool) -> None:
    def write(id: Any) -> Written:
        ok = "" if "content" in part.split(":")[0] else '"content": [{"type": "text", "text": "ok"}], '
        result = f"{ok}{part % BOMB.decode()}"
        message = f'{{"jsonrpc": "2.0", "id": {id}, "result": {{{result}}}}}'.encode()
        return Written((events(b"data: " + message + b"\n\n") if in_events else http_response(message),))

    async with asyncio.timeout(20), serving(write) as (hostile, ask):
        output = await ask()
    assert hostile.calls == 1
    assert isinstance(output["a"], list) if "structured" in part else str(output).startswith("ok")


def test_model_arguments_that_are_too_deep_are_reported_to_the_model_alone() -> None:
    turn = Turn()
    for piece in (CallStart("c", "delete"), CallArgs("c", f'{{"id": {BOMB.decode()}}}'), Finish("stop")):
        turn.add(piece)
    faults = turn.call_faults({"delete": JsonSchema({"properties": {"id": {"type": "integer"}}})})
    assert list(faults) == ["c"]


def test_a_structured_answer_that_is_too_deep_is_one_with_the_rest_as_text() -> None:
    value, fault = read_answer(f'{{"a": {BOMB.decode()}}}', JsonSchema({"type": "object"}))
    assert isinstance(value, dict), fault


def test_a_result_too_deep_to_be_written_finishes_its_tool_all_the_same() -> None:
    deep: Any = 1
    for _ in range(LEVELS):
        deep = [deep]
    assert plain({"paid": True, "more": deep})["paid"] is True
    while isinstance(deep, list):  # to forget it as a whole would take as deep a recursion
        deep = deep.pop()


READERS: Final = {"chat": ChatReader, "responses": ResponsesReader, "messages": messages_reader()}
EVENTS: Final = {
    "chat": '{"choices": [{"index": 0, "delta": {"content": "Hi", "x": %s}}]}',
    "responses": '{"type": "response.output_text.delta", "delta": "Hi", "x": %s}',
    "messages": '{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi", "x": %s}}',
}


@pytest.mark.parametrize("levels", [300, 900, 960, 980, 990, LEVELS])
@pytest.mark.parametrize("protocol", EVENTS)
def test_a_models_event_that_is_too_deep_is_read_or_its_servers_fault(protocol: str, levels: int) -> None:
    for event in (EVENTS[protocol], '{"x": %s}', '{"error": {"message": "Hi", "more": %s}}', "%s"):
        reader = StreamReader(READERS[protocol]())
        text = event.replace("%s", "[" * levels + "]" * levels)
        try:
            read = str(list(reader.feed(f"data: {text}\n\n".encode())))
        except StepError as error:
            read = error.message
        assert "Hi" in read or "[[[" in read or "Hi" not in event


@pytest.mark.parametrize("bomb", [BOMB, OBJECTS], ids=["lists", "objects"])
def test_a_proven_call_of_a_chat_that_is_too_deep_is_none(bomb: bytes) -> None:
    for body in (bomb, bomb.decode(), b'{"type": "block_actions", "actions": ' + bomb + b"}"):
        with pytest.raises(UnprovenCall):
            read_json(body)


@pytest.mark.parametrize("bomb", [BOMB, OBJECTS, OBJECTS[: 40_000 * 5]], ids=["lists", "objects", "open"])
@pytest.mark.parametrize(
    "place", ["%s", '{"openapi": "3.1.0", "info": %s}', '{"openapi": "3.1.0", "paths": {"/a": %s}}']
)
def test_a_document_of_openapi_that_is_too_deep_is_a_finding(bomb: bytes, place: str) -> None:
    document = (place % bomb.decode()).encode()
    source = include_files(flow("shop.getOrder"), {"shop.openapi.json": document}.__getitem__)
    (found,) = [each for each in check_workflow(source, "asks.flow.yaml") if each.severity == "error"]
    assert found.code == "tool.openapi"
    assert "levels" in found.message or "KiB" in found.message
