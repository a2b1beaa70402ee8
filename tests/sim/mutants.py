"""Bugs made by hand, to show that the simulation would find such. Each breaks the engine while it is applied."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from hai_flow.engine import decide as engine
from hai_flow.engine import events as e
from hai_flow.engine import state as folds
from hai_flow.engine.decide import _Decider

Mutant = Callable[[pytest.MonkeyPatch], None]


def _fold(patch: pytest.MonkeyPatch, kind: type[e.Event], fold: Callable[..., Any]) -> None:
    patch.setitem(folds._FOLDS, kind, fold)


def late_results_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Decider, "_attempt", lambda self, path, attempt: self.plan.steps[path])


def the_second_answer_wins(patch: pytest.MonkeyPatch) -> None:
    reading = _Decider._reading

    def reopened(self: Any, answer: Any) -> Any:
        pending, read, _ = reading(self, answer)
        return pending, read, False

    patch.setattr(_Decider, "_reading", reopened)


def voided_pendings_can_be_answered(patch: pytest.MonkeyPatch) -> None:
    voided = folds._FOLDS[e.PendingVoided]

    def left_open(state: Any, event: Any) -> Any:
        after = voided(state, event)
        return folds._set(after, pendings=state.pendings)

    _fold(patch, e.PendingVoided, left_open)


def steps_begin_while_paused(patch: pytest.MonkeyPatch) -> None:
    go_on = _Decider._go_on

    def also_paused(self: Any) -> None:
        if self.state.status == "paused" and self.state.ready and self.state.ready[0]:
            self._begin(self.plan.steps[self.state.ready[0]])
        go_on(self)

    patch.setattr(_Decider, "_go_on", also_paused)


def losers_of_a_race_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Decider, "_stop_inside", lambda self, prefix, reason, **more: None)


def what_began_stays_ready(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(folds, "_without", lambda items, item: items)


def a_back_off_has_no_timer(patch: pytest.MonkeyPatch) -> None:
    timer_set = folds._FOLDS[e.TimerSet]

    def quiet(state: Any, event: Any) -> Any:
        return folds._next(state, event) if event.kind == "retry" else timer_set(state, event)

    _fold(patch, e.TimerSet, quiet)


def attempts_are_counted_anew_after_a_retry(patch: pytest.MonkeyPatch) -> None:
    retried = folds._FOLDS[e.RunRetried]

    def forgetful(state: Any, event: Any) -> Any:
        after = retried(state, event)
        steps = after.steps
        for path in event.ready:
            if path in steps:
                steps = steps.set(path, folds._set(steps[path], attempt=0))
        return folds._set(after, steps=steps)

    _fold(patch, e.RunRetried, forgetful)


def effects_are_tried_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "delay", lambda *args: 1_000)


def timers_fire_early(patch: pytest.MonkeyPatch) -> None:
    fire = _Decider._fire_timers

    def hasty(self: Any) -> bool:
        now, self.now = self.now, self.now + 5_000
        try:
            return fire(self)
        finally:
            self.now = max(now, self.state.at)

    patch.setattr(_Decider, "_fire_timers", hasty)


def deadlines_stand_while_paused(patch: pytest.MonkeyPatch) -> None:
    fire = _Decider._fire_timers
    patch.setattr(_Decider, "_fire_timers", lambda self: self.state.status != "paused" and fire(self))


def a_rejection_falls_through(patch: pytest.MonkeyPatch) -> None:
    list_ended = _Decider._list_ended

    def forgiving(self: Any, last: Any) -> None:
        if last.body == "~reject":
            self._finish(self.plan.steps[last.parent], None)
        else:
            list_ended(self, last)

    patch.setattr(_Decider, "_list_ended", forgiving)


def a_parallel_step_ends_with_its_first_branch(patch: pytest.MonkeyPatch) -> None:
    ended = folds._FOLDS[e.BranchEnded]

    def hasty(state: Any, event: Any) -> Any:
        after = ended(state, event)
        return folds._set(after, steps=folds._step(after, event.path, left=0))

    _fold(patch, e.BranchEnded, hasty)


def chance_is_drawn_again_at_replay(patch: pytest.MonkeyPatch) -> None:
    delay = engine.delay

    def moody(*args: Any) -> int | None:
        wait = delay(*args)
        return None if wait is None else wait + random.randint(0, 1_000_000)

    patch.setattr(engine, "delay", moody)


def a_snapshot_forgets_what_began(patch: pytest.MonkeyPatch) -> None:
    from tests.support import runs

    encode = runs.encode_state
    patch.setattr(runs, "encode_state", lambda state: encode(folds._set(state, attempts=folds.Map())))


def a_retry_forgets_the_siblings(patch: pytest.MonkeyPatch) -> None:
    resumption = _Decider._resumption
    patch.setattr(_Decider, "_resumption", lambda self: (resumption(self)[0], resumption(self)[1][:1]))


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
)
