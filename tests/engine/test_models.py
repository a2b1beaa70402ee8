"""What answers of models took: noted in the log whatever became of the attempt, and bounded by `limits`."""

from __future__ import annotations

from typing import Any

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from tests.support.runs import SECOND, Play

MODELS = "models: {smart: {use: smart}}\n"
USED = {"calls": 1, "input_tokens": 12, "output_tokens": 7, "cached_tokens": 2, "reasoning_tokens": 3, "cost_usd": 0.5}


def use(**more: Any) -> e.ModelUse:
    return e.ModelUse("smart", "openai", "gpt", 12, 7, 2, 3, 0.5, **more)


def answer(play: Play, path: str, output: Any, *uses: e.ModelUse) -> None:
    play.do(c.StepSucceeded(path=path, attempt=play.open[path], output=output, used=uses))


def fail(play: Play, path: str, *uses: e.ModelUse) -> None:
    play.do(c.StepFailed(path=path, attempt=play.open[path], code="llm.timeout", message="late", used=uses))


def test_what_an_answer_took_is_in_the_log_before_its_step_ends_and_later_steps_see_it() -> None:
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
    for limits in ("{tokens: 20}", "{cost_usd: 0.51}"):
        play = limited(limits)
        answer(play, "a", "hi", use())
        assert play.open == {"b": 1}
