"""A block verb as the engine knows it: one value of `Block` holds all that is particular to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from hai_flow.definition.plan import Step
from hai_flow.engine.completion.consequences import Consequence, FailStep
from hai_flow.engine.draft import Draft
from hai_flow.engine.events import Error
from hai_flow.engine.state.state import StepState
from hai_flow.values import Json


class BlockPlaces(msgspec.Struct, frozen=True):
    """The places inside a block that a Retry looks at: its `lists` by their first steps, and its `iterations` in their
    order.

    Each iteration comes with whether it is done; so many as `at_once` go on at the same time. `counted`: the block
    counts how many of its lists go on."""

    lists: tuple[str, ...] = ()
    counted: bool = False
    iterations: Iterable[tuple[str, bool]] = ()
    at_once: int | None = None


class Hindrance(msgspec.Struct, frozen=True):
    """Why an open block can't go on under another version; `code` is the finding's code, without "step."."""

    code: str
    message: str


def _raise_further(draft: Draft, step: Step, child: Step, error: Error) -> Consequence | None:
    return FailStep(step, error)


def _ignore_failure(draft: Draft, step: Step, child: Step, error: Error) -> Consequence | None:
    return None


def _begin_anew(draft: Draft, step: Step) -> Consequence | str | None:
    return None


def _allow_any_move(was: Step, now: Step) -> Hindrance | None:
    return None


def _refuse_list(draft: Draft, step: Step, body: str) -> Consequence | None:
    raise AssertionError(f"{step.path} has iterations, and no list of its own")


def _refuse_iteration(draft: Draft, step: Step, *more: Any) -> Consequence | None:
    raise AssertionError(f"{step.path} is no loop")


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one block verb. `step` is the block, as it stands in the run; each rule names its consequence.

    begin           the block begins
    list_done       its list `body` has ended
    child_failed    the step `child` of one of its lists has failed for good
    child_failing   the same, while finished steps inside `child` are being undone
    iteration_done  of a loop: an iteration has finished with an output
    loop_left       of a loop: a `break` has ended an iteration
    resume          where a Retry goes on inside it
    behind          where it goes on if all in it is done, and yet it failed or was cut off: a further iteration, or its
                    end. None: nothing in it has begun, so that it begins anew
    may_move        why an open block can't go on as the step `now` of another version, or None
    undoes          whether an error that leaves it undoes the steps that finished inside it
    undoes_items    of a loop: the same of one of its iterations"""

    begin: Callable[[Draft, Step], Consequence | None]
    resume: Callable[[Step, StepState], BlockPlaces]
    list_done: Callable[[Draft, Step, str], Consequence | None] = _refuse_list
    behind: Callable[[Draft, Step], Consequence | str | None] = _begin_anew
    child_failed: Callable[[Draft, Step, Step, Error], Consequence | None] = _raise_further
    child_failing: Callable[[Draft, Step, Step, Error], Consequence | None] = _ignore_failure
    iteration_done: Callable[[Draft, Step, Step, Json], Consequence | None] = _refuse_iteration
    loop_left: Callable[[Draft, Step, Step], Consequence | None] = _refuse_iteration
    may_move: Callable[[Step, Step], Hindrance | None] = _allow_any_move
    undoes: Callable[[Step], bool] = lambda step: False
    undoes_items: Callable[[Step], bool] = lambda step: False
