"""The loop that draws consequences, and the ways into it: a step finishes, fails, or is to end. Every consequence of an
end is drawn at once, and nothing begins here: steps that may begin next are noted in `ready`. Where something has to
run first (a `finally`, an `undo`), the chain ends and the state says why the step waits: `handler` is the list that
goes on, `ending` how the step ends once nothing is open inside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hai_flow.definition.plan import Step
from hai_flow.engine import events as e
from hai_flow.engine.completion import cancellation, compensation, consequences, root_step
from hai_flow.engine.completion import fail as failing
from hai_flow.engine.completion import finish as completing
from hai_flow.engine.completion.consequences import Consequence
from hai_flow.engine.draft import Draft
from hai_flow.engine.state.state import Ending
from hai_flow.values import Json


def draw(draft: Draft, due: Consequence | None) -> None:
    while due is not None:
        due = _RULES[type(due)](draft, due)


def conclude(draft: Draft) -> None:
    """The last list of the document has ended, or its `finally` behind that."""
    draw(draft, root_step.conclude(draft))


def finish(draft: Draft, step: Step, output: Json, approval: Json = None, notes: tuple[str, ...] = ()) -> None:
    draw(draft, consequences.FinishStep(step, output, approval, notes))


def fail(draft: Draft, step: Step, error: e.Error, approval: Json = None) -> None:
    """The step has failed, and nothing is open inside it."""
    draw(draft, consequences.FailStep(step, error, approval))


def end(draft: Draft, step: Step, ending: Ending) -> None:
    """End the step as `ending` says; open steps inside it are cut off first."""
    draw(draft, consequences.End(step, ending))


_RULES: Final[dict[type, Callable[[Draft, Any], Consequence | None]]] = {
    consequences.FinishStep: completing.finish,
    consequences.SkipStep: completing.skip,
    consequences.ListDone: completing.list_done,
    consequences.IterationDone: completing.iteration_done,
    consequences.LeaveLoop: completing.loop_left,
    consequences.FailStep: failing.fail,
    consequences.Handle: failing.handle,
    consequences.Raise: failing.propagate,
    consequences.UndoOver: compensation.end_undo,
    consequences.End: cancellation.end,
    consequences.Settle: cancellation.settle,
}
