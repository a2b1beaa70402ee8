"""A fork begins as another run was where it waited, and is a run of its own (docs/decisions/0017)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.runs.fork import demand_left, inheritance
from hai_flow.engine.state.ids import run_of_pending
from hai_flow.engine.state.instigators import INSTIGATORS_MAX
from hai_flow.errors import Rejected
from tests.support.runs import DAY, FORK, HOUR, MINUTE, RUN, SECOND, Play, plan_of
from tests.support.values import require

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


@pytest.mark.parametrize("count", [0, 1, INSTIGATORS_MAX])
def test_the_people_of_who_forks_are_never_cut_off(count: int) -> None:
    play = Play(ASKS, start=False)
    play.start(instigators=tuple(f"user:{n}" for n in range(count)))
    play.succeed("made", {"ok": True})
    given = c.PendingAnswer(id=play.pending("first"), values={})
    answer = c.Answer(answers=(given,), by=c.Principal("agent:buyer"))
    there = play.forked(play.state.seq, answer, behind=("user:bob", "user:eve"))
    assert {"user:bob", "user:eve"} <= set(there.state.instigators)
    assert len(there.state.instigators) == min(count + 3, INSTIGATORS_MAX)


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
    assert require(fork.state.steps["first"].error).code == "ask.expired"


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
    fork.succeed_all("block/inner/~finally/tidy_inner", "block/~finally/tidy")
    assert fork.status == "finished"


def test_a_running_finally_is_the_forks_and_its_block_has_no_timeout_left() -> None:
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
    assert refusal(play, play.state.seq - back, {}).code == "fork_unsettled"


def test_an_answer_that_does_not_fit_makes_no_fork() -> None:
    play = Play(TWO)
    assert refusal(play, play.state.seq, {"p/a/left": {"decision": "perhaps"}}).status == 422


def test_a_fork_that_is_made_twice_is_there_already() -> None:
    play = Play(TWO)
    fork = play.fork(play.state.seq, {"p/b/right": {"result": 7}})
    command, _ = fork.commands[0]
    assert fork.do(command).already


# --- from any moment at rest, with something else ---------------------------------------------------------------------

CHAIN = """
    input: {type: object, properties: {n: {type: integer, default: 1}}}
    state: {seen: {type: integer, default: 0}}
    steps:
      - id: a
        call: t
        with: {n: "${{ input.n }}"}
      - id: b
        call: t
        with: {n: "${{ input.n + 1 }}", seen: "${{ state.seen }}"}
      - id: c
        call: t
        with: {was: "${{ steps.b.output }}"}
"""
NOBODY = c.Answer(answers=(), by=c.Principal("user:op"))


def chain() -> Play:
    play = Play(CHAIN)
    play.succeed("a", 1)
    play.succeed("b", 2)
    play.fail("c")
    assert play.status == "failed"
    return play


def refused_at(play: Play, at: int, edits: c.Edits | None = None) -> Rejected:
    with pytest.raises(Rejected) as refused:
        play.forked(at, NOBODY, edits=edits)
    return refused.value


def test_a_run_is_forked_before_a_step_that_began_inside_a_commit() -> None:
    play = chain()
    fork = play.forked(play.before("b"), NOBODY)
    assert (fork.step("a"), fork.open) == ("finished", {"b": 1})
    fork.succeed("b", 3)
    assert fork.state.steps["c"].args == '{"was":3}'
    fork.succeed("c")
    assert fork.status == "finished"


def test_no_fork_stands_beside_work_in_flight_or_inside_an_events_effects() -> None:
    play = chain()
    began = play.before("b") + 1
    assert refused_at(play, began).code == "fork_in_flight"
    assert "b" in refused_at(play, began).detail
    assert refused_at(play, 1).code == "fork_unsettled"
    assert refused_at(play, play.state.seq).code == "fork_ended"


def test_a_fork_has_another_input_for_what_comes_behind() -> None:
    play = chain()
    fork = play.forked(play.before("b"), NOBODY, edits=c.Edits(input={"n": 7}))
    assert fork.state.steps["a"].args == '{"n":1}'
    assert fork.state.steps["b"].args == '{"n":8,"seen":0}'


def test_a_fork_has_other_values_of_variables_and_keeps_the_rest() -> None:
    play = chain()
    fork = play.forked(play.before("b"), NOBODY, edits=c.Edits(state={"seen": 5}))
    assert fork.state.steps["b"].args == '{"n":2,"seen":5}'


@pytest.mark.parametrize(
    ("edits", "code", "place"),
    [
        (c.Edits(input={"n": "x"}), "input.invalid", "/n"),
        (c.Edits(input=[1]), "input.invalid", ""),
        (c.Edits(state={"seen": "x"}), "state.invalid", "/state/seen"),
        (c.Edits(state={"unseen": 1}), "state.invalid", "/state/unseen"),
        (c.Edits(state=[]), "state.invalid", None),
    ],
)
def test_an_edit_that_does_not_fit_makes_no_fork(edits: c.Edits, code: str, place: str | None) -> None:
    play = chain()
    refused = refused_at(play, play.before("b"), edits)
    assert (refused.status, refused.code) == (422, code)
    assert place is None or place in [finding["path"] for finding in refused.findings or []]


def test_a_fork_goes_on_with_another_version() -> None:
    play = chain()
    to = plan_of(CHAIN.replace("input.n + 1", "input.n + 100"))
    fork = play.forked(play.before("b"), NOBODY, edits=c.Edits(was=play.plan), to=to)
    assert fork.state.steps["b"].args == '{"n":101,"seen":0}'
    assert fork.state.sha256 == to.sha256.hex()
    fork.succeed("b", 3)
    fork.succeed("c")
    assert fork.status == "finished"


def test_a_version_into_which_the_run_does_not_fit_makes_no_fork() -> None:
    play = chain()
    to = plan_of(CHAIN.replace("id: a", "id: other"))
    with pytest.raises(Rejected) as refused:
        play.forked(play.before("b"), NOBODY, edits=c.Edits(was=play.plan), to=to)
    assert refused.value.code == "migration_refused"


def test_an_approval_is_not_inherited_behind_an_approve_step() -> None:
    play = Play(
        """
    input: {type: object, properties: {n: {type: integer, default: 1}}}
    steps:
      - id: ok
        approve: {title: "${{ input.n }}?", from: anyone}
      - {id: pay, call: t, with: {n: "${{ input.n }}"}}
      - {id: more, ask: {title: More?, form: {properties: {}}, from: anyone}}
      - {id: last, call: t, with: {n: "${{ input.n }}"}}
    """
    )
    asked = play.state.seq
    play.answer("ok", decision="approve")
    behind = play.before("pay")
    assert refused_at(play, behind, c.Edits(input={"n": 1_000_000})).code == "fork_approved"
    assert refused_at(play, behind).code == "fork_approved"
    play.succeed("pay")
    assert refused_at(play, play.state.seq, c.Edits(input={"n": 1_000_000})).code == "fork_approved"
    assert play.forked(play.state.seq, NOBODY).asking == {"more"}  # as decision 17 has it
    fork = play.forked(asked, NOBODY, edits=c.Edits(input={"n": 2}))
    assert (fork.asking, fork.open) == ({"ok"}, {})


WAITS_TWICE = """
    tools: {t: {python: "acme:pay"}, r: {python: "acme:look", effect: read}}
    steps:
      - id: ok
        approve: {title: Pay?, from: anyone}
      - {id: more, ask: {title: More?, form: {properties: {}}, from: anyone}}
      - {id: step, STEP}
      - {id: last, ask: {title: Last?, form: {properties: {}}, from: anyone}}
"""
AFTER_THE_WAIT = {
    "call: t": True,
    "call: r": False,
    "http: {get: 'https://x.test/'}": True,
    "run: below": True,
    "say: Hello.": False,
    "try: [call: t]": True,
    "for_each: {items: [1], as: n, steps: [call: t]}": True,
}


@pytest.mark.parametrize(("step", "acts"), AFTER_THE_WAIT.items())
def test_where_it_waited_behind_an_approval_a_run_is_forked_until_it_acts(step: str, acts: bool) -> None:
    play = Play(WAITS_TWICE.replace("STEP", step), start=False)
    pins = {"below": e.Pin(1, "ab" * 32)}
    play.do(c.Start(run_id=play.run_id, thread_id="t-1", requester="user:req", input={}, pins=pins))
    asked = play.state.seq
    play.answer("ok", decision="approve")
    waited = play.state.seq
    assert play.forked(waited, NOBODY).asking == {"more"}
    play.answer("more", values={})
    for path in list(play.open):  # it has begun, whatever comes of it
        with pytest.raises(Rejected) if acts else nullcontext():
            play.forked(waited, NOBODY)
        play.succeed(path)
    if acts:
        refused = refused_at(play, waited)
        assert (refused.status, refused.code) == (409, "fork_approved")
        assert "ok" in refused.detail
        assert "before that" in refused.detail
    else:
        assert play.forked(waited, NOBODY).asking == {"more"}
    assert play.forked(asked, NOBODY).asking == {"ok"}, "in front of the question people are asked anew"
    if play.asking == {"last"}:
        assert play.forked(play.state.seq, NOBODY).asking == {"last"}, "what was done stays done in the fork"


def test_a_fork_does_not_begin_a_run_below_again_on_one_approval() -> None:
    play = Play("steps: [{id: ok, approve: {title: Pay?, from: anyone}}, {id: pay, run: below}]", start=False)
    pins = {"below": e.Pin(1, "ab" * 32)}
    play.do(c.Start(run_id=play.run_id, thread_id="t-1", requester="user:req", input={}, pins=pins))
    play.answer("ok", decision="approve")
    play.do(c.ChildTold(path="pay", attempt=1, told=(), working=False))
    assert play.status == "waiting"
    assert refused_at(play, play.state.seq).code == "fork_approved"


def test_a_callback_comes_to_the_run_that_asked_for_it() -> None:
    http = "{post: 'https://x.test/', body: '${{ callback.url }}', await_callback: {deadline: 1h}}"
    play = Play(f"steps: [{{id: a, http: {http}}}]")
    play.succeed("a", {"status": 202})
    assert refused_at(play, play.state.seq).code == "fork_callback"


def test_working_time_does_not_go_on_between_the_run_and_its_fork() -> None:
    play = Play(
        """
    steps:
      - id: block
        timeout: 40s
        try: [{id: a, call: t}, {id: b, call: t}]
    """
    )
    play.now += 20 * SECOND
    play.succeed("block/a")
    at = play.before("block/b")
    play.now += 10 * DAY
    fork = play.forked(at, NOBODY)
    assert fork.open == {"block/b": 1}
    fork.advance(19 * SECOND)
    assert fork.step("block") == "running"
    fork.advance(2 * SECOND)
    assert fork.error.code == "step.timeout"


def test_a_paused_run_makes_a_paused_fork() -> None:
    play = first_asked()
    play.pause()
    play.now += DAY
    fork = play.forked(play.state.seq, NOBODY)
    assert (fork.status, fork.state.turn_open) == ("paused", False)
    fork.resume()
    fork.answer("first", values={})
    assert fork.open == {"second": 1}


def test_a_run_left_within_a_turn_cleans_up_work_from_after_the_fork() -> None:
    play = Play(
        """
    steps:
      - id: outer
        try:
          - {id: a, call: t}
          - id: inner
            try: [{id: b, ask: {title: Sure?, form: {properties: {}}, from: anyone}}]
            finally: [{id: tidy_inner, call: t}]
        finally: [{id: tidy, call: t}]
    """
    )
    play.succeed("outer/a")
    at = play.before("outer/inner")
    play.leave(play.state_at(at))
    assert play.open == {"outer/inner/~finally/tidy_inner": 1}
    play.succeed("outer/inner/~finally/tidy_inner")
    assert (play.status, play.step("outer/~finally/tidy")) == ("stopped", "pending")


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


# --- an heir that does not begin --------------------------------------------------------------------------------------

OTHER = UUID(int=(8 << 76) | (2 << 62) | 77)


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_whose_fork_does_not_begin_undoes_what_it_had_left_to_it(ended: bool) -> None:
    play = first_asked()
    there = play.state
    play.answer("first", values={})
    play.succeed("second")
    play.leave(there)
    if ended:
        play.succeed("second/~undo")
        assert play.status == "stopped"
        assert play.take_back().events[0].type == "work_taken_back"
    else:
        play.take_back()
        assert (play.status, play.open) == ("stopping", {"second/~undo": 1})
        play.succeed("second/~undo")
    assert (play.status, play.open) == ("stopping", {"made/~undo": 1})
    play.succeed("made/~undo")
    assert (play.status, play.step("made"), play.step("second")) == ("stopped", "undone", "undone")
    assert play.take_back().already, "it takes back once"


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("undone", [False, True])
def test_a_run_that_takes_its_work_back_undoes_nothing_twice(paused: bool, undone: bool, ended: bool) -> None:
    """It failed, and was about to undo its work or at it, when it was stopped for a fork."""
    play = Play(
        """
    steps:
      - {id: made, call: t, with: {a: 1}, undo: {call: t, with: {a: -1}}}
      - {id: sure, approve: {title: Sure?, from: anyone}}
    """
    )
    play.succeed("made")
    there = play.state
    if paused:
        play.do(c.Pause(by="user:op"))
    play.answer("sure", decision="reject")
    play.do(c.Stop(by="user:ann", inherited=inheritance(there), heir=e.Heir(str(FORK))))
    assert (play.status, play.open) == ("stopping", {"made/~undo": 1})
    if not ended:
        play.do(c.TakeBack(heir=str(FORK), seized=play.state.ended))
    if undone:
        play.succeed("made/~undo")
    else:
        play.fail("made/~undo", retriable=False)
    if ended:
        play.do(c.TakeBack(heir=str(FORK), seized=play.state.ended))
    assert (play.state.steps["made/~undo"].attempt, play.open) == (1, {}), "it is not undone again"
    assert play.status == ("stopped" if undone else "failed")


def test_a_run_takes_nothing_back_from_a_run_that_it_was_not_stopped_for() -> None:
    play = first_asked()
    play.leave(play.state)
    assert play.status == "stopped"
    assert play.take_back(OTHER).already
    assert play.step("made") == "finished"


def test_a_run_that_ended_meanwhile_takes_back_only_with_its_slots() -> None:
    play = first_asked()
    play.leave(play.state)
    with pytest.raises(Rejected, match="can't take back the work of a run that is stopped"):
        play.do(c.TakeBack(heir=str(FORK)))


def test_a_run_takes_back_the_finally_of_a_block_that_was_open() -> None:
    play = Play(
        """
    steps:
      - id: block
        try:
          - {id: made, call: t, with: {a: 1}, undo: {call: t, with: {a: -1}}}
          - {id: asked, ask: {title: Sure?, form: {properties: {}}, from: anyone}}
        finally: [{id: tidy, call: t, with: {a: 1}}]
    finally: [{id: last, call: t, with: {a: 9}}]
    """
    )
    play.succeed("block/made")
    play.leave(play.state)
    assert play.status == "stopped"
    play.take_back()
    for path in ("block/made/~undo", "block/~finally/tidy", "~finally/last"):
        assert play.open == {path: 1}, "undone first, then cleaned up, inside out"
        play.succeed(path)
    assert play.status == "stopped"


def test_a_run_takes_back_a_finally_that_was_at_work() -> None:
    play = Play(
        """
    steps:
      - id: block
        try: [{id: made, call: t, with: {a: 1}}]
        finally:
          - {id: counted, call: t, with: {a: 3}}
          - {id: swept, call: t, with: {a: 2}, retry: {max: 1, every: 5m, jitter: false}}
    """
    )
    play.succeed_all("block/made", "block/~finally/counted")
    play.fail("block/~finally/swept")
    play.leave(play.state)
    assert play.status == "stopped"
    play.take_back()
    assert dict(play.open).keys() == {"block/~finally/swept"}, "what was done of it is not done again"
    play.succeed("block/~finally/swept")
    assert play.status == "stopped"


def test_a_run_takes_back_its_own_finally_that_was_at_work() -> None:
    play = Play(
        """
    steps: [{id: made, call: t, with: {a: 1}}]
    finally: [{id: swept, call: t, with: {a: 2}, retry: {max: 1, every: 5m, jitter: false}}]
    """
    )
    play.succeed("made")
    play.fail("~finally/swept")
    play.leave(play.state)
    assert play.status == "stopped"
    play.take_back()
    play.succeed("~finally/swept")
    assert play.status == "stopped"


def test_a_run_that_is_terminated_takes_nothing_back() -> None:
    play = first_asked()
    there = play.state
    play.answer("first", values={})
    play.succeed("second")
    play.leave(there)
    play.do(c.Terminate(by="user:op"))
    assert (play.status, play.state.heir) == ("stopped", None)
    assert play.take_back().already


def test_of_two_forks_at_once_the_first_stops_the_run_the_other_is_refused() -> None:
    play = first_asked()
    there = play.state
    play.answer("first", values={})
    play.succeed("second")
    play.leave(there)
    for _ in range(2):  # while it stops, and when it has
        with pytest.raises(Rejected) as refused:
            play.do(c.Stop(by="user:bob", inherited=inheritance(play.state), heir=e.Heir(str(OTHER))))
        assert (refused.value.status, refused.value.code) == (409, "fork_overtaken")
        assert refused.value.winner == {"run_id": str(FORK)}
        assert play.leave(there).already, "the same one again finds what it did"
        if play.status == "stopping":
            play.succeed("second/~undo")
    assert play.status == "stopped"


def test_a_fork_of_a_run_that_somebody_stopped_meanwhile_is_refused() -> None:
    play = first_asked()
    there = play.state
    play.do(c.Stop(by="user:op"))
    with pytest.raises(Rejected) as refused:
        play.leave(there)
    assert refused.value.code == "fork_overtaken"
    with pytest.raises(Rejected, match="undoes its work itself"):
        demand_left(play.state, str(FORK), inheritance(there))


def test_a_fork_takes_over_no_more_than_was_left_to_it() -> None:
    play = first_asked()
    early = play.state
    play.answer("first", values={})
    play.succeed("second")
    play.leave(early)
    demand_left(play.state, str(FORK), inheritance(early))
    for run_id, inherited in ((OTHER, inheritance(early)), (FORK, e.Inherited(2, early.seq + 3)), (FORK, None)):
        with pytest.raises(Rejected) as refused:
            demand_left(play.state, str(run_id), inherited)
        assert refused.value.code == "fork_overtaken"
