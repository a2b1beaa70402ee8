"""Where a failed run goes on when it is retried. Reads the plan and the state; emits nothing."""

from __future__ import annotations

from hai_flow.definition.plan import Parallel, Step, Switch
from hai_flow.engine.draft import RUN_END, Draft
from hai_flow.engine.state import StepState


def resumed(draft: Draft) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a Retry reopens (the blocks around what is not done) and what begins anew in them, in the plan's order.

    A list goes on at its first step that is not done. A step whose handler was cut off goes on inside the handler.
    """
    reopened = [""] if "" in draft.state.steps else []
    ready: list[str] = []
    if _resume_list(draft, draft.plan.first, reopened, ready):  # all is done but the output, which failed
        ready.append(RUN_END)
    return tuple(reopened), tuple(ready)


def _resume_list(draft: Draft, first: str, reopened: list[str], ready: list[str]) -> bool:
    """Whether the list that begins at `first` is done; if not, notes where it goes on."""
    path: str | None = first
    while path is not None:
        step = draft.plan.steps[path]
        if not _resume_step(draft, step, reopened, ready):
            return False
        path = step.next
    return True


def _resume_step(draft: Draft, step: Step, reopened: list[str], ready: list[str]) -> bool:
    known = draft.state.steps.get(step.path)
    if known is not None and known.status in ("finished", "skipped"):
        return True
    if known is not None and known.handler is not None:
        return _resume_list(draft, _handler_first(step, known.handler), reopened, ready)
    inner = () if known is None else _lists_begun(step, known)
    notes: tuple[list[str], list[str]] = ([], [])
    done = [_resume_list(draft, first, *notes) for first in inner]
    if all(done):  # an effect or a question; or a block that failed before it began
        ready.append(step.path)
    else:
        reopened.extend((step.path, *notes[0]))
        ready.extend(notes[1])
    return False


def _handler_first(step: Step, handler: str) -> str:
    if handler == "~reject":
        assert step.on_reject is not None
        return step.on_reject
    return step.catch[int(handler.rpartition("/")[2])].first


def _lists_begun(step: Step, known: StepState) -> tuple[str, ...]:
    if isinstance(step.verb, Switch):
        return () if known.case is None else (step.verb.cases[known.case][1],)
    if isinstance(step.verb, Parallel) and known.verb:
        return tuple(first for _, first in step.verb.branches)
    return ()
