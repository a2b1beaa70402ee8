"""State that a client writes, and state that a thread keeps."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.state.patch import OPERATIONS_MAX
from hai_flow.engine.state.shared_state import STATE_BYTES_MAX
from hai_flow.errors import Rejected
from tests.support.runs import Play

STATE = """
state:
  mine: {type: string, default: a, client: true}
  open: {type: [object, 'null'], client: true}
  ours: {type: string, default: b}
  kept: {type: integer, default: 0, keep: thread}
  both: {type: string, default: c, client: true, keep: thread}
"""
ASKS = STATE + "steps: [{id: q, ask: {title: Q, from: anyone, form: {type: object, properties: {n: {type: integer}}}}}]"
FIRST = {"mine": "a", "open": None, "ours": "b", "kept": 0, "both": "c"}
ANN = c.Principal("user:ann")


def begun(**given: Any) -> Play:
    play = Play(ASKS, start=False)
    play.start(**given)
    return play


def answered(play: Play, state: dict[str, Any], by: c.Principal = ANN) -> c.Answer:
    answer = c.PendingAnswer(id=play.pending("q"), values={"n": 1})
    return c.Answer(answers=(answer,), by=by, state=state)


def test_a_run_begins_with_writable_client_state_and_no_other_post() -> None:
    play = begun(state={"mine": "x", "open": {"a": 1}, "ours": "y", "kept": 7, "stranger": 1})
    assert play.state.state == {**FIRST, "mine": "x", "open": {"a": 1}}


def test_a_run_begins_with_its_threads_kept_state_then_the_clients() -> None:
    play = begun(kept={"kept": 5, "both": "k", "ours": "k"}, state={"both": "x"})
    assert play.state.state == {**FIRST, "kept": 5, "both": "x"}


def test_what_was_kept_by_another_version_and_does_not_fit_is_left() -> None:
    assert begun(kept={"kept": "five", "both": "k"}).state.state == {**FIRST, "both": "k"}


def test_state_posted_with_an_answer_is_there_before_the_turn_opens() -> None:
    play = begun()
    play.do(answered(play, {"mine": "x", "ours": "y", "open": None}))
    assert play.types()[:2] == ["state_changed", "turn_started"]
    assert play.of(e.StateChanged)[0].ops == ({"op": "replace", "path": "/mine", "value": "x"},)
    assert play.state.state == {**FIRST, "mine": "x"}


@pytest.mark.parametrize(
    ("by", "written"),
    [
        (c.Principal("user:ann"), True),
        (c.Principal("user:bob", on_behalf_of="user:ann"), True),
        (c.Principal("user:bob"), False),
        (c.Principal("user:bob", roles=("user:ann",), groups=("user:ann",)), False),
        (c.Principal("user:bob", on_behalf_of="user:eve"), False),
    ],
)
@pytest.mark.parametrize("posted", ["x", 5], ids=["fits", "does not fit"])
def test_only_the_requester_or_who_acts_for_it_writes_with_an_answer(
    by: c.Principal, written: bool, posted: Any
) -> None:
    play = begun()
    if written and posted == 5:
        with pytest.raises(Rejected):
            play.do(answered(play, {"mine": posted}, by))
        return
    play.do(answered(play, {"mine": posted}, by))
    assert play.status == "finished"
    assert play.state.state["mine"] == (posted if written else "a")


def test_a_state_that_is_posted_back_as_it_was_changes_nothing() -> None:
    play = begun()
    play.do(answered(play, dict(FIRST)))
    assert play.of(e.StateChanged) == []


@pytest.mark.parametrize("posted", [{"mine": 5}, {"open": []}, {"mine": "x" * STATE_BYTES_MAX}])
def test_what_does_not_fit_refuses_the_whole(posted: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        begun(state=posted)
    assert (refused.value.status, refused.value.code) == (422, "state.invalid")
    play = begun()
    before = play.state
    with pytest.raises(Rejected) as refused:
        play.do(answered(play, posted))
    assert (refused.value.status, refused.value.code) == (422, "state.invalid")
    assert play.state is before
    assert play.asking == {"q"}


def test_the_same_answer_again_writes_nothing() -> None:
    play = begun()
    play.do(answered(play, {"mine": "x"}))
    answer = c.PendingAnswer(id=next(iter(play.state.pendings)), values={"n": 1})
    again = play.do(c.Answer(answers=(answer,), by=c.Principal("user:ann"), state={"mine": "z"}))
    assert again.already
    assert play.state.state["mine"] == "x"


def test_true_in_place_of_one_is_a_change() -> None:
    asks = ASKS.replace("mine: {type: string, default: a", "mine: {type: [integer, boolean, array], default: 1")
    play = Play(asks)
    play.do(answered(play, {"mine": True}))
    assert play.state.state["mine"] is True
    play = Play(asks)
    play.do(answered(play, {"mine": 1.0}))
    assert play.of(e.StateChanged) == []


def test_a_page_that_missed_a_variables_first_value_is_not_refused() -> None:
    play = Play(
        "state: {name: {type: string, client: true}}\n"
        "steps: [{set: {name: ann}}, {id: q, ask: {title: Q, form: {type: object, properties: {n: {type: integer}}}}}]"
    )
    assert play.state.state == {"name": "ann"}
    play.do(answered(play, {"name": None}))
    assert play.state.state == {"name": None}


def test_a_client_may_write_more_variables_than_a_patch_has_operations() -> None:
    names = [f"v{n}" for n in range(OPERATIONS_MAX + 1)]
    variables = "".join(f"  {name}: {{type: string, default: a, client: true}}\n" for name in names)
    play = Play(ASKS.replace(STATE, "state:\n" + variables))
    play.do(answered(play, dict.fromkeys(names, "b")))
    assert play.state.state == dict.fromkeys(names, "b")
    assert [len(each.ops) for each in play.of(e.StateChanged)] == [OPERATIONS_MAX, 1]
