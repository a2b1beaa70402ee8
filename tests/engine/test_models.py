"""What answers of models took: noted in the log whatever became of the attempt, and bounded by `limits`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state import budget
from tests.support.runs import SECOND, Play

MODELS = "models: {smart: {use: smart}}\n"
USED = {"calls": 1, "input_tokens": 12, "output_tokens": 7, "cached_tokens": 2, "reasoning_tokens": 3, "cost_usd": 0.5}


def use(**more: Any) -> e.ModelUse:
    return e.ModelUse("smart", "openai", "gpt", 12, 7, 2, 3, 0.5, **more)


def answer(play: Play, path: str, output: Any, *uses: e.ModelUse) -> None:
    play.do(c.StepSucceeded(path=path, attempt=play.open[path], output=output, used=uses))


def fail(play: Play, path: str, *uses: e.ModelUse) -> None:
    play.do(c.StepFailed(path=path, attempt=play.open[path], code="llm.timeout", message="late", used=uses))


def test_an_answers_usage_is_logged_before_its_step_ends() -> None:
    play = Play(MODELS + "steps: [{id: a, llm: {model: smart, prompt: x}}]\noutput: ${{ steps.a.usage }}\n")
    answer(play, "a", "hi", use())
    kinds = [event.type for event in play.events]
    assert kinds.index("model_used") == kinds.index("step_finished") - 1
    assert play.state.output == USED
    assert play.state.spent.shown == USED


def test_failed_attempts_cost_too() -> None:
    step = "{id: a, llm: {model: smart, prompt: x}, retry: {max: 1, every: 1s, jitter: false}}"
    play = Play(MODELS + f"steps: [{step}]\noutput: ${{{{ steps.a.usage.output_tokens }}}}\n")
    fail(play, "a", use(estimated=True))
    play.advance(SECOND)
    answer(play, "a", "hi", use(), use(repair=True))
    assert play.state.output == 21
    attempts = [(event.attempt, event.use.repair) for event in play.events if isinstance(event, e.ModelUsed)]
    assert attempts == [(1, False), (2, False), (2, True)]


def test_the_tokens_of_a_turn_are_those_of_the_turn() -> None:
    ask = "{id: b, ask: {title: Sure?, from: anyone, form: {properties: {ok: {type: boolean}}}}}"
    play = Play(
        MODELS
        + f"steps: [{{id: a, llm: {{model: smart, prompt: x}}}}, {ask}, {{id: c, llm: {{model: smart, prompt: y}}}}]"
    )
    answer(play, "a", "hi", use())
    assert play.state.turn_spent["openai/gpt"].calls == 1
    play.answer("b", values={"ok": True})
    assert not play.state.turn_spent
    answer(play, "c", "hi", use())
    assert (play.state.turn_spent["openai/gpt"].calls, play.state.spent.calls) == (1, 2)


def limited(limits: str) -> Play:
    two = "[{id: a, llm: {model: smart, prompt: x}}, {id: b, llm: {model: smart, prompt: y}}]"
    return Play(MODELS + f"limits: {limits}\nsteps: {two}\n")


def test_a_run_asks_no_model_beyond_its_tokens_or_its_money() -> None:
    for limits, code in (("{tokens: 19}", "limit.tokens"), ("{cost_usd: 0.5}", "limit.cost")):
        play = limited(limits)
        answer(play, "a", "hi", use())
        assert (play.status, play.error.code, play.error.path) == ("failed", code, "b")
    for limits in ("{tokens: 40}", "{cost_usd: 0.51}"):
        play = limited(limits)
        answer(play, "a", "hi", use())
        assert play.open == {"b": 1}


# --- at the same time, lost, below --------------------------------------------------------------------------------


def eight(limits: str, model: str = "{use: smart}") -> Play:
    loop = "items: '${{ [1, 2, 3, 4, 5, 6, 7, 8] }}', max_parallel: 8, on_failure: isolate, "
    ask = "steps: [{id: a, llm: {model: smart, prompt: '${{ item }}'}}]"
    return Play(f"models: {{smart: {model}}}\nlimits: {limits}\nsteps: [{{for_each: {{{loop}{ask}}}}}]\n")


def refused(play: Play) -> list[str]:
    return [event.error.code for event in play.events if isinstance(event, e.StepFailed) and event.path.endswith("/a")]


OWN = "{provider: openai, model: gpt, params: {max_tokens: 93}, price: {input: 0, output: 1000}}"
PROMPT = 7  # tokens of {"model":"smart","prompt":1}


def test_models_that_are_asked_at_once_do_not_each_find_the_same_room() -> None:
    for limits, code in (("{tokens: 600}", "limit.tokens"), ("{cost_usd: 0.56}", "limit.cost")):
        play = eight(limits, OWN)
        assert len(play.open) == 6
        assert refused(play) == [code, code]
    assert len(eight("{tokens: 800}", OWN).open) == 8


def test_what_was_reserved_is_free_again_when_it_is_known_what_was_used() -> None:
    two = "[{id: a, llm: {model: smart, prompt: x}}, {id: b, llm: {model: smart, prompt: y}}]"
    play = Play(f"models: {{smart: {OWN}}}\nlimits: {{tokens: 130}}\nsteps: {two}\n")
    answer(play, "a", "hi", use())
    assert play.open == {"b": 1}


def test_an_unbounded_answer_is_estimated_by_the_length_of_others() -> None:
    first = "{id: a, llm: {model: smart, prompt: x}}"
    both = "{parallel: {b: [{llm: {model: smart, prompt: y}}], c: [{llm: {model: smart, prompt: z}}]}}"
    for tokens, open in ((60, 2), (40, 1)):
        play = Play(MODELS + f"limits: {{tokens: {tokens}}}\nsteps: [{first}, {both}]\n")
        answer(play, "a", "hi", use())
        began = [event for event in play.events if isinstance(event, e.StepStarted) and event.verb == "llm"]
        assert len(began) == 1 + open


def test_an_unreported_attempt_is_charged_for_its_text_so_far() -> None:
    play = Play(f"models: {{smart: {OWN}}}\nsteps: [{{id: a, llm: {{model: smart, prompt: x}}}}]\n")
    play.happened(e.MessageStarted, message_id="m-1", path="a")
    play.happened(e.MessageChunk, message_id="m-1", n=0, content="a text of 21 letters.")
    play.do(c.StepLost(path="a", attempt=1))
    (charged,) = [event.use for event in play.events if isinstance(event, e.ModelUsed)]
    assert charged == e.ModelUse("smart", "openai", "gpt", PROMPT, 6, cost=0.006, estimated=True)
    answer(play, "a", "hi", use())
    assert play.state.spent.calls == 2


def test_an_attempt_that_took_too_long_is_charged() -> None:
    play = Play(MODELS + "steps: [{id: a, llm: {model: smart, prompt: x}, timeout: 1s}]\n")
    play.advance(SECOND)
    assert (play.status, play.state.spent.calls, play.state.spent.input) == ("failed", 1, PROMPT)


def test_what_a_child_took_is_its_parents() -> None:
    parent = Play(
        "models: {smart: {use: smart}}\nlimits: {tokens: 38}\n"
        "steps: [{id: a, run: below}, {id: b, llm: {model: smart, prompt: x}}]\n"
    )
    used = (e.ModelUse("", "openai", "gpt", 24, 14, 4, 6, 1.0, calls=2),)
    parent.do(c.ChildEnded(path="a", attempt=1, status="finished", output=1, used=used))
    assert (parent.state.spent.calls, parent.state.spent.input) == (2, 24)
    assert (parent.error.code, parent.error.path) == ("limit.tokens", "b")


def test_a_child_says_what_models_took_in_it_by_model() -> None:
    state = Play(MODELS + "steps: [{id: a, llm: {model: smart, prompt: x}}]\n")
    answer(state, "a", "hi", use(), use(), e.ModelUse("other", "o", "p/q", 1))
    assert budget.sum_use(state.state) == [
        e.ModelUse("", "o", "p/q", 1),
        e.ModelUse("", "openai", "gpt", 24, 14, 4, 6, 1.0, calls=2),
    ]


PICTURE = {"type": "image", "source": {"type": "file", "value": f"file_{'a' * 64}", "mimeType": "image/png"}}


@pytest.mark.parametrize(("stream", "shown"), [("text", 1), ("none", 0)])
def test_files_in_an_answer_are_parts_of_its_step_and_shown_with_its_text(stream: str, shown: int) -> None:
    ask = f"llm: {{model: smart, prompt: x, stream: {stream}}}"
    play = Play(MODELS + f"steps: [{{id: a, {ask}}}]\noutput: ${{{{ steps.a.parts }}}}\n")
    play.do(c.StepSucceeded(path="a", attempt=1, output="See.", parts=(PICTURE,)))
    assert play.output == [PICTURE]
    messages = [message for message in play.state.messages.values() if message.kind == "data"]
    assert len(messages) == shown
    assert all(json.loads(message.content)["data"]["source"] == PICTURE["source"] for message in messages)


def test_an_answer_without_files_has_no_parts() -> None:
    play = Play(MODELS + "steps: [{id: a, llm: {model: smart, prompt: x}}]\noutput: ${{ steps.a.parts }}\n")
    answer(play, "a", "hi", use())
    assert play.output == []
