"""Nothing that an expression gives depends on chance: maps are run through and come out in the order of their keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.definition.expressions.expression_error import Faults
from hai_flow.definition.expressions.expressions import compile_expression
from tests.definition.support import names, value_of

KEYS = list("zyxwvutsrqponmlkjihgfedcba")
EXTRA = {key: number for number, key in enumerate(KEYS)}
IN_ORDER = sorted(KEYS)
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=3)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.extra.map(k, k)", IN_ORDER),  # a map by its schema
        ("input.extra.filter(k, k > 'c').map(k, k + '!')", [f"{key}!" for key in IN_ORDER if key > "c"]),
        ("input.extra.map(k, input.extra[k] == 0.0 ? 'first' : k)", [*IN_ORDER[:-1], "first"]),
        ("steps.a.output.map(k, k)", IN_ORDER),  # nothing is known of it
        ("input.rows.map(r, r.map(k, k))", [IN_ORDER, ["q"]]),  # a part of a loop's variable
        ("(input.count > 0 ? input.extra : {}).map(k, k)", IN_ORDER),
        ("dyn(input.extra).map(k, k)", IN_ORDER),
        ("steps.a.?output.orValue({}).map(k, k)", IN_ORDER),
        ("input.extra // which\n . // and\n map // all\n (k, k)", IN_ORDER),
        ("{'z': 1, 'y': 2, 'x': [{'b': 1, 'a': 2}]}.map(k, k)", ["x", "y", "z"]),
        ("{2: 'b', 1: 'a'}.map(k, k)", [1, 2]),
        ("[3, 1, 2].map(n, n) + input.extra.map(k, 1)", [3, 1, 2] + [1] * 26),
        ("input.extra.map(k, k).join()", "".join(IN_ORDER)),
        ("input.extra.exists_one(k, k == 'q') && input.extra.all(k, k.size() == 1)", True),
    ],
)
def test_a_map_is_run_through_in_the_order_of_its_keys(source: str, expected: Any) -> None:
    scope = {
        "input": {"extra": EXTRA, "rows": [EXTRA, {"q": 1}], "count": 1},
        "steps": {"a": {"status": "finished", "output": EXTRA}},
    }
    assert value_of(source, **scope) == expected


@given(st.dictionaries(TEXT, st.integers(0, 9), max_size=20))
def test_a_map_that_comes_out_has_its_keys_in_order(value: dict[str, int]) -> None:
    assert list(value_of("{'it': input.extra}", input={"extra": value})["it"]) == sorted(value)


def test_a_loop_over_what_is_no_map_says_so() -> None:
    with pytest.raises(Exception, match="expected an object"):
        value_of("input.extra.map(k, k)", input={"extra": [1]})


def test_a_mistake_behind_a_loop_keeps_its_place() -> None:
    source = "input.rows.map(r, r.filter(k, true)).size() == 1 && input.currency * 2 == 4"
    with pytest.raises(Faults) as caught:
        compile_expression(source, names())
    assert [fault.offset for fault in caught.value.faults] == [source.index("*")]
