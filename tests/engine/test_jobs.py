"""What is to be done for a run, and when it must be looked at: functions of its state alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from hai_flow.definition.paths import level
from hai_flow.engine.state.jobs import (
    Continue,
    Due,
    Perform,
    has_ready,
    is_busy,
    is_due,
    is_working,
    next_due,
    next_ready,
    open_attempts,
    open_jobs,
    order_of,
    wake_at,
)
from hai_flow.engine.state.retry_policy import SUSPECT_AFTER_LOST
from hai_flow.engine.state.state import RunState, Status, StepState, Timer

CHILD = "01900000-0000-7000-8000-000000000009"
IDLE: RunState = RunState("run", status="running")


def state(**changes: object) -> RunState:
    return msgspec.structs.replace(IDLE, **changes)


def steps(**lost: int) -> Map[str, StepState]:
    return Map({path: StepState("working", 0, lost=times) for path, times in lost.items()})


@pytest.mark.parametrize(
    ("status", "performs", "continues"),
    [
        ("running", True, True), ("stopping", True, True), ("paused", True, False), ("needs_attention", True, False),
        ("waiting", False, False), ("queued", False, False), ("finished", False, False), ("failed", False, False),
    ],
)  # fmt: skip
def test_a_holder_performs_what_is_open_and_continues_what_is_ready(
    status: Status, performs: bool, continues: bool
) -> None:
    open_and_ready = state(status=status, attempts=Map({"a": 2}), steps=steps(a=0), ready=("b",))
    jobs = open_jobs(open_and_ready)
    assert jobs == [Perform("a", 2)] * performs + [Continue()] * continues


def test_without_a_ready_step_nothing_is_to_be_continued() -> None:
    assert open_jobs(state()) == []
    assert open_jobs(state(attempts=Map({"a": 1}), steps=steps(a=0))) == [Perform("a", 1)]


@given(
    st.lists(st.sampled_from("abcd"), unique=True),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, SUSPECT_AFTER_LOST + 1)),
    st.sets(st.sampled_from("wxyz")),
    st.dictionaries(st.sampled_from("wxyz"), st.just(SUSPECT_AFTER_LOST)),
)
def test_the_predicted_next_step_is_the_one_that_a_search_finds(
    ready: list[str], lost: dict[str, int], performing: set[str], suspects: dict[str, int]
) -> None:
    """A suspect begins only where nothing else is performed, and nothing begins beside one."""
    known = steps(**{**dict.fromkeys(performing, 0), **lost, **suspects})
    found = next_ready(state(ready=tuple(ready), steps=known, attempts=Map(dict.fromkeys(performing, 1))))
    beside_a_suspect = any(suspects.get(path) for path in performing)
    may_begin = [path for path in ready if not performing or lost.get(path, 0) < SUSPECT_AFTER_LOST]
    assert found == (None if beside_a_suspect or not may_begin else may_begin[0])


def test_work_frozen_or_left_to_another_process_is_not_the_next_step() -> None:
    ready = state(ready=("a", "b", "c"))
    assert [next_ready(ready, left) for left in ((), {"a"}, {"a", "b"}, {"b", "z"})] == ["a", "b", "c", "a"]
    assert next_ready(ready, {"a", "b", "c"}) is None
    held = msgspec.structs.replace(ready, held=Map({"a": "fz1"}))
    assert [next_ready(held, left) for left in ((), {"b"}, {"a"})] == ["b", "c", "b"]
    assert next_ready(held, {"b", "c"}) is None


def test_a_run_has_something_ready_where_a_freeze_does_not_hold_all_of_it() -> None:
    assert not has_ready(state())
    assert has_ready(state(ready=("a", "b")))
    assert has_ready(state(ready=("a", "b"), held=Map({"a": "fz1"})))
    assert not has_ready(state(ready=("a",), held=Map({"a": "fz1"})))


def test_attempts_are_sorted_by_their_start_and_places_in_loops() -> None:
    places = {"l[x]": 11, "l[y]": 2, "l[x]/m[p]": 1, "l[x]/m[q]": 0}
    begun = {"early": 4, "l[x]/m[p]/s": 5, "l[x]/m[q]/s": 5, "l[y]/s": 5, "late": 6}
    iterations = {path: StepState("working", 0, index=index) for path, index in places.items()}
    inside = {path: StepState("working", at, index=9) for path, at in begun.items()}
    several = state(steps=Map({**iterations, **inside}))
    assert {path: order_of(several, path) for path in begun} == {
        "early": (4, []), "l[x]/m[p]/s": (5, [11, 1]), "l[x]/m[q]/s": (5, [11, 0]), "l[y]/s": (5, [2]), "late": (6, []),
    }  # fmt: skip


def test_child_runs_are_performed_by_nobody() -> None:
    both = state(attempts=Map({"a": 1, "sub": 1}), children=Map({"sub": CHILD}))
    assert dict(open_attempts(both)) == {"a": 1}
    assert is_busy(both)
    alone = state(attempts=Map({"sub": 1}), children=Map({"sub": CHILD}))
    assert not open_attempts(alone)
    assert not is_busy(alone)


def test_a_child_works_for_its_parent_until_it_waits_itself() -> None:
    waits = state(attempts=Map({"sub": 1, "other": 1}), children=Map({"sub": CHILD, "other": CHILD}), idle=("sub",))
    assert is_working(waits)
    assert not is_working(msgspec.structs.replace(waits, idle=("sub", "other")))
    assert is_working(msgspec.structs.replace(waits, idle=()))
    assert not is_working(state())


@pytest.mark.parametrize(
    ("status", "busy"),
    [("running", True), ("stopping", True), ("paused", False), ("needs_attention", False), ("waiting", False)],
)
def test_somebody_must_hold_a_run_that_goes_on_by_itself(status: Status, busy: bool) -> None:
    assert is_busy(state(status=status, ready=("a",))) is busy
    assert not is_busy(state(status=status))


def test_a_suspect_waits_until_nothing_else_runs_and_runs_alone() -> None:
    suspect = SUSPECT_AFTER_LOST
    assert next_ready(state()) is None
    assert next_ready(state(ready=("a", "b"), steps=steps(a=suspect))) == "a"
    beside = state(ready=("a", "b"), attempts=Map({"c": 1}), steps=steps(a=suspect, b=suspect - 1, c=0))
    assert next_ready(beside) == "b"
    assert next_ready(msgspec.structs.replace(beside, ready=("a",))) is None
    alone = state(ready=("b",), attempts=Map({"a": 1, "c": 1}), steps=steps(a=suspect, b=0, c=0))
    assert next_ready(alone) is None


def test_a_run_is_due_at_its_first_timer_or_timeout() -> None:
    timers = (Timer(50, "a", "wait"), Timer(90, "b", "deadline"))
    late = {"timeouts": Map({"x": 40, "y": 70}), "worked": 10, "running_since": 1000}
    assert wake_at(state()) is None
    assert wake_at(state(timers=timers)) == 50
    assert wake_at(state(**late)) == 1030
    assert wake_at(state(timers=timers, **late)) == 50
    assert wake_at(state(timers=(Timer(2000, "a", "wait"),), **late)) == 1030
    assert wake_at(state(**{**late, "running_since": None})) is None, "the clock of timeouts stands"


@pytest.mark.parametrize("status", ["paused", "needs_attention"])
def test_while_a_run_is_halted_only_the_time_of_people_goes_on(status: Status) -> None:
    timers = (
        Timer(10, "a", "wait"),
        Timer(20, "b", "halting_deadline"),
        Timer(50, "c", "remind"),
        Timer(70, "d", "deadline"),
    )
    assert wake_at(state(status=status, timers=timers)) == 50
    assert wake_at(state(status=status, timers=timers[:2])) is None


def test_of_timeouts_due_at_once_the_outermost_blocks_is_first() -> None:
    timeouts = Map({"a/b": 40, "z": 40, "b": 40, "a/c": 30, "a": 30})
    late = state(timeouts=timeouts, running_since=1000, worked=10)
    assert next_due(late) == Due(1020, "a")
    assert next_due(msgspec.structs.replace(late, timeouts=timeouts.delete("a").delete("a/c"))) == Due(1030, "b")
    timer = Timer(1020, "w", "wait")
    assert next_due(msgspec.structs.replace(late, timers=(timer,))) == Due(1020, "w", timer)
    assert next_due(msgspec.structs.replace(late, timers=(Timer(1021, "w", "wait"),))) == Due(1020, "a")


def test_a_timeout_inside_goes_before_later_ones_further_out() -> None:
    outer = dict.fromkeys("abcdefghijklmnopqrst", 40)
    assert next_due(state(timeouts=Map({"a/b": 30, **outer}), running_since=1000, worked=10)) == Due(1020, "a/b")


def test_the_timeouts_of_attempts_may_be_left_out() -> None:
    late = state(timeouts=Map({"a": 10, "b": 90}), attempts=Map({"a": 1}), running_since=1000)
    assert next_due(late) == Due(1010, "a")
    assert next_due(late, attempts=False) == Due(1090, "b")
    assert [is_due(late, until) for until in (1009, 1010)] == [False, True]
    assert [is_due(late, until, attempts=False) for until in (1089, 1090)] == [False, True]
    assert next_due(msgspec.structs.replace(late, timeouts=Map({"a": 10})), attempts=False) is None


_moments = st.integers(0, 12)
_paths = st.sampled_from(("a", "b", "a/x", "a/y", "b/x", "b/x/z"))


@given(
    timers=st.lists(st.builds(Timer, _moments, _paths, st.just("wait")), max_size=2),
    timeouts=st.dictionaries(_paths, _moments),
    open=st.sets(_paths),
    running_since=st.none() | _moments,
    worked=st.integers(0, 4),
    until=_moments,
    attempts=st.booleans(),
)
def test_next_is_the_first_of_timers_and_timeouts_due_at_its_time(
    timers: list[Timer],
    timeouts: dict[str, int],
    open: set[str],
    running_since: int | None,
    worked: int,
    until: int,
    attempts: bool,
) -> None:
    given = state(
        timers=tuple(sorted(timers)),
        timeouts=Map(timeouts),
        attempts=Map(dict.fromkeys(open, 1)),
        running_since=running_since,
        worked=worked,
    )
    started = 0 if running_since is None else running_since
    late = [
        (started + due - worked, 1, level(path), path)
        for path, due in timeouts.items()
        if running_since is not None and (attempts or path not in open)
    ]
    first = min([*late, *((timer.due, 0, 0, timer.path) for timer in sorted(timers)[:1])], default=None)
    found = next_due(given, attempts=attempts)
    assert (None if found is None else (found.at, found.path)) == (None if first is None else (first[0], first[3]))
    assert is_due(given, until, attempts=attempts) == (first is not None and first[0] <= until)
    assert (wake_at(given) is None) == (next_due(given) is None)
