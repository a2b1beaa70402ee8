"""Integers beyond 2^53 of others, whose digits are text in a run: a declared `integer` takes them."""

from __future__ import annotations

import pytest

from hai_flow.errors import Rejected
from tests.support.runs import Play

BIG = "1234567890123456789"
FLOW = """\
tools: {shop: {python: acme.shop, effect: write}}
input: {type: object, properties: {id: {type: integer}}}
state: {receipt: {type: integer, default: 0}}
steps:
  - {id: pay, call: shop.pay, with: {id: "${{ input.id }}"}}
  - set: {receipt: "${{ steps.pay.output.id }}"}
output: ${{ state.receipt }}
"""


def test_an_input_and_a_variable_declared_as_integers_take_the_digits() -> None:
    play = Play(FLOW, input={"id": BIG})
    play.succeed("pay", {"id": BIG})
    assert (play.status, play.output) == ("finished", BIG)


@pytest.mark.parametrize("given", ["12", "x", "01234567890123456789", 1.5, [BIG]])
def test_nothing_else_is_taken_for_an_integer(given: object) -> None:
    with pytest.raises(Rejected) as refused:
        Play(FLOW, input={"id": given})
    assert refused.value.code == "input.invalid"
    play = Play(FLOW, input={"id": 1})
    play.succeed("pay", {"id": given})
    assert (play.status, play.error.code) == ("failed", "state.invalid")
