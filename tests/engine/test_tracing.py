"""Where a run stands in a trace."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine.state.state import RunState, TurnState
from hai_flow.engine.state.tracing import (
    TracePosition,
    derive_attempt_place,
    derive_step_place,
    derive_turn_place,
    is_traced,
    place_of,
)
from tests.support.values import require

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HEX = st.text("0123456789abcdef")


def run(trace: str | None = CALLER, turn: int = 1, **more: Any) -> RunState:
    return RunState("a-run", trace=trace, turn=TurnState(turn, 1), **more)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        CALLER.upper(),
        CALLER[:-1],
        CALLER + "-more",
        "ff" + CALLER[2:],
        CALLER.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        CALLER.replace("00f067aa0ba902b7", "0" * 16),
        CALLER.replace("4bf9", "４bf9"),
        CALLER + "\n",
        "01" + CALLER[2:] + "-" + "x" * 1000,
    ],
)
def test_what_is_no_place_counts_as_none(text: str) -> None:
    assert place_of(text) is None


def test_a_later_version_may_say_more() -> None:
    assert place_of("01" + CALLER[2:] + "-what-comes") == place_of(CALLER)


@given(st.text(max_size=600) | HEX)
def test_whatever_a_header_says_is_read_or_ignored(text: str) -> None:
    found = place_of(text)
    assert found is None or place_of(str(found)) == found


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_a_place_is_read_as_it_is_written(trace: int, span: int, sampled: bool) -> None:
    place = TracePosition(f"{trace:032x}", f"{span:016x}", sampled)
    assert place_of(str(place)) == place
    assert len(str(place)) == 55


def test_the_first_turn_is_in_the_callers_trace_and_later_ones_in_own() -> None:
    places = [derive_turn_place(run(), turn) for turn in (1, 2, 3)]
    assert [place is not None and place.trace_id == CALLER[3:35] for place in places] == [True, False, False]
    assert len({place.trace_id for place in places if place}) == len({place.span_id for place in places if place}) == 3
    assert all(place is not None and place.sampled for place in places)


def test_every_process_finds_the_same_ids() -> None:
    other = msgspec.structs.replace(run(), seq=17, status="running")
    assert derive_step_place(run(), "s", 2) == derive_step_place(other, "s", 2)
    assert derive_attempt_place(run(turn=2), "s", 1) == derive_attempt_place(
        msgspec.structs.replace(other, turn=TurnState(2, 1)), "s", 1
    )


def test_a_run_without_trace_has_no_span_and_an_unsampled_one_says_so() -> None:
    assert (
        derive_turn_place(run(None), 1)
        is derive_step_place(run(None), "s", 1)
        is derive_attempt_place(run(None), "s", 1)
        is None
    )
    assert not is_traced(run(None))
    quiet = CALLER[:-1] + "0"
    assert not is_traced(run(quiet))
    assert not require(derive_turn_place(run(quiet), 2)).sampled
