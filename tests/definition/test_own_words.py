"""Whose word it is that the requester decides: the author's, wherever the document has it, or one of the data."""

from __future__ import annotations

from typing import Final

import pytest

from hai_flow.definition.plan import Approve
from tests.support.runs import plan_of

_DOCUMENT: Final = """
input:
  type: object
  properties:
    small: {type: boolean, default: true}
    who: {type: string, default: "user:ann"}
    several: {type: array, items: {type: string}, default: []}
    word: {enum: [requester, "role:boss"], default: "role:boss"}
    words: {type: array, items: {enum: [anyone, "role:boss"]}, default: []}
    one: {oneOf: [{const: requester}, {const: "role:boss"}], default: "role:boss"}
    named: {type: string, default: requester}
state: {who: {type: string, default: "user:ann"}, told: {type: string, default: ""}}
steps:
  - let: {text: requester, list: [requester, "role:boss"], hole: "${{ input.who }}"}
  - set: {who: requester, told: "${{ input.who }}"}
  - {id: route, switch: [{when: input.small, result: requester}, {default: true, result: "role:boss"}]}
  - {id: told, switch: [{when: "input.who == 'anyone'", result: "${{ input.who }}"}, {default: true, result: "user:x"}]}
  - {id: go, approve: {title: Go?, from: "${{ HOLE }}"}}
"""
AUTHOR: Final = (
    "input.small ? 'requester' : 'role:boss'",
    "input.small ? ['requester'] : ['role:boss', 'user:cat']",
    "['anyone', input.who]",
    "['requester'] + input.several",
    "{'small': 'requester', 'large': 'role:boss'}[input.who]",
    "['requester', 'role:boss'][input.small ? 0 : 1]",
    "['requester', 'role:boss'].filter(each, each != input.who)",
    "input.word",
    "input.words",
    "input.one",
    "input.named",
    "text",
    "list",
    "state.who",
    "steps.route.output.result",
)
DATA: Final = (
    "input.who",
    "input.several",
    "input.who == 'anyone' ? 'role:boss' : input.who",
    "input.several.filter(each, each != 'requester')",
    "{'requester': 'role:boss'}[input.who]",
    "hole",
    "state.told",
    "steps.told.output.result",
)


@pytest.mark.parametrize("hole", [*AUTHOR, *DATA])
def test_the_requester_decides_by_a_word_of_the_author_alone(hole: str) -> None:
    verb = plan_of(_DOCUMENT.replace("HOLE", hole)).steps["go"].verb
    assert isinstance(verb, Approve)
    assert verb.policy.names_requester == (hole in AUTHOR)
