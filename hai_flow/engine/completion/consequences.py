"""Consequences as data: each rule draws one consequence and names the next. The loop is in `loop`.

A consequence may concern the step itself (its `finally` begins), or the step around it (its list goes on, a branch has
ended). A rule names it and returns; none calls another one's rule. So a chain of ends is no deeper than the loop that
draws it, however deep the blocks stand in each other, and each rule can be read alone."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from hai_flow.definition.plan import Step
from hai_flow.engine.events import Error
from hai_flow.engine.state.state import Ending
from hai_flow.values import Json


class FinishStep(msgspec.Struct, frozen=True, gc=False):
    """The step has done its work: its `finally` goes on, or the flow behind it. `approval` is the envelope of a
    gate. `notes` as in `events.StepFinished`."""

    step: Step
    output: Json = None
    approval: Json = None
    notes: tuple[str, ...] = ()


class SkipStep(msgspec.Struct, frozen=True, gc=False):
    """The step's `if` is false: nothing inside it exists."""

    step: Step


class ListDone(msgspec.Struct, frozen=True, gc=False):
    """The list that ends with the step `last` has nothing left to do."""

    last: Step


class IterationDone(msgspec.Struct, frozen=True, gc=False):
    """The iteration has finished with `output`; it has yet to be recorded."""

    iteration: Step
    output: Json = None


class LeaveLoop(msgspec.Struct, frozen=True, gc=False):
    """A `break` in the iteration, in which nothing is open any more: it has finished, and so has its loop."""

    iteration: Step


class FailStep(msgspec.Struct, frozen=True, gc=False):
    """The step has failed, and nothing is open inside it: undo, `catch`, `finally`, or the failure is raised."""

    step: Step
    error: Error
    approval: Json = None


class Handle(msgspec.Struct, frozen=True, gc=False):
    """The undo of a step that has failed, as the log says, is over: `catch`, `finally`, or it is raised."""

    step: Step
    error: Error


class Raise(msgspec.Struct, frozen=True, gc=False):
    """The step has failed for good: the step around it takes the error."""

    step: Step
    error: Error


class UndoOver(msgspec.Struct, frozen=True, gc=False):
    """Everything inside the scope in which `owner` was undone is undone, or could not be."""

    owner: Step


class End(msgspec.Struct, frozen=True, gc=False):
    """The step is to end as `ending` says. Open steps inside it are cut off first; its `finally` lists run before.

    `of`: a step inside that has ended itself, around which blocks are open with nothing left in them."""

    step: Step
    ending: Ending
    of: Step | None = None


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Something inside the step has ended. If the step is ending, perhaps that was the last."""

    step: Step


Consequence: TypeAlias = (
    FinishStep | SkipStep | ListDone | IterationDone | LeaveLoop | FailStep | Handle | Raise | UndoOver | End | Settle
)
