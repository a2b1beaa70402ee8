"""A jump: time passes at once for what runs on a clock, and everything comes as if it had gone by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.decision import Decision
from hai_flow.engine.state.bounds import Bounds
from hai_flow.errors import Rejected
from hai_flow.store.commit.projection import rows_of
from tests.engine.test_time import STAGES, World, documents, refusal, started
from tests.support.examples import examples
from tests.support.runs import DAY, HOUR, NOON, Play


def jump(play: Play, ms: int) -> Decision:
    return play.do(c.Jump(by="user:op", ms=ms))


def left(decision: Decision) -> int:
    return int(decision.outcome["left"])


def test_a_deadline_comes_nearer_and_who_jumped_is_in_the_log() -> None:
    play = started(STAGES.replace("1s", "2h"))
    assert jump(play, HOUR).outcome == {"id": str(play.run_id), "status": "waiting", "passed": HOUR, "left": 0}
    assert play.types() == ["time_jumped"]
    (event,) = play.of(e.TimeJumped)
    assert (event.by, event.ms, event.at) == ("user:op", HOUR, NOON)
    assert play.timers == [("gate", "deadline", HOUR)]
    assert play.state.pendings[play.pending("gate")].opened.deadline == NOON + HOUR


def test_due_work_happens_in_order_and_each_stage_has_its_own_time() -> None:
    play = started(STAGES.replace("1s", "2h"))
    jump(play, 3 * HOUR)
    assert play.status == "waiting"
    assert [type(each).__name__ for each in play.events if isinstance(each, e.TimeJumped | e.PendingEscalated)] == [
        "TimeJumped", "PendingEscalated", "TimeJumped",
    ]  # fmt: skip
    assert play.timers == [("gate", "deadline", HOUR)]
    with pytest.raises(Rejected, match=r"user:carl"):
        play.answer("gate", by="user:ann", decision="approve")
    jump(play, HOUR)
    assert (play.status, play.error.code) == ("failed", "approval.rejected")


def test_one_wait_after_the_other_passes() -> None:
    play = started("steps: [{wait: {for: 1d}}, {wait: {for: 1d}}, {say: two days}, {wait: {for: 1d}}]")
    assert left(jump(play, 2 * DAY + HOUR)) == 0
    assert play.said == ["two days"]
    assert [(kind, ms) for _, kind, ms in play.timers] == [("wait", 23 * HOUR)]


def test_a_jump_ends_where_the_run_works_for_that_takes_real_time() -> None:
    play = started("steps: [{wait: {for: 1h}}, {id: a, call: t.f, timeout: 1m}, {id: b, wait: {for: 1h}}, {say: done}]")
    decision = jump(play, 3 * HOUR)
    assert (decision.outcome["passed"], left(decision), play.status) == (HOUR, 2 * HOUR, "running")
    jump(play, DAY)
    assert play.open == {"a": 1}, "working time does not jump"
    play.succeed("a")
    assert left(jump(play, 2 * HOUR)) == HOUR
    assert play.status == "finished"


def test_an_attempt_in_flight_keeps_no_other_branch_from_its_deadline() -> None:
    play = started(
        "steps: [{parallel: {x: [{id: a, call: t.f}], y: [{id: q, ask: {title: '?', from: anyone, form: {type: object,"
        " properties: {}}, deadline: 1h, on_deadline: {default: {}}}}]}}]"
    )
    assert left(jump(play, DAY)) == 0
    assert (list(play.asking), list(play.open.values())) == ([], [1])


def test_a_back_off_passes_and_the_next_attempt_begins() -> None:
    play = started("steps: [{id: a, call: t.f, retry: {max: 3, backoff: fixed, every: 1h}}]")
    play.fail("a", retriable=True)
    assert play.open == {}
    jump(play, DAY)
    assert play.open == {"a": 2}


def test_a_new_wait_for_an_event_reads_stored_events_first() -> None:
    play = started("steps: [{wait: {for: 1h}}, {id: w, wait_for: {event: ping, deadline: 1h}}]")
    decision = jump(play, DAY)
    assert (play.step("w"), left(decision)) == ("waiting", DAY - HOUR)
    assert [message.kind for message in decision.outbox] == ["subscribe"]
    jump(play, left(decision))
    assert play.error.code == "wait_for.expired"


def test_the_limit_of_a_run_is_on_the_clock() -> None:
    play = started("limits: {duration: 1d}\nsteps: [{id: q, call: pick}]")
    jump(play, DAY)
    assert play.error.code == "limit.duration"


def test_a_pause_halts_what_it_halts_however_far_time_jumps() -> None:
    for clock, may in (("run", "user:carl"), ("stop", "user:ann")):
        play = started(STAGES.replace("1s", "2h").replace("title: Go?", f"title: Go?\n      pause_clock: {clock}"))
        play.pause()
        jump(play, 3 * HOUR)
        play.resume()
        assert play.timers == [
            ("gate", "halting_deadline" if clock == "stop" else "deadline", 2 * HOUR if clock == "stop" else HOUR)
        ]
        play.answer("gate", by=may, decision="approve")


def test_reminders_come_on_the_way_and_go_on_from_where_they_are() -> None:
    play = started(STAGES.replace("1s", "1d").replace("title: Go?", "title: Go?\n      remind: [1h, 3h]"))
    jump(play, 2 * HOUR)
    assert [event.n for event in play.of(e.PendingReminded)] == [1]
    assert play.timers == [("gate", "remind", HOUR), ("gate", "deadline", 22 * HOUR)]


@pytest.mark.parametrize("status", ["queued", "stopping", "needs_attention", "finished"])
def test_time_passes_only_for_a_run_that_is_on_a_clock(status: str) -> None:
    play = Play("concurrency: {key: k}\nsteps: [{id: a, call: t.f}]", start=False)
    play.start(key="sample:k", queued=status == "queued")
    if status == "stopping":
        play.stop()
    elif status == "needs_attention":
        play.do(c.NeedAttention(reason="refused"))
    elif status == "finished":
        play.succeed("a")
    assert play.status == status
    refused = refusal(play, c.Jump(by="user:op", ms=1))
    assert (refused.status, refused.detail) == (409, f"can't let time pass for a run that is {status}.")


def test_a_jump_over_more_than_one_decision_may_hold_says_what_is_left() -> None:
    play = started(
        "steps: [{repeat: {max: 500, steps: [{wait: {for: 1h}}], until: 'false'}}]", limits=Bounds(events=120)
    )
    rest, decisions = 400 * HOUR, 0
    while rest:
        rest = left(jump(play, rest))
        play.settle()
        decisions += 1
    assert decisions > 1
    assert len([event for event in play.of(e.TimerFired) if event.kind == "wait"]) == 400


def test_rows_of_open_questions_have_the_nearer_deadline() -> None:
    play = started(STAGES.replace("1s", "2h"))
    decision = jump(play, HOUR)
    (row,) = rows_of(decision.events, decision.state)["pendings"]
    assert (row.status, int(row.deadline.timestamp() * 1000)) == ("open", NOON + HOUR)


# --- any workflow -----------------------------------------------------------------------------------------------------


class Leaping(World):
    """A run for which time does not go by, but jumps."""

    def wait(self, until: int) -> None:
        rest = until - self.at
        while rest and self.play.status in ("running", "waiting"):
            rest = left(jump(self.play, rest))
            self.play.settle()
        self.at = until

    at = NOON


def outcome(world: World) -> Any:
    """What was decided, and when things are due: as far away as if the time had gone by. Without the values that say
    when something happened."""
    standing, pendings, steps, who, *_, timers = world.decided
    now = world.play.now
    due = {id: each[4] and each[4] - now for id, each in pendings.items() if each[0] == "open"}
    decided = {id: (status, by, reason) for id, (status, by, _, reason, *_) in pendings.items()}
    said = {path: (step[0], step[4]) for path, step in steps.items()}
    return standing, decided, said, who, due, [(timer.path, timer.kind, timer.due - now) for timer in timers]


@settings(max_examples=examples(100), deadline=None)
@given(documents(), st.lists(st.integers(1, 12 * HOUR), min_size=1, max_size=4))
@pytest.mark.slow
def test_a_run_that_jumps_is_where_it_would_be_if_the_time_had_gone_by(document: str, times: list[int]) -> None:
    real, leaping = World(document, in_time=True), Leaping(document, in_time=True)
    at = NOON
    for ms in times:
        at += ms
        real.wait(at)
        leaping.wait(at)
        assert leaping.play.now == NOON
        assert outcome(leaping) == outcome(real)
