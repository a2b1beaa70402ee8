"""The document as a step: its list, its output, its `finally`, and the end of the run behind them. Its path is ""."""

from __future__ import annotations

from hai_flow.definition.paths import FINALLY
from hai_flow.engine import events as e
from hai_flow.engine.completion.compensation import fail_behind_finally
from hai_flow.engine.completion.consequences import Consequence, FailStep
from hai_flow.engine.draft import RUN_END, Draft, Raised
from hai_flow.engine.state.state import StepState
from hai_flow.engine.state.undo_scopes import build_undo_error
from hai_flow.values import Json


def conclude(draft: Draft) -> Consequence | None:
    """The last list of the document has ended: its output and its `finally`; or, behind those, the end of the run."""
    root = draft.state.steps.get("")
    if draft.state.failure is not None:
        draft.end_turn("failed")
        draft.emit(e.RunFailed, error=draft.state.failure)
        return None
    if draft.state.undo_failed:
        return _fail(draft)
    if root is not None and root.outcome == "finished":  # its `finally` has run, or a `return` needed none
        return _complete(draft, root.output)
    return _complete_output(draft, root)


def _complete_output(draft: Draft, root: StepState | None) -> Consequence | None:
    output = None
    if draft.plan.output is not None and (root is None or not root.handled):
        try:
            output = draft.render(draft.plan.output, None)
        except Raised as raised:
            return FailStep(draft.step(""), draft.error(raised.code, raised.message, ""))
    if draft.plan.finally_ is None or (root is not None and root.cleaned):
        return _complete(draft, output)
    return finish_document(draft, output)


def finish_document(draft: Draft, output: Json) -> Consequence | None:
    """All but the `finally` and the end of the run is over. Neither comes here: the run may be paused."""
    if draft.state.undo_failed:
        return _fail(draft)
    if draft.plan.finally_ is None:
        draft.emit(e.StepFinished, path="", output=output, ready=(RUN_END,))
    else:
        draft.emit(e.StepFinished, path="", output=output, handler=FINALLY, ready=(draft.plan.finally_,))
    return None


def _fail(draft: Draft) -> Consequence | None:
    """Something that was cut off could not be undone, and nothing around it has failed by that: the run does."""
    document, root = draft.step(""), draft.state.steps.get("")
    error = build_undo_error(draft, "", None)
    if root is not None and root.cleaned:
        return fail_behind_finally(draft, document, error)
    return FailStep(document, error)


def _complete(draft: Draft, output: Json) -> None:
    draft.end_turn("finished")
    draft.emit(e.RunFinished, output=output)
