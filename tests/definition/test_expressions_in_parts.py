"""Loops over long lists: they take a time that grows with the list, and give what they give in one piece."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any, Final, cast
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.definition.expressions import cel
from hai_flow.definition.expressions.expression_error import ExpressionError, Faults
from hai_flow.definition.expressions.expressions import compile_expression
from tests.support.examples import examples

from .support import names


def outcome(source: str, scope: dict[str, Any], *, in_parts: bool) -> Any:
    """The value, or the code of the error."""
    try:
        program = compile_expression(source, names()).program
    except Faults as faults:
        return [fault.code for fault in faults.faults]
    parted, program._parted = program._parted, program._parted if in_parts else None
    try:
        return program.evaluate(scope)
    except ExpressionError as error:
        return error.code
    finally:
        program._parted = parted


LISTS: Final = (
    "state.log.map(x, x + 1)", "state.log.filter(x, x % 3 == 0)", "state.log.map(x, x > 2, x * 2)",
    "state.log.sort_by(x, -x)", "state.log.group_by(x, x % 2)", "size(state.log.map(x, [x]))",
    "state.log.map(x, x).filter(y, y < 3)", "state.log.map(x, 1 / x)", "state.log.map(x, x.nothing)",
    "state.log.sort_by(x, x % 5).map(x, [x])", "sum(state.log.map(x, x))", "state.log.map(x, state.log[0] + x)",
    "{'a': state.log.map(x, x), 'b': state.log.filter(x, x == 1)}",
)  # fmt: skip
NESTED: Final = (
    "state.log.map(x, x.map(y, y + 1))", "state.log.map(x, x.filter(y, y > 1))",
    "state.log.map(x, size(x.map(y, [y])))", "state.log.filter(x, size(x.map(y, y)) > 1)",
    "state.log.map(x, x.sort_by(y, -y))", "state.log.map(x, x.exists(y, y == 2))",
)  # fmt: skip
AROUND: Final = (0, 1, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1_000, 1_001, 4_000)


@pytest.mark.costly
@pytest.mark.parametrize("source", LISTS)
@pytest.mark.parametrize("count", AROUND)
def test_a_loop_in_parts_gives_what_it_gives_in_one_piece(source: str, count: int) -> None:
    scope = {"state": {"log": [number % 7 for number in range(1, count + 1)]}}
    assert outcome(source, scope, in_parts=True) == outcome(source, scope, in_parts=False)


@given(st.sampled_from(NESTED), st.sampled_from((0, 1, 3, 200, 300)), st.sampled_from((0, 1, 2, 5, 300)))
@settings(max_examples=examples(40))
def test_loops_in_loops_give_the_same_in_parts(source: str, outer: int, inner: int) -> None:
    scope = {"state": {"log": [list(range(inner))] * outer}}
    if outer * inner < 9_000:
        assert outcome(source, scope, in_parts=True) == outcome(source, scope, in_parts=False)


ITEM: Final = st.sampled_from(("x", "x + 1", "[x]", "x > 2", "string(x)", "{'k': x}", "x % 2 == 0 ? [x] : []", "x / 0"))
CONDITION: Final = st.sampled_from(("x > 2", "x % 2 == 0", "true", "x == 99", "x.y == 1"))


@given(st.data(), st.sampled_from((250, 256, 257, 300, 384, 385, 1_001)))
@settings(max_examples=examples(60))
@pytest.mark.slow
def test_random_programs_give_the_same_in_parts(data: st.DataObject, count: int) -> None:
    source = "state.log"
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(("map", "filter", "sort_by")))
        source += f".{kind}(x, {data.draw(CONDITION if kind == 'filter' else ITEM)})"
    scope = {"state": {"log": data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))}}
    assert outcome(source, scope, in_parts=True) == outcome(source, scope, in_parts=False)


def seconds(source: str, scope: dict[str, Any]) -> float:
    expression = compile_expression(source, names())
    times = []
    for _ in range(3):
        begun = time.thread_time()
        with suppress(ExpressionError):
            expression.evaluate(scope)
        times.append(time.thread_time() - begun)
    return min(times)


@pytest.mark.parametrize("source", [
    "size(state.log.map(x, x))", "size(state.log.filter(x, true))", "size(state.log.sort_by(x, x))",
    "size(state.log.group_by(x, x % 2))", "size(state.log.map(x, x).map(x, x))",
    "state.log.map(x, state.log.map(y, y))", "size([1].map(a, state.log.map(y, y)))",
])  # fmt: skip
def test_a_loop_over_eight_thousand_items_takes_no_second(source: str) -> None:
    assert seconds(source, {"state": {"log": list(range(8_000))}}) < 0.3


def test_a_text_that_is_split_into_thousands_takes_no_second() -> None:
    assert seconds("size(input.note.split(',').map(x, x))", {"input": {"note": "1," * 7_000}}) < 0.3


def test_a_program_that_fails_at_its_budget_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel, "_TURN_WORK", sys.maxsize)  # else it would be another program that is begun
    program = compile_expression("state.log.map(x, x).map(x, x)", names()).program
    as_written = program._program = cast(Any, Mock())
    with pytest.raises(ExpressionError, match="more than 10,000 iterations"):
        program.evaluate({"state": {"log": list(range(5_200))}})
    as_written.eval.assert_not_called()


def test_a_selective_filter_of_a_short_list_is_evaluated_as_written() -> None:
    program = compile_expression("state.log.filter(x, x == 3)", names()).program
    program.evaluate({"state": {"log": list(range(1_000))}})
    assert program._parted is not None
    assert not any("in_parts__" in source for source in program._parted._programs)


TURNING: Final = (
    *LISTS, *NESTED, "state.log.all(x, x > 0)", "state.log.exists(x, x == 3 || x.a)", "state.log.exists_one(x, x == 3)",
    "state.log.exists(x, x)", "state.log.filter(x, x)", "state.log.filter ( // of all, some\n x, ( x > 1 ) ) // end\n",
    "state.log.map(x, x > 1 && x < 4, [x, x])", "state.log.filter(x, state.log.map(y, y).exists(z, z == x))",
    "state.log.filter(x, x > 1).map(x, {'a': x, 'b': [x].map(y, y + 1)})", "state.log.all(x, 1 / x > 0)",
    "state.log.exists(x, string(x).matches('[' + string(x) + ']'))", "state.log.filter(x, 'a'.matches(')'))",
    "state.log.filter(x, duration(string(x) + 's') > duration('2s'))", "state.log.map(x, x.sort_by(y, [y][0]))",
)  # fmt: skip


@pytest.mark.parametrize("source", TURNING)
@pytest.mark.parametrize("log", [[], [1, 2, 3, 4], [3], [0, "a"], [[3, 2], [1]], [{"a": 1}]], ids=str)
def test_a_loop_that_leaves_others_their_turns_gives_what_it_gives_without(
    source: str, log: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = outcome(source, {"state": {"log": log}}, in_parts=True)
    monkeypatch.setattr(cel, "_TURN_WORK", -1)
    assert outcome(source, {"state": {"log": log}}, in_parts=True) == without


@pytest.mark.parametrize(
    "source",
    [
        "state.log.exists(x, string(x).matches('(ab){1,20}q'))", "state.log.all(x, !string(x).matches('(ab){1,20}q'))",
        "state.log.exists_one(x, string(x).matches('(ab){1,20}q'))", "size(state.log.sort_by(x, -x))",
        "size(state.log.filter(x, string(x).matches('(ab){1,20}q')))", "size(state.log.map(x, x))",
        "size(state.log.map(x, x > 0, x))",
    ],
)  # fmt: skip
def test_other_threads_get_their_turn_in_each_round_of_a_long_loop(source: str) -> None:
    """One hundred rounds with a pattern took 100 ms, in which nothing else in the process ran."""
    program = compile_expression(source, names())
    turns: list[str] = []
    scope = {"state": {"log": list(range(1_000))}}
    sys.setprofile(lambda frame, event, _: turns.append(event) if "_let_others" in frame.f_code.co_name else None)
    try:
        program.evaluate(scope)
    finally:
        sys.setprofile(None)
    assert turns.count("call") >= 1_000
