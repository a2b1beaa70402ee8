"""A fork begins as another run was where it waited, and is a run of its own (docs/decisions/0017)."""

from __future__ import annotations

from typing import Any

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.ids import run_of_pending
from hai_flow.errors import Rejected
from tests.support.runs import DAY, FORK, HOUR, MINUTE, RUN, Play

ASKS = """
    steps:
      - id: made
        call: t
        with: {a: 1}
        undo: {call: t, with: {a: -1}}
      - id: first
        ask: {title: First?, form: {properties: {}}, from: anyone, deadline: 1d, on_deadline: fail}
      - id: second
        call: t
        with: {a: 2}
        undo: {call: t, with: {a: -2}}
      - id: third
        ask: {title: Third?, form: {properties: {}}, from: anyone}
      - return: done
"""
APPROVED = """
    steps:
      - id: pay
        call: t
        with: {a: 1}
        approval: {from: anyone}
        retry: {max: 3, every: 1h}
"""
TWO = """
    steps:
      - id: p
        parallel:
          a: [{id: left, approve: {title: Left?, from: anyone, quorum: 2}}]
          b: [{id: right, call: pick, with: {side: right}}]
"""


def first_asked() -> Play:
    play = Play(ASKS)
    play.succeed("made", {"ok": True})
    return play


def test_a_fork_has_what_was_done_and_does_not_do_it_again() -> None:
    play = first_asked()
    at = play.state.seq
    play.answer("first", values={})
    fork = play.fork(at, {"first": {"values": {}}})
    assert (fork.step("made"), fork.step("first"), fork.open) == ("finished", "finished", {"second": 1})
    assert [event.of for event in fork.of(e.Forked)] == [str(RUN)]
    assert len([event for event in fork.of(e.StepStarted) if event.path == "made"]) == 1
    fork.succeed("second")
    fork.answer("third", values={})
    assert fork.output == "done"
    fork.replayed()


def test_the_ids_of_a_forks_questions_name_the_fork() -> None:
    play = Play(TWO)
    fork = play.fork(play.state.seq, {"p/b/right": {"result": 7}})
    assert {run_of_pending(id) for id in fork.state.pendings} == {FORK}
    assert {run_of_pending(id) for id in fork.state.tool_calls} == {FORK}
    assert fork.asking == {"p/a/left"}
    (was,) = [p.opened for p in play.state.pendings.values() if p.opened.path == "p/a/left"]
    (now,) = [p.opened for p in fork.state.pendings.values() if p.opened.path == "p/a/left"]
    assert was.digest != now.digest


def test_an_answer_may_name_the_digest_that_was_shown() -> None:
    play = Play(TWO)
    shown = play.state.pendings[play.pending("p/a/left")].opened.digest
    fork = play.fork(play.state.seq, {"p/a/left": {"decision": "approve", "digest": shown}})
    (vote,) = fork.of(e.VoteCast)
    assert vote.digest == fork.state.pendings[fork.pending("p/a/left")].opened.digest != shown


def test_votes_of_the_other_run_do_not_count() -> None:
    play = Play(TWO)
    play.answer("p/a/left", by="user:bob", decision="approve")
    fork = play.fork(play.state.seq, {"p/a/left": {"decision": "approve"}}, by="user:eve")
    assert [vote.by for vote in fork.state.pendings[fork.pending("p/a/left")].votes] == ["user:eve"]
    fork.answer("p/a/left", by="user:bob", decision="approve")
    assert fork.step("p/a/left") == "finished"


def test_who_forks_is_the_requester() -> None:
    play = Play(TWO)
    fork = play.fork(play.state.seq, {"p/a/left": {"decision": "approve"}}, by="user:eve")
    assert fork.state.requester == "user:eve"
    with pytest.raises(Rejected, match="not user:ann's to answer"):
        fork.answer("p/b/right", by="user:ann", result=1)


def test_a_clock_has_as_long_to_go_as_it_had_then() -> None:
    play = first_asked()
    at, opened = play.state.seq, play.now
    play.now += HOUR
    play.answer("first", values={})
    play.now += 300 * DAY
    fork = play.fork(at, {})
    assert fork.timers == [("first", "deadline", DAY)]
    pending = fork.state.pendings[fork.pending("first")]
    assert pending.opened.deadline == fork.now + DAY == opened + HOUR + 301 * DAY
    fork.advance(DAY)
    error = fork.state.steps["first"].error
    assert error is not None
    assert error.code == "ask.expired"


def test_a_run_that_is_left_undoes_what_the_fork_does_not_have() -> None:
    play = first_asked()
    there = play.state
    play.answer("first", values={})
    play.succeed("second")
    play.leave(there)
    assert play.open == {"second/~undo": 1}
    play.succeed("second/~undo")
    assert (play.status, play.step("made"), play.step("second")) == ("stopped", "finished", "undone")


def test_what_cleans_up_behind_a_block_that_was_open_is_the_forks() -> None:
    play = Play(
        """
    steps:
      - id: block
        try:
          - id: asked
            ask: {title: Sure?, form: {properties: {}}, from: anyone}
          - id: inner
            try: [{id: again, ask: {title: Really?, form: {properties: {}}, from: anyone}}]
            finally: [{id: tidy_inner, call: t, with: {a: 2}}]
        finally: [{id: tidy, call: t, with: {a: 1}}]
    """
    )
    there = play.state
    play.answer("block/asked", values={})
    play.leave(there)
    assert play.open == {"block/inner/~finally/tidy_inner": 1}
    play.succeed("block/inner/~finally/tidy_inner")
    assert play.status == "stopped"
    fork = play.fork(there.seq, {"block/asked": {"values": {}}})
    fork.answer("block/inner/again", values={})
    fork.succeed("block/inner/~finally/tidy_inner")
    fork.succeed("block/~finally/tidy")
    assert fork.status == "finished"


def test_a_finally_that_was_at_work_is_the_forks_and_its_block_has_no_timeout_any_more() -> None:
    play = Play(
        """
    steps:
      - id: block
        try: [{id: made, call: t, with: {a: 1}}]
        finally:
          - id: tidy
            timeout: 2d
            try: [{id: swept, call: t, with: {a: 2}, retry: {max: 1, every: 5m, jitter: false}}]
    """
    )
    play.succeed("block/made")
    play.fail("block/~finally/tidy/swept")
    there = play.state
    assert (play.status, play.timers) == ("waiting", [("block/~finally/tidy/swept", "retry", 5 * MINUTE)])
    play.leave(there)
    assert (play.status, play.timers, dict(play.state.timeouts)) == ("stopped", [], {})
    fork = play.fork(there.seq, {})
    fork.advance(5 * MINUTE)
    fork.succeed("block/~finally/tidy/swept")
    assert fork.status == "finished"


# --- what can't be forked -------------------------------------------------------------------------------------------


def refusal(play: Play, at: int, answers: dict[str, Any]) -> Rejected:
    with pytest.raises(Rejected) as refused:
        play.fork(at, answers)
    return refused.value


def test_a_fork_does_not_go_on_with_what_has_been_undone_since() -> None:
    play = first_asked()
    at = play.state.seq
    play.stop()
    assert refusal(play, at, {"first": {"values": {}}}).code == "fork_undone"  # it is about to be
    play.succeed("made/~undo")
    refused = refusal(play, at, {"first": {"values": {}}})
    assert (refused.status, refused.code) == (409, "fork_undone")
    assert "made" in refused.detail


def test_what_was_approved_was_approved_for_one_run() -> None:
    play = Play(APPROVED)
    play.answer("pay", decision="approve")
    play.fail("pay")
    assert play.status == "waiting"
    refused = refusal(play, play.state.seq, {})
    assert (refused.status, refused.code) == (409, "fork_approved")


@pytest.mark.parametrize("back", [1, 2])
def test_a_run_is_forked_where_a_turn_ended(back: int) -> None:
    play = first_asked()
    assert refusal(play, play.state.seq - back, {}).code == "fork_not_waiting"


def test_an_answer_that_does_not_fit_makes_no_fork() -> None:
    play = Play(TWO)
    assert refusal(play, play.state.seq, {"p/a/left": {"decision": "perhaps"}}).status == 422


def test_a_fork_that_is_made_twice_is_there_already() -> None:
    play = Play(TWO)
    fork = play.fork(play.state.seq, {"p/b/right": {"result": 7}})
    command, _ = fork.commands[0]
    assert fork.do(command).already


# --- what the other run waited for beside people --------------------------------------------------------------------


def test_a_fork_waits_for_the_signals_that_the_other_run_waited_for() -> None:
    play = Play(
        """
    steps:
      - id: p
        parallel:
          a: [{id: paid, wait_for: {event: payment, deadline: 2d}}]
          b: [{id: asked, ask: {title: Sure?, form: {properties: {}}, from: anyone}}]
    """
    )
    fork = play.fork(play.state.seq, {"p/b/asked": {"values": {}}})
    assert fork.state.subscriptions == play.state.subscriptions
    assert fork.signal("s1", "payment").outcome["taken"]
    assert fork.status == "finished"


def test_a_fork_starts_children_of_its_own() -> None:
    play = Play(
        """
    steps:
      - id: p
        parallel:
          a: [{id: below, run: other, with: {}}]
          b: [{id: asked, ask: {title: Sure?, form: {properties: {}}, from: anyone}}]
    """
    )
    child = play.state.children["p/a/below"]
    play.do(c.ChildMoved(path="p/a/below", attempt=1, working=False))
    assert play.status == "waiting"
    play.now += MINUTE
    fork = play.fork(play.state.seq, {"p/b/asked": {"values": {}}})
    assert fork.state.children["p/a/below"] != child
    assert fork.open == {"p/a/below": 2}
    fork.do(c.ChildEnded(path="p/a/below", attempt=2, status="finished", output=1))
    assert fork.status == "finished"
