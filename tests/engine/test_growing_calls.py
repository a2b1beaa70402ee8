"""A call that a frontend is shown while its argument grows by what a tool yields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.plan import FrontendTool, Growing
from hai_flow.engine import events as e
from hai_flow.engine.state.ids import derive_display_call_id
from hai_flow.engine.steps.tool_calls import GROWN_BEHIND, encode_grown_piece, encode_grown_start
from tests.support.runs import RUN, Play

TOOLS = """
state: {doc: {type: string, default: ""}}
tools:
  t: {python: registered}
  page:
    frontend:
      description: P
      parameters: {type: object, properties: {doc: {type: string}}}
      answer: none
      predict: {doc: doc}
"""
STREAM = "stream: {to: page, argument: doc}"
WRITE = TOOLS + f"steps: [{{id: a, call: t.f, {STREAM}, retry: {{max: 1, every: 1s, jitter: false}}}}]"


def id_of(attempt: int = 1) -> str:
    return derive_display_call_id(str(RUN), "a", attempt)


def yielded(play: Play, text: str, attempt: int = 1) -> None:
    play.happened(e.ToolCallArgsChunk, tool_call_id=id_of(attempt), content=encode_grown_piece(text))


def args(play: Play, attempt: int = 1) -> Any:
    return json.loads(play.state.tool_calls[id_of(attempt)].args)


def test_the_call_opens_after_its_announcement_and_closes_with_the_attempt() -> None:
    play = Play(WRITE)
    shown = [event for event in play.events if isinstance(event, e.CustomEmitted | e.ToolCallStarted)]
    assert [event.type for event in shown] == ["custom_emitted", "tool_call_started"]
    foretold = play.of(e.CustomEmitted)[0]
    assert foretold.name == "PredictState"
    assert foretold.value == [{"state_key": "doc", "tool": "page", "tool_argument": "doc"}]
    yielded(play, 'He said "so"\n')
    yielded(play, "and went.")
    assert play.state.tool_calls[id_of()].open
    play.succeed("a", "all of it")
    call = play.state.tool_calls[id_of()]
    assert (call.open, call.executor, call.result, call.error) == (False, "frontend", "shown", None)
    assert args(play) == {"doc": 'He said "so"\nand went.'}
    assert play.status == "finished"


def test_a_failing_attempt_breaks_its_call_off_and_the_next_has_its_own() -> None:
    play = Play(WRITE)
    yielded(play, "Once u")
    play.fail("a")
    broken = play.state.tool_calls[id_of()]
    assert (broken.open, broken.result, broken.error) == (False, "aborted", "aborted")
    assert args(play) == {"doc": "Once u"}
    play.advance(1_000)
    yielded(play, "Once upon", 2)
    play.succeed("a", "x")
    assert args(play, 2) == {"doc": "Once upon"}
    assert len(play.state.tool_calls) == 2


@pytest.mark.parametrize("how", ["lose", "terminate"])
def test_what_is_lost_or_cut_off_closes_its_call(how: str) -> None:
    play = Play(WRITE)
    yielded(play, "Once u")
    play.lose("a") if how == "lose" else play.terminate()
    assert [call.open for call in play.state.tool_calls.values() if call.id == id_of()] == [False]
    assert play.state.tool_calls[id_of()].error == "aborted"


def test_a_call_of_a_tool_that_waits_foretells_as_well() -> None:
    play = Play(
        TOOLS.replace("answer: none", "result: {type: boolean}") + "steps: [{id: a, call: page, with: {doc: x}}]"
    )
    assert [event.name for event in play.of(e.CustomEmitted)] == ["PredictState"]
    assert play.asking == {"a"}


@given(st.text('abc"\\\n\x00\x7f\u2028é😀', max_size=8), st.lists(st.text(max_size=9)))
def test_the_pieces_of_a_call_are_one_json_text(argument: str, texts: list[str]) -> None:
    growing = Growing(FrontendTool("page", "", None, None, 0, answered=False), argument or "a")
    whole = encode_grown_start(growing) + "".join(map(encode_grown_piece, texts)) + GROWN_BEHIND
    assert json.loads(whole) == {growing.argument: "".join(texts)}
