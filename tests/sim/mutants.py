"""Bugs made by hand, to show that the simulation would find such. Each breaks the engine while it is applied."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from hai_flow.engine import advance
from hai_flow.engine import due as passing_time
from hai_flow.engine import events as e
from hai_flow.engine.blocks import for_each
from hai_flow.engine.completion import cancellation, compensation, fail, finish, stopping
from hai_flow.engine.completion import loop as endings
from hai_flow.engine.completion.consequences import FinishStep, ListDone
from hai_flow.engine.evolve import children, common, loops, steps
from hai_flow.engine.evolve import evolve as folds
from hai_flow.engine.evolve import pendings as folds_of_pendings
from hai_flow.engine.evolve import retry as folds_of_retry
from hai_flow.engine.handlers import attempts, outcomes
from hai_flow.engine.pendings import validate_answers
from hai_flow.engine.runs import fork
from hai_flow.engine.state.state import Map
from hai_flow.engine.steps import retry, start_step

Mutant = Callable[[pytest.MonkeyPatch], None]


def _fold(patch: pytest.MonkeyPatch, kind: type[e.Event], fold: Callable[..., Any]) -> None:
    patch.setitem(folds._FOLDS, kind, fold)


def late_results_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outcomes, "_attempt", lambda draft, path, attempt: draft.step(path))


def the_second_answer_wins(patch: pytest.MonkeyPatch) -> None:
    reading = validate_answers._reading

    def reopened(draft: Any, answer: Any, by: Any) -> Any:
        pending, read, _ = reading(draft, answer, by)
        return pending, read, False

    patch.setattr(validate_answers, "_reading", reopened)


def voided_pendings_can_be_answered(patch: pytest.MonkeyPatch) -> None:
    voided = folds._FOLDS[e.PendingVoided]

    def left_open(state: Any, event: Any) -> Any:
        after = voided(state, event)
        return replace(after, pendings=state.pendings)

    _fold(patch, e.PendingVoided, left_open)


def steps_begin_while_paused(patch: pytest.MonkeyPatch) -> None:
    take_up = advance.take_up

    def also_paused(draft: Any) -> None:
        if draft.state.status == "paused" and draft.state.ready and draft.state.ready[0]:
            start_step.begin(draft, draft.step(draft.state.ready[0]))
        take_up(draft)

    patch.setattr(advance, "take_up", also_paused)


def losers_of_a_race_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cancellation, "cut", lambda draft, scope, reason, **more: None)


def what_began_stays_ready(patch: pytest.MonkeyPatch) -> None:
    for room in (steps, loops, folds_of_retry, folds_of_pendings, children):
        if hasattr(room, "without"):
            patch.setattr(room, "without", lambda items, item: items)


def a_back_off_has_no_timer(patch: pytest.MonkeyPatch) -> None:
    timer_set = folds._FOLDS[e.TimerSet]

    def quiet(state: Any, event: Any) -> Any:
        return common.following(state, event) if event.kind == "retry" else timer_set(state, event)

    _fold(patch, e.TimerSet, quiet)


def attempts_are_counted_anew_after_a_retry(patch: pytest.MonkeyPatch) -> None:
    retried = folds._FOLDS[e.RunRetried]

    def forgetful(state: Any, event: Any) -> Any:
        after = retried(state, event)
        steps = after.steps
        for path in event.ready:
            if path in steps:
                steps = steps.set(path, replace(steps[path], attempt=0))
        return replace(after, steps=steps)

    _fold(patch, e.RunRetried, forgetful)


def effects_are_tried_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempts, "delay", lambda *args: 1_000)


def timers_fire_early(patch: pytest.MonkeyPatch) -> None:
    due = passing_time.next_due

    def hasty(state: Any, **more: Any) -> Any:
        found = due(state, **more)
        return None if found is None else found._replace(at=found.at - 5_000)

    is_due = passing_time.is_due
    patch.setattr(passing_time, "next_due", hasty)
    patch.setattr(passing_time, "is_due", lambda state, until, **more: is_due(state, until + 5_000, **more))


def deadlines_stand_while_paused(patch: pytest.MonkeyPatch) -> None:
    due = passing_time.next_due
    patch.setattr(
        passing_time, "next_due", lambda state, **more: None if state.status == "paused" else due(state, **more)
    )


def a_rejection_falls_through(patch: pytest.MonkeyPatch) -> None:
    list_done = finish.list_done

    def forgiving(draft: Any, due: ListDone) -> Any:
        return FinishStep(draft.step(due.last.parent)) if due.last.body == "~reject" else list_done(draft, due)

    patch.setitem(endings._RULES, ListDone, forgiving)


def a_parallel_step_ends_with_its_first_branch(patch: pytest.MonkeyPatch) -> None:
    ended = folds._FOLDS[e.BranchEnded]

    def hasty(state: Any, event: Any) -> Any:
        after = ended(state, event)
        return replace(after, steps=common.with_step(after, event.path, left=0))

    _fold(patch, e.BranchEnded, hasty)


def chance_is_drawn_again_at_replay(patch: pytest.MonkeyPatch) -> None:
    delay = attempts.delay

    def moody(*args: Any) -> int | None:
        wait = delay(*args)
        return None if wait is None else wait + random.randint(0, 1_000_000)

    patch.setattr(attempts, "delay", moody)


def a_snapshot_forgets_what_began(patch: pytest.MonkeyPatch) -> None:
    from tests.support import runs

    encode = runs.encode_state
    patch.setattr(runs, "encode_state", lambda state: encode(replace(state, attempts=Map())))


def a_retry_forgets_the_siblings(patch: pytest.MonkeyPatch) -> None:
    resumed = retry.retry_frontier

    def forgetful(draft: Any, redo: Any) -> Any:
        frontier = resumed(draft, redo)
        return retry.Frontier(frontier.reopened, frontier.ready[:1], frontier.branches)

    patch.setattr(retry, "retry_frontier", forgetful)


def the_oldest_is_undone_first(patch: pytest.MonkeyPatch) -> None:
    finished = folds._FOLDS[e.StepFinished]

    def backwards(state: Any, event: Any) -> Any:
        after = finished(state, event)
        if not event.undoable:
            return after
        return replace(after, undoables=after.undoables.set(event.path, -after.seq))

    _fold(patch, e.StepFinished, backwards)


def an_undo_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compensation, "following_undo", lambda draft, owner: None)


def a_stop_runs_no_finally(patch: pytest.MonkeyPatch) -> None:
    for room in (finish, stopping):
        patch.setattr(room, "note_finally", lambda draft, step: None)


def a_stop_undoes_nothing(patch: pytest.MonkeyPatch) -> None:
    undo = stopping.next_undo

    def none_in_a_stop(draft: Any, scope: str) -> str | None:
        return None if draft.state.status == "stopping" else undo(draft, scope)

    for room in (stopping, cancellation, fail, compensation):
        patch.setattr(room, "next_undo", none_in_a_stop)


def one_item_too_many_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(for_each, "first_iterations", lambda path, keys, verb: tuple(f"{path}[{key}]" for key in keys))


def an_iteration_is_left_out(patch: pytest.MonkeyPatch) -> None:
    from hai_flow.engine.steps.next_iteration import next_iteration

    def hasty(path: Any, loop: Any) -> Any:
        following = next_iteration(path, loop)
        return following if loop.begun != 2 else ()

    patch.setattr(for_each, "next_iteration", hasty)


def a_run_that_is_left_undoes_everything(patch: pytest.MonkeyPatch) -> None:
    stopping = folds._FOLDS[e.RunStopping]
    _fold(patch, e.RunStopping, lambda state, event: stopping(state, replace(event, inherited=None)))


def a_fork_asks_under_the_old_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fork, "_renamed_id", lambda id, old, new: id)


MUTANTS: tuple[Mutant, ...] = (
    late_results_are_taken,
    the_second_answer_wins,
    voided_pendings_can_be_answered,
    steps_begin_while_paused,
    losers_of_a_race_go_on,
    what_began_stays_ready,
    a_back_off_has_no_timer,
    attempts_are_counted_anew_after_a_retry,
    effects_are_tried_for_ever,
    timers_fire_early,
    deadlines_stand_while_paused,
    a_rejection_falls_through,
    a_parallel_step_ends_with_its_first_branch,
    chance_is_drawn_again_at_replay,
    a_snapshot_forgets_what_began,
    a_retry_forgets_the_siblings,
    the_oldest_is_undone_first,
    an_undo_is_forgotten,
    a_stop_runs_no_finally,
    a_stop_undoes_nothing,
    one_item_too_many_is_open,
    an_iteration_is_left_out,
    a_run_that_is_left_undoes_everything,
    a_fork_asks_under_the_old_ids,
)

# The seed that finds each, where it is not among the first few.
FOUND_BY: Final[dict[Mutant, int]] = {
    a_stop_runs_no_finally: 3358,
    attempts_are_counted_anew_after_a_retry: 122,
    a_retry_forgets_the_siblings: 111,
    steps_begin_while_paused: 91,
    deadlines_stand_while_paused: 91,
    a_stop_undoes_nothing: 52,
    an_undo_is_forgotten: 34,
    an_iteration_is_left_out: 29,
}
