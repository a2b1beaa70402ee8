"""Every row of the transition table is walked, and nothing walks outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.state import TERMINAL_STATUSES, RunState, Status
from hai_flow.engine.state.transitions import TRANSITIONS
from hai_flow.errors import Rejected
from tests.support.runs import FORK, NOON, SECOND, Play

ONE_CALL = "steps: [{id: a, call: t.f}, {say: done}]"
ONE_AT_A_TIME = "concurrency: {key: k}\n" + ONE_CALL
ONE_QUESTION = "steps: [{id: a, call: pick}]"
NOTHING_BEGINS = Bounds(pure_steps=0)
Row = tuple[str, Status, Status]


def new() -> Play:
    return Play(ONE_CALL, start=False)


def running() -> Play:
    return Play(ONE_CALL)


def waiting() -> Play:
    return Play(ONE_QUESTION)


def queued() -> Play:
    play = Play(ONE_AT_A_TIME, start=False)
    play.start(key="demo:k", queued=True)
    return play


def paused() -> Play:
    play = waiting()
    play.pause()
    return play


def paused_in_flight() -> Play:
    play = running()
    play.pause()
    return play


def paused_in_queue() -> Play:
    play = queued()
    play.pause()
    return play


def stopping() -> Play:
    play = running()
    play.stop()
    return play


def needs_attention() -> Play:
    play = waiting()
    play.do(c.NeedAttention(reason="refused"))
    return play


def failed() -> Play:
    play = running()
    play.fail("a")
    return play


def stopped_child() -> Play:
    play = Play(ONE_CALL, start=False)
    play.start(parent=e.Parent(str(FORK), "sub", 1, 1))
    play.terminate()
    return play


def awaited_again(play: Play) -> None:
    play.do(c.RetryChild(by="user:op", awaited=e.Awaited(2)))


def attention(play: Play) -> None:
    play.do(c.NeedAttention(reason="refused"))


def end_in_a_turn(play: Play) -> None:
    play.answer("a", content="x")


def step_ends(play: Play) -> None:
    play.succeed("a")


def step_fails(play: Play) -> None:
    play.fail("a")


def admitted(play: Play) -> None:
    play.do(c.Admit())


def start_in_the_queue(play: Play) -> None:
    play.start(key="demo:k", queued=True)


def not_started() -> Play:
    return Play(ONE_AT_A_TIME, start=False)


def ask_after_call() -> Play:
    return Play("steps: [{id: a, call: t.f}, {id: b, call: pick}]")


UNDOABLE = "steps: [{id: a, call: t.f, undo: {call: t.back}}, {id: b, call: pick}]"


def waiting_behind_an_effect() -> Play:
    return Play(UNDOABLE).succeed_all("a")


def stopping_by_undoing() -> Play:
    play = waiting_behind_an_effect()
    play.stop()
    return play


TWO_UNDOABLES = """
    steps:
      - {id: a, call: t.f, undo: {call: t.back}}
      - {id: b, call: t.f, undo: {call: t.back}}
      - {id: c, call: pick}
"""


def left_to_a_fork() -> Play:
    play = Play(TWO_UNDOABLES).succeed_all("a")
    there = play.state_at(play.before("b"))
    play.succeed("b")
    play.leave(there)
    return play


def ended_for_a_fork() -> Play:
    play = left_to_a_fork()
    play.succeed("b/~undo")
    return play


def failed_for_a_fork() -> Play:
    play = left_to_a_fork()
    play.fail("b/~undo", "tool.invalid_result")
    return play


def undo_fails(play: Play) -> None:
    play.fail("a/~undo", "tool.invalid_result")


def turn_in_a_retry(play: Play) -> None:
    play.retry()


WALKS: dict[Row, tuple[Callable[[], Play], Callable[[Play], object]]] = {
    ("run_started", "new", "running"): (new, Play.start),
    ("run_queued", "running", "queued"): (not_started, start_in_the_queue),
    ("turn_started", "queued", "running"): (queued, admitted),
    ("turn_started", "waiting", "running"): (waiting, end_in_a_turn),
    ("turn_started", "running", "running"): (failed, turn_in_a_retry),
    ("turn_started", "paused", "paused"): (paused, end_in_a_turn),
    ("turn_started", "needs_attention", "needs_attention"): (needs_attention, end_in_a_turn),
    ("turn_started", "stopping", "stopping"): (waiting_behind_an_effect, Play.stop),
    ("turn_ended", "running", "waiting"): (ask_after_call, step_ends),
    ("run_paused", "running", "paused"): (running, Play.pause),
    ("run_paused", "waiting", "paused"): (waiting, Play.pause),
    ("run_paused", "queued", "paused"): (queued, Play.pause),
    ("run_resumed", "paused", "running"): (paused_in_flight, Play.resume),
    ("run_resumed", "paused", "waiting"): (paused, Play.resume),
    ("run_resumed", "paused", "queued"): (paused_in_queue, Play.resume),
    ("run_stopping", "queued", "stopping"): (queued, Play.stop),
    ("run_stopping", "running", "stopping"): (running, Play.stop),
    ("run_stopping", "waiting", "stopping"): (waiting, Play.stop),
    ("run_stopping", "paused", "stopping"): (paused, Play.stop),
    ("run_stopping", "needs_attention", "stopping"): (needs_attention, Play.stop),
    ("run_stopped", "queued", "stopped"): (queued, Play.terminate),
    ("run_stopped", "running", "stopped"): (running, Play.terminate),
    ("run_stopped", "waiting", "stopped"): (waiting, Play.terminate),
    ("run_stopped", "paused", "stopped"): (paused, Play.terminate),
    ("run_stopped", "stopping", "stopped"): (stopping, step_ends),
    ("run_stopped", "needs_attention", "stopped"): (needs_attention, Play.terminate),
    ("run_finished", "running", "finished"): (running, step_ends),
    ("run_failed", "running", "failed"): (running, step_fails),
    ("run_failed", "stopping", "failed"): (stopping_by_undoing, undo_fails),
    ("run_needs_attention", "running", "needs_attention"): (running, attention),
    ("run_needs_attention", "paused", "needs_attention"): (paused, attention),
    ("run_needs_attention", "waiting", "needs_attention"): (waiting, attention),
    ("work_taken_back", "stopping", "stopping"): (left_to_a_fork, Play.take_back),
    ("work_taken_back", "stopped", "stopping"): (ended_for_a_fork, Play.take_back),
    ("work_taken_back", "failed", "stopping"): (failed_for_a_fork, Play.take_back),
    ("run_retried", "failed", "running"): (failed, Play.retry),
    ("run_retried", "stopped", "running"): (stopped_child, awaited_again),
    ("run_retried", "needs_attention", "running"): (needs_attention, Play.retry),
}
ROWS = {(event, before, after) for event, row in TRANSITIONS.items() for before in row for after in row[before]}


def test_every_row_of_the_table_has_a_walk() -> None:
    assert WALKS.keys() == ROWS


def row_id(row: Row) -> str:
    event, before, after = row
    return f"{event}-{before}-{after}"


@pytest.mark.parametrize("row", sorted(ROWS), ids=row_id)
def test_the_row_is_walked(row: Row) -> None:
    begin, walk = WALKS[row]
    play = begin()
    walked: set[Row] = set()
    state = play.state
    seen = len(play.log)
    walk(play)
    for event in (event for batch in play.log[seen:] for event in batch):
        after = evolve(state, event)
        walked.add((event.type, state.status, after.status))
        state = after
    assert row in walked


def test_an_event_that_the_table_does_not_have_is_a_bug() -> None:
    state = RunState("r", status="finished")
    with pytest.raises(AssertionError, match="not in the transition table"):
        evolve(state, e.RunPaused(at=NOON, by="user:op"))


def test_nothing_but_a_start_is_decided_for_a_run_that_does_not_exist() -> None:
    with pytest.raises(Rejected) as refusal:
        new().pause()
    assert (refusal.value.status, refusal.value.code) == (404, "run_unknown")


def test_a_stopping_run_that_cannot_store_a_result_is_cut_off_and_ends() -> None:
    play = stopping()
    attention(play)
    assert (play.status, play.step("a")) == ("stopped", "stopped")


def test_time_never_goes_back() -> None:
    paused = evolve(RunState("r", status="running", at=NOON), e.RunPaused(at=NOON - SECOND, by="user:op"))
    assert paused == evolve(RunState("r", status="running", at=NOON), e.RunPaused(at=NOON, by="user:op"))
    assert (paused.status, paused.at) == ("paused", NOON)


def test_a_clock_behind_the_run_is_not_believed() -> None:
    play = running()
    play.now -= SECOND
    play.succeed("a")
    assert {event.at for event in play.last} == {NOON}


def test_an_end_has_no_way_out_but_a_retry_and_an_heir_that_does_not_begin() -> None:
    ways_out = {event for event, row in TRANSITIONS.items() for before in row if before in TERMINAL_STATUSES}
    assert ways_out == {"run_retried", "work_taken_back"}
    assert set(get_args(Status)) >= {status for row in TRANSITIONS.values() for status in row}
