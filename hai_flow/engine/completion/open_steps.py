"""Which steps are open, and which are being ended: questions that the rules of all ends ask. Emits nothing."""

from __future__ import annotations

from hai_flow.definition.paths import is_in_cleanup, is_inside
from hai_flow.definition.plan import Step
from hai_flow.engine.draft import Draft


def open_leaves(draft: Draft) -> list[str]:
    """The innermost open steps: those that work, wait, or may begin."""
    state = draft.state
    paths = dict.fromkeys((*state.attempts, *state.open_pendings, *(t.path for t in state.timers), *state.ready))
    paths.update(dict.fromkeys(draft.list_waiting_elsewhere()))
    paths.pop("", None)
    return sorted(paths)


def is_open_inside(draft: Draft, scope: str) -> bool:
    """Whether a step inside this one still works, waits, or may begin."""
    state = draft.state
    return (
        any(is_inside(path, scope) for path in state.attempts)
        or any(is_inside(path, scope) for path in state.ready if path)
        or any(is_inside(path, scope) for path in state.open_pendings)
        or any(is_inside(timer.path, scope) for timer in state.timers if timer.path)
        or any(is_inside(path, scope) for path in draft.list_waiting_elsewhere())
    )


def is_ending(draft: Draft, path: str) -> bool:
    """Whether the step ends as soon as nothing is open inside it."""
    step_state = draft.state.steps.get(path)
    return step_state is not None and step_state.ending is not None


def is_left_to_the_stop(draft: Draft, path: str) -> bool:
    """Whether the run is being stopped, and finds the next step by itself (`stopping`)."""
    return draft.state.status == "stopping" and not is_in_cleanup(path)


def has_begun(draft: Draft, path: str) -> bool:
    """Whether the step has begun, and since the last Retry, if it is to begin again."""
    step_state = draft.state.steps.get(path)
    return step_state is not None and (step_state.is_open or path not in draft.state.ready)


def has_undone_inside(draft: Draft, step: Step) -> bool:
    """Whether something inside the step was undone, and has to run again since the last Retry."""
    return any(is_inside(each, step.path) for each in draft.state.redo)


def find_iteration_around(draft: Draft, step: Step) -> Step:
    around = step
    while around.path and not around.is_iteration:
        around = draft.step(around.parent)
    assert around.path, "only what stands in a loop leaves an iteration"
    return around
