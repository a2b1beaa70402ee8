"""Every row of the table of a step's phases is walked, and nothing walks outside of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

from hai_flow.engine import commands as c
from hai_flow.engine import events as e
from hai_flow.engine.evolve.evolve import evolve
from hai_flow.engine.state.bounds import Bounds
from hai_flow.engine.state.state import Phase, RunState, StepState
from hai_flow.engine.state.transitions import STEP_OUTCOMES, STEP_TRANSITIONS
from tests.support.runs import HOUR, NOON, Play

Row = tuple[str, Phase, Phase]
Walk = Callable[[], Play]
NOTHING_BEGINS = Bounds(pure_steps=0)
BREAKS = "title: '${{ 1 / (size(run.id) - 36) }}'"
COUNTED = "state: {n: {type: integer, default: 0}}\n"
UNDONE = "{id: a, call: t.f, undo: {call: t.back}}"


def call() -> Play:
    """A call that is tried twice."""
    play = Play("steps: [{id: a, call: t.f, retry: {max: 1, every: 1m}}]")
    play.fail("a")
    play.advance(HOUR)
    play.succeed("a")
    return play


def cleaned() -> Play:
    """A call and a document, each with a `finally`."""
    return Play("steps: [{id: a, call: t.f, finally: [{say: x}]}]\nfinally: [{say: done}]").succeed_all("a")


def people() -> Play:
    play = Play("steps: [{id: a, call: pick}, {say: done}]")
    play.answer("a", content="x")
    return play


def waits() -> Play:
    play = Play("steps: [{wait: {for: 1m}}, {id: a, wait: {for: 1m}, finally: [{say: x}]}]")
    play.advance(HOUR)
    play.advance(HOUR)
    return play


def signals_that_never_come() -> Play:
    wait = "wait_for: {event: ping, deadline: 1m}"
    play = Play(f"steps: [{{id: a, {wait}, catch: [{{steps: [{{say: x}}]}}]}}, {{id: b, {wait}}}]")
    play.advance(HOUR)
    play.advance(HOUR)
    return play


def document_that_returns_from_its_catch(finally_: str = "") -> Play:
    play = Play("steps: [{id: a, call: t.f}]\ncatch: [{steps: [{return: 1}]}]" + finally_)
    play.fail("a", "tool.invalid_result")
    return play


def returned() -> Play:
    return Play("steps: [{return: 1}]")


def failed_and_retried() -> Play:
    play = Play("steps: [{id: a, call: t.f}]")
    play.fail("a", "tool.invalid_result")
    play.retry()
    return play


def caught() -> Play:
    """Behind its `catch` comes its `finally`."""
    play = Play("steps: [{id: a, call: t.f, catch: [{steps: [{say: x}]}], finally: [{say: y}]}]")
    play.fail("a", "tool.invalid_result")
    return play


def skipped() -> Play:
    return Play("steps: [{if: 'false', say: x}]")


def skipped_by_an_operator(finally_: str = "") -> Play:
    play = Play(f"steps: [{{id: a, call: t.f, retry: {{max: 1, every: 1h}}{finally_}}}, {{say: done}}]")
    play.fail("a")
    play.skip("a")
    return play


def skipped_while_it_waits(finally_: str = "") -> Play:
    play = Play(f"steps: [{{id: a, wait: {{for: 1d}}{finally_}}}, {{say: done}}]")
    play.skip("a")
    return play


def revised() -> Play:
    """A decision of the author's own."""
    asks = "approve: {title: Ship?, from: anyone, deadline: 1h, options: [approve, reject, revise]}"
    loop = f"{{repeat: {{max: 2, steps: [{{id: ask, {asks}, on_decision: {{revise: [{{say: again}}]}}}}]}}}}"
    play = Play(f"steps: [{loop}]")
    play.answer(next(iter(play.asking)), decision="revise")
    return play


def handlers_that_run_twice() -> Play:
    """A `finally` whose steps are to begin once more after a Retry: one is skipped, two fail, the last one begins."""
    steps = f"{{if: 'false', say: x}}, {{id: f, {BREAKS}, say: x, catch: [{{steps: [{{say: x}}]}}]}}, {{say: y}}"
    play = Play(f"steps: [{{id: a, call: t.f, finally: [{steps}, {{id: g, {BREAKS}, say: x}}]}}]")
    play.fail("a", "tool.invalid_result")
    play.retry()
    play.fail("a", "tool.invalid_result")
    return play


def handler_that_waits_to_begin_again() -> Play:
    play = Play("steps: [{id: a, call: t.f, finally: [{id: f, say: x}]}]")
    play.fail("a", "tool.invalid_result")
    play.retry()
    play.pause()
    play.fail("a", "tool.invalid_result")
    return play


def step_that_waits_to_begin_again() -> Play:
    play = Play("steps: [{id: a, call: t.f}]")
    play.fail("a", "tool.invalid_result")
    play.limits = NOTHING_BEGINS
    play.retry()
    return play


def terminated(before: Walk) -> Play:
    play = before()
    play.terminate()
    return play


def followed_by(before: Walk, kind: Callable[..., e.Event], path: str, **fields: str) -> Play:
    """By hand: an event that is decided so rarely that no short run comes by it."""
    play = before()
    play.log.append((kind(at=play.now, turn=1, path=path, **fields),))
    return play


def begins_skipped_after_a_retry(finally_: str = "") -> Play:
    """A step failed; when it is to begin again, its `if` is false."""
    a = f"{{id: a, if: state.n == 0, call: t.f{finally_}}}"
    play = Play(f"{COUNTED}steps: [{{id: p, parallel: {{x: [{a}], y: [{{id: b, call: t.g}}, {{set: {{n: 1}}}}]}}}}]")
    play.succeed("p/y/b")
    play.fail("p/x/a", "tool.invalid_result")
    play.retry()
    return play


def begins_wrongly(rest: str = "") -> Play:
    return Play(f"steps: [{{id: a, {BREAKS}, say: x{rest}}}]")


def fails_to_begin_twice() -> Play:
    play = begins_wrongly()
    play.retry()
    return play


def catches_another_error_after_a_retry() -> Play:
    title = "title: '${{ 1 / (1 - state.n) }}'"
    a = f"{{id: a, {title}, call: t.f, catch: [{{errors: [expression.error], steps: [{{say: x}}]}}]}}"
    play = Play(f"{COUNTED}steps: [{{id: p, parallel: {{x: [{a}], y: [{{id: b, call: t.g}}, {{set: {{n: 1}}}}]}}}}]")
    play.succeed("p/y/b")
    play.fail("p/x/a", "tool.invalid_result")
    play.retry()
    return play


def caught_and_failed_again(finally_: str = "") -> Play:
    play = Play(f"steps: [{{id: a, call: t.f, catch: [{{steps: [{{id: c, call: t.g}}]}}]{finally_}}}]")
    play.fail("a", "tool.invalid_result")
    play.fail("a/~catch/0/c", "tool.invalid_result")
    return play


def terminated_before_it_began() -> Play:
    play = Play("steps: [{id: a, call: t.f}]", limits=NOTHING_BEGINS)
    play.terminate()
    return play


def stopped_with_an_undo() -> Play:
    """The document's undo, then its `finally`."""
    play = Play(f"steps: [{UNDONE}, {{id: b, call: pick}}]\nfinally: [{{say: done}}]").succeed_all("a")
    play.stop()
    play.succeed("a/~undo")
    return play


def branch_that_is_cut() -> Play:
    """A block and a question, each with a `finally`, are cut off by a branch that fails."""
    asks = "{id: w, try: [{id: a, call: pick}], finally: [{say: x}]}"
    other = "{id: c, call: pick, finally: [{say: x}]}"
    branches = f"x: [{asks}], y: [{other}], z: [{{id: b, call: t.g}}]"
    play = Play(f"steps: [{{id: p, parallel: {{{branches}}}}}]")
    play.fail("p/z/b", "tool.invalid_result")
    return play


def block_that_is_stopped() -> Play:
    play = Play("steps: [{id: w, try: [{id: a, call: pick}], finally: [{say: x}]}]")
    play.stop()
    return play


def effect_that_ends_in_a_stop() -> Play:
    play = Play("steps: [{id: a, call: t.f, finally: [{say: x}]}]")
    play.stop()
    play.succeed("a")
    return play


def undone(finally_: str = "") -> Play:
    play = Play(f"steps: [{{id: a, call: t.f, undo: {{call: t.back}}{finally_}}}, {{id: b, call: t.g}}]")
    play.succeed("a")
    play.fail("b", "tool.invalid_result")
    play.succeed("a/~undo")
    return play


def items() -> Play:
    """Of two items the first finishes, the second is undone."""
    steps = f"steps: [{UNDONE}, {{id: b, call: t.g}}]"
    play = Play(f"steps: [{{id: l, for_each: {{items: [1, 2], rollback: item, {steps}}}}}]")
    play.succeed_all("l[1]/a", "l[1]/b", "l[2]/a")
    play.fail("l[2]/b", "tool.invalid_result")
    play.succeed("l[2]/a/~undo")
    return play


def items_of_a_finally_again() -> Play:
    """A loop that cleans up runs once more when its step fails again after a Retry; it is cut off before all begin."""
    play = Play(
        "steps:\n- id: a\n  call: t.f\n  finally:\n  - id: each\n    for_each:\n      items: [x, y, z]\n"
        "      max_parallel: 3\n      steps: [{call: t.g}]\n"
    )
    play.fail("a", "tool.invalid_result")
    play.fail("a/~finally/each[x]/call#1", "tool.invalid_result")
    play.retry()
    play.limits = Bounds(pure_steps=2)
    play.fail("a", "tool.invalid_result")
    play.do(c.Terminate(by="user:ann"))
    return play


def items_that_never_begin() -> Play:
    play = Play(
        "steps: [{id: l, for_each: {items: [1, 2], max_parallel: 2, steps: [{call: t.f}]}}]",
        limits=Bounds(pure_steps=1),
    )
    play.terminate()
    return play


def item_that_was_cut_off_before_it_began() -> Play:
    loop = "id: each, for_each: {items: [a, b], steps: [{id: w, call: t.f}]}"
    play = Play(f"steps: [{{id: both, parallel: {{one: [{{{loop}}}], two: [{{id: other, call: t.f}}]}}}}]")
    play.pause()
    play.succeed(next(path for path in play.open if "each" in path))
    play.fail("both/two/other", retriable=False)
    play.resume()
    play.retry()
    return play


def item_that_ends_again_in_vain() -> Play:
    """All in it is done, but its output fails; a Retry makes it end once more."""
    play = Play("steps: [{id: l, for_each: {items: [1], steps: [{say: x}], output: '${{ 1 / (size(run.id) - 36) }}'}}]")
    play.limits = NOTHING_BEGINS
    play.retry()
    play.terminate()
    return play


def document_that_returns_while_something_cleans_up() -> Play:
    x = "{id: a, call: t.f, finally: [{id: c, call: t.g}]}"
    play = Play(f"steps: [{{id: p, parallel: {{x: [{x}], y: [{{id: b, call: t.h}}, {{return: 1}}]}}}}]")
    play.succeed_all("p/x/a", "p/y/b", "p/x/a/~finally/c")
    return play


def retried(block: str, moves: Callable[[Play], None], *, by_the_flow: bool, finally_: str = "") -> Play:
    """A block in which something is left to do is opened again: by the Retry itself, or when the flow comes by it,
    behind a step that was undone."""
    before = UNDONE + ", " if by_the_flow else ""
    behind = ", {id: z, call: t.h}" if "undo" in block else ""
    play = Play(f"steps: [{before}{{id: p, parallel: {{{block}}}{finally_}}}{behind}]")
    if by_the_flow:
        play.succeed("a")
    moves(play)
    if by_the_flow:
        play.succeed("a/~undo")
    play.retry()
    if by_the_flow:
        play.succeed("a")
    return play


OWN_FINALLY = "x: [{id: q, call: t.f, finally: [{id: c, call: t.g}]}], y: [{say: x}]"
CAUGHT = "x: [{id: q, call: t.f, catch: [{steps: [{id: c, call: t.g}]}]}], y: [{id: r, call: t.h}]"
UNDO_INSIDE = "x: [{id: q, call: t.f, undo: {call: t.back}}], y: [{say: x}]"


def fails_by_its_own_finally(play: Play) -> None:
    play.succeed("p/x/q")
    play.fail("p/x/q/~finally/c", "tool.invalid_result")


def catch_is_cut_off(play: Play) -> None:
    play.fail("p/x/q", "tool.invalid_result")
    play.fail("p/y/r", "tool.invalid_result")


def is_undone_behind(play: Play) -> None:
    play.succeed("p/x/q")
    play.fail("z", "tool.invalid_result")
    play.succeed("p/x/q/~undo")


def undone_block_that_is_retried() -> Play:
    play = Play(f"steps: [{{id: w, try: [{UNDONE}, {{id: b, call: t.g}}]}}]").succeed_all("w/a")
    play.fail("w/b", "tool.invalid_result")
    play.succeed("w/a/~undo")
    play.retry()
    return play


def lost_too_often() -> Play:
    play = Play("steps: [{id: a, call: t.f}]")
    for _ in range(5):
        play.lose("a")
    play.retry()
    return play


FINALLY = ", finally: [{say: x}]"
WALKS: dict[Row, Walk] = {
    ("step_started", "new", "working"): call,
    ("step_started", "pending", "working"): handlers_that_run_twice,
    ("step_started", "handling", "working"): handlers_that_run_twice,
    ("step_started", "over", "working"): failed_and_retried,
    ("iteration_started", "new", "working"): items,
    ("iteration_started", "pending", "working"): items_of_a_finally_again,
    ("iteration_started", "over", "working"): item_that_was_cut_off_before_it_began,
    ("attempt_started", "working", "working"): call,
    ("pending_opened", "working", "waiting"): people,
    ("pending_decided", "waiting", "working"): people,
    ("timer_set", "working", "waiting"): waits,
    ("signals_awaited", "working", "waiting"): signals_that_never_come,
    ("step_finished", "new", "handling"): cleaned,
    ("step_finished", "new", "over"): returned,
    ("step_finished", "working", "handling"): cleaned,
    ("step_finished", "working", "over"): call,
    ("step_finished", "waiting", "handling"): waits,
    ("step_finished", "waiting", "over"): waits,
    ("step_finished", "handling", "handling"): functools.partial(
        document_that_returns_from_its_catch, "\nfinally: [{say: x}]"
    ),
    ("step_finished", "handling", "over"): document_that_returns_from_its_catch,
    ("step_skipped", "new", "over"): skipped,
    ("step_skipped", "pending", "over"): handlers_that_run_twice,
    ("step_skipped", "working", "handling"): revised,
    ("step_skipped", "working", "over"): skipped_by_an_operator,
    ("step_skipped", "waiting", "handling"): functools.partial(skipped_while_it_waits, FINALLY),
    ("step_skipped", "waiting", "over"): skipped_while_it_waits,
    ("step_skipped", "handling", "over"): functools.partial(begins_skipped_after_a_retry, FINALLY),
    ("step_skipped", "over", "over"): begins_skipped_after_a_retry,
    ("step_failed", "new", "handling"): functools.partial(begins_wrongly, FINALLY),
    ("step_failed", "new", "over"): begins_wrongly,
    ("step_failed", "pending", "handling"): handlers_that_run_twice,
    ("step_failed", "pending", "over"): handlers_that_run_twice,
    ("step_failed", "working", "handling"): caught_and_failed_again,
    ("step_failed", "working", "over"): undone,
    ("step_failed", "waiting", "handling"): signals_that_never_come,
    ("step_failed", "waiting", "over"): signals_that_never_come,
    ("step_failed", "handling", "handling"): functools.partial(caught_and_failed_again, FINALLY),
    ("step_failed", "handling", "over"): caught_and_failed_again,
    ("step_failed", "over", "handling"): catches_another_error_after_a_retry,
    ("step_failed", "over", "over"): fails_to_begin_twice,
    ("step_stopped", "new", "handling"): stopped_with_an_undo,
    ("step_stopped", "new", "over"): terminated_before_it_began,
    ("step_stopped", "pending", "handling"): functools.partial(
        followed_by, handler_that_waits_to_begin_again, e.StepStopped, "a/~finally/f", handler="~undo"
    ),
    ("step_stopped", "pending", "over"): functools.partial(terminated, handler_that_waits_to_begin_again),
    ("step_stopped", "working", "handling"): branch_that_is_cut,
    ("step_stopped", "working", "over"): document_that_returns_while_something_cleans_up,
    ("step_stopped", "waiting", "handling"): branch_that_is_cut,
    ("step_stopped", "waiting", "over"): branch_that_is_cut,
    ("step_stopped", "handling", "handling"): stopped_with_an_undo,
    ("step_stopped", "handling", "over"): block_that_is_stopped,
    ("step_stopped", "over", "handling"): functools.partial(
        followed_by, step_that_waits_to_begin_again, e.StepStopped, "a", handler="~undo"
    ),
    ("step_stopped", "over", "over"): functools.partial(terminated, step_that_waits_to_begin_again),
    ("step_undone", "pending", "pending"): functools.partial(
        followed_by, handler_that_waits_to_begin_again, e.StepUndone, "a/~finally/f"
    ),
    ("step_undone", "handling", "handling"): functools.partial(undone, FINALLY),
    ("step_undone", "over", "over"): undone,
    ("iteration_ended", "new", "over"): items_that_never_begin,
    ("iteration_ended", "pending", "over"): items_of_a_finally_again,
    ("iteration_ended", "working", "over"): items,
    ("iteration_ended", "handling", "over"): items,
    ("iteration_ended", "over", "over"): item_that_ends_again_in_vain,
    ("step_ending", "new", "working"): document_that_returns_while_something_cleans_up,
    ("handler_started", "working", "handling"): block_that_is_stopped,
    ("handler_started", "handling", "handling"): caught,
    ("handler_started", "over", "handling"): effect_that_ends_in_a_stop,
    ("step_reopened", "handling", "handling"): functools.partial(retried, CAUGHT, catch_is_cut_off, by_the_flow=True),
    ("step_reopened", "handling", "working"): functools.partial(
        retried, UNDO_INSIDE, is_undone_behind, by_the_flow=True, finally_=FINALLY
    ),
    ("step_reopened", "over", "handling"): functools.partial(
        retried, OWN_FINALLY, fails_by_its_own_finally, by_the_flow=True
    ),
    ("step_reopened", "over", "working"): functools.partial(retried, UNDO_INSIDE, is_undone_behind, by_the_flow=True),
    ("run_retried", "working", "working"): lost_too_often,
    ("run_retried", "handling", "handling"): functools.partial(retried, CAUGHT, catch_is_cut_off, by_the_flow=False),
    ("run_retried", "handling", "working"): undone_block_that_is_retried,
    ("run_retried", "over", "handling"): functools.partial(
        retried, OWN_FINALLY, fails_by_its_own_finally, by_the_flow=False
    ),
    ("run_retried", "over", "working"): functools.partial(retried, UNDO_INSIDE, is_undone_behind, by_the_flow=False),
}
ROWS = {(event, before, after) for event, row in STEP_TRANSITIONS.items() for before in row for after in row[before]}


def walked(play: Play) -> Iterator[tuple[e.Event, StepState | None, StepState]]:
    """Each event of the play with the steps whose record it has changed: before, and after."""
    state = RunState(str(play.run_id))
    for event in play.events:
        after = evolve(state, event)
        for path, step in after.steps.items():
            before = state.steps.get(path)
            if before is not step:
                yield event, before, step
        state = after


def test_every_row_of_the_table_has_a_walk() -> None:
    assert WALKS.keys() == ROWS


@pytest.mark.parametrize("row", sorted(ROWS), ids="-".join)
def test_the_row_is_walked(row: Row) -> None:
    phases = [
        (event.type, "new" if before is None else before.phase, after.phase)
        for event, before, after in walked(WALKS[row]())
    ]
    assert row in phases


@pytest.mark.parametrize("walk", WALKS.values(), ids=map("-".join, WALKS))
def test_an_event_gives_a_step_the_outcomes_that_the_table_has_for_it(walk: Walk) -> None:
    for event, before, after in walked(walk()):
        if event.type in STEP_OUTCOMES and getattr(event, "path", None) in (None, ""):
            continue
        if before is not None and (before.phase, before.outcome) == (after.phase, after.outcome):
            continue
        if event.type in STEP_OUTCOMES and after.phase != "pending":
            assert after.outcome in STEP_OUTCOMES[event.type], event


def test_a_phase_that_the_table_does_not_have_is_a_bug() -> None:
    play = people()
    with pytest.raises(AssertionError, match="not in the transition table"):
        evolve(play.state, e.TimerSet(at=NOON, turn=1, path="a", kind="wait", due=NOON + HOUR))
