"""Limits hold for a run with all runs below it: each child gets a share, and gives back what it did not take."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.errors import Rejected
from tests.engine.test_children import Family
from tests.support.runs import Play

MODELS = "models: {smart: {use: smart}}\n"
ASK = "llm: {model: smart, prompt: x}"
ASKS = f"{MODELS}steps: [{{id: a, {ASK}}}]\n"
CALLS = "steps: [{id: a, call: t.a}, {id: b, call: t.b}]\n"
ALL = "{tokens: 1000, cost_usd: 1, tool_calls: 8}"


def family_of(limits: str, steps: str, child: str = ASKS) -> Family:
    return Family(f"{MODELS}limits: {limits}\nsteps:\n{steps}", child, input={})


def took(play: Play, tokens: int, cost: float = 0.0) -> c.StepSucceeded:
    use = e.ModelUse("smart", "p", "m", tokens, 0, cost=cost)
    return c.StepSucceeded(path="a", attempt=play.attempt("a"), output="x", used=(use,))


def fan(items: int, at_once: int, limits: str = ALL) -> Family:
    loop = f"items: '${{{{ {list(range(items))} }}}}', max_parallel: {at_once}"
    return family_of(limits, f"  - for_each: {{{loop}, steps: [{{id: sub, run: below}}]}}\n")


def allowances(play: Play) -> list[e.Allowance | None]:
    return [event.allowance for event in play.of(e.CollaborationStarted)]


def test_a_child_that_is_alone_gets_all_that_is_left() -> None:
    family = family_of(ALL, f"  - {{id: a, {ASK}}}\n  - {{id: sub, run: below}}\n")
    family.mail.extend(family.parent.do(took(family.parent, 400, 0.25)).outbox)
    family.deliver()
    assert allowances(family.parent) == [e.Allowance(600, 0.75, 8)]
    assert family.child.state.allowance == e.Allowance(600, 0.75, 8)


def test_simultaneous_children_share_evenly_and_leave_the_rest_to_the_next() -> None:
    family = fan(3, 2)
    family.deliver()
    assert allowances(family.parent) == [e.Allowance(500, 0.5, 4)] * 2
    family.do(family.child, took(family.child, 100, 0.125))
    family.deliver()
    assert allowances(family.parent)[2] == e.Allowance(400, 0.375, 4)
    assert len(family.parent.state.granted) == 2


def test_a_share_is_left_for_what_is_open_beside_a_child() -> None:
    other = f"[{{id: look, call: t.f}}, {{id: b, {ASK}}}]"
    family = family_of(ALL, f"  - parallel: {{one: [{{id: sub, run: below}}], two: {other}}}\n")
    family.deliver()
    assert allowances(family.parent) == [e.Allowance(500, 0.5, 4)]


def test_a_child_fails_where_its_share_is_used_up_and_names_the_limit() -> None:
    two = f"{MODELS}steps: [{{id: a, {ASK}}}, {{id: b, {ASK}}}]\n"
    family = family_of("{tokens: 50}", "  - {id: sub, run: below}\n", two)
    family.deliver()
    family.do(family.child, took(family.child, 49))
    assert family.child.state.error is not None
    assert (family.child.state.error.code, "The run above leaves it 50." in family.child.state.error.message) == (
        "limit.tokens", True,
    )  # fmt: skip
    family.deliver()
    assert family.parent.error.cause is not None
    assert family.parent.error.cause.code == "limit.tokens"
    assert family.parent.state.spent.input == 49


def test_a_childs_tighter_limits_hold_and_its_children_share_them() -> None:
    below = "limits: {tokens: 300}\nsteps: [{id: sub, run: x}]\n"
    family = family_of(ALL, "  - {id: sub, run: below}\n", below)
    family.deliver_one()
    assert allowances(family.child) == [e.Allowance(300, 1.0, 8)]


def test_calls_of_tools_are_counted_with_those_of_the_runs_below() -> None:
    steps = "  - {id: one, run: below}\n  - {id: call, call: t.f}\n  - {id: more, call: t.f}\n"
    family = family_of("{tool_calls: 3}", steps, CALLS)
    family.deliver()
    family.succeed("a")
    family.succeed("b")
    family.deliver()
    family.parent.succeed("call")
    assert (family.parent.error.code, family.parent.error.path) == ("limit.tool_calls", "more")
    assert family.parent.state.begun_calls == 3


def test_an_abandoned_childs_share_is_kept_until_its_end_is_known() -> None:
    branches = "one: [{id: sub, run: below}], two: [{id: no, call: t.f}]"
    handler = "catch: [{steps: [{approve: {title: Go?, from: anyone}}]}]"
    steps = f"  - id: both\n    try: [{{parallel: {{{branches}}}}}]\n    {handler}\n"
    family = family_of(ALL, steps)
    family.deliver()
    family.mail.extend(family.parent.fail(one_of(family.parent, "no"), retriable=False).outbox)
    assert len(family.parent.state.granted) == 1, "nobody has said yet what it took"
    child = family.child
    family.mail.clear()  # the stop comes late
    family.do(child, took(child, 100, 0.125))
    assert family.deliver() == ["child_ended"]
    assert (dict(family.parent.state.granted), family.parent.state.spent.input) == ({}, 100)
    assert child.state.parent is not None
    used = (e.ModelUse("", "p", "m", 100),)
    with pytest.raises(Rejected, match="does not wait"):
        family.parent.do(c.ChildEnded(path=child.state.parent.path, attempt=1, status="finished", used=used))


def test_what_is_left_alone_and_what_cleans_up_is_not_limited() -> None:
    last = "  - id: x\n    call: t.f\n    finally: [{id: sub, run: below}]\n"
    family = family_of(ALL, "  - {id: left, run: below, detach: true}\n" + last)
    family.parent.do(c.ChildEnded(path="left", attempt=1, status="finished", output={"run_id": "x"}))
    family.parent.succeed("x")
    assert allowances(family.parent) == [None, None]


def one_of(play: Play, id: str) -> str:
    """The path of the open step of this id."""
    (path,) = [path for path in play.open if path.rpartition("/")[2] == id]
    return path


@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 2_000), st.lists(st.integers(0, 700), min_size=6, max_size=6)
)
def test_whatever_children_take_of_their_shares_the_limit_holds(
    items: int, at_once: int, limit: int, wants: list[int]
) -> None:
    family = fan(items, at_once, f"{{tokens: {limit}}}")
    family.deliver()
    rest = iter(wants)
    while waiting := [each for each in list(family.plays.values())[1:] if not each.state.ended]:
        child = waiting[0]
        allowance = child.state.allowance
        assert allowance is not None
        assert allowance.tokens is not None
        family.do(child, took(child, min(next(rest), allowance.tokens)))
        family.deliver()
        state = family.parent.state
        reserved = sum(each.tokens or 0 for each in state.granted.values())
        assert state.spent.input + reserved <= limit
    assert family.parent.state.ended


# --- forks ----------------------------------------------------------------------------------------------------------

NOTHING = c.Answer(answers=(), by=c.Principal("user:op"))
BESIDE_A_QUESTION = "  - parallel: {one: [{id: sub, run: below}], two: [{approve: {title: Go?, from: anyone}}]}\n"
ASKS_TWICE = f"""{MODELS}
steps:
  - {{id: a, {ASK}}}
  - {{id: look, call: t.look}}
  - {{id: sure, ask: {{title: Go?, from: anyone, form: {{type: object, properties: {{}}}}}}}}
"""


def test_a_fork_has_spent_what_the_child_of_the_other_run_had_spent_so_far() -> None:
    family = family_of(ALL, BESIDE_A_QUESTION, ASKS_TWICE)
    family.deliver()
    family.do(family.child, took(family.child, 480, 0.4))
    family.deliver()
    family.succeed("look")
    family.deliver()
    fork = family.parent.forked(family.parent.state.seq, NOTHING)
    assert (fork.state.spent.input, fork.state.spent.cost, fork.state.begun_calls) == (480, 0.4, 1)
    (share,) = fork.state.granted.values()
    assert share == e.Allowance(260, 0.3, 3), "half of what is left, as a new child would get of the other run"
    again = fork.forked(fork.state.seq, NOTHING, run_id=UUID(int=(8 << 76) | (2 << 62)))
    assert again.state.spent.input == 480, "that is counted once, however often the run is forked"


def test_a_fork_counts_what_runs_further_below_had_spent() -> None:
    parent = Play(f"{MODELS}limits: {ALL}\nsteps:\n{BESIDE_A_QUESTION}", start=False)
    parent.start({})
    (path,) = parent.state.children
    used = (e.ModelUse("", "p", "m", 300, 0), e.ModelUse("", "p", "deep", 200, 0))
    parent.do(c.ChildMoved(path=path, attempt=1, working=True, used=used, tool_calls=2))
    assert parent.state.spent.input == 0, "the run itself is told at the child's end"
    fork = parent.forked(parent.state.seq, NOTHING)
    assert (fork.state.spent.input, fork.state.begun_calls) == (500, 2)


def test_a_child_tells_what_those_below_it_have_spent_along_with_its_own() -> None:
    family = family_of(ALL, BESIDE_A_QUESTION, f"{MODELS}steps: [{{id: a, {ASK}}}, {{id: deeper, run: below}}]")
    family.deliver()
    child = family.child
    family.do(child, took(child, 100))
    family.deliver()
    used = (e.ModelUse("", "p", "m", 50, 0),)
    family.do(child, c.ChildMoved(path="deeper", attempt=1, working=True, used=used, tool_calls=3))
    family.deliver()
    (known,) = family.parent.state.expenses.values()
    assert (sum(use.input for use in known.used), known.tool_calls) == (150, 3)


def test_what_a_child_says_late_of_its_spending_takes_nothing_back() -> None:
    family = family_of(ALL, BESIDE_A_QUESTION)
    family.deliver()
    (path,) = family.parent.state.children
    for calls in (2, 1):
        use = (e.ModelUse("", "p", "m", 100 * calls, 0, calls=calls),)
        family.parent.do(c.ChildMoved(path=path, attempt=1, working=True, used=use))
    (known,) = family.parent.state.expenses.values()
    assert known.used[0].input == 200


def test_a_child_without_an_allowance_tells_nothing_of_its_spending() -> None:
    family = Family(f"{MODELS}steps:\n{BESIDE_A_QUESTION}", ASKS_TWICE, input={})
    family.deliver()
    family.do(family.child, took(family.child, 480, 0.4))
    family.deliver()
    assert not family.parent.state.expenses


@pytest.mark.parametrize("spent", [0, 100])
def test_a_fork_reserves_nothing_for_a_child_that_its_origin_gave_up(spent: int) -> None:
    branches = "one: [{id: sub, run: below}], two: [{id: no, call: t.f}]"
    handler = f"catch: [{{steps: [{{approve: {{title: Go?, from: anyone}}}}, {{id: more, {ASK}}}]}}]"
    family = family_of(ALL, f"  - id: both\n    try: [{{parallel: {{{branches}}}}}]\n    {handler}\n", ASKS_TWICE)
    family.deliver()
    if spent:
        family.do(family.child, took(family.child, spent))
        family.deliver()
    family.parent.fail(one_of(family.parent, "no"), retriable=False)  # the child is not told yet
    assert family.parent.state.granted
    fork = family.parent.forked(family.parent.state.seq, NOTHING)
    assert not fork.state.granted
    assert not fork.state.expenses
    assert fork.state.spent.input == spent
