"""Where a failed run goes on when it is retried. Reads the plan and the state; emits nothing.

A list goes on at its first step that is not done. Steps that were undone are not done: they run again, and so does
everything that failed or was cut off. Steps that finished and were not undone stay as they are
(docs/language.md#failing)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from hai_flow.definition import paths
from hai_flow.definition.paths import is_in_cleanup, is_inside
from hai_flow.definition.plan import BLOCKS, Iteration, Plan, Step
from hai_flow.engine.blocks import block_of
from hai_flow.engine.blocks.parallel import is_decided, winners
from hai_flow.engine.draft import RUN_END, Draft
from hai_flow.engine.state.instances import resolve_step
from hai_flow.engine.state.state import RunState, StepState


@dataclass(slots=True)
class Frontier:
    """Where to go on: blocks that are `reopened`, steps that are `ready` in them, how many branches of a parallel step
    have something left to do, and which `catch`, or `finally`, of a step goes on that has failed."""

    reopened: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    branches: dict[str, int] = field(default_factory=dict)
    handling: dict[str, str] = field(default_factory=dict)

    def take(self, other: Frontier) -> None:
        self.reopened += other.reopened
        self.ready += other.ready
        self.branches |= other.branches
        self.handling |= other.handling

    def fields(self) -> dict[str, Any]:
        return {
            "reopened": tuple(self.reopened),
            "ready": tuple(self.ready),
            "branches": self.branches,
            "handling": self.handling,
        }


def retry_frontier(draft: Draft, redo: tuple[str, ...]) -> Frontier:
    """Where a Retry of the whole run goes on, in the plan's order; `redo` are the undone steps that run again."""
    walk, root = _Walk(draft, redo), draft.state.steps.get("")
    frontier = Frontier() if root is None else walk.inside(draft.step(""), root)
    if root is None and not walk.list_done(draft.plan.first, frontier):
        return frontier
    if not frontier.ready:  # all is done but the output, which failed
        frontier.ready.append(RUN_END)
    return frontier


def inside(draft: Draft, step: Step) -> Frontier:
    """Where a Retry goes on in a step that was over, or in an iteration; nothing is ready if all in it is done."""
    return _Walk(draft, draft.state.redo).find_frontier(step, draft.state.steps[step.path])


def to_redo(plan: Plan, state: RunState) -> tuple[str, ...]:
    """The undone steps that a Retry comes by again: all but those whose failure was dealt with, by a `catch` around
    them or as data of a `for_each`."""
    undone = dict.fromkeys((*state.redo, *state.undone))
    return tuple(path for path in undone if path in state.steps and not _is_settled(plan, state, path))


def _is_settled(plan: Plan, state: RunState, path: str) -> bool:
    if state.steps[path].status != "undone" or is_in_cleanup(path):
        return True
    while path:
        step = resolve_step(plan, path)
        path = step.parent
        around = state.steps.get(path)
        if around is None or paths.is_catch(step.body):  # a `catch` stands around a list of decisions, too
            continue
        if around.status == "failed" and around.handled:
            return True
        if around.status != "finished":
            continue
        if step.is_iteration and state.steps[step.path].status != "finished":
            return True
        if _has_lost(plan, path, around, step.body):
            return True
    return False


def _has_lost(plan: Plan, path: str, known: StepState, branch: str) -> bool:
    """Whether the step at `path` is a race that other branches have won."""
    won = winners(resolve_step(plan, path), known)
    return bool(won) and branch not in won


class _Walk(msgspec.Struct, frozen=True):
    draft: Draft
    redo: tuple[str, ...]

    def list_done(self, first: str, frontier: Frontier) -> bool:
        """Whether the list that begins at `first` is done; if not, notes where it goes on."""
        path: str | None = first
        while path is not None:
            step = self.draft.step(path)
            if not self._is_step_done(step, frontier):
                return False
            path = step.next
        return True

    def _is_step_done(self, step: Step, frontier: Frontier) -> bool:
        step_state = self.draft.state.steps.get(step.path)
        if step_state is None or step_state.status == "pending":
            frontier.ready.append(step.path)
            return False
        over = step_state.status in ("finished", "skipped")
        if over and step_state.phase == "over" and not self._has_undone_inside(step.path):
            return True
        inner = self.find_frontier(step, step_state)
        if inner.ready:
            frontier.take(inner)
            return False
        if over or step_state.handled:
            return True
        frontier.ready.append(step.path)  # an effect or a question; a block that failed before it began, or behind all
        return False

    def find_frontier(self, step: Step, known: StepState) -> Frontier:
        """Where it goes on in a step that is over; nothing is ready where all in it is done, or it begins anew."""
        if not known.done or self._has_undone_inside(step.path):
            return self.inside(step, known)
        assert step.finally_ is not None, "nothing else fails what is done"
        frontier = Frontier(handling={step.path: paths.FINALLY})
        self.list_done(step.finally_, frontier)
        return frontier

    def _has_undone_inside(self, path: str) -> bool:
        return any(is_inside(each, path) for each in self.redo)

    def inside(self, step: Step, known: StepState) -> Frontier:
        """Where it goes on inside the step: in a `catch` that was cut off or has failed, in the lists of a block, in
        the other handlers of a step that is over."""
        for number, clause in enumerate(step.catch):
            frontier = Frontier(handling={step.path: paths.catch(number)})
            if self._is_begun(clause.first) and not self.list_done(clause.first, frontier):
                return frontier
        if isinstance(step.verb, BLOCKS) and not known.handled and known.done != "handled":
            frontier = Frontier([step.path])
            self._lists(step, known, frontier)
            return frontier
        frontier, over = Frontier(), known.status in ("finished", "skipped")
        if over or known.handled:
            decided = step.handlers.values() if over else ()  # a `catch` has dealt with whatever was decided
            firsts = (first for first in (*decided, step.finally_) if first is not None)
            all(self.list_done(first, frontier) for first in firsts if self._is_begun(first))
        return frontier

    def _is_begun(self, path: str) -> bool:
        step_state = self.draft.state.steps.get(path)
        return step_state is not None and step_state.status != "pending"

    def _lists(self, step: Step, known: StepState, frontier: Frontier) -> None:
        """Note where the lists, or the iterations, of a block go on."""
        resumption = block_of(step).resume(step, known)
        inner = Frontier()
        going_on = [first for first in resumption.lists if not self.list_done(first, inner)]
        if is_decided(step, len(resumption.lists) - len(going_on)):
            going_on = []  # a branch came to its end while the race was cut off: it has won
        else:
            frontier.take(inner)
        if resumption.counted:
            frontier.branches[step.path] = len(going_on)
        for path, done in resumption.iterations:
            before = self.draft.state.steps.get(path)
            done = done or (before is not None and before.outcome == "finished")
            if not done or self._has_undone_inside(path):
                iteration, inner = self.draft.step(path), Frontier([path])
                assert isinstance(iteration.verb, Iteration)
                if before is None or not before.verb or self.list_done(iteration.verb.first, inner):
                    frontier.ready.append(path)  # it never began; or all in it is done but its end
                else:
                    frontier.take(inner)
            if resumption.at_once is not None and len(frontier.ready) >= resumption.at_once:
                break
