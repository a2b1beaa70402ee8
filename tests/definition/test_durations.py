"""Durations as text."""

from __future__ import annotations

import pytest

from hai_flow.definition.compiler import compile_workflow
from hai_flow.definition.names.durations import NotADuration, guess_duration, milliseconds, spell
from hai_flow.definition.plan import Wait
from hai_flow.engine.state.jobs import wake_at
from hai_flow.errors import DefinitionError
from tests.definition.support import workflow
from tests.support.runs import NOON, Play


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s", 1_000), ("90s", 90_000), ("1h30m", 5_400_000), ("1500ms", 1_500), ("1w", 604_800_000),
        ("3650d", 315_360_000_000), ("PT5M", 300_000), ("P1DT2H", 93_600_000), ("P2W", 1_209_600_000),
    ],
)  # fmt: skip
def test_a_duration_is_milliseconds(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "1.5h", "h", "-1h", "1 h", "1H", "P", "PT", "P1M", "P1Y", "999ms", "3651d", "9" * 40 + "s", "١s"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(NotADuration, match="expected a duration"):
        milliseconds(text)


@pytest.mark.parametrize("text", ["1h1h", "1m1h", "1d2w", "2s1m30s", "500ms1s", "1h2h30m"])
def test_each_unit_stands_once_and_the_largest_first(text: str) -> None:
    with pytest.raises(NotADuration, match="each unit once, the largest first"):
        milliseconds(text)


def test_a_published_duration_keeps_units_without_an_order() -> None:
    source = workflow("steps:\n  - wait: {for: 30m1h}\n")
    with pytest.raises(DefinitionError, match="did you mean `1h30m`"):
        compile_workflow(source)
    (wait,) = compile_workflow(source, stored=True).steps.values()
    assert isinstance(wait.verb, Wait)
    assert wait.verb.for_ == 5_400_000


@pytest.mark.parametrize(
    "step", ['wait: {for: "${{ input.h }}"}', 'approve: {title: Go?, from: anyone, deadline: "${{ input.h }}"}']
)
def test_a_computed_duration_keeps_units_without_an_order(step: str) -> None:
    play = Play(f"input: {{type: object, properties: {{h: {{type: string, default: 30m1h}}}}}}\nsteps:\n  - {step}\n")
    assert wake_at(play.state) == NOON + 5_400_000


@pytest.mark.parametrize(
    "step",
    [
        "wait: {for: '${{ timestamp(input.due) - now }}'}",
        "wait_for: {event: paid, deadline: '${{ timestamp(input.due) - now }}'}",
        "ask: {title: T, form: {type: object}, deadline: '${{ timestamp(input.due) - now }}'}",
        "approve: {title: T, from: role:boss, deadline: '${{ string(timestamp(input.due) - now) }}'}",
    ],
)
def test_a_length_computed_from_now_counts_milliseconds(step: str) -> None:
    """Only a run that begins at a whole second, as those of tests do, has no fraction in it."""
    text = "input: {type: object, required: [due], properties: {due: {type: string, format: date-time}}}\n"
    play = Play(f"{text}steps: [{{{step}}}]", start=False)
    play.now = NOON + 123
    play.start({"due": "2026-03-02T12:00:10.5Z"})
    assert wake_at(play.state) == NOON + 10_500
    late = Play(f"{text}steps: [{{{step}}}]", input={"due": "2026-03-02T11:59:59Z"})
    assert "found '-1s': it is over" in late.error.message


def test_a_fraction_is_no_literal_and_no_rest_is_rounded_up() -> None:
    assert milliseconds("1.9999999s", ordered=False) == 1_999
    for text in ("1.5s", "0.5s"):
        with pytest.raises(NotADuration):
            milliseconds(text)
    with pytest.raises(NotADuration, match="from 1s to 10 years"):
        milliseconds("0.999s", ordered=False)


def test_shorter_ones_are_allowed_where_asked_for() -> None:
    assert milliseconds("5ms", shortest=1) == 5


def test_durations_are_spelled_as_they_are_written() -> None:
    assert [spell(5_400_000), spell(1_500), spell(0), spell(93_600_000)] == ["1h30m", "1s500ms", "0s", "1d2h"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5 minutes", "5m"), ("1 Day", "1d"), ("2 weeks", "2w"), ("90sec", "90s"), ("1hr", "1h"), ("90 s", "90s"),
        ("2h30", "2h30m"), ("2d12", "2d12h"), ("5m30", "5m30s"), ("1h 30m", "1h30m"), ("1 hour, 30 minutes", "1h30m"),
        ("2.5h", "2h30m"), ("1.5 days", "1d12h"), ("30m1h", "1h30m"), ("90 min 1 hour", "1h90m"),
        ("1h1h", ""), ("1h 1h", ""),
        ("1M", ""), ("1y", ""), ("never", ""), ("24:00", ""), ("30", ""), ("-5m", ""), ("2s30", ""), ("0.0005s", ""),
        ("99999 weeks", ""),
    ],
)  # fmt: skip
def test_what_was_meant_by_another_form_is_found_where_it_is_certain(text: str, meant: str) -> None:
    assert guess_duration(text) == meant


def test_a_long_text_is_no_duration_at_once() -> None:
    assert guess_duration("1m " * 50_000 + "!") == ""
